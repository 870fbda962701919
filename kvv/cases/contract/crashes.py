"""A crash three times of three is the request's doing only where requests do not crash anyway.

A case judges its own replies (``kvv.cases.contract.steps``). Over a network that drops one request in three, three
crashes in a row come by chance too, so the whole run's crash rate decides at the end whether such a verdict stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvv.cases.contract.steps import CRASHES
from kvv.core import Outcome, Verdict

REPRODUCIBLE = "reproducible-"
#: verdicts by chance that a run may be expected to hold, over all its contract cases
BY_CHANCE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashRate:
    """Over the contract cases of a run: ``cases`` asked, and of the requests of those that crashed not every time, how
    many crashed.
    """

    cases: int = 0
    asked: int = 0
    crashed: int = 0

    @staticmethod
    def of(verdicts: Iterable[Verdict]) -> CrashRate:
        cases = asked = crashed = 0
        for verdict in verdicts:
            tried = int(verdict.facts.get("asked", 0))
            cases += tried > 0
            if not verdict.reason.startswith(REPRODUCIBLE):
                asked += tried
                crashed += int(verdict.facts.get("crashed", 0))
        return CrashRate(cases=cases, asked=asked, crashed=crashed)

    @property
    def by_chance(self) -> float:
        """How many cases are expected to crash three times of three if each request crashes at the rate of the
        others.
        """
        return self.cases * (self.crashed / self.asked) ** CRASHES if self.asked else 0.0

    def weighed(self, verdict: Verdict) -> Verdict:
        """The verdict, INCONCLUSIVE where it names a crash that the run's ordinary trouble explains as well."""
        if (
            verdict.outcome is not Outcome.FAIL
            or not verdict.reason.startswith(REPRODUCIBLE)
            or self.by_chance <= BY_CHANCE
        ):
            return verdict
        crash = verdict.reason.removeprefix(REPRODUCIBLE)
        detail = (
            f"{verdict.detail}; but {self.crashed} of {self.asked} requests of other cases crashed too, so that chance"
            " explains it"
        )
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=f"crash-by-chance-{crash}", detail=detail[:500])
