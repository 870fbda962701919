"""Each metric of one endpoint over time, with its change points. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from kvv.core.lazy import numpy as np
from kvv.rendering.document import Chart, ChartMark, Document, DocumentTable, Estimate, Section, Unit, Value, show_value
from kvv.rendering.escape import jsonable
from kvv.stats.changes import ALPHA, LEAST, ChangePoint, change_points
from kvv.storage.run_summary import Measured

#: version of the JSON form
VERSION = 1
#: why a reading without a value stands apart, and the mark of values of the small data that ships
NOTHING, FIXTURE = "nothing was concluded", "fixture data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One metric of one run. ``way`` is what has to be equal for values to stand in one series; ``apart`` says why the
    value stands in none (what was asked was cut short, or is a part of a run)."""

    run_id: str
    date: str
    vendor: str
    model: str
    suite: str
    metric: str
    value: Measured
    unit: Unit
    n_planned: int = 0
    way: Mapping[str, Any] | None = None
    apart: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A run of which nothing was concluded: it says nothing of the model, and neither do its times and counts."""

    run_id: str
    date: str
    vendor: str
    model: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Readings in order of time; ``way`` counts the ways in which this metric was measured, in order of first
    appearance.

    ``mark`` says what kind of values these are, where they are not the public data's ("fixture data").
    """

    vendor: str
    model: str
    suite: str
    metric: str
    unit: Unit
    way: int
    ways: int
    note: str
    readings: tuple[Reading, ...]
    changes: tuple[ChangePoint, ...]
    mark: str = ""

    @property
    def name(self) -> str:
        return (
            f"{self.suite} {self.metric}"
            + (f" ({self.mark})" if self.mark else "")
            + (f", way {self.way}" if self.ways > 1 else "")
        )

    @property
    def values(self) -> list[float]:
        return [r.value.value for r in self.readings if r.value.value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """``notes`` say which folders were left out and why; ``apart`` are values and ``unread`` whole runs that stand in
    no series.
    """

    series: tuple[Series, ...]
    runs: int
    notes: tuple[str, ...]
    apart: tuple[Reading, ...] = ()
    unread: tuple[Unread, ...] = ()


def history(
    readings: Sequence[Reading],
    rng: np.random.Generator,
    *,
    notes: Sequence[str] = (),
    unread: Sequence[Unread] = (),
    alpha: float = ALPHA,
) -> RunHistory:
    """Readings by endpoint, metric and way of measuring; those without a value or with a reason to stand apart are in
    no series.
    """
    ordered = [
        r if r.value.value is not None else replace(r, apart=r.apart or NOTHING)
        for r in sorted(readings, key=lambda r: (r.date, r.run_id))
    ]
    metrics: dict[tuple[str, str, str, str], dict[str, list[Reading]]] = {}
    for reading in ordered:
        if not reading.apart:
            ways = metrics.setdefault((reading.vendor, reading.model, reading.suite, reading.metric), {})
            ways.setdefault(json.dumps(reading.way, sort_keys=True, default=str), []).append(reading)
    series = []
    for (vendor, model, suite, metric), ways in metrics.items():
        first = next(iter(ways.values()))[0]
        for number, members in enumerate(ways.values(), start=1):
            values = [r.value.value for r in members if r.value.value is not None]
            series.append(
                Series(
                    vendor=vendor,
                    model=model,
                    suite=suite,
                    metric=metric,
                    unit=members[0].unit,
                    way=number,
                    ways=len(ways),
                    note="" if members[0] is first else _what_changed(first.way, members[0].way),
                    readings=tuple(members),
                    changes=tuple(change_points(values, rng, alpha=alpha)),
                    mark=FIXTURE if (members[0].way or {}).get("fixture") else "",
                )
            )
    runs = {r.run_id for r in readings} | {run.run_id for run in unread}
    return RunHistory(
        series=tuple(series),
        runs=len(runs),
        notes=tuple(notes),
        apart=tuple(r for r in ordered if r.apart),
        unread=tuple(_by_date(unread)),
    )


def _by_date(runs: Sequence[Unread]) -> list[Unread]:
    return sorted(runs, key=lambda run: (run.date, run.run_id))


def _what_changed(first: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
    a, b = first or {}, other or {}
    names = [name for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name)]
    return f"measured otherwise than way 1: {', '.join(names)} changed; the values do not stand in one series"


# --- report ----------------------------------------------------------------------------------------


def document(found: RunHistory) -> Document:
    changed = [series for series in found.series if series.changes]
    title = f"{found.runs} runs, {len(found.series)} series: " + (
        f"{len(changed)} changed" if changed else "no change shown"
    )
    title += f"; {len(found.unread)} runs never reached the model" if found.unread else ""
    lead = (
        (
            f"A change point is shown by Pettitt's rank test at {ALPHA:g} a look, with at least {LEAST} runs on each"
            " side; below about ten runs none can be. It says when a series changed, not why; the nightly gate looks"
            " at the newest run."
        ),
        *found.notes,
    )
    sections = [
        Section(
            title="Changes", notes=tuple(_sentence(s, c) for s in changed for c in s.changes) or ("None is shown.",)
        )
    ]
    for vendor, model in dict.fromkeys((s.vendor, s.model) for s in found.series):
        mine = [s for s in found.series if (s.vendor, s.model) == (vendor, model)]
        charts = tuple(_chart(s) for s in mine)
        notes = tuple(f"{s.name}: {s.note}" for s in mine if s.note)
        sections.append(Section(title=f"{vendor} {model}", notes=notes, charts=charts, tables=(_latest(mine),)))
    sections += _apart(found)
    sections.append(Section(title="Every value", tables=(_points(found.series),)))
    return Document(title=title, lead=lead, sections=tuple(sections))


def _apart(found: RunHistory) -> list[Section]:
    """What was measured and stands in no series, with the reason."""
    rows: list[tuple[Value, ...]] = [
        (u.vendor, u.model, u.date, u.run_id, "the whole run", None, "", u.reason) for u in found.unread
    ]
    rows += [
        (r.vendor, r.model, r.date, r.run_id, f"{r.suite} {r.metric}", _estimate(r), r.n_planned, r.apart)
        for r in found.apart
    ]
    if not rows:
        return []
    columns = ("vendor", "model", "date", "run", "metric", "value", "n planned", "why it stands in no series")
    return [
        Section(
            title="Kept out of the series", tables=(DocumentTable(name="apart", columns=columns, rows=tuple(rows)),)
        )
    ]


def _sentence(series: Series, change: ChangePoint) -> str:
    unit = series.unit
    scale = Unit.POINTS if unit is Unit.SHARE else unit
    interval = (
        ""
        if change.low is None or change.high is None
        else f" [{show_value(change.low, scale)}, {show_value(change.high, scale)}]"
    )
    when = series.readings[change.index]
    word = "points" if unit is Unit.SHARE else unit.value
    return (
        f"{series.vendor} {series.model}, {series.name}: from {when.date[:10]} on ({when.run_id})"
        f" {show_value(change.before, unit)} became {show_value(change.after, unit)}, a difference of"
        f" {show_value(change.difference, scale)}{interval} {word}, n {change.n_before} and {change.n_after} runs, p"
        f" {change.p:.4f}"
    )


def _chart(series: Series) -> Chart:
    return Chart(
        title=series.name,
        unit=series.unit,
        points=tuple((r.date[:10], _estimate(r)) for r in series.readings),
        marks=tuple(
            ChartMark(index=c.index, text=f"{show_value(c.before, series.unit)} to {show_value(c.after, series.unit)}")
            for c in series.changes
        ),
    )


def _estimate(reading: Reading) -> Estimate:
    m = reading.value
    return Estimate(value=m.value, low=m.low, high=m.high, n=m.n, unit=reading.unit)


def _latest(series: Sequence[Series]) -> DocumentTable:
    rows = tuple(
        (s.name, len(s.readings), s.readings[-1].date[:10], _estimate(s.readings[-1]), len(s.changes)) for s in series
    )
    return DocumentTable(
        name="latest",
        columns=("metric", "n runs", "newest", "newest value, 95 % interval, n", "change points"),
        rows=rows,
    )


def _points(series: Sequence[Series]) -> DocumentTable:
    rows = []
    for s in series:
        starts = {c.index for c in s.changes}
        for i, r in enumerate(s.readings):
            rows.append(
                (
                    s.vendor,
                    s.model,
                    s.name,
                    s.unit.value,
                    r.date,
                    r.run_id,
                    _estimate(r),
                    r.n_planned,
                    "change" if i in starts else "",
                )
            )
    columns = ("vendor", "model", "metric", "unit", "date", "run", "value", "n planned", "mark")
    return DocumentTable(name="values", columns=columns, rows=tuple(rows))


def as_json(found: RunHistory) -> str:
    rows: list[dict[str, Any]] = [
        {
            "vendor": s.vendor,
            "model": s.model,
            "suite": s.suite,
            "metric": s.metric,
            "unit": s.unit.value,
            "way": s.way,
            "mark": s.mark,
            "note": s.note,
            "changes": [
                {
                    "date": s.readings[c.index].date,
                    "run_id": s.readings[c.index].run_id,
                    "before": c.before,
                    "after": c.after,
                    "difference": c.difference,
                    "ci95": None if c.low is None else [c.low, c.high],
                    "n": [c.n_before, c.n_after],
                    "p": c.p,
                }
                for c in s.changes
            ],
            "values": [
                {
                    "date": r.date,
                    "run_id": r.run_id,
                    "value": r.value.value,
                    "ci95": _interval(r),
                    "n": r.value.n,
                    "n_planned": r.n_planned,
                }
                for r in s.readings
            ],
        }
        for s in found.series
    ]
    head = {"history_version": VERSION, "runs": found.runs, "notes": list(found.notes)}
    apart = [{**asdict(u), "metric": None, "value": None, "n_planned": 0} for u in found.unread]
    apart += [
        {
            **{name: getattr(r, name) for name in ("run_id", "date", "vendor", "model")},
            "reason": r.apart,
            "metric": f"{r.suite} {r.metric}",
            "value": r.value.value,
            "n_planned": r.n_planned,
        }
        for r in found.apart
    ]
    clean = {
        **jsonable(head),
        "apart": [jsonable(row) for row in apart],
        "series": [{**jsonable({**row, "values": []}), "values": [jsonable(v) for v in row["values"]]} for row in rows],
    }
    return json.dumps(clean, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def _interval(reading: Reading) -> list[float | None] | None:
    return None if reading.value.low is None else [reading.value.low, reading.value.high]
