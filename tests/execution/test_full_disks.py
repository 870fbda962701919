"""A disk that is full ends a run with one sentence that says so and how to go on; nothing that was answered is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kvv.reporting.finalize
from kvv.storage.store import Store
from kvv.storage.store.inserts import Inserter

#: a process whose files may not grow beyond so many bytes, once its run exists; the reference endpoint runs inside it
LIMITED = """
import resource, signal, sys
import kvv.cli.verbs.session as drive
from kvv.cli.main import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
executed = drive._executed
def limited(*a, **k):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
    return executed(*a, **k)
drive._executed = limited
sys.exit(main(sys.argv[2:]))
"""


def limited(size: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(size), *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def said_what_to_do(ended: Any, folder: Path) -> bool:
    lines = [line for line in ended.stderr.splitlines() if line.startswith("kvv ")]
    return (
        len(lines) == 1
        and "full" in lines[0]
        and f"kvv resume {folder}" in lines[0]
        and "Traceback" not in ended.stderr
    )


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
def test_a_run_and_its_resumption_say_that_the_disk_is_full_and_go_on_when_it_is_not(tmp_path: Path) -> None:
    ended = limited(200_000, "run", "ocrbench", "--samples", "4", "--out", str(tmp_path), "-q")
    (folder,) = tmp_path.iterdir()
    assert ended.returncode == 4, ended
    assert said_what_to_do(ended, folder), ended.stderr
    with Store.open(folder / "store.sqlite", read_only=True) as store:
        kept = len(list(store.exchanges()))
    again = limited(200_000, "resume", str(folder), "-q")
    assert again.returncode == 4, again
    assert said_what_to_do(again, folder), again.stderr
    ended = subprocess.run(
        [sys.executable, "-m", "kvv", "resume", str(folder), "-q"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 3, ended  # the count of a server that is gone cannot be compared
    report = json.loads((folder / "report.json").read_text("utf-8"))
    row = next(row for row in report["suites"] if row["primary"])
    assert row["n_concluded"] == row["n_planned"] > 80
    assert report["traffic"]["attempts"] >= kept


def test_a_disk_that_is_full_from_the_start_is_a_usage_error_that_leaves_nothing(
    kvv_cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import sqlite3

    def full(*arguments: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Inserter, "cases", full)
    ran = kvv_cli("run", "ocrbench", "--limit", "1")
    assert ran.code == 2
    assert "--out: " in ran.err
    assert "full" in ran.err
    assert list((tmp_path / "out").iterdir()) == []


def test_reports_that_do_not_fit_any_more_leave_a_run_that_can_be_reported_later(
    kvv_cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(view: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(kvv.reporting.finalize.FILES, "report.html", full)
    ran = kvv_cli("run", "ocrbench", "--limit", "1")
    assert ran.code == 4
    assert "No space left" in ran.err
    assert "kvv resume" in ran.err
    monkeypatch.undo()
    (folder,) = (tmp_path / "out").iterdir()
    assert kvv_cli("report", str(folder)).code == 0
