"""JUnit XML: a test suite per contract suite with a test case per case, then the wire rules that objected, then the
gates.

What is a failure, an error and a skip here: the vendor is wrong and it counts (failure); nothing could be decided,
because of us (error, type harness-error) or of the network (error, type inconclusive); not claimed, waived, or a
failure that does not count (skipped, with the reason). An endpoint that is dead or refuses the account is one error,
not one for each case that was not asked. Each failure names its cause; the first suite's output lists them. Benchmark
samples are no test cases, their gates are: one wrong answer is no failed test. The order and attributes are those of
the common JUnit schema (Ant, Jenkins).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass

from kvv.core import Gate, Outcome
from kvv.decision.inputs import CountedFindings
from kvv.rendering.escape import block, plain
from kvv.storage.causes import is_silent, symptom_of
from kvv.storage.view import Cause, CauseKind, CheckRow, RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """``kind``: "", failure, error or skipped."""

    classname: str
    name: str
    kind: str = ""
    type: str = ""
    message: str = ""
    text: str = ""
    seconds: float = 0.0


def render(view: RunView) -> str:
    root = ET.Element("testsuites")
    by_suite: dict[str, list[_Item]] = {}
    causes = {cause.id: cause for cause in view.causes}
    dead = next((cause for cause in view.causes if cause.kind is CauseKind.ENDPOINT), None)
    for row in view.checks:
        if row.case.suite not in view.benchmarks:
            by_suite.setdefault(row.case.suite, []).append(_of_check(row, view, causes.get(symptom_of(row).id), dead))
    groups = [*([("endpoint", [_of_endpoint(dead)])] if dead else []), *by_suite.items()]
    if view.decision.findings:
        groups.append(("wire-rules", [_of_rule(found, view) for found in view.decision.findings]))
    groups.append(("gates", [_of_gate(g, dead) for g in view.decision.gates]))
    for number, (name, items) in enumerate(groups):
        root.append(_suite(number, name, items, view))
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _of_endpoint(cause: Cause) -> _Item:
    return _Item(
        classname="endpoint",
        name="reachable",
        kind="error",
        type="inconclusive",
        message=cause.title,
        text=f"{cause.size} without a result" if cause.size else "",
    )


def _of_rule(found: CountedFindings, view: RunView) -> _Item:
    broken = found in view.decision.breaking
    texts = [found.message, *(f"{e.exchange}: {e.excerpt}" for e in found.examples)]
    return _Item(
        classname=f"wire-rules.{found.area.value}",
        name=found.rule,
        kind="failure" if broken else "skipped",
        type="rule-broken" if broken else "",
        message=f"{'' if broken else f'{found.level.value}-level, shown only: '}{found.message}"
        f" ({found.count} times in {found.exchanges} answers)",
        text="\n".join(texts),
    )


def _of_check(row: CheckRow, view: RunView, cause: Cause | None, dead: Cause | None) -> _Item:
    verdict = row.verdict
    parts = [
        f"cause: {cause.title}" if cause and verdict.outcome is Outcome.FAIL else "",
        verdict.detail,
        f"requirement: {row.case.requirement}",
        f"source: {row.case.source}",
    ]
    parts += [
        f"evidence: {e.exchange}{f' frame {e.frame}' if e.frame is not None else ''}: {e.excerpt}"
        for e in verdict.evidence[:5]
    ]
    kind, type_ = _kind(verdict.outcome, verdict.reason)
    message = f"{verdict.outcome.value}: {verdict.reason or 'no reason given'}"
    if verdict.outcome is Outcome.FAIL and not view.counts(row):
        kind, message = (
            "skipped",
            f"{'waived' if row.waived else f'{row.level.value}-level, shown only'}: {verdict.reason}",
        )
    if dead and is_silent(row):
        kind, message = "skipped", f"no result: {dead.title}"
    return _Item(
        seconds=row.asked.seconds,
        classname=f"{row.case.suite}.{row.case.area.value}",
        name=row.id,
        kind=kind,
        type=type_,
        message=message,
        text="\n".join(filter(None, parts)),
    )


def _of_gate(gate: Gate, dead: Cause | None) -> _Item:
    kind, type_ = _kind(gate.decision, gate.reason.split(":")[0])
    if dead and gate.decision is Outcome.INCONCLUSIVE:
        kind = "skipped"  # the endpoint's one error says it
    return _Item(
        classname=f"gates.{gate.area.value}", name=gate.id, kind=kind, type=type_, message=gate.reason, text=gate.method
    )


def _kind(outcome: Outcome, reason: str) -> tuple[str, str]:
    match outcome:
        case Outcome.PASS:
            return "", ""
        case Outcome.FAIL:
            return "failure", reason or "fail"
        case Outcome.ERROR:
            return "error", "harness-error"
        case Outcome.INCONCLUSIVE:
            return "error", "inconclusive"
        case Outcome.SKIP:
            return "skipped", ""


def _suite(number: int, name: str, items: Iterable[_Item], view: RunView) -> ET.Element:
    every = list(items)
    count = {kind: str(sum(i.kind == kind for i in every)) for kind in ("failure", "error", "skipped")}
    suite = ET.Element(
        "testsuite",
        {
            "id": str(number),
            "package": "kvv",
            "name": plain(name, 200),
            "timestamp": _timestamp(view.run.started),
            "hostname": plain(view.endpoint.vendor, 200).strip() or "unknown",
            "tests": str(len(every)),
            "failures": count["failure"],
            "errors": count["error"],
            "skipped": count["skipped"],
            "time": f"{sum(item.seconds for item in every):.3f}",
        },
    )
    properties = ET.SubElement(suite, "properties")
    for key, value in (
        ("run_id", view.run.run_id),
        ("model", view.endpoint.model),
        ("profile", view.profile),
        ("policy", view.policy.name),
    ):
        ET.SubElement(properties, "property", {"name": key, "value": plain(value, 200)})
    for item in every:
        suite.append(_case(item))
    lines = [plain(view.decision.headline, 1000)]
    if number == 0:
        lines += [view.explained, *(plain(cause.sentence, 600) for cause in view.causes if cause.counts)]
    ET.SubElement(suite, "system-out").text = "\n".join(filter(None, lines))
    ET.SubElement(suite, "system-err").text = plain(view.trouble, 1000)
    return suite


def _case(item: _Item) -> ET.Element:
    case = ET.Element(
        "testcase",
        {"name": plain(item.name, 300), "classname": plain(item.classname, 200), "time": f"{item.seconds:.3f}"},
    )
    if item.kind:
        attributes = {"message": plain(item.message)}
        if item.kind != "skipped":
            attributes["type"] = plain(item.type, 100)
        child = ET.SubElement(case, item.kind, attributes)
        if item.kind != "skipped":
            child.text = block(item.text, 2_000)
    return case


def _timestamp(text: str) -> str:
    """The schema's form has no zone and no fraction; times of a run are UTC."""
    found = re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text)
    return found.group() if found else "1970-01-01T00:00:00"
