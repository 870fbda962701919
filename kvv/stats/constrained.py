"""The mean of per-question differences: a test and an interval exact in their sum, for any number of references.

Tango's idea (Statistics in Medicine 17, 1998) without its two limits, one sample a side and the normal approximation.
Under the hypothesis that the mean difference is mu, the differences seen get the most likely probabilities that have
this mean (a multinomial under a constraint; with one right-or-wrong sample a side its probability of a loss is Tango's
q). What these leave over falls to a whole question lost, or gained, even where none was seen. The p-value is the
probability of the sum seen, or of one further off, in as many draws, by the sum's characteristic function. Against a
reference without an error that is the exact binomial test. ``bench/verdicts.py`` simulates its error rate.
"""

from __future__ import annotations

from math import ceil, log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvv.stats.interval import Interval
from kvv.stats.special import ndtri

Floats = NDArray[np.float64]

#: differences are counted in steps of one part of so many: the first of which all are multiples, else rounded to the
#: last
GRIDS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 30, 32, 60, 64, 96, 120, 128, 160, 240)
#: standard deviations of the sum beyond which no probability is left
FAR = 8.0
#: numbers held at once
ROOM = 4_000_000


def grid_of(differences: ArrayLike) -> int:
    values = np.asarray(differences, dtype=np.float64)
    return next((g for g in GRIDS if np.abs(values * g - np.round(values * g)).max(initial=0) < 1e-6), GRIDS[-1])


def tabulated(differences: ArrayLike) -> tuple[Floats, Floats, int]:
    """How often each difference was seen, the differences in steps (rising; -1 and 1 are always among them), and the
    steps in 1.
    """
    grid = grid_of(differences)
    steps, seen = np.unique(
        np.append(np.round(np.asarray(differences, dtype=np.float64) * grid), (-grid, grid)), return_counts=True
    )
    counts: Floats = seen.astype(np.float64)
    counts[[0, -1]] -= 1
    return counts, steps.astype(np.float64), grid


def constrained(counts: Floats, values: Floats, mu: Floats) -> Floats:
    """The most likely probabilities of ``values`` with the mean ``mu`` (strictly between -1 and 1), row by row.

    ``counts``: rows x cells; ``values``: one for each cell, rising from -1 to 1; ``mu``: one for each row.
    """
    gap = values[None, :] - mu[:, None]
    share = counts / counts.sum(axis=1, keepdims=True)
    above = (share * gap).sum(axis=1) > 0
    # weights 1/(1 + lam gap): lam reaches from 0 to where the far end's own weight is free
    low = np.where(above, 0.0, -1 / (1 - mu))
    high = np.where(above, 1 / (1 + mu), 0.0)
    for _ in range(50):
        lam = (low + high) / 2
        rising = (share * gap / (1 + lam[:, None] * gap)).sum(axis=1) > 0
        low, high = np.where(rising, lam, low), np.where(rising, high, lam)
    weights = np.minimum(share / np.maximum(1 + (low + high)[:, None] / 2 * gap, 1e-12), 1.0)
    weights[np.arange(len(weights)), np.where(above, 0, len(values) - 1)] += np.maximum(1 - weights.sum(axis=1), 0.0)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)


def mean_p(counts: Floats, steps: Floats, grid: int, mu: ArrayLike) -> Floats:
    """P-values, row by row, against "the mean difference is ``mu`` or less": small where the sum seen lies above it.

    Arguments as ``tabulated`` gives them, with a row of counts for each table; ``mu`` one number or one for each row.
    """
    counts = np.atleast_2d(counts)
    mu = np.broadcast_to(np.clip(np.asarray(mu, dtype=np.float64), -1 + 1e-9, 1 - 1e-9), (len(counts),))
    n = counts.sum(axis=1)
    chances = constrained(counts, steps / grid, mu)
    mean = n * mu * grid
    spread = np.sqrt(n * np.maximum(chances @ steps**2 - (mu * grid) ** 2, 0.0))
    above = np.round(counts @ steps) - mean
    # a sum seen further off than that has no probability beside the others
    size = 2 ** ceil(log2(2 * (FAR * float(spread.max()) + 2 * grid)))
    found = np.empty(len(counts))
    many = max(1, ROOM // size)
    for first in range(0, len(counts), many):
        part = slice(first, first + many)
        one = np.zeros((len(counts[part]), size))
        one[:, steps.astype(np.int64) % size] = chances[part]
        sums = np.fft.irfft(np.fft.rfft(one, axis=1) ** n[part, None], size, axis=1)
        # the sums lie around their mean, modulo ``size``: from the one seen to half a turn above the mean
        offset = (np.arange(size)[None, :] - mean[part, None] + size / 2) % size - size / 2
        found[part] = np.where(offset >= above[part, None] - 0.5, sums, 0.0).sum(axis=1)
    return np.clip(found, 0.0, 1.0)


def mean_p_below(counts: Floats, steps: Floats, grid: int, mu: ArrayLike) -> Floats:
    """As ``mean_p``, against "the mean difference is ``mu`` or more"."""
    return mean_p(np.atleast_2d(counts)[:, ::-1], -steps[::-1], grid, -np.asarray(mu, dtype=np.float64))


def mean_z(differences: ArrayLike, mu: float) -> float:
    """How far the mean seen lies above ``mu``, as the standard normal value with the same p-value."""
    counts, steps, grid = tabulated(differences)
    if float(counts @ steps) >= mu * grid * float(counts.sum()):
        return -float(ndtri(max(float(mean_p(counts, steps, grid, mu)[0]), 1e-300)))
    return float(ndtri(max(float(mean_p_below(counts, steps, grid, mu)[0]), 1e-300)))


def mean_interval(differences: ArrayLike, confidence: float) -> Interval:
    """Every mean that neither test rejects at half of what ``confidence`` leaves; at least one difference."""
    counts, steps, grid = tabulated(differences)
    alpha = (1 - confidence) / 2
    return Interval(low=_least(counts, steps, grid, alpha), high=-_least(counts[::-1], -steps[::-1], grid, alpha))


def _least(counts: Floats, steps: Floats, grid: int, alpha: float) -> float:
    """The lower limit, by narrowing it to a sixteenth five times."""
    low, high = -1.0, float(counts @ steps) / float(counts.sum()) / grid
    if high <= -1.0:
        return -1.0
    for _ in range(5):
        mu = np.linspace(low, high, 17)[1:-1]
        rejected = mean_p(np.broadcast_to(counts, (len(mu), len(counts))), steps, grid, mu) <= alpha
        first = int(np.argmin(rejected)) if not rejected.all() else len(mu)
        low, high = (low, mu[0]) if first == 0 else (mu[first - 1], mu[first] if first < len(mu) else high)
    return float(low)
