"""Contract cases and passive rules on which the sides differ, a line each: ``engine ok, gateway broken``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvv.analysis.findings import RuleLine, rule_lines
from kvv.analysis.pairs import outcome_of
from kvv.cases.suite import SuiteKind
from kvv.core import Area, Level, Outcome
from kvv.rendering.document import DocumentTable, Section
from kvv.storage.run_summary import CaseResult, RunSummary

#: lines shown, and ways of differing that are counted
LISTED, WAYS = 500, 12
WORDS = {
    Outcome.PASS: "ok",
    Outcome.FAIL: "broken",
    Outcome.INCONCLUSIVE: "open",
    Outcome.SKIP: "not asked",
    Outcome.ERROR: "our error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictLine:
    """One case, or one passive rule (``suite`` is "", ``case`` the rule); ``outcomes`` and ``reasons`` are by side,
    SKIP for a side that has no such case. ``level`` is the strictest of them."""

    suite: str
    area: Area
    level: Level
    case: str
    outcomes: tuple[Outcome, ...]
    reasons: tuple[str, ...]

    @property
    def kind(self) -> str:
        return "case" if self.suite else "rule"

    @property
    def decided(self) -> bool:
        """One side keeps it and another breaks it."""
        return {Outcome.PASS, Outcome.FAIL} <= set(self.outcomes)

    def text(self, names: Sequence[str]) -> str:
        return ", ".join(f"{name} {WORDS[outcome]}" for name, outcome in zip(names, self.outcomes, strict=True))

    def why(self, names: Sequence[str]) -> str:
        told = zip(names, self.outcomes, self.reasons, strict=True)
        return "; ".join(
            f"{name}: {reason}" for name, outcome, reason in told if reason and outcome is not Outcome.PASS
        )


def verdict_lines(sides: Sequence[RunSummary]) -> list[VerdictLine]:
    """Those on which the sides do not agree: what one keeps and another breaks first, then by level, in the order of
    the suites.
    """
    found = []
    suites = {suite.id: suite.kind for side in sides for suite in side.suites.values()}
    for suite in (name for name, kind in suites.items() if kind is not SuiteKind.BENCHMARK):
        tables = [side.suites[suite].cases if suite in side.suites else {} for side in sides]
        for case_id in dict.fromkeys(case for table in tables for case in table):
            line = _line(suite, case_id, [table.get(case_id) for table in tables])
            if len(set(line.outcomes)) > 1:
                found.append(line)
    found += [_rule(line) for line in rule_lines(sides) if line.level is not Level.MAY and len(set(line.outcomes)) > 1]
    levels = list(Level)
    return sorted(found, key=lambda line: (not line.decided, levels.index(line.level)))


def _line(suite: str, case_id: str, cases: Sequence[CaseResult | None]) -> VerdictLine:
    there = [case for case in cases if case is not None]
    outcomes = tuple(Outcome.SKIP if case is None else outcome_of(case) for case in cases)
    return VerdictLine(
        suite=suite,
        area=there[0].area,
        level=min((case.level for case in there), key=list(Level).index),
        case=case_id,
        outcomes=outcomes,
        reasons=tuple(
            "" if case is None else _reason(case, outcome) for case, outcome in zip(cases, outcomes, strict=True)
        ),
    )


def _rule(line: RuleLine) -> VerdictLine:
    reasons = tuple("" if seen is None else f"{seen.count} in {seen.answers}" for seen in line.seen)
    return VerdictLine(
        suite="", area=line.area, level=line.level, case=line.rule, outcomes=line.outcomes, reasons=reasons
    )


def _reason(case: CaseResult, outcome: Outcome) -> str:
    return next((sample.reason for sample in case.samples if sample.outcome is outcome), "")


def section(lines: Sequence[VerdictLine], names: Sequence[str]) -> Section:
    """How often the sides differ in which way, and the cases and rules."""
    title = "Contract, side by side"
    if not lines:
        return Section(title=title, notes=("No contract case and no passive rule has different verdicts.",))
    ways = Counter((line.text(names), line.kind) for line in lines)
    notes = [f"{text}: {count} {kind}{'' if count == 1 else 's'}" for (text, kind), count in ways.most_common(WAYS)]
    notes += [f"and {len(ways) - WAYS} other ways"] if len(ways) > WAYS else []
    listed = lines[:LISTED]
    rows = [
        (line.suite or "passive rule", line.area.value, line.level.value, line.case, line.text(names), line.why(names))
        for line in listed
    ]
    columns = ("suite", "area", "level", "case or rule", "verdicts", "reasons")
    table = DocumentTable(name="verdict-lines", columns=columns, rows=tuple(rows), left_out=max(0, len(lines) - LISTED))
    return Section(title=title, notes=tuple(notes), tables=(table,))


def as_data(lines: Sequence[VerdictLine], names: Sequence[str]) -> list[dict[str, Any]]:
    """JSON-like; ``verdicts`` are by side, in the order of the file."""
    return [
        {
            "kind": line.kind,
            "suite": line.suite,
            "area": line.area.value,
            "level": line.level.value,
            "case": line.case,
            "text": line.text(names),
            "verdicts": [
                {"side": name, "verdict": outcome.value, "reason": reason}
                for name, outcome, reason in zip(names, line.outcomes, line.reasons, strict=True)
            ],
        }
        for line in lines
    ]
