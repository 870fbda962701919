"""Three scores out of one set of judgements.

- ``kvv_score`` (MoonshotAI/Kimi-Vendor-Verifier): each rubric item truncated to an integer, so that 0.5 counts 0; event
ordering is one
  judgement, 1 or nothing.
- ``official_score`` (mohammadtavakoli78/BEAM, what report_results.py averages): the same truncation; event ordering is
tau_norm.
- ``half_credit``: as official, 0.5 kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kvv.cases.judge_prompts import JudgePrompts
from kvv.suites.beam.judging import (
    is_strict,
    item_prompt,
    line_prompt,
    moonshot_score,
    order_prompt,
    read_events,
    read_score,
)
from kvv.suites.beam.ordering import Ordering, align, lines_of, score_order

ORDERING = "event_ordering"
ABSTENTION = "abstention"

#: lines of an answer that the judge is asked about; further ones count as about nothing
JUDGED_LINES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Each from 0 to 1. ``items`` are the judge's own scores, ``ordering`` the official reading of an event
    ordering, ``lenient`` how many replies had to be mended to be read.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("kvv_score", "official_score", "half_credit")

    kvv: float
    official: float
    half_credit: float
    items: tuple[float, ...] = ()
    ordering: Ordering | None = None
    lenient: int = 0

    def values(self) -> dict[str, float]:
        return dict(zip(self.NAMES, (self.kvv, self.official, self.half_credit), strict=True))

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"items": list(self.items)}
        if self.lenient:
            facts["judge_lenient"] = self.lenient
        if self.ordering is not None:
            order = self.ordering
            facts |= {
                "tau_norm": order.tau_norm,
                "f1": order.f1,
                "final_score": order.final_score,
                "tau_defined": order.defined,
            }
            facts["aligned"] = [None if event is None else event + 1 for event in order.aligned[:JUDGED_LINES]]
        return facts


def judge_prompts(
    ability: str, question: str, rubric: Sequence[str], answer: str, own: JudgePrompts | None = None
) -> list[str]:
    """Everything the judge is asked about one answer, in ``own`` words where they are given; [] where no judgement is
    needed.
    """
    if not answer.strip() and ability != ABSTENTION:
        return []
    if ability != ORDERING:
        return [item_prompt(question, item, answer, own) for item in rubric]
    return [order_prompt(question, rubric, answer, own), *(line_prompt(rubric, line) for line in _asked_lines(answer))]


def score(ability: str, rubric: Sequence[str], answer: str, replies: Sequence[str]) -> Scores:
    """``replies`` belong to ``judge_prompts`` of the same arguments, in order. Raises NoJudgement for the first reply
    that is none.
    """
    if ability != ORDERING:
        items = tuple(read_score(reply) for reply in replies) or (0.0,) * len(rubric)
        whole = sum(int(item) for item in items) / len(items)
        lenient = sum(not is_strict(reply) for reply in replies)
        return Scores(kvv=whole, official=whole, half_credit=sum(items) / len(items), items=items, lenient=lenient)
    strict = read_score(replies[0]) if replies else 0.0
    named = iter([read_events(reply, len(rubric)) for reply in replies[1:]])
    lines = lines_of(answer)
    matches = [next(named, frozenset()) if line.strip() else frozenset() for line in lines]
    ordering = score_order(len(rubric), lines, align(matches))
    items = (strict,) if replies else ()
    return Scores(
        kvv=float(strict >= 1.0),
        official=ordering.tau_norm,
        half_credit=ordering.tau_norm,
        items=items,
        ordering=ordering,
        lenient=sum(not is_strict(reply, "events" if place else "score") for place, reply in enumerate(replies)),
    )


def moonshot(ability: str, rubric: Sequence[str], answer: str, replies: Sequence[str]) -> float:
    """KVV's score of the same replies as KVV reads them: it never finds one unreadable, and may be negative."""
    if ability == ORDERING:
        return float(bool(replies) and moonshot_score(replies[0], ordering=True) >= 1.0)
    items = [moonshot_score(reply, ordering=False) for reply in replies] or [0.0] * len(rubric)
    return sum(int(item) for item in items) / len(items)


def _asked_lines(answer: str) -> list[str]:
    return [line for line in lines_of(answer) if line.strip()][:JUDGED_LINES]
