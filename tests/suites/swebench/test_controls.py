"""Control runs of every shipped instance, in the sandbox: what must be resolved is, what must not be is not, and for
the right reason.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvv.core import Case
from kvv.suites.swebench.grading import Graded, grade
from kvv.suites.swebench.patches import files_of

from .conftest import Instance, new_file

NAMES = ["kvv__fields-1", "kvv__intervals-1", "kvv__recent-1", "kvv__shares-1", "kvv__tasks-1", "kvv__versions-1"]
Grade = Callable[[Case, str], Graded]


def test_there_are_six_and_each_has_both_kinds_of_tests(instances: dict[str, Instance]) -> None:
    assert sorted(instances) == NAMES
    for instance in instances.values():
        assert instance.row["FAIL_TO_PASS"]
        assert instance.row["PASS_TO_PASS"]
        assert not set(instance.row["FAIL_TO_PASS"]) & set(instance.row["PASS_TO_PASS"])


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_patch_resolves_it(name: str, instances: dict[str, Instance], graded: Grade) -> None:
    found = graded(instances[name].case, instances[name].row["patch"])
    assert (found.resolved, found.official, found.reason, found.applied, found.exit_code) == (
        True,
        True,
        "",
        "git apply",
        0,
    )
    assert found.tests is not None
    assert found.tests["FAIL_TO_PASS"]["success"] == instances[name].row["FAIL_TO_PASS"]
    assert found.tests["PASS_TO_PASS"]["success"] == instances[name].row["PASS_TO_PASS"]


@pytest.mark.parametrize("name", NAMES)
def test_a_patch_of_a_comment_leaves_all_of_fail_to_pass_failing_and_all_of_pass_to_pass_passing(
    name: str, instances: dict[str, Instance], graded: Grade
) -> None:
    found = graded(instances[name].case, new_file("NOTES.md", ["# nothing"]))
    assert (found.resolved, found.official, found.reason) == (False, False, "tests-fail")
    assert found.tests == {
        "FAIL_TO_PASS": {"success": [], "failure": instances[name].row["FAIL_TO_PASS"]},
        "PASS_TO_PASS": {"success": instances[name].row["PASS_TO_PASS"], "failure": []},
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_empty_patch_is_not_run_and_counts_as_empty(name: str, instances: dict[str, Instance]) -> None:
    with pytest.raises(StopIteration) as end:
        next(grade(instances[name].case, " \n"))
    assert (end.value.value.reason, end.value.value.tests, end.value.value.resolved) == ("empty-patch", None, False)


@pytest.mark.parametrize("name", NAMES)
def test_the_patch_of_another_instance_does_not_apply(name: str, instances: dict[str, Instance], graded: Grade) -> None:
    other = NAMES[(NAMES.index(name) + 1) % len(NAMES)]
    found = graded(instances[name].case, instances[other].row["patch"])
    assert (found.resolved, found.reason, found.applied, found.tests) == (False, "patch-apply-failed", "", None)


@pytest.mark.parametrize("name", NAMES)
def test_a_patch_that_deletes_or_skips_the_tests_gains_nothing(
    name: str, instances: dict[str, Instance], graded: Grade, tmp_path: Path
) -> None:
    instance = instances[name]
    (test_file,) = files_of(instance.row["test_patch"])
    bundle = tmp_path / "b"
    bundle.write_bytes(base64.b64decode(instance.row["bundle"]))
    subprocess.run(["git", "clone", "-q", "-b", "main", str(bundle), str(tmp_path / "tree")], check=True)

    def patch_of(change: str) -> str:
        subprocess.run(["bash", "-c", change], cwd=tmp_path / "tree", check=True)
        made = subprocess.run(["git", "diff"], cwd=tmp_path / "tree", check=True, capture_output=True, text=True).stdout
        subprocess.run(["git", "checkout", "-q", "."], cwd=tmp_path / "tree", check=True)
        return made

    for change in (
        f"rm {test_file}",
        f"sed -i 's/    def test_/    @unittest.skip(\"no\")\\n    def test_/' {test_file}",
    ):
        patch = patch_of(change)
        assert patch
        found = graded(instance.case, patch)
        assert (found.resolved, found.reason) == (False, "tests-fail")
        assert found.tests is not None
        assert found.tests["FAIL_TO_PASS"]["failure"] == instance.row["FAIL_TO_PASS"]


def test_a_patch_that_replaces_the_runner_is_resolved_officially_and_tampered_here(
    instances: dict[str, Instance], graded: Grade
) -> None:
    instance = instances["kvv__intervals-1"]
    tests = instance.row["FAIL_TO_PASS"] + instance.row["PASS_TO_PASS"]
    found = graded(instance.case, new_file("unittest.py", [f"print({f'{test} ... ok'!r})" for test in tests]))
    assert (found.official, found.resolved, found.reason, found.tampered) == (True, False, "tampered", ["unittest.py"])


@pytest.mark.parametrize("name", NAMES)
def test_a_right_patch_with_a_touched_runner_configuration_is_tampered(
    name: str, instances: dict[str, Instance], graded: Grade
) -> None:
    instance = instances[name]
    found = graded(instance.case, instance.row["patch"] + new_file("conftest.py", ["x = 1"]))
    assert (found.official, found.resolved, found.reason, found.tampered) == (True, False, "tampered", ["conftest.py"])


def test_code_that_prints_passes_over_failing_tests_is_not_believed(
    instances: dict[str, Instance], graded: Grade
) -> None:
    instance = instances["kvv__intervals-1"]
    forged = "\\n".join(f"{test} ... ok" for test in instance.row["FAIL_TO_PASS"])
    patch = (
        new_file("intervals/late.py", ["import atexit, sys", f'atexit.register(lambda: print("{forged}"))'])
        + "diff --git a/intervals/__init__.py b/intervals/__init__.py\n--- a/intervals/__init__.py\n+++"
        " b/intervals/__init__.py\n@@ -1,3 +1,4 @@\n+import intervals.late\n from intervals.spans import Span,"
        ' union\n \n __all__ = ["Span", "union"]\n'
    )
    found = graded(instance.case, patch)
    assert found.resolved is False
    assert found.reason in ("tests-conflict", "invalid-run")


def test_a_patch_that_ends_the_run_with_success_before_any_test_is_no_success(
    instances: dict[str, Instance], graded: Grade
) -> None:
    instance = instances["kvv__tasks-1"]
    patch = (
        "diff --git a/tasks/__init__.py b/tasks/__init__.py\n--- a/tasks/__init__.py\n+++ b/tasks/__init__.py\n@@ -1,3"
        ' +1,3 @@\n-from tasks.order import CycleError, order\n+raise SystemExit(0)\n \n __all__ = ["CycleError",'
        ' "order"]\n'
    )
    ended = graded(instance.case, patch)
    assert (ended.official, ended.resolved, ended.reason, ended.tests) == (False, False, "tests-did-not-run", None)


def test_the_last_of_the_chain_takes_a_patch_whose_context_is_off(
    instances: dict[str, Instance], graded: Grade
) -> None:
    instance = instances["kvv__intervals-1"]
    patch = instance.row["patch"].replace("     merged = []", "     merged = list()")
    assert patch != instance.row["patch"]
    found = graded(instance.case, patch)
    assert (found.applied, found.resolved) in (("patch", True), ("", False))
    if found.applied == "":
        assert found.reason == "patch-apply-failed"


def test_a_missing_final_newline_is_mended(instances: dict[str, Instance], graded: Grade) -> None:
    instance = instances["kvv__shares-1"]
    assert graded(instance.case, instance.row["patch"].rstrip("\n")).resolved


@pytest.mark.parametrize("name", NAMES)
def test_the_bundle_holds_nothing_after_the_base_commit(
    name: str, instances: dict[str, Instance], tmp_path: Path
) -> None:
    row = instances[name].row
    bundle = tmp_path / "b"
    bundle.write_bytes(base64.b64decode(row["bundle"]))
    heads = subprocess.run(
        ["git", "bundle", "list-heads", str(bundle)], check=True, capture_output=True, text=True
    ).stdout.split()
    assert heads == [row["base_commit"], "refs/heads/main"]
    subprocess.run(["git", "clone", "-q", "--mirror", str(bundle), str(tmp_path / "m")], check=True)
    git = ["git", "-C", str(tmp_path / "m")]
    ancestors = subprocess.run(
        [*git, "rev-list", row["base_commit"]], check=True, capture_output=True, text=True
    ).stdout.split()
    held = subprocess.run(
        [*git, "cat-file", "--batch-all-objects", "--batch-check"], check=True, capture_output=True, text=True
    ).stdout
    assert sorted(line.split()[0] for line in held.splitlines() if " commit " in line) == sorted(ancestors)
    tree = subprocess.run(
        [*git, "rev-parse", f"{row['base_commit']}^{{tree}}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert tree == row["tree"]
