"""Whole runs of the suite: on the real sandbox against the reference endpoint, stored, scored again, skipped where
there is no sandbox.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import kvv.execution.preparation
from kvv.cli.main import main
from kvv.core import Executed
from kvv.data import load
from kvv.execution.answer_key import answer_entries
from kvv.mockserver import MockConfig, MockServer
from kvv.sandbox import Sandbox, SandboxError, Session, Workspace
from kvv.sandbox.base import Session as BaseSession
from kvv.storage.store import Store
from kvv.suites.swebench.suite import SwebenchSuite

Run = Callable[..., Any]


def server(accuracy: float, seed: int = 0) -> MockServer:
    dataset = load("swebench", fixture=True)
    return MockServer(
        MockConfig(
            model="kimi-k3", answers=answer_entries(SwebenchSuite().answer_key(dataset)), accuracy=accuracy, seed=seed
        )
    )


def test_without_an_endpoint_some_are_solved_and_some_are_not_and_the_server_counts_the_same(
    kvv_cli: Run, sandbox: Sandbox
) -> None:
    ran = kvv_cli("run", "swebench")
    assert ran.code == 0, ran.said
    row = ran.row("swebench")
    assert (row["n_planned"], row["n_concluded"]) == (6, 6)
    assert 0 < row["value"] < 1
    assert row["reference"]["kind"] == "server-count"
    assert row["value"] == pytest.approx(row["reference"]["value"])
    assert row["breakdown"]["exits"] == {"submitted": 6}
    assert ran.report["findings"] == []
    lines = [json.loads(line) for line in (ran.folder / "swebench/predictions.jsonl").read_text().splitlines()]
    assert {tuple(line) for line in lines} == {("instance_id", "model_name_or_path", "model_patch")}
    reports = {
        path.parent.name: json.loads(path.read_text())
        for path in ran.folder.glob("swebench/logs/kimi-k3/*/report.json")
    }
    assert sum(report[name]["resolved"] for name, report in reports.items()) == round(row["value"] * 6)
    page = (ran.folder / "swebench/logs/kimi-k3/kvv__intervals-1/trajectory.html").read_text()
    assert page.count("$ ") >= 8
    assert "git apply --verbose" in page
    linked = re.findall(r'href="(swebench/[^"]*)"', (ran.folder / "report.html").read_text())
    assert len(linked) == 6
    assert all((ran.folder / unquote(link)).is_file() for link in linked)
    again = kvv_cli("score", str(ran.folder))
    assert "6 samples judged again, 0 verdicts changed" in again.said


@pytest.mark.parametrize(("accuracy", "variant"), [(0.0, "tools"), (0.5, "text")])
def test_the_number_resolved_is_the_servers_own_count(
    kvv_cli: Run, sandbox: Sandbox, accuracy: float, variant: str
) -> None:
    with server(accuracy, seed=3) as served:
        arguments = ("--base-url", served.base_url, "--model", "kimi-k3", "--data", "swebench=fixture", "--yes")
        ran = kvv_cli("run", "swebench", *arguments, "--variant", f"swebench={variant}")
        counts: dict[str, int] = served.stats()["answers"]["swebench"]  # type: ignore[index, assignment]
    row = ran.row("swebench")
    assert counts["asked"] == 6
    assert row["value"] * 6 == pytest.approx(counts["right"])
    assert row["comparability"]["agent_mode"] == variant
    assert row["comparability"]["benchmark"] == "SWE-bench"
    assert counts["right"] == 0 if accuracy == 0 else 0 < counts["right"] < 6


@pytest.mark.parametrize(("accuracy", "solved"), [("0.0", 0), ("1.0", 6)])
def test_the_accuracy_of_kvv_serve_is_what_the_agent_reaches(
    kvv_cli: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, accuracy: str, solved: int
) -> None:
    served: list[MockConfig] = []
    monkeypatch.setattr("kvv.mockserver.serve_forever", served.append)
    assert main(["serve", "--port", "0", "--accuracy", accuracy]) == 0
    with MockServer(served[0]) as endpoint:
        ran = kvv_cli(
            "run", "swebench", "--base-url", endpoint.base_url, "--model", "kimi-k3", "--data", "swebench=fixture"
        )
    row = ran.row("swebench")
    assert (row["value"] * 6, row["breakdown"]["exits"]) == (pytest.approx(solved), {"submitted": 6})


def test_an_ease_of_zero_is_never_solved() -> None:
    dataset = load("swebench", fixture=True)
    rows = [{**row, "ease": ease} for row, ease in zip(dataset.rows, (0.0, 0.5, None), strict=False)]
    entries = SwebenchSuite().answer_key(replace(dataset, rows=rows))
    assert [entry.ease for entry in entries] == [0.0, 0.5, 1.0]


def test_a_stored_run_holds_every_command_and_the_patch_that_was_submitted(kvv_cli: Run, sandbox: Sandbox) -> None:
    ran = kvv_cli("run", "swebench", "--case", "swebench/kvv__intervals-1")
    store = Store.open(ran.folder / "store.sqlite", read_only=True)
    try:
        replies = store.replies("swebench/kvv__intervals-1", 0)
        verdict = store.verdict("swebench/kvv__intervals-1", 0)
    finally:
        store.close()
    tried = next(number for number, reply in enumerate(replies) if not isinstance(reply, Executed))
    assert (
        tried == 8
    )  # the reference patch: applied, looked at, test files, tests, kept; the base: test files, tests, kept
    replies = replies[tried:]
    assert [isinstance(reply, Executed) for reply in replies[:8]] == [False, True] * 4
    assert all(isinstance(reply, Executed) for reply in replies[8:])
    assert verdict is not None
    assert verdict.facts["environment"] == "proven"
    assert verdict is not None
    assert verdict.facts["patch"].startswith("diff --git a/intervals/spans.py")
    assert str(replies[7]).count(verdict.facts["patch"][:40])


def no_sandbox(name: str | None, workspace: Workspace | None = None) -> Sandbox:
    raise SandboxError("bwrap: bubblewrap (apt-get install bubblewrap) is not installed")


def test_without_a_sandbox_the_suite_is_skipped_with_one_line_that_says_what_to_install(
    kvv_cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvv.execution.preparation, "choose", no_sandbox)
    ran = kvv_cli("run", "aime2025", "swebench", "--limit", "1")
    assert "skipped: swebench (no sandbox: bwrap: bubblewrap (apt-get install bubblewrap) is not installed)" in ran.out
    alone = kvv_cli("run", "swebench")
    assert alone.code == 2
    assert alone.err.count("\n") <= 3
    asked = kvv_cli("run", "swebench", "--sandbox", "docker")
    assert asked.code == 2
    assert "--sandbox: bwrap" in asked.said


def test_a_reference_of_another_agent_is_refused(kvv_cli: Run, sandbox: Sandbox, tmp_path: Path) -> None:
    official = tmp_path / "official.jsonl"
    chosen = ("--case", "swebench/kvv__tasks-1")
    ran = kvv_cli("run", "swebench", *chosen, "--as-reference", str(official))
    assert ran.code == 0, ran.said
    head, *lines = official.read_text().splitlines()
    asked = json.loads(head)["asked"]["swebench"]
    assert asked["agent"].startswith("kvv-mini ")
    same = kvv_cli("run", "swebench", *chosen, "--reference", str(official))
    assert same.code in (0, 3), same.said
    for name in ("agent", "grader"):
        other = json.loads(head)
        other["asked"]["swebench"][name] = "mini-swe-agent 2.4.6"
        official.write_text("\n".join([json.dumps(other), *lines]) + "\n")
        refused = kvv_cli("run", "swebench", *chosen, "--reference", str(official))
        assert refused.code == 2
        assert f"was asked swebench in another way: {name} mini-swe-agent 2.4.6 there and kvv" in refused.err


def test_without_any_sandbox_only_by_name_and_with_a_warning(kvv_cli: Run) -> None:
    ran = kvv_cli("run", "swebench", "--sandbox", "none", "--case", "swebench/kvv__tasks-1", "-q")
    assert ran.code == 0, ran.said
    assert "warning: --sandbox none" in ran.err
    assert ran.row("swebench")["n_concluded"] == 1


class _Broken(BaseSession):
    """Opens, and cannot run anything."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def run(self, command: object) -> Executed:
        raise self.error

    async def close(self) -> None:
        """Nothing to close."""


class _BrokenSandbox(Sandbox):
    name = "bwrap"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def missing(self) -> str:
        return ""

    async def begin(self, workspace: Workspace) -> Session:
        return _Broken(self.error)


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (SandboxError("no space left"), "inconclusive", "sandbox-failed"),
        (RuntimeError("our bug"), "error", "harness-raised"),
    ],
)
def test_a_broken_sandbox_is_inconclusive_and_a_bug_of_ours_an_error(
    kvv_cli: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: str, reason: str
) -> None:
    broken = _BrokenSandbox(error)
    monkeypatch.setattr(kvv.execution.preparation, "choose", lambda *_: broken)
    monkeypatch.setattr("kvv.execution.executor.find_backend", lambda _: broken)
    ran = kvv_cli("run", "swebench", "--case", "swebench/kvv__tasks-1")
    (check,) = ran.report["checks"]
    assert (check["verdict"], check["reason"]) == (outcome, reason)
    row = ran.row("swebench")
    assert (row["n_planned"], row["n_concluded"]) == (1, 0)
    assert ran.code == (3 if outcome == "inconclusive" else 4)


def test_files_of_a_run_stay_in_its_folder(
    kvv_cli: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(SwebenchSuite, "files", lambda self, verdicts, context: [("../../evil", "x")])
    ran = kvv_cli("run", "swebench", "--case", "swebench/kvv__tasks-1")
    assert ran.code == 2
    assert "outside of the run's folder" in ran.err
    assert not list(tmp_path.rglob("evil"))


def test_a_run_that_was_killed_begins_its_unfinished_instances_anew(
    kvv_cli: Run, sandbox: Sandbox, tmp_path: Path
) -> None:
    place = Path("/tmp") / f"kvv-resumed-{os.getpid()}"  # noqa: S108 every part of the way must be open to the sandbox's user
    place.mkdir(mode=0o711)
    with server(1.0) as served:
        arguments = [
            "run",
            "swebench",
            "--base-url",
            served.base_url,
            "--model",
            "kimi-k3",
            "--data",
            "swebench=fixture",
            "--yes",
        ]
        arguments += ["--case", "swebench/kvv__tasks-1", "--out", str(tmp_path / "out"), "-q"]
        killed = subprocess.Popen([sys.executable, "-m", "kvv", *arguments], env={**os.environ, "TMPDIR": str(place)})
        end = time.monotonic() + 60
        while not served.stats()["answers"] and time.monotonic() < end and killed.poll() is None:
            time.sleep(0.01)
        killed.kill()
        killed.wait()
        (folder,) = (tmp_path / "out").iterdir()
        ran = kvv_cli("resume", str(folder), out=tmp_path / "out")
    assert ran.row("swebench")["value"] == 1.0
    store = Store.open(folder / "store.sqlite", read_only=True)
    try:
        replies = store.replies("swebench/kvv__tasks-1", 0)
        asked = len(list(store.exchanges("swebench/kvv__tasks-1", 0)))
    finally:
        store.close()
    assert len(replies) == 20  # 8 of them try the environment
    assert asked >= 5  # the dead attempt is kept
    deadline = time.monotonic() + 15
    while list(place.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    place.rmdir()
