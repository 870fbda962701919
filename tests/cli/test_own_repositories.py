"""Rows of a repository of the user's own: checked without a model, and run."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvv.cli.main import main
from kvv.data import load
from kvv.data.spec import load_spec
from kvv.sandbox import SandboxError, Workspace, choose

DOCUMENT = Path(__file__).parents[2] / "docs" / "own-repositories.md"
LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
COMMAND = "test -f built.txt && python3 -m unittest -v tests.test_spans"


@pytest.fixture(autouse=True)
def sandbox() -> None:
    try:
        choose("bwrap", Workspace(bundle="aGk=", commit="x"))
    except SandboxError as error:
        pytest.skip(f"no sandbox: {error}")


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., Path]:
    """A file of one row as the document describes it, with a set-up step, and its bundle beside it."""
    given = next(row for row in load("swebench", fixture=True).rows if row["instance_id"] == "kvv__intervals-1")
    columns = ("instance_id", "repo", "base_commit", "problem_statement", "patch", "test_patch", *LISTS)

    def write(**fields: Any) -> Path:
        (tmp_path / "spans.bundle").write_bytes(base64.b64decode(given["bundle"]))
        row = {name: given[name] for name in columns} | {
            "bundle": "spans.bundle",
            "setup": "echo built > built.txt\necho built.txt >> .git/info/exclude",
            "test_command": COMMAND,
            "log_parser": "django",
        }
        if "FAIL_TO_PASS" in fields:
            fields = {"FAIL_TO_PASS": given["PASS_TO_PASS"], "PASS_TO_PASS": []}
        place = tmp_path / "rows.jsonl"
        place.write_text(json.dumps(row | fields) + "\n")
        return place

    return write


def verified(capsys: pytest.CaptureFixture[str], path: Path, *more: str) -> tuple[int, str]:
    code = main(["data", "verify", "swebench", "--data", str(path), *more])
    return code, capsys.readouterr().out


def test_a_row_that_fails_at_the_base_and_passes_with_its_patch_is_right(
    rows: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = verified(capsys, rows())
    assert code == 0, said
    assert "swebench/kvv__intervals-1: the tests fail without a patch and pass with the reference" in said


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"setup": ""}, "environment-broken: the reference patch is not resolved: tests-did-not-run"),
        ({"setup": "true; false"}, "sandbox-failed: the set-up commands failed"),
        ({"test_command": "no-such-runner"}, "missing-runner: "),
        ({"FAIL_TO_PASS": "those that pass at the base"}, "base-resolved: "),
        ({"patch": "diff --git a/x b/x\nnew file mode 100644\n"}, "environment-broken: the reference patch"),
        ({"test_command": ""}, "the row has neither test_command nor eval_script"),
        ({"log_parser": "cobol"}, "no log parser 'cobol'"),
    ],
)
def test_a_row_that_does_not_keep_its_promise_is_named_with_the_cause(
    rows: Callable[..., Path], capsys: pytest.CaptureFixture[str], fields: dict[str, Any], problem: str
) -> None:
    code, said = verified(capsys, rows(**fields))
    assert code == 1, said
    assert f"swebench/kvv__intervals-1: {problem}" in said


def test_a_row_in_an_image_is_not_tried_without_an_engine(
    rows: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = rows(image="python:3.12")
    assert main(["data", "verify", "swebench", "--data", str(path), "--sandbox", "bwrap"]) == 2
    assert "--data: the rows cannot be tried: bwrap: its instances come as container images" in capsys.readouterr().err


def test_the_document_names_every_column_and_no_other() -> None:
    text = DOCUMENT.read_text("utf-8")
    first = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    described = {name for cell in first for name in re.findall(r"`(\w+)`", cell)}
    ours = {"version", "eval_type", "task", "right", "wrong", "ease"}  # the sets' own, tasks', and the fixture's
    assert described == set(load_spec("swebench").columns) - ours


def test_a_suite_without_a_sandbox_has_nothing_to_try(
    rows: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "verify", "aime2025", "--data", str(rows())]) == 2
    assert "--data: rows of aime2025 need no trial" in capsys.readouterr().err
    assert main(["data", "verify", "nothing", "--data", str(rows())]) == 2
    assert "SUITE: " in capsys.readouterr().err
