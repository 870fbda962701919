"""O'Brien and Fleming's bounds (Biometrics 35, 1979) for several looks at the same growing Z.

At look k of K, with the share t_k of the planned information in hand, stop when Z >= C / sqrt(t_k). C is found so that
a true boundary case crosses any bound with probability alpha, by numerical integration over the Brownian path
(Armitage, McPherson and Rowe 1969), so that looks need not be equally spaced (BEAM looks by conversation).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from kvv.core.lazy import numpy as np
from kvv.stats.special import ndtr, ndtri

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: grid points of the integration; 401 gives C to four decimals
_GRID = 401


def crossing_probability(constant: float, fractions: Sequence[float]) -> float:
    """The chance that Z at any look passes ``constant``/sqrt(t), when the hypothesis is exactly true (one-sided)."""
    _check(fractions)
    # on the scale of Brownian motion B(t) = Z sqrt(t) the bound is the same at every look
    bound = constant
    floor = -8.0
    grid = np.linspace(floor, bound, _GRID)
    weights = _simpson(grid)
    first = math.sqrt(fractions[0])
    crossed = float(ndtr(-bound / first))
    density = np.exp(-0.5 * (grid / first) ** 2) / (first * math.sqrt(2 * math.pi))
    for before, now in pairwise(fractions):
        step = math.sqrt(now - before)
        mass = density * weights
        crossed += float((mass * ndtr((grid - bound) / step)).sum())
        moves = np.exp(-0.5 * ((grid[:, None] - grid[None, :]) / step) ** 2) / (step * math.sqrt(2 * math.pi))
        density = moves @ mass
    return crossed


@dataclass(frozen=True, slots=True, kw_only=True)
class LookChance:
    """The chances that a look is the first at which Z passes its bound upwards, and downwards."""

    above: float
    below: float


def look_chances(alpha: float, fractions: Sequence[float], drift: float) -> tuple[LookChance, ...]:
    """Where a sample is stopped whose Z has the mean ``drift`` when it is complete: (margin + true difference) /
    standard error.

    What is left of 1 crosses no bound, not even the last one.
    """
    bound = obrien_fleming(alpha, fractions)[-1] * math.sqrt(fractions[-1])
    grid = np.linspace(-bound, bound, _GRID)
    weights = _simpson(grid)
    first, mean = math.sqrt(fractions[0]), drift * fractions[0]
    chances = [LookChance(above=float(ndtr((mean - bound) / first)), below=float(ndtr((-bound - mean) / first)))]
    density = np.exp(-0.5 * ((grid - mean) / first) ** 2) / (first * math.sqrt(2 * math.pi))
    for before, now in pairwise(fractions):
        step, moved = math.sqrt(now - before), drift * (now - before)
        mass = density * weights
        above = float((mass * ndtr((grid + moved - bound) / step)).sum())
        chances.append(LookChance(above=above, below=float((mass * ndtr((-bound - grid - moved) / step)).sum())))
        moves = np.exp(-0.5 * ((grid[:, None] - grid[None, :] - moved) / step) ** 2) / (step * math.sqrt(2 * math.pi))
        density = moves @ mass
    return tuple(chances)


def _simpson(grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights of Simpson's rule on an odd number of equally spaced points."""
    weights = np.full(len(grid), grid[1] - grid[0])
    weights[1:-1:2] *= 4 / 3
    weights[2:-1:2] *= 2 / 3
    weights[[0, -1]] /= 3
    return weights


def _check(fractions: Sequence[float]) -> None:
    rising = all(a < b for a, b in pairwise(fractions))
    if not fractions or fractions[0] <= 0 or not rising or fractions[-1] > 1 + 1e-9:
        raise ValueError(f"looks at {list(fractions)}: shares of the planned sample must rise within (0, 1]")


@cache
def _constant(alpha: float, fractions: tuple[float, ...]) -> float:
    low, high = float(ndtri(1 - alpha)) - 1e-9, float(ndtri(1 - alpha)) + 2.0
    for _ in range(30):
        middle = (low + high) / 2
        if crossing_probability(middle, fractions) > alpha:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def obrien_fleming(alpha: float, fractions: Sequence[float]) -> tuple[float, ...]:
    """One bound for Z per look, one-sided level ``alpha``. Five equal looks at 0.05: 1.751 * sqrt(5/k)."""
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha {alpha} is not between 0 and 0.5")
    _check(fractions)
    constant = _constant(round(alpha, 12), tuple(round(t, 6) for t in fractions))
    return tuple(constant / math.sqrt(t) for t in fractions)


def equal_looks(looks: int) -> tuple[float, ...]:
    return tuple(k / looks for k in range(1, looks + 1))


def bound_confidence(bound: float) -> float:
    """The two-sided confidence whose interval excludes a value exactly when |Z| passes ``bound``."""
    return float(1 - 2 * ndtr(-bound))
