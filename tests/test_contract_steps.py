"""How a deterministic contract case reaches its one verdict: only from positive observations, confirmed, between controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest

from kvv.contract import contract_step
from kvv.model import (
    Answered,
    Area,
    Ask,
    Case,
    Choice,
    Done,
    ErrorBody,
    Exchange,
    Fault,
    FaultKind,
    Identity,
    Level,
    Observation,
    Outcome,
    Reply,
    Request,
    Role,
    Shape,
    Verdict,
)

ANSWER = (200, Observation(shape=Shape.COMPLETION, choices=(Choice(index=0, answer="ready", finish_reason="stop"),)), None)
REFUSAL = (400, Observation(shape=Shape.ERROR, error=ErrorBody(message="no", type="invalid_request_error")), None)
HTML_REFUSAL = (400, Observation(shape=Shape.NOT_JSON), None)
NOT_FOUND = (404, Observation(shape=Shape.ERROR, error=ErrorBody(message="no such model", type="not_found")), None)
CRASH = (500, Observation(shape=Shape.NOT_JSON), None)
RESET = (None, Observation(shape=Shape.NONE), FaultKind.RESET)
CLOSED = (None, Observation(shape=Shape.NONE), FaultKind.CONNECT)
BUSY = (429, Observation(shape=Shape.ERROR, error=ErrorBody(message="slow down", type="rate_limit")), None)
UNPAID = (402, Observation(shape=Shape.ERROR, error=ErrorBody(message="pay", type="billing")), None)
HTML = (200, Observation(shape=Shape.NOT_JSON), None)
Answer = tuple[int | None, Observation, FaultKind | None]


def a_case(expect: str, **inputs: object) -> Case:
    base = {
        "body": {"model": "m", "stop": 1},
        "control": {"model": "m"},
        "expect": expect,
        "statuses": [400, 422],
        "checks": {},
        "skip": "",
        "stream": False,
    }
    return Case(id="params/x", suite="params", area=Area.DECODING, level=Level.MUST, requirement="", source="", since="", inputs={**base, **inputs})


def answered(request: Request, answer: Answer, number: int) -> Answered:
    status, observation, fault = answer
    identity = Identity(case="params/x", sample=0, step=number, ask=0, purpose=request.purpose)
    exchange = Exchange(
        identity=identity, attempt=1, role=Role.TARGET, started="", status=status, fault=Fault(kind=fault, detail="") if fault else None
    )
    return Answered(request=request, exchange=exchange, observation=observation)


def drive(case: Case, probes: Iterator[Answer], control: Callable[[], Answer] = lambda: ANSWER) -> tuple[Verdict, list[str]]:
    """Play an endpoint against the steps; the verdict and the purposes of the requests, in order."""
    history: list[Reply] = []
    purposes: list[str] = []
    for number in range(50):
        step = contract_step(case, history, "1")
        if isinstance(step, Done):
            return step.verdict, purposes
        assert isinstance(step, Ask)
        purposes += [request.purpose for request in step.requests]
        history.append(tuple(answered(r, control() if r.purpose in ("control", "between") else next(probes), number) for r in step.requests))
    raise AssertionError("no verdict in 50 steps")


def outcome(expect: str, *probes: Answer, control: Answer = ANSWER) -> tuple[Outcome, str]:
    verdict, _ = drive(a_case(expect), iter(probes), lambda: control)
    return verdict.outcome, verdict.reason


def test_a_refusal_beside_an_answered_sibling_passes() -> None:
    assert outcome("refused", REFUSAL) == (Outcome.PASS, "")


@pytest.mark.parametrize("control", [REFUSAL, CRASH, CLOSED, HTML, UNPAID])
def test_a_refusal_whose_sibling_was_not_answered_proves_nothing(control: Answer) -> None:
    assert outcome("refused", REFUSAL, control=control) == (Outcome.INCONCLUSIVE, "control-not-answered")


def test_an_accepted_invalid_request_fails_after_one_more_sample() -> None:
    verdict, purposes = drive(a_case("refused"), iter([ANSWER, ANSWER]))
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, "invalid-request-accepted")
    assert purposes == ["probe", "control", "confirm"]


def test_accepted_once_and_refused_once_is_still_a_completion_that_should_not_be() -> None:
    assert outcome("refused", ANSWER, REFUSAL) == (Outcome.FAIL, "invalid-request-accepted")


def test_a_refused_valid_request_fails_only_when_refused_twice() -> None:
    assert outcome("answered", REFUSAL, REFUSAL) == (Outcome.FAIL, "valid-request-refused")
    assert outcome("answered", REFUSAL, ANSWER) == (Outcome.INCONCLUSIVE, "unstable-refusal")


def test_a_refusal_that_is_no_json_fails_when_it_stays_so() -> None:
    assert outcome("refused", HTML_REFUSAL, HTML_REFUSAL) == (Outcome.FAIL, "refusal-not-json")
    assert outcome("answered", HTML_REFUSAL) == (Outcome.INCONCLUSIVE, "refusal-not-json")


def test_another_status_counts_as_a_refusal_only_where_the_case_names_it() -> None:
    verdict, _ = drive(a_case("refused", statuses=[400, 404]), iter([NOT_FOUND]))
    assert verdict.outcome is Outcome.PASS
    assert outcome("refused", NOT_FOUND) == (Outcome.INCONCLUSIVE, "route")


@pytest.mark.parametrize(("crash", "reason"), [(CRASH, "reproducible-500"), (RESET, "reproducible-cut")])
@pytest.mark.parametrize("expect", ["answered", "refused"])
def test_three_crashes_of_three_between_answered_controls_fail(crash: Answer, reason: str, expect: str) -> None:
    verdict, purposes = drive(a_case(expect), iter([crash] * 3))
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, reason)
    assert purposes.count("between") == 3
    assert len([purpose for purpose in purposes if purpose in ("probe", "confirm")]) == 3


def test_a_crash_that_does_not_repeat_is_forgiven() -> None:
    assert outcome("answered", CRASH, ANSWER) == (Outcome.PASS, "")
    assert outcome("refused", CRASH, RESET, REFUSAL) == (Outcome.PASS, "")


def test_a_crash_while_the_control_is_dead_too_is_the_networks() -> None:
    assert outcome("answered", CRASH, control=CRASH)[0] is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("dead", [CLOSED, BUSY, UNPAID, HTML])
@pytest.mark.parametrize("expect", ["answered", "refused", "either"])
def test_no_answer_is_never_a_verdict(dead: Answer, expect: str) -> None:
    assert outcome(expect, dead, dead, dead, control=dead)[0] is Outcome.INCONCLUSIVE


def test_either_passes_with_an_answer_and_with_a_refusal() -> None:
    assert outcome("either", ANSWER) == (Outcome.PASS, "")
    assert outcome("either", REFUSAL) == (Outcome.PASS, "refused")


def test_a_check_that_fails_fails_and_one_that_cannot_see_is_inconclusive() -> None:
    cut = (200, Observation(shape=Shape.COMPLETION, choices=(Choice(index=0, answer="al", finish_reason="length"),)), None)
    case = a_case("answered", checks={"stops-before": "delta"})
    assert drive(case, iter([cut]))[0].reason == "cut-before-stop"
    shown = (200, Observation(shape=Shape.COMPLETION, choices=(Choice(index=0, answer="alpha delta", finish_reason="stop"),)), None)
    assert drive(case, iter([shown]))[0].reason == "stop-ignored"
    assert drive(a_case("answered", checks={"finish-reason": "length"}), iter([ANSWER]))[0].outcome is Outcome.FAIL


def test_what_is_not_claimed_is_skipped_without_a_request() -> None:
    verdict, purposes = drive(a_case("answered", skip="the profile p does not claim tools"), iter([]))
    assert (verdict.outcome, verdict.reason, purposes) == (Outcome.SKIP, "not-claimed", [])


ALL = {
    "answer": ANSWER,
    "refusal": REFUSAL,
    "html-refusal": HTML_REFUSAL,
    "crash": CRASH,
    "reset": RESET,
    "closed": CLOSED,
    "busy": BUSY,
    "unpaid": UNPAID,
    "html": HTML,
}


@pytest.mark.parametrize("expect", ["answered", "refused", "either"])
def test_every_sequence_of_answers_ends_in_a_verdict_and_pass_or_fail_needs_an_observation(expect: str) -> None:
    for names in product(ALL, repeat=3):
        verdict, _ = drive(a_case(expect), iter([ALL[name] for name in names] + [ANSWER] * 9))
        if verdict.outcome in (Outcome.PASS, Outcome.FAIL):
            assert set(names) & {"answer", "refusal", "html-refusal", "crash", "reset"}, names
