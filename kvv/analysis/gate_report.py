"""What `kvv gate` says: the first line, the tables, the JSON form, the annotations of a CI job. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kvv.analysis.causes import cause_section
from kvv.analysis.compare import DiscordantCase
from kvv.analysis.findings import as_data, section
from kvv.analysis.pairs import PairResult
from kvv.analysis.regression import AlarmStatus, Drift, FalseAlarms, GateLine, GateResult
from kvv.core import Outcome
from kvv.decision.decide import WAIVED
from kvv.rendering.document import Document, DocumentTable, Estimate, Excerpt, Section, Unit, Value
from kvv.rendering.escape import jsonable
from kvv.reporting import github

#: version of the JSON form
VERSION = 1
#: more false alarms in 100 nights than this are said loudly
USUAL_FALSE_ALARMS = 1.0
LISTED = 100
SIDES = ("baseline", "run")
_ORDER = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.SKIP)


def document(found: GateResult) -> Document:
    causes = cause_section((found.baseline, found.run), SIDES, "What is wrong")
    sections = [*causes, _gates(found), *_differences(found), *_answers(found), *_contract(found), *_both(found)]
    sections += [*_drift(found), *_waivers(found)]
    return Document(
        title=headline(found), lead=tuple(_lead(found)), sections=tuple(sections), outcome=found.outcome.value
    )


# --- the first line ----------------------------------------------------------------------------------


def headline(found: GateResult) -> str:
    """What was decided, on which gate, by which measurements; then the counts."""
    parts = [
        f"{found.outcome.value.upper()} against the baseline of {found.baseline.date[:10]}",
        *_what(found),
        _counts(found.lines),
    ]
    if any(line.gate.degraded for line in found.lines):
        parts.append("degraded within the margin")
    drifted = list(dict.fromkeys(d.suite for d in found.drift if d.shown))
    if drifted:
        parts.append(f"drift shown: {', '.join(drifted)}{_drift_standing(found)}")
    return "; ".join(parts)


def _what(found: GateResult) -> list[str]:
    told = []
    for standing in (AlarmStatus.CONFIRMED, AlarmStatus.ALONE, AlarmStatus.REFUTED, AlarmStatus.UNCONFIRMED):
        if alike := [line for line in found.lines if line.standing is standing]:
            told.append(_alarm(found, alike))
    if told:
        return told
    worst = next((line for word in _ORDER[:3] for line in found.lines if line.decision is word), None)
    if worst is not None:
        return [f"{worst.gate.id}: {worst.gate.reason.split(':')[0]}"]
    return list(found.missing[:1])


def _alarm(found: GateResult, lines: Sequence[GateLine]) -> str:
    """Of the alarms that stand alike: which gates, and which runs say what."""
    first = lines[0]
    named = [f"{line.gate.id} ({line.gate.reason.split(':')[0]})" for line in lines[:3]]
    names = ", ".join(named) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")
    second = found.confirmation.side.run_id if found.confirmation and found.confirmation.side else "the second run"
    fails = "fails" if len(lines) == 1 else "fail"
    match first.standing:
        case AlarmStatus.CONFIRMED:
            return f"confirmed: {names} {fails} in {found.run.run_id} and again in {second}"
        case AlarmStatus.REFUTED:
            return f"alarm not confirmed: {names} {fails} in {found.run.run_id}, not in {second}"
        case AlarmStatus.UNCONFIRMED:
            return (
                f"alarm not confirmed: {names} {fails} in {found.run.run_id}, and"
                f" {first.note.removeprefix('not confirmed: ')}"
            )
        case _:
            return f"{names} {fails} in {found.run.run_id}, one measurement"


def _drift_standing(found: GateResult) -> str:
    shown = [d.repeated for d in found.drift if d.shown]
    if found.confirmation is None:
        return ""
    return ", confirmed" if any(shown) else ", not confirmed"


def _counts(lines: Sequence[GateLine]) -> str:
    counts = {word: sum(line.decision is word for line in lines) for word in _ORDER}
    parts = [f"{n} {word.value}" for word, n in counts.items() if n]
    return f"{len(lines)} gates ({', '.join(parts) or 'none'})"


def _lead(found: GateResult) -> list[str]:
    lines = [
        f"run {found.run.run_id} ({found.run.vendor}, {found.run.model}, {found.run.date})",
        f"baseline {found.baseline.run_id} ({found.baseline.date}), {len(found.older)} older ones for drift",
        f"policy {found.policy.name} {found.policy.sha256[:12]}, alpha {found.policy.alpha:g}",
        _false_alarms(found.false_alarms, confirmed=found.confirmation is not None),
    ]
    if found.confirmation is not None:
        side = found.confirmation.side
        kept = f", kept in {found.confirmation.where}" if found.confirmation.where else ""
        lines.append(
            f"second run, for confirmation: {side.run_id} ({side.date}){kept}" if side else "no second run was made"
        )
        lines += [f"the second run: {found.confirmation.trouble}"] if found.confirmation.trouble else []
    elif any(line.standing is AlarmStatus.ALONE for line in found.lines):
        lines.append(
            "this alarm rests on one run: --confirm-now measures what alarmed once more, --confirm RUN takes a run that"
            " you have made"
        )
    return [*lines, *found.notes, *found.missing]


def _false_alarms(expected: FalseAlarms, *, confirmed: bool) -> str:
    text = f"false alarms to expect over all gates: {expected.first:.2f} in 100 nights on which nothing changed"
    text += f", {expected.confirmed:.2f} where a second measurement confirms each"
    counts = expected.confirmed if confirmed else expected.first
    return text + (
        f" (more than the usual {USUAL_FALSE_ALARMS:g}: lower the policy's alpha)"
        if counts > USUAL_FALSE_ALARMS + 1e-9
        else ""
    )


# --- tables ------------------------------------------------------------------------------------------


def _gates(found: GateResult) -> Section:
    rows: list[tuple[Value, ...]] = []
    for line in sorted(found.lines, key=lambda line: _ORDER.index(line.decision)):
        second = f"{line.confirming.decision.value.upper()} {line.confirming.reason}" if line.confirming else "–"
        verdict = line.decision.value.upper() + (" (degraded)" if line.gate.degraded else "")
        rows.append((verdict, line.gate.id, line.gate.reason, *((second, line.note) if found.confirmation else ())))
    columns = ("verdict", "gate", "reason", *(("second run", "confirmation") if found.confirmation else ()))
    return Section(title="Gates", tables=(DocumentTable(name="gates", columns=columns, rows=tuple(rows)),))


def _differences(found: GateResult) -> list[Section]:
    rows = [
        (pair.suite, pair.measure.label, _points(pair), pair.gained, pair.lost, pair.open_first + pair.open_second)
        for pair in found.differences
    ]
    if not rows:
        return []
    columns = ("suite", "measure", "run less baseline, points, 95 % interval", "gained", "lost", "open")
    notes = ("What was measured; the gates above decide by the policy's own alpha and margin.",)
    return [
        Section(
            title="Difference from the baseline",
            notes=notes,
            tables=(DocumentTable(name="differences", columns=columns, rows=tuple(rows)),),
        )
    ]


def _points(pair: PairResult) -> Estimate:
    d = pair.difference
    if d is None:
        return Estimate(value=None, unit=Unit.POINTS)
    return Estimate(value=d.estimate, low=d.interval.low, high=d.interval.high, n=pair.samples, unit=Unit.POINTS)


def _answers(found: GateResult) -> list[Section]:
    """Benchmark cases by name."""
    sections = []
    for title, name, rows in (
        ("Lost since the baseline", "lost", found.lost),
        ("Gained since the baseline", "gained", found.gained),
    ):
        if rows:
            cells = tuple((row.case, row.first_note, row.second_note) for row in rows[:LISTED])
            table = DocumentTable(name=name, columns=("case", *SIDES), rows=cells, left_out=max(0, len(rows) - LISTED))
            sections.append(Section(title=f"{title}: {len(rows)}", tables=(table,)))
    return sections


def _both(found: GateResult) -> list[Section]:
    """What both runs answered to the cases that are worse, as far as the caller had their stores."""
    rows = [row for row in (*found.lost, *found.broken) if row.first_answer or row.second_answer]
    excerpts = tuple(
        Excerpt(
            line=f"{row.case}{f'#{row.sample}' if row.sample else ''}: {row.first_note}, now {row.second_note}",
            texts=(
                *((("expected", row.expected),) if row.expected else ()),
                ("the baseline answered", row.first_answer or "(its answers are not here)"),
                ("the run answered", row.second_answer or "(nothing stored)"),
            ),
        )
        for row in rows
    )
    return [Section(title="Both answers", excerpts=excerpts)] if excerpts else []


def _contract(found: GateResult) -> list[Section]:
    sections = []
    for title, rows in (
        ("Contract cases broken since the baseline", found.broken),
        ("Contract cases mended since the baseline", found.mended),
    ):
        if rows:
            cells = tuple(
                (row.case, row.area.value, row.level.value, row.first_note, row.second_note) for row in rows[:LISTED]
            )
            table = DocumentTable(
                name="broken" if rows is found.broken else "mended",
                columns=("case", "area", "level", "baseline", "run"),
                rows=cells,
                left_out=max(0, len(rows) - LISTED),
            )
            sections.append(Section(title=title, tables=(table,)))
    if found.rules:
        sections.append(section(found.rules, SIDES, "Passive rules that differ from the baseline"))
    return sections


def _drift(found: GateResult) -> list[Section]:
    if not found.drift:
        return []
    rows = [(d.suite, d.date[:10], d.baseline, d.pair.measure.label, _points(d.pair), _loss(d)) for d in found.drift]
    columns = (
        "suite",
        "baseline of",
        "baseline",
        "measure",
        "run less baseline, points, interval at the policy's alpha",
        "loss",
    )
    notes = (
        "Small losses that were accepted one by one add up: the run is also set against the older baselines and the"
        " first one accepted. A rate of calls drifts either way.",
    )
    return [
        Section(title="Drift", notes=notes, tables=(DocumentTable(name="drift", columns=columns, rows=tuple(rows)),))
    ]


def _loss(drift: Drift) -> str:
    again = {None: "", True: ", confirmed by the second run", False: ", not repeated by the second run"}[drift.repeated]
    return f"drift{again}" if drift.shown else "not shown"


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
        notes += [
            f"the waiver of {w.case} ({w.owner}, until {w.expires}) {text}" for w in found.waivers if w.state == state
        ]
    return [
        Section(
            title="Waivers", notes=tuple(notes), tables=(DocumentTable(name="waivers", columns=columns, rows=rows),)
        )
    ]


def as_json(found: GateResult, *, code: int) -> str:
    confirmation = found.confirmation
    data: Mapping[str, Any] = {
        "gate_version": VERSION,
        "outcome": found.outcome.value,
        "exit_code": code,
        "headline": headline(found),
        "run": found.run.run_id,
        "baseline": {"run_id": found.baseline.run_id, "date": found.baseline.date},
        "older_baselines": [{"run_id": side.run_id, "date": side.date} for side in found.older],
        "confirming": confirmation.side.run_id if confirmation and confirmation.side else None,
        "confirmation_trouble": confirmation.trouble if confirmation else "",
        "policy": {"name": found.policy.name, "sha256": found.policy.sha256},
        "false_alarms_per_100": found.false_alarms.first,
        "confirmed_false_alarms_per_100": found.false_alarms.confirmed,
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
                "standing": line.standing.value,
                "note": line.note,
                "degraded": line.gate.degraded,
            }
            for line in found.lines
        ],
        "differences": [_difference(pair) for pair in found.differences],
        "drift": [
            {
                "suite": d.suite,
                "baseline": d.baseline,
                "date": d.date,
                "shown": d.shown,
                "repeated": d.repeated,
                **_difference(d.pair),
            }
            for d in found.drift
        ],
        "lost": [_changed(row) for row in found.lost],
        "gained": [_changed(row) for row in found.gained],
        "broken": [{"case": row.case, "baseline": row.first_note, "run": row.second_note} for row in found.broken],
        "mended": [{"case": row.case, "baseline": row.first_note, "run": row.second_note} for row in found.mended],
        "rules": as_data(found.rules, SIDES),
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


# --- a CI job ----------------------------------------------------------------------------------------


def workflow_commands(found: GateResult) -> str:
    """Workflow commands for GitHub Actions: errors for what failed, warnings for what is open, notices for the rest
    worth a line.
    """
    errors, warnings = [], [("not decided", text) for text in found.missing]
    notices = [("kvv gate", headline(found))]
    for line in found.lines:
        text = f"{line.gate.reason} ({line.note})" if line.note else line.gate.reason
        match line.decision:
            case Outcome.FAIL | Outcome.ERROR:
                errors.append((line.gate.id, text))
            case Outcome.INCONCLUSIVE:
                warnings.append((line.gate.id, text))
            case _ if line.gate.degraded or line.gate.reason.startswith(WAIVED):
                notices.append((line.gate.id, text))
    warnings += [
        ("drift", f"{d.suite} since the baseline of {d.date[:10]}: {_loss(d)}") for d in found.drift if d.shown
    ]
    warnings += [
        (f"waiver {w.state}", f"{w.case} ({w.owner}, {w.expires})") for w in found.waivers if w.state != "used"
    ]
    return github.commands(errors=errors, warnings=warnings, notices=notices)


def _changed(row: DiscordantCase) -> dict[str, Any]:
    return {"case": row.case, "baseline": row.first_note, "run": row.second_note, "change": row.change}
