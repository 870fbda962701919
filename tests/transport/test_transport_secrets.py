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
    received = fetch(
        hostile.answering("400 Bad", json.dumps({"error": {"message": canary}}).encode()), key="sk-another-key-0000"
    )
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
def test_echoed_in_an_error_in_many_forms(
    fetch: Fetch, hostile: ModuleType, canary: str, form: Callable[[str], str]
) -> None:
    body = json.dumps(
        {"error": {"message": f"no: {form(canary)}", "type": form(canary), "code": form(canary)}}
    ).encode()
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
    received = fetch(
        hostile.streaming(*(canary[at : at + 4] for at in range(0, len(canary), 4))),
        key=canary,
        request={"stream": True},
    )
    assert received.observation.answer == "[redacted]"
    assert canary not in repr(received)


def test_echoed_and_cut_in_the_middle_of_it(fetch: Fetch, hostile: ModuleType, canary: str) -> None:
    head = b"HTTP/1.1 401 No\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n"
    received = fetch(hostile.sending(head + b'{"error":{"message":"bad key ' + canary[:-3].encode()), key=canary)
    assert canary[:-3] not in repr(received)


def test_echoed_where_http_is_broken(fetch: Fetch, hostile: ModuleType, canary: str) -> None:
    for answer in (
        f"{canary} HTTP/1.1\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nx: {canary}\0\r\n\r\n",
        f"HTTP/1.1 200 OK\r\ncontent-length: {canary}\r\n\r\n",
    ):
        received = fetch(hostile.sending(answer.encode()), key=canary)
        assert received.exchange.fault is not None
        assert not holds(received, canary)


@pytest.mark.parametrize("behaviour", ["reset-before-head", "cut-after-content", "hang", "html-502"])
def test_not_in_a_fault_either(fetch: Fetch, serve: Callable[[Any], Any], canary: str, behaviour: str) -> None:
    url = (
        serve(behaviour).base_url.replace("//", f"//user:{quote(canary, safe='')}@") + f"?key={quote(canary, safe='')}"
    )
    assert not holds(fetch(url, key=None, first_byte_timeout=0.2), canary)


def test_a_secret_header_is_known_too(fetch: Fetch, hostile: ModuleType, canary: str) -> None:
    received = fetch(
        hostile.answering("400 Bad", json.dumps({"error": {"message": canary}}).encode()),
        key=None,
        headers={"api-key": canary},
    )
    assert not holds(received, canary)


def test_a_proxys_password_is_known_too(
    fetch: Fetch, serve: Callable[[Any], Any], canary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behave(talk: Any) -> None:
        while (request := talk.read_request()) is not None:
            talk.answer(
                json.dumps({"error": {"message": f"{canary} {request.head.decode()}"}}).encode(),
                status="407 Proxy Authentication Required",
            )

    monkeypatch.setenv("http_proxy", f"http://me:{quote(canary, safe='')}@127.0.0.1:{serve(behave).port}")
    received = fetch("http://vendor.invalid/v1", key=None)
    assert received.exchange.status == 407
    assert not holds(received, canary)


# --- spelled out over the frames of a stream ----------------------------------------------------------


def rejoined(received: Any) -> str:
    """What the stored frames add up to: every string of each, by its name."""
    found: dict[str, str] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, key)
        elif isinstance(value, list):
            for item in value:
                walk(item, name)
        elif isinstance(value, str):
            found[name] = found.get(name, "") + value

    for frame in received.exchange.frames:
        if frame.data != b"[DONE]":
            walk(json.loads(frame.data), "")
    return "\n".join(found.values())


def chunks(field: str, pieces: list[str]) -> list[bytes]:
    """A stream whose deltas spell the pieces out in one field."""

    def delta(piece: str) -> dict[str, Any]:
        if field == "arguments":
            return {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
        return {field: piece}

    start = {
        "role": "assistant",
        "tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}],
    }
    deltas = [start if field == "arguments" else {"role": "assistant"}, *map(delta, pieces)]
    bodies = [
        {"id": "c", "model": "m", "choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in deltas
    ]
    bodies.append({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [*(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies), b"data: [DONE]\n\n"]


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("field", ["content", "reasoning_content", "arguments", "refusal"])
@pytest.mark.parametrize(
    "form",
    [
        str,
        lambda key: json.dumps("".join(key))[1:-1],
        lambda key: quote(key, safe=""),
        lambda key: "".join(f"%{ord(c):02X}" for c in key),
    ],
)
def test_the_frames_that_spell_a_key_are_not_stored_as_they_came(
    fetch: Fetch, hostile: ModuleType, canary: str, field: str, size: int, form: Callable[[str], str]
) -> None:
    text = f"Your key: {form(canary)}. Keep it."
    pieces = [text[at : at + size] for at in range(0, len(text), size)]

    def act(talk: Any) -> None:
        talk.stream_head()
        for chunk in chunks(field, pieces):
            talk.chunk(chunk)
        talk.send(b"0\r\n\r\n")

    received = fetch(hostile.once(act), key=canary, request={"stream": True})
    assert received.exchange.fault is None
    assert received.exchange.frames_kept
    assert len(received.exchange.frames) == received.exchange.frame_count
    said = rejoined(received)
    assert form(canary) not in said
    assert "Your key: [redacted]. Keep it." in said
    assert not holds(received, canary)


def test_the_tokens_of_logprobs_spell_no_key_either(fetch: Fetch, hostile: ModuleType, canary: str) -> None:
    def body(piece: str) -> bytes:
        token = {"token": piece, "logprob": -0.1, "bytes": list(piece.encode()), "top_logprobs": []}
        choice = {"index": 0, "delta": {"content": piece}, "logprobs": {"content": [token]}, "finish_reason": None}
        return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"

    def act(talk: Any) -> None:
        talk.stream_head()
        for piece in f"a {canary} b":
            talk.chunk(body(piece))
        talk.send(b"0\r\n\r\n")

    received = fetch(hostile.once(act), key=canary, request={"stream": True})
    assert rejoined(received).splitlines()[-2:] == ["a [redacted] b"] * 2 or "a [redacted] b" in rejoined(received)
    data = [
        json.loads(frame.data)["choices"][0]["logprobs"]["content"][0]["bytes"] for frame in received.exchange.frames
    ]
    assert bytes(number for piece in data if piece for number in piece) == b"a  b"


def test_a_stream_without_a_key_keeps_its_frames_byte_for_byte(fetch: Fetch, hostile: ModuleType, canary: str) -> None:
    sent = list(hostile.stream("100% \\u0041 ", canary[:6], " &#115; ", canary[:5]))

    def act(talk: Any) -> None:
        talk.stream_head()
        for chunk in sent:
            talk.chunk(chunk)
        talk.send(b"0\r\n\r\n")

    received = fetch(hostile.once(act), key=canary, request={"stream": True})
    assert [b"data: " + frame.data + b"\n\n" for frame in received.exchange.frames] == sent
