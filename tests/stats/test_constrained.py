"""The exact sum under Tango's constraint: against Tango, the binomial test, and sums added up by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from kvv.stats import clopper_pearson, tango_p
from kvv.stats.constrained import constrained, grid_of, mean_interval, mean_p, mean_p_below, mean_z, tabulated


def pairs(gained: int, lost: int, n: int) -> list[float]:
    return [1.0] * gained + [-1.0] * lost + [0.0] * (n - gained - lost)


@pytest.mark.parametrize(
    ("gained", "lost", "n", "mu"), [(3, 7, 100, -0.03), (0, 5, 200, -0.03), (2, 0, 50, -0.05), (9, 2, 60, 0.05)]
)
def test_with_one_sample_a_side_the_probability_of_a_loss_is_tangos(gained: int, lost: int, n: int, mu: float) -> None:
    counts, steps, grid = tabulated(pairs(gained, lost, n))
    found = constrained(counts[None, :], steps / grid, np.array([mu]))[0]
    b = (2 * n - gained + lost) * mu - gained - lost
    q = (math.sqrt(b * b + 8 * n * lost * mu * (1 - mu)) - b) / (4 * n)
    assert found[0] == pytest.approx(q, abs=1e-9)
    assert found @ steps == pytest.approx(mu, abs=1e-9)


@pytest.mark.parametrize(("lost", "n", "margin"), [(0, 22, 0.1), (0, 60, 0.05), (3, 200, 0.03), (30, 2000, 0.02)])
def test_against_a_reference_without_an_error_it_is_the_binomial_test(lost: int, n: int, margin: float) -> None:
    found = mean_p(*tabulated(pairs(0, lost, n)), -margin)[0]
    assert found == pytest.approx(scipy.stats.binom.cdf(lost, n, margin), rel=1e-6)
    assert mean_interval(pairs(0, lost, n), 0.9).low == pytest.approx(-clopper_pearson(lost, n, 0.9).high, abs=1e-5)


def test_nothing_lost_of_twenty_two_leaves_a_loss_of_twelve_points_open() -> None:
    """Tango's limit is -10.95: a margin of 12 would pass 6 % of the vendors that lose as much."""
    assert mean_interval([0.0] * 22, 0.9).low == pytest.approx(-(1 - 0.05 ** (1 / 22)), abs=1e-5)
    assert mean_p(*tabulated([0.0] * 22), -0.12)[0] == pytest.approx(0.88**22)
    assert tango_p(0, 0, 22, 0.12) < 0.05 < 0.88**22


def test_with_many_discordant_pairs_it_comes_to_tangos() -> None:
    assert mean_p(*tabulated(pairs(110, 130, 1000)), -0.05)[0] == pytest.approx(
        tango_p(110, 130, 1000, 0.05), abs=0.003
    )


def test_three_references_are_added_up_in_thirds() -> None:
    differences = [1.0, 2 / 3, -1 / 3, -1 / 3, -1.0, 0.0, 0.0, 1 / 3, 0.0, -2 / 3]
    counts, steps, grid = tabulated(differences)
    assert grid == 3
    chances = constrained(counts[None, :], steps / grid, np.array([-0.2]))[0]
    one = np.zeros(7)
    one[(steps + 3).astype(int)] = chances
    sums = np.ones(1)
    for _ in differences:
        sums = np.convolve(sums, one)
    seen = round(sum(differences) * 3) + 3 * len(differences)
    assert mean_p(counts, steps, grid, -0.2)[0] == pytest.approx(sums[seen:].sum())
    assert mean_p_below(counts, steps, grid, 0.3)[0] == pytest.approx(
        mean_p(*tabulated([-d for d in differences]), -0.3)[0]
    )


def test_the_interval_is_where_the_tests_reject() -> None:
    differences = pairs(7, 12, 300)
    found = mean_interval(differences, 0.9)
    table = tabulated(differences)
    assert mean_p(*table, found.low)[0] == pytest.approx(0.05, abs=2e-4)
    assert mean_p_below(*table, found.high)[0] == pytest.approx(0.05, abs=2e-4)
    assert mean_z(differences, found.low) == pytest.approx(1.645, abs=0.003)
    assert mean_z(differences, found.high) == pytest.approx(-1.645, abs=0.003)


@pytest.mark.parametrize(("value", "low", "high"), [(1.0, -0.9, 1.0), (-1.0, -1.0, 0.9)])
def test_one_question_says_next_to_nothing(value: float, low: float, high: float) -> None:
    assert mean_interval([value], 0.9).pair == pytest.approx((low, high), abs=1e-5)


def test_steps_are_the_largest_that_hold_all_differences() -> None:
    assert [grid_of(x) for x in ([0, 1], [0.5], [1 / 3, 0.5], [1 / 32], [math.pi / 4])] == [1, 2, 6, 32, 240]


@pytest.mark.parametrize("references", [1, 2, 3, 5])
@pytest.mark.parametrize(("n", "margin"), [(52, 0.05), (220, 0.02)])
def test_a_vendor_at_the_margin_passes_as_rarely_as_is_stated(references: int, n: int, margin: float) -> None:
    """Where Tango passes 6.9 % and t 18 %: a reference without an error. A part of ``bench/verdicts.py``."""
    lost = np.arange(40)
    counts = np.zeros((40, 3))
    counts[:, 0], counts[:, 1] = lost, n - lost
    passes = mean_p(counts, np.array([-1, 0, 1]) * references, references, -margin) <= 0.05
    assert (passes * scipy.stats.binom.pmf(lost, n, margin)).sum() <= 0.05
