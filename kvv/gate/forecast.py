"""Before a run: what its gates could see, and the chance that an identical vendor passes them all (for ``kvv plan``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scipy.special import ndtr

from kvv.policy import Mode, Policy
from kvv.stats.interval import normal_quantile
from kvv.stats.power import Design, all_pass_probability, detectable, fail_probability, failing_difference, pass_probability

#: official-against-official F1 scatters by about a point at 2,000 prompts (statistics.md section 6: 0.7 to 1.0), by the root of n elsewhere
F1_SD, F1_SD_PROMPTS = 0.01, 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GateForecast:
    """Differences in the metric's own unit. ``margin_needed``: the smallest margin an identical vendor clears with the policy's power;
    ``fails_below``: the true difference at which a vendor fails with that power; both None for an F1, which needs the official runs."""

    suite: str
    margin: float
    margin_needed: float | None
    fails_below: float | None
    pass_chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """``pass_chance`` of the whole policy for an identical vendor; ``false_alarms`` expected in 100 runs over all gates."""

    gates: tuple[GateForecast, ...]
    pass_chance: float
    false_alarms: float


def forecast(policy: Policy, designs: Mapping[str, Design]) -> Forecast:
    """For the suites planned (id -> design); benchmarks of the policy that are not planned are left out."""
    gates = []
    alarms = 0.0
    for entry in policy.benchmark:
        design = designs.get(entry.suite)
        if design is None:
            continue
        alpha = entry.alpha or policy.alpha
        if entry.method == "f1":
            chance = _f1_pass(entry.margin, design.n)
            gates.append(GateForecast(suite=entry.suite, margin=entry.margin, margin_needed=None, fails_below=None, pass_chance=chance))
            alarms += 1 - chance
            continue
        needed = detectable(design.se, alpha=alpha, power=policy.power)
        if entry.mode is Mode.REGRESSION:
            chance = 1 - alpha if needed <= (entry.detect or 0.0) else 0.0
            alarms += alpha
        else:
            chance = pass_probability(design.se, entry.margin, alpha=alpha)
            alarms += fail_probability(design.se, entry.margin, alpha=alpha)
        below = -(entry.margin + failing_difference(design, entry.margin, alpha=alpha, power=policy.power))
        gates.append(GateForecast(suite=entry.suite, margin=entry.margin, margin_needed=needed, fails_below=below, pass_chance=chance))
    return Forecast(gates=tuple(gates), pass_chance=all_pass_probability([g.pass_chance for g in gates]), false_alarms=100 * alarms)


def _f1_pass(margin: float, prompts: int) -> float:
    """An identical vendor is one more draw of the official null: below its 1 % quantile by ``margin`` or it passes."""
    sd = F1_SD * (F1_SD_PROMPTS / prompts) ** 0.5
    return float(ndtr(-normal_quantile(0.01) + margin / sd))
