"""A comparison as a document and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kvv.analysis.causes import cause_section
from kvv.analysis.compare import Comparison, DiscordantCase, label
from kvv.analysis.findings import as_data, contract_groups, contract_words, list_broken, rule_lines, section, who_fails
from kvv.analysis.pairs import PairResult, outcome_of
from kvv.cases.suite import SuiteKind
from kvv.core import Outcome
from kvv.rendering.document import Document, DocumentTable, Estimate, Excerpt, Section, Unit, Value
from kvv.rendering.escape import jsonable
from kvv.stats.interval import normal_quantile
from kvv.storage.run_summary import Measured, RunSummary, Service

#: version of the JSON form: fields may be added, never changed
VERSION = 1
#: what fails a run's contract, in one cell
NAMED = 5
#: the difference of which the title says how many answers would show it, and suites for which it says so
SHOWN_LOSS, SUITES_NAMED = 0.1, 3


def document(found: Comparison, names: Sequence[str] = (), prices: Mapping[str, float] | None = None) -> Document:
    """``names`` are what the title calls the sides, their letters by default; ``prices`` the dollars of one question
    at all sides together, by suite, where known.
    """
    names = names or [label(i) for i in range(len(found.sides))]
    causes = cause_section(found.sides, [label(i) for i in range(len(found.sides))], "What is wrong")
    sections = [
        *causes,
        _runs(found),
        *_quality(found),
        *_contract(found),
        *_rules(found),
        _beside(found.sides),
        *_cases(found),
    ]
    title = f"{len(found.sides)} runs compared: {_headline(found, names, prices or {})}"
    return Document(title=title, lead=tuple(_lead(found)), sections=tuple(sections))


def _headline(found: Comparison, names: Sequence[str], prices: Mapping[str, float]) -> str:
    """Who breaks what, who is better, what would show a difference where none is shown, and the counts."""
    parts = who_fails(found.sides, names)
    if found.quality:
        primary = [
            pair
            for suite in found.quality
            for pair in suite.pairs
            if pair.measure.primary and pair.difference is not None
        ]
        shown = [pair for pair in primary if pair.differs]
        pairs = len(primary)
        parts.append(
            f"{len(shown)} of {pairs} differences in quality are shown"
            if shown
            else f"no difference in quality is shown in {pairs} pairs"
        )
        parts[-1] += _largest(shown, names)
        # one measure of a suite makes its order; a difference in another is a difference all the same
        others = [pair for suite in found.quality for pair in suite.pairs if not pair.measure.primary and pair.differs]
        if others:
            named = list(dict.fromkeys(f"{pair.suite} ({pair.measure.label})" for pair in others))
            parts[-1] += f", but {len(others)} in other measures: {', '.join(named[:4])}"
        parts += _what_would_show(found, prices)
    if found.contract:
        broken = sum(row.only_first + row.only_second for row in found.contract)
        parts.append(
            f"{broken} contract cases are kept by one and broken by the other, of"
            f" {sum(row.n for row in found.contract)} pairs of cases"
        )
    return "; ".join(parts) or "no suite in common"


def _largest(shown: Sequence[PairResult], names: Sequence[str]) -> str:
    """``, the largest: fast is better than bad by 58.33 points (aime2025)``."""
    sizes = [(pair.difference.estimate, pair) for pair in shown if pair.difference is not None and pair.measure.better]
    if not sizes:
        return ""
    size, pair = max(sizes, key=lambda found: abs(found[0]))
    better, worse = (pair.second, pair.first) if size > 0 else (pair.first, pair.second)
    return (
        f", the largest: {names[better]} is better than {names[worse]} by {100 * abs(size):.2f} points ({pair.suite})"
    )


def _what_would_show(found: Comparison, prices: Mapping[str, float]) -> list[str]:
    """``10 points would show in aime2025 from about 340 answers a side on (30 now; $4.10 more for all sides)``: for
    each suite with a pair of which nothing is shown.
    """
    told = []
    for suite in found.quality:
        unclear = [
            pair
            for pair in suite.pairs
            if pair.measure.primary and pair.measure.better and pair.difference is not None and not pair.differs
        ]
        if not unclear:
            continue
        asked = max(pair.samples for pair in unclear)
        need = max(map(samples_to_show, unclear))
        size = f"{100 * SHOWN_LOSS:.0f} points would"
        if need <= asked:
            told.append(f"{size} have shown in {suite.suite} ({asked} answers a side)")
            continue
        price = prices.get(suite.suite)
        dollars = "" if price is None else f"; ${price * (need - asked):,.2f} more for all sides"
        told.append(f"{size} show in {suite.suite} from about {need:,} answers a side on ({asked:,} now{dollars})")
    return told[:SUITES_NAMED]


def samples_to_show(pair: PairResult) -> int:
    """Answers a side after which a true difference of ``SHOWN_LOSS`` is shown at two-sided 5 % with 80 % power, by the
    scatter of this pair; one discordant answer more than was seen stands for what few answers do not show.
    """
    found = pair.difference
    assert found is not None
    seen = (found.se or 0.0) ** 2 * pair.samples
    least = (pair.gained + pair.lost + 1) / pair.samples
    z = normal_quantile(0.975) + normal_quantile(0.8)
    return math.ceil(max(seen, least) * (z / SHOWN_LOSS) ** 2)


def _lead(found: Comparison) -> list[str]:
    lines = [f"compared although they differ: {unlike.text}" for unlike in found.unlike]
    lines += [f"left out: {text}" for text in found.dropped]
    if found.quality:
        lines.append(
            "Differences are the later letter less the earlier, in points, on the samples both concluded, with 95 %"
            " intervals. A difference is shown where its p-value, adjusted over all pairs (Benjamini and Hochberg), is"
            " at most 0.05 although every open sample is counted against it. 'Not shown' is no proof of equality: the"
            " interval says how large a difference may still be."
        )
    return lines


def _runs(found: Comparison) -> Section:
    rows = [
        (
            label(i),
            s.vendor,
            s.model,
            s.date,
            s.base_url,
            f"{s.profile} ({s.surface})",
            s.preset or "none",
            s.verdict.upper(),
            s.run_id,
        )
        for i, s in enumerate(found.sides)
    ]
    columns = ("", "vendor", "model", "date", "endpoint", "profile", "preset", "verdict", "run")
    notes = [
        f"{label(i)}: more than one upstream answered ({_upstreams(s)})"
        for i, s in enumerate(found.sides)
        if len(s.upstreams) > 1
    ]
    return Section(
        title="Runs", notes=tuple(notes), tables=(DocumentTable(name="runs", columns=columns, rows=tuple(rows)),)
    )


def _upstreams(side: RunSummary) -> str:
    return ", ".join(f"{name} {n}" for name, n in list(side.upstreams.items())[:6])


# --- quality ---------------------------------------------------------------------------------------


def _quality(found: Comparison) -> list[Section]:
    if not found.quality:
        return []
    values: list[tuple[Value, ...]] = []
    for i, side in enumerate(found.sides):
        for suite in found.quality:
            row = side.suites[suite.suite].primary
            if row is not None:
                value = Estimate(value=row.value, low=row.low, high=row.high, n=row.n)
                values.append((suite.suite, label(i), side.vendor, row.metric, value, row.n_planned))
    values.sort(key=lambda row: [suite.suite for suite in found.quality].index(str(row[0])))
    columns = ("suite", "run", "vendor", "metric", "value, 95 % interval, n concluded", "n planned")
    ties = [(suite.suite, _ties(suite.groups, found.sides)) for suite in found.quality]
    pairs = [_pair(pair) for suite in found.quality for pair in suite.pairs if pair.measure.primary]
    others = [_pair(pair) for suite in found.quality for pair in suite.pairs if not pair.measure.primary]
    heads = (
        "suite",
        "pair",
        "measure",
        "difference in points",
        "gained",
        "lost",
        "open",
        "if open all against / for",
        "p adjusted",
        "shown",
        "method",
    )
    sections = [
        Section(
            title="Quality",
            notes=(
                (
                    "Runs in one pair of brackets cannot be told apart; the order of brackets is by the mean difference"
                    " on shared questions."
                ),
            ),
            tables=(
                DocumentTable(name="values", columns=columns, rows=tuple(values)),
                DocumentTable(name="ties", columns=("suite", "tie groups, best first"), rows=tuple(ties)),
                DocumentTable(name="differences", columns=heads, rows=tuple(pairs)),
            ),
        )
    ]
    if others:
        sections.append(
            Section(
                title="Other measures",
                tables=(DocumentTable(name="other-differences", columns=heads, rows=tuple(others)),),
            )
        )
    return sections


def _ties(groups: Sequence[tuple[int, ...]], sides: Sequence[RunSummary]) -> str:
    """Who breaks the contract is named as such: a place among the best says nothing of that."""
    called = [
        label(i) + (" (breaks the contract)" if side.contract == Outcome.FAIL else "") for i, side in enumerate(sides)
    ]
    return " ".join(f"[{' '.join(called[i] for i in group)}]" for group in groups) or "no order: nothing to rank by"


def _pair(pair: PairResult) -> tuple[Value, ...]:
    d = pair.difference
    value = Estimate(value=None, unit=Unit.POINTS)
    if d is not None:
        value = Estimate(value=d.estimate, low=d.interval.low, high=d.interval.high, n=pair.samples, unit=Unit.POINTS)
    is_open = pair.open_first + pair.open_second > 0
    bounds = (
        "–"
        if not is_open or pair.worst is None or pair.best is None
        else f"{100 * pair.worst:+.2f} / {100 * pair.best:+.2f}"
    )
    return (
        pair.suite,
        f"{label(pair.second)} – {label(pair.first)}",
        pair.measure.label,
        value,
        pair.gained,
        pair.lost,
        pair.open_first + pair.open_second,
        bounds,
        ("< 0.0001" if pair.adjusted < 0.0001 else f"{pair.adjusted:.4f}") if d is not None else "–",
        _shown(pair),
        "no pair was concluded" if d is None else f"{d.method}, {d.clusters} clusters; p by {pair.test}",
    )


def _shown(pair: PairResult) -> str:
    if not pair.differs or pair.difference is None:
        return "not shown"
    if not pair.measure.better:
        return "differs"
    better = pair.second if pair.difference.estimate > 0 else pair.first
    return f"{label(better)} is better"


# --- contract, service, cases ------------------------------------------------------------------------


def _contract(found: Comparison) -> list[Section]:
    groups = contract_groups(found.sides)
    if not found.contract and not groups:
        return []
    rows = [
        (
            f"{label(r.first)} {label(r.second)}",
            r.area.value,
            r.n,
            r.both_pass,
            r.both_fail,
            r.only_first,
            r.only_second,
            r.open,
        )
        for r in found.contract
    ]
    columns = (
        "runs",
        "area",
        "n cases",
        "both keep",
        "both break",
        "only the first keeps",
        "only the second keeps",
        "open in either",
    )
    kept = [_kept(i, side) for i, side in enumerate(found.sides)]
    heads = (
        "",
        "vendor",
        "contract",
        "cases kept",
        "kept at the first answer",
        "broken",
        "open",
        "n cases asked",
        "rules broken",
    )
    tables = [
        DocumentTable(name="contract-runs", columns=heads, rows=tuple(kept)),
        DocumentTable(name="contract", columns=columns, rows=tuple(rows)),
    ]
    notes = ["; ".join(f"{word}: {' '.join(map(label, members))}" for word, members in groups)] if groups else []
    return [Section(title="Contract", notes=tuple(notes), tables=tuple(tables if rows else tables[:1]))]


def _kept(index: int, side: RunSummary) -> tuple[Value, ...]:
    """The verdict, and counts of all contract cases of one run that were asked; the case itself, not a sample of
    anything, so without an interval."""
    cases = [
        case for suite in side.suites.values() if suite.kind is not SuiteKind.BENCHMARK for case in suite.cases.values()
    ]
    asked = [case for case in cases if outcome_of(case) is not Outcome.SKIP]
    outcomes = [outcome_of(case) for case in asked]
    kept, broke = outcomes.count(Outcome.PASS), outcomes.count(Outcome.FAIL)
    counts = (kept, sum(case.first_try for case in asked), broke, len(asked) - kept - broke, len(asked))
    rules = None if side.findings is None else sum(result.breaks for result in side.findings)
    return (label(index), side.vendor, contract_words(side, NAMED), *counts, rules)


def _rules(found: Comparison) -> list[Section]:
    lines = rule_lines(found.sides)
    if not lines and any(side.findings is None for side in found.sides):
        return []
    return [section(lines, [label(i) for i in range(len(found.sides))])]


def service_values(service: Service) -> tuple[Value, ...]:
    """First-try success, medians of latency and speed, answer length, dollars a thousand requests and in all."""
    per_thousand = None if service.cost is None or not service.requests else 1000 * service.cost / service.requests
    return (
        estimate(service.first_try, Unit.SHARE),
        estimate(service.ttft_ms, Unit.MS),
        estimate(service.itl_ms, Unit.MS),
        estimate(service.output_tps, Unit.RATE),
        estimate(service.e2e_ms, Unit.MS),
        estimate(service.completion_tokens, Unit.TOKENS),
        (
            "no price known"
            if per_thousand is None
            else Estimate(value=per_thousand, n=service.requests, unit=Unit.USD, exact=True)
        ),
    )


SERVICE_COLUMNS = (
    "first try answered, %",
    "time to first token, ms, median",
    "inter-token latency, ms, median",
    "tokens/s, median",
    "end to end, ms, median",
    "completion tokens, mean",
    "$ a thousand requests",
)


def estimate(found: Measured, unit: Unit) -> Estimate:
    return Estimate(value=found.value, low=found.low, high=found.high, n=found.n, unit=unit)


def _beside(sides: Sequence[RunSummary]) -> Section:
    rows = [(label(i), side.vendor, *service_values(side.service)) for i, side in enumerate(sides)]
    notes = (
        (
            "Each run's own traffic; runs made at other hours or from other places differ in this for reasons that are"
            " not the vendor's."
        ),
    )
    return Section(
        title="Beside quality",
        notes=notes,
        tables=(DocumentTable(name="service", columns=("", "vendor", *SERVICE_COLUMNS), rows=tuple(rows)),),
    )


def _cases(found: Comparison) -> list[Section]:
    if not found.discordant:
        return [Section(title="Cases on which they differ", notes=("None.",))]
    columns = ("suite", "area", "level", "case", "first", "second")
    rows = [(r.suite, r.area.value, r.level.value, _name(r), *_notes(r)) for r in found.discordant]
    excerpts = [_excerpt(r) for r in found.discordant if r.first_answer or r.second_answer]
    table = DocumentTable(name="cases", columns=columns, rows=tuple(rows), left_out=found.left_out)
    return [
        Section(title="Cases on which they differ", tables=(table,)),
        *(
            [Section(title="Both answers", excerpts=tuple(excerpts), left_out=len(rows) - len(excerpts))]
            if excerpts
            else []
        ),
    ]


def _name(row: DiscordantCase) -> str:
    return row.case if not row.sample else f"{row.case}#{row.sample}"


def _notes(row: DiscordantCase) -> tuple[str, str]:
    return f"{label(row.first)} {row.first_note}", f"{label(row.second)} {row.second_note}"


def _excerpt(row: DiscordantCase) -> Excerpt:
    first, second = _notes(row)
    texts = (
        (f"{label(row.first)} answered", row.first_answer or "(nothing stored)"),
        (f"{label(row.second)} answered", row.second_answer or "(nothing stored)"),
    )
    expected = (("expected", row.expected),) if row.expected else ()
    return Excerpt(line=f"{_name(row)}: {first}, {second}", texts=(*expected, *texts))


# --- JSON --------------------------------------------------------------------------------------------


def as_json(found: Comparison) -> str:
    data = {
        "comparison_version": VERSION,
        "runs": [_run(i, side) for i, side in enumerate(found.sides)],
        "compared_although": [asdict(unlike) for unlike in found.unlike],
        "dropped": list(found.dropped),
        "quality": [
            {
                "suite": suite.suite,
                "tie_groups": [[label(i) for i in group] for group in suite.groups],
                "pairs": [_pair_json(pair) for pair in suite.pairs],
            }
            for suite in found.quality
        ],
        "contract": [
            {**asdict(row), "first": label(row.first), "second": label(row.second), "n": row.n}
            for row in found.contract
        ],
        "contract_groups": [
            {"contract": word, "runs": [*map(label, members)]} for word, members in contract_groups(found.sides)
        ],
        "rules": as_data(rule_lines(found.sides), [label(i) for i in range(len(found.sides))]),
        "cases": [],
        "cases_left_out": found.left_out,
    }
    clean = jsonable(data)
    clean["cases"] = [
        jsonable({**asdict(row), "first": label(row.first), "second": label(row.second)}) for row in found.discordant
    ]
    return json.dumps(clean, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def _run(index: int, side: RunSummary) -> dict[str, Any]:
    return {
        "label": label(index),
        "run_id": side.run_id,
        "date": side.date,
        "vendor": side.vendor,
        "model": side.model,
        "base_url": side.base_url,
        "profile": side.profile,
        "surface": side.surface,
        "preset": side.preset,
        "verdict": side.verdict,
        "contract": side.contract,
        "gates": [asdict(gate) for gate in side.gates],
        "broken": list_broken(side),
        "upstreams": dict(side.upstreams),
        "suites": {
            name: {"facts": suite.facts, "rows": [asdict(row) for row in suite.rows]}
            for name, suite in side.suites.items()
        },
        "service": asdict(side.service),
    }


def _pair_json(pair: PairResult) -> dict[str, Any]:
    d = pair.difference
    return {
        "first": label(pair.first),
        "second": label(pair.second),
        "measure": pair.measure.key,
        "label": pair.measure.label,
        "primary": pair.measure.primary,
        "difference": None if d is None else d.estimate,
        "ci95": None if d is None else [d.interval.low, d.interval.high],
        "n_samples": pair.samples,
        "n_cases": 0 if d is None else d.n,
        "n_clusters": 0 if d is None else d.clusters,
        "open": {"first": pair.open_first, "second": pair.open_second},
        "worst_case": pair.worst,
        "best_case": pair.best,
        "gained": pair.gained,
        "lost": pair.lost,
        "p": pair.p,
        "p_adjusted": pair.adjusted,
        "shown": pair.differs and d is not None,
        "method": "" if d is None else d.method,
        "test": pair.test,
    }
