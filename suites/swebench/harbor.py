"""DeepSWE / Harbor tasks: the agent commits, the commit's difference is the patch, the task's own verifier runs in a separate container.

The verifier's reward is the official result. Where it leaves JUnit reports, the task's lists are judged here again by its own rule: the
worst status of a test wins; an absent or skipped one failed.
"""

from __future__ import annotations

import json
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
    for name in task["reports"] if task["format"] == "junit" else []:
        report = yield from _run(Command(argv=("cat", name), output_limit=LOG_LIMIT))
        reports.append(report.output if report.exit_code == 0 else "")
    _judge(graded, patch, reward, applied=applied, reports=reports, fields=fields)
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
    if not isinstance(reward, int | float) or isinstance(reward, bool):
        return None, False
    return float(reward), not fields.get("apply_failed")


def _judge(graded: Graded, patch: str, reward: float, *, applied: bool, reports: list[str], fields: Mapping[str, Any]) -> None:
    graded.official = reward == 1.0
    graded.applied = "verifier" if applied and patch.strip() else ""
    graded.tampered = tampering(patch, reference=fields["reference"], test_files=())
    own = None
    if any(reports):
        graded.tests = lists_of(junit(reports), fields["f2p"], fields["p2p"])
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


def junit(reports: Iterable[str]) -> dict[str, str]:
    """Worst status by node id, ``classname.name``; a report that cannot be read, or that defines entities, says nothing."""
    statuses: dict[str, str] = {}
    for report in reports:
        for test, status in _cases(report):
            if _RANK[status] >= _RANK.get(statuses.get(test, ""), -1):
                statuses[test] = status
    return statuses


def _cases(report: str) -> Iterator[tuple[str, str]]:
    if "<!DOCTYPE" in report or "<!ENTITY" in report:
        return
    try:
        root = ElementTree.fromstring(report.encode("utf-8", "replace"))  # noqa: S314 entities are refused above
    except (ElementTree.ParseError, ValueError, RecursionError):
        return
    for case in root.iter("testcase"):
        kinds = {child.tag for child in case}
        status = FAILED if "failure" in kinds else ERROR if "error" in kinds else SKIPPED if "skipped" in kinds else PASSED
        name, place = case.get("name") or "", case.get("classname") or ""
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
