"""What stands beside quality, with intervals: medians by order statistics, means by t, shares by Wilson."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvv.stats import ClusterSum, clustered_mean, wilson
from kvv.stats.quantiles import quantile
from kvv.storage.run_summary import Measured

CONFIDENCE = 0.95


def median(values: Sequence[float]) -> Measured:
    """The median and its distribution-free interval; no interval with fewer than six values, where none covers
    enough."""
    if not len(values):
        return Measured(value=None)
    found = quantile(values, 0.5, CONFIDENCE)
    return Measured(value=found.value, low=found.low, high=found.high, n=found.n)


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
