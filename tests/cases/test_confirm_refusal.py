"""A benchmark's request that was refused: the vendor's failure only when it is refused twice beside an answered plain
request.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from replies import completion, exchange, refusal

from kvv.cases.confirm_refusal import judge_recorded
from kvv.cases.suite import Context, Judge, Settings, Suite, load_suite
from kvv.core import Answered, Ask, Case, Done, FaultKind, Identity, Observation, Outcome, Request, Shape, Verdict
from kvv.data import load
from kvv.profiles.profile import load_profile


def said(kind: str, request: Request, case: Case) -> Answered:
    identity = Identity(case=case.id, sample=case.sample, step=0, ask=0, purpose=request.purpose)
    match kind:
        case "refused":
            return Answered(request=request, exchange=exchange(identity, 400), observation=refusal("no such field"))
        case "silent":
            return Answered(
                request=request,
                exchange=exchange(identity, None, fault=FaultKind.RESET),
                observation=Observation(shape=Shape.NONE),
            )
        case _:
            return Answered(
                request=request, exchange=exchange(identity, 200), observation=completion("x", finish="stop")
            )


def first_case(suite: Suite) -> Case:
    judge = Judge(model="judge")
    dataset = load(suite.dataset or "", fixture=True)
    context = Context(
        model="m", profile=load_profile("openai"), settings=Settings(max_tokens=64), dataset=dataset, judge=judge
    )
    case = suite.cases(context)[0]
    return case


def play(suite: Suite, case: Case, first: str, again: str = "", control: str = "") -> Verdict | Ask:
    step = suite.step(case, [])
    assert isinstance(step, Ask)
    history = [(said(first, step.requests[0], case),)]
    step = suite.step(case, history)
    if again:
        assert isinstance(step, Ask)
        step = suite.step(
            case,
            [
                *history,
                tuple(said(kind, request, case) for kind, request in zip((again, control), step.requests, strict=True)),
            ],
        )
    if isinstance(step, Done):
        return step.verdict
    assert isinstance(step, Ask)
    return step


SUITES = ["aime2025", "ocrbench", "mmmu_pro", "toolcall", "beam"]


@pytest.mark.parametrize("name", SUITES)
def test_a_refused_question_is_asked_once_more_beside_a_plain_request_of_its_own(name: str) -> None:
    suite = load_suite(name)
    case = first_case(suite)
    asked = suite.step(case, [])
    again = play(suite, case, "refused")
    assert isinstance(asked, Ask)
    assert isinstance(again, Ask)
    confirm, control = again.requests
    assert (confirm.body, confirm.purpose) == (asked.requests[0].body, "confirm")
    # no setting that may be what was refused, and never the answer of a minute ago, as a shared "control" would be
    assert control.purpose == "beside"
    assert control.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Reply with exactly: ready"}],
        "max_tokens": 64,
    }


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize(
    ("again", "control", "outcome", "reason"),
    [
        ("refused", "answered", Outcome.FAIL, "valid-request-refused"),
        ("refused", "refused", Outcome.INCONCLUSIVE, "control-not-answered"),
        ("refused", "silent", Outcome.INCONCLUSIVE, "control-not-answered"),
        ("answered", "answered", Outcome.INCONCLUSIVE, "unstable-refusal"),
        ("silent", "answered", Outcome.INCONCLUSIVE, "reset"),
    ],
)
def test_only_a_repeated_refusal_beside_an_answered_request_fails(
    name: str, again: str, control: str, outcome: Outcome, reason: str
) -> None:
    suite = load_suite(name)
    found = play(suite, first_case(suite), "refused", again, control)
    assert isinstance(found, Verdict)
    assert (found.outcome, found.reason) == (outcome, reason)


def test_every_ending_is_a_verdict_of_the_same_sample() -> None:
    suite = load_suite("ocrbench")
    case = replace(first_case(suite), sample=3)
    for again, control in product(["refused", "answered", "silent"], repeat=2):
        found = play(suite, case, "refused", again, control)
        assert isinstance(found, Verdict)
        assert (found.case, found.sample, len(found.evidence)) == (case.id, 3, 2)


def test_a_recorded_refusal_nobody_can_ask_about_again_is_inconclusive() -> None:
    suite = load_suite("ocrbench")
    case = first_case(suite)
    request = suite.step(case, []).requests[0]  # type: ignore[union-attr]
    found = judge_recorded(case, said("refused", request, case))
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "unconfirmed-refusal")


@pytest.mark.parametrize(
    ("room", "outcome"), [("fits", Outcome.FAIL), ("unknown", Outcome.INCONCLUSIVE), ("over", Outcome.INCONCLUSIVE)]
)
def test_a_refusal_is_the_vendors_only_where_the_prompt_certainly_fits(room: str, outcome: Outcome) -> None:
    suite = load_suite("beam")
    case = first_case(suite)
    found = play(suite, replace(case, inputs={**case.inputs, "room": room}), "refused", "refused", "answered")
    assert isinstance(found, Verdict)
    assert found.outcome is outcome
