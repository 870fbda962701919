"""A wire rule's findings, listed with exchanges, frames and bytes; and what a run keeps, drops or asks again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kvv.core import Outcome
from kvv.mockserver import MockConfig, MockServer
from kvv.storage.store import Store


@pytest.fixture
def silent() -> Any:
    """``silent(status, body, content_type)`` is a server that answers everything with it; gives its URL."""

    @contextmanager
    def start(*, status: int, body: bytes, content_type: str = "application/json") -> Iterator[str]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    return start


@pytest.fixture
def found(kvv_cli: Any) -> Iterator[Any]:
    """A contract run against a server with a fault that the wire rules object to."""
    with MockServer(MockConfig(faults=("F10",))) as server:
        ran = kvv_cli("check", "usage", "--base-url", server.base_url, "--model", "kimi-k3")
    assert ran.report["findings"]
    return ran


def test_every_finding_of_a_rule_is_listed_with_its_exchange_frame_and_bytes(found: Any, kvv_cli: Any) -> None:
    for group in found.report["findings"]:
        listed = json.loads(kvv_cli("show", str(found.folder), "--rule", group["rule"], "--json").out)
        assert len(listed) == group["count"]
        assert len({entry["exchange"] + str(entry["attempt"]) for entry in listed}) == group["exchanges"]
        assert {entry["rule"] for entry in listed} == {group["rule"]}
        with Store.open(found.folder / "store.sqlite", read_only=True) as store:
            kept = {
                (stored.exchange.identity.key, stored.exchange.attempt): stored.exchange for stored in store.exchanges()
            }
        for entry in listed:
            exchange = kept[entry["exchange"], entry["attempt"]]
            if entry["frame"] is not None:
                frame = next(frame for frame in exchange.frames if frame.number == entry["frame"])
                assert entry["data"][:1_000] == frame.data.decode()[:1_000]
                assert entry["offset_ms"] == frame.offset_ms
        people = kvv_cli("show", "last", "--rule", group["rule"], "--out", str(found.root))
        assert people.code == 0
        assert people.out.count(f") {group['rule']}: ") == min(group["count"], 200)
        assert listed[0]["exchange"] in people.out


def test_a_pattern_lists_several_rules_and_a_run_may_be_named_either_way(found: Any, kvv_cli: Any) -> None:
    total = sum(group["count"] for group in found.report["findings"])
    for arguments in (
        (str(found.folder),),
        ("--run", str(found.folder)),
        (found.folder.name, "--out", str(found.root)),
    ):
        assert len(json.loads(kvv_cli("show", *arguments, "--rule", "*", "--json").out)) == total


def test_a_rule_without_findings_names_those_that_have_some(found: Any, kvv_cli: Any) -> None:
    ran = kvv_cli("show", str(found.folder), "--rule", "no/such-rule")
    assert ran.code == 2
    assert all(group["rule"] in ran.err for group in found.report["findings"])
    assert kvv_cli("show", str(found.folder), "--rule", "*", "--export", "x").code == 2
    alone = kvv_cli("show", "--run", str(found.folder))  # neither a case nor a rule: what is wrong with the run
    assert (alone.code, "causes explain" in alone.out) == (0, True)


# --- what is kept, dropped, asked again ---------------------------------------------------------------


@pytest.mark.parametrize("target", ["nowhere/at/all.jsonl", "."])
def test_a_reference_that_cannot_be_written_is_refused_before_anything_is_sent(
    target: str, kvv_cli: Any, tmp_path: Path
) -> None:
    with MockServer(MockConfig()) as server:
        asked = server.stats()["requests"]
        arguments = (
            "run",
            "aime2025",
            "--data",
            "aime2025=fixture",
            "--base-url",
            server.base_url,
            "--model",
            "kimi-k3",
        )
        ran = kvv_cli(*arguments, "--as-reference", target)
        assert ran.code == 2
        assert "--as-reference" in ran.err
        assert server.stats()["requests"] == asked
    assert not (tmp_path / "out").exists()


def test_a_case_that_ended_in_our_own_error_is_asked_again_on_resuming_and_no_other(kvv_cli: Any) -> None:
    with MockServer(MockConfig()) as server:
        ran = kvv_cli(
            "run",
            "aime2025",
            "--data",
            "aime2025=fixture",
            "--samples",
            "1",
            "--base-url",
            server.base_url,
            "--model",
            "kimi-k3",
        )
        with Store.open(ran.folder / "store.sqlite") as store:
            case, sample, verdict = next(iter(store.verdicts("aime2025")))
            store.put_verdict(replace(verdict, outcome=Outcome.ERROR, reason="harness-raised", values={}))
        asked = server.stats()["requests"]
        resumed = kvv_cli("resume", str(ran.folder))
        assert server.stats()["requests"] - asked == 2  # the reachability probe and the one case
    with Store.open(ran.folder / "store.sqlite", read_only=True) as store:
        again = store.verdict(case, sample)
    assert again is not None
    assert again.outcome is not Outcome.ERROR
    assert resumed.row("aime2025")["n_concluded"] == resumed.row("aime2025")["n_planned"]


@pytest.mark.parametrize(
    "how",
    [
        {"status": 503, "body": b"<html>busy</html>", "content_type": "text/html"},
        {"status": 500, "body": b"oops", "content_type": "text/plain"},
        {"status": 401, "body": b"no"},
        {"status": 404, "body": b'{"detail": "Not Found"}'},
        {"status": 200, "body": b"<html>welcome</html>", "content_type": "text/html"},
        {"status": 200, "body": b'{"object": "other"}'},
    ],
)
def test_what_is_odd_about_an_endpoint_that_never_answered_is_no_finding(
    how: dict[str, Any], kvv_cli: Any, silent: Any
) -> None:
    with silent(**how) as url:
        ran = kvv_cli("check", "usage", "--base-url", url, "--model", "kimi-k3")
    assert ran.code in (2, 3)
    assert ran.report["verdict"] == "inconclusive"
    assert ran.report["findings"] == []
    assert "fail" not in ran.report["areas"].values()
    with Store.open(ran.folder / "store.sqlite", read_only=True) as store:
        assert list(store.exchanges())
        assert not any(stored.findings for stored in store.exchanges())
