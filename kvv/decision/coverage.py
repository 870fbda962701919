"""How much of each contract area was looked at: an area is kept only where the policy's minimum was. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvv.core import Area

#: how the reason begins of a case that another kind of endpoint is asked
ELSEWHERE = "not asked of the surface "
#: reasons that one sentence names
NAMED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaCoverage:
    """Of ``planned`` cases of an area that this kind of endpoint can be asked, ``asked`` were (the others were
    ``skipped``, by reason) and ``concluded`` got a verdict. ``minimum`` is the share that the policy wants.
    """

    planned: int
    asked: int
    concluded: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    minimum: float = 0.0

    @property
    def enough(self) -> bool:
        return self.concluded >= self.minimum * self.planned

    @property
    def sentence(self) -> str:
        """``38 of 224 cases asked, skipped: 186 (the profile glm-4.6 does not claim required)``; "" where all were."""
        if not self.skipped:
            return ""
        ordered = Counter(self.skipped).most_common()
        named = ", ".join(f"{count} ({reason[:160]})" for reason, count in ordered[:NAMED])
        more = sum(count for _, count in ordered[NAMED:])
        return f"{self.asked} of {self.planned} cases asked, skipped: {named}" + (
            f", {more} for others" if more else ""
        )


@dataclass(slots=True)
class CoverageTally:
    """Counts one area's cases."""

    planned: int = 0
    asked: int = 0
    concluded: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, *, skipped: str = "", concluded: bool = False) -> None:
        """One case: why it was skipped, or whether it came to a verdict."""
        if skipped.startswith(ELSEWHERE):
            return
        self.planned += 1
        self.asked += not skipped
        self.concluded += concluded
        if skipped:
            self.skipped[skipped] += 1

    def against(self, minimum: float) -> AreaCoverage:
        return AreaCoverage(
            planned=self.planned,
            asked=self.asked,
            concluded=self.concluded,
            skipped=dict(self.skipped.most_common()),
            minimum=minimum,
        )


def too_little(area: Area, found: AreaCoverage) -> str:
    """Why an area of which nothing is wrong is not kept."""
    wanted = f"{found.concluded} of {found.planned} cases concluded, the policy wants {100 * found.minimum:g} %"
    return f"too-little-asked: {wanted}; {found.sentence or f'{found.asked} asked'}; {_remedy(area, found)}"


def _remedy(area: Area, found: AreaCoverage) -> str:
    if any("does not claim" in reason for reason in found.skipped):
        return f"a profile that claims it (--profile FILE) would have it asked, or a lower coverage.areas.{area.value}"
    return f"kvv resume asks what is open, or the policy a lower coverage.areas.{area.value}"
