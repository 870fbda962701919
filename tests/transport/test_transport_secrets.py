"""The canary: a key is in nothing that comes back, however the server echoes it."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pytest

Fetch = Callable[..., Any]


@pytest.fixture
def canary() -> str:
    return f"sk-{secrets.token_urlsafe(24)}/+={secrets.token_hex(4)}"


def holds(received: Any, canary: str) -> bool:
    """Anywhere: reprs and fields, raw, escaped or in base64, or a long part of it."""
    fields = json.dumps(asdict(received), default=repr)
    encoded = base64.b64encode(f"user:{canary}".encode()).decode()
    parts = (canary, json.dumps(canary)[1:-1], quote(canary, safe=""), encoded, encoded[8:-8], canary[5:25])
    return any(part in text for part in parts for text in (repr(received), fields))


def test_the_check_itself_sees_a_leak(fetch: Fetch, hostile: ModuleType, canary: str) -> None:
    received = fetch(hostile.answering("400 Bad", json.dumps({"error": {"message": canary}}).encode()), key="sk-another-key-0000")
    assert holds(received, canary)


def test_echoed_in_headers_and_body(fetch: Fetch, canary: str) -> None:
    received = fetch("echo", key=canary)
    assert received.exchange.status == 401
    assert "[redacted]" in received.observation.error.message
    assert any("[redacted]" in value for _, value in received.exchange.headers)
    assert not holds(received, canary)


def test_echoed_in_a_header_alone(fetch: Fetch, hostile: ModuleType, canary: str) -> None:
    received = fetch(hostile.always(lambda talk: talk.answer(headers=[f"x-request-id: {canary}"])), key=canary)
    assert dict(received.exchange.headers)["x-request-id"] == "[redacted]"
    assert not holds(received, canary)


@pytest.mark.parametrize(
    "form",
    [
        lambda key: key,
        lambda key: f"Bearer {key}",
        lambda key: json.dumps(json.dumps({"key": key})),
        lambda key: f"https://h/?key={quote(key, safe='')}",
        lambda key: "Basic " + base64.b64encode(f"user:{key}".encode()).decode(),
        lambda key: "Basic " + base64.b64encode(f"u:{key}".encode()).decode(),
        lambda key: base64.urlsafe_b64encode(f"me:{key}".encode()).decode(),
    ],
)
def test_echoed_in_an_error_in_many_forms(fetch: Fetch, hostile: ModuleType, canary: str, form: Callable[[str], str]) -> None:
    body = json.dumps({"error": {"message": f"no: {form(canary)}", "type": form(canary), "code": form(canary)}}).encode()
    received = fetch(hostile.answering("400 Bad Request", body), key=canary)
    assert not holds(received, canary)


@pytest.mark.parametrize("size", [1, 7, 50])
def test_echoed_in_a_stream_split_across_packets(fetch: Fetch, hostile: ModuleType, canary: str, size: int) -> None:
    event = hostile.delta(f"your key is {canary}!")

    def act(talk: Any) -> None:
        talk.stream_head()
        for start in range(0, len(event), size):
            talk.chunk(event[start : start + size])
            if size > 1:
                time.sleep(0.002)
        for rest in hostile.stream("."):
            talk.chunk(rest)
        talk.send(b"0\r\n\r\n")

    received = fetch(hostile.once(act), key=canary, request={"stream": True})
    assert received.exchange.fault is None
    assert received.observation.answer == "your key is [redacted]!."
    assert not holds(received, canary)


def test_spelled_out_over_several_events(fetch: Fetch, hostile: ModuleType, canary: str) -> None:
    received = fetch(hostile.streaming(*(canary[at : at + 4] for at in range(0, len(canary), 4))), key=canary, request={"stream": True})
    assert received.observation.answer == "[redacted]"
    assert canary not in repr(received)


def test_echoed_and_cut_in_the_middle_of_it(fetch: Fetch, hostile: ModuleType, canary: str) -> None:
    head = b"HTTP/1.1 401 No\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n"
    received = fetch(hostile.sending(head + b'{"error":{"message":"bad key ' + canary[:-3].encode()), key=canary)
    assert canary[:-3] not in repr(received)


def test_echoed_where_http_is_broken(fetch: Fetch, hostile: ModuleType, canary: str) -> None:
    for answer in (f"{canary} HTTP/1.1\r\n\r\n", f"HTTP/1.1 200 OK\r\nx: {canary}\0\r\n\r\n", f"HTTP/1.1 200 OK\r\ncontent-length: {canary}\r\n\r\n"):
        received = fetch(hostile.sending(answer.encode()), key=canary)
        assert received.exchange.fault is not None
        assert not holds(received, canary)


@pytest.mark.parametrize("behaviour", ["reset-before-head", "cut-after-content", "hang", "html-502"])
def test_not_in_a_fault_either(fetch: Fetch, serve: Callable[[Any], Any], canary: str, behaviour: str) -> None:
    url = serve(behaviour).base_url.replace("//", f"//user:{quote(canary, safe='')}@") + f"?key={quote(canary, safe='')}"
    assert not holds(fetch(url, key=None, first_byte_timeout=0.2), canary)


def test_a_secret_header_is_known_too(fetch: Fetch, hostile: ModuleType, canary: str) -> None:
    received = fetch(hostile.answering("400 Bad", json.dumps({"error": {"message": canary}}).encode()), key=None, headers={"api-key": canary})
    assert not holds(received, canary)


def test_a_proxys_password_is_known_too(fetch: Fetch, serve: Callable[[Any], Any], canary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def behave(talk: Any) -> None:
        while (request := talk.read_request()) is not None:
            talk.answer(json.dumps({"error": {"message": f"{canary} {request.head.decode()}"}}).encode(), status="407 Proxy Authentication Required")

    monkeypatch.setenv("http_proxy", f"http://me:{quote(canary, safe='')}@127.0.0.1:{serve(behave).port}")
    received = fetch("http://vendor.invalid/v1", key=None)
    assert received.exchange.status == 407
    assert not holds(received, canary)
