"""Grading by the official harness itself, in place of our own grader (`--grader swebench`): one step, whose output is
what it wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from typing import Any

from kvv.core import Case, Command, Exec, Executed, Reply, Step
from kvv.suites.swebench.grading import Graded
from kvv.suites.swebench.patches import files_of, tampering, with_final_newline

#: as kvv/sandbox/adapters/harness.py knows them
TREE, COMMAND = "harness", ("swebench",)

#: characters of the output: all lists of tests of an instance
OUTPUT_LIMIT = 4_000_000

#: the columns without which the harness (5.x) cannot grade
NEEDED = ("image", "eval_script", "log_parser")
#: it makes folders and containers of this name
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")

#: reasons that say nothing about the patch
OPEN_REASONS = frozenset({"harness-failed", "infra-failure"})


def columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a case keeps of a row for the harness, in its own names."""
    named = (
        "instance_id",
        "repo",
        "base_commit",
        "version",
        "image",
        "eval_script",
        "log_parser",
        "eval_type",
        "FAIL_TO_PASS",
        "PASS_TO_PASS",
    )
    kept = {name: row.get(name) for name in named}
    return {**kept, "eval_type": kept["eval_type"] or "pass_and_fail", "version": str(kept["version"] or "")}


def unusable(row: Mapping[str, Any]) -> str:
    """Why the harness cannot grade this row, "" where it can."""
    if not _NAME.fullmatch(row["instance_id"]):
        return "the official harness cannot grade an instance of this name"
    lacking = [name for name in NEEDED if not row.get(name)]
    return f"the official harness cannot grade it: the row has no {', '.join(lacking)}" if lacking else ""


def grade_officially(case: Case, patch: str, *, shared: bool = False) -> Generator[Step, Reply, Graded]:
    """The harness counts an empty patch apart and does not run it."""
    if not patch.strip():
        return Graded(reason="empty-patch")
    fields = case.inputs["grade"]
    patch = with_final_newline(patch)
    row = case.inputs["official"]
    asked = {
        "row": row,
        "prediction": {"instance_id": row["instance_id"], "model_name_or_path": "kvv", "model_patch": patch},
    }
    command = Command(argv=COMMAND, stdin=json.dumps(asked), timeout_s=fields["timeout_s"], output_limit=OUTPUT_LIMIT)
    done = yield Exec(command=command, tree=TREE, shared=shared)
    assert isinstance(done, Executed)
    graded = Graded(seconds=done.seconds, emulated=done.emulated)
    graded.tampered = tampering(patch, reference=fields["reference"], test_files=files_of(fields["test_patch"]))
    _judge(graded, _read(done), timeout_s=fields["timeout_s"])
    return graded


def _read(done: Executed) -> Mapping[str, Any]:
    try:
        found = json.loads(done.output)
    except (ValueError, RecursionError):
        found = None
    return (
        found
        if isinstance(found, dict) and not done.killed
        else {"log": f"the harness was ended by its {done.killed or 'output'}"}
    )


def _judge(graded: Graded, told: Mapping[str, Any], *, timeout_s: float) -> None:
    """Its report is the official result; what it says of an instance without one is in its log."""
    report = told.get("report")
    last = " ".join(str(told.get("wrong") or told.get("log") or "").split())[-300:]
    graded.applied = "harness" if told.get("applied") else ""
    if not isinstance(report, dict):
        if told.get("refused"):
            graded.reason, graded.detail = "patch-apply-failed", last
        elif told.get("timed_out"):
            graded.reason, graded.detail = "test-timeout", f"the tests took more than {timeout_s:g} s"
        else:
            graded.reason, graded.detail = "harness-failed", last
        return
    graded.official = report.get("resolved") is True
    graded.tests = _lists(report.get("tests_status"))
    if graded.tests is None:
        infra = report.get("infra_failure") is True
        said = str(report.get("infra_failure_reason") or last)
        graded.reason, graded.detail = ("infra-failure" if infra else "tests-did-not-run"), said[:300]
    elif not graded.official:
        failed = [test for group in graded.tests.values() for test in group["failure"]]
        graded.reason = "tests-fail"
        graded.detail = (
            f"{len(failed)} tests, among them {failed[0]}" if failed else "the harness reports it unresolved"
        )
    elif graded.tampered:
        graded.reason, graded.detail = (
            "tampered",
            f"the patch changes how tests are run: {', '.join(graded.tampered[:5])}",
        )


def _lists(status: Any) -> dict[str, dict[str, list[str]]] | None:
    """The two lists that count, of the report's ``tests_status``."""
    if not isinstance(status, dict):
        return None
    found = {}
    for name in ("FAIL_TO_PASS", "PASS_TO_PASS"):
        group = status.get(name)
        if not isinstance(group, dict):
            return None
        found[name] = {kind: [str(test) for test in group.get(kind) or ()] for kind in ("success", "failure")}
    return found
