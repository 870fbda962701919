"""Did the answers to these same questions get worse? What a rerun scatters by, and nothing else.

Where nothing changed, the samples of one question are exchangeable between the two sides: each way to divide them is as
likely. The test counts the divisions that leave the vendor no more than it got. With one right-or-wrong sample a side
that is McNemar's exact test, one-sided; with repeats Fisher's exact test by question (its hypergeometric distributions
added up); with one score a side the sign-flip test. How questions or conversations differ from each other does not
enter: nothing is said of other questions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvv.core.lazy import numpy as np
from kvv.stats.interval import Interval, normal_quantile, t_quantile
from kvv.stats.paired import Difference
from kvv.stats.special import bdtr, ndtr, pdtr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: scores are rounded to this part of a point before they are added up: halves, thirds, quarters, fifths and sixths stay
#: exact
GRID = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One side's scores from 0 to 1 of one question: their number (at least 1), sum, and sum of squares."""

    n: int
    total: float
    squares: float

    @property
    def mean(self) -> float:
        return self.total / self.n

    @property
    def variance(self) -> float:
        """Of the mean, from the repeats; 0 with one sample."""
        return max(0.0, self.squares - self.total**2 / self.n) / (self.n - 1) / self.n if self.n > 1 else 0.0

    @property
    def binary(self) -> bool:
        """A score equals its square where it is 0 or 1."""
        return abs(self.total - self.squares) < 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSamples:
    vendor: Samples
    reference: Samples

    @property
    def difference(self) -> float:
        return self.vendor.mean - self.reference.mean


def loss_p(questions: Sequence[QuestionSamples]) -> float:
    """One-sided p-value of "nothing got worse". Exact but for scores between 0 and 1 with repeats, which get the normal
    approximation.
    """
    binary = all(q.vendor.binary and q.reference.binary for q in questions)
    if not binary and not all(q.vendor.n == q.reference.n == 1 for q in questions):
        return _normal_p(questions)
    scale = 1 if binary else GRID
    chances, observed = np.ones(1), 0
    for question in questions:
        found, above = _divided(question, scale)
        chances = np.convolve(chances, found) if binary else _ends(chances, len(found))
        observed += above
    return min(1.0, float(chances[: observed + 1].sum()))


def _divided(question: QuestionSamples, scale: int) -> tuple[Floats, int]:
    """The chances of the vendor's sum under all divisions, from the least possible sum on, and how far above that it
    is.
    """
    n, other = question.vendor.n, question.reference.n
    mine, theirs = round(question.vendor.total * scale), round(question.reference.total * scale)
    if n == other == 1:
        return _ends(np.ones(1), abs(mine - theirs) + 1), mine - min(mine, theirs)
    right = mine + theirs
    least, most = max(0, right - other), min(n, right)
    ways = math.comb(n + other, n)
    return np.array(
        [math.comb(right, k) * math.comb(n + other - right, n - k) / ways for k in range(least, most + 1)]
    ), mine - least


def _ends(chances: Floats, length: int) -> Floats:
    """Convolution with a half at both ends of ``length``."""
    found = np.zeros(len(chances) + length - 1)
    found[: len(chances)] += chances / 2
    found[length - 1 :] += chances / 2
    return found


def _normal_p(questions: Sequence[QuestionSamples]) -> float:
    gap = variance = 0.0
    for q in questions:
        n = q.vendor.n + q.reference.n
        mean = (q.vendor.total + q.reference.total) / n
        spread = max(0.0, q.vendor.squares + q.reference.squares - n * mean**2) / (n - 1)
        gap += q.vendor.total - q.vendor.n * mean
        variance += spread * q.vendor.n * q.reference.n / n
    return float(ndtr(gap / math.sqrt(variance))) if variance > 1e-12 else 1.0


def rerun_difference(questions: Sequence[QuestionSamples], confidence: float) -> Difference:
    """The mean difference with a two-sided interval for these same questions; at least one question or ValueError.

    Its standard error is that of the repeats where both sides repeat every question, else that between questions, which
    is no smaller. That no two samples differed proves no certainty: the width is never below what as many samples
    without a difference leave open.
    """
    if not questions:
        raise ValueError("no question to compare")
    n = len(questions)
    differences = np.array([q.difference for q in questions])
    estimate = float(differences.mean())
    repeated = all(q.vendor.n > 1 and q.reference.n > 1 for q in questions)
    if repeated:
        se, wide = (
            math.sqrt(sum(q.vendor.variance + q.reference.variance for q in questions)) / n,
            normal_quantile(0.5 + confidence / 2),
        )
    elif n > 1:
        se, wide = float(differences.std(ddof=1)) / math.sqrt(n), t_quantile(0.5 + confidence / 2, n - 1)
    else:
        return Difference(
            estimate=estimate, se=None, n=1, clusters=1, interval=Interval(low=-1.0, high=1.0), method="one question"
        )
    z = normal_quantile(0.5 + confidence / 2)
    pairs = 2 * n * n / sum(1 / q.vendor.n + 1 / q.reference.n for q in questions)
    half = math.hypot(wide * se, z * z / (pairs + z * z))
    interval = Interval(low=max(-1.0, estimate - half), high=min(1.0, estimate + half))
    return Difference(
        estimate=estimate,
        se=se,
        n=n,
        clusters=n,
        interval=interval,
        method="difference on the same questions, scatter of reruns",
    )


# --- the loss that would have been seen ------------------------------------------------------------


def visible_in(questions: Sequence[QuestionSamples], *, alpha: float, power: float) -> float:
    """The loss that ``loss_p`` shows at ``alpha`` with this power, by the scatter that these questions would have
    without a loss.

    Repeats show it within each side. With one sample a side it is twice what the rarer direction shows: the other one
    holds the loss. Whole questions lost are taken, no part of the rest. Infinity where not even the loss of everything
    would show.
    """
    n = len(questions)
    differences = np.array([q.difference for q in questions])
    if all(q.vendor.n == q.reference.n == 1 and q.vendor.binary and q.reference.binary for q in questions):
        return visible_pairs(
            2 * min(int((differences > 0).sum()), int((differences < 0).sum())), n, alpha=alpha, power=power
        )
    if all(q.vendor.n > 1 and q.reference.n > 1 for q in questions):
        variance = sum(q.vendor.variance + q.reference.variance for q in questions)
    else:
        variance = 2 * min(
            float((differences[differences > 0] ** 2).sum()), float((differences[differences < 0] ** 2).sum())
        )
    sides = sum(lost_variance(q.vendor.n, q.reference.n) for q in questions) / n
    return visible_repeats(math.sqrt(variance) / n, n, sides, alpha=alpha, power=power)


def lost_variance(n: float, other: float) -> float:
    """What one question that a side always solved and the other never does adds to the test's variance of their
    difference.
    """
    if math.isinf(other):
        return 0.25 / n
    return (1 / n + 1 / other) * 0.25 * (n + other) / (n + other - 1)


def visible_pairs(discordant: float, n: int, *, alpha: float, power: float) -> float:
    """One right-or-wrong sample a side, of which so many differ by chance alone: the exact test's own figure."""
    most = math.ceil(discordant / 2 + 10 * math.sqrt(discordant) + 10)
    gained, lost = np.arange(most + 1), np.arange(n + 1)
    # the fewest losses that are significant beside so many gains; n + 1 where none are
    significant = bdtr(gained[:, None], gained[:, None] + lost[None, :], 0.5) <= alpha
    needed = np.where(significant.any(axis=1), significant.argmax(axis=1), 2 * n)

    def chance(gone: int) -> float:
        mean = discordant / 2 * (1 - gone / n)
        by_gained = np.diff(pdtr(gained, mean), prepend=0.0) if mean > 0 else (gained == 0).astype(np.float64)
        further = needed - gone - 1
        enough = (
            np.where(further < 0, 1.0, 1 - pdtr(np.maximum(further, 0), mean))
            if mean > 0
            else (further < 0).astype(np.float64)
        )
        return float((by_gained * np.where(needed > n, 0.0, enough)).sum())

    low, high = 0, n
    if chance(n) < power:
        return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if chance(middle) >= power else (middle, high)
    return high / n


def visible_repeats(se: float, n: int, lost: float, *, alpha: float, power: float) -> float:
    """By the normal approximation: ``se`` is that of the mean difference without a loss, ``lost`` what
    ``lost_variance`` says.
    """
    z, further = normal_quantile(1 - alpha), normal_quantile(power)

    def seen(loss: float) -> bool:
        rest = se * se * (1 - loss)
        return loss - further * math.sqrt(rest) >= z * math.sqrt(rest + loss * lost / n)

    if not seen(1.0):
        return math.inf
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high
