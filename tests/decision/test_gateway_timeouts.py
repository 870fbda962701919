"""Answers cut at the same age are told from accidents, from slow answers and from our own patience."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.core import FaultKind
from kvv.decision.gateway_timeouts import AttemptEnding, suspected_timeouts


def ended(
    *total_ms: float,
    status: int | None = 504,
    fault: FaultKind | None = None,
    stream: bool = False,
    answered: bool = False,
) -> list[AttemptEnding]:
    status = 200 if answered else status
    return [
        AttemptEnding(
            exchange=f"c#{number}/0.0.probe", stream=stream, total_ms=ms, answered=answered, status=status, fault=fault
        )
        for number, ms in enumerate(total_ms)
    ]


SAME = (60_004.0, 60_120.0, 60_051.0, 60_300.0)


@pytest.mark.parametrize(
    "endings",
    [
        ended(*SAME),
        ended(*SAME, status=200, fault=FaultKind.CUT, stream=True),
        ended(*SAME, status=None, fault=FaultKind.RESET),
        ended(*SAME) + ended(40_000.0, 59_000.0, 60_200.0, answered=True),
        ended(*SAME) + ended(20_000.0, 90_000.0, 3_000.0),
        ended(*SAME) + ended(300_000.0, answered=True, stream=True),  # streams may live longer
        ended(*SAME) + ended(*[3.0] * 50, status=503),  # quick refusals waited for nothing
    ],
    ids=["504", "cut", "reset", "shorter-answers", "most", "other-mode", "quick-503"],
)
def test_cuts_at_the_same_age_are_a_time_limit(endings: list[AttemptEnding]) -> None:
    [found] = suspected_timeouts(endings)
    assert (found.after_ms, found.cuts) == (60_004.0, 4)
    assert "ended after 60.0 s" in found.sentence
    assert len(found.examples) == 4


@pytest.mark.parametrize(
    "endings",
    [
        ended(*SAME[:3]),
        ended(10_000.0, 22_000.0, 31_000.0, 47_000.0, 60_000.0),
        ended(*SAME) + ended(75_000.0, answered=True),
        ended(*SAME) + ended(10_000.0, 20_000.0, 30_000.0, 40_000.0),
        ended(*SAME, status=None, fault=FaultKind.FIRST_BYTE_TIMEOUT),
        ended(*SAME, status=200, fault=FaultKind.IDLE_TIMEOUT),
        ended(*SAME, status=400),
        ended(*SAME, status=503),
        ended(*[5.0] * 40, status=502),
        ended(60_000.0, 60_001.0) + ended(60_002.0, 60_003.0, stream=True),
        ended(*SAME, answered=True),
        [],
    ],
    ids=[
        "three",
        "all-ages",
        "one-lived-longer",
        "half",
        "our-first-byte",
        "our-idle",
        "refusals",
        "busy",
        "at-once",
        "two-modes",
        "answers",
        "nothing",
    ],
)
def test_anything_else_is_none(endings: list[AttemptEnding]) -> None:
    assert suspected_timeouts(endings) == []


def test_each_mode_has_its_own_limit() -> None:
    found = suspected_timeouts(ended(*SAME) + ended(*[120_000.0] * 5, stream=True))
    assert [(one.stream, one.after_ms, one.cuts) for one in found] == [(False, 60_004.0, 4), (True, 120_000.0, 5)]


@given(st.lists(st.floats(1_000, 600_000), max_size=30), st.floats(1_000, 600_000))
def test_the_group_is_within_the_tolerance_and_the_order_of_arrival_does_not_matter(
    ages: list[float], age: float
) -> None:
    endings = ended(*ages, *[age] * (len(ages) + 4))
    [found] = suspected_timeouts(endings)
    assert found.cuts >= len(ages) + 4
    assert found.after_ms <= age <= found.after_ms * 1.02 + 250
    [again] = suspected_timeouts(endings[::-1])
    assert (again.after_ms, again.cuts, again.of) == (found.after_ms, found.cuts, found.of)
