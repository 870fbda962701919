"""What a planned run could decide: by benchmark and for the whole policy (for ``kvv plan``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvv.cases.suite import SuiteKind
from kvv.decision import Forecast, GateForecast, expected_design, f1_resolves, forecast
from kvv.execution.preparation import generator_for
from kvv.planning.config import RunConfig
from kvv.planning.interim_plan import obstacle, plan_looks
from kvv.planning.plan import PlannedSuite
from kvv.planning.run_plan import RunPlan
from kvv.profiles.policy import Benchmark, BenchmarkMode
from kvv.stats.power import Design, visible_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerForecast:
    """``undecided``: gated suite -> why it can come to no decision as it is asked; the forecast is what it would be
    without that.

    ``observed``: suites whose scatter the references show, and how many times the assumed one it is.
    """

    found: Forecast
    undecided: dict[str, str]
    observed: dict[str, float]

    @property
    def pass_chance(self) -> float:
        """That an identical vendor passes as the run is asked."""
        return 0.0 if self.undecided else self.found.pass_chance


def forecast_power(job: RunPlan) -> PowerForecast | None:
    """None where the run asks no benchmark that its policy gates, or where our own endpoint's count is the gate."""
    planned = {item.suite.id: item for item in job.plan.suites if item.suite.kind is SuiteKind.BENCHMARK and item.cases}
    entries = [entry for entry in job.policy.benchmark if entry.suite in planned and not entry.given]
    if not entries or job.in_process:
        return None
    # several entries of one suite: the design is that of the first, the others have their own spread
    expected = {entry.suite: _expected(planned[entry.suite], entry) for entry in reversed(entries)}
    looks = {
        suite: plan_looks(item, job.policy.looks, generator_for(job.config.seed, suite)).fractions
        for suite, item in planned.items()
        if job.config.early_stop and not obstacle(item, job.policy)
    }
    found = forecast(job.policy, {suite: one.design for suite, one in expected.items()}, looks)
    small = {gate.suite: gate.too_few for gate in found.gates if gate.too_few}
    whys = {
        entry.suite: _undecided(planned[entry.suite], entry, job.config) or small.get(entry.suite) for entry in entries
    }
    return PowerForecast(
        found=found,
        undecided={suite: why for suite, why in whys.items() if why},
        observed={suite: one.ratio for suite, one in expected.items() if one.observed},
    )


def _expected(item: PlannedSuite, entry: Benchmark | None) -> Any:
    clusters = len({case.cluster or case.id for case in item.cases})
    key = entry.key if entry else ""
    references = item.context.references
    return expected_design(
        item.suite.id,
        cases=len(item.cases),
        samples=item.n / len(item.cases),
        clusters=clusters,
        references=references,
        key=key,
    )


def _undecided(item: PlannedSuite, entry: Benchmark, config: RunConfig) -> str:
    runs = len([run for run in item.context.references if run.cases]) + bool(config.reference_base_url)
    if not runs:
        return "no --reference FILE"
    # fewer official runs than the other gates on tool calls need leave those out
    if entry.method != "f1":
        return ""
    if runs < 2:
        shipped = item.context.dataset is not None and item.context.dataset.fixture
        return f"{'the shipped data has ' if shipped else ''}one official run, an F1 needs two"
    return "" if f1_resolves(len(item.cases)) else f"{len(item.cases)} requests are too few for an F1"


def detectable(item: PlannedSuite, job: RunPlan) -> float | None:
    """The loss that shows with the policy's power at its alpha, against the references given or one official run as
    large; None for an F1.
    """
    entry = job.policy.benchmark_for(item.suite.id, "", primary=True)
    if item.suite.kind is not SuiteKind.BENCHMARK or not item.cases or (entry is not None and entry.method == "f1"):
        return None
    design: Design = _expected(item, entry).design
    return round(
        visible_loss(design, alpha=(entry.alpha if entry else None) or job.policy.alpha, power=job.policy.power), 4
    )


def facts(job: RunPlan) -> dict[str, Any] | None:
    """For ``kvv plan --json``; differences in the metric's own unit, chances from 0 to 1."""
    seen = forecast_power(job)
    if seen is None:
        return None
    return {
        "policy": job.policy.name,
        "pass_chance": seen.pass_chance,
        "pass_chance_if_decided": seen.found.pass_chance,
        "false_alarms_per_100": seen.found.false_alarms,
        "undecided": seen.undecided,
        "questions_saved": _saved(job, seen.found),
        "gates": [
            {
                "suite": gate.suite,
                "metric": gate.metric,
                "margin": gate.margin,
                "margin_needed": gate.margin_needed,
                "fails_below": gate.fails_below,
                "lost_calls": gate.lost_calls,
                "pass_chance": gate.pass_chance,
                "saved": gate.saved,
                "too_few": gate.too_few,
                "scatter": "observed" if gate.suite in seen.observed else "assumed",
                "scatter_ratio": seen.observed.get(gate.suite),
            }
            for gate in seen.found.gates
        ],
    }


def lines(job: RunPlan) -> Iterator[str]:
    """For people: the whole policy first, then a line a gate."""
    seen = forecast_power(job)
    if seen is None:
        return
    found, many = seen.found, sum(not gate.too_few for gate in seen.found.gates)
    gates = f"its {many} benchmark gates" if many > 1 else "its benchmark gate"
    chance = (
        f"an identical vendor passes {gates} in {_per_100(found.pass_chance)} of 100 runs and is failed in"
        f" {_per_100(found.false_alarms / 100)}"
    )
    if seen.undecided:
        lacking = "; ".join(f"{suite}: {why}" for suite, why in seen.undecided.items())
        were = f"; were it, {chance}" if many else ""
        yield f"  policy {job.policy.name}: as asked, quality is not decided ({lacking}){were}"
    else:
        yield f"  policy {job.policy.name}: {chance}"
    for gate in found.gates:
        name = f"{gate.suite} {gate.metric}".strip()
        yield f"    {name}: {_gate(job, gate, observed=seen.observed.get(gate.suite))}"
    saved = _saved(job, found)
    if saved is not None:
        yield f"  early stop: an identical vendor is spared about {100 * saved:.0f} % of the benchmarks' questions"


def _gate(job: RunPlan, gate: GateForecast, *, observed: float | None) -> str:
    if gate.too_few:
        return f"reported, not gated: {gate.too_few}"
    named = (gate.suite, gate.metric)
    entry = next(entry for entry in job.policy.benchmark if (entry.suite, entry.metric) == named)
    passes = f"an identical vendor passes in {_per_100(gate.pass_chance)} of 100 runs"
    power = f"{100 * job.policy.power:.0f} %"
    if gate.fails_below is None or gate.margin_needed is None:
        if gate.lost_calls is None:
            return f"margin {_points(gate.margin)}; these few requests cannot show that none is refused on one side"
        return (
            f"margin {gate.margin:g} below the official runs' scatter; {passes}, one that leaves out"
            f" {100 * gate.lost_calls:.0f} % of its calls fails with {power} power (scatter assumed)"
        )
    scatter = "scatter assumed"
    if observed is not None:
        scatter = f"scatter of the official runs, {observed:.2g} times the assumed one"
    if entry.mode is BenchmarkMode.REGRESSION:
        text = (
            f"sees a loss of {_points(gate.margin_needed)} with {power} power, wanted {_points(entry.detect or 0.0)};"
            f" {passes}"
        )
    else:
        text = (
            f"margin {_points(gate.margin)}; {passes}, one {_points(-gate.fails_below)} worse fails with {power} power"
        )
    spared = "" if gate.saved is None else f", is spared {100 * gate.saved:.0f} % of it"
    return f"{text}{spared} ({scatter})"


def _saved(job: RunPlan, found: Forecast) -> float | None:
    """Of all benchmark samples of the run; None where nothing may stop early."""
    planned = {item.suite.id: item.n for item in job.plan.suites if item.suite.kind is SuiteKind.BENCHMARK}
    saved = {gate.suite: gate.saved for gate in found.gates if gate.saved is not None}
    return sum(share * planned[suite] for suite, share in saved.items()) / sum(planned.values()) if saved else None


def _per_100(chance: float) -> str:
    """``97.2``; no rounding to what is not sure."""
    hundred = 100 * chance
    return (
        f"{hundred:.1f}"
        if 0.05 <= hundred <= 99.95
        else "under 0.1"
        if 0 < hundred < 0.05
        else "over 99.9"
        if 99.95 < hundred < 100
        else f"{hundred:.0f}"
    )


def _points(difference: float) -> str:
    return f"{100 * difference:.1f} points"
