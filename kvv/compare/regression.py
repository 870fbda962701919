"""Did it get worse? One run against the accepted baseline, older baselines for drift, a second run for confirmation. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from kvv.compare.compare import Comparison, DiscordantCase
from kvv.compare.pairs import PairResult, compare_pair, measures
from kvv.compare.side import Side, SuiteResult
from kvv.gate import Decision, aggregate, exit_code, forecast
from kvv.gate.decide import WaiverState
from kvv.model import Gate, Outcome
from kvv.policy import Policy
from kvv.report.document import Document, Estimate, Section, Table, Unit, Value
from kvv.report.escape import jsonable
from kvv.stats import binary_design
from kvv.stats.power import Design
from kvv.suite import SuiteKind

#: version of the JSON form
VERSION = 1
#: agreement of two runs by question, for the forecast of false alarms of parity gates; fixtures/policies/release.toml says why
RHO = 0.7
#: more false alarms in 100 nights than this are said loudly
USUAL_FALSE_ALARMS = 1.0
LISTED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLine:
    """A gate of the run; ``confirming`` is the same gate of the second run where one was given. ``decision`` is what counts in the end."""

    gate: Gate
    decision: Outcome
    confirming: Gate | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The run against an older baseline on one suite. ``shown``: a loss is shown at the policy's alpha."""

    suite: str
    baseline: str
    date: str
    pair: PairResult
    shown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """``false_alarms`` is the number expected in 100 nights over all gates when nothing changed; ``broken`` are contract cases that the
    baseline kept and the run breaks, ``mended`` the reverse."""

    run: Side
    baseline: Side
    older: tuple[Side, ...]
    policy: Policy
    lines: tuple[GateLine, ...]
    missing: tuple[str, ...]
    drift: tuple[Drift, ...]
    waivers: tuple[WaiverState, ...]
    broken: tuple[DiscordantCase, ...]
    mended: tuple[DiscordantCase, ...]
    notes: tuple[str, ...]
    false_alarms: float
    outcome: Outcome
    headline: str
    confirming: Side | None = None
    differences: tuple[PairResult, ...] = ()

    def exit_code(self, *, inconclusive_fails: bool) -> int:
        """3 for an inconclusive result, or 0 where the user only wants to be warned of it."""
        code = exit_code(self.outcome)
        return 0 if code == 3 and not inconclusive_fails else code


def decide_lines(first: Decision, confirming: Decision | None) -> tuple[list[GateLine], list[str]]:
    """Every gate with what counts of it, and what the policy requires and the run has not. An alarm that a second run does not repeat
    decides nothing: INCONCLUSIVE."""
    again = {gate.id: gate for gate in confirming.gates} if confirming else {}
    lines = []
    for gate in first.gates:
        second = again.get(gate.id)
        line = GateLine(gate=gate, decision=gate.decision, confirming=second)
        if gate.decision is Outcome.FAIL and confirming is not None:
            if second is not None and second.decision is Outcome.FAIL:
                line = replace(line, note="confirmed by the second run")
            else:
                said = second.decision.value if second else "not decided"
                line = replace(line, decision=Outcome.INCONCLUSIVE, note=f"not confirmed: the second run says {said}")
        lines.append(line)
    decided = {f"{g.id}: {g.reason}" for g in first.gates}
    return lines, [reason for reason in first.why if reason not in decided]


def outcome_of_lines(lines: Sequence[GateLine], missing: Sequence[str], drift_fails: bool) -> Outcome:
    outcome = aggregate([*(line.decision for line in lines), *(Outcome.INCONCLUSIVE for _ in missing), *([Outcome.FAIL] if drift_fails else [])])
    return Outcome.INCONCLUSIVE if outcome is Outcome.SKIP else outcome


def drift_of(run: Side, older: Sequence[Side], policy: Policy, rng: np.random.Generator) -> list[Drift]:
    """The run's primary measure against each older baseline, at each suite's own alpha (two-sided confidence 1 - 2 alpha)."""
    found = []
    for side in older:
        for suite, mine in run.suites.items():
            theirs = side.suites.get(suite)
            if mine.kind is not SuiteKind.BENCHMARK or theirs is None:
                continue
            primary = next((m for m in measures([theirs, mine]) if m.primary and m.better), None)
            if primary is None:
                continue
            entry = policy.benchmark_for(suite, mine.primary.metric if mine.primary else "", primary=True)
            alpha = (entry.alpha if entry else None) or policy.alpha
            pair = compare_pair(0, 1, theirs, mine, primary, rng, 1 - 2 * alpha)
            shown = pair.difference is not None and pair.difference.interval.high < 0 and (pair.best or 0.0) < 0
            found.append(Drift(suite=suite, baseline=side.run_id, date=side.date, pair=pair, shown=shown))
    return found


def false_alarms(policy: Policy, run: Side, *, gated: Sequence[str], drifting: int = 0) -> float:
    """Alarms expected in 100 nights on which nothing changed, over the benchmark gates that ran, service levels and, where they fail the
    night, drift lines. Contract cases are no draws of chance and add none."""
    designs = {name: _design(run.suites[name]) for name in gated if name in run.suites and run.suites[name].cases}
    found = forecast(policy, designs).false_alarms + 100 * policy.alpha * len(policy.service_level)
    return found + 100 * policy.alpha * drifting


def _design(suite: SuiteResult) -> Design:
    samples = max(1, round(sum(len(case.samples) for case in suite.cases.values()) / len(suite.cases)))
    value = suite.primary.value if suite.primary else None
    accuracy = min(0.99, max(0.01, 0.5 if value is None else value))
    return binary_design(len(suite.cases), accuracy, RHO, k_vendor=samples, k_reference=samples)


def contract_changes(found: Comparison) -> tuple[list[DiscordantCase], list[DiscordantCase]]:
    """Of a comparison (baseline, run): contract cases that are broken now, and those that are kept now."""
    benchmarks = {suite.suite for suite in found.quality}
    rows = [row for row in found.discordant if row.suite not in benchmarks]
    broken = [row for row in rows if row.first_note.startswith("passes") and row.second_note.startswith("fails")]
    mended = [row for row in rows if row.first_note.startswith("fails") and row.second_note.startswith("passes")]
    return broken, mended


# --- report ----------------------------------------------------------------------------------------


def document(found: GateResult) -> Document:
    sections = [_gates(found), *_differences(found), *_contract(found), *_drift(found), *_waivers(found)]
    return Document(title=found.headline, lead=tuple(_lead(found)), sections=tuple(sections), outcome=found.outcome.value)


def headline(outcome: Outcome, lines: Sequence[GateLine], missing: Sequence[str], drift: Sequence[Drift], baseline: Side) -> str:
    counts = {word: sum(line.decision is word for line in lines) for word in Outcome}
    parts = [
        f"{counts[word]} {word.value}" for word in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.SKIP) if counts[word]
    ]
    text = f"{outcome.value.upper()} against the baseline of {baseline.date[:10]}: {len(lines)} gates ({', '.join(parts) or 'none'})"
    worst = next((line for word in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE) for line in lines if line.decision is word), None)
    if worst is not None:
        text += f"; {worst.gate.id}: {worst.gate.reason.split(':')[0]}"
    elif missing:
        text += f"; {missing[0]}"
    if any(line.gate.degraded for line in lines):
        text += "; degraded within the margin"
    drifted = [d.suite for d in drift if d.shown]
    return text + (f"; drift shown: {', '.join(dict.fromkeys(drifted))}" if drifted else "")


def _lead(found: GateResult) -> list[str]:
    lines = [
        f"run {found.run.run_id} ({found.run.vendor}, {found.run.model}, {found.run.date})",
        f"baseline {found.baseline.run_id} ({found.baseline.date}), {len(found.older)} older ones for drift",
        f"policy {found.policy.name} {found.policy.sha256[:12]}, alpha {found.policy.alpha:g}",
        f"false alarms to expect over all gates: {found.false_alarms:.2f} in 100 nights on which nothing changed"
        + (f" (more than the usual {USUAL_FALSE_ALARMS:g}: lower the policy's alpha)" if found.false_alarms > USUAL_FALSE_ALARMS + 1e-9 else ""),
    ]
    if found.confirming is not None:
        lines.append(f"second run, for confirmation: {found.confirming.run_id} ({found.confirming.date})")
    elif any(line.decision is Outcome.FAIL for line in found.lines):
        lines.append("this alarm rests on one run: measure again and give that run as --confirm RUN")
    return [*lines, *found.notes, *found.missing]


def _gates(found: GateResult) -> Section:
    order = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.SKIP)
    rows: list[tuple[Value, ...]] = []
    for line in sorted(found.lines, key=lambda line: order.index(line.decision)):
        second = f"{line.confirming.decision.value.upper()} {line.confirming.reason}" if line.confirming else "–"
        verdict = line.decision.value.upper() + (" (degraded)" if line.gate.degraded else "")
        rows.append((verdict, line.gate.id, line.gate.reason, *((second, line.note) if found.confirming else ())))
    columns = ("verdict", "gate", "reason", *(("second run", "confirmation") if found.confirming else ()))
    return Section(title="Gates", tables=(Table(name="gates", columns=columns, rows=tuple(rows)),))


def _differences(found: GateResult) -> list[Section]:
    rows = [(pair.suite, pair.measure.label, _points(pair), pair.gained, pair.lost, pair.open_first + pair.open_second) for pair in found.differences]
    if not rows:
        return []
    columns = ("suite", "measure", "run less baseline, points, 95 % interval", "gained", "lost", "open")
    notes = ("What was measured; the gates above decide by the policy's own alpha and margin.",)
    return [Section(title="Difference from the baseline", notes=notes, tables=(Table(name="differences", columns=columns, rows=tuple(rows)),))]


def _points(pair: PairResult) -> Estimate:
    d = pair.difference
    if d is None:
        return Estimate(value=None, unit=Unit.POINTS)
    return Estimate(value=d.estimate, low=d.interval.low, high=d.interval.high, n=pair.samples, unit=Unit.POINTS)


def _contract(found: GateResult) -> list[Section]:
    sections = []
    for title, rows in (("Contract cases broken since the baseline", found.broken), ("Contract cases mended since the baseline", found.mended)):
        if rows:
            cells = tuple((row.case, row.area.value, row.level.value, row.first_note, row.second_note) for row in rows[:LISTED])
            table = Table(
                name="broken" if rows is found.broken else "mended",
                columns=("case", "area", "level", "baseline", "run"),
                rows=cells,
                left_out=max(0, len(rows) - LISTED),
            )
            sections.append(Section(title=title, tables=(table,)))
    return sections


def _drift(found: GateResult) -> list[Section]:
    if not found.drift:
        return []
    rows = [(d.suite, d.date[:10], d.baseline, d.pair.measure.label, _points(d.pair), "drift" if d.shown else "not shown") for d in found.drift]
    columns = ("suite", "baseline of", "baseline", "measure", "run less baseline, points, interval at the policy's alpha", "loss")
    notes = ("Small losses that were accepted one by one add up: the run is also set against the older baselines.",)
    return [Section(title="Drift", notes=notes, tables=(Table(name="drift", columns=columns, rows=tuple(rows)),))]


def _waivers(found: GateResult) -> list[Section]:
    if not found.waivers:
        return []
    rows = tuple((w.state, w.case, w.reason, w.owner, w.issue, w.expires, ", ".join(w.subjects)) for w in found.waivers)
    columns = ("state", "case", "reason", "owner", "issue", "expires", "used for")
    notes = []
    for state, text in (
        ("expired", "has expired and waives nothing: renew or remove it"),
        ("unneeded", "is not needed: what it names did not fail"),
        ("not-seen", "names nothing that ran"),
    ):
        notes += [f"the waiver of {w.case} ({w.owner}, until {w.expires}) {text}" for w in found.waivers if w.state == state]
    return [Section(title="Waivers", notes=tuple(notes), tables=(Table(name="waivers", columns=columns, rows=rows),))]


def as_json(found: GateResult, *, code: int) -> str:
    data: Mapping[str, Any] = {
        "gate_version": VERSION,
        "outcome": found.outcome.value,
        "exit_code": code,
        "headline": found.headline,
        "run": found.run.run_id,
        "baseline": {"run_id": found.baseline.run_id, "date": found.baseline.date},
        "older_baselines": [{"run_id": side.run_id, "date": side.date} for side in found.older],
        "confirming": found.confirming.run_id if found.confirming else None,
        "policy": {"name": found.policy.name, "sha256": found.policy.sha256},
        "false_alarms_per_100": found.false_alarms,
        "missing": list(found.missing),
        "notes": list(found.notes),
        "gates": [
            {
                "id": line.gate.id,
                "area": line.gate.area.value,
                "verdict": line.decision.value,
                "first": line.gate.decision.value,
                "second": line.confirming.decision.value if line.confirming else None,
                "reason": line.gate.reason,
                "note": line.note,
                "degraded": line.gate.degraded,
            }
            for line in found.lines
        ],
        "differences": [_difference(pair) for pair in found.differences],
        "drift": [{"suite": d.suite, "baseline": d.baseline, "date": d.date, "shown": d.shown, **_difference(d.pair)} for d in found.drift],
        "broken": [{"case": row.case, "baseline": row.first_note, "run": row.second_note} for row in found.broken],
        "mended": [{"case": row.case, "baseline": row.first_note, "run": row.second_note} for row in found.mended],
        "waivers": [asdict(waiver) for waiver in found.waivers],
    }
    return json.dumps(jsonable(data), ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def _difference(pair: PairResult) -> dict[str, Any]:
    d = pair.difference
    return {
        "suite": pair.suite,
        "measure": pair.measure.key,
        "difference": None if d is None else d.estimate,
        "interval": None if d is None else list(d.interval.pair),
        "n_samples": pair.samples,
        "open": pair.open_first + pair.open_second,
    }
