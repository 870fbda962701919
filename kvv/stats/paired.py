"""Vendor against reference on the same questions.

b counts questions that only the vendor got right, c those that only the reference got right, n all of them;
the difference is D = (b - c)/n, positive where the vendor is better.

One binary sample a side: McNemar's test in its mid-p form (Fagerland, Lydersen and Laake, BMC Med. Res. Methodol.
13:91, 2013) and Tango's score method (Statistics in Medicine 17, 1998). Gates use ``paired_difference``: with one
binary sample of the vendor the exact distribution of the sum under Tango's constraint (``kvv.stats.constrained``), for
repeats and scores the mean of per-question differences (Miller, arXiv:2411.00640) with t and Efron's BCa bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvv.core.lazy import numpy as np
from kvv.stats.constrained import mean_interval
from kvv.stats.interval import ClusterSum, Interval, clustered_mean, normal_quantile
from kvv.stats.special import bdtr, gammaln, ndtr, ndtri, stdtr

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

BOOTSTRAP_DRAWS = 10_000


# --- one binary sample a side --------------------------------------------------------------------


def _half_binomial(k: int, m: int) -> float:
    """P(X = k) for X ~ Bin(m, 1/2)."""
    return math.exp(float(gammaln(m + 1) - gammaln(k + 1) - gammaln(m - k + 1)) - m * math.log(2))


def mcnemar_exact(b: int, c: int) -> float:
    """Two-sided exact conditional p-value; 1 with no discordant pair."""
    m = b + c
    return min(1.0, 2 * float(bdtr(min(b, c), m, 0.5))) if m else 1.0


def mcnemar_midp(b: int, c: int) -> float:
    """Two-sided mid-p value: the exact one less the probability of the table seen (half of it on each side)."""
    m = b + c
    if m == 0:
        return 1.0
    if b == c:
        return 1.0 - 0.5 * _half_binomial(b, m)
    return 2 * float(bdtr(min(b, c), m, 0.5)) - _half_binomial(min(b, c), m)


def tango_z(b: ArrayLike, c: ArrayLike, n: ArrayLike, delta: ArrayLike) -> Floats:
    """Tango's score statistic for the hypothesis D = ``delta`` (-1 < delta < 1), elementwise; large where D is above
    it.

    q is the constrained maximum-likelihood estimate of the probability of a c-pair: the larger root of
    A q^2 + B q + C = 0. Where numerator and variance are both 0 the data say nothing, and Z is 0.
    """
    b, c, n, delta = (np.asarray(x, dtype=np.float64) for x in (b, c, n, delta))
    big_a = 2 * n
    big_b = (2 * n - b + c) * delta - b - c
    big_c = -c * delta * (1 - delta)
    q = (np.sqrt(np.maximum(big_b**2 - 4 * big_a * big_c, 0)) - big_b) / (2 * big_a)
    variance = np.maximum(n * (2 * q + delta * (1 - delta)), 0)
    top = b - c - n * delta
    with np.errstate(divide="ignore", invalid="ignore"):
        z = top / np.sqrt(variance)
    return np.where(np.abs(top) <= 1e-12 * n, 0.0, z)


def tango_p(b: int, c: int, n: int, margin: float) -> float:
    """One-sided p-value of non-inferiority: evidence against D <= -``margin``."""
    return float(ndtr(-tango_z(b, c, n, -margin)))


def tango_interval(b: int, c: int, n: int, confidence: float = 0.95) -> Interval:
    """Every D that the score test at this confidence does not reject; n > 0 or ValueError."""
    low, high = tango_limits(b, c, n, normal_quantile(0.5 + confidence / 2))
    return Interval(low=float(low), high=float(high))


def tango_limits(b: ArrayLike, c: ArrayLike, n: ArrayLike, z: float) -> tuple[Floats, Floats]:
    """Limits where ``tango_z`` equals +z and -z, elementwise, by bisection: Z falls as delta rises."""
    b, c, n = (np.asarray(x, dtype=np.float64) for x in (b, c, n))
    if np.any(n <= 0) or np.any(b < 0) or np.any(c < 0) or np.any(b + c > n):
        raise ValueError(f"b={b}, c={c}, n={n} is no paired table")
    estimate = (b - c) / n
    return _bisect(b, c, n, -1.0, estimate, z), _bisect(b, c, n, estimate, 1.0, -z)


def _bisect(b: Floats, c: Floats, n: Floats, low: ArrayLike, high: ArrayLike, target: float) -> Floats:
    lo, hi = np.broadcast_to(low, b.shape).astype(np.float64), np.broadcast_to(high, b.shape).astype(np.float64)
    for _ in range(60):
        middle = (lo + hi) / 2
        above = tango_z(b, c, n, middle) > target
        lo, hi = np.where(above, middle, lo), np.where(above, hi, middle)
    return (lo + hi) / 2


# --- several samples a side, or scores -----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedCase:
    """One question: the mean score of each side. Cases with the same ``cluster`` depend on each other ("": on none).

    ``variance`` is the sampling variance of their difference as far as repeats show it (s^2/K of each side), 0 where
    unknown. ``single``: the vendor gave one answer, and answers are right or wrong.
    """

    vendor: float
    reference: float
    cluster: str = ""
    variance: float = 0.0
    single: bool = False

    @property
    def difference(self) -> float:
        return self.vendor - self.reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The vendor's mean minus the reference's. ``se`` is None where it cannot be known (one cluster)."""

    estimate: float
    se: float | None
    n: int
    clusters: int
    interval: Interval
    method: str


def cluster_differences(cases: Sequence[PairedCase]) -> list[ClusterSum]:
    """Summed differences by cluster; a case without a cluster is one of its own. Order of first appearance."""
    sums: dict[str | int, list[float]] = {}
    for number, case in enumerate(cases):
        row = sums.setdefault(case.cluster or number, [0, 0.0])
        row[0] += 1
        row[1] += case.difference
    return [ClusterSum(n=int(n), total=total) for n, total in sums.values()]


def paired_difference(cases: Sequence[PairedCase], rng: np.random.Generator, confidence: float = 0.95) -> Difference:
    """The mean difference with a two-sided interval; at least one case or ValueError. Scores lie in [0, 1].

    Where cases are ``single``, ``mean_interval``, which is exact where few are lost. It takes the very questions as
    drawn, so that clusters add nothing. Repeats and scores: the outer limits of t and BCa over clusters. The standard
    error is the larger of two: that between questions, and, on these same questions, that of the repeats. Where few
    questions vary at all (AIME) the first is itself a draw of few, and alone covers too little. BCa sees a skewed loss
    (a few questions broken) that t does not; alone it covers too little where most differences are 0, as with AIME (82
    % at nominal 90 % with 30 questions: ``bench/verdicts.py``), so it may widen the t interval but not narrow it. No
    spread at all (every difference equal) is read as that of single samples, never as certainty.
    """
    single = any(case.single for case in cases)
    sums = [ClusterSum(n=1, total=case.difference) for case in cases] if single else cluster_differences(cases)
    mean = clustered_mean(sums)
    repeats = math.sqrt(math.fsum(case.variance for case in cases)) / len(cases)
    if mean.se is not None and repeats > mean.se:
        mean = replace(mean, se=repeats)
    found = mean.interval(confidence)
    if single:
        found, method = mean_interval([case.difference for case in cases], confidence), "paired difference, exact sum"
    elif mean.se is None or found is None:
        found, method = Interval(low=-1.0, high=1.0), "paired difference, one cluster"
    elif mean.se <= 1e-12:
        still = mean_interval([0.0] * mean.clusters, confidence)
        found, method = Interval(low=mean.mean + still.low, high=mean.mean + still.high), "paired difference, no spread"
    else:
        bca = bca_interval(sums, rng, confidence)
        found = Interval(low=min(found.low, bca.low), high=max(found.high, bca.high))
        method = f"paired difference, t and BCa ({BOOTSTRAP_DRAWS} draws)"
    low, high = max(-1.0, found.low), min(1.0, found.high)
    return Difference(
        estimate=mean.mean,
        se=mean.se,
        n=mean.n,
        clusters=mean.clusters,
        interval=Interval(low=low, high=high),
        method=method,
    )


def normal_score(t: float, df: int) -> float:
    """The standard normal value with the same tail as Student's ``t`` with ``df`` degrees of freedom (df > 0)."""
    return math.copysign(-float(ndtri(float(stdtr(df, -abs(t))))), t) if t else 0.0


def bca_interval(
    sums: Sequence[ClusterSum], rng: np.random.Generator, confidence: float = 0.95, draws: int = BOOTSTRAP_DRAWS
) -> Interval:
    """Efron's bias-corrected and accelerated bootstrap interval of total/n, resampling clusters (at least two)."""
    n = np.array([s.n for s in sums], dtype=np.float64)
    totals = np.array([s.total for s in sums], dtype=np.float64)
    groups = len(sums)
    estimate = totals.sum() / n.sum()
    many = max(1, 4_000_000 // groups)
    parts = (rng.integers(0, groups, size=(min(many, draws - first), groups)) for first in range(0, draws, many))
    boot = np.concatenate([totals[drawn].sum(axis=1) / n[drawn].sum(axis=1) for drawn in parts])
    left_out = (totals.sum() - totals) / (n.sum() - n)
    centred = left_out.mean() - left_out
    spread = float((centred**2).sum())
    acceleration = float((centred**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0
    # ties with the estimate count half; a share of 0 or 1 would send the bias to infinity
    below = (float((boot < estimate).mean()) + float((boot <= estimate).mean())) / 2
    bias = float(ndtri(min(max(below, 0.5 / draws), 1 - 0.5 / draws)))
    ends = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        z = bias + normal_quantile(tail)
        ends.append(float(np.quantile(boot, float(ndtr(bias + z / (1 - acceleration * z))))))
    return Interval(low=min(ends), high=max(ends))
