"""Many runs as one table in the public leaderboard's columns: intervals, n, what makes a row comparable, tie groups
instead of ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

from kvv.analysis.compare import group_ties
from kvv.analysis.findings import contract_words, list_broken
from kvv.analysis.pairs import PairResult, compare_pair, measures
from kvv.analysis.report import SERVICE_COLUMNS, service_values
from kvv.cases.suite import Column, SuiteKind, declared, load_suite, suite_ids
from kvv.core import Outcome
from kvv.core.lazy import numpy as np
from kvv.rendering.document import Document, DocumentTable, Estimate, Section, Value
from kvv.rendering.escape import jsonable
from kvv.stats import benjamini_hochberg
from kvv.storage.run_summary import RunSummary, SuiteResult

#: version of the JSON form
VERSION = 1


#: a set drawn to less than this share is another question
WHOLE = 0.98
#: the preset whose rows may stand beside the public leaderboard
PRESET = "kvv"
#: what fails a run's contract, in one cell
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One run. ``why_not`` says why its rows stand beside nobody else's, "" where they may."""

    side: RunSummary
    why_not: str

    @property
    def name(self) -> str:
        pinned = [name for name in self.side.upstreams if name != "unnamed"]
        return self.side.vendor + (f" ({', '.join(pinned[:3])})" if pinned else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEntry:
    """A row that the model's owner publishes: bare means by column, with no n, no date and no interval."""

    vendor: str
    model: str
    source: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTies:
    """Tie groups of entry numbers, best first, for each set of runs that asked in the same way (``classes``, largest
    first).
    """

    column: Column
    classes: tuple[tuple[int, ...], ...]
    groups: tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    entries: tuple[Entry, ...]
    columns: tuple[Column, ...]
    ties: tuple[SuiteTies, ...]
    notes: tuple[str, ...] = ()
    published: tuple[PublishedEntry, ...] = ()


def leaderboard(
    sides: Sequence[RunSummary],
    rng: np.random.Generator,
    *,
    newest: bool = True,
    published: Mapping[str, Sequence[PublishedEntry]] | None = None,
) -> Leaderboard:
    """``newest``: only the last run of each vendor, model, address and pinned provider. ``published`` rows are by
    profile; those of the runs' profiles are shown. Rows stand in alphabetical order: an order by value would be a
    ranking. Deterministic for a given ``rng`` state."""
    kept = _newest(sides) if newest else list(sides)
    entries = [
        Entry(side=side, why_not=_why_not(side))
        for side in sorted(kept, key=lambda s: (s.vendor, s.model, s.date, s.run_id))
    ]
    public = [
        row
        for profile in dict.fromkeys(entry.side.profile for entry in entries)
        for row in (published or {}).get(profile, ())
    ]
    columns = _columns([suite for entry in entries for suite in entry.side.suites.values()], every_public=bool(public))
    notes = (
        [f"{len(sides) - len(kept)} older runs of the same endpoints are left out (--all shows them)"]
        if len(kept) < len(sides)
        else []
    )
    return Leaderboard(
        entries=tuple(entries),
        columns=tuple(columns),
        ties=tuple(_ties(entries, columns, rng)),
        notes=tuple(notes),
        published=tuple(public),
    )


def _columns(results: Sequence[SuiteResult], *, every_public: bool) -> list[Column]:
    """The public ones first: those measured, or all of them where published rows stand beside."""
    found = {
        column.id: column for column in (_column(result) for result in results if result.kind is SuiteKind.BENCHMARK)
    }
    every = public_columns()
    public = [column for column in every if every_public or column.id in found]
    others = [column for column in found.values() if column not in every]
    return public + sorted(others, key=lambda c: (declared(c.suite).column_rank, c.suite, c.edition))


def public_columns() -> list[Column]:
    """The public leaderboard's columns in its order."""
    suites = sorted(map(load_suite, suite_ids()), key=lambda suite: suite.column_rank)
    return [column for suite in suites for column in suite.columns]


def _column(result: SuiteResult) -> Column:
    suite = declared(result.id)
    known = next((column for column in suite.columns if _holds(column, result)), None)
    name = result.id if suite.column_title is None else suite.column_title
    title = result.edition if result.edition.startswith(name) and result.edition else f"{name} {result.edition}".strip()
    return known or Column(suite=result.id, edition=result.edition, title=title)


def _holds(column: Column, result: SuiteResult) -> bool:
    return (result.id, result.edition) == (column.suite, column.edition)


def _result(entry: Entry, column: Column) -> SuiteResult | None:
    """The entry's result in this column."""
    result = entry.side.suites.get(column.suite)
    return result if result is not None and _holds(column, result) else None


def _newest(sides: Sequence[RunSummary]) -> list[RunSummary]:
    found: dict[tuple[Any, ...], RunSummary] = {}
    for side in sides:
        key = (side.vendor, side.model, side.base_url, side.surface, *sorted(side.upstreams))
        if key not in found or (found[key].date, found[key].run_id) < (side.date, side.run_id):
            found[key] = side
    return list(found.values())


def _why_not(side: RunSummary) -> str:
    reasons = []
    if side.preset != PRESET:
        reasons.append(f"preset {side.preset or 'none'}, not {PRESET}")
    if any(suite.fixture for suite in side.suites.values() if suite.kind is SuiteKind.BENCHMARK):
        reasons.append("fixture data")
    if side.partial:
        reasons.append("partial")
    early = [suite.id for suite in side.suites.values() if suite.ended_early]
    if early:
        reasons.append(f"ended early: {', '.join(early)}")
    if len(side.upstreams) > 1:
        reasons.append(f"mixed-upstream: {len(side.upstreams)} answered behind one name")
    for result in side.suites.values():
        column = next((column for column in declared(result.id).columns if _holds(column, result)), None)
        if column and not result.fixture and len(result.cases) < WHOLE * column.whole:
            reasons.append(f"{column.title}: {len(result.cases)} of {column.whole} questions")
        if column and not result.fixture and result.asked_otherwise:
            reasons.append(f"{column.title}: asked otherwise than the published values ({result.asked_otherwise})")
    return "; ".join(reasons)


# --- ties ------------------------------------------------------------------------------------------


def _ties(entries: Sequence[Entry], columns: Sequence[Column], rng: np.random.Generator) -> list[SuiteTies]:
    """Every pair that asked alike, all p-values adjusted as one family."""
    classes = {column.id: _classes(entries, column) for column in columns}
    pairs: list[PairResult] = []
    for column in columns:
        for members in classes[column.id]:
            results = {i: entries[i].side.suites[column.suite] for i in members}
            primary = next((m for m in measures([*results.values()]) if m.primary and m.better), None)
            if primary is not None:
                pairs += [compare_pair(i, j, results[i], results[j], primary, rng) for i, j in combinations(members, 2)]
    decided = [pair for pair in pairs if pair.difference is not None]
    adjusted = benjamini_hochberg([min(1.0, pair.p) for pair in decided])
    decided = [replace(pair, adjusted=p) for pair, p in zip(decided, adjusted, strict=True)]
    found = []
    for column in columns:
        groups = [
            (
                tuple(group_ties([pair for pair in decided if pair.suite == column.suite and pair.first in members]))
                if len(members) > 1
                else ((members[0],),)
            )
            for members in classes[column.id]
        ]
        if groups:
            found.append(SuiteTies(column=column, classes=tuple(classes[column.id]), groups=tuple(groups)))
    return found


def _classes(entries: Sequence[Entry], column: Column) -> list[tuple[int, ...]]:
    """Entries whose result in this column rests on the same data, cases, sampling, judge, agent and scorer."""
    found: dict[str, list[int]] = {}
    for i, entry in enumerate(entries):
        result = _result(entry, column)
        if result is not None and result.primary is not None and result.primary.value is not None:
            found.setdefault(_fingerprint(result), []).append(i)
    return sorted((tuple(members) for members in found.values()), key=lambda members: (-len(members), members))


def _fingerprint(result: SuiteResult) -> str:
    return json.dumps([result.facts, sorted(result.cases)], sort_keys=True, default=str)


# --- report ----------------------------------------------------------------------------------------


def document(found: Leaderboard) -> Document:
    comparable = sum(not entry.why_not for entry in found.entries)
    lead = (
        (
            f"{comparable} of {len(found.entries)} rows may be set beside the public leaderboard (preset {PRESET}, the"
            " public data, complete, asked as the published values were)."
        ),
        (
            "Values in per cent with 95 % intervals and n. Rows are in alphabetical order; the tie groups say who can"
            " be told apart: runs in one pair of brackets cannot, on the questions both answered, at a false-discovery"
            " rate of 5 % over all pairs."
        ),
        *found.notes,
    )
    if found.published:
        sources = ", ".join(dict.fromkeys(row.source for row in found.published))
        lead += (
            (
                f"Published rows are bare means from {sources}: no n, no date, no interval; they can show a loss and"
                " never prove parity."
            ),
        )
    return Document(
        title=f"Leaderboard of {len(found.entries)} runs",
        lead=lead,
        sections=(_main(found), _tie_section(found), _how(found), _beside(found)),
    )


def _main(found: Leaderboard) -> Section:
    columns = (
        "vendor",
        "model",
        "date",
        "preset",
        "comparable",
        *(column.title for column in found.columns),
        "contract",
    )
    rows: list[tuple[Value, ...]] = []
    for number, entry in enumerate(found.entries):
        side = entry.side
        values = [_value(_result(entry, column)) for column in found.columns]
        comparable = f"not comparable: {entry.why_not}" if entry.why_not else "yes"
        rows.append(
            (
                _short(found, number),
                side.model,
                side.date[:10],
                side.preset or "none",
                comparable,
                *values,
                contract_words(side, NAMED),
            )
        )
    for row in found.published:
        means = [Estimate(value=row.values.get(column.id), bare=True) for column in found.columns]
        rows.append((row.vendor, row.model, None, PRESET, "published mean: no n, no date", *means, None))
    return Section(title="Results", tables=(DocumentTable(name="results", columns=columns, rows=tuple(rows)),))


def _value(result: SuiteResult | None) -> Value:
    row = result.primary if result else None
    return None if row is None else Estimate(value=row.value, low=row.low, high=row.high, n=row.n)


def _tie_section(found: Leaderboard) -> Section:
    rows = []
    for ties in found.ties:
        for number, (members, groups) in enumerate(zip(ties.classes, ties.groups, strict=True), start=1):
            names = (
                " ".join(f"[{', '.join(_placed(found, i) for i in group)}]" for group in groups)
                or "no order: nothing to rank by"
            )
            rows.append((ties.column.title, number if len(ties.classes) > 1 else "", len(members), names))
    notes = (
        (
            "Where runs asked in different ways (data, cases, sampling, judge, agent, scorer), only those of one way"
            " are set side by side."
        ),
    )
    columns = ("suite", "way", "n runs", "tie groups, best first")
    return Section(
        title="Tie groups", notes=notes, tables=(DocumentTable(name="ties", columns=columns, rows=tuple(rows)),)
    )


def _placed(found: Leaderboard, index: int) -> str:
    """In a tie group: who breaks the contract is named as such."""
    return _short(found, index) + (
        " (breaks the contract)" if found.entries[index].side.contract == Outcome.FAIL else ""
    )


def _short(found: Leaderboard, index: int) -> str:
    """The vendor's name, with the run's hash where it stands more than once."""
    names = [entry.name for entry in found.entries]
    return names[index] if names.count(names[index]) == 1 else f"{names[index]} {found.entries[index].side.run_id[-6:]}"


def _how(found: Leaderboard) -> Section:
    columns = (
        "suite",
        "vendor",
        "run",
        "metric",
        "n planned",
        "n concluded",
        "by KVV's rule, %",
        "data",
        "sampling sent",
        "judge",
        "agent",
        "scorer",
    )
    rows = []
    failures: dict[str, str] = {}
    for column in found.columns:
        for entry in found.entries:
            result = _result(entry, column)
            row = result.primary if result else None
            if result is None or row is None:
                continue
            failures.setdefault(column.title, result.failures)
            facts = result.facts
            kvv = "–" if row.kvv is None else f"{100 * row.kvv:.2f}"
            rows.append(
                (
                    column.title,
                    entry.name,
                    entry.side.run_id,
                    row.metric,
                    row.n_planned,
                    row.n,
                    kvv,
                    str(facts.get("data") or "–")[:20],
                    _sampling(facts.get("sampling")),
                    _fact(facts.get("judge")),
                    _fact(facts.get("agent")),
                    str(facts.get("scorer")),
                )
            )
    notes = tuple(f"{suite}, failed requests: {text}" for suite, text in failures.items() if text)
    return Section(
        title="How each value was made",
        notes=notes,
        tables=(DocumentTable(name="how", columns=columns, rows=tuple(rows)),),
    )


def _sampling(value: Any) -> str:
    table = value if isinstance(value, dict) else {}
    return ", ".join(f"{key} {item}" for key, item in table.items() if item not in (None, "", {}, ()))


def _fact(value: Any) -> str:
    return (
        "–"
        if value in (None, "")
        else value
        if isinstance(value, str)
        else json.dumps(value, sort_keys=True, default=str)
    )


def _beside(found: Leaderboard) -> Section:
    rows = tuple(
        (_short(found, i), entry.side.date[:10], *service_values(entry.side.service))
        for i, entry in enumerate(found.entries)
    )
    notes = ("Each run's own traffic, at its own time and from its own place.",)
    table = DocumentTable(name="service", columns=("vendor", "date", *SERVICE_COLUMNS), rows=rows)
    return Section(title="Beside quality", notes=notes, tables=(table,))


def as_json(found: Leaderboard) -> str:
    data = {
        "leaderboard_version": VERSION,
        "preset": PRESET,
        "notes": list(found.notes),
        "rows": [_entry(entry, number) for number, entry in enumerate(found.entries)],
        "published": [asdict(row) for row in found.published],
        "tie_groups": [
            {
                "suite": ties.column.suite,
                "column": ties.column.title,
                "ways": [
                    {"rows": list(members), "groups": [list(g) for g in groups]} for members, groups in _ways(ties)
                ],
            }
            for ties in found.ties
        ],
    }
    return json.dumps(jsonable(data), ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def _ways(ties: SuiteTies) -> list[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]]:
    return list(zip(ties.classes, ties.groups, strict=True))


def _entry(entry: Entry, number: int) -> dict[str, Any]:
    side = entry.side
    return {
        "row": number,
        "vendor": side.vendor,
        "model": side.model,
        "base_url": side.base_url,
        "upstreams": dict(side.upstreams),
        "date": side.date,
        "run_id": side.run_id,
        "preset": side.preset or None,
        "comparable": not entry.why_not,
        "why_not": entry.why_not,
        "verdict": side.verdict,
        "contract": side.contract,
        "broken": list_broken(side),
        "partial": side.partial,
        "suites": {
            name: {
                **asdict(suite.primary),
                "column": _column(suite).title,
                "facts": suite.facts,
                "failures_in_denominator": suite.failures,
                "fixture": suite.fixture,
            }
            for name, suite in side.suites.items()
            if suite.primary is not None
        },
        "service": asdict(side.service),
    }
