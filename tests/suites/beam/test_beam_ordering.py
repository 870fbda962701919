"""Event ordering: the tau_norm values computed for eight reference events, and tau-b against SciPy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from kvv.suites.beam.ordering import align, score_order, tau_b

EVENTS = 8


def scored(order: list[int], unmatched: list[str] | None = None) -> tuple[float, float]:
    """tau_norm and F1 of an answer whose lines are ``unmatched`` first and then these events, each in its own words."""
    extra = unmatched or []
    lines = [*extra, *(f"line about {event}" for event in order)]
    found = score_order(EVENTS, lines, (*(None for _ in extra), *order))
    return round(found.tau_norm, 3), round(found.f1, 3)


@pytest.mark.parametrize(
    ("order", "unmatched", "tau_norm"),
    [
        (list(range(8)), [], 1.0),
        ([0, 1, 2, 3, 4, 5, 7, 6], [], 0.964),
        (list(range(8))[::-1], [], 0.0),
        ([0, 1, 2, 3], [], 0.943),
        ([4, 5, 6, 7], [], 0.299),
        (list(range(8)), ["Here they are:", ""], 0.635),
        (list(range(8)), ["Here they are:", "", "---"], 0.537),
        ([0], [], 0.75),
        ([], ["one line"], 0.264),
        ([], [f"line {n}" for n in range(8)], 0.152),
    ],
)
def test_tau_norm_of_eight_events_is_the_published_table(
    order: list[int], unmatched: list[str], tau_norm: float
) -> None:
    assert scored(order, unmatched)[0] == tau_norm


def test_f1_of_half_the_events_and_of_one_line() -> None:
    assert scored([0, 1, 2, 3])[1] == 0.667
    assert scored([0])[1] == 0.222


def test_events_that_only_the_answer_has_are_ties_in_the_reference() -> None:
    """With ascending ranks instead (a known wrong implementation) two trailing lines would agree with the reference and
    score 1.
    """
    assert scored(list(range(8)), [])[0] == 1.0
    trailing = score_order(EVENTS, [*(str(n) for n in range(8)), "x", "y"], (*range(8), None, None))
    assert 0.9 < trailing.tau_norm < 1.0


def test_a_line_takes_the_first_unused_event_and_no_event_twice() -> None:
    assert align([{0, 1}, {0}, {1, 2}, set(), {2}]) == (0, None, 1, None, 2)


def test_where_tau_has_no_value_a_complete_match_is_one_and_anything_else_zero() -> None:
    whole = score_order(1, ["it"], (0,))
    assert (whole.tau_norm, whole.defined) == (1.0, False)
    assert tau_b([1], [1]) is None
    assert tau_b([2, 2], [1, 2]) is None
    missed = score_order(1, ["other"], (None,))
    assert missed.tau_norm == 0.0


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12))
def test_tau_b_is_scipys(pairs: list[tuple[int, int]]) -> None:
    x, y = [a for a, _ in pairs], [b for _, b in pairs]
    ours = tau_b(x, y)
    if len(set(x)) < 2 or len(set(y)) < 2:
        assert ours is None
        return
    theirs = float(kendalltau(x, y).statistic)
    assert ours is not None
    assert math.isclose(ours, theirs, abs_tol=1e-12)


@given(st.lists(st.one_of(st.none(), st.integers(0, 7)), max_size=30), st.data())
def test_every_answer_scores_between_0_and_1(events: list[int | None], data: st.DataObject) -> None:
    aligned = align([set() if event is None else {event} for event in events])
    lines = [data.draw(st.sampled_from(["", "a", "b", str(n)])) for n in range(len(events))]
    found = score_order(EVENTS, lines, aligned)
    assert 0 <= found.tau_norm <= 1
    assert 0 <= found.f1 <= 1
