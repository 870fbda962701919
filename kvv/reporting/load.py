"""What `kvv load` found: a document, and load.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvv.decision.load import LoadResult, StepResult, share_of
from kvv.execution.load.ladder import LoadExample
from kvv.rendering.document import Curve, Document, DocumentTable, Estimate, Excerpt, Section, Value
from kvv.rendering.escape import jsonable, percent

VERSION = 1
#: examples that are shown
SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """One ladder. ``open_loop``: loads are arrivals a second, not requests at once. ``about``: what was asked, in
    lines; ``facts``: the same for load.json, JSON-like. ``stop``: why it ended early.
    """

    title: str
    result: LoadResult
    open_loop: bool
    about: tuple[str, ...]
    facts: Mapping[str, Any]
    examples: Sequence[LoadExample] = ()
    stop: str = ""

    @property
    def unit(self) -> str:
        return "requests/s offered" if self.open_loop else "requests at once"

    @property
    def headline(self) -> str:
        result = self.result
        return f"{result.outcome.value.upper()}: {result.sentence} ({self.unit})"


def document(report: LoadReport) -> Document:
    steps = report.result.steps
    lead = (report.title, *report.about, *((f"ended early: {report.stop}",) if report.stop else ()))
    sections = (
        _overview(report),
        Section(
            title="First token by uncached prompt tokens, ms",
            tables=(_grouped("ttft", report, "prompt tokens", lambda step: step.ttft_by_length),),
        ),
        Section(
            title="Inter-token latency by workload, ms",
            notes=("The mean time per token after the first, within one answer; quantiles over answers.",),
            tables=(_grouped("itl", report, "workload", lambda step: step.itl_by_workload),),
        ),
        _right(report),
        Section(title="Service levels", tables=(_levels(report),)),
        Section(title="Failures", tables=(_counts("failures", report, "failure", lambda step: step.errors),)),
        _client(report),
    )
    return Document(
        title=report.headline,
        lead=lead,
        sections=tuple(part for part in sections if not part.tables or any(table.rows for table in part.tables)),
        outcome=report.result.outcome.value if steps else "inconclusive",
    )


def _overview(report: LoadReport) -> Section:
    rows: list[tuple[Value, ...]] = [
        (
            f"{step.load:g}",
            step.outcome.value.upper(),
            step.requests_s,
            step.output_tokens_s,
            *(step.ttft.get(name) for name in ("p50", "p95", "p99")),
            *(step.e2e.get(name) for name in ("p50", "p95")),
            step.goodput,
            step.goodput_s,
            step.fairness,
            ", ".join(name for name, _ in step.why),
        )
        for step in report.result.steps
    ]
    columns = (
        *(report.unit, "policy", "requests/s", "output tokens/s", "first token p50, ms", "p95", "p99"),
        *("end to end p50, ms", "p95", "goodput, %", "good requests/s", "fairness", "why"),
    )
    notes = (
        "Intervals are of 95 %. Goodput: requests that keep every service level. Fairness: Jain's index over how much"
        " longer each prompt length takes than at the lowest load; 1 is even.",
    )
    return Section(
        title="Steps",
        notes=notes,
        curves=tuple(_curves(report)),
        tables=(DocumentTable(name="steps", columns=columns, rows=tuple(rows)),),
    )


def _curves(report: LoadReport) -> list[Curve]:
    missing = Estimate(value=None)
    steps = report.result.steps
    first = [(f"{one.load:g}", one.requests_s, one.ttft.get("p95", missing)) for one in steps]
    whole = [(f"{one.load:g}", one.output_tokens_s, one.e2e.get("p95", missing)) for one in steps]
    return [
        Curve(
            title="Time to first token against throughput",
            x="requests/s",
            y="first token p95, ms",
            points=tuple(first),
        ),
        Curve(
            title="End-to-end latency against throughput",
            x="output tokens/s",
            y="end to end p95, ms",
            points=tuple(whole),
        ),
    ]


def _grouped(name: str, report: LoadReport, group: str, of: Any) -> DocumentTable:
    rows: list[tuple[Value, ...]] = [
        (f"{step.load:g}", key, *(row.get(q) for q in ("p50", "p95", "p99")))
        for step in report.result.steps
        for key, row in of(step).items()
    ]
    return DocumentTable(name=name, columns=(report.unit, group, "p50", "p95", "p99"), rows=tuple(rows))


def _right(report: LoadReport) -> Section:
    rows: list[tuple[Value, ...]] = []
    for step in report.result.steps:
        for one in step.known:
            p = "–" if one.p is None else f"{one.p:.2g}"
            told = "more than at lower loads" if one.worse else ""
            what = "wire rules" if one.kind == "wire" else one.kind
            rows.append((f"{step.load:g}", what, one.wrong, share_of(one.wrong, one.n), p, told))
    columns = (report.unit, "known answer", "wrong", "%", "p against lower loads", "")
    rules = _counts("rules", report, "wire rule", lambda step: step.rules)
    excerpts = tuple(
        Excerpt(
            line=f"{one.load:g} {report.unit}: {one.what}", texts=(("asked", one.asked), ("answered", one.answered))
        )
        for one in report.examples[:SHOWN]
    )
    return Section(
        title="Does it stay right?",
        notes=(
            "Exact lines to repeat, fixed arguments of a tool call, needles in the prompt; and every answer under the"
            " wire rules of level must. p: Fisher's exact test, one-sided.",
        ),
        tables=(
            DocumentTable(name="known-answers", columns=columns, rows=tuple(rows)),
            *((rules,) if rules.rows else ()),
        ),
        excerpts=excerpts,
        left_out=max(0, len(report.examples) - SHOWN),
    )


def _counts(name: str, report: LoadReport, what: str, of: Any) -> DocumentTable:
    rows: list[tuple[Value, ...]] = [
        (f"{step.load:g}", key, count, share_of(count, len(step.step.samples)))
        for step in report.result.steps
        for key, count in sorted(of(step).items())
    ]
    return DocumentTable(name=name, columns=(report.unit, what, "requests", "%"), rows=tuple(rows))


def _levels(report: LoadReport) -> DocumentTable:
    rows: list[tuple[Value, ...]] = [
        (f"{step.load:g}", gate.decision.value.upper(), gate.id, gate.reason)
        for step in report.result.steps
        for gate in step.gates
    ]
    return DocumentTable(name="levels", columns=(report.unit, "verdict", "level", "reason"), rows=tuple(rows))


def _client(report: LoadReport) -> Section:
    rows: list[tuple[Value, ...]] = [
        (f"{step.load:g}", percent(step.step.client_cpu, 0), f"{step.step.client_lag_ms:.1f}", step.step.unsent)
        for step in report.result.steps
    ]
    columns = (report.unit, "CPU of one core, %", "late, p99 ms", "arrivals not sent")
    busy = [f"{step.load:g}" for step in report.result.steps if step.step.client_cpu > 0.6]
    notes = (
        (
            f"The load generator used more than 60 % of its core at {', '.join(busy)}: times there may be its own. Use"
            " a faster machine, or several.",
        )
        if busy
        else ()
    )
    return Section(
        title="The load generator itself",
        notes=notes,
        tables=(DocumentTable(name="client", columns=columns, rows=tuple(rows)),),
    )


# --- load.json -----------------------------------------------------------------------------------------


def as_json(report: LoadReport, *, code: int) -> str:
    result = report.result
    data = {
        "load_version": VERSION,
        "experimental": True,
        **report.facts,
        "verdict": result.outcome.value,
        "exit_code": code,
        "headline": report.headline,
        "unit": report.unit,
        "knee": result.knee,
        "first_missed": result.missed,
        "ended_early": report.stop or None,
        "steps": [_step(step) for step in result.steps],
        "examples": [
            {"load": one.load, "what": one.what, "asked": one.asked, "answered": one.answered}
            for one in report.examples[:SHOWN]
        ],
    }
    return json.dumps(jsonable(data), ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def _step(step: StepResult) -> dict[str, Any]:
    begin, end = step.step.window
    return {
        "load": step.load,
        "verdict": step.outcome.value,
        "why": [f"{name}: {reason}" for name, reason in step.why],
        "requests": len(step.step.samples),
        "window_s": end - begin,
        "requests_s": _estimate(step.requests_s),
        "output_tokens_s": _estimate(step.output_tokens_s),
        "ttft_ms": _each(step.ttft),
        "ttft_ms_by_uncached_prompt_tokens": {name: _each(row) for name, row in step.ttft_by_length.items()},
        "itl_ms_by_workload": {name: _each(row) for name, row in step.itl_by_workload.items()},
        "e2e_ms": _each(step.e2e),
        "goodput": _estimate(step.goodput),
        "goodput_requests_s": _estimate(step.goodput_s),
        "fairness": _estimate(step.fairness),
        "failures": dict(step.errors),
        "rules": dict(step.rules),
        "known_answers": [
            {"kind": one.kind, "wrong": one.wrong, "n": one.n, "p": one.p, "worse": one.worse} for one in step.known
        ],
        "service_levels": [
            {"id": gate.id, "verdict": gate.decision.value, "reason": gate.reason} for gate in step.gates
        ],
        "client": {
            "cpu": step.step.client_cpu,
            "late_p99_ms": step.step.client_lag_ms,
            "unsent": step.step.unsent,
        },
    }


def _each(row: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: _estimate(value) for name, value in row.items()}


def _estimate(found: Estimate) -> dict[str, Any] | None:
    if found.value is None:
        return None
    return {"value": found.value, "low": found.low, "high": found.high, "n": found.n}
