"""Grading in a fresh tree, by the official rules: the patch by a chain of fallbacks, the test files restored, the run,
its log, the two lists.

A fold over replies like the agent; no I/O. Official status and ours differ where the runner's configuration was
touched, or where a test was reported both passed and failed: ours is then unresolved.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvv.core import Case, Command, Exec, Executed, Reply, Step
from kvv.suites.swebench.infrastructure import cause_of
from kvv.suites.swebench.logs import FAILED, PASSED, SKIPPED, XFAIL, Statuses, parse
from kvv.suites.swebench.patches import files_of, tampering, with_final_newline

TREE = "grade"


@dataclass(frozen=True, slots=True)
class Place:
    """The tree in which something is graded; ``shared`` where that is the same for all samples."""

    tree: str = TREE
    shared: bool = False


VENDORS = Place()
APPLY_TIMEOUT_S = 120.0
LOG_LIMIT = 4_000_000

#: the harness's commands in its order (5.x), each with the patch on standard input
CHAIN: Mapping[str, tuple[str, ...]] = {
    "git apply": ("git", "apply", "--verbose", "-"),
    "git apply --3way": ("git", "apply", "--3way", "-"),
    "git apply --reject": ("git", "apply", "--verbose", "--reject", "-"),
    "patch": ("patch", "--batch", "--fuzz=5", "-p1", "--forward"),
}
#: a chain may leave the patch applied although each command failed
APPLIED_ALREADY = ("git", "apply", "--check", "--reverse", "-")
#: to the tree's own head, which in published images is a commit after the base
_RESET = "git reset -q --hard && git clean -fdq"
#: what the patch really did, in git's own words: an unusual patch text cannot hide a file
_DONE = "git add -A -N && git -c core.quotePath=off diff --no-color --no-ext-diff --no-textconv --no-renames"
#: each test file as the base commit has it, or gone: a file of the model's patch must not stand in its way
_RESTORE = (
    'base=$1; shift; for f; do if git cat-file -e "$base:$f" 2>/dev/null; then git checkout -q "$base" -- "$f"; else rm'
    ' -rf -- "$f"; fi; done'
)

#: a script may be longer than an argument; no patch reaches into .git
_EVALUATE = "cat > .git/kvv-eval.sh && exec bash .git/kvv-eval.sh < /dev/null"

#: names of statuses that pass; a skipped test keeps PASS_TO_PASS and fails FAIL_TO_PASS
_PASSES, _KEEPS = frozenset({PASSED, XFAIL}), frozenset({PASSED, XFAIL, SKIPPED})


@dataclass(slots=True, kw_only=True)
class Graded:
    """``reason`` is a stable code, "" where resolved; ``official`` what the harness would report as resolved.

    ``tests`` is ``tests_status`` of the official report, None where no tests ran.
    """

    reason: str = ""
    detail: str = ""
    applied: str = ""
    official: bool = False
    tampered: list[str] = field(default_factory=list)
    conflicting: list[str] = field(default_factory=list)
    tests: dict[str, dict[str, list[str]]] | None = None
    exit_code: int | None = None
    seconds: float = 0.0
    emulated: bool = False
    #: what of the environment may have kept the tests from running (``infrastructure``), "" where nothing is known
    cause: str = ""

    @property
    def resolved(self) -> bool:
        return self.official and not self.reason


def grade(case: Case, patch: str, place: Place = VENDORS) -> Generator[Step, Reply, Graded]:
    """An empty patch is not run: the harness counts it apart."""
    if not patch.strip():
        return Graded(reason="empty-patch")
    fields, graded = case.inputs["grade"], Graded()
    patch = with_final_newline(patch)
    yield from _apply(graded, patch, place)
    if graded.reason:
        return graded
    done = yield from _run(
        Command(argv=("bash", "-c", _DONE), timeout_s=APPLY_TIMEOUT_S, output_limit=LOG_LIMIT), place
    )
    told = {"reference": fields["reference"], "test_files": files_of(fields["test_patch"])}
    graded.tampered = list(dict.fromkeys([*tampering(patch, **told), *tampering(done.output, **told)]))
    yield from _run_tests(graded, fields, place)
    return graded


def grade_base(case: Case, place: Place) -> Generator[Step, Reply, Graded]:
    """The repository as it is, without any patch."""
    graded = Graded()
    yield from _run_tests(graded, case.inputs["grade"], place)
    return graded


def _apply(graded: Graded, patch: str, place: Place) -> Generator[Step, Reply, None]:
    for name, argv in CHAIN.items():
        done = yield from _run(Command(argv=argv, stdin=patch, timeout_s=APPLY_TIMEOUT_S), place)
        if done.exit_code == 0:
            graded.applied = name
            break
        graded.detail = " ".join(done.output.split())[-300:]
        yield from _run(Command(argv=("bash", "-c", _RESET), timeout_s=APPLY_TIMEOUT_S), place)
    else:
        done = yield from _run(Command(argv=APPLIED_ALREADY, stdin=patch, timeout_s=APPLY_TIMEOUT_S), place)
        if done.exit_code != 0:
            graded.reason = "patch-apply-failed"
            return
        graded.applied = "already"
    graded.detail = ""


def _run_tests(graded: Graded, fields: Mapping[str, Any], place: Place) -> Generator[Step, Reply, None]:
    """The test files as they should be, then the tests."""
    test_files = files_of(fields["test_patch"])
    yield from _run(
        Command(argv=("bash", "-c", _RESTORE, "restore", fields["base"], *test_files), timeout_s=APPLY_TIMEOUT_S), place
    )
    script = Command(
        argv=("bash", "-c", _EVALUATE),
        stdin=fields["eval_script"],
        timeout_s=fields["timeout_s"],
        output_limit=LOG_LIMIT,
    )
    done = yield from _run(script, place)
    graded.seconds, graded.emulated = done.seconds, done.emulated
    _judge(graded, done, fields)


def _run(command: Command, place: Place) -> Generator[Step, Reply, Executed]:
    reply = yield Exec(command=command, tree=place.tree, shared=place.shared)
    assert isinstance(reply, Executed)
    return reply


def _judge(graded: Graded, done: Executed, fields: Mapping[str, Any]) -> None:
    if done.timed_out:
        graded.reason, graded.detail = "test-timeout", f"the tests took more than {fields['timeout_s']:g} s"
        return
    if done.killed:
        graded.reason, graded.detail = f"tests-{done.killed}-limit", f"the tests were killed: too much {done.killed}"
        graded.cause = f"out-of-{done.killed}"
        return
    statuses = parse(done.output, fields["log_parser"])
    graded.exit_code = statuses.exit_code
    if not statuses.ran(fail_only=fields["fail_only"]):
        graded.reason, graded.detail = "tests-did-not-run", " ".join(done.output.split())[-300:]
        graded.cause = cause_of(done.output, statuses.exit_code if statuses.complete else done.exit_code)
        return
    graded.tests = status_lists(statuses.last, fields["f2p"], fields["p2p"], fail_only=fields["fail_only"])
    failed = graded.tests["FAIL_TO_PASS"]["failure"] + graded.tests["PASS_TO_PASS"]["failure"]
    invalid = bool(statuses.exit_code) and not statuses.any_failed
    graded.official = bool(fields["f2p"]) and not failed and not invalid
    wanted = {*fields["f2p"], *fields["p2p"]}
    graded.conflicting = sorted(test for test in wanted if statuses.worst.get(test) != statuses.last.get(test))
    graded.reason, graded.detail = _reason(graded, statuses, failed, invalid=invalid)


def _reason(graded: Graded, statuses: Statuses, failed: list[str], *, invalid: bool) -> tuple[str, str]:
    if invalid:
        return "invalid-run", f"the test command ended with exit code {statuses.exit_code} and no test failed"
    if failed:
        return "tests-fail", f"{len(failed)} tests, among them {failed[0]}"
    if graded.tampered:
        return "tampered", f"the patch changes how tests are run: {', '.join(graded.tampered[:5])}"
    if graded.conflicting:
        return "tests-conflict", f"{graded.conflicting[0]} was reported both passed and failed"
    return ("", "") if graded.official else ("nothing-to-pass", "the instance names no FAIL_TO_PASS test")


def status_lists(
    statuses: Mapping[str, str], f2p: list[str], p2p: list[str], *, fail_only: bool
) -> dict[str, dict[str, list[str]]]:
    """The official report's lists; an absent test failed, but under ``fail_only``, where only a failure that was told
    counts.

    An id that the data set has cut off in its parameter matches what begins with it.
    """
    groups = {}
    for name, tests, good in (("FAIL_TO_PASS", f2p, _PASSES), ("PASS_TO_PASS", p2p, _KEEPS)):
        success = [
            test for test in tests if (statuses.get(test) != FAILED if fail_only else _status(statuses, test) in good)
        ]
        kept = set(success)
        groups[name] = {"success": success, "failure": [test for test in tests if test not in kept]}
    return groups


def _status(statuses: Mapping[str, str], test: str) -> str:
    """A parametrised id that lacks a closing bracket was cut at a space when the data set was made (SWE-bench issue
    290): it has the status of those that begin with it, if they agree on passing."""
    if test in statuses or test.count("[") <= test.count("]"):
        return statuses.get(test, "")
    found = [status for name, status in statuses.items() if name.startswith(test)]
    return found[0] if len({status in _PASSES for status in found}) == 1 else ""


def official_report(instance: str, patch: str, graded: Mapping[str, Any]) -> dict[str, Any]:
    """``report.json`` of the harness for one instance, from a verdict's facts."""
    report: dict[str, Any] = {
        "patch_is_None": False,
        "patch_exists": bool(patch.strip()),
        "patch_successfully_applied": bool(graded["applied"]) and graded["tests_status"] is not None,
        "resolved": bool(graded["official_resolved"]),
        "infra_failure": bool(graded.get("cause")),
    }
    if graded["tests_status"] is not None:
        report["tests_status"] = {
            **graded["tests_status"],
            **{name: {"success": [], "failure": []} for name in ("FAIL_TO_FAIL", "PASS_TO_FAIL")},
        }
    return {instance: report}
