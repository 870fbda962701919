"""What `kvv doctor`, `run` and `check` say of an address, a model name or a key that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvv.mockserver import MockConfig, MockServer

KEY = "sk-first-look-0123456789"


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch, kvv_cli: Any) -> Iterator[MockServer]:
    """Our own endpoint, which wants a key; the right one is set (after kvv_cli took the variables away)."""
    monkeypatch.setenv("KVV_API_KEY", KEY)
    with MockServer(MockConfig(api_key=KEY)) as server:
        yield server


def doctor(kvv_cli: Any, url: str, model: str = "kimi-k3") -> Any:
    return kvv_cli("doctor", "usage", "--base-url", url, "--model", model)


def test_a_good_endpoint_is_reachable_knows_the_model_and_takes_the_key(locked: MockServer, kvv_cli: Any) -> None:
    ran = doctor(kvv_cli, locked.base_url)
    assert ran.code == 0
    for words in (
        "answers the simplest request (HTTP 200",
        "the key in KVV_API_KEY is accepted",
        "model kimi-k3: one of 1 listed",
    ):
        assert words in ran.out
    assert "BROKEN" not in ran.out
    assert KEY not in ran.said


def test_an_endpoint_without_a_key_is_not_said_to_accept_one(kvv_cli: Any) -> None:
    with MockServer(MockConfig()) as server:
        ran = doctor(kvv_cli, server.base_url)
    assert ran.code == 0
    assert "no key was asked for" in ran.out


Spoil = Callable[[str], str]


@pytest.mark.parametrize(
    "spoil",
    [lambda url: url.removesuffix("/v1"), lambda url: url.removesuffix("v1"), lambda url: url + "/chat/completions"],
)
def test_an_address_that_lacks_v1_or_says_too_much_is_put_right(spoil: Spoil, locked: MockServer, kvv_cli: Any) -> None:
    wrong = spoil(locked.base_url)
    hint = f"did you mean --base-url {locked.base_url} ?"
    asked = doctor(kvv_cli, wrong)
    assert asked.code == 2
    assert hint in asked.out
    for verb in (("run", "usage"), ("check", "usage")):
        for quiet in ((), ("-q",)):
            ran = kvv_cli(*verb, "--base-url", wrong, "--model", "kimi-k3", *quiet)
            assert ran.code == 2
            assert hint in ran.out
            assert "configuration (exit code 2)" in ran.out
            assert f"continue with: kvv resume {ran.folder} --base-url URL" in ran.err
    assert ran.report["verdict"] == "inconclusive"
    assert hint in ran.report["trouble"]


def test_a_run_at_a_wrong_address_is_resumed_at_the_right_one(locked: MockServer, kvv_cli: Any) -> None:
    ran = kvv_cli("check", "usage", "--base-url", locked.base_url.removesuffix("/v1"), "--model", "kimi-k3", "-q")
    resumed = kvv_cli("resume", str(ran.folder), "--base-url", locked.base_url, "-q")
    assert resumed.code == 0
    assert resumed.out.startswith("PASS")


def test_a_page_that_is_no_completion_may_stand_beside_an_api(serve: Any, kvv_cli: Any) -> None:
    """A web interface answers every path with its page; the API is below /v1 of the same host or nowhere."""
    with serve(body=b"<html>hello</html>", content_type="text/html") as site:
        ran = doctor(kvv_cli, site.url.removesuffix("/v1"))
    assert ran.code == 2
    assert "no chat-completions endpoint" in ran.out
    assert "did you mean" not in ran.out


def test_an_unknown_model_is_answered_with_those_that_are_listed(locked: MockServer, kvv_cli: Any) -> None:
    words = "it lists no model 'kimi-k9', but kimi-k3"
    asked = doctor(kvv_cli, locked.base_url, model="kimi-k9")
    assert (asked.code, words in asked.out) == (2, True)
    ran = kvv_cli("check", "usage", "--base-url", locked.base_url, "--model", "kimi-k9", "-q")
    assert (ran.code, words in ran.out) == (2, True)


@pytest.mark.parametrize(
    ("key", "words"),
    [("sk-another-key-000", "look at the key in the environment variable KVV_API_KEY"), ("", "is not set")],
)
def test_a_wrong_or_missing_key_is_a_configuration_error_that_names_the_variable(
    key: str, words: str, locked: MockServer, kvv_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVV_API_KEY", key)
    asked = doctor(kvv_cli, locked.base_url)
    assert asked.code == 2
    assert words in asked.out
    for quiet in ((), ("-q",)):
        ran = kvv_cli("check", "usage", "--base-url", locked.base_url, "--model", "kimi-k3", *quiet)
        assert ran.code == 2
        assert ran.out.startswith("INCONCLUSIVE")
        assert "configuration (exit code 2): " in ran.out
        assert words in ran.out
        assert "sk-another-key-000" not in ran.said


def test_a_dead_endpoint_is_said_to_be_dead_by_the_doctor_too(kvv_cli: Any) -> None:
    ran = doctor(kvv_cli, "http://127.0.0.1:1/v1")
    assert ran.code == 2
    assert "nothing accepts connections there" in ran.out


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"data": 5}', b'{"data": [5, {}, null]}', b'{"data": [{"id": {}}]}', b"\xff", b"[" * 100_000],
)
def test_whatever_stands_in_place_of_the_list_of_models_is_survived(body: bytes, serve: Any, kvv_cli: Any) -> None:
    def answer(number: int, headers: dict[str, str], sent: bytes) -> dict[str, Any]:
        return (
            {"body": body}
            if not sent
            else {"status": 404, "body": b'{"error": {"message": "no such model", "type": "x"}}'}
        )

    with serve(answer=answer) as site:
        ran = doctor(kvv_cli, site.url)
    assert ran.code == 2
    assert "Traceback" not in ran.said
    assert "no such model" in ran.out
