"""Two runs on the same questions: the paired difference of one value, with what is open counted against whoever looks
better.

D is the second run's mean minus the first's. One right-or-wrong sample a side: Tango's interval and McNemar's mid-p
value. Several samples: the mean of per-case differences with t or BCa (kvv.stats.paired), and the exact test stratified
by question. Scores, or questions that depend on each other: the same interval, and t or sign flips by cluster. Samples
are aligned by case and number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import TYPE_CHECKING

from scipy.special import ndtr, stdtr

from kvv.core import Outcome
from kvv.core.lazy import numpy as np
from kvv.stats import Difference, PairedCase, mcnemar_midp, paired_difference, tango_interval
from kvv.stats.paired import cluster_differences
from kvv.storage.run_summary import CaseResult, SampleResult, SuiteResult, SummaryRow

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: what suites call the value of a right answer (the gate's own list is the same)
USUAL_KEYS = ("correct", "score")
#: values whose mean is no quality: more is neither better nor worse
NEUTRAL = frozenset({"triggered", "called"})
CONFIDENCE = 0.95
#: up to so many clusters that differ at all, p is counted out over all sign patterns
EXACT_BELOW = 12
#: samples above which the stratified test takes the normal approximation
NORMAL_ABOVE = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMeasure:
    """One value of a suite's verdicts. ``given``: only samples in which both sides have that value above 0. ``better``:
    more is better.
    """

    key: str
    label: str
    primary: bool = False
    better: bool = True
    given: str = ""


def measures(suites: Sequence[SuiteResult]) -> list[PairMeasure]:
    """What all runs have, the primary one first: shares and scores from 0 to 1.

    Tool calls have no right answer of their own: with official runs at hand the share of decisions that agree with
    them, without one schema validity where both sides called, so that both have the same denominator. A run that
    concluded nothing has no say in it.
    """
    suites = [
        suite for suite in suites if any(sample.values for case in suite.cases.values() for sample in case.samples)
    ] or suites
    keys = [key for key in _keys(suites[0]) if all(key in _keys(suite) for suite in suites[1:])]
    found = []
    if "schema_valid" in keys and "triggered" in keys:
        valid = PairMeasure(
            key="schema_valid", label="schema valid where both call", given="triggered", primary="agreeing" not in keys
        )
        if "agreeing" in keys:
            found.append(PairMeasure(key="agreeing", label="agrees with the official run", primary=True))
        found.append(valid)
        keys = [key for key in keys if key in NEUTRAL]
    else:
        primary = _primary(suites[0].primary, keys)
        if primary is not None:
            found.append(
                PairMeasure(key=primary, label=suites[0].primary.metric if suites[0].primary else primary, primary=True)
            )
        keys = [key for key in keys if key != primary]
    return found + [
        PairMeasure(key=key, label=f"share {key}" if key in NEUTRAL else key, better=key not in NEUTRAL) for key in keys
    ]


def _primary(row: SummaryRow | None, keys: Sequence[str]) -> str | None:
    wanted = (*((row.metric,) if row else ()), *USUAL_KEYS, *(keys if len(keys) == 1 else ()))
    return next((key for key in wanted if key in keys), None)


def _keys(suite: SuiteResult) -> list[str]:
    """Names of values that lie between 0 and 1 in every sample, in order of first appearance."""
    seen: dict[str, bool] = {}
    for case in suite.cases.values():
        for sample in case.samples:
            for key, value in sample.values.items():
                seen[key] = seen.get(key, True) and 0 <= value <= 1
    return [key for key, share in seen.items() if share]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResult:
    """``difference`` is None without a sample that both sides concluded. ``p`` is two-sided, from the test that
    ``test`` names, and counts what is open against the difference seen; ``adjusted`` is Benjamini and Hochberg's.
    ``worst`` and ``best``: D with the open samples all against and all for the second run. ``gained`` and ``lost``:
    cases of which only the second, only the first run is right, or more often right.
    """

    first: int
    second: int
    suite: str
    measure: PairMeasure
    difference: Difference | None
    p: float = 1.0
    adjusted: float = 1.0
    gained: int = 0
    lost: int = 0
    test: str = ""
    samples: int = 0
    open_first: int = 0
    open_second: int = 0
    worst: float | None = None
    best: float | None = None

    @property
    def differs(self) -> bool:
        return self.adjusted <= 1 - CONFIDENCE + 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """The values of one case's samples that count, by side; None is open. ``numbers`` are the samples' own."""

    case: str
    cluster: str
    numbers: tuple[int, ...]
    pairs: tuple[tuple[float | None, float | None], ...]


def align_cases(first: SuiteResult, second: SuiteResult, measure: PairMeasure) -> Iterator[Aligned]:
    for case_id, a in first.cases.items():
        b = second.cases.get(case_id)
        if b is None:
            continue
        both = enumerate(zip(a.samples, b.samples, strict=False))
        kept = [
            (k, x, y)
            for k, (x, y) in both
            if Outcome.SKIP not in (x.outcome, y.outcome) and _given(x, y, measure.given)
        ]
        if kept:
            pairs = tuple((_value(x, measure.key), _value(y, measure.key)) for _, x, y in kept)
            yield Aligned(case=case_id, cluster=a.cluster, numbers=tuple(k for k, _, _ in kept), pairs=pairs)


def _value(sample: SampleResult, key: str) -> float | None:
    """A refused request has no value and is wrong; an answer that could not be judged may still have told this
    value.
    """
    if sample.outcome is Outcome.ERROR:
        return None
    if key in sample.values:
        return sample.values[key] if sample.concluded or key in NEUTRAL else None
    return 0.0 if sample.outcome is Outcome.FAIL else None


def _given(one: SampleResult, other: SampleResult, key: str) -> bool:
    """A sample of which nothing is known stays in: it might have counted. A refused request did not do it."""
    return not key or all(s.values.get(key, float(not s.concluded)) > 0 for s in (one, other))


def compare_pair(
    first: int,
    second: int,
    a: SuiteResult,
    b: SuiteResult,
    measure: PairMeasure,
    rng: np.random.Generator,
    confidence: float = CONFIDENCE,
) -> PairResult:
    rows = list(align_cases(a, b, measure))
    closed = [replace(row, pairs=tuple(pair for pair in row.pairs if None not in pair)) for row in rows]
    closed = [row for row in closed if row.pairs]
    result = PairResult(
        first=first,
        second=second,
        suite=a.id,
        measure=measure,
        difference=None,
        samples=sum(len(row.pairs) for row in closed),
        open_first=sum(x is None for row in rows for x, _ in row.pairs),
        open_second=sum(y is None for row in rows for _, y in row.pairs),
    )
    if not closed:
        return result
    found = _difference(closed, rng, confidence)
    p = _p_value(closed, found)
    is_open = result.open_first + result.open_second > 0
    worst = _mean(_filled(rows, 1.0, 0.0)) if is_open else found.estimate
    best = _mean(_filled(rows, 0.0, 1.0)) if is_open else found.estimate
    if is_open:
        p = max(p, _adverse_p(rows, found, rng, confidence))
    means = [_means(row) for row in closed]
    gained, lost = sum(y > x for x, y in means), sum(y < x for x, y in means)
    return replace(result, difference=found, p=p, test=_test(closed), worst=worst, best=best, gained=gained, lost=lost)


def _adverse_p(rows: Sequence[Aligned], found: Difference, rng: np.random.Generator, confidence: float) -> float:
    """The p-value with every open sample against the difference seen; 1 where that turns its sign."""
    against = _filled(rows, 1.0, 0.0) if found.estimate > 0 else _filled(rows, 0.0, 1.0)
    turned = _difference(against, rng, confidence)
    return _p_value(against, turned) if turned.estimate * found.estimate > 0 else 1.0


def _filled(rows: Sequence[Aligned], first: float, second: float) -> list[Aligned]:
    """With open samples of either side counted as this."""
    return [
        replace(row, pairs=tuple((first if x is None else x, second if y is None else y) for x, y in row.pairs))
        for row in rows
    ]


def _means(row: Aligned) -> tuple[float, float]:
    """Of pairs that are all closed."""
    firsts, seconds = [x for x, _ in row.pairs if x is not None], [y for _, y in row.pairs if y is not None]
    return sum(firsts) / len(firsts), sum(seconds) / len(seconds)


def _mean(rows: Sequence[Aligned]) -> float:
    """Over cases, as the paired difference is."""
    means = [_means(row) for row in rows]
    return sum(y - x for x, y in means) / len(means)


def _single(rows: Sequence[Aligned]) -> bool:
    return all(len(row.pairs) == 1 and set(row.pairs[0]) <= {0.0, 1.0} for row in rows)


def _clustered(rows: Sequence[Aligned]) -> bool:
    """Whether any two cases depend on each other."""
    clusters = [row.cluster for row in rows if row.cluster]
    return len(set(clusters)) < len(clusters)


def _difference(rows: Sequence[Aligned], rng: np.random.Generator, confidence: float) -> Difference:
    clustered = _clustered(rows)
    if _single(rows) and not clustered:
        b, c = _discordant(rows)
        n = len(rows)
        interval = tango_interval(b, c, n, confidence)
        d = (b - c) / n
        se = ((b + c - n * d * d) / n**2) ** 0.5
        return Difference(estimate=d, se=se, n=n, clusters=n, interval=interval, method="Tango paired score")
    cases = [_paired(row, clustered) for row in rows]
    return paired_difference(cases, rng, confidence)


def _paired(row: Aligned, clustered: bool) -> PairedCase:
    first, second = _means(row)
    k = len(row.pairs)
    squares = sum((x - first) ** 2 + (y - second) ** 2 for x, y in row.pairs if x is not None and y is not None)
    variance = squares / (k - 1) / k if k > 1 else 0.0
    return PairedCase(vendor=second, reference=first, cluster=row.cluster if clustered else "", variance=variance)


def _discordant(rows: Sequence[Aligned]) -> tuple[int, int]:
    means = [_means(row) for row in rows]
    return sum(y > x for x, y in means), sum(y < x for x, y in means)


def _p_value(rows: Sequence[Aligned], found: Difference) -> float:
    """Two-sided. Right-or-wrong answers to independent questions: the exact stratified test. Else t with the paired
    standard error, or, where few clusters differ at all and t would promise too much, the exact sign-flip test
    (Fisher's randomisation)."""
    if found.estimate == 0:
        return 1.0
    clustered = _clustered(rows)
    if _binary(rows) and not clustered:
        return stratified_midp(
            [(len(row.pairs), round(sum(y or 0 for _, y in row.pairs)), round(_total(row))) for row in rows]
        )
    sums = cluster_differences([_paired(row, clustered) for row in rows])
    differing = np.array([s.total for s in sums if abs(s.total) > 1e-12], dtype=np.float64)
    if len(differing) <= EXACT_BELOW or found.se is None or found.se <= 1e-12:
        return _sign_flip(differing)
    return float(2 * stdtr(found.clusters - 1, -abs(found.estimate / found.se)))


def _binary(rows: Sequence[Aligned]) -> bool:
    return all(x in (0.0, 1.0) for row in rows for pair in row.pairs for x in pair)


def _test(rows: Sequence[Aligned]) -> str:
    """The name of what ``_p_value`` does."""
    if not _binary(rows) or _clustered(rows):
        return "t, or sign flips where few clusters differ"
    return "McNemar mid-p" if _single(rows) else "exact test stratified by question"


def _total(row: Aligned) -> float:
    return sum((x or 0.0) + (y or 0.0) for x, y in row.pairs)


def stratified_midp(strata: Sequence[tuple[int, int, int]]) -> float:
    """Two-sided mid-p of equal success probabilities on each question, from (k samples a side, successes of one side,
    of both).

    Given a question's successes, how many of them fall to one side is hypergeometric where both sides are equal; the
    sum over questions is compared with its exact distribution (Zelen, Biometrika 58, 1971; Cochran, Mantel and
    Haenszel's test is its normal approximation, used above NORMAL_ABOVE samples). With one sample a side this is
    McNemar's mid-p value.
    """
    told = [(k, b, s) for k, b, s in strata if 0 < s < 2 * k]
    if not told:
        return 1.0
    if sum(k for k, _, _ in told) > NORMAL_ABOVE:
        gap = sum(b - s / 2 for _, b, s in told)
        variance = sum(s * (2 * k - s) / (4 * (2 * k - 1)) for k, _, s in told)
        return min(1.0, 2 * float(ndtr(-abs(gap) / variance**0.5)))
    weights = np.ones(1)
    reached = 0
    for k, b, s in told:
        low = max(0, s - k)
        ways = [comb(s, i) * comb(2 * k - s, k - i) / comb(2 * k, k) for i in range(low, min(k, s) + 1)]
        weights = np.convolve(weights, ways)
        reached += b - low
    here = float(weights[reached]) / 2
    return min(1.0, 2 * min(float(weights[:reached].sum()) + here, float(weights[reached + 1 :].sum()) + here))


def _sign_flip(differences: NDArray[np.float64]) -> float:
    """The share of all 2^m sign patterns whose sum is at least as far from 0; above EXACT_BELOW differences, which then
    are all equal, binomial.
    """
    m = len(differences)
    if m > EXACT_BELOW:
        return mcnemar_midp(int((differences > 0).sum()), int((differences < 0).sum()))
    signs = 1 - 2 * ((np.arange(2**m)[:, None] >> np.arange(m)) & 1)
    return float((np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9).mean())


# --- who cannot be told apart ----------------------------------------------------------------------


def tie_groups(estimates: Sequence[float | None], differing: set[frozenset[int]]) -> list[tuple[int, ...]]:
    """Sets of runs that no shown difference separates, best first; a run may stand in several (Piepho's compact letter
    display, J. Comput. Graph. Stat. 13, 2004: insert and absorb). Runs without an estimate are in none."""
    known = [i for i, value in enumerate(estimates) if value is not None]
    groups = [frozenset(known)] if known else []
    for pair in sorted(differing, key=sorted):
        i, j = sorted(pair)
        split: list[frozenset[int]] = []
        for group in groups:
            split += [group - {i}, group - {j}] if {i, j} <= group else [group]
        groups = [
            g
            for n, g in enumerate(split)
            if g and not any(g < other or (g == other and m < n) for m, other in enumerate(split))
        ]

    def rank(group: frozenset[int]) -> tuple[float, ...]:
        return tuple(sorted(-(estimates[i] or 0.0) for i in group))

    return [tuple(sorted(group, key=lambda i: (-(estimates[i] or 0.0), i))) for group in sorted(groups, key=rank)]


def outcome_of(case: CaseResult) -> Outcome:
    """A contract case's one verdict; of several samples the worst."""
    order = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.SKIP)
    return min((s.outcome for s in case.samples), key=order.index)
