"""The cases of the suite errors that ask without a key and with a wrong one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvv.mockserver import MockConfig, MockServer
from kvv.storage.store import Store

KEY = "sk-canary-41d09b77aa"
READY = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "ready"}, "finish_reason": "stop"}]}
CHECK = ("check", "errors", "--case", "errors/key/*", "--model", "kimi-k3")


def checks(ran: Any) -> dict[str, str]:
    return {check["id"]: check["verdict"] for check in ran.report["checks"]}


def sent_key(headers: dict[str, str]) -> str:
    """A header's name may be written in any case."""
    return next((value for name, value in headers.items() if name.lower() == "authorization"), "")


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch, kvv_cli: Any) -> Any:
    """The command line with a key; after ``kvv_cli``, which clears the environment."""
    monkeypatch.setenv("KVV_API_KEY", KEY)
    return kvv_cli


def test_a_server_that_wants_its_key_passes_and_keeps_on_answering(keyed: Any) -> None:
    with MockServer(MockConfig(api_key=KEY)) as server:
        ran = keyed(*CHECK, "--base-url", server.base_url)
    assert checks(ran) == {"errors/key/missing/whole": "pass", "errors/key/wrong/whole": "pass"}
    assert ran.report["trouble"] == ""
    with Store.open(ran.folder / "store.sqlite", read_only=True) as store:
        sent = {(stored.exchange.identity.case, stored.request.credential.value) for stored in store.exchanges()}
    assert {
        ("errors/key/missing/whole", "none"),
        ("errors/key/wrong/whole", "wrong"),
        ("kvv/reachability", "own"),
    } <= sent
    line = keyed("show", "errors/key/missing/whole", "--run", str(ran.folder)).said
    assert "curl" in line
    assert "Authorization" not in line


def test_a_server_that_answers_anybody_fails_what_should_be_refused(keyed: Any) -> None:
    with MockServer(MockConfig()) as server:
        ran = keyed(*CHECK, "--base-url", server.base_url)
    assert set(checks(ran).values()) == {"fail"}
    assert ran.report["areas"]["errors"] == "pass"  # at level should: shown, not gated


def test_a_refusal_of_foreign_keys_that_is_no_json_decides_nothing(keyed: Any, serve: Any) -> None:
    answer = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ready"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }

    def reply(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        if KEY in sent_key(headers):
            return {"body": json.dumps(answer).encode()}
        return {"status": 401, "body": b"<html>who are you?</html>", "content_type": "text/html"}

    with serve(reply) as server:
        ran = keyed(*CHECK, "--base-url", server.url)
    assert set(checks(ran).values()) == {"inconclusive"}
    assert {sent_key(headers) for headers in server.seen} == {f"Bearer {KEY}", "Bearer kvv-no-such-key", ""}


def test_without_a_key_or_with_headers_that_may_be_one_nothing_is_asked(
    kvv_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MockServer(MockConfig()) as server:
        bare = kvv_cli(*CHECK, "--base-url", server.base_url)
        monkeypatch.setenv("KVV_API_KEY", KEY)
        monkeypatch.setenv("GATEWAY", "value")
        other = kvv_cli(*CHECK, "--base-url", server.base_url, "--header-env", "X-Gateway-Auth=GATEWAY")
    assert set(checks(bare).values()) == set(checks(other).values()) == {"skip"}


def test_a_ban_after_a_foreign_key_is_named_as_that(keyed: Any, serve: Any) -> None:
    banned: list[int] = []

    def reply(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        if KEY not in sent_key(headers):
            banned.append(number)
        if banned:
            return {
                "status": 401,
                "body": json.dumps(
                    {"error": {"message": "who are you", "type": "invalid_authentication_error"}}
                ).encode(),
            }
        return {"body": json.dumps(READY).encode()}

    with serve(reply) as server:
        ran = keyed(*CHECK, "--base-url", server.url)
    assert "it began when errors/key/missing/whole asked without the run's key" in ran.report["trouble"]
