"""No answer, no verdict: whatever is dead about an endpoint, every case is INCONCLUSIVE and one sentence says what is
wrong.
"""

from __future__ import annotations

import json
import socket

import pytest

ERROR = json.dumps({"error": {"message": "no", "type": "server_error"}}).encode()
HTML = b"<html><script>alert(1)</script>welcome</html>"


def closed_port() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{s.getsockname()[1]}/v1"


#: how it answers, the exit code, words of the sentence that says what is wrong
KINDS = {
    "500": ({"status": 500, "body": ERROR}, 3, "HTTP 500"),
    "429": ({"status": 429, "body": ERROR}, 3, "HTTP 429"),
    "429-a-year": ({"status": 429, "body": ERROR, "headers": {"Retry-After": "31536000"}}, 3, "HTTP 429"),
    "503": ({"status": 503, "body": ERROR}, 3, "HTTP 503"),
    "html-502": ({"status": 502, "body": HTML, "content_type": "text/html"}, 3, "HTTP 502"),
    "html-200": ({"body": HTML, "content_type": "text/html"}, 3, "no chat-completions endpoint"),
    "empty-200": ({"body": b""}, 3, "no chat-completions endpoint"),
    "other-json-200": ({"body": b'{"hello": 1}'}, 3, "no chat-completions endpoint"),
    "401": ({"status": 401, "body": ERROR}, 2, "(auth)"),
    "402": ({"status": 402, "body": ERROR}, 2, "(no-credit)"),
    "404": ({"status": 404, "body": ERROR}, 2, "(route)"),
    "redirect": ({"status": 308, "body": b"", "headers": {"Location": "http://127.0.0.1:1/v1"}}, 2, "(route)"),
    "400": ({"status": 400, "body": ERROR}, 2, "refuses the simplest valid request"),
}


def no_verdict(ran, words: str) -> None:  # type: ignore[no-untyped-def]
    report = ran.report
    assert report["verdict"] == "inconclusive"
    assert report["exit_code"] == ran.code
    assert report["checks"]
    assert {check["verdict"] for check in report["checks"]} == {"inconclusive"}
    assert words in report["trouble"]
    assert words in ran.out
    assert "Traceback" not in ran.said
    assert "alert(1)</script>" not in (ran.folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_an_endpoint_that_answers_nothing_usable_gets_no_verdict(kind, kvv_cli, serve) -> None:  # type: ignore[no-untyped-def]
    how, code, words = KINDS[kind]
    with serve(**how) as server:
        ran = kvv_cli(
            "run",
            "params",
            "aime2025",
            "--data",
            "aime2025=fixture",
            "--limit",
            "2",
            "--base-url",
            server.url,
            "--model",
            "kimi-k3",
        )
    assert server.seen
    assert ran.code == code, ran.said
    no_verdict(ran, words)


def test_a_closed_port_gets_no_verdict(kvv_cli) -> None:  # type: ignore[no-untyped-def]
    ran = kvv_cli(
        "run", "params", "aime2025", "--data", "aime2025=fixture", "--base-url", closed_port(), "--model", "kimi-k3"
    )
    assert ran.code == 3
    no_verdict(ran, "nothing accepts connections")


def test_an_endpoint_that_accepts_and_never_answers_ends_with_the_deadline(kvv_cli, serve) -> None:  # type: ignore[no-untyped-def]
    with serve(hang=60.0) as server:
        ran = kvv_cli("run", "params", "--base-url", server.url, "--model", "kimi-k3", "--deadline", "1")
    assert ran.code == 5
    no_verdict(ran, "sends nothing back")
