"""Before a run: what its gates could see, and the chance that an identical vendor passes them all (for ``kvv
plan``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kvv.cases.suite import ReferenceRun, declared
from kvv.core.lazy import numpy as np
from kvv.decision.benchmark import USUAL_KEYS, WRONG_PASS, reference_scores, too_few
from kvv.decision.f1 import NULL_RESOLUTION
from kvv.profiles.policy import Benchmark, BenchmarkMode, Policy
from kvv.stats.f1 import lost_calls
from kvv.stats.interval import clopper_pearson, normal_quantile, t_quantile
from kvv.stats.power import (
    Design,
    all_pass_probability,
    detectable,
    fail_probability,
    failing_difference,
    parity_chances,
    pass_probability,
    repeats_pass_probability,
    seen_probability,
    visible_loss,
)
from kvv.stats.sequential import look_chances, obrien_fleming
from kvv.stats.special import ndtr

#: official-against-official F1 scatters by about a point at 2,000 prompts (0.7 to 1.0;
#: simulated where a model is in two minds about many prompts: 1.1), by the root of n elsewhere
F1_SD, F1_SD_PROMPTS = 0.011, 2_000
#: what official runs reach against each other (.73 to .86)
F1_USUAL = 0.8
#: standard deviation, by request, of how often the calls of two official runs are made less how often they make each
#: other's, as a share of calls: simulated for models in two minds about many requests, .47 with five runs
AGREEMENT_SD = 0.6
#: standard errors beyond which a margin is as good as certain
FAR = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateForecast:
    """Differences in the metric's own unit. ``margin_needed``: the smallest margin an identical vendor clears with the
    policy's power, of a regression gate the loss that it sees; ``fails_below``: the true difference at which a vendor
    fails with that power; both None for an F1, which needs the official runs: ``lost_calls`` is the share of its calls
    that a vendor leaves out to fail with that power. ``metric``: the policy's, "" for the suite's primary one.

    ``pass_chance`` and ``fail_chance`` are an identical vendor's; ``saved`` the share of the questions that early
    stopping spares it, None where the suite runs on in full. ``too_few``: why this is no gate at that size, "" where it
    is one.
    """

    suite: str
    margin: float
    margin_needed: float | None
    fails_below: float | None
    pass_chance: float
    fail_chance: float
    saved: float | None = None
    too_few: str = ""
    metric: str = ""
    lost_calls: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """``pass_chance`` of the whole policy for an identical vendor, over the gates that are large enough to be one;
    ``false_alarms`` expected in 100 runs over all gates.
    """

    gates: tuple[GateForecast, ...]
    pass_chance: float
    false_alarms: float


def forecast(
    policy: Policy, designs: Mapping[str, Design], looks: Mapping[str, Sequence[float]] | None = None
) -> Forecast:
    """For the suites planned (id -> design); benchmarks of the policy that are not planned are left out.

    ``looks`` gives, for suites that may stop early, the shares of the sample after which they are looked at.
    """
    gates = []
    alarms = 0.0
    for entry in policy.benchmark:
        design = designs.get(entry.suite)
        if design is None:
            continue
        if entry.given:
            # how many samples fulfil it nobody knows before; its value lies near the ceiling, where an identical vendor
            # passes
            alarms += (entry.alpha or policy.alpha) if entry.mode is BenchmarkMode.REGRESSION else 0.0
            continue
        if entry.method == "f1":
            chance = _f1_pass(entry.margin, design.n)
            gates.append(
                GateForecast(
                    suite=entry.suite,
                    margin=entry.margin,
                    margin_needed=None,
                    fails_below=None,
                    pass_chance=chance if f1_resolves(design.n) else 0.0,
                    fail_chance=1 - chance,
                    metric=entry.metric,
                    lost_calls=_f1_lost_calls(entry.margin, design.n, policy.power),
                )
            )
        elif entry.method != "paired":
            gates += _tool_calls(entry, design.n, policy)
        else:
            gates.append(_paired(entry, design, policy, tuple((looks or {}).get(entry.suite, ()))))
    alarms += sum(gate.fail_chance for gate in gates)
    return Forecast(
        gates=tuple(gates),
        pass_chance=all_pass_probability([g.pass_chance for g in gates if not g.too_few]),
        false_alarms=100 * alarms,
    )


def _paired(entry: Benchmark, design: Design, policy: Policy, fractions: tuple[float, ...]) -> GateForecast:
    regression = entry.mode is BenchmarkMode.REGRESSION
    alpha = entry.alpha or policy.alpha
    tail = alpha if regression else _tail(alpha, design.clusters)
    needed = (visible_loss if regression else _clears)(design, alpha=tail, power=policy.power)
    further = needed if regression else failing_difference(design, entry.margin, alpha=tail, power=policy.power)
    few = "" if regression else too_few(design.clusters or design.n, entry.margin, alpha, single=design.exact)
    if regression:
        passes, fails, saved = _regression(entry, design, alpha, policy.power, fractions)
    elif design.exact:
        passes, fails, saved = _exact(entry.margin, design, alpha, fractions)
    else:
        passes, fails, saved = _by_t(entry.margin, design, alpha, fractions)
    return GateForecast(
        suite=entry.suite,
        margin=entry.margin,
        margin_needed=needed,
        fails_below=-(entry.margin + further),
        pass_chance=0.0 if few else passes,
        fail_chance=fails,
        saved=saved if len(fractions) > 1 else None,
        too_few=few,
        metric=entry.metric,
    )


def _clears(design: Design, *, alpha: float, power: float) -> float:
    return detectable(design.se, alpha=alpha, power=power)


def _tail(alpha: float, clusters: int) -> float:
    """The level at which a normal bound is Student's at ``alpha``: few conversations make wide intervals."""
    return alpha if clusters < 2 else float(ndtr(-t_quantile(1 - alpha, clusters - 1)))


#: an identical vendor's chances to pass and to fail, and the share of the questions that it is spared
Chances = tuple[float, float, float]


def _draws() -> np.random.Generator:
    """The forecast of one plan is always the same."""
    return np.random.default_rng(0)


def _exact(margin: float, design: Design, alpha: float, fractions: tuple[float, ...]) -> Chances:
    looked = len(fractions) > 1
    tails = [float(ndtr(-bound)) for bound in obrien_fleming(alpha, fractions)] if looked else [alpha]
    found = parity_chances(design, margin, tails, fractions if looked else (1.0,), _draws())
    return found.passes, found.fails, found.saved


def _by_t(margin: float, design: Design, alpha: float, fractions: tuple[float, ...]) -> Chances:
    fails = fail_probability(design.se, margin, alpha=_tail(alpha, design.clusters))
    if len(fractions) < 2 and design.repeated and design.clusters == design.n:
        return repeats_pass_probability(design, margin, _draws(), alpha=alpha), fails, 0.0
    if len(fractions) < 2:
        return pass_probability(design.se, margin, alpha=alpha, clusters=design.clusters), fails, 0.0
    chances = look_chances(_tail(alpha, design.clusters), fractions, min(FAR, margin / design.se))
    saved = sum((chance.above + chance.below) * (1 - share) for chance, share in zip(chances, fractions, strict=True))
    return sum(chance.above for chance in chances), sum(chance.below for chance in chances), saved


def _regression(entry: Benchmark, design: Design, alpha: float, power: float, fractions: tuple[float, ...]) -> Chances:
    """A regression gate passes at the first look that would have seen the stated loss."""
    reached, wanted = design.reached, entry.detect or 0.0
    if reached is not None and (
        reached < wanted - 1e-9 or (design.single and not entry.margin and 0.5 ** round(reached * design.n) > alpha)
    ):
        return 0.0, alpha, 0.0
    if len(fractions) < 2:
        fails = fail_probability(design.se, entry.margin, alpha=alpha)
        seen = seen_probability(design, wanted, _draws(), alpha=alpha, power=power, wrong=WRONG_PASS)
        return (1 - fails) * seen, fails, 0.0
    drift = min(FAR, entry.margin / design.se) if design.se > 0 else FAR if entry.margin > 0 else 0.0
    fails = sum(chance.below for chance in look_chances(alpha, fractions, drift))
    tails = [float(ndtr(-bound)) for bound in obrien_fleming(alpha, fractions)]
    wrong = [float(ndtr(-bound)) for bound in obrien_fleming(WRONG_PASS, fractions)]
    parts = [
        replace(design, n=max(1, round(share * design.n)), clusters=round(share * design.clusters))
        for share in fractions
    ]
    each = [
        seen_probability(part, wanted, _draws(), alpha=tail, power=power, wrong=level)
        for part, tail, level in zip(parts, tails, wrong, strict=True)
    ]
    # the chance to pass at a look or before it grows with the sample
    by_look = [max(each[: number + 1]) for number in range(len(each))]
    saved = sum(
        (now - before) * (1 - share) for before, now, share in zip([0.0, *by_look], by_look, fractions, strict=False)
    )
    return (1 - fails) * by_look[-1], fails, saved


def _f1_pass(margin: float, prompts: int) -> float:
    """An identical vendor is one more draw of the official null: below its 1 % quantile by ``margin`` or it passes."""
    return float(ndtr(-normal_quantile(0.01) + margin / _f1_sd(prompts)))


def _f1_lost_calls(margin: float, prompts: int, power: float) -> float:
    sd = _f1_sd(prompts)
    return lost_calls(F1_USUAL, F1_USUAL - margin - (normal_quantile(0.99) + normal_quantile(power)) * sd)


def _tool_calls(entry: Benchmark, prompts: int, policy: Policy) -> list[GateForecast]:
    """An identical vendor refuses what the official endpoint refuses: its gate on refusals passes where the requests
    are enough to say so, and never fails."""
    alpha = entry.alpha or policy.alpha
    if entry.method == "refusals":
        enough = clopper_pearson(0, prompts, 1 - 2 * alpha).high < entry.margin if prompts else False
        return [] if enough else [_open(entry)]
    se = AGREEMENT_SD / math.sqrt(prompts)
    z = normal_quantile(1 - alpha)
    needed = (z + normal_quantile(policy.power)) * se
    return [
        GateForecast(
            suite=entry.suite,
            metric=entry.metric,
            margin=entry.margin,
            margin_needed=needed,
            fails_below=-(entry.margin + needed),
            pass_chance=float(ndtr(entry.margin / se - z)),
            fail_chance=float(ndtr(-entry.margin / se - z)),
        )
    ]


def _open(entry: Benchmark) -> GateForecast:
    """A gate that as few requests as planned leave open."""
    return GateForecast(
        suite=entry.suite,
        metric=entry.metric,
        margin=entry.margin,
        margin_needed=None,
        fails_below=None,
        pass_chance=0.0,
        fail_chance=0.0,
    )


def f1_resolves(prompts: int) -> bool:
    """Whether the official runs' own scatter is narrow enough at this number of requests for an F1 to be decided."""
    return -normal_quantile(0.01) * _f1_sd(prompts) <= NULL_RESOLUTION


def _f1_sd(prompts: int) -> float:
    return F1_SD * math.sqrt(F1_SD_PROMPTS / prompts)


# --- designs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """``observed``: the scatter is that of the official runs given, no assumption. ``ratio``: its standard deviation
    over the one assumed without them, 1 where it is assumed.
    """

    design: Design
    observed: bool
    ratio: float = 1.0


def expected_design(
    suite: str, *, cases: int, samples: float, clusters: int, references: Sequence[ReferenceRun], key: str = ""
) -> Expected:
    """``cases`` questions with ``samples`` each, in ``clusters`` groups that depend on each other, against these
    references; without one, against a single official run that asked as often."""
    found = [score for score in reference_scores(references, key or _key(references)).values() if score.n]
    repeated = [score.variance * score.n for score in found if score.n > 1]
    k_reference = sum(score.n for score in found) / len(found) if found else samples
    # that no two official runs ever differed is no proof that they never do
    spread = max(sum(repeated), 0.5) / len(repeated) if repeated else declared(suite).spread
    graded = declared(suite).graded or not all(score.binary for score in found)
    exact = samples == 1 and not graded
    design = Design(
        n=cases,
        sigma2=spread,
        k_vendor=samples,
        k_reference=k_reference,
        clusters=0 if exact else clusters,
        reached=sum(score.mean for score in found) / len(found) if found else None,
    )
    ratio = math.sqrt(spread / declared(suite).spread)
    return Expected(design=design, observed=bool(repeated), ratio=ratio)


def _key(references: Sequence[ReferenceRun]) -> str:
    names = {name for run in references for values in run.cases.values() for sample in values for name in sample}
    return next((name for name in (*USUAL_KEYS, *sorted(names)) if name in names), "")
