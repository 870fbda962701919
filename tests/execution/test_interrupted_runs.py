"""kill -9 and SIGTERM: no concluded exchange is lost, and `kvv resume` ends with the verdicts of an uninterrupted
run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvv.cases.suite import load_suite
from kvv.data import load
from kvv.execution.answer_key import answer_entries
from kvv.mockserver import MockConfig, MockServer
from kvv.storage.store import Store

SAMPLES = 5
CONCURRENCY = 4


@pytest.fixture
def server() -> Iterator[MockServer]:
    """Half of the problems are always answered right, half always wrong, whatever was asked before."""
    suite = load_suite("aime2025")
    answers = answer_entries(suite.answer_key(load("aime2025", fixture=True)))
    fixed = tuple(
        type(a)(suite=a.suite, case=a.case, prompt=a.prompt, right=r, wrong=r)
        for n, a in enumerate(answers)
        for r in [a.right if n % 2 else a.wrong]
    )
    with MockServer(MockConfig(answers=fixed, ttft_ms=25.0)) as running:
        yield running


def command(url: str, out: Path) -> list[str]:
    options = [
        "--data",
        "aime2025=fixture",
        "--samples",
        str(SAMPLES),
        "--concurrency",
        str(CONCURRENCY),
        "--base-url",
        url,
        "--model",
        "kimi-k3",
        "--out",
        str(out),
        "-q",
    ]
    return [sys.executable, "-m", "kvv", "run", "aime2025", *options]


def verdicts(folder: Path) -> dict[tuple[str, int], str]:
    with Store.open(folder / "store.sqlite", read_only=True) as store:
        return {(case, sample): verdict.outcome.value for case, sample, verdict in store.verdicts()}


def answered_samples(folder: Path) -> set[tuple[str, int]]:
    with Store.open(folder / "store.sqlite", read_only=True) as store:
        return {
            (stored.exchange.identity.case, stored.exchange.identity.sample)
            for stored in store.exchanges()
            if stored.exchange.identity.case.startswith("aime2025/") and stored.exchange.status == 200
        }


def run_folder(out: Path) -> Path:
    return next(path.parent for path in out.glob("*/store.sqlite"))


def start_and_stop(server: MockServer, out: Path, number: int, after: int) -> subprocess.Popen[str]:
    asked = server.stats()["requests"]
    process = subprocess.Popen(command(server.base_url, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 60
    while server.stats()["requests"] - asked < after and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()
    os.kill(process.pid, number)
    return process


def resume(out: Path, capture: bool = True) -> tuple[int, dict[str, Any]]:
    folder = run_folder(out)
    ended = subprocess.run(
        [sys.executable, "-m", "kvv", "resume", str(folder), "-q"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    return ended.returncode, json.loads((folder / "report.json").read_text("utf-8"))


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")
@pytest.mark.parametrize("after", [1, 40])
def test_a_killed_run_resumes_to_the_verdicts_of_an_uninterrupted_one(
    server: MockServer, tmp_path: Path, after: int
) -> None:
    whole = subprocess.run(
        command(server.base_url, tmp_path / "whole"), capture_output=True, text=True, timeout=120, check=False
    )
    process = start_and_stop(server, tmp_path / "killed", signal.SIGKILL, after)
    process.communicate()
    kept, stored = verdicts(run_folder(tmp_path / "killed")), answered_samples(run_folder(tmp_path / "killed"))
    asked = server.stats()["requests"]
    code, report = resume(tmp_path / "killed")
    assert code == whole.returncode
    assert verdicts(run_folder(tmp_path / "killed")) == verdicts(run_folder(tmp_path / "whole"))
    assert kept.items() <= verdicts(run_folder(tmp_path / "killed")).items()
    planned = report["suites"][0]["n_planned"]
    assert report["suites"][0]["n_concluded"] == planned
    # the reachability probe, and what has no stored answer: nothing concluded is asked twice
    assert server.stats()["requests"] - asked == 1 + planned - len(stored)
    assert kept.keys() <= stored


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends a Windows process at once")
def test_sigterm_drains_reports_and_leaves_a_run_that_resume_completes(server: MockServer, tmp_path: Path) -> None:
    process = start_and_stop(server, tmp_path, signal.SIGTERM, 20)
    process.communicate(timeout=60)
    assert process.returncode == 130
    report = json.loads((run_folder(tmp_path) / "report.json").read_text("utf-8"))
    row = report["suites"][0]
    assert report["exit_code"] == 130
    assert report["partial"] is True
    assert 0 < row["n_concluded"] < row["n_planned"]
    assert row["n_concluded"] + row["n_inconclusive"] == row["n_planned"]
    assert list(run_folder(tmp_path).glob("*-wal")) == []
    code, after = resume(tmp_path)
    assert (code, after["suites"][0]["n_concluded"], after["partial"]) == (3, row["n_planned"], False)


def test_a_run_that_is_complete_is_resumed_without_a_request_beyond_the_probe(
    server: MockServer, tmp_path: Path
) -> None:
    subprocess.run(command(server.base_url, tmp_path), capture_output=True, timeout=120, check=False)
    before, asked = verdicts(run_folder(tmp_path)), server.stats()["requests"]
    resume(tmp_path)
    assert server.stats()["requests"] - asked == 1
    assert verdicts(run_folder(tmp_path)) == before


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="handlers are of the main thread")
def test_the_first_interruption_ends_a_stuck_answer(kvv_cli: Any, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on a drain is the user's patience, not the endpoint's: this one would hold the run for an hour."""
    monkeypatch.setattr("kvv.execution.endpoints.DRAIN_S", 0.2)

    def answer(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        if number == 1:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        message = {"role": "assistant", "content": "ready"}
        whole = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        return {"body": json.dumps(whole).encode(), "hang": 3600.0 if number else 0.0}

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.monotonic()
    try:
        with serve(answer) as server:
            ran = kvv_cli("check", "params", "--base-url", server.url, "--model", "kimi-k3", "-q")
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(server.seen) > 1
    assert time.monotonic() - started < 60
    assert (ran.code, "kvv resume" in ran.err) == (130, True)
