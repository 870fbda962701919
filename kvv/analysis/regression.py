"""Did it get worse? One run against the accepted baseline, older baselines for drift, a second run for confirmation.
Pure.

What is said of it is in ``kvv.analysis.gate_report``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kvv.analysis.compare import Comparison, DiscordantCase
from kvv.analysis.findings import RuleLine
from kvv.analysis.pairs import PairResult, compare_pair, measures
from kvv.cases.suite import SuiteKind
from kvv.core import Gate, Outcome
from kvv.core.lazy import numpy as np
from kvv.decision import Decision, aggregate, exit_code, forecast
from kvv.decision.decide import WaiverState
from kvv.profiles.policy import Policy
from kvv.stats import binary_design, repeated_alarm
from kvv.stats.power import Design
from kvv.storage.run_summary import RunSummary, SuiteResult

#: agreement of two runs by question, for the forecast of false alarms of parity gates; fixtures/policies/release.toml
#: says why
RHO = 0.7
#: the value of a tool-call suite whose mean is the rate of calls
CALL_RATE = "triggered"


class AlarmStatus(StrEnum):
    """An alarm that nobody measured again is ALONE; one whose fresh measurement could not be made or finished is
    UNCONFIRMED.
    """

    NO_ALARM = "no-alarm"
    ALONE = "alone"
    CONFIRMED = "confirmed"
    REFUTED = "not-repeated"
    UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLine:
    """A gate of the run; ``confirming`` is the same gate of the second run where one was given. ``decision`` is what
    counts in the end.

    ``standing``: what became of an alarm.
    """

    gate: Gate
    decision: Outcome
    confirming: Gate | None = None
    note: str = ""
    standing: AlarmStatus = AlarmStatus.NO_ALARM


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The run against an older baseline on one measure of a suite. ``shown``: a loss, of a rate of calls a change
    either way, is shown at the policy's alpha; ``repeated``: the second run shows it too, None where none was made of
    this suite."""

    suite: str
    baseline: str
    date: str
    pair: PairResult
    shown: bool
    repeated: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseAlarms:
    """Expected in 100 nights on which nothing changed, over all gates: ``first`` of one measurement alone,
    ``confirmed`` of those that a second one repeats."""

    first: float
    confirmed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The second measurement. ``side`` is None where none was made; ``where`` is its folder, where `kvv` made it;
    ``trouble`` says what kept it from being made or finished."""

    side: RunSummary | None = None
    where: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """``broken`` are contract cases that the baseline kept and the run breaks, ``mended`` the reverse; ``lost`` are
    benchmark cases on which the run is worse, ``gained`` those on which it is better; ``rules`` are
    passive rules on which (baseline, run) differ. ``confirmation`` is None where nobody
    asked for one, or there was no alarm to measure again."""

    run: RunSummary
    baseline: RunSummary
    older: tuple[RunSummary, ...]
    policy: Policy
    lines: tuple[GateLine, ...]
    missing: tuple[str, ...]
    drift: tuple[Drift, ...]
    waivers: tuple[WaiverState, ...]
    broken: tuple[DiscordantCase, ...]
    mended: tuple[DiscordantCase, ...]
    notes: tuple[str, ...]
    false_alarms: FalseAlarms
    outcome: Outcome
    confirmation: Confirmation | None = None
    lost: tuple[DiscordantCase, ...] = ()
    gained: tuple[DiscordantCase, ...] = ()
    differences: tuple[PairResult, ...] = ()
    rules: tuple[RuleLine, ...] = ()

    def exit_code(self, *, inconclusive_fails: bool) -> int:
        """3 for an inconclusive result, or 0 where the user only wants to be warned of it. An alarm that could not be
        measured again is more than that: one run did show a loss."""
        code = exit_code(self.outcome)
        alarmed = any(line.standing is AlarmStatus.UNCONFIRMED for line in self.lines)
        return 0 if code == 3 and not inconclusive_fails and not alarmed else code


def decide_lines(first: Decision, confirming: Decision | None, trouble: str = "") -> tuple[list[GateLine], list[str]]:
    """Every gate with what counts of it, and what the policy requires and the run has not.

    An alarm that a second run does not repeat decides nothing: INCONCLUSIVE; nor does one whose second run was wanted
    and not made or not finished (``trouble`` says why). Without either the alarm stands alone and counts.
    """
    again = {gate.id: gate for gate in confirming.gates} if confirming else {}
    wanted = confirming is not None or bool(trouble)
    decided = {f"{g.id}: {g.reason}" for g in first.gates}
    return [_line(gate, again.get(gate.id), trouble, wanted=wanted) for gate in first.gates], [
        r for r in first.why if r not in decided
    ]


def _line(gate: Gate, second: Gate | None, trouble: str, *, wanted: bool) -> GateLine:
    line = GateLine(gate=gate, decision=gate.decision, confirming=second)
    if gate.decision is not Outcome.FAIL:
        return line
    if not wanted:
        return replace(line, standing=AlarmStatus.ALONE)
    said = second.decision if second else None
    if said is Outcome.FAIL:
        return replace(line, standing=AlarmStatus.CONFIRMED, note="confirmed by the second run")
    if said is Outcome.PASS:
        return replace(
            line,
            decision=Outcome.INCONCLUSIVE,
            standing=AlarmStatus.REFUTED,
            note="not confirmed: the second run says pass",
        )
    why = trouble or f"the second run says {said.value if said else 'nothing of it'}"
    return replace(line, decision=Outcome.INCONCLUSIVE, standing=AlarmStatus.UNCONFIRMED, note=f"not confirmed: {why}")


def outcome_of_lines(lines: Sequence[GateLine], missing: Sequence[str], drift: Sequence[Outcome] = ()) -> Outcome:
    """``drift`` are outcomes of drift lines, where those decide anything."""
    outcome = aggregate([*(line.decision for line in lines), *(Outcome.INCONCLUSIVE for _ in missing), *drift])
    return Outcome.INCONCLUSIVE if outcome is Outcome.SKIP else outcome


def drift_of(run: RunSummary, older: Sequence[RunSummary], policy: Policy, rng: np.random.Generator) -> list[Drift]:
    """The run's primary measure, and its rate of calls, against each older baseline, at each suite's own alpha
    (two-sided confidence 1 - 2 alpha).
    """
    found = []
    for side in older:
        for suite, mine in run.suites.items():
            theirs = side.suites.get(suite)
            if mine.kind is not SuiteKind.BENCHMARK or theirs is None:
                continue
            alpha = alpha_of(policy, mine)
            for measure in measures([theirs, mine]):
                if (measure.primary and measure.better) or measure.key == CALL_RATE:
                    pair = compare_pair(0, 1, theirs, mine, measure, rng, 1 - 2 * alpha)
                    shown = _shown(pair)
                    found.append(Drift(suite=suite, baseline=side.run_id, date=side.date, pair=pair, shown=shown))
    return found


def _shown(pair: PairResult) -> bool:
    """With the open samples all on the side that shows nothing."""
    if pair.difference is None:
        return False
    interval = pair.difference.interval
    lost = interval.high < 0 and (pair.best or 0.0) < 0
    # more calls than before are no gain
    more = not pair.measure.better and interval.low > 0 and (pair.worst or 0.0) > 0
    return lost or more


def repeated_drift(first: Sequence[Drift], second: Sequence[Drift]) -> list[Drift]:
    """The drift lines of the run, each with what the second run says of it."""
    again = {(d.suite, d.baseline, d.pair.measure.key): d.shown for d in second}
    return [replace(d, repeated=again.get((d.suite, d.baseline, d.pair.measure.key))) for d in first]


def drift_outcomes(drift: Sequence[Drift], *, wanted: bool) -> list[Outcome]:
    """Of the drift that is shown: FAIL, unless a second measurement was ``wanted`` and does not repeat it."""
    return [Outcome.FAIL if d.repeated or not wanted else Outcome.INCONCLUSIVE for d in drift if d.shown]


def false_alarms(policy: Policy, run: RunSummary, *, gated: Sequence[str], drift: Sequence[Drift] = ()) -> FalseAlarms:
    """Alarms expected in 100 nights on which nothing changed, over the benchmark gates that ran, service levels and,
    where they fail the night, ``drift`` lines. Contract cases are no draws of chance and add none."""
    designs = {name: _design(run.suites[name]) for name in gated if name in run.suites and run.suites[name].cases}
    alone = (policy.model_copy(update={"benchmark": (entry,)}) for entry in policy.benchmark)
    chances = [forecast(one, designs).false_alarms / 100 for one in alone]
    chances += [policy.alpha] * len(policy.service_level)
    chances += [alpha_of(policy, run.suites[d.suite]) * (1 if d.pair.measure.better else 2) for d in drift]
    return FalseAlarms(first=100 * sum(chances), confirmed=100 * sum(map(repeated_alarm, chances)))


def alpha_of(policy: Policy, suite: SuiteResult) -> float:
    entry = policy.benchmark_for(suite.id, suite.primary.metric if suite.primary else "", primary=True)
    return (entry.alpha if entry else None) or policy.alpha


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


def answer_changes(found: Comparison) -> tuple[list[DiscordantCase], list[DiscordantCase]]:
    """Of a comparison (baseline, run): benchmark cases that are worse now, and those that are better; the largest
    change first.
    """
    rows = sorted((row for row in found.discordant if row.change), key=lambda row: -abs(row.change))
    return [row for row in rows if row.change < 0], [row for row in rows if row.change > 0]
