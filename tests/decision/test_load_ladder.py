"""From samples of a ladder to its figures, its service levels and its knee."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvv.core import Outcome
from kvv.decision.load import LoadResult, LoadSample, LoadStep, judge, length_group
from kvv.profiles.policy import Policy, load_policy

LEVELS = [
    {"id": "fast", "measure": "ttft_ms", "limit": 100, "share": 0.9},
    {"id": "answered", "measure": "answered", "limit": 1, "share": 0.9},
    {"id": "right", "measure": "right", "limit": 1, "share": 0.9},
]
POLICY = Policy.model_validate({"name": "p", "service_level": LEVELS})


def sample(**changed: Any) -> LoadSample:
    usual: dict[str, Any] = {
        "kind": "echo",
        "workload": "chat",
        "length": 1000,
        "start_s": 0.0,
        "end_s": 1.0,
        "e2e_ms": 1000.0,
        "ttft_ms": 50.0,
        "prompt_tokens": 1000,
        "completion_tokens": 20,
        "known": True,
        "right": True,
    }
    return LoadSample(**usual | changed)


def step(load: float, *samples: LoadSample, **changed: Any) -> LoadStep:
    spans = tuple((one.start_s, one.end_s, one.completion_tokens) for one in samples if not one.failure)
    return LoadStep(load=load, window=(0.0, 10.0), samples=samples, spans=spans, **changed)


def ladder(*steps: LoadStep, need: float | None = None) -> LoadResult:
    return judge(steps, POLICY, np.random.default_rng(0), need)


GOOD = [sample()] * 60
SLOW = [sample(ttft_ms=100.1)] * 60


def test_the_knee_is_the_highest_load_that_keeps_every_level() -> None:
    found = ladder(step(1, *GOOD), step(2, *GOOD), step(4, *SLOW))
    assert (found.knee, found.missed, found.outcome) == (2, 4, Outcome.PASS)
    assert found.sentence == "keeps the policy up to 2; 4 misses fast"


def test_a_load_above_a_missed_one_is_no_knee() -> None:
    found = ladder(step(1, *GOOD), step(2, *SLOW), step(4, *GOOD))
    assert (found.knee, found.missed) == (1, 2)


def test_what_too_few_requests_leave_open_is_neither_kept_nor_missed() -> None:
    found = ladder(step(1, *GOOD), step(2, *GOOD[:20]))
    assert (found.knee, found.missed) == (1, None)
    assert found.sentence == "keeps the policy up to 1; none up to 2 is shown to miss it; not decided at 2"
    assert ladder(step(1, *GOOD[:20])).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(("need", "outcome"), [(2, Outcome.PASS), (4, Outcome.FAIL), (3, Outcome.INCONCLUSIVE)])
def test_a_needed_load_must_be_shown(need: float, outcome: Outcome) -> None:
    steps = step(1, *GOOD), step(2, *GOOD), step(4, *SLOW)
    assert ladder(*steps, need=need).outcome is outcome


def test_requests_without_an_answer_keep_no_level() -> None:
    refused = [sample(failure="http-429", right=None, ttft_ms=None)] * 30
    found = ladder(step(1, *GOOD), step(2, *GOOD, *refused))
    assert found.missed == 2
    assert found.steps[1].errors == {"http-429": 30}
    assert {gate.id: gate.decision for gate in found.steps[1].gates} == {
        "service/fast": Outcome.FAIL,
        "service/answered": Outcome.FAIL,
        "service/right": Outcome.PASS,
    }


def test_what_the_network_lost_is_open_and_never_missed() -> None:
    unreachable = [sample(failure="connect", unexplained=True, right=None, ttft_ms=None)] * 30
    assert ladder(step(1, *GOOD, *unreachable)).outcome is Outcome.INCONCLUSIVE


def test_wrong_answers_that_begin_under_load_are_named() -> None:
    lower = [step(load, *[sample(kind="tool call")] * 200) for load in (32, 64)]
    broken = step(128, *[sample(kind="tool call")] * 290, *[sample(kind="tool call", right=False)] * 9)
    found = ladder(*lower, broken)
    (row,) = [one for one in found.steps[2].known if one.kind == "tool call"]
    assert (row.wrong, row.n, row.worse) == (9, 299, True)
    # 9 of 299 against 0 of 400: C(299,9)/C(699,9)
    assert row.p == pytest.approx(np.prod([(299 - i) / (699 - i) for i in range(9)]), rel=1e-6)
    assert (found.knee, found.missed) == (64, 128)
    assert "128 misses tool call" in found.sentence


def test_answers_as_wrong_as_at_lower_loads_are_no_effect_of_load() -> None:
    steps = [step(load, *[sample()] * 97, *[sample(right=False)] * 3) for load in (1, 2, 4)]
    assert not any(one.worse for each in ladder(*steps).steps for one in each.known)


def test_known_answers_of_which_none_could_be_judged_leave_a_step_open() -> None:
    cut_off = [sample(right=None)] * 60
    found = ladder(step(1, *cut_off))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert [name for name, _ in found.steps[0].why] == ["right"]
    assert ladder(step(1, *[sample(right=None, known=False)] * 60)).outcome is Outcome.PASS


def test_a_late_load_generator_blames_nobody() -> None:
    found = ladder(step(1, *SLOW, client_lag_ms=101.0))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "the load generator itself was 101 ms late" in found.steps[0].gates[0].reason
    assert ladder(step(1, *SLOW, client_lag_ms=99.0)).outcome is Outcome.FAIL


def test_arrivals_that_were_not_sent_show_no_load() -> None:
    assert ladder(step(1, *GOOD, unsent=1)).outcome is Outcome.INCONCLUSIVE


def test_throughput_counts_each_answer_by_its_part_inside_the_window() -> None:
    # one answer of 100 tokens a second all the time; the first began before the window, the last ends after it
    spans = tuple((start, start + 1.0, 100) for start in np.arange(-0.5, 10.5))
    one = LoadStep(load=1, window=(0.0, 10.0), samples=tuple(GOOD), spans=spans)
    (row,) = ladder(one).steps
    assert row.requests_s.value == pytest.approx(1.0)
    assert row.output_tokens_s.value == pytest.approx(100.0)


def test_goodput_counts_requests_that_keep_every_level() -> None:
    mixed = [*GOOD[:40], *SLOW[:10], *[sample(right=False)] * 5, *[sample(failure="reset", right=None)] * 5]
    (row,) = ladder(step(1, *mixed)).steps
    assert row.goodput.value == pytest.approx(40 / 60)
    assert row.goodput_s.value == pytest.approx(4.0)


def test_fairness_is_one_where_all_lengths_are_slowed_alike() -> None:
    def both(short: float, long: float) -> list[LoadSample]:
        return [sample(length=1000, e2e_ms=short)] * 30 + [sample(length=32_000, e2e_ms=long)] * 30

    found = ladder(step(1, *both(100, 900)), step(2, *both(200, 1800)), step(4, *both(100, 3600)))
    assert [row.fairness.value for row in found.steps] == pytest.approx([1.0, 1.0, 25 / 34])


@pytest.mark.parametrize(
    ("tokens", "group"),
    [(0, "under 4k"), (3999, "under 4k"), (4000, "4k to 16k"), (255_999, "64k to 256k"), (1_000_000, "256k and more")],
)
def test_lengths_are_grouped_by_uncached_tokens(tokens: int, group: str) -> None:
    assert length_group(tokens) == group


def test_the_shipped_levels_are_staggered_and_leave_no_length_out() -> None:
    levels = [level for level in load_policy("load").service_level if level.measure.value == "ttft_ms"]
    ends = [level.max_prompt_tokens for level in levels]
    assert [level.min_prompt_tokens for level in levels] == [0, *ends[:-1]]
    assert ends[-1] is None
    assert sorted(level.limit for level in levels) == [level.limit for level in levels]
