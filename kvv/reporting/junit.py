"""JUnit XML: a test suite per contract suite with a test case per case, then the gates.

What is a failure, an error and a skip here: the vendor is wrong and it counts (failure); nothing could be decided,
because of us (error, type harness-error) or of the network (error, type inconclusive); not claimed, waived, or a
failure that does not count (skipped, with the reason). Benchmark samples are no test cases, their gates are: one wrong
answer is no failed test. The order and attributes are those of the common JUnit schema (Ant, Jenkins).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass

from kvv.core import Gate, Outcome
from kvv.rendering.escape import block, plain
from kvv.storage.view import CheckRow, RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """``kind``: "", failure, error or skipped."""

    classname: str
    name: str
    kind: str = ""
    type: str = ""
    message: str = ""
    text: str = ""


def render(view: RunView) -> str:
    root = ET.Element("testsuites")
    by_suite: dict[str, list[_Item]] = {}
    for row in view.checks:
        if row.case.suite not in view.benchmarks:
            by_suite.setdefault(row.case.suite, []).append(_of_check(row, view))
    groups = [*by_suite.items(), ("gates", [_of_gate(g) for g in view.decision.gates])]
    for number, (name, items) in enumerate(groups):
        root.append(_suite(number, name, items, view))
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _of_check(row: CheckRow, view: RunView) -> _Item:
    verdict = row.verdict
    parts = [verdict.detail, f"requirement: {row.case.requirement}", f"source: {row.case.source}"]
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
    return _Item(
        classname=f"{row.case.suite}.{row.case.area.value}",
        name=row.id,
        kind=kind,
        type=type_,
        message=message,
        text="\n".join(filter(None, parts)),
    )


def _of_gate(gate: Gate) -> _Item:
    kind, type_ = _kind(gate.decision, gate.reason.split(":")[0])
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
            "time": "0",
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
    ET.SubElement(suite, "system-out").text = plain(view.decision.headline, 1000)
    ET.SubElement(suite, "system-err").text = plain(view.trouble, 1000)
    return suite


def _case(item: _Item) -> ET.Element:
    case = ET.Element("testcase", {"name": plain(item.name, 300), "classname": plain(item.classname, 200), "time": "0"})
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
