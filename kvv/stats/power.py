"""What a run can see: detectable differences, sample sizes, the chance that an identical vendor passes.

Differences have variance (omega^2 + sigma_v^2/K_v + sigma_r^2/K_r)/n: omega^2 is the spread of true per-question
differences (0 for an identical vendor), sigma^2 the variance of one sample of one question, K the samples a side.
For one binary sample of accuracy p whose two sides correlate by rho, sigma^2 =
p(1-p)(1-rho).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvv.core.lazy import numpy as np
from kvv.stats.constrained import mean_p, mean_p_below
from kvv.stats.interval import normal_quantile, t_quantile
from kvv.stats.rerun import lost_variance, visible_pairs, visible_repeats
from kvv.stats.special import bdtr, chdtr, nctdtr, ndtr, pdtr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: the mean score of a reference that is not known before
EXPECTED_SCORE = 0.9
#: simulated runs of a forecast: its chances are right to half a point
DRAWS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A planned comparison: ``n`` questions, ``k_vendor`` and ``k_reference`` samples of each.

    ``sigma2`` is the variance of one sample of one question around that question's mean; ``omega2`` the variance of
    true differences between questions. ``k_reference`` inf stands for a reference that is known exactly. ``clusters``:
    the number of groups of questions that a t interval rests on, 0 for one that is no t interval. ``reached``: the mean
    score of the reference, None where it is not known before.
    """

    n: int
    sigma2: float
    k_vendor: float = 1
    k_reference: float = 1
    omega2: float = 0.0
    clusters: int = 0
    reached: float | None = None

    @property
    def single(self) -> bool:
        """One right-or-wrong sample a side."""
        return not self.clusters and self.k_vendor == self.k_reference == 1

    @property
    def exact(self) -> bool:
        """One right-or-wrong sample of the vendor: the exact sum is compared (``kvv.stats.constrained``)."""
        return not self.clusters and self.k_vendor == 1

    @property
    def repeated(self) -> bool:
        """Both sides have repeats."""
        return round(self.k_vendor) > 1 and round(min(self.k_reference, 2)) > 1

    @property
    def se(self) -> float:
        return math.sqrt((self.omega2 + self.sigma2 / self.k_vendor + self.sigma2 / self.k_reference) / self.n)


def binary_design(n: int, accuracy: float, rho: float, *, k_vendor: float = 1, k_reference: float = 1) -> Design:
    """A design for right/wrong answers; ``rho`` is the correlation of two runs of the same questions, 0 for unpaired
    samples.
    """
    return Design(n=n, sigma2=accuracy * (1 - accuracy) * (1 - rho), k_vendor=k_vendor, k_reference=k_reference)


def detectable(se: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The margin that an identical vendor clears with this power, equally the loss below 0 that is found with it."""
    return (normal_quantile(1 - alpha) + normal_quantile(power)) * se


def required_n(design: Design, margin: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Questions needed for ``detectable`` to be ``margin``; the design's own ``n`` is not used."""
    if margin <= 0:
        raise ValueError(f"margin {margin} is not positive")
    z = normal_quantile(1 - alpha) + normal_quantile(power)
    return math.ceil(z * z * design.se**2 * design.n / margin**2)


def pass_probability(
    se: float, margin: float, *, true_difference: float = 0.0, alpha: float = 0.05, clusters: int = 0
) -> float:
    """The chance that the lower limit lies above -``margin`` when the vendor's true difference is ``true_difference``.

    By Student's t over so many ``clusters``, whose standard error is itself a draw; 0: by the normal distribution.
    """
    if se <= 0:
        return float(true_difference > -margin)
    if clusters == 1:
        return 0.0
    if clusters:
        return 1 - float(nctdtr(clusters - 1, (margin + true_difference) / se, t_quantile(1 - alpha, clusters - 1)))
    return float(ndtr((margin + true_difference) / se - normal_quantile(1 - alpha)))


def visible_loss(design: Design, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The loss that the exact test of a rerun shows with this power, whole questions lost; infinity where not even all
    of them would do.
    """
    if design.single:
        return visible_pairs((design.se * design.n) ** 2, design.n, alpha=alpha, power=power)
    return visible_repeats(
        design.se, design.n, lost_variance(design.k_vendor, design.k_reference), alpha=alpha, power=power
    )


def seen_probability(
    design: Design,
    loss: float,
    rng: np.random.Generator,
    *,
    alpha: float = 0.05,
    power: float = 0.8,
    wrong: float = 0.01,
) -> float:
    """The chance that an identical vendor's answers would have shown ``loss`` with this power and rule it out, but for
    ``wrong``.

    The scatter is itself a draw: of the number of discordant questions for one binary sample a side (Poisson), of the
    answers for repeats (simulated), of the variance of differences otherwise (chi-square).
    """
    z = normal_quantile(1 - wrong)
    if math.isinf(z) or math.isinf(normal_quantile(1 - alpha)):
        return 0.0
    if design.single:
        mean = (design.se * design.n) ** 2 / 2
        counts = np.arange(min(design.n // 2, math.ceil(mean + 8 * math.sqrt(mean) + 8)) + 1)
        chances = np.diff(pdtr(counts, mean), prepend=0.0)
        c, b = (side.reshape(-1) for side in np.meshgrid(counts, counts))
        weights = np.outer(chances, chances).reshape(-1)
        c, b, weights = (side[weights > 1e-9] for side in (c, b, weights))
        tables = np.stack([c, design.n - b - c, b], axis=1).astype(np.float64)
        ruled_out = mean_p(tables, np.array([-1.0, 0.0, 1.0]), 1, -loss) <= wrong
        # the more questions differ by chance, the larger the loss that shows
        blind = bisect_left(
            counts, True, key=lambda k: visible_pairs(2 * int(k), design.n, alpha=alpha, power=power) > loss
        )
        return float((weights * (ruled_out & (np.minimum(b, c) < blind))).sum())
    if design.n < 2:
        return 0.0
    lost = lost_variance(design.k_vendor, design.k_reference)
    narrow, wide = 0.0, 1.0
    for _ in range(40):
        se = (narrow + wide) / 2
        narrow, wide = (
            (se, wide) if visible_repeats(se, design.n, lost, alpha=alpha, power=power) <= loss else (narrow, se)
        )
    if design.se <= 0:
        return float(narrow > 0)
    if design.repeated:
        drawn = _repeats(design, rng)
        pairs = 2 * design.n / (1 / design.k_vendor + 1 / design.k_reference)
        half = np.hypot(z * drawn.within, z * z / (pairs + z * z))
        return float(((drawn.within <= narrow) & (drawn.estimate - half > -loss)).mean())
    df = design.n - 1
    # the scatter is narrow enough, and the estimate lies so many standard errors above the loss
    return float(chdtr(df, df * (narrow / design.se) ** 2) * ndtr(loss / design.se - z))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repeats:
    """Of simulated runs of an identical vendor: the difference, its standard errors between questions and within."""

    estimate: Floats
    between: Floats
    within: Floats


def _repeats(design: Design, rng: np.random.Generator) -> _Repeats:
    """Right-or-wrong answers, questions with chances from a beta distribution that leaves the variance ``sigma2``."""
    n, k, other = design.n, round(design.k_vendor), round(min(design.k_reference, 1000))
    mean = EXPECTED_SCORE if design.reached is None else design.reached
    if mean * (1 - mean) <= design.sigma2:
        mean = 0.5
    share = min(max(design.sigma2 / (mean * (1 - mean)), 1e-6), 1 - 1e-6)
    size = share / (1 - share)
    p = rng.beta(mean * size, (1 - mean) * size, (DRAWS, n))
    vendor, reference = rng.binomial(k, p) / k, rng.binomial(other, p) / other
    gaps = vendor - reference
    variance = vendor * (1 - vendor) / (k - 1) + reference * (1 - reference) / (other - 1)
    between = gaps.std(axis=1, ddof=1) / math.sqrt(n) if n > 1 else np.full(DRAWS, math.inf)
    return _Repeats(estimate=gaps.mean(axis=1), between=np.asarray(between), within=np.sqrt(variance.sum(axis=1)) / n)


def repeats_pass_probability(design: Design, margin: float, rng: np.random.Generator, *, alpha: float = 0.05) -> float:
    """The chance that the lower limit of Student's t lies above -``margin`` for an identical vendor, both sides with
    repeats; the standard error is the larger of the two.
    """
    if design.clusters < 2:
        return 0.0
    drawn = _repeats(design, rng)
    half = t_quantile(1 - alpha, design.clusters - 1) * np.maximum(drawn.between, drawn.within)
    return float(((drawn.estimate - half > -margin) & (half > 0)).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityChances:
    """An identical vendor's: to pass, to fail, and the share of the questions that it is spared."""

    passes: float
    fails: float
    saved: float


def parity_chances(
    design: Design, margin: float, tails: Sequence[float], fractions: Sequence[float], rng: np.random.Generator
) -> ParityChances:
    """Of a gate that compares single right-or-wrong answers (``design.clusters`` 0), by ``DRAWS`` simulated runs.

    ``tails``: the one-sided level at each look, taken after ``fractions`` of the questions. So many questions are in
    two minds on both sides, the others settled, that one sample has the variance ``sigma2``.
    """
    k = 1 if math.isinf(design.k_reference) else max(1, round(design.k_reference))
    minds = min(1.0, 4 * design.sigma2)
    # a question in two minds: the vendor's answer less the share of k right answers
    right = np.diff(bdtr(np.arange(k + 1), k, 0.5), prepend=0.0) / 2
    unsettled = np.zeros(2 * k + 1)
    unsettled[k:] += right[::-1]
    unsettled[: k + 1] += right[::-1]
    chances = minds * unsettled
    chances[k] += 1 - minds
    steps = np.arange(-k, k + 1, dtype=np.float64)
    ends = [round(share * design.n) for share in fractions]
    counts = np.zeros((DRAWS, 2 * k + 1))
    running = np.ones(DRAWS, dtype=bool)
    passes = fails = saved = 0.0
    for before, end, tail in zip([0, *ends], ends, tails, strict=False):
        counts = counts + rng.multinomial(end - before, chances / chances.sum(), DRAWS)
        tables, which = np.unique(counts, axis=0, return_inverse=True)
        above = (mean_p(tables, steps, k, -margin) <= tail)[which.reshape(-1)] & running
        below = (mean_p_below(tables, steps, k, -margin) <= tail)[which.reshape(-1)] & running
        passes, fails = passes + above.mean(), fails + below.mean()
        saved += (above | below).mean() * (1 - end / design.n)
        running &= ~(above | below)
    return ParityChances(passes=float(passes), fails=float(fails), saved=float(saved))


def fail_probability(se: float, margin: float, *, true_difference: float = 0.0, alpha: float = 0.05) -> float:
    """The chance that the upper limit lies below -``margin``."""
    if se <= 0:
        return float(true_difference < -margin)
    return float(ndtr((-margin - true_difference) / se - normal_quantile(1 - alpha)))


def failing_difference(design: Design, margin: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """How far below -``margin`` a vendor's true difference must lie to FAIL with this power.

    More than ``detectable``: a loss makes its own spread. It is taken at its worst, whole questions lost, which
    adds omega^2 = D(1-D) to what the interval and the estimate scatter by.
    """
    z = normal_quantile(1 - alpha) + normal_quantile(power)
    low, high = 0.0, 1.0 - margin
    for _ in range(50):
        x = (low + high) / 2
        loss = margin + x
        se = math.sqrt(design.se**2 + loss * (1 - loss) / design.n)
        low, high = (x, high) if x < z * se else (low, x)
    return high


def all_pass_probability(chances: Sequence[float]) -> float:
    """The chance that independent gates all pass: six at 80 % make 26 %."""
    return math.prod(chances)


def more_samples(estimate: float, limit_distance: float, margin: float, n: int) -> int | None:
    """Further samples after which the interval would no longer straddle -``margin``, if the estimate stayed.

    ``limit_distance`` is the half-width towards -margin with n samples; it shrinks with the root of the number. None
    where the estimate stands on the margin and no number would do.
    """
    gap = abs(estimate + margin)
    if gap < 1e-9:
        return None
    return max(1, math.ceil(n * (limit_distance / gap) ** 2) - n)
