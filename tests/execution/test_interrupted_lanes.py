"""Signals while several endpoints are asked: every lane drains, and what was begun is completed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from kvv.execution.answer_key import answer_entries, keyed_suites
from kvv.mockserver import MockConfig, MockServer
from kvv.storage.run_folder import runs_under
from kvv.storage.store import Store

AIME = (
    "aime2025",
    "--data",
    "aime2025=fixture",
    "--samples",
    "6",
    "--model",
    "kimi-k3",
    "--no-stream",
    "--concurrency",
    "4",
    # no contract pass beside it
    "--case",
    "aime2025/*",
    "-q",
)


@pytest.fixture
def servers() -> Iterator[tuple[MockServer, MockServer]]:
    key = answer_entries(keyed_suites({}))
    with (
        MockServer(MockConfig(answers=key, accuracy=0.9, seed=1, ttft_ms=40.0)) as one,
        MockServer(MockConfig(answers=key, accuracy=0.9, seed=2, ttft_ms=40.0)) as two,
    ):
        yield one, two


def interrupted(command: list[str], number: signal.Signals, *servers: MockServer) -> subprocess.CompletedProcess[str]:
    """Signals once both endpoints have been asked some questions."""
    with subprocess.Popen(
        [sys.executable, "-m", "kvv", *command], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        until = time.monotonic() + 60
        while any(server.stats()["requests"] < 20 for server in servers):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def concluded(store_folder: Path) -> int:
    with Store.open(store_folder / "store.sqlite", read_only=True) as store:
        return sum(1 for _ in store.verdicts())


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_with_its_reference_is_completed_after_any_end(
    number: signal.Signals, servers: Any, tmp_path: Path, kvv_cli: Any
) -> None:
    vendor, official = servers
    addresses = ["--base-url", vendor.base_url, "--reference-base-url", official.base_url]
    ended = interrupted(["run", *AIME, *addresses, "--out", str(tmp_path / "out")], number, vendor, official)
    (folder,) = runs_under(tmp_path / "out")
    before = {place: concluded(place) for place in (folder, folder / "reference")}
    assert all(count < 72 for count in before.values())
    if number is signal.SIGTERM:
        assert all(before.values())
        assert ended.returncode == 130
        assert f"continue with: kvv resume {folder}" in ended.stderr
        for place in before:
            assert json.loads((place / "report.json").read_text())["trouble"].startswith("interrupted")
    asked = vendor.stats()["requests"]
    again = kvv_cli("resume", str(folder), out=tmp_path / "out")
    row = next(row for row in again.report["suites"] if row["primary"])
    assert (row["n_concluded"], row["reference"]["n"], row["reference"]["kind"]) == (72, 72, "interleaved")
    assert again.code in (0, 3)
    # nothing that was concluded is asked again
    assert vendor.stats()["requests"] - asked <= 72 - before[folder] + 1
    assert {place: concluded(place) for place in before} == dict.fromkeys(before, 72)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_all_sides_drain_and_what_there_is_is_compared(servers: Any, tmp_path: Path) -> None:
    file = tmp_path / "sides.toml"
    file.write_text(
        tomli_w.dumps({"vendor": [{"name": f"s{n}", "base_url": server.base_url} for n, server in enumerate(servers)]}),
        "utf-8",
    )
    ended = interrupted(["vendors", str(file), *AIME, "--out", str(tmp_path / "out")], signal.SIGINT, *servers)
    assert ended.returncode == 130, ended.stderr
    folders = runs_under(tmp_path / "out")
    assert len(folders) == 2
    for folder in folders:
        assert (
            f"stopped (interrupted: interrupted: no more requests were started); continue with: kvv resume {folder}"
            in ended.stderr
        )
        assert 0 < concluded(folder) < 72
    (document,) = (tmp_path / "out").glob("*-vendors-*/comparison.json")
    assert json.loads(document.read_text())["sides"] == ["s0", "s1"]
    assert (
        f"kvv compare {folders[0]} {folders[1]}" in ended.stderr
        or f"kvv compare {folders[1]} {folders[0]}" in ended.stderr
    )
