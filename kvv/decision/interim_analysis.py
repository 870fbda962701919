"""Deciding at a look: the same gates as at the end, over what a suite has concluded so far, with the look's bound. No
I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvv.core import Gate, Outcome, Stat
from kvv.core.lazy import numpy as np
from kvv.decision.benchmark import judge_row, row_generators
from kvv.decision.inputs import Collector, DecisionEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimDecision:
    """``decision`` PASS or FAIL stops the suite, INCONCLUSIVE lets it go on. ``rows`` and ``gates`` are those that the
    policy gates.
    """

    decision: Outcome
    rows: tuple[Stat, ...]
    gates: tuple[Gate, ...]


def decide_look(
    stats: Iterable[Stat], collector: Collector, evidence: DecisionEvidence, rng: np.random.Generator
) -> InterimDecision:
    """``stats`` are one suite's rows; ``evidence.looks`` names the look. ``rng`` in the state in which ``decide`` would
    get it.

    A suite with several gated rows stops for FAIL with the first that fails, for PASS only when all pass.
    """
    draws = row_generators(rng)
    rows, gates = [], []
    for stat in stats:
        row, gate = judge_row(stat, collector, evidence, draws(stat))
        if gate is not None and gate.decision is not Outcome.SKIP:
            rows.append(row)
            gates.append(gate)
    return InterimDecision(decision=_stops([gate.decision for gate in gates]), rows=tuple(rows), gates=tuple(gates))


def _stops(decisions: Sequence[Outcome]) -> Outcome:
    if Outcome.FAIL in decisions:
        return Outcome.FAIL
    return (
        Outcome.PASS if decisions and all(decision is Outcome.PASS for decision in decisions) else Outcome.INCONCLUSIVE
    )
