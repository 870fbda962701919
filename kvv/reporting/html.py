"""report.html: one self-contained file, no outside resource, light and dark.

jinja2 autoescapes every value; ``plain`` and ``block`` make control and bidi characters visible first, and a content
security policy allows only this file's own script by its hash, so that text of a hostile answer stays text even if an
escape were missed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup

from kvv.core import Outcome, Stat
from kvv.decision.rule_rates import WeighedFinding
from kvv.rendering.escape import block, percent, plain
from kvv.rendering.templates import environment, source
from kvv.reporting.instances import COLUMNS, KEY, describe, lines_of
from kvv.storage.view import Cause, CheckRow, Quantiles, RunView, early_end, shown_metric

#: cases shown with their texts; cases of one suite and outcome listed by a line; characters of any one text
DETAILED = 250
LISTED = 2_500
TEXT = 3_000

_PAGE = "report.html.j2"
_SHARED = ("macros.html.j2", "style.css.j2", "script.js.j2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Positions in percent of the plot's width; ``reference`` and ``bar`` (reference less margin) are None where there
    are none.
    """

    low: float
    high: float
    value: float
    reference: float | None
    bar: float | None
    label: str
    scale: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEntry:
    """One row of the lists; ``texts`` are (title, text) pairs, empty for a row without detail. ``above``: it stands
    above with its texts.
    """

    id: str
    anchor: str
    outcome: str
    level: str
    suite: str
    area: str
    note: str
    reason: str
    detail: str
    requirement: str
    source: str
    evidence: tuple[tuple[str, str], ...]
    texts: tuple[tuple[str, str], ...]
    above: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All cases of one suite and outcome; ``left_out`` are not listed in this list, ``unlisted`` of them in no list of
    this file.
    """

    suite: str
    outcome: str
    total: int
    rows: tuple[CaseEntry, ...]
    left_out: int
    unlisted: int = 0


def render(view: RunView) -> str:
    """The page; the same view gives the same bytes."""
    script = source("script.js.j2")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    contract = [
        g for g in view.decision.gates if g.id.split("/", 1)[0] not in view.benchmarks and g not in view.service
    ]
    quality = [g for g in view.decision.gates if g.id.split("/", 1)[0] in view.benchmarks]
    scale = _scale(view.decision.stats)
    page = _environment().get_template(_PAGE)
    return page.render(
        view=view,
        run=view.run,
        decision=view.decision,
        endpoint=view.endpoint,
        causes=_causes(view),
        contract=sorted(contract, key=lambda g: _ORDER.index(g.decision)),
        quality={g.id: g for g in quality},
        rows=[(stat, _plot(stat, scale), _breakdown(stat)) for stat in view.decision.stats],
        instances=[
            (stat, lines[:LISTED], len(lines) - LISTED) for stat in view.decision.stats if (lines := lines_of(stat))
        ],
        instance_columns=list(COLUMNS),
        findings=[(f, _anchor("rule", f.finding.rule)) for f in _ranked(view.decision.weighed)],
        failed=(failed := _failed(view)),
        listings=_listings(view, {case.anchor for case in failed.rows}),
        timing=_timing_rows(view),
        shown_metric=shown_metric,
        comparability=[
            (s, sorted((k, v) for k, v in s.comparability.items() if v is not None))
            for s in view.decision.stats
            if s.primary
        ],
        # our own files, not data
        script=Markup(script),  # noqa: S704
        style=Markup(source("style.css.j2")),  # noqa: S704
        csp=(
            f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action"
            " 'none'"
        ),
    )


@cache
def _environment() -> Environment:
    sources = {name: source(name) for name in _SHARED} | {_PAGE: source(_PAGE, "kvv.reporting")}
    return environment(sources, {"plain": plain, "block": block, "percent": percent, "early_end": early_end})


def _anchor(kind: str, name: str) -> str:
    """A fragment that survives being a link: no blanks, nothing but URL-safe characters."""
    short = (
        name if len(name) <= 120 else f"{name[:100]}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:12]}"
    )
    return f"{kind}-{quote(short, safe='/._-', errors='replace')}"


_ORDER = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.SKIP)


# --- causes ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseEntry:
    """One cause; ``cases`` are (id, anchor) of the cases that are named, ``more`` those beyond."""

    cause: Cause
    number: int
    texts: tuple[tuple[str, str], ...]
    cases: tuple[tuple[str, str], ...]
    more: int


def _causes(view: RunView) -> list[CauseEntry]:
    return [
        CauseEntry(
            cause=cause,
            number=number,
            texts=tuple((title, block(text, TEXT)) for title, text in cause.texts),
            cases=tuple((plain(name, 200), _anchor("case", name)) for name in cause.case_ids),
            more=cause.cases - len(cause.case_ids),
        )
        for number, cause in enumerate(view.causes, start=1)
    ]


# --- quality -----------------------------------------------------------------------------------------


def _scale(stats: Sequence[Stat]) -> tuple[float, float]:
    """One axis for all rows, wide enough for each interval, reference and margin."""
    points = [point for stat in stats for point in _points(stat)] or [0.0, 1.0]
    room = max(0.01, 0.04 * (max(points) - min(points)))
    low, high = min(points) - room, max(points) + room
    return (max(0.0, low), min(1.0, high)) if min(points) >= 0 and max(points) <= 1 else (low, high)


def _points(stat: Stat) -> list[float]:
    if stat.interval is None or stat.estimate is None:
        return []
    reference = [] if stat.reference is None else [stat.reference.value, stat.reference.value - (stat.margin or 0.0)]
    return [*stat.interval, stat.estimate, *reference]


def _plot(stat: Stat, scale: tuple[float, float]) -> Plot | None:
    """The interval, the reference and the margin on the page's one scale; None without an interval."""
    if stat.interval is None or stat.estimate is None:
        return None
    reference = stat.reference.value if stat.reference else None
    bar = reference - stat.margin if reference is not None and stat.margin else None
    low, high = scale

    def at(x: float) -> float:
        return round(100 * (x - low) / (high - low), 2)

    label = f"{percent(stat.estimate)}, 95 % interval {percent(stat.interval[0])} to {percent(stat.interval[1])}"
    return Plot(
        low=at(stat.interval[0]),
        high=at(stat.interval[1]),
        value=at(stat.estimate),
        reference=None if reference is None else at(reference),
        bar=None if bar is None else at(bar),
        label=label if reference is None else f"{label}, reference {percent(reference)}",
        scale=(percent(low, 1), percent(high, 1)),
    )


def _breakdown(stat: Stat) -> list[tuple[str, str, str]]:
    """Category, value, counts; whatever shape a suite's breakdown has, at most 200 lines."""
    lines = []
    for name, value in list(stat.breakdown.items())[:200]:
        if name == KEY:
            continue
        if isinstance(value, dict) and "value" in value:
            counted = (
                f"{value.get('n_concluded', '')} of {value['n_planned']}"
                if "n_planned" in value
                else str(value.get("n", ""))
            )
            lines.append(
                (
                    plain(name, 100),
                    percent(value["value"]) if isinstance(value["value"], int | float) else "–",
                    plain(counted, 40),
                )
            )
        elif isinstance(value, float):
            lines.append((plain(name, 100), f"{value:.4g}", ""))
        else:
            lines.append((plain(name, 100), describe(value), ""))
    return lines


# --- findings and cases ------------------------------------------------------------------------------


def _ranked(findings: Sequence[WeighedFinding]) -> list[WeighedFinding]:
    order = ("must", "should", "may")
    return sorted(findings, key=lambda one: order.index(one.finding.level.value))


def _note(row: CheckRow, view: RunView) -> str:
    if row.verdict.outcome is not Outcome.FAIL or row.case.suite in view.benchmarks:
        return ""
    return "waived" if row.waived else "" if view.counts(row) else "shown only"


def _case(row: CheckRow, view: RunView, *, detailed: bool) -> CaseEntry:
    verdict, case = row.verdict, row.case
    texts = (
        (("Request", row.request), ("Answer", row.answer), ("Expected", row.expected), ("curl", row.curl))
        if detailed
        else ()
    )
    evidence = verdict.evidence[:5] if detailed else ()
    return CaseEntry(
        id=plain(row.id, 200),
        anchor=_anchor("case", row.id),
        outcome=verdict.outcome.value,
        level=row.level.value,
        suite=plain(case.suite, 60),
        area=case.area.value,
        note=_note(row, view),
        reason=plain(verdict.reason, 120),
        detail=plain(verdict.detail, 600 if detailed else 160),
        requirement=plain(case.requirement, 600) if detailed else "",
        source=plain(case.source, 200) if detailed else "",
        evidence=tuple(
            (plain(e.exchange + (f" frame {e.frame}" if e.frame is not None else ""), 200), plain(e.excerpt))
            for e in evidence
        ),
        texts=tuple((title, block(text, TEXT)) for title, text in texts if text),
    )


def _failed(view: RunView) -> Listing:
    """Contract failures that count, then those that do not, then wrong benchmark answers; the first with their
    texts.
    """
    rows = view.rows(Outcome.FAIL, Outcome.ERROR)
    rows.sort(
        key=lambda r: (r.case.suite in view.benchmarks, not view.counts(r), r.verdict.outcome is not Outcome.FAIL)
    )
    shown = tuple(_case(r, view, detailed=True) for r in rows[:DETAILED])
    unlisted = sum(u.n for u in view.unlisted if u.outcome in (Outcome.FAIL, Outcome.ERROR))
    return Listing(
        suite="",
        outcome="fail",
        total=len(rows) + unlisted,
        rows=shown,
        left_out=len(rows) - len(shown),
        unlisted=unlisted,
    )


def _listings(view: RunView, above: Set[str]) -> list[Listing]:
    """``above``: the anchors of the cases that are shown with their texts; a line here leads there."""
    groups: dict[tuple[str, Outcome], list[CheckRow]] = {}
    for row in view.checks:
        groups.setdefault((row.case.suite, row.verdict.outcome), []).append(row)
    unlisted = {(u.suite, u.outcome): u.n for u in view.unlisted}
    for key in unlisted:
        groups.setdefault(key, [])
    suites = list(dict.fromkeys(suite for suite, _ in groups))
    found = []
    for suite, outcome in sorted(groups, key=lambda key: (suites.index(key[0]), _ORDER.index(key[1]))):
        rows = groups[suite, outcome]
        lines = (_case(r, view, detailed=False) for r in rows[:LISTED])
        shown = tuple(replace(line, above=line.anchor in above) for line in lines)
        total, more = len(rows) + unlisted.get((suite, outcome), 0), unlisted.get((suite, outcome), 0)
        found.append(
            Listing(
                suite=plain(suite, 60),
                outcome=outcome.value,
                total=total,
                rows=shown,
                left_out=total - len(shown),
                unlisted=more,
            )
        )
    return found


# --- timing ------------------------------------------------------------------------------------------


def _timing_rows(view: RunView) -> list[tuple[str, Quantiles]]:
    t = view.timing
    tiers: list[tuple[str, Quantiles | None]] = [
        (
            f"– prompts of {p.low:,} to {p.high:,} tokens" if p.high else f"– prompts of {p.low:,} tokens and more",
            p.ttft_ms,
        )
        for p in t.by_prompt_tokens
    ]
    workloads: list[tuple[str, Quantiles | None]] = [
        (f"– {name}", q) for name, q in t.itl_by_workload if len(t.itl_by_workload) > 1
    ]
    rows = [
        ("Time to first token, ms", t.ttft_ms),
        *tiers,
        ("Between tokens, ms", t.itl_ms),
        *workloads,
        ("Output tokens a second", t.output_tps),
    ]
    return [(name, q) for name, q in [*rows, ("End to end, ms", t.e2e_ms)] if q is not None]
