"""What a ladder of loads showed: figures for each step, its service levels, and the knee.

Pure: the samples of each step come in, decisions go out. Times within a step are seconds from its beginning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from kvv.core import Gate, Outcome
from kvv.decision.service_levels import SERVICE, LatencyTally, Lost, TimedAnswer
from kvv.profiles.policy import LatencyMeasure, Policy
from kvv.rendering.document import Estimate, Unit
from kvv.stats import t_quantile, wilson
from kvv.stats.quantiles import quantile

#: first-token times are shown by prompt tokens that were not cached: below each bound, and above the last
LENGTHS = (4_000, 16_000, 64_000, 256_000)
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
#: parts of a step's window whose rates give the interval of its rate
SLICES = 10
RESAMPLES = 400
#: a load generator that is itself later than this (99th percentile, ms) cannot blame the endpoint for being slow
LATE_MS = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """One request of a step. ``failure`` is "" for a whole answer, else the outcome table's reason; ``unexplained``:
    the network may be its cause. ``known``: the right answer is; ``right`` is None where it is not, or where the answer
    was cut off at the output limit.

    ``rules``: wire rules of level must that objected. ``length``: prompt tokens that were planned.
    """

    kind: str
    workload: str
    length: int
    start_s: float
    end_s: float
    e2e_ms: float = 0.0
    ttft_ms: float | None = None
    itl_ms: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    failure: str = ""
    unexplained: bool = False
    known: bool = False
    right: bool | None = None
    rules: tuple[str, ...] = ()

    @property
    def uncached(self) -> int:
        return max(0, (self.prompt_tokens or self.length) - self.cached_tokens)

    def timed(self) -> TimedAnswer:
        return TimedAnswer(
            prompt_tokens=self.uncached,
            workload=self.workload,
            ttft_ms=self.ttft_ms,
            itl_ms=self.itl_ms,
            e2e_ms=self.e2e_ms,
            right=self.right,
            clean=not self.rules,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStep:
    """``load``: requests at once, or arrivals a second. The window (seconds) excludes warm-up and the emptying at the
    end; ``samples`` are the requests that began in it, ``spans`` (begin, end, output tokens) all that crossed it.

    ``unsent``: arrivals that the client had no room for; ``client_cpu``: the load generator's share of one core;
    ``client_lag_ms``: how late it was at the 99th percentile.
    """

    load: float
    window: tuple[float, float]
    samples: tuple[LoadSample, ...]
    spans: tuple[tuple[float, float, int], ...] = ()
    unsent: int = 0
    client_cpu: float = 0.0
    client_lag_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAnswers:
    """Answers of one kind that were known. ``p`` is the chance of so many wrong ones here if the loads below were no
    better (Fisher's exact test, one-sided), None at the lowest load; ``worse``: that chance is too small to be one.
    """

    kind: str
    wrong: int
    n: int
    p: float | None = None
    worse: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    step: LoadStep
    outcome: Outcome
    gates: tuple[Gate, ...]
    known: tuple[KnownAnswers, ...]
    requests_s: Estimate
    output_tokens_s: Estimate
    goodput: Estimate
    goodput_s: Estimate
    ttft: Mapping[str, Estimate]
    e2e: Mapping[str, Estimate]
    ttft_by_length: Mapping[str, Mapping[str, Estimate]]
    itl_by_workload: Mapping[str, Mapping[str, Estimate]]
    errors: Mapping[str, int]
    fairness: Estimate
    rules: Mapping[str, int]

    @property
    def load(self) -> float:
        return self.step.load

    @property
    def why(self) -> list[tuple[str, str]]:
        """What was missed, or what is open where nothing was: a name and the reason; nothing where all is kept."""
        worse = [
            (one.kind, f"{one.wrong} of {one.n} wrong, more than at lower loads (p {one.p:.2g})")
            for one in self.known
            if one.worse
        ]
        of = {
            outcome: [(gate.id.removeprefix(SERVICE), gate.reason) for gate in self.gates if gate.decision is outcome]
            for outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE)
        }
        unsent = [("arrivals", f"{self.step.unsent} were not sent")] if self.step.unsent else []
        return worse + of[Outcome.FAIL] or unsent + of[Outcome.INCONCLUSIVE]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """``knee``: the highest load that is shown to keep the policy while no lower one misses it; None where none is."""

    steps: tuple[StepResult, ...]
    knee: float | None
    missed: float | None
    outcome: Outcome
    sentence: str


def judge(steps: Sequence[LoadStep], policy: Policy, generator: np.random.Generator, need: float | None) -> LoadResult:
    """Steps of rising load. ``need``: the load that must be kept; without it any load that is kept will do."""
    results: list[StepResult] = []
    for step in steps:
        results.append(_step(step, steps[: len(results)], steps, policy, generator))
    missed = next((one.load for one in results if one.outcome is Outcome.FAIL), None)
    kept = [one.load for one in results if one.outcome is Outcome.PASS and (missed is None or one.load < missed)]
    knee = max(kept, default=None)
    if need is None:
        failed = bool(results) and results[0].outcome is Outcome.FAIL
        outcome = Outcome.PASS if kept else Outcome.FAIL if failed else Outcome.INCONCLUSIVE
    else:
        failed = missed is not None and missed <= need
        enough = knee is not None and knee >= need
        outcome = Outcome.FAIL if failed else Outcome.PASS if enough else Outcome.INCONCLUSIVE
    return LoadResult(
        steps=tuple(results), knee=knee, missed=missed, outcome=outcome, sentence=_sentence(results, knee, missed)
    )


def _sentence(results: Sequence[StepResult], knee: float | None, missed: float | None) -> str:
    if not results:
        return "nothing was measured"
    parts = [f"keeps the policy up to {knee:g}" if knee is not None else "no load is shown to keep the policy"]
    if missed is not None:
        failing = next(one for one in results if one.load == missed)
        parts.append(f"{missed:g} misses {', '.join(name for name, _ in failing.why)}")
    else:
        parts.append(f"none up to {results[-1].load:g} is shown to miss it")
    low = -1.0 if knee is None else knee
    opened = [
        f"{one.load:g}"
        for one in results
        if one.load > low and one.outcome is Outcome.INCONCLUSIVE and (missed is None or one.load < missed)
    ]
    return "; ".join(parts + ([f"not decided at {', '.join(opened)}"] if opened else []))


def _step(
    step: LoadStep,
    earlier: Sequence[LoadStep],
    steps: Sequence[LoadStep],
    policy: Policy,
    generator: np.random.Generator,
) -> StepResult:
    answered = [sample for sample in step.samples if not sample.failure]
    tally = LatencyTally(policy)
    for sample in answered:
        tally.add(sample.timed())
    for sample in step.samples:
        if sample.failure:
            tally.lose(Lost(prompt_tokens=sample.uncached, workload=sample.workload, unexplained=sample.unexplained))
    # a level that nothing of this load falls under says nothing; known answers of which none was judged leave it open
    unjudged = {f"{SERVICE}{level.id}" for level in policy.service_level if level.measure is LatencyMeasure.RIGHT}
    unjudged = unjudged if any(sample.known for sample in answered) else set()
    gates = tuple(
        _fair_to_the_endpoint(gate, step, policy)
        for gate in tally.gates()
        if gate.id in unjudged or not gate.reason.startswith("nothing-measured")
    )
    known = _known(step, earlier, alpha=policy.alpha, tests=max(1, len(_kinds(steps)) * (len(steps) - 1)))
    decisions = {gate.decision for gate in gates}
    if Outcome.FAIL in decisions or any(one.worse for one in known):
        outcome = Outcome.FAIL
    else:
        outcome = Outcome.PASS if decisions == {Outcome.PASS} and not step.unsent else Outcome.INCONCLUSIVE
    good = sum(tally.keeps_all(sample.timed()) for sample in answered)
    share, seconds = share_of(good, len(step.samples)), step.window[1] - step.window[0]
    return StepResult(
        step=step,
        outcome=outcome,
        gates=gates,
        known=known,
        requests_s=_rate(step, lambda tokens: 1.0, Unit.PER_S),
        output_tokens_s=_rate(step, float, Unit.RATE),
        goodput=share,
        goodput_s=_per_second(share, len(step.samples), seconds),
        ttft=_quantiles(sample.ttft_ms for sample in answered),
        e2e=_quantiles(sample.e2e_ms for sample in answered),
        ttft_by_length=_grouped(answered, lambda one: length_group(one.uncached), lambda one: one.ttft_ms),
        itl_by_workload=_grouped(answered, lambda one: one.workload, lambda one: one.itl_ms),
        errors=Counter(sample.failure for sample in step.samples if sample.failure),
        fairness=_fairness(step, steps[0], generator),
        rules=Counter(rule for sample in step.samples for rule in sample.rules),
    )


def _fair_to_the_endpoint(gate: Gate, step: LoadStep, policy: Policy) -> Gate:
    """A missed time is open where the load generator itself was late."""
    timed = {f"{SERVICE}{level.id}" for level in policy.service_level if not level.measure.is_floor}
    if gate.decision is not Outcome.FAIL or gate.id not in timed or step.client_lag_ms <= LATE_MS:
        return gate
    reason = f"cannot-tell: the load generator itself was {step.client_lag_ms:.0f} ms late; {gate.reason}"
    return replace(gate, decision=Outcome.INCONCLUSIVE, reason=reason)


def length_group(tokens: int) -> str:
    """The name of the group that a prompt of so many uncached tokens belongs to."""
    low = 0
    for bound in LENGTHS:
        if tokens < bound:
            return f"{low // 1000}k to {bound // 1000}k" if low else f"under {bound // 1000}k"
        low = bound
    return f"{low // 1000}k and more"


def share_of(part: int, whole: int) -> Estimate:
    """A share with Wilson's interval."""
    if not whole:
        return Estimate(value=None)
    found = wilson(part, whole)
    return Estimate(value=part / whole, low=found.low, high=found.high, n=whole)


def _per_second(share: Estimate, n: int, seconds: float) -> Estimate:
    """A share of n requests as requests a second, its interval that of the share."""
    if share.value is None or share.low is None or share.high is None or seconds <= 0:
        return Estimate(value=None, unit=Unit.PER_S)
    value, low, high = (each * n / seconds for each in (share.value, share.low, share.high))
    return Estimate(value=value, low=low, high=high, n=n, unit=Unit.PER_S)


def _quantiles(values: Iterable[float | None]) -> dict[str, Estimate]:
    known = [value for value in values if value is not None]
    if not known:
        return {}
    found = {name: quantile(known, q) for name, q in QUANTILES.items()}
    return {
        name: Estimate(value=one.value, low=one.low, high=one.high, n=one.n, unit=Unit.MS)
        for name, one in found.items()
    }


def _grouped(
    samples: Sequence[LoadSample], group: Callable[[LoadSample], str], value: Callable[[LoadSample], float | None]
) -> dict[str, dict[str, Estimate]]:
    names = sorted(
        {group(sample) for sample in samples}, key=lambda name: (not name.startswith("under"), len(name), name)
    )
    rows = {name: _quantiles(value(sample) for sample in samples if group(sample) == name) for name in names}
    return {name: row for name, row in rows.items() if row}


def _rate(step: LoadStep, weight: Callable[[int], float], unit: Unit) -> Estimate:
    """A second's worth of whole answers: each counts by the part of its time that lies in the window. Its interval is
    that of the window's slices (batch means, t quantile).
    """
    begin, end = step.window
    edges = np.linspace(begin, end, SLICES + 1)
    if end <= begin or not step.spans:
        return Estimate(value=None, unit=unit)
    starts, ends = (np.array([span[i] for span in step.spans]) for i in (0, 1))
    weights = np.array([weight(span[2]) for span in step.spans]) / np.maximum(ends - starts, 1e-9)
    inside = np.clip(np.minimum(ends[:, None], edges[1:]) - np.maximum(starts[:, None], edges[:-1]), 0, None)
    rates = (weights[:, None] * inside).sum(axis=0) / (edges[1] - edges[0])
    half = t_quantile(0.975, SLICES - 1) * float(rates.std(ddof=1)) / SLICES**0.5
    mean = float(rates.mean())
    return Estimate(value=mean, low=max(0.0, mean - half), high=mean + half, n=len(step.samples), unit=unit)


# --- does it stay right? -----------------------------------------------------------------------------


def _kinds(steps: Sequence[LoadStep]) -> list[str]:
    known = {sample.kind for step in steps for sample in step.samples if sample.right is not None}
    return [*sorted(known), "wire"]


def _counts(kind: str, samples: Iterable[LoadSample]) -> tuple[int, int]:
    """Wrong ones, and all of them."""
    if kind == "wire":
        found = [bool(sample.rules) for sample in samples if not sample.failure]
    else:
        found = [not sample.right for sample in samples if sample.kind == kind and sample.right is not None]
    return sum(found), len(found)


def _known(step: LoadStep, earlier: Sequence[LoadStep], *, alpha: float, tests: int) -> tuple[KnownAnswers, ...]:
    """``alpha`` is shared among all ``tests`` of the ladder, so that one ladder has that chance of a false alarm."""
    rows = []
    for kind in _kinds([step]):
        wrong, n = _counts(kind, step.samples)
        before, m = _counts(kind, (sample for one in earlier for sample in one.samples))
        if not n:
            continue
        p = _fisher_greater(wrong, n, before, m) if m else None
        rows.append(KnownAnswers(kind=kind, wrong=wrong, n=n, p=p, worse=p is not None and p < alpha / tests))
    return tuple(rows)


def _fisher_greater(wrong: int, n: int, before: int, m: int) -> float:
    """P(at least ``wrong`` of the wrong + before fall among the n), hypergeometric: binomials at one p, conditioned."""
    total = wrong + before
    if not wrong:
        return 1.0
    counts = np.arange(max(0, total - m), min(n, total) + 1)
    p = total / (n + m)
    mass = _binomial(counts, n, p) * _binomial(total - counts, m, p)
    return float(mass[counts >= wrong].sum() / mass.sum())


def _binomial(k: NDArray[np.int64], n: int, p: float) -> NDArray[np.float64]:
    if p >= 1:
        return np.where(k == n, 1.0, 0.0)
    return np.asarray(bdtr(k, n, p) - np.where(k > 0, bdtr(np.maximum(k - 1, 0), n, p), 0.0), dtype=np.float64)


# --- are lengths treated alike? ----------------------------------------------------------------------


def _fairness(step: LoadStep, lowest: LoadStep, generator: np.random.Generator) -> Estimate:
    """Jain's index over how many times longer each prompt length takes (median, end to end) than at the lowest load: 1
    where all are slowed alike, 1/k where one of k bears it all. The interval is a percentile bootstrap.
    """
    groups = []
    for length in sorted({sample.length for sample in step.samples}):
        now, then = (
            np.array([one.e2e_ms for one in each.samples if one.length == length and not one.failure])
            for each in (step, lowest)
        )
        if len(now) < 2 or len(then) < 2:
            return Estimate(value=None, unit=Unit.NUMBER)
        groups.append((now, then))
    if len(groups) < 2:
        return Estimate(value=None, unit=Unit.NUMBER)
    value = _jain([float(np.median(now) / np.median(then)) for now, then in groups])
    drawn = np.array(
        [[np.median(generator.choice(part, (RESAMPLES, len(part))), axis=1) for part in group] for group in groups]
    )
    indices = [_jain(each) for each in (drawn[:, 0] / drawn[:, 1]).T]
    low, high = np.quantile(indices, (0.025, 0.975))
    return Estimate(
        value=value,
        low=min(value, float(low)),
        high=max(value, float(high)),
        n=sum(len(now) for now, _ in groups),
        unit=Unit.NUMBER,
    )


def _jain(values: Sequence[float] | NDArray[np.float64]) -> float:
    found = np.asarray(values, dtype=np.float64)
    return float(found.sum() ** 2 / (len(found) * (found**2).sum()))
