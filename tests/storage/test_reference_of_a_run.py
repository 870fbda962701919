"""`--as-reference`: what is said at the end, what is refused, and that nothing is lost where it cannot be written."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

import kvv.reporting.finalize
from kvv.mockserver import MockConfig, MockServer
from kvv.storage.references import read_reference

ASK = ("run", "ocrbench", "--limit", "5", "--data", "ocrbench=fixture", "--model", "kimi-k3", "-q")


def last(said: str) -> str:
    return said.splitlines()[-1]


def test_the_last_line_says_that_it_was_written_and_what_the_exit_code_means(kvv_cli: Any) -> None:
    with MockServer(MockConfig()) as server:
        ran = kvv_cli(*ASK, "--base-url", server.base_url, "--policy", "release", "--as-reference", "good.jsonl")
    assert ran.code == 3, ran.err
    assert (
        last(ran.err)
        == "kvv: wrote the reference good.jsonl: ocrbench (5 of 5 samples, 5 cases); exit code 3 is this run's own"
        " verdict (inconclusive), which a reference does not need"
    )
    assert len(read_reference(Path("good.jsonl")).runs["ocrbench"].cases) == 5
    # standard output ends with the folder, as ever
    assert Path(last(ran.out)) == ran.folder


def test_a_run_in_which_nothing_concluded_leaves_no_reference_and_an_older_one_alone(kvv_cli: Any) -> None:
    Path("good.jsonl").write_text("older", "utf-8")
    with MockServer(MockConfig()) as server:
        wrong = server.base_url.replace("/v1", "/nowhere/v1")
        ran = kvv_cli(*ASK, "--base-url", wrong, "--as-reference", "good.jsonl")
    assert ran.code == 2
    assert "--as-reference: good.jsonl was not written: no benchmark sample was concluded" in ran.err
    assert Path("good.jsonl").read_text("utf-8") == "older"


def test_a_check_has_nothing_for_a_reference_and_does_not_end_as_if_it_had(kvv_cli: Any) -> None:
    ran = kvv_cli(
        "check", "params", "--case", "params/rejected/temperature-1.1/*", "--as-reference", "good.jsonl", "-q"
    )
    assert (ran.code, ran.report["exit_code"]) == (2, 0)
    assert "no benchmark sample was concluded" in last(ran.err)
    assert not Path("good.jsonl").exists()


def test_a_write_that_fails_at_the_end_loses_nothing(kvv_cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with MockServer(MockConfig()) as server:
        with monkeypatch.context() as patch:
            patch.setattr(kvv.reporting.finalize, "write_reference", refused)
            ran = kvv_cli(*ASK, "--base-url", server.base_url, "--as-reference", "good.jsonl")
        assert ran.code == 2
        assert (
            f"cannot write good.jsonl: Permission denied; the run is kept: `kvv resume {ran.folder}` writes it again"
            in last(ran.err)
        )
        assert json.loads((ran.folder / "report.json").read_text("utf-8"))["suites"][0]["n_concluded"] == 5
        asked = server.stats()["requests"]
        assert kvv_cli("resume", str(ran.folder), "-q").code == ran.report["exit_code"]
        assert server.stats()["requests"] <= asked + 1, "the sign of life alone"
    assert len(read_reference(Path("good.jsonl")).runs["ocrbench"].cases) == 5
