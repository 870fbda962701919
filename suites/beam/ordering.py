"""Event ordering as the official code scores it: Kendall's tau-b between the reference order and the answer's lines.

Source: mohammadtavakoli78/BEAM, src/evaluation. Each line of the answer is aligned to the first unused reference event
that the judge calls the same. Over the union of both sides, what one side lacks shares one tie rank behind all others
there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

#: lines of an answer that are looked at; the longest reference has some twenty events
MAX_LINES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """``tau_norm`` is (tau + 1) / 2, ``f1`` of the aligned sets. ``defined`` is false where tau has no value (one
    event, constant ranks): then ``tau_norm`` is 1 for a complete match and else 0, where the official code has NaN."""

    tau_norm: float
    f1: float
    aligned: tuple[int | None, ...]
    defined: bool = True

    @property
    def final_score(self) -> float:
        return self.tau_norm * self.f1


def lines_of(answer: str) -> list[str]:
    """The answer's lines, empty ones included: the official code counts them as events that nobody mentioned."""
    return answer.split("\n")[:MAX_LINES]


def align(matches: Sequence[Collection[int]]) -> tuple[int | None, ...]:
    """For each line the first event (from 0) that the judge named and no earlier line took, or None."""
    used: set[int] = set()
    found: list[int | None] = []
    for named in matches:
        event = min((event for event in named if event not in used), default=None)
        found.append(event)
        if event is not None:
            used.add(event)
    return tuple(found)


def score_order(events: int, lines: Sequence[str], aligned: tuple[int | None, ...]) -> Ordering:
    """``events`` reference events in order, and each line's event. Equal unmatched lines are one."""
    system = list(dict.fromkeys(line if event is None else event for line, event in zip(lines, aligned, strict=True)))
    union = [*range(events), *(item for item in system if isinstance(item, str))]
    behind = len(union) + 1
    place = {item: rank for rank, item in enumerate(system, 1)}
    reference = [item + 1 if isinstance(item, int) else behind for item in union]
    tau = tau_b(reference, [place.get(item, behind) for item in union])
    hits = sum(isinstance(item, int) for item in system)
    precision, recall = (hits / len(system) if system else 0.0), hits / events
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    if tau is None:
        return Ordering(tau_norm=float(precision == recall == 1.0), f1=f1, aligned=aligned, defined=False)
    return Ordering(tau_norm=(tau + 1) / 2, f1=f1, aligned=aligned)


def tau_b(x: Sequence[int], y: Sequence[int]) -> float | None:
    """Kendall's tau-b of two rankings of equal length; None where one of them is constant or there are fewer than
    two.
    """
    pairs = [(_sign(x[i] - x[j]), _sign(y[i] - y[j])) for i in range(len(x)) for j in range(i)]
    untied_x, untied_y = sum(a != 0 for a, _ in pairs), sum(b != 0 for _, b in pairs)
    if not untied_x or not untied_y:
        return None
    return sum(a * b for a, b in pairs) / math.sqrt(untied_x * untied_y)


def _sign(difference: int) -> int:
    return (difference > 0) - (difference < 0)
