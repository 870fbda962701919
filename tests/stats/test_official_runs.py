"""Runs of one official endpoint: which is unlike the others, and how often calls are the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.stats.f1 import Confusion, lost_calls
from kvv.stats.official_runs import like_runs, match_request


def drawn(rng: np.random.Generator, p: np.ndarray) -> dict[str, float]:
    return {str(i): float(called) for i, called in enumerate(rng.random(len(p)) < p)}


@pytest.mark.parametrize("count", [3, 5])
def test_a_run_that_calls_less_is_left_out_and_one_that_does_not_is_not(count: int) -> None:
    rng = np.random.default_rng(4)
    p = rng.beta(0.5, 0.5, 2000)
    runs = [drawn(rng, p) for _ in range(count)]
    same = like_runs(runs)
    assert (same.odd, len(same.kept), same.alike) == ((), count, True)
    found = like_runs([*runs[:1], drawn(rng, 0.85 * p), *runs[2:]])
    assert [run.number for run in found.odd] == [1]
    assert found.odd[0].rate < found.odd[0].others_rate - 0.05
    assert found.kept == tuple(i for i in range(count) if i != 1)
    assert found.alike


def test_a_run_that_calls_as_often_on_other_requests_is_left_out() -> None:
    rng = np.random.default_rng(4)
    p = rng.beta(0.5, 0.5, 500)
    stranger = drawn(rng, rng.permutation(p))
    found = like_runs([drawn(rng, p), drawn(rng, p), stranger])
    assert [run.number for run in found.odd] == [2]
    assert found.odd[0].agreement < found.odd[0].others_agreement - 0.1


def test_of_two_runs_apart_nobody_knows_which_and_drift_is_no_single_odd_run() -> None:
    rng = np.random.default_rng(4)
    p = rng.beta(0.5, 0.5, 2000)
    two = like_runs([drawn(rng, p), drawn(rng, 0.85 * p)])
    assert (two.odd, two.alike) == ((), False)
    drift = like_runs([drawn(rng, p * (1 - 0.03 * k)) for k in range(5)])
    assert not drift.alike
    assert len(drift.odd) <= 1


def test_a_drift_stays_one_though_its_last_run_lies_apart_from_the_others() -> None:
    rng = np.random.default_rng(4)
    p = rng.beta(0.5, 0.5, 2000)
    found = [like_runs([drawn(rng, p * (1 - 0.03 * k)) for k in range(5)]) for _ in range(40)]
    assert any(one.odd for one in found)
    assert sum(one.alike for one in found) <= 6


def test_runs_of_one_endpoint_are_rarely_called_unlike() -> None:
    rng = np.random.default_rng(11)
    p = rng.beta(0.5, 0.5, 300)
    found = [like_runs([drawn(rng, p) for _ in range(4)]) for _ in range(300)]
    # 300 draws of a chance of .003: more than 5 come in fewer than 1 of 1,000 such tests
    assert sum(bool(one.odd) or not one.alike for one in found) <= 5


def test_few_requests_say_nothing_of_a_run() -> None:
    yes, no = dict.fromkeys("abcdefgh", 1.0), dict.fromkeys("abcdefgh", 0.0)
    assert like_runs([yes, yes, no]).odd == ()
    assert like_runs([yes]).alike


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=2, max_size=6))
def test_the_mean_official_run_reaches_what_pairs_of_them_reach(tokens: list[float]) -> None:
    found = match_request(tokens, 1.0)
    ordered = [(a, b) for i, a in enumerate(tokens) for j, b in enumerate(tokens) if i != j]
    assert found.official == pytest.approx(sum(a == b != 0 for a, b in ordered) / len(ordered))
    assert found.worst == found.best == pytest.approx(tokens.count(1.0) / len(tokens))
    unknown = match_request(tokens, None)
    assert unknown.worst == 0 <= match_request(tokens, 2.0).best <= unknown.best


def test_an_f1_falls_by_left_out_calls_as_counted_out() -> None:
    before = Confusion(tp=800, fp=200, fn=200, tn=800)
    after = Confusion(tp=720, fp=180, fn=280, tn=820)  # a tenth of all calls left out
    assert before.f1 is not None
    assert after.f1 is not None
    assert lost_calls(before.f1, after.f1) == pytest.approx(0.1)
    assert lost_calls(0.8, 0.8) == 0
