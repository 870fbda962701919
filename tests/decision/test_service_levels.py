from __future__ import annotations

from typing import Any

import pytest

from kvv.core import Outcome
from kvv.decision import LatencyTally, Lost, TimedAnswer
from kvv.profiles.policy import Policy


def judged(kept: int, missed: int, **level: Any) -> Any:
    policy = Policy.model_validate(
        {"name": "p", "service_level": [{"id": "ttft", "measure": "ttft_ms", "limit": 1000, "share": 0.9, **level}]}
    )
    tally = LatencyTally(policy)
    for i in range(kept + missed):
        slow = i >= kept
        tally.add(TimedAnswer(prompt_tokens=500, ttft_ms=1000.1 if slow else 1000.0, output_tps=10.0 if slow else 30.0))
    return tally.gates()[0]


@pytest.mark.parametrize(
    ("kept", "missed", "decision"),
    # one-sided 95 %: 29 of 29 show at least 90.2 %, 28 of 28 only 89.9 %
    [
        (29, 0, Outcome.PASS),
        (28, 0, Outcome.INCONCLUSIVE),
        (80, 20, Outcome.FAIL),
        (88, 12, Outcome.INCONCLUSIVE),
        (0, 0, Outcome.INCONCLUSIVE),
    ],
)
def test_a_share_of_answers_must_keep_the_limit_with_confidence(kept: int, missed: int, decision: Outcome) -> None:
    assert judged(kept, missed).decision is decision


def test_tokens_a_second_are_at_least_not_at_most() -> None:
    assert judged(40, 0, measure="output_tps", limit=20).decision is Outcome.PASS
    assert judged(0, 40, measure="output_tps", limit=20).decision is Outcome.FAIL


def test_a_level_counts_only_its_prompt_lengths_and_workload() -> None:
    level = {
        "id": "long",
        "measure": "ttft_ms",
        "limit": 10,
        "min_prompt_tokens": 1000,
        "max_prompt_tokens": 2000,
        "workload": "agentic",
    }
    tally = LatencyTally(Policy.model_validate({"name": "p", "service_level": [level]}))
    for tokens, workload in ((999, "agentic"), (2000, "agentic"), (1500, "chat"), (1000, "agentic"), (1999, "agentic")):
        tally.add(TimedAnswer(prompt_tokens=tokens, workload=workload, ttft_ms=5.0))
    tally.add(TimedAnswer(prompt_tokens=1500, workload="agentic"))
    assert "2 of 2 requests" in tally.gates()[0].reason


def test_a_missed_service_level_fails_the_latency_area(bench: Any) -> None:
    level = {"id": "ttft", "measure": "ttft_ms", "limit": 1000}
    policy = Policy.model_validate({"name": "p", "service_level": [level]})
    tally = LatencyTally(policy)
    for _ in range(50):
        tally.add(TimedAnswer(prompt_tokens=1, ttft_ms=5000.0))
    decision = bench.decide([bench.case("params/a", "params")], policy, latency=tally)
    assert (decision.outcome, decision.areas["latency"], decision.areas["decoding"]) == (
        Outcome.FAIL,
        Outcome.FAIL,
        Outcome.PASS,
    )


@pytest.mark.parametrize(("kept", "missed", "more"), [(88, 12, True), (28, 0, True), (90, 10, False)])
def test_a_level_that_cannot_tell_says_how_many_more_answers_would(kept: int, missed: int, more: bool) -> None:
    reason = judged(kept, missed).reason
    assert ("more requests would settle it" in reason) is more
    assert ("no number of requests" in reason) is not more


def with_lost(answered: int, lost: int, *, level: dict[str, Any] | None = None, **request: Any) -> Any:
    table = {"id": "ttft", "measure": "ttft_ms", "limit": 1000, "share": 0.9, **(level or {})}
    tally = LatencyTally(Policy.model_validate({"name": "p", "service_level": [table]}))
    for _ in range(answered):
        tally.add(TimedAnswer(prompt_tokens=500, ttft_ms=5.0, e2e_ms=5.0))
    for _ in range(lost):
        tally.lose(Lost(**{"prompt_tokens": 500, **request}))
    return tally.gates()[0]


def test_requests_without_a_whole_answer_are_misses() -> None:
    assert with_lost(80, 0).decision is Outcome.PASS
    gate = with_lost(80, 16)
    assert (
        gate.decision,
        gate.reason.startswith("missed: 80 of 96 requests"),
        "16 got no whole answer" in gate.reason,
    ) == (Outcome.FAIL, True, True)
    assert with_lost(0, 40).decision is Outcome.FAIL


def test_a_request_counts_only_where_its_answer_would_have_been_measured() -> None:
    assert with_lost(80, 16, streamed=False).decision is Outcome.PASS  # a whole answer has no first token
    assert with_lost(80, 16, streamed=False, level={"measure": "e2e_ms"}).decision is Outcome.FAIL
    assert with_lost(80, 16, workload="agentic", level={"workload": "chat"}).decision is Outcome.PASS
    assert with_lost(80, 16, prompt_tokens=5000, level={"max_prompt_tokens": 1000}).decision is Outcome.PASS
    assert with_lost(80, 16, prompt_tokens=999, level={"max_prompt_tokens": 1000}).decision is Outcome.FAIL


@pytest.mark.parametrize(
    ("request_", "level"), [({"unexplained": True}, {}), ({"prompt_tokens": None}, {"max_prompt_tokens": 1000})]
)
def test_what_need_not_be_the_services_fault_neither_passes_nor_fails(
    request_: dict[str, Any], level: dict[str, Any]
) -> None:
    gate = with_lost(80, 16, level=level, **request_)
    assert (gate.decision, "16 are open" in gate.reason) == (Outcome.INCONCLUSIVE, True)
    assert with_lost(200, 1, level=level, **request_).decision is Outcome.PASS
    assert with_lost(80, 16, prompt_tokens=None).decision is Outcome.FAIL  # of any length: the length does not matter
