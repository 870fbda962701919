"""What a run can see: detectable differences, sample sizes, the chance that an identical vendor passes.

Differences have variance (omega^2 + sigma_v^2/K_v + sigma_r^2/K_r)/n: omega^2 is the spread of true per-question
differences (0 for an identical vendor), sigma^2 the variance of one sample of one question, K the samples a side
(statistics.md section 4). For one binary sample of accuracy p whose two sides correlate by rho, sigma^2 =
p(1-p)(1-rho).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kvv.core.lazy import numpy as np
from kvv.stats.interval import normal_quantile
from kvv.stats.paired import tango_limits
from kvv.stats.rerun import lost_variance, visible_pairs, visible_repeats
from kvv.stats.special import chdtr, ndtr, pdtr


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A planned comparison: ``n`` questions, ``k_vendor`` and ``k_reference`` samples of each.

    ``sigma2`` is the variance of one sample of one question around that question's mean; ``omega2`` the variance of
    true differences between questions. ``k_reference`` inf stands for a reference that is known exactly. ``clusters``:
    the number of groups of questions that a t interval rests on, 0 for one that is no t interval.
    """

    n: int
    sigma2: float
    k_vendor: float = 1
    k_reference: float = 1
    omega2: float = 0.0
    clusters: int = 0

    @property
    def single(self) -> bool:
        """One right-or-wrong sample a side: Tango's case."""
        return not self.clusters and self.k_vendor == self.k_reference == 1

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


def pass_probability(se: float, margin: float, *, true_difference: float = 0.0, alpha: float = 0.05) -> float:
    """The chance that the lower limit lies above -``margin`` when the vendor's true difference is
    ``true_difference``.
    """
    if se <= 0:
        return float(true_difference > -margin)
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
    design: Design, loss: float, *, alpha: float = 0.05, power: float = 0.8, wrong: float = 0.01
) -> float:
    """The chance that an identical vendor's answers would have shown ``loss`` with this power and rule it out, but for
    ``wrong``.

    The scatter is itself a draw: of the number of discordant questions for one binary sample a side (Poisson), of the
    variance of differences otherwise (chi-square).
    """
    z = normal_quantile(1 - wrong)
    if math.isinf(z) or math.isinf(normal_quantile(1 - alpha)):
        return 0.0
    if design.single:
        mean = (design.se * design.n) ** 2 / 2
        counts = np.arange(min(design.n // 2, math.ceil(mean + 8 * math.sqrt(mean) + 8)) + 1)
        chances = np.diff(pdtr(counts, mean), prepend=0.0)
        b, c = np.meshgrid(counts, counts)
        low, _ = tango_limits(b, c, design.n, z)
        blind = next(
            (k for k in counts if visible_pairs(2 * int(k), design.n, alpha=alpha, power=power) > loss), len(counts)
        )
        return float((np.outer(chances, chances) * ((low > -loss) & (np.minimum(b, c) < blind))).sum())
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
    df = design.n - 1
    # the scatter is narrow enough, and the estimate lies so many standard errors above the loss
    return float(chdtr(df, df * (narrow / design.se) ** 2) * ndtr(loss / design.se - z))


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
