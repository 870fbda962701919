"""Quantiles of a sample and their distribution-free intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvv.core.lazy import numpy as np
from kvv.stats.special import bdtr


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileEstimate:
    """``low`` and ``high`` are None where so few values cannot bound that side."""

    value: float
    low: float | None
    high: float | None
    n: int


def quantile(values: Sequence[float], q: float, confidence: float = 0.95) -> QuantileEstimate:
    """The sample quantile (linear between order statistics) and the order statistics that cover the true one.

    Each side leaves out at most (1 - confidence) / 2 (David and Nagaraja, Order Statistics, 3rd ed., section 7.1).
    ValueError for no values.
    """
    if not len(values):
        raise ValueError("no values, no quantile")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n, tail = len(ordered), (1 - confidence) / 2
    # X(r) lies above the true quantile only where fewer than r values lie below it, X(s) below it only where s do
    below = bdtr(np.arange(n + 1), n, q)
    low, high = int(np.searchsorted(below, tail)), int(np.searchsorted(below, 1 - tail)) + 1
    return QuantileEstimate(
        value=float(np.quantile(ordered, q)),
        low=float(ordered[low - 1]) if low >= 1 else None,
        high=float(ordered[high - 1]) if high <= n else None,
        n=n,
    )
