"""A key that stands in an address is a secret from the first request on, whichever endpoint of a run it is for and
whoever echoes it.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from stored import everything_in

from kvv.transport.endpoint import in_address

SECRETS = {
    role: {part: f"{part}-{role}-canary/{number}d09b+77aa" for number, part in enumerate(("user", "pass", "query"), 1)}
    for role in ("target", "judge", "reference")
}
RAW = [secret for parts in SECRETS.values() for secret in parts.values()]


def address(url: str, role: str) -> str:
    """The server's address with a user name, a password and a query value, as a user writes them."""
    user, password, query = (quote(SECRETS[role][part], safe="") for part in ("user", "pass", "query"))
    return f"{url.replace('://', f'://{user}:{password}@')}?api-version=2024-10-21&code={query}"


def echoing(role: str) -> dict[str, Any]:
    """An answer that repeats what its endpoint was given, in every place that is kept."""
    said = " ".join(word for secret in SECRETS[role].values() for word in (secret, quote(secret, safe="")))
    message = {"role": "assistant", "content": f"2024-10-21 {said}", "reasoning_content": said}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    answer = {
        "id": said,
        "object": "chat.completion",
        "created": 1,
        "model": said,
        "choices": [{"index": 0, "message": message, "finish_reason": said}],
    }
    return {
        "body": json.dumps(answer | {"usage": usage, "error": None}).encode(),
        "headers": {"x-request-id": said, "server": said},
    }


def leaked(data: bytes) -> list[str]:
    return [
        secret
        for secret in RAW
        for way in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
        if way.encode() in data
    ]


def test_no_key_of_an_address_comes_out_again(kvv_cli: Any, serve: Any) -> None:
    with (
        serve(**echoing("target")) as target,
        serve(**echoing("judge")) as judge,
        serve(**echoing("reference")) as official,
    ):
        ran = kvv_cli(
            *(
                "run",
                "params",
                "aime2025",
                "beam",
                "--data",
                "aime2025=fixture",
                "--data",
                "beam=fixture",
                "--limit",
                "1",
                "--samples",
                "1",
            ),
            *(
                "--base-url",
                address(target.url, "target"),
                "--model",
                "kimi-k3",
                "--judge-base-url",
                address(judge.url, "judge"),
            ),
            *(
                "--judge-model",
                "j",
                "--reference-base-url",
                address(official.url, "reference"),
                "--record",
                "full",
                "--force",
                "--stream",
                "--yes",
            ),
            *("--max-requests", "60"),
        )
        asked = [len(server.seen) for server in (target, judge, official)]
    assert min(asked) > 0, ran.said
    data = everything_in(ran.folder)
    assert leaked(ran.said.encode()) == []
    assert leaked(data) == []
    assert b"[redacted]" in data
    assert b"2024-10-21 [redacted]" in data  # the service's version is no secret, and an answer that names it is kept
    for name in ("text", "json", "junit", "md", "html", "github", "csv", "kvv"):
        assert leaked(kvv_cli("report", str(ran.folder), "--format", name).said.encode()) == []
    shown = kvv_cli("show", ran.report["checks"][0]["id"], "--run", str(ran.folder))
    assert "curl" in shown.said
    assert leaked(shown.said.encode()) == []


@pytest.mark.parametrize(
    "cut", [address, lambda url, role: address(url, role).partition("?")[0]], ids=["whole", "user"]
)
def test_an_address_whose_key_was_cut_out_is_given_again(cut: Any, kvv_cli: Any, serve: Any) -> None:
    with serve(**echoing("target")) as target:
        url = cut(target.url, "target")
        folder = kvv_cli("check", "params", "--base-url", url, "--model", "kimi-k3", "--max-requests", "1", "-q").folder
        target.seen.clear()
        said = kvv_cli("resume", str(folder), "-q")
        assert (said.code, target.seen, leaked(said.said.encode())) == (2, [], [])
        assert "--base-url" in said.err
        kvv_cli("resume", str(folder), "--base-url", url, "--max-requests", "3", "-q")
        assert {headers["authorization"][:6] for headers in target.seen} == {"Basic "}


def test_an_error_of_our_own_repeats_no_address(kvv_cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise RuntimeError(f"cannot use {SECRETS['target']['query']} of {address('http://127.0.0.1:9/v1', 'target')}")

    monkeypatch.setattr("kvv.cli.verbs.session.start", broken)
    said = kvv_cli("check", "params", "--base-url", address("http://127.0.0.1:9/v1", "target"), "--model", "kimi-k3")
    assert (said.code, leaked(said.said.encode())) == (4, [])
    assert "[redacted]" in said.err


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("https://sk-abc123@host/v1", ["sk-abc123"]),
        ("https://me%2Fyou:p%40ss@host/v1", ["p%40ss", "p@ss", "me%2Fyou", "me/you"]),
        ("https://host/v1?key=ab%2Bc+d&code=e==&bare", ["ab%2Bc+d", "ab+c+d", "ab+c d", "e==", "bare"]),
        ("https://user:1234@host/v1", ["1234"]),
        ("https://host/v1?a=1234-5678-9012&b=20241021", ["1234-5678-9012", "20241021"]),
        # nothing of these can be a key, and their words stand in answers
        ("https://user@host/v1?api-version=2024-10-21-preview&model=kimi-k3&x=true&y=2.1", []),
        ("https://host/v1", []),
        ("https://[broken/v1?key=x", []),
        ("", []),
    ],
)
def test_what_of_an_address_is_a_secret(url: str, secrets: list[str]) -> None:
    assert in_address(url) == secrets


def test_a_runs_own_key_inside_extra_body_is_refused(kvv_cli: Any, monkeypatch: pytest.MonkeyPatch, serve: Any) -> None:
    monkeypatch.setenv("KVV_API_KEY", "plain-canary-41d09b77aa")
    with serve(status=401) as listener:
        ran = kvv_cli(
            *("check", "errors", "-q", "--model", "kimi-k3", "--base-url", listener.url),
            *("--extra-body", '{"metadata": {"note": "plain-canary-41d09b77aa"}}'),
        )
        assert (ran.code, len(ran.err.splitlines()), listener.seen) == (2, 1, [])
    assert "--extra-body: holds a key of this run" in ran.err
    assert "41d09b77aa" not in ran.said
