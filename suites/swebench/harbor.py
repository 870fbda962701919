"""DeepSWE / Harbor tasks: the agent commits, the commit's difference is the patch, the task's own verifier runs in a separate container.

The verifier's reward is the official result. The reports it was made of (CTRF or JUnit) are read here again by its own rule: the worst status
of a test wins; an absent or skipped one failed. Source: tests/grader.py of datacurve-ai/deep-swe, v1.1.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Generator, Iterable, Iterator, Mapping
from shlex import quote
from typing import Any

from kvv.model import Case, Command, Exec, Executed, Reply, Step
from kvv.suites.swebench.grading import LOG_LIMIT, TREE, Graded
from kvv.suites.swebench.logs import ERROR, FAILED, PASSED, SKIPPED
from kvv.suites.swebench.patches import tampering

VERIFIER = "test.sh"
REWARD = "cat /logs/verifier/reward.json 2>/dev/null || cat /logs/verifier/reward.txt"
#: the verifier writes this first and replaces it at the end
CRASHED = -1.0
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
    done = yield Exec(command=Command(argv=("bash", "-c", script), timeout_s=case.inputs["task_files"]["collect_s"], output_limit=LOG_LIMIT))
    assert isinstance(done, Executed)
    if done.exit_code != 0:
        return "", "collect-failed"
    return (done.output, "") if not done.elided else ("", "patch-too-long")


def grade_task(case: Case, patch: str) -> Generator[Step, Reply, Graded]:
    """Empty patches are graded too: the base's reward is 0."""
    task, fields = case.inputs["task_files"], case.inputs["grade"]
    graded = Graded()
    for name, text in {**{f"/tests/{name}": text for name, text in task["files"].items()}, "/logs/artifacts/model.patch": patch}.items():
        yield from _run(Command(argv=("bash", "-c", _PUT, "put", name), stdin=text))
    done = yield from _run(Command(argv=("bash", f"/tests/{VERIFIER}"), timeout_s=task["verifier_s"], output_limit=LOG_LIMIT))
    graded.seconds, graded.emulated, graded.exit_code = done.seconds, done.emulated, done.exit_code
    if done.timed_out:
        graded.reason, graded.detail = "test-timeout", f"the verifier took more than {task['verifier_s']:g} s"
        return graded
    said = yield from _run(Command(argv=("bash", "-c", REWARD)))
    reward, applied = read_reward(said.output if said.exit_code == 0 else "")
    if reward is None or reward == CRASHED:
        graded.reason, graded.detail = "verifier-crashed", " ".join(done.output.split())[-300:]
        return graded
    reports = []
    for name in task["reports"]:
        reports.append((yield from _run(Command(argv=("cat", name), output_limit=REPORT_LIMIT))))
    whole = bool(reports) and not any(report.elided for report in reports)
    found = (case for report in reports if report.exit_code == 0 for case in read_report(report.output, task))
    statuses = worst(found) if whole else None
    _judge(graded, patch, reward, applied=applied, statuses=statuses, fields=fields)
    return graded


def _run(command: Command) -> Generator[Step, Reply, Executed]:
    reply = yield Exec(command=command, tree=TREE)
    assert isinstance(reply, Executed)
    return reply


def read_reward(text: str) -> tuple[float | None, bool]:
    """The reward, None where there is none, and whether the patch applied."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None, False
    fields: Mapping[str, Any] = value if isinstance(value, dict) else {"reward": value}
    reward = fields.get("reward")
    if not isinstance(reward, int | float) or isinstance(reward, bool) or not abs(reward) <= sys.float_info.max:
        return None, False
    return float(reward), not fields.get("apply_failed")


def _judge(graded: Graded, patch: str, reward: float, *, applied: bool, statuses: Mapping[str, str] | None, fields: Mapping[str, Any]) -> None:
    """``statuses`` is None where there are no reports to read."""
    graded.official = reward == 1.0
    graded.applied = "verifier" if applied and patch.strip() else ""
    graded.tampered = tampering(patch, reference=fields["reference"], test_files=())
    own = None
    if statuses is not None and applied and patch.strip():
        graded.tests = lists_of(statuses, fields["f2p"], fields["p2p"])
        own = bool(fields["f2p"]) and not any(group["failure"] for group in graded.tests.values())
    if not patch.strip():
        graded.reason = "empty-patch"
    elif not applied:
        graded.reason = "patch-apply-failed"
    elif not graded.official:
        graded.reason, graded.detail = "tests-fail", f"the verifier's reward is {reward:g}"
    elif own is False:
        graded.reason, graded.detail = "tests-conflict", "the verifier's reward is 1, its reports say otherwise"
    elif graded.tampered:
        graded.reason, graded.detail = "tampered", f"the patch changes how tests are run: {', '.join(graded.tampered[:5])}"


def worst(cases: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Worst status by node id."""
    statuses: dict[str, str] = {}
    for test, status in cases:
        if _RANK[status] >= _RANK.get(statuses.get(test, ""), -1):
            statuses[test] = status
    return statuses


def read_report(text: str, task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Node ids with their statuses; a report that cannot be read says nothing."""
    if task["format"] == JUNIT:
        return _junit(text)
    return _ctrf(text, by_suite=task.get("node_id") == "suite.name") if task["format"] in ("", CTRF) else iter(())


def _ctrf(report: str, *, by_suite: bool) -> Iterator[tuple[str, str]]:
    """``results.tests``; the id is the name, or the first suite and the name."""
    try:
        tests = json.loads(report)["results"]["tests"]
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        return
    for test in tests if isinstance(tests, list) else ():
        if not isinstance(test, dict) or not (name := str(test.get("name") or "").strip()):
            continue
        suite = test.get("suite")
        suite = suite[0] if isinstance(suite, list) and suite else suite
        place = suite.strip() if by_suite and isinstance(suite, str) else ""
        word = str(test.get("status") or "").strip().lower()
        yield f"{place}.{name}" if place else name, PASSED if word == "passed" else SKIPPED if word in _NOT_RUN else FAILED


def _junit(report: str) -> Iterator[tuple[str, str]]:
    """``classname.name``. A report that defines entities says nothing."""
    if "<!DOCTYPE" in report or "<!ENTITY" in report:
        return
    try:
        root = ElementTree.fromstring(report.encode("utf-8", "replace"))  # noqa: S314 entities are refused above
    except (ElementTree.ParseError, ValueError, RecursionError):
        return
    for case in root.iter("testcase"):
        kinds = {child.tag.rpartition("}")[2] for child in case}
        status = FAILED if "failure" in kinds else ERROR if "error" in kinds else SKIPPED if "skipped" in kinds else PASSED
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
