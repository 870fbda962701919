"""Reports that are not about one run (comparison, gate, leaderboard, history): title, notes, tables, excerpts.

A verb builds a ``Document``; the functions here turn it into Markdown, HTML and CSV, ``terminal.py`` into a terminal's
text. Every number measured is an ``Estimate``, which carries its interval and n. Texts may be hostile and of any
length: they are made harmless here.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from kvv.rendering.escape import block, bold, cell, fence_text, percent, plain
from kvv.rendering.templates import environment, source

#: rows of one table that Markdown and HTML show; CSV has all
ROWS = 2_000
#: characters of one excerpt's text
EXCERPT = 1_200


class Unit(StrEnum):
    """How a number is written: a share as per cent, a difference of shares as points, milliseconds, tokens/s,
    requests/s, tokens, dollars, a bare number.
    """

    SHARE = "%"
    POINTS = "points"
    MS = "ms"
    RATE = "tokens/s"
    PER_S = "requests/s"
    NUMBER = ""
    TOKENS = "tokens"
    USD = "$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A measured number. ``low`` and ``high`` are its 95 % interval unless the column says otherwise; ``n`` is what it
    rests on.

    ``exact``: a count or a sum that has no interval; ``bare``: a number that somebody else states without interval and
    n.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    unit: Unit = Unit.SHARE
    exact: bool = False
    bare: bool = False

    def __str__(self) -> str:
        if self.value is None:
            return "–" if self.bare else f"– (n {self.n})"
        number = show_value(self.value, self.unit)
        if self.bare:
            return number
        if self.exact:
            return f"{number} (n {self.n})"
        ends = ["–" if end is None else show_value(end, self.unit) for end in (self.low, self.high)]
        interval = "[–]" if self.low is None and self.high is None else f"[{', '.join(ends)}]"
        return f"{number} {interval} n {self.n}"


def show_value(value: float, unit: Unit) -> str:
    match unit:
        case Unit.SHARE:
            return percent(value)
        case Unit.POINTS:
            return f"{100 * value:+.2f}"
        case Unit.USD:
            return f"{value:,.4f}"
        case Unit.RATE:
            return f"{value:,.1f}"
        case Unit.PER_S | Unit.NUMBER:
            return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
        case Unit.MS | Unit.TOKENS:
            return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


Value = str | int | float | None | Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentTable:
    """``name`` is a slug, for CSV; each row has a value for each column."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Something to unfold: a line, and texts under titles."""

    line: str
    texts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartMark:
    """A line before the point with this index."""

    index: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A value over time: (label, estimate) points, drawn in HTML, a sparkline elsewhere."""

    title: str
    unit: Unit
    points: tuple[tuple[str, Estimate], ...]
    marks: tuple[ChartMark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One quantity against another: (label, x, y) points in the order in which they are joined. Drawn in HTML only: the
    tables beside it hold the numbers.
    """

    title: str
    x: str
    y: str
    points: tuple[tuple[str, Estimate, Estimate], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    title: str
    notes: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    curves: tuple[Curve, ...] = ()
    tables: tuple[DocumentTable, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """``outcome`` colours the head: pass, fail, inconclusive, error or "" for none. ``excerpt`` bounds each excerpt's
    text, in characters.
    """

    title: str
    lead: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    outcome: str = ""
    excerpt: int = EXCERPT

    @property
    def tables(self) -> list[DocumentTable]:
        return [table for section in self.sections for table in section.tables]


def text_of(value: Value) -> str:
    match value:
        case None:
            return "–"
        case float():
            return f"{value:.4g}"
        case _:
            return str(value)


BARS = "▁▂▃▄▅▆▇█"
#: points of one sparkline, the newest
SPARK = 60


def sparkline(chart: Chart) -> str:
    """One line: title, bars from the lowest to the highest value, a stroke before each change, the ends of the
    scale.
    """
    points = chart.points[-SPARK:]
    values = [estimate.value for _, estimate in points if estimate.value is not None]
    if not values:
        return f"{chart.title}: no value"
    low, high = min(values), max(values)
    cut = {mark.index - (len(chart.points) - len(points)) for mark in chart.marks}
    bars = ""
    for i, (_, estimate) in enumerate(points):
        place = 0.5 if high == low else ((estimate.value or low) - low) / (high - low)
        bars += ("|" if i in cut else "") + (" " if estimate.value is None else BARS[min(7, int(8 * place))])
    return (
        f"{chart.title}: {bars} {show_value(low, chart.unit)} to {show_value(high, chart.unit)} {chart.unit.value}, n"
        f" {len(values)} runs"
    )


# --- Markdown ----------------------------------------------------------------------------------------


def markdown(document: Document) -> str:
    parts = [f"# {cell(document.title, 1000)}", *(cell(line, 2000) for line in document.lead)]
    for section in document.sections:
        parts.append(f"## {cell(section.title, 200)}")
        if section.notes:
            parts.append("\n".join(f"- {cell(note, 1000)}" for note in section.notes))
        if section.charts:
            parts.append(fence_text("\n".join(plain(sparkline(chart), 400) for chart in section.charts), 40_000))
        parts += [_markdown_table(table) for table in section.tables]
        for excerpt in section.excerpts:
            parts.append(bold(excerpt.line, 600))
            parts += [f"{cell(title, 100)}\n\n{fence_text(text, document.excerpt)}" for title, text in excerpt.texts]
        if section.left_out:
            parts.append(f"... and {section.left_out} more.")
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: DocumentTable) -> str:
    lines = [f"| {' | '.join(cell(column, 100) for column in table.columns)} |", f"|{'---|' * len(table.columns)}"]
    lines += [f"| {' | '.join(cell(text_of(value), 600) for value in row)} |" for row in table.rows[:ROWS]]
    more = len(table.rows) - ROWS + table.left_out if len(table.rows) > ROWS else table.left_out
    return "\n".join(lines) + (f"\n\n... and {more} more." if more else "")


# --- CSV ---------------------------------------------------------------------------------------------


def csv_text(document: Document) -> str:
    """All tables, one below the other, each line beginning with its table's name; RFC 4180 with \\n line ends.

    An estimate becomes four columns: value, low, high, n, in its own unit (shares from 0 to 1). A text that a
    spreadsheet would run as a formula gets a leading apostrophe.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for table in document.tables:
        wide = [any(isinstance(row[i], Estimate) for row in table.rows) for i in range(len(table.columns))]
        header: list[str] = []
        for column, estimate in zip(table.columns, wide, strict=True):
            header += [column, *(f"{column} {part}" for part in ("low", "high", "n"))] if estimate else [column]
        writer.writerow(["table", *map(_csv_value, header)])
        for row in table.rows:
            line: list[Any] = [table.name]
            for value, estimate in zip(row, wide, strict=True):
                if isinstance(value, Estimate):
                    line += [value.value, value.low, value.high, None if value.bare else value.n]
                else:
                    line += [_csv_value(value), *([None] * 3 if estimate else [])]
            writer.writerow(line)
    return out.getvalue()


def _csv_value(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    line = plain(value, 2_000)
    return f"'{line}" if line.lstrip().startswith(("=", "+", "-", "@")) else line


# --- HTML --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """Positions in per cent of the plot's width."""

    low: float
    high: float
    value: float
    zero: float | None


def html(document: Document) -> str:
    """One self-contained page, no outside resource, light and dark; the same document gives the same bytes."""
    script = source("script.js.j2")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("document.html.j2")
        .render(
            **_context(document),
            script=Markup(script),  # noqa: S704 our own files, not data
            style=Markup(source("style.css.j2")),  # noqa: S704
            csp=(
                f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none';"
                " form-action 'none'"
            ),
        )
    )


def html_sections(document: Document) -> Markup:
    """The document's sections alone, for a page that brings title, style and policy."""
    text = _environment().get_template("sections.html.j2").render(**_context(document))
    return Markup(text)  # noqa: S704 made by a template that escapes


def _context(document: Document) -> dict[str, Any]:
    return {
        "document": document,
        "tables": {id(table): _drawn(table) for table in document.tables},
        "drawn": {id(chart): _plotted(chart) for section in document.sections for chart in section.charts},
        "curved": {id(curve): _curved(curve) for section in document.sections for curve in section.curves},
        "sparkline": sparkline,
        "key": id,
        "excerpt_limit": document.excerpt,
    }


#: words of tables that are verdicts: their colour says what they say
_TONES = {
    "bad": {"fail", "error", "worse", "lost", "broken", "contract failed"},
    "good": {"pass", "better", "kept", "contract passed"},
    "open": {"inconclusive", "too small to see", "no loss shown", "degraded", "skip"},
}


def tone(text: str) -> str:
    """A style's name for a cell that is a verdict, else ""."""
    return next((name for name, words in _TONES.items() if text.strip().lower() in words), "")


def _drawn(table: DocumentTable) -> list[list[tuple[str, _Figure | None]]]:
    """Each cell's text and, for an estimate with an interval, its plot on the column's common scale."""
    scales = [_scale([row[i] for row in table.rows]) for i in range(len(table.columns))]
    return [
        [(text_of(value), _figure(value, scale)) for value, scale in zip(row, scales, strict=True)]
        for row in table.rows[:ROWS]
    ]


def _scale(values: Sequence[Value]) -> tuple[float, float] | None:
    found = [
        v
        for v in values
        if isinstance(v, Estimate) and v.low is not None and v.high is not None and v.unit in (Unit.SHARE, Unit.POINTS)
    ]
    if len(found) < 1:
        return None
    ends = [x for v in found for x in (v.low, v.high) if x is not None]
    ends += [0.0] if any(v.unit is Unit.POINTS for v in found) else []
    room = max(0.005, 0.08 * (max(ends) - min(ends)))
    return min(ends) - room, max(ends) + room


def _figure(value: Value, scale: tuple[float, float] | None) -> _Figure | None:
    if (
        scale is None
        or not isinstance(value, Estimate)
        or value.value is None
        or value.low is None
        or value.high is None
    ):
        return None
    if value.unit not in (Unit.SHARE, Unit.POINTS):
        return None
    low, high = scale

    def at(x: float) -> float:
        return round(100 * (min(max(x, low), high) - low) / (high - low), 2)

    return _Figure(
        low=at(value.low),
        high=at(value.high),
        value=at(value.value),
        zero=at(0.0) if value.unit is Unit.POINTS else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """Positions in a box of 1000 by 100; ``low`` and ``high`` are None without an interval."""

    x: float
    y: float
    low: float | None
    high: float | None
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plotted:
    points: tuple[_Point, ...]
    marks: tuple[tuple[float, str], ...]
    top: str
    bottom: str
    label: str


def _plotted(chart: Chart) -> _Plotted | None:
    known = [(name, e, e.value) for name, e in chart.points if e.value is not None]
    if not known:
        return None
    ends = [x for _, e, value in known for x in (value, e.low, e.high) if x is not None]
    room = max(1e-9, 0.05 * (max(ends) - min(ends))) if max(ends) > min(ends) else 0.05 * max(1e-9, abs(max(ends)))
    low, high = min(ends) - room, max(ends) + room
    # no share is above one, and no quantity drawn here below nothing but a difference
    if chart.unit is not Unit.POINTS and min(ends) >= 0:
        low = max(0.0, low)
    if chart.unit is Unit.SHARE and max(ends) <= 1:
        high = min(1.0, high)
    high = high if high > low else low + 1e-9
    step = 980 / max(1, len(known) - 1)

    def y(value: float) -> float:
        return round(100 - 100 * (value - low) / (high - low), 2)

    points = tuple(
        _Point(
            x=round(10 + step * i, 2),
            y=y(value),
            low=None if e.low is None else y(e.low),
            high=None if e.high is None else y(e.high),
            label=f"{name}: {e}",
        )
        for i, (name, e, value) in enumerate(known)
    )
    marks = tuple((round(10 + step * (mark.index - 0.5), 2), mark.text) for mark in chart.marks)
    return _Plotted(
        points=points,
        marks=marks,
        top=show_value(high, chart.unit),
        bottom=show_value(low, chart.unit),
        label=sparkline(chart),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CurvePoint:
    """Positions in a box of 1000 by 300; ``low`` and ``high`` are the ends of y's interval, None without one."""

    x: float
    y: float
    low: float | None
    high: float | None
    name: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curved:
    """``right`` and ``top`` are the values at the ends of the axes, which begin at 0."""

    points: tuple[_CurvePoint, ...]
    right: str
    top: str


def _curved(curve: Curve) -> _Curved | None:
    known = [
        (name, x, y, x.value, y.value) for name, x, y in curve.points if x.value is not None and y.value is not None
    ]
    if not known:
        return None
    right = 1.05 * max(1e-9, *(at for _, _, _, at, _ in known))
    top = 1.05 * max(1e-9, *(value for _, _, y, _, mid in known for value in (mid, y.high or mid)))

    def up(value: float) -> float:
        return round(300 - 300 * value / top, 2)

    points = tuple(
        _CurvePoint(
            x=round(1000 * at / right, 2),
            y=up(mid),
            low=None if y.low is None else up(y.low),
            high=None if y.high is None else up(y.high),
            name=name,
            label=f"{name}: {curve.x} {x}, {curve.y} {y}",
        )
        for name, x, y, at, mid in known
    )
    return _Curved(points=points, right=show_value(right, known[0][1].unit), top=show_value(top, known[0][2].unit))


@cache
def _environment() -> Environment:
    names = ("document.html.j2", "sections.html.j2", "style.css.j2", "script.js.j2")
    return environment({name: source(name) for name in names}, {"plain": plain, "block": block, "tone": tone})
