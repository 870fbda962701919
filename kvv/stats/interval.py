"""Intervals of one proportion or one mean.

Proportions: Wilson (1927) for display, Clopper and Pearson (1934) for gates, because it never under-covers.
Means of dependent samples: the clustered standard error of Miller (arXiv:2411.00640, equation 5) with the small-sample
factor G/(G-1) of Cameron and Miller (2015), which makes it the ordinary standard error when every cluster has
one sample, and a t quantile with G-1 degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from kvv.stats.special import betaincinv, ndtri, stdtrit


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A two-sided interval; ``low`` <= ``high``."""

    low: float
    high: float

    @property
    def pair(self) -> tuple[float, float]:
        return (self.low, self.high)

    @property
    def width(self) -> float:
        return self.high - self.low


def normal_quantile(probability: float) -> float:
    return float(ndtri(probability))


def t_quantile(probability: float, df: float) -> float:
    return float(stdtrit(df, probability))


def _check_counts(successes: float, n: float) -> None:
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} is no proportion")


def wilson(successes: float, n: float, confidence: float = 0.95) -> Interval:
    """Wilson's score interval. Counts may be fractional (an effective sample size); n > 0 or ValueError."""
    _check_counts(successes, n)
    z = normal_quantile(0.5 + confidence / 2)
    p = successes / n
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / scale
    # at the ends the formula is exact and only rounding could step outside or miss the end
    return Interval(
        low=0.0 if successes == 0 else max(0.0, centre - half), high=1.0 if successes == n else min(1.0, centre + half)
    )


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """The exact interval from beta quantiles; n > 0 or ValueError."""
    _check_counts(successes, n)
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, n - successes + 1, tail))
    high = 1.0 if successes == n else float(betaincinv(successes + 1, n - successes, 1 - tail))
    return Interval(low=low, high=high)


def exact_upper(failures: int, n: int, confidence: float = 0.95) -> float:
    """One-sided exact upper limit of a failure rate; with no failure in n it is 1 - (1 - confidence)^(1/n), about 3/n
    at 95 %.
    """
    _check_counts(failures, n)
    return 1.0 if failures == n else float(betaincinv(failures + 1, n - failures, confidence))


def exact_lower(successes: int, n: int, confidence: float = 0.95) -> float:
    """One-sided exact lower limit of a success rate."""
    return 1.0 - exact_upper(n - successes, n, confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSum:
    """One cluster's number of samples and their sum."""

    n: int
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteredMean:
    """``se`` is None with fewer than two clusters: one cluster says nothing about how clusters differ."""

    mean: float
    se: float | None
    n: int
    clusters: int

    def interval(self, confidence: float = 0.95) -> Interval | None:
        """The t interval with clusters - 1 degrees of freedom, unclipped; None where there is no standard error."""
        if self.se is None:
            return None
        half = t_quantile(0.5 + confidence / 2, self.clusters - 1) * self.se
        return Interval(low=self.mean - half, high=self.mean + half)


def clustered_mean(clusters: Iterable[ClusterSum]) -> ClusteredMean:
    """The sample mean and its clustered standard error, from one sum per cluster (at least one sample or ValueError).

    sqrt(G/(G-1) * sum over clusters of (total_c - n_c * mean)^2) / n, which is Miller's double sum over the pairs
    inside a cluster, written with sums.
    """
    sums = [c for c in clusters if c.n]
    n = sum(c.n for c in sums)
    if not n:
        raise ValueError("no samples to average")
    mean = math.fsum(c.total for c in sums) / n
    groups = len(sums)
    if groups < 2:
        return ClusteredMean(mean=mean, se=None, n=n, clusters=groups)
    square = math.fsum((c.total - c.n * mean) ** 2 for c in sums)
    return ClusteredMean(mean=mean, se=math.sqrt(groups / (groups - 1) * square) / n, n=n, clusters=groups)
