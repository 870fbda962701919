"""What stands beside quality, with intervals: medians by order statistics, means by t, shares by Wilson."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scipy.special import bdtr

from kvv.core.lazy import numpy as np
from kvv.stats import ClusterSum, clustered_mean, wilson
from kvv.storage.run_summary import Measured

CONFIDENCE = 0.95


def median(values: Sequence[float]) -> Measured:
    """The median and its distribution-free interval: the closest order statistics x(r), x(n+1-r) that cover it with at
    least 95 % (David and Nagaraja, Order Statistics, 3rd ed., section 7.1). No interval with fewer than six values,
    where none covers enough."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    if not n:
        return Measured(value=None)
    middle = float(np.median(ordered))
    # P(B <= r - 1) for B ~ Bin(n, 1/2) is what each side leaves out
    ranks = np.arange(1, n // 2 + 1)
    usable = ranks[bdtr(ranks - 1, n, 0.5) <= (1 - CONFIDENCE) / 2] if n > 1 else ranks[:0]
    if not len(usable):
        return Measured(value=middle, n=n)
    r = int(usable[-1])
    return Measured(value=middle, low=float(ordered[r - 1]), high=float(ordered[n - r]), n=n)


def mean(values: Iterable[tuple[str, float]]) -> Measured:
    """The mean over samples, clustered by the name each comes with."""
    sums: dict[str, list[float]] = {}
    for name, value in values:
        row = sums.setdefault(name, [0, 0.0])
        row[0] += 1
        row[1] += value
    if not sums:
        return Measured(value=None)
    found = clustered_mean(ClusterSum(n=int(n), total=total) for n, total in sums.values())
    interval = found.interval(CONFIDENCE)
    return Measured(
        value=found.mean,
        low=None if interval is None else max(0.0, interval.low),
        high=interval.high if interval else None,
        n=found.n,
    )


def share(part: int, whole: int) -> Measured:
    if not whole:
        return Measured(value=None)
    found = wilson(part, whole, CONFIDENCE)
    return Measured(value=part / whole, low=found.low, high=found.high, n=whole)
