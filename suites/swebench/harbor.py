"""DeepSWE / Harbor tasks: the agent commits, the commit's difference is the patch, the task's own verifier runs in a
separate container.

The verifier's reward is the official result. The reports it was made of (CTRF or JUnit) are read here again by its own
rule: the worst status of a test wins; an absent or skipped one failed. A report that is missing or cannot be read is no
evidence: absence then proves nothing. Source: tests/grader.py and tests/test.sh of datacurve-ai/deep-swe, v1.1.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Generator, Iterable, Iterator, Mapping
from posixpath import join, split
from shlex import quote
from typing import Any

from kvv.core import Case, Command, Exec, Executed, Reply, Step
from kvv.suites.swebench.grading import LOG_LIMIT, VENDORS, Graded, Place
from kvv.suites.swebench.logs import ERROR, FAILED, PASSED, SKIPPED
from kvv.suites.swebench.patches import tampering

VERIFIER = "test.sh"
REWARD = "cat /logs/verifier/reward.json 2>/dev/null || cat /logs/verifier/reward.txt"
#: the verifier writes this first and replaces it at the end
CRASHED = -1.0
#: the first of these files that is there
_FIRST = 'for f; do if [ -f "$f" ]; then exec cat < "$f"; fi; done; exit 1'
_PUT = 'mkdir -p "$(dirname "$1")" && cat > "$1"'
#: characters of one report; a longer one is not judged again
REPORT_LIMIT = 16_000_000
#: the format of a task that names none
CTRF, JUNIT = "ctrf", "junit"
#: what CTRF calls a test that did not run; every word but these and "passed" is a failure
_NOT_RUN = frozenset({"skipped", "pending", "other"})
_RANK = {PASSED: 0, SKIPPED: 1, FAILED: 2, ERROR: 2}


def collect(case: Case) -> Generator[Step, Reply, tuple[str, str]]:
    """The patch that the agent has committed, from its own tree; and why there is none."""
    base = case.inputs["grade"]["base"]
    script = f"git -c safe.directory='*' diff --binary {quote(base)} HEAD"
    done = yield Exec(
        command=Command(
            argv=("bash", "-c", script), timeout_s=case.inputs["task_files"]["collect_s"], output_limit=LOG_LIMIT
        )
    )
    assert isinstance(done, Executed)
    if done.exit_code != 0:
        return "", "collect-failed"
    return (done.output, "") if not done.elided else ("", "patch-too-long")


def grade_task(case: Case, patch: str, place: Place = VENDORS) -> Generator[Step, Reply, Graded]:
    """Empty patches are graded too: the base's reward is 0."""
    task, fields = case.inputs["task_files"], case.inputs["grade"]
    graded = Graded()
    for name, text in {
        **{f"/tests/{name}": text for name, text in task["files"].items()},
        "/logs/artifacts/model.patch": patch,
    }.items():
        yield from _run(Command(argv=("bash", "-c", _PUT, "put", name), stdin=text), place)
    done = yield from _run(
        Command(argv=("bash", f"/tests/{VERIFIER}"), timeout_s=task["verifier_s"], output_limit=LOG_LIMIT), place
    )
    graded.seconds, graded.emulated, graded.exit_code = done.seconds, done.emulated, done.exit_code
    if done.timed_out:
        graded.reason, graded.detail = "test-timeout", f"the verifier took more than {task['verifier_s']:g} s"
        return graded
    if done.killed:
        graded.reason, graded.detail = f"tests-{done.killed}-limit", f"the verifier was killed: too much {done.killed}"
        graded.cause = f"out-of-{done.killed}"
        return graded
    said = yield from _run(Command(argv=("bash", "-c", REWARD)), place)
    reward, applied = read_reward(said.output if said.exit_code == 0 else "")
    if reward is None or reward == CRASHED:
        graded.reason, graded.detail = "verifier-crashed", _tail(done)
        return graded
    statuses, lacking = yield from _reported(task, place)
    _judge(graded, patch, reward, applied=applied, fields=fields, statuses=statuses, lacking=lacking)
    if graded.reason == "tests-fail" and task["reports"] and lacking and not statuses:
        # a reward of 0 that was made of nothing: the tests failed, or could not be run at all
        graded.reason, graded.detail = "verifier-without-reports", f"{graded.detail}: {_tail(done)}"
    return graded


def _tail(done: Executed) -> str:
    return " ".join(done.output.split())[-300:]


def _reported(task: Mapping[str, Any], place: Place) -> Generator[Step, Reply, tuple[dict[str, str], str]]:
    """The worst status by node id over the reports that can be read, and why that is not all of them ("" where it
    is).
    """
    found: list[tuple[str, str]] = []
    lacking = [] if task["reports"] else ["the task names no report"]
    for name in task["reports"]:
        done = yield from _run(read_command(name), place)
        tests = read_report(done.output, task) if done.exit_code == 0 and not done.elided else None
        if tests is None:
            why = "missing" if done.exit_code != 0 else "too long" if done.elided else "unreadable"
            lacking.append(f"report {name} is {why}")
        found += tests or ()
    return worst(found), ", ".join(lacking)


def read_command(report: str) -> Command:
    """The frame of v1.1 moves each report into ``reports`` beside it once the reward is written; other frames leave it
    in its place.
    """
    folder, name = split(report)
    return Command(
        argv=("bash", "-c", _FIRST, "first", join(folder, "reports", name), report), output_limit=REPORT_LIMIT
    )


def _run(command: Command, place: Place) -> Generator[Step, Reply, Executed]:
    reply = yield Exec(command=command, tree=place.tree, shared=place.shared)
    assert isinstance(reply, Executed)
    return reply


def read_reward(text: str) -> tuple[float | None, bool]:
    """The reward, None where there is none from -1 to 1, and whether the patch applied."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None, False
    fields: Mapping[str, Any] = value if isinstance(value, dict) else {"reward": value}
    reward = fields.get("reward")
    if not isinstance(reward, int | float) or isinstance(reward, bool) or not CRASHED <= reward <= 1:
        return None, False
    return float(reward), not fields.get("apply_failed")


def _judge(
    graded: Graded,
    patch: str,
    reward: float,
    *,
    applied: bool,
    fields: Mapping[str, Any],
    statuses: Mapping[str, str],
    lacking: str,
) -> None:
    """The reward decides. The reports can contradict it by what they say; by what they leave out only where none is
    ``lacking``.
    """
    graded.official = reward == 1.0
    graded.applied = "verifier" if applied and patch.strip() else ""
    graded.tampered = tampering(patch, reference=fields["reference"], test_files=())
    if not patch.strip():
        graded.reason = "empty-patch"
        return
    if not applied:
        graded.reason = "patch-apply-failed"
        return
    f2p, p2p = (
        ([test for test in fields[name] if test in statuses] if lacking else fields[name]) for name in ("f2p", "p2p")
    )
    graded.tests = lists_of(statuses, f2p, p2p)
    failed = [test for group in graded.tests.values() for test in group["failure"]]
    graded.detail = f"the verifier's reward is {reward:g}" + (f"; {lacking}" if lacking else "")
    if not graded.official:
        graded.reason = "tests-fail"
        if fields["f2p"] and not failed and not lacking:
            graded.detail += "; its reports say that every test passed"
    elif failed or not (fields["f2p"] or lacking):
        graded.reason = "tests-conflict"
        graded.detail += (
            f"; its reports say that {failed[0]} did not pass" if failed else "; the task names no FAIL_TO_PASS test"
        )
    elif graded.tampered:
        graded.reason, graded.detail = (
            "tampered",
            f"the patch changes how tests are run: {', '.join(graded.tampered[:5])}",
        )
    elif not lacking:
        graded.detail = ""


def worst(cases: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Worst status by node id."""
    statuses: dict[str, str] = {}
    for test, status in cases:
        if _RANK[status] >= _RANK.get(statuses.get(test, ""), -1):
            statuses[test] = status
    return statuses


def read_report(text: str, task: Mapping[str, Any]) -> list[tuple[str, str]] | None:
    """Node ids with their statuses; None for a report that cannot be read."""
    if task["format"] == JUNIT:
        root = _root(text)
        return None if root is None else list(_junit(root))
    if task["format"] not in ("", CTRF):
        return None
    try:
        tests = json.loads(text)["results"]["tests"]
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        return None
    return list(_ctrf(tests, by_suite=task.get("node_id") == "suite.name")) if isinstance(tests, list) else None


def _ctrf(tests: list[Any], *, by_suite: bool) -> Iterator[tuple[str, str]]:
    """Of ``results.tests``; the id is the name, or the first suite and the name."""
    for test in tests:
        if not isinstance(test, dict) or not (name := str(test.get("name") or "").strip()):
            continue
        suite = test.get("suite")
        suite = suite[0] if isinstance(suite, list) and suite else suite
        place = suite.strip() if by_suite and isinstance(suite, str) else ""
        word = str(test.get("status") or "").strip().lower()
        yield (
            f"{place}.{name}" if place else name,
            PASSED if word == "passed" else SKIPPED if word in _NOT_RUN else FAILED,
        )


def _root(report: str) -> ElementTree.Element | None:
    """None for what is no XML, and for a report that may define entities."""
    if "<!DOCTYPE" in report or "<!ENTITY" in report:
        return None
    try:
        return ElementTree.fromstring(report.encode("utf-8", "replace"))  # noqa: S314 entities are refused above
    except (ElementTree.ParseError, ValueError, RecursionError):
        return None


def _junit(root: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """``classname.name``."""
    for case in root.iter("testcase"):
        kinds = {child.tag.rpartition("}")[2] for child in case}
        status = (
            FAILED if "failure" in kinds else ERROR if "error" in kinds else SKIPPED if "skipped" in kinds else PASSED
        )
        name, place = (case.get("name") or "").strip(), (case.get("classname") or "").strip()
        if name:
            yield f"{place}.{name}" if place else name, status


def lists_of(statuses: Mapping[str, str], f2p: list[str], p2p: list[str]) -> dict[str, dict[str, list[str]]]:
    """In the form of the official report of SWE-bench."""
    return {
        name: {
            "success": [test for test in tests if statuses.get(test) == PASSED],
            "failure": [test for test in tests if statuses.get(test) != PASSED],
        }
        for name, tests in (("FAIL_TO_PASS", f2p), ("PASS_TO_PASS", p2p))
    }
