"""The decision on an F1: against the official runs' own scatter. It is judged once, at the
end: no looks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kvv.cases.suite import ReferenceRun
from kvv.core import Outcome, ReferenceValue, Stat
from kvv.core.lazy import numpy as np
from kvv.decision.inputs import Collector
from kvv.decision.official_calls import official_runs
from kvv.decision.ruling import Ruling, points, size
from kvv.profiles.policy import Benchmark
from kvv.stats.f1 import lost_calls, mean_f1, official_null
from kvv.stats.interval import normal_quantile
from kvv.stats.paired import tango_interval

#: how far below its median the 1 % quantile of the official null may lie before the official runs say too little; five
#: runs of 500 requests, what the nightly tier asks, reach .05 to .06 (bench/verdicts.py)
NULL_RESOLUTION = 0.065
#: official runs whose median F1 against each other lies below this are no runs of one model (simulated: .73 to .86)
LEAST_AGREEMENT = 0.5


def by_f1(
    stat: Stat, entry: Benchmark, references: Sequence[ReferenceRun], collector: Collector, rng: np.random.Generator
) -> Ruling:
    """Fail below the official runs' own 1 % quantile by more than the margin."""
    key = entry.key or entry.metric
    known = collector.tokens.get(stat.suite, {}).get(key, {})
    tokens = {f"{case}#{sample}": value for (case, sample), value in known.items()}
    vendor = {request: None if value is None else value > 0 for request, value in tokens.items()}
    if stat.suite in collector.fixtures and len(references) == 1:
        return Ruling(decision=Outcome.SKIP, reason="not-gated: the shipped data has one official run, an F1 needs two")
    official = official_runs(references, key, tokens)
    runs = [{request: value > 0 for request, value in run.items()} for run in official.runs]
    # a refused request disagrees with whatever the official run did
    values = [
        mean_f1({prompt: not run[prompt] if (yes := vendor[prompt]) is None else yes for prompt in run}, [run])
        for run in runs
    ]
    defined = [f1 for f1 in values if f1 is not None]
    value = sum(defined) / len(defined) if defined else None
    if len(runs) == 1:
        return _by_one_run(runs[0], vendor, value, entry, collector)
    null = official_null(runs, rng)
    method = "F1 against the official-against-official distribution"
    source = ", ".join(dict.fromkeys(official.names[i] for i in official.found.kept))[:200]
    if null is None or value is None:
        return Ruling(
            decision=Outcome.INCONCLUSIVE, reason="f1-undefined: no official run called a tool", method=method
        )
    if null.quantile(0.5) < LEAST_AGREEMENT:
        reason = (
            f"official-runs-disagree: against each other they reach an F1 of {null.quantile(0.5):.4f} only; they are"
            " not of one endpoint"
        )
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=method)
    if min(map(len, runs)) < collector.policy.min_paired * len(vendor):
        return Ruling(
            decision=Outcome.INCONCLUSIVE,
            reason=f"reference-too-small: a run knows {min(map(len, runs))} of {len(vendor)} answers",
            method=method,
        )
    reference = ReferenceValue(value=null.quantile(0.5), n=sum(map(len, runs)), kind="per-case", source=source)
    floor = null.quantile(0.01)
    bar = floor - entry.margin
    slack = (
        stat.estimate or 0.0,
        stat.worst_case if stat.worst_case is not None else 0.0,
        stat.best_case if stat.best_case is not None else 1.0,
    )
    worst, best = value - (slack[0] - slack[1]), value + (slack[2] - slack[0])
    measured = (
        f"F1 {value:.4f}, official against official {reference.value:.4f} with 1 % quantile {floor:.4f} ({null.runs}"
        f" runs), margin {entry.margin:g}"
    )
    least = lost_calls(reference.value, bar - normal_quantile(collector.policy.power) * null.spread)
    seen = (
        f"a vendor that leaves out {100 * least:.1f} % of its calls fails with {100 * collector.policy.power:.0f} %"
        f" power{official.words}"
    )
    if best < bar:
        return Ruling(
            decision=Outcome.FAIL,
            reason=f"below-official-scatter: {measured}{official.words}",
            method=method,
            reference=reference,
        )
    if not official.found.alike:
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=official.disagreement, method=method, reference=reference)
    if reference.value - floor > NULL_RESOLUTION:
        n = min(map(len, runs))
        need = math.ceil(n * ((reference.value - floor) / NULL_RESOLUTION) ** 2) - n
        reason = f"official-scatter-too-wide: {measured}; about {need} more requests in every run would settle it"
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=method, reference=reference)
    if worst >= bar:
        degraded = best < floor
        return Ruling(
            decision=Outcome.PASS,
            reason=f"within-official-scatter: {measured}; {seen}",
            method=method,
            degraded=degraded,
            reference=reference,
        )
    reason = f"cannot-tell: {measured}; answers to the {stat.n_inconclusive} open samples would settle it; {seen}"
    return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=method, reference=reference)


def _by_one_run(
    run: Mapping[str, bool],
    vendor: Mapping[str, bool | None],
    value: float | None,
    entry: Benchmark,
    collector: Collector,
) -> Ruling:
    """One official run says nothing of its own scatter, so that its F1 decides nothing. A shifted rate of calls shows
    all the same.
    """
    method = "paired difference of the trigger rates (Tango) against one official run"
    more = sum(yes is True and not run[prompt] for prompt, yes in vendor.items() if prompt in run)
    fewer = sum(yes is False and run[prompt] for prompt, yes in vendor.items() if prompt in run)
    alpha = entry.alpha or collector.policy.alpha
    shown = "undefined" if value is None else f"{value:.4f}"
    if more + fewer:
        shift = tango_interval(more, fewer, len(run), 1 - 2 * alpha)
        measured = (
            f"calls gained on {more} and lost on {fewer} of {len(run)} requests, F1 {shown}, margin"
            f" {size(entry.margin)}"
        )
        if shift.low > entry.margin or shift.high < -entry.margin:
            span = f"{points(shift.low)} to {points(shift.high)}"
            return Ruling(
                decision=Outcome.FAIL, reason=f"trigger-rate-shifted: {measured}, interval {span}", method=method
            )
    wanted = "a second official run (--reference twice; for kvv gate, a second accepted baseline)"
    reason = f"one-official-run: F1 {shown}, and its scatter is unknown; an F1 needs {wanted}"
    return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=method)
