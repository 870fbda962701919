"""What is decided of a benchmark row, and how differences are written."""

from __future__ import annotations

from dataclasses import dataclass

from kvv.core import InterimResult, Outcome, ReferenceValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A decision on a row. ``decision`` SKIP means reported, not gated."""

    decision: Outcome
    reason: str
    method: str = ""
    degraded: bool = False
    reference: ReferenceValue | None = None
    look: InterimResult | None = None


def points(difference: float) -> str:
    return f"{100 * difference:+.2f} points"


def size(difference: float) -> str:
    return f"{100 * difference:.2f}"


def interim_sentence(look: InterimResult, decision: Outcome) -> str:
    """``stopped at look 2 of 5 for pass: 400 of 1,000 asked``."""
    if not look.stopped:
        return f"none of its {look.of} looks ended it early"
    why = f" for {decision.value}" if decision in (Outcome.PASS, Outcome.FAIL) else ""
    return f"stopped at look {look.number} of {look.of}{why}: {look.asked:,} of {look.planned:,} asked"
