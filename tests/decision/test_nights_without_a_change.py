"""Nights on which nothing changed, by simulation: how often a night alarms alone, and how often a second measurement
repeats it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import bdtr

from kvv.core import Outcome
from kvv.profiles.policy import BenchmarkMode, load_policy
from kvv.stats import repeated_alarm

#: questions of one suite and nights
N, NIGHTS = 500, 60_000


def alarms(gained: Any, lost: Any, alpha: float) -> Any:
    """Where a regression gate fails: McNemar's exact test, one-sided, reaches alpha."""
    return bdtr(gained, gained + lost, 0.5) <= alpha


@pytest.mark.parametrize(
    ("gained", "lost"), [(0, 9), (0, 10), (3, 17), (3, 18), (10, 30), (10, 31), (20, 45), (20, 46), (30, 30)]
)
def test_a_regression_gate_fails_where_the_exact_test_says_so(bench: Any, gained: int, lost: int) -> None:
    both = (300 - gained - lost) // 2
    vendor = [1.0] * both + [1.0] * gained + [0.0] * lost + [0.0] * (300 - both - gained - lost)
    official = [1.0] * both + [0.0] * gained + [1.0] * lost + [0.0] * (300 - both - gained - lost)
    alpha = load_policy("nightly").alpha
    policy = {
        "name": "p",
        "alpha": alpha,
        "benchmark": [{"suite": "bench", "key": "score", "mode": "regression", "detect": 0.5}],
    }
    found = bench.decide(bench.answers(vendor), policy, references={"bench": [bench.reference(official)]})
    gate = next(gate for gate in found.gates if gate.id.startswith("bench/"))
    assert (gate.decision is Outcome.FAIL) is bool(alarms(gained, lost, alpha))


def test_nights_alarm_as_often_as_is_stated_alone_and_confirmed() -> None:
    """A baseline, a run and a second run a night, all of the same success probabilities, two questions in three always
    answered alike.
    """
    nightly = load_policy("nightly")
    # those at the policy's own alpha
    gates = sum(entry.mode is BenchmarkMode.REGRESSION and entry.alpha is None for entry in nightly.benchmark)
    assert gates == 4
    rng = np.random.default_rng(7)
    # only the questions of which chance decides: the others never differ
    p = rng.beta(2, 1, N // 3)
    first, both = 0, 0
    for _ in range(NIGHTS // 500):
        baseline, run, second = (rng.random((500, len(p))) < p for _ in range(3))
        alone, again = (
            alarms((side & ~baseline).sum(axis=1), (~side & baseline).sum(axis=1), nightly.alpha)
            for side in (run, second)
        )
        first += int(alone.sum())
        both += int((alone & again).sum())
    expected, confirmed = NIGHTS * nightly.alpha, NIGHTS * repeated_alarm(nightly.alpha)
    # Poisson counts, no more than four standard deviations above what is stated; an exact test of counts keeps below
    # its level
    assert expected / 3 < first < expected + 4 * expected**0.5, (first, expected)
    assert both < confirmed + 4 * confirmed**0.5, (both, confirmed)
    assert both > 1 + 4 * NIGHTS * nightly.alpha**2, "two runs against one baseline are not independent"
    assert 100 * gates * first / NIGHTS <= 1.0 + 4 * 100 * gates * expected**0.5 / NIGHTS
