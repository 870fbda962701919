"""How a contract case reaches its one verdict: only from positive observations, confirmed, between controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from kvv.core import FaultKind, Outcome, Request

ANSWERS = {
    "answer": lambda lab: lab.says(),
    "refusal": lambda lab: lab.refuses(),
    "html-refusal": lambda lab: lab.status(400),
    "crash": lambda lab: lab.status(500),
    "bad-gateway": lambda lab: lab.status(502),
    "reset": lambda lab: lab.fails(FaultKind.RESET),
    "closed": lambda lab: lab.fails(FaultKind.CONNECT),
    "busy": lambda lab: lab.refuses(429, kind="rate_limit"),
    "unpaid": lambda lab: lab.refuses(402, kind="billing"),
    "html": lambda lab: lab.status(200),
    "not-found": lambda lab: lab.refuses(404, kind="not_found"),
}
Play = Callable[..., tuple[Outcome, str, list[str]]]


@pytest.fixture
def play(lab: Any) -> Play:
    """Probes get the named answers in order, every control the named one: outcome, reason, purposes of the requests."""

    def run(expect: str, *probes: str, control: str = "answer", **inputs: Any) -> tuple[Outcome, str, list[str]]:
        left: Iterator[str] = iter(probes)

        def endpoint(request: Request) -> Any:
            kind = request.purpose.partition(":")[0]
            return ANSWERS[control if kind in ("control", "between", "after") else next(left)](lab)

        verdict, asked = lab.drive(lab.case(expect, **inputs), endpoint)
        return verdict.outcome, verdict.reason, [request.purpose for request in asked]

    return run


def test_a_refusal_beside_an_answered_sibling_passes(play: Play) -> None:
    assert play("refused", "refusal") == (Outcome.PASS, "", ["probe", "control"])


@pytest.mark.parametrize("control", ["refusal", "crash", "closed", "html", "unpaid"])
def test_a_refusal_whose_sibling_was_not_answered_proves_nothing(play: Play, control: str) -> None:
    assert play("refused", "refusal", control=control)[:2] == (Outcome.INCONCLUSIVE, "control-not-answered")


def test_an_accepted_invalid_request_fails_after_one_more_sample(play: Play) -> None:
    assert play("refused", "answer", "answer") == (
        Outcome.FAIL,
        "invalid-request-accepted",
        ["probe", "control", "confirm"],
    )


@pytest.mark.parametrize(
    ("replies", "outcome", "reason"),
    [
        (("answer", "answer"), Outcome.FAIL, "invalid-request-accepted"),
        (("answer", "refusal", "answer"), Outcome.FAIL, "invalid-request-accepted"),
        (("answer", "refusal", "refusal", "refusal"), Outcome.INCONCLUSIVE, "invalid-request-accepted-once"),
        (("refusal",), Outcome.PASS, ""),
    ],
)
def test_an_invalid_request_fails_where_it_is_accepted_twice(
    replies: tuple[str, ...], outcome: Outcome, reason: str, play: Play
) -> None:
    assert play("refused", *replies)[:2] == (outcome, reason)


@pytest.mark.parametrize("control", ["refusal", "crash", "closed", "unpaid"])
def test_a_valid_request_refused_by_an_endpoint_that_refuses_the_plainest_one_too_is_no_verdict(
    play: Play, control: str
) -> None:
    assert play("answered", "refusal", "refusal", control=control)[:2] == (Outcome.INCONCLUSIVE, "control-not-answered")


def test_a_refused_valid_request_fails_only_when_refused_twice(play: Play) -> None:
    assert play("answered", "refusal", "refusal")[:2] == (Outcome.FAIL, "valid-request-refused")
    assert play("answered", "refusal", "answer")[:2] == (Outcome.INCONCLUSIVE, "unstable-refusal")


def test_a_refusal_that_is_no_json_fails_when_it_stays_so(play: Play) -> None:
    assert play("refused", "html-refusal", "html-refusal")[:2] == (Outcome.FAIL, "refusal-not-json")
    assert play("answered", "html-refusal")[:2] == (Outcome.INCONCLUSIVE, "refusal-not-json")


def test_another_status_counts_as_a_refusal_only_where_the_case_names_it(play: Play) -> None:
    assert play("refused", "not-found", statuses=[400, 404])[0] is Outcome.PASS
    assert play("refused", "not-found")[:2] == (Outcome.INCONCLUSIVE, "route")


@pytest.mark.parametrize(
    ("crash", "reason"),
    [("crash", "reproducible-500"), ("bad-gateway", "reproducible-500"), ("reset", "reproducible-cut")],
)
@pytest.mark.parametrize("expect", ["answered", "refused", "either"])
def test_three_crashes_of_three_between_answered_controls_fail(
    play: Play, crash: str, reason: str, expect: str
) -> None:
    outcome, code, purposes = play(expect, *[crash] * 3)
    assert (outcome, code) == (Outcome.FAIL, reason)
    assert purposes.count("between") == 3
    assert len([purpose for purpose in purposes if purpose in ("probe", "confirm")]) == 3


def test_a_crash_that_does_not_repeat_is_forgiven(play: Play) -> None:
    assert play("answered", "crash", "answer")[:2] == (Outcome.PASS, "")
    assert play("refused", "crash", "reset", "refusal")[:2] == (Outcome.PASS, "")


def test_a_crash_while_the_control_is_dead_too_is_the_networks(play: Play) -> None:
    assert play("answered", "crash", control="crash")[0] is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("dead", ["closed", "busy", "unpaid", "html"])
@pytest.mark.parametrize("expect", ["answered", "refused", "either"])
def test_no_answer_is_never_a_verdict(play: Play, dead: str, expect: str) -> None:
    assert play(expect, dead, dead, dead, control=dead)[0] is Outcome.INCONCLUSIVE


def test_either_passes_with_an_answer_and_with_a_refusal(play: Play) -> None:
    assert play("either", "answer")[:2] == (Outcome.PASS, "")
    assert play("either", "answer")[2] == ["probe"]
    assert play("either", "refusal") == (Outcome.PASS, "refused", ["probe", "control"])


@pytest.mark.parametrize("control", ["refusal", "crash", "closed", "html", "unpaid"])
def test_a_refusal_that_is_allowed_proves_nothing_either_where_its_sibling_was_not_answered(
    play: Play, control: str
) -> None:
    assert play("either", "refusal", control=control)[:2] == (Outcome.INCONCLUSIVE, "control-not-answered")


def test_after_a_refusal_the_endpoint_must_still_answer(play: Play) -> None:
    assert play("refused", "refusal", afterwards=True) == (Outcome.PASS, "", ["probe", "control", "after"])


def test_silence_after_a_refusal_is_asked_again_and_then_no_pass(lab: Any) -> None:
    case = lab.case("refused", afterwards=True)

    def endpoint(request: Request) -> Any:
        return {"probe": lab.refuses(), "control": lab.says(), "after": lab.status(500)}[request.purpose]

    verdict, asked = lab.drive(case, endpoint)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "silent-afterwards")
    assert [request.purpose for request in asked].count("after") == 2


def test_a_check_that_fails_is_confirmed_by_one_more_sample(lab: Any) -> None:
    case = lab.case(checks={"finish-reason": "length"})
    verdict, asked = lab.drive(case, lambda request: lab.says())
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, "finish-reason")
    assert verdict.detail.endswith("(2 of 2 samples)")
    assert [request.purpose for request in asked] == ["probe", "confirm"]


def test_a_check_that_failed_once_is_no_verdict_and_shows_the_failing_answer(lab: Any) -> None:
    left = iter([lab.says("wrong"), lab.says("right", finish="length")])
    verdict, _ = lab.drive(lab.case(checks={"finish-reason": "length"}), lambda request: next(left))
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "finish-reason-once")
    assert verdict.detail.endswith("(1 of 2 samples)")
    # the first answer is the one that failed
    assert [evidence.exchange.split("/")[-1] for evidence in verdict.evidence] == ["0.0.probe"]


def test_a_failed_check_whose_confirmation_never_came_is_inconclusive(lab: Any) -> None:
    left = iter([lab.says(), lab.fails(FaultKind.CONNECT)])
    verdict, _ = lab.drive(lab.case(checks={"finish-reason": "length"}), lambda request: next(left))
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "connect")


def test_a_check_that_cannot_see_is_inconclusive_and_not_confirmed(lab: Any) -> None:
    verdict, asked = lab.drive(
        lab.case(checks={"stops-before": "delta"}), lambda request: lab.says("al", finish="length")
    )
    assert (verdict.outcome, verdict.reason, len(asked)) == (Outcome.INCONCLUSIVE, "cut-before-stop", 1)
    shown, _ = lab.drive(lab.case(checks={"stops-before": "delta"}), lambda request: lab.says("alpha delta"))
    assert (shown.outcome, shown.reason) == (Outcome.FAIL, "stop-ignored")


def test_what_is_not_claimed_is_skipped_without_a_request(lab: Any) -> None:
    verdict, asked = lab.drive(lab.case(skip="the profile p does not claim tools"), lambda request: lab.says())
    assert (verdict.outcome, verdict.reason, asked) == (Outcome.SKIP, "not-claimed", [])


@pytest.mark.parametrize("expect", ["answered", "refused", "either"])
def test_every_sequence_of_answers_ends_in_a_verdict_and_pass_or_fail_needs_an_observation(
    play: Play, expect: str
) -> None:
    for names in product(ANSWERS, repeat=3):
        outcome, _, _ = play(expect, *names, *["answer"] * 9)
        if outcome in (Outcome.PASS, Outcome.FAIL):
            assert set(names) & {"answer", "refusal", "html-refusal", "crash", "bad-gateway", "reset"}, names
