"""The test of a rerun against scipy's and against counting; what it shows, and what it leaves open without a
difference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.stats

from kvv.stats.rerun import QuestionSamples, Samples, loss_p, rerun_difference, visible_in, visible_pairs


def samples(values: Sequence[float]) -> Samples:
    return Samples(n=len(values), total=sum(values), squares=sum(x * x for x in values))


def question(vendor: Sequence[float], reference: Sequence[float]) -> QuestionSamples:
    return QuestionSamples(vendor=samples(vendor), reference=samples(reference))


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (0, 8), (1, 9), (9, 1), (5, 5)])
def test_with_one_sample_a_side_it_is_mcnemars_exact_test(gained: int, lost: int) -> None:
    questions = [question([1], [0])] * gained + [question([0], [1])] * lost + [question([1], [1]), question([0], [0])]
    expected = scipy.stats.binomtest(gained, gained + lost, alternative="less").pvalue if gained + lost else 1.0
    assert loss_p(questions) == pytest.approx(expected)


def test_of_one_question_it_is_fishers_exact_test() -> None:
    table = [[1, 3], [5, 1]]
    assert loss_p([question([1, 0, 0, 0], [1] * 5 + [0])]) == pytest.approx(
        scipy.stats.fisher_exact(table, alternative="less").pvalue
    )


def test_it_counts_the_divisions_of_every_question() -> None:
    sides = [([1, 0], [1, 1, 1]), ([0, 0], [1, 0, 0]), ([1], [0, 1])]
    ways = [[sum(pair) for pair in itertools.combinations([*v, *r], len(v))] for v, r in sides]
    sums = [sum(way) for way in itertools.product(*ways)]
    expected = sum(total <= 2 for total in sums) / len(sums)
    assert loss_p([question(v, r) for v, r in sides]) == pytest.approx(expected)


def test_scores_flip_their_signs() -> None:
    gaps = [-0.5, -0.25, -0.75, 0.2, -0.4, -1 / 3]
    sums = [sum(s * g for s, g in zip(signs, gaps, strict=True)) for signs in itertools.product((-1, 1), repeat=6)]
    expected = sum(total <= sum(gaps) + 1e-9 for total in sums) / 64
    assert loss_p(
        [question([0.75 + min(g, 0) if g > -0.75 else 0.0], [0.75 - max(g, 0)]) for g in gaps]
    ) == pytest.approx(expected)


def test_scores_with_repeats_get_the_normal_approximation() -> None:
    """Against 20,000 random divisions."""
    rng = np.random.default_rng(3)
    data = rng.integers(0, 6, (40, 4)) / 5
    data[:, :2] -= np.minimum(data[:, :2], 0.12)
    found = loss_p([question(row[:2], row[2:]) for row in data])
    drawn = rng.permuted(np.broadcast_to(data, (20_000, 40, 4)), axis=2)[:, :, :2].sum(axis=(1, 2))
    assert found == pytest.approx(float((drawn <= data[:, :2].sum() + 1e-9).mean()), abs=0.02)
    assert 0.001 < found < 0.4


def test_no_difference_at_all_is_no_certainty_and_repeats_count() -> None:
    once = rerun_difference([question([0.5], [0.5])] * 30, 0.9978).interval
    four = rerun_difference([question([1] * 4, [1] * 4)] * 30, 0.9978).interval
    assert once.high == pytest.approx(0.238, abs=0.005)
    assert four.high == pytest.approx(0.072, abs=0.005)


def test_the_loss_that_shows_is_that_of_no_loss() -> None:
    still = [question([1], [1])] * 10
    gone = [question([0], [1])] * 8 + [question([0], [0])] * 2
    assert visible_in(still, alpha=0.004, power=0.8) == visible_in(gone, alpha=0.004, power=0.8) == 0.8
    assert visible_in(still, alpha=0.0009, power=0.8) == math.inf
    assert visible_pairs(0, 10, alpha=0.001, power=0.8) == 1.0
    assert visible_pairs(4, 200, alpha=0.0011, power=0.8) > visible_pairs(0, 200, alpha=0.0011, power=0.8) == 0.05


def test_what_pairs_are_said_to_show_they_show() -> None:
    rng = np.random.default_rng(4)
    gone = round(200 * visible_pairs(4, 200, alpha=0.0011, power=0.8))
    gained, lost = rng.poisson(2 * (1 - gone / 200), (2, 4000))
    caught = scipy.stats.binom.cdf(gained, gained + lost + gone, 0.5) <= 0.0011
    assert caught.mean() + 0.02 >= 0.8
    fewer = scipy.stats.binom.cdf(gained, gained + lost + gone - 2, 0.5) <= 0.0011
    assert fewer.mean() < 0.8
