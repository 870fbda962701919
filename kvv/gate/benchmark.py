"""The decision on one benchmark row (statistics.md sections 1, 3 and 6).

PASS: the lower limit of D = vendor - reference lies above -margin although every open sample is counted as wrong.
FAIL: the upper limit lies below -margin although every open sample is counted as right. Else INCONCLUSIVE.
DEGRADED: a loss is shown, and it is within the margin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvv.gate.inputs import CaseScore, Collector, Evidence, Look
from kvv.model import Area, Gate, Level, Outcome, ReferenceValue, Stat
from kvv.policy import Benchmark, Mode, Policy
from kvv.stats.f1 import mean_f1, official_null
from kvv.stats.interval import normal_quantile
from kvv.stats.paired import Difference, PairedCase, paired_difference, tango_interval
from kvv.stats.power import detectable, more_samples
from kvv.stats.sequential import bound_confidence, equal_looks, obrien_fleming
from kvv.suite import ReferenceRun

#: how far below its median the 1 % quantile of the official null may lie before the official runs say too little
NULL_RESOLUTION = 0.05
#: official runs whose median F1 against each other lies below this are no runs of one model (statistics.md section 6: .73 to .86)
LEAST_AGREEMENT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A decision on a row. ``decision`` SKIP means reported, not gated."""

    decision: Outcome
    reason: str
    method: str = ""
    degraded: bool = False
    reference: ReferenceValue | None = None


def judge_row(stat: Stat, collector: Collector, evidence: Evidence, rng: np.random.Generator) -> tuple[Stat, Gate | None]:
    """The row with reference, margin and verdict filled in, and its gate; None for a row that nothing gates or asks to gate."""
    policy, suite = collector.policy, stat.suite
    entry = policy.benchmark_for(suite, stat.metric, primary=stat.primary)
    count = evidence.server_counts.get(f"{suite}/{stat.metric}", evidence.server_counts.get(suite) if stat.primary else None)
    if entry is None and count is None and not stat.primary:
        return stat, None
    ruling = _errors_first(_ruling(stat, entry, count, collector, evidence, rng), collector.errors.get(suite, 0))
    margin = entry.margin if entry and ruling.reference is not None and ruling.reference.kind != "server-count" else None
    gate = Gate(
        id=f"{suite}/{stat.metric}",
        area=collector.benchmark_area.get(suite, Area.ACCURACY),
        level=Level.MUST,
        decision=ruling.decision,
        reason=ruling.reason,
        method=ruling.method,
        margin=margin,
        degraded=ruling.degraded,
    )
    return replace(stat, reference=ruling.reference or stat.reference, margin=margin, verdict=ruling.decision), gate


def _errors_first(ruling: Ruling, errors: int) -> Ruling:
    """An exception of ours leaves nothing decided but a failure, which stood with it counted as right."""
    if not errors or ruling.decision is Outcome.FAIL:
        return ruling
    return replace(ruling, decision=Outcome.ERROR, reason=f"harness-error: {errors} samples could not be judged ({ruling.reason})", degraded=False)


def _ruling(stat: Stat, entry: Benchmark | None, count: float | None, collector: Collector, evidence: Evidence, rng: np.random.Generator) -> Ruling:
    suite = stat.suite
    if count is not None:
        return _by_server_count(stat, count)
    references = [run for run in evidence.references.get(suite, ()) if run.cases]
    published = evidence.published.get(f"{suite}/{stat.metric}", evidence.published.get(suite) if stat.primary else None)
    if stat.n_planned == 0:
        return Ruling(decision=Outcome.INCONCLUSIVE if entry else Outcome.SKIP, reason="nothing-planned: no samples")
    if entry is None:
        return Ruling(decision=Outcome.SKIP, reason="not-gated: the policy names no margin for it", reference=published)
    if suite in evidence.unfinished:
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=f"reference-stopped: {evidence.unfinished[suite]}")
    if not references and published is None:
        return Ruling(decision=Outcome.SKIP, reason="not-gated: no reference, gate with --reference FILE")
    if suite in evidence.mixed:
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=f"mixed-upstream: {evidence.mixed[suite]}")
    if stat.n_concluded == 0:
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=f"nothing-concluded: none of {stat.n_planned} samples was answered")
    if references and entry.method == "f1":
        return _by_f1(stat, entry, references, collector, rng)
    if published is not None and not references:
        return _by_published_mean(stat, entry, published, collector.policy)
    return _by_cases(stat, entry, references, collector, evidence, rng)


# --- our own endpoint's count ----------------------------------------------------------------------


def _by_server_count(stat: Stat, count: float) -> Ruling:
    reference = ReferenceValue(
        value=count / stat.n_planned if stat.n_planned else 0.0, n=stat.n_planned, kind="server-count", source="reference endpoint"
    )
    method = "equality with the reference endpoint's own count"
    if stat.n_planned == 0 or stat.n_inconclusive:
        reason = f"not-complete: {stat.n_inconclusive} of {stat.n_planned} samples without a conclusion"
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=method, reference=reference)
    # an F1 is no share: its row says how many decisions agree
    hits = float(stat.breakdown.get("agreeing", (stat.estimate or 0.0) * stat.n_concluded))
    same = abs(hits - count) < 1e-6 * max(1.0, count)
    reason = f"server-count-{'equal' if same else 'differs'}: {hits:g} right here, {count:g} counted by the server, n {stat.n_planned}"
    return Ruling(decision=Outcome.PASS if same else Outcome.FAIL, reason=reason, method=method, reference=reference)


# --- a published mean: shows a loss, never parity ----------------------------------------------------


def _by_published_mean(stat: Stat, entry: Benchmark, published: ReferenceValue, policy: Policy) -> Ruling:
    """Two independent samples; the row's own 95 % interval gives its standard error, p(1-p)/n the mean's."""
    alpha = entry.alpha or policy.alpha
    method = "difference from a published mean, unpaired"
    if stat.estimate is None or stat.interval is None or stat.best_case is None:
        return Ruling(decision=Outcome.SKIP, reason="not-gated: no interval for this row", reference=published)
    own = (stat.interval[1] - stat.interval[0]) / (2 * normal_quantile(0.975))
    se = (own**2 + published.value * (1 - published.value) / max(1, published.n)) ** 0.5
    upper = stat.best_case - published.value + normal_quantile(1 - alpha) * se
    gap = stat.estimate - published.value
    against = f"{_points(gap)} against the published {published.value:g} (n {published.n})"
    if upper < -entry.margin:
        return Ruling(
            decision=Outcome.FAIL,
            reason=f"loss-shown: {against}, at most {_points(upper)}, margin {_size(entry.margin)}",
            method=method,
            reference=published,
        )
    reason = f"not-gated: no loss shown, {against}; a published mean cannot prove parity, use --reference FILE"
    return Ruling(decision=Outcome.SKIP, reason=reason, method=method, reference=published)


# --- case by case ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    mean: float
    n: int
    binary: bool
    variance: float


def reference_scores(references: Sequence[ReferenceRun], key: str) -> dict[str, _Reference]:
    """By case, all runs' samples together; a sample without the value had no conclusion and is left out."""
    found: dict[str, list[float]] = {}
    for run in references:
        for case, samples in run.cases.items():
            found.setdefault(case, []).extend(values[key] for values in samples if key in values)
    return {case: _reference(values) for case, values in found.items() if values}


def _reference(values: Sequence[float]) -> _Reference:
    n, mean = len(values), sum(values) / len(values)
    variance = sum((x - mean) ** 2 for x in values) / (n - 1) / n if n > 1 else 0.0
    return _Reference(mean=mean, n=n, binary=all(x in (0.0, 1.0) for x in values), variance=variance)


def _by_cases(
    stat: Stat, entry: Benchmark, references: Sequence[ReferenceRun], collector: Collector, evidence: Evidence, rng: np.random.Generator
) -> Ruling:
    suite, policy = stat.suite, collector.policy
    key = _key(entry, stat, collector.keys(suite))
    if key is None:
        names = ", ".join(collector.keys(suite))
        if not names:
            return Ruling(decision=Outcome.INCONCLUSIVE, reason=f"all-refused: none of {stat.n_planned} requests got an answer to judge")
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=f"no-such-value: the policy's key for {suite}/{stat.metric} is none of {names}")
    known = reference_scores(references, key)
    vendor = collector.case_scores(suite, key, stopped_early=suite in evidence.looks)
    shared = {case: score for case, score in vendor.items() if case in known}
    if len(shared) < policy.min_paired * len(vendor):
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=f"reference-too-small: it knows {len(shared)} of {len(vendor)} cases")
    samples = sum(known[case].n for case in shared)
    value = sum(known[case].mean for case in shared) / len(shared)
    kind = "interleaved" if suite in evidence.interleaved else "per-case"
    source = ", ".join(dict.fromkeys(run.name for run in references))[:200]
    reference = ReferenceValue(value=value, n=samples, kind=kind, source=source)
    confidence = _confidence(entry, policy, evidence.looks.get(suite))
    compare = _Comparison(vendor=shared, reference=known, confidence=confidence, rng=rng)
    return replace(_three_way(entry, compare, policy), reference=reference)


#: what suites call the value of a right answer
USUAL_KEYS = ("correct", "score")


def _key(entry: Benchmark, stat: Stat, keys: Sequence[str]) -> str | None:
    """The policy's key; without one the metric's name, a usual one, or the only value there is."""
    if entry.key:
        return entry.key if entry.key in keys else None
    wanted = (stat.metric, *USUAL_KEYS, *(keys if len(keys) == 1 else ()))
    return next((key for key in wanted if key in keys), None)


def _confidence(entry: Benchmark, policy: Policy, look: Look | None) -> float:
    """Two-sided confidence of the interval: 1 - 2 alpha at a fixed size, wider at a look."""
    alpha = entry.alpha or policy.alpha
    if look is None:
        return 1 - 2 * alpha
    planned = (*look.fractions, *(t for t in equal_looks(policy.looks) if t > look.fractions[-1] + 1e-9))
    return bound_confidence(obrien_fleming(alpha, planned)[len(look.fractions) - 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    vendor: Mapping[str, CaseScore]
    reference: Mapping[str, _Reference]
    confidence: float
    rng: np.random.Generator

    @property
    def single(self) -> bool:
        """One right-or-wrong sample a side: Tango's case."""
        return all(s.n + s.open == 1 and s.binary and self.reference[c].n == 1 and self.reference[c].binary for c, s in self.vendor.items())

    def difference(self, open_as: str) -> Difference:
        """With the open samples left out (""), counted as wrong ("worst") or as right ("best")."""
        cases = []
        clustered = len({s.cluster for s in self.vendor.values() if s.cluster}) < sum(bool(s.cluster) for s in self.vendor.values())
        for case, score in self.vendor.items():
            if open_as == "" and not score.n:
                continue
            value = score.worst if open_as == "worst" else score.best if open_as == "best" else score.mean
            reference = self.reference[case]
            # one sample shows no variance; a side without repeats leaves it unknown
            variance = score.variance + reference.variance if score.n > 1 and reference.n > 1 else 0.0
            cases.append(PairedCase(vendor=value, reference=reference.mean, cluster=score.cluster if clustered else "", variance=variance))
        if not self.single:
            return paired_difference(cases, self.rng, self.confidence)
        b = sum(c.vendor > c.reference for c in cases)
        c = sum(c.vendor < c.reference for c in cases)
        n = len(cases)
        interval = tango_interval(b, c, n, self.confidence)
        d = (b - c) / n
        se = ((b + c - n * d * d) / n**2) ** 0.5
        return Difference(estimate=d, se=se, n=n, clusters=n, interval=interval, method=f"Tango paired score, {b} gained, {c} lost")


def _three_way(entry: Benchmark, compare: _Comparison, policy: Policy) -> Ruling:
    opens = any(s.open for s in compare.vendor.values())
    plain = compare.difference("")
    worst = compare.difference("worst") if opens else plain
    best = compare.difference("best") if opens else plain
    low, high = worst.interval.low, best.interval.high
    interval = f"{100 * compare.confidence:.3g} % interval {_points(low)} to {_points(high)}"
    measured = f"{_points(plain.estimate)} ({interval}), margin {_size(entry.margin)}, {plain.n} cases"
    if high < -entry.margin:
        return Ruling(decision=Outcome.FAIL, reason=f"worse-than-reference: {measured}", method=plain.method)
    if entry.mode is Mode.REGRESSION:
        return _regression(entry, plain, measured, policy)
    if low > -entry.margin:
        degraded = high < 0
        code = "degraded-within-margin" if degraded else "no-worse"
        return Ruling(decision=Outcome.PASS, reason=f"{code}: {measured}", method=plain.method, degraded=degraded)
    return Ruling(
        decision=Outcome.INCONCLUSIVE, reason=f"cannot-tell: {measured}; {_what_would_settle(plain, entry.margin, opens)}", method=plain.method
    )


def _regression(entry: Benchmark, plain: Difference, measured: str, policy: Policy) -> Ruling:
    """No loss was shown. That counts only where the stated loss would have been seen."""
    wanted = entry.detect or 0.0
    alpha = entry.alpha or policy.alpha
    half = plain.interval.width / 2
    # the width serves where the spread is 0 or unknown
    z = normal_quantile(1 - alpha)
    visible = detectable(half / z, alpha=alpha, power=policy.power)
    seen = f"a loss of {_size(visible)} would have been seen with {100 * policy.power:.0f} % power"
    if visible <= wanted:
        return Ruling(decision=Outcome.PASS, reason=f"no-loss-shown: {measured}; {seen}", method=plain.method, degraded=plain.interval.high < 0)
    need = int(np.ceil(plain.n * (visible / wanted) ** 2)) - plain.n
    reason = f"too-small-to-see: {measured}; only {seen}, wanted {_size(wanted)}; about {need} more cases (or as many repeats) would do"
    return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=plain.method)


def _what_would_settle(plain: Difference, margin: float, opens: bool) -> str:
    below = plain.estimate < -margin
    reach = plain.interval.high - plain.estimate if below else plain.estimate - plain.interval.low
    more = more_samples(plain.estimate, reach, margin, plain.n)
    if more is None:
        return "the estimate stands on the margin, no number of samples would settle it"
    if more <= 1 and opens:
        return "answers to the open samples would settle it"
    return f"about {more} more cases (or as many repeats) would settle it"


# --- F1 against official runs ------------------------------------------------------------------------


def _by_f1(stat: Stat, entry: Benchmark, references: Sequence[ReferenceRun], collector: Collector, rng: np.random.Generator) -> Ruling:
    """Fail below the official runs' own 1 % quantile by more than the margin."""
    key = entry.key or entry.metric
    vendor = {f"{case}#{sample}": yes for (case, sample), yes in collector.decisions.get(stat.suite, {}).items()}
    runs = [_asked(run, key, vendor) for run in references]
    # a refused request disagrees with whatever the official run did
    values = [mean_f1({prompt: not run[prompt] if (yes := vendor[prompt]) is None else yes for prompt in run}, [run]) for run in runs]
    defined = [f1 for f1 in values if f1 is not None]
    value = sum(defined) / len(defined) if defined else None
    if len(runs) == 1:
        return _by_one_run(runs[0], vendor, value, entry, collector, fixture=stat.suite in collector.fixtures)
    null = official_null(runs, rng)
    method = "F1 against the official-against-official distribution"
    source = ", ".join(dict.fromkeys(run.name for run in references))[:200]
    if null is None or value is None:
        return Ruling(decision=Outcome.INCONCLUSIVE, reason="f1-undefined: no official run called a tool", method=method)
    if null.quantile(0.5) < LEAST_AGREEMENT:
        reason = f"official-runs-disagree: against each other they reach an F1 of {null.quantile(0.5):.4f} only; they are not of one endpoint"
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=method)
    if min(map(len, runs)) < collector.policy.min_paired * len(vendor):
        return Ruling(
            decision=Outcome.INCONCLUSIVE, reason=f"reference-too-small: a run knows {min(map(len, runs))} of {len(vendor)} answers", method=method
        )
    reference = ReferenceValue(value=null.quantile(0.5), n=sum(map(len, runs)), kind="per-case", source=source)
    floor = null.quantile(0.01)
    bar = floor - entry.margin
    slack = (stat.estimate or 0.0, stat.worst_case if stat.worst_case is not None else 0.0, stat.best_case if stat.best_case is not None else 1.0)
    worst, best = value - (slack[0] - slack[1]), value + (slack[2] - slack[0])
    measured = (
        f"F1 {value:.4f}, official against official {reference.value:.4f} with 1 % quantile {floor:.4f} ({null.runs} runs), margin {entry.margin:g}"
    )
    if best < bar:
        return Ruling(decision=Outcome.FAIL, reason=f"below-official-scatter: {measured}", method=method, reference=reference)
    if reference.value - floor > NULL_RESOLUTION:
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=f"official-scatter-too-wide: {measured}", method=method, reference=reference)
    if worst >= bar:
        degraded = best < floor
        return Ruling(decision=Outcome.PASS, reason=f"within-official-scatter: {measured}", method=method, degraded=degraded, reference=reference)
    return Ruling(decision=Outcome.INCONCLUSIVE, reason=f"cannot-tell: {measured}; too many samples are open", method=method, reference=reference)


def _by_one_run(
    run: Mapping[str, bool], vendor: Mapping[str, bool | None], value: float | None, entry: Benchmark, collector: Collector, *, fixture: bool
) -> Ruling:
    """One official run says nothing of its own scatter, so that its F1 decides nothing. A shifted rate of calls shows all the same."""
    method = "paired difference of the trigger rates (Tango) against one official run"
    if fixture:
        return Ruling(decision=Outcome.SKIP, reason="not-gated: the shipped data has one official run, an F1 needs two")
    more = sum(yes is True and not run[prompt] for prompt, yes in vendor.items() if prompt in run)
    fewer = sum(yes is False and run[prompt] for prompt, yes in vendor.items() if prompt in run)
    alpha = entry.alpha or collector.policy.alpha
    shown = "undefined" if value is None else f"{value:.4f}"
    if more + fewer:
        shift = tango_interval(more, fewer, len(run), 1 - 2 * alpha)
        measured = f"calls gained on {more} and lost on {fewer} of {len(run)} requests, F1 {shown}, margin {_size(entry.margin)}"
        if shift.low > entry.margin or shift.high < -entry.margin:
            span = f"{_points(shift.low)} to {_points(shift.high)}"
            return Ruling(decision=Outcome.FAIL, reason=f"trigger-rate-shifted: {measured}, interval {span}", method=method)
    reason = f"one-official-run: F1 {shown}, and its scatter is unknown; an F1 needs a second official run (--reference twice)"
    return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=method)


def _asked(run: ReferenceRun, key: str, vendor: Mapping[str, bool | None]) -> dict[str, bool]:
    """The official run's decisions on the prompts that the vendor has, sample by sample."""
    every = {f"{case}#{i}": values[key] > 0 for case, samples in run.cases.items() for i, values in enumerate(samples) if key in values}
    return {prompt: yes for prompt, yes in every.items() if prompt in vendor}


def _points(difference: float) -> str:
    return f"{100 * difference:+.2f} points"


def _size(difference: float) -> str:
    return f"{100 * difference:.2f}"
