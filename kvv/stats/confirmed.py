"""How often a second measurement repeats an alarm that means nothing."""

from __future__ import annotations

import math

from kvv.stats.interval import normal_quantile
from kvv.stats.special import ndtr, owens_t


def repeated_alarm(alarm: float, correlation: float = 0.5) -> float:
    """The chance that two measurements both alarm, each with probability ``alarm``, when nothing changed.

    Two runs set against the same baseline share its luck: their differences from it correlate by 1/2 where all three
    scatter alike. The upper quadrant of the bivariate normal by Owen's T (Annals of Mathematical Statistics 27, 1956).
    """
    if not 0 < alarm < 1:
        return alarm
    h = normal_quantile(1 - alarm)
    return max(0.0, float(ndtr(-h) - 2 * owens_t(h, math.sqrt((1 - correlation) / (1 + correlation)))))
