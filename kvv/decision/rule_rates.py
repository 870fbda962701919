"""Passive rules as rates: in how many of all answers a rule objected, by workload, against a bound. Pure.

Contract traffic provokes each feature a few times on purpose, so that what happens twice there is the endpoint's way.
A benchmark or an agent asks thousands of times: there only a share says whether one broken answer is an accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvv.core import Outcome
from kvv.decision.inputs import CountedFindings, OfficialRates, Workload
from kvv.profiles.policy import Policy
from kvv.stats.interval import clopper_pearson, exact_lower, exact_upper
from kvv.stats.strata import Block, stratified_exact_p

#: begins the ids of rules about what the model itself may do: loops, empty answers, a change of script
MODEL = "heuristic/"
#: answers of the official endpoint below which it is no measure
LEAST_OFFICIAL = 100
#: confidence of the one-sided limits that decide, and of a difference from the official endpoint
CONFIDENCE, ALPHA = 0.95, 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRate:
    """A rule objected to ``objected`` of ``answers`` answers of a workload. ``interval`` is the exact 95 % one of the
    share; ``decision`` is PASS where the share is borne, SKIP where nothing measures it.
    """

    workload: Workload
    objected: int
    answers: int
    interval: tuple[float, float]
    bound: float
    decision: Outcome
    reason: str = ""

    @property
    def sentence(self) -> str:
        """``17 of 1,585 contract answers (0.6 to 1.7 %)``."""
        low, high = self.interval
        of = f"{self.objected:,} of {self.answers:,} {self.workload} answers"
        return f"{of} ({100 * low:.3g} to {100 * high:.3g} %{f'; {self.reason}' if self.reason else ''})"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedFinding:
    """A rule's objections with its rate in each workload where it objected."""

    finding: CountedFindings
    rates: tuple[RuleRate, ...]

    @property
    def decision(self) -> Outcome:
        """FAIL in one workload is FAIL; what cannot be told in one keeps a pass away."""
        outcomes = {rate.decision for rate in self.rates}
        order = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
        return next((outcome for outcome in order if outcome in outcomes), Outcome.SKIP)

    @property
    def share(self) -> str:
        return " and ".join(rate.sentence for rate in self.rates)

    @property
    def sentence(self) -> str:
        """``tools/index in 17 of 1,585 contract answers (0.6 to 1.7 %)``."""
        telling = [rate.sentence for rate in self.rates if rate.decision is self.decision]
        return f"{self.finding.rule} in {' and '.join(telling)}"


def rates_of(
    finding: CountedFindings, answers: Mapping[Workload, int], policy: Policy, official: OfficialRates
) -> tuple[RuleRate, ...]:
    """The rule's rate in each workload where it objected."""
    found = finding.workloads or {Workload.CONTRACT: finding.exchanges}
    return tuple(
        _rate(finding.rule, Workload(workload), count, max(answers.get(Workload(workload), 0), count), policy, official)
        for workload, count in found.items()
    )


def _rate(
    rule: str, workload: Workload, objected: int, answers: int, policy: Policy, official: OfficialRates
) -> RuleRate:
    bound = policy.rules.bound(rule, workload)
    if rule.startswith(MODEL):
        decision, reason = _beside_official(rule, workload, objected, answers, official, policy)
    elif workload is Workload.CONTRACT:
        decision, reason = _repeated(objected, answers, bound)
    else:
        decision, reason = _bounded(objected, answers, bound)
    return RuleRate(
        workload=workload,
        objected=objected,
        answers=answers,
        interval=clopper_pearson(objected, answers).pair,
        bound=bound,
        decision=decision,
        reason=reason,
    )


def _repeated(objected: int, answers: int, bound: float) -> tuple[Outcome, str]:
    if objected < 2:
        return Outcome.INCONCLUSIVE, "did not repeat"
    return (Outcome.FAIL, "") if exact_lower(objected, answers, CONFIDENCE) > bound else (Outcome.PASS, "borne")


def _bounded(objected: int, answers: int, bound: float) -> tuple[Outcome, str]:
    """A single one is no repeated failure. With several the interval decides, and leaves it open where it holds the
    bound."""
    if exact_lower(objected, answers, CONFIDENCE) > bound and objected > 1:
        return Outcome.FAIL, ""
    if objected > 1 and objected > bound * answers and exact_upper(objected, answers, CONFIDENCE) > bound:
        return Outcome.INCONCLUSIVE, f"the policy bears {100 * bound:g} %"
    return Outcome.PASS, f"the policy bears {100 * bound:g} %"


def _beside_official(
    rule: str, workload: Workload, objected: int, answers: int, official: OfficialRates, policy: Policy
) -> tuple[Outcome, str]:
    """What the model does anyway is no vendor's fault: more of it than at the official endpoint is."""
    if workload is Workload.CONTRACT or official.answers < LEAST_OFFICIAL:
        return Outcome.SKIP, "shown only: no official rate to compare with"
    theirs = min(official.objected.get(rule, 0), official.answers)
    share = theirs / official.answers
    block = Block(n=answers + official.answers, hits=objected + theirs, group=answers, group_hits=objected)
    worse = exact_lower(objected, answers, CONFIDENCE) > share + policy.rules.model
    said = f"official {theirs:,} of {official.answers:,}, the policy bears {100 * policy.rules.model:g} % more"
    return (Outcome.FAIL if worse and stratified_exact_p([block]) <= ALPHA else Outcome.PASS), said
