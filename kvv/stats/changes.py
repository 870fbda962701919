"""Where a series of nightly values changed: Pettitt's rank test (Applied Statistics 28, 1979), its p-value by
permutation, its repeats by binary segmentation (Vostrikova, Soviet Math. Dokl. 24, 1981).

Ranks, because one broken night must not hide a change nor make one; permutation, because nights are few and values tie.
Values must be exchangeable while nothing changes: a slow drift is found as steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.stats import rankdata, ttest_ind

from kvv.core.lazy import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


#: chance of a change point in one look at a series in which nothing changed
ALPHA = 0.01
DRAWS = 1_999
#: values on each side of a change; with fewer than ten values in all, no order of them is rare enough for ALPHA
LEAST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """``index`` is the first value after the change. ``difference`` is the mean after less the mean before, over the
    neighbouring segments of ``n_before`` and ``n_after`` values, with Welch's 95 % interval (None where a side does not
    vary at all)."""

    index: int
    p: float
    before: float
    after: float
    n_before: int
    n_after: int
    low: float | None
    high: float | None

    @property
    def difference(self) -> float:
        return self.after - self.before


def change_points(values: Sequence[float], rng: np.random.Generator, *, alpha: float = ALPHA) -> list[ChangePoint]:
    """In order of time; deterministic for a given ``rng`` state."""
    series = np.asarray(values, dtype=np.float64)
    found: list[tuple[int, float]] = []
    _segment(series, 0, len(series), rng, alpha, found)
    found.sort()
    ends = [0, *(index for index, _ in found), len(series)]
    return [
        _change(series[ends[i] : index], series[index : ends[i + 2]], index, p) for i, (index, p) in enumerate(found)
    ]


def _segment(
    series: Floats, start: int, end: int, rng: np.random.Generator, alpha: float, found: list[tuple[int, float]]
) -> None:
    part = series[start:end]
    if len(part) < 2 * LEAST:
        return
    position, p = pettitt(part, rng)
    if p > alpha:
        return
    found.append((start + position, p))
    _segment(series, start, start + position, rng, alpha, found)
    _segment(series, start + position, end, rng, alpha, found)


def pettitt(values: Floats, rng: np.random.Generator) -> tuple[int, float]:
    """The most likely number of values before a change, and the permutation p-value of there being one."""
    centred = rankdata(values) - (len(values) + 1) / 2
    if not np.any(centred):
        return len(values) // 2, 1.0
    sums = _cumulated(centred[None, :])[0]
    largest = float(sums.max())
    shuffled = rng.permuted(np.broadcast_to(centred, (DRAWS, len(centred))), axis=1)
    # the series itself is one of the orders; a tolerance, because sums of midranks are halves
    reached = int((_cumulated(shuffled).max(axis=1) >= largest - 1e-9).sum())
    return int(sums.argmax()) + LEAST, (1 + reached) / (1 + DRAWS)


def _cumulated(centred: Floats) -> Floats:
    """|U_t| / 2 for t from LEAST to n - LEAST."""
    n = centred.shape[1]
    return np.asarray(np.abs(np.cumsum(centred, axis=1))[:, LEAST - 1 : n - LEAST], dtype=np.float64)


def _change(before: Floats, after: Floats, index: int, p: float) -> ChangePoint:
    low = high = None
    if np.ptp(before) > 0 and np.ptp(after) > 0:
        interval = ttest_ind(after, before, equal_var=False).confidence_interval(0.95)
        low, high = float(interval.low), float(interval.high)
    return ChangePoint(
        index=index,
        p=p,
        before=float(before.mean()),
        after=float(after.mean()),
        n_before=len(before),
        n_after=len(after),
        low=low,
        high=high,
    )
