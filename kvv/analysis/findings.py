"""What passive rules found, run by run, and in a few words what a run breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvv.core import Area, Level, Outcome
from kvv.rendering.document import DocumentTable, Section
from kvv.storage.run_summary import RuleResult, RunSummary

#: begins the names of questions of ours that are no case, such as the first one to an endpoint
PROBES = "kvv/"
#: begins the names of the contract's gates
CONTRACT = "contract/"
#: what one side breaks, and sides that break something, that one sentence names
NAMED, SIDES_NAMED = 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """One rule that objected in at least one run; ``seen`` and ``outcomes`` are by side. ``level`` is the strictest of
    them.
    """

    rule: str
    area: Area
    level: Level
    seen: tuple[RuleResult | None, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def differs(self) -> bool:
        """One side breaks the rule and another keeps it."""
        return {Outcome.PASS, Outcome.FAIL} <= set(self.outcomes)


def rule_lines(sides: Sequence[RunSummary]) -> list[RuleLine]:
    """Those on which sides differ first, then by level, in the order of the runs."""
    found = []
    for rule in dict.fromkeys(result.rule for side in sides for result in side.findings or ()):
        seen = tuple(_result(side, rule) for side in sides)
        there = [result for result in seen if result is not None]
        cases = [case for result in there for case in result.cases]
        outcomes = tuple(_outcome(side, result, cases) for side, result in zip(sides, seen, strict=True))
        level = min((result.level for result in there), key=list(Level).index)
        found.append(RuleLine(rule=rule, area=there[0].area, level=level, seen=seen, outcomes=outcomes))
    return sorted(found, key=lambda line: (not line.differs, list(Level).index(line.level)))


def _result(side: RunSummary, rule: str) -> RuleResult | None:
    """The strictest, where a rule objects on more than one level."""
    mine = [result for result in side.findings or () if result.rule == rule]
    return min(mine, key=lambda result: (not result.breaks, list(Level).index(result.level)), default=None)


def _outcome(side: RunSummary, result: RuleResult | None, cases: Sequence[str]) -> Outcome:
    """A side keeps a rule only where it answered one of the questions whose answers broke it elsewhere, and nothing was
    objected to.
    """
    if result is not None:
        return Outcome.FAIL
    if side.findings is None:
        return Outcome.INCONCLUSIVE
    mine = {case_id: case for suite in side.suites.values() for case_id, case in suite.cases.items()}
    asked = [case for case in cases if not case.startswith(PROBES)]
    # what only a probe shows, any answer would show
    known = [mine[case] for case in asked if case in mine] if asked else [*mine.values()]
    if not known:
        return Outcome.SKIP
    return Outcome.PASS if any(sample.concluded for case in known for sample in case.samples) else Outcome.INCONCLUSIVE


def section(lines: Sequence[RuleLine], labels: Sequence[str], title: str = "Passive rules") -> Section:
    """Rule, level and how many answers each side broke it in."""
    if not lines:
        return Section(title=title, notes=("No rule objected to any answer.",))
    rows = [
        (
            line.rule,
            line.area.value,
            line.level.value,
            *map(_cell, line.seen, line.outcomes),
            next(seen.message for seen in line.seen if seen),
        )
        for line in lines
    ]
    table = DocumentTable(name="rules", columns=("rule", "area", "level", *labels, "what it says"), rows=tuple(rows))
    notes = ("Rules look at every answer, benchmarks included. A must fails by its share of answers.",)
    return Section(title=title, notes=notes, tables=(table,))


def _cell(seen: RuleResult | None, outcome: Outcome) -> str:
    if seen is not None:
        return f"{seen.count} in {seen.answers}" + ("" if seen.breaks else " (shown only)")
    return {Outcome.PASS: "none", Outcome.SKIP: "not asked"}.get(outcome, "not known")


def as_data(lines: Sequence[RuleLine], labels: Sequence[str]) -> list[dict[str, Any]]:
    """JSON-like; ``sides`` are in the order of the runs."""
    return [
        {
            "rule": line.rule,
            "area": line.area.value,
            "level": line.level.value,
            "sides": [
                {"side": name, "verdict": outcome.value, "found": None if seen is None else asdict(seen)}
                for name, seen, outcome in zip(labels, line.seen, line.outcomes, strict=True)
            ],
        }
        for line in lines
    ]


# --- what a run breaks -------------------------------------------------------------------------------


def list_broken(side: RunSummary) -> list[str]:
    """What fails the run's contract gates: rules by how many answers broke them, then cases. A waived gate fails
    nothing.
    """
    areas = {gate.area for gate in side.gates if gate.decision is Outcome.FAIL and gate.id.startswith(CONTRACT)}
    rules = sorted(
        (result for result in side.findings or () if result.breaks and result.area in areas),
        key=lambda result: -result.exchanges,
    )
    cases = [
        case_id
        for suite in side.suites.values()
        for case_id, case in suite.cases.items()
        if case.breaks and case.area in areas
    ]
    return [*(f"{result.rule} ({result.answers})" for result in rules), *cases]


def list_failed(side: RunSummary) -> list[str]:
    """Gates that the run failed, those apart that its contract explains."""
    return [gate.id for gate in side.gates if gate.decision is Outcome.FAIL and not gate.id.startswith(CONTRACT)]


def who_fails(sides: Sequence[RunSummary], names: Sequence[str]) -> list[str]:
    """``gamma breaks tools/index-reused (17 answers)``: a sentence for each side that fails something, the first
    few.
    """
    told = [
        f"{name} {' and '.join(parts)}"
        for name, side in zip(names, sides, strict=True)
        if (
            parts := [
                f"{verb} {some(what, NAMED)}"
                for verb, what in (("breaks", list_broken(side)), ("fails", list_failed(side)))
                if what
            ]
        )
    ]
    return [*told[:SIDES_NAMED], *([f"{len(told) - SIDES_NAMED} more sides fail"] if len(told) > SIDES_NAMED else [])]


def some(what: Sequence[str], limit: int) -> str:
    return ", ".join(what[:limit]) + (f" and {len(what) - limit} more" if len(what) > limit else "")


def contract_words(side: RunSummary, limit: int) -> str:
    """``FAIL: tools/index-reused (17 answers)``: the verdict on the contract and what fails it, at most ``limit`` of
    it.
    """
    verdict = "not run" if side.contract in ("", Outcome.SKIP) else side.contract.upper()
    what = list_broken(side)
    return f"{verdict}: {some(what, limit)}" if what else verdict


def contract_groups(sides: Sequence[RunSummary]) -> list[tuple[str, tuple[int, ...]]]:
    """Who keeps the contract, of whom it was not decided, who breaks it; empty where no side was asked for any of
    it.
    """
    words = {Outcome.PASS: "keeps", Outcome.INCONCLUSIVE: "undecided", Outcome.FAIL: "breaks"}
    held = [side.contract for side in sides]
    if not any(outcome in words for outcome in held):
        return []
    placed = [words.get(Outcome(outcome), "undecided") if outcome else "undecided" for outcome in held]
    return [
        (word, members)
        for word in words.values()
        if (members := tuple(i for i, here in enumerate(placed) if here == word))
    ]
