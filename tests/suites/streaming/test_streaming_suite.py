"""The streaming suite: clean against correct endpoints, and able to say no."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kvv.core import Choice, Observation, Outcome, Request, Shape, UsageReport
from kvv.suites.streaming.checks import (
    accounted_alike,
    arrives_over_time,
    choices,
    comes_in_pieces,
    counts_up,
    cut_at,
    has_logprobs,
    pieces,
    usage_place,
)
from kvv.suites.streaming.suite import StreamingSuite

SUITE = StreamingSuite()


def test_the_reference_endpoint_passes_every_case(stage: Any, clean: Any) -> None:
    variant, profile, surface = clean
    cases = stage.asked(SUITE, profile=profile, surface=surface)
    verdicts = stage.against_reference(SUITE, cases, variant=variant)
    assert [(verdict.case, verdict.detail) for verdict in verdicts if verdict.outcome is not Outcome.PASS] == []


def test_every_case_can_fail(stage: Any) -> None:
    def silent(request: Request) -> Any:
        return stage.says(None, finish="stop", usage={"prompt_tokens": 5, "completion_tokens": 9000, "total_tokens": 5})

    def other(request: Request) -> Any:
        streamed = request.stream
        return stage.says(
            "no" if streamed else None,
            finish="tool_calls" if streamed else "stop",
            calls=[] if streamed else [("f", "{")],
        )

    def adding(request: Request) -> Any:
        return stage.says(" ready<|" if request.stream else "ready", finish="stop")

    def refusing(request: Request) -> Any:
        return stage.says("ready") if request.purpose.startswith("between") else stage.refuses()

    # log probabilities are read from frames: the faults below
    for case in [case for case in stage.asked(SUITE) if not case.id.startswith("streaming/logprobs-")]:
        endpoints = (silent, other, refusing, adding)
        outcomes = [stage.against(SUITE, case, endpoint).outcome for endpoint in endpoints]
        assert Outcome.FAIL in outcomes, (case.id, outcomes)


@pytest.mark.parametrize(
    ("fault", "case"),
    [
        ("H07", "streaming/cut/text/thinking-on/stream"),
        ("B25", "streaming/same/call/thinking-on"),
        ("E09", "streaming/same/json/thinking-on"),
        ("C18", "streaming/text/script/mixed/thinking-on/stream"),
        ("C18", "streaming/text/script-fixed/thinking-on/stream"),
        ("C27", "streaming/same/tokens/thinking-on"),
        *((f"K{number}", "streaming/logprobs-values/thinking-on/stream") for number in (16, 17, 18, 19, 20)),
        *((f"K{number}", "streaming/logprobs-values/thinking-on/whole") for number in (16, 17, 18, 19, 20)),
        ("K30", "streaming/logprobs-join/thinking-on/whole"),
        ("K24", "streaming/incremental/one-piece/thinking-on/stream"),
    ],
)
def test_a_known_fault_fails_the_case_made_for_it(stage: Any, fault: str, case: str) -> None:
    [verdict] = stage.against_reference(SUITE, [one for one in stage.asked(SUITE) if one.id == case], faults=(fault,))
    assert verdict.outcome is Outcome.FAIL, verdict


# --- frames ----------------------------------------------------------------------------------------------


def frame(**delta: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode()


@pytest.fixture
def case(stage: Any) -> Any:
    return stage.asked(SUITE)[0]


def test_pieces_are_told_apart_by_kind_and_hostile_frames_give_none(stage: Any, case: Any) -> None:
    data = [
        frame(role="assistant", content=""),
        frame(reasoning="a"),
        frame(reasoning_content="b"),
        frame(content="c"),
        frame(tool_calls=[{"index": 0, "function": {"arguments": "d"}}, "x", {"function": None}]),
        frame(tool_calls={"index": 0}),
        b"[1]",
        b'{"choices": null}',
        b'{"choices": ["x", {"delta": null}]}',
        b"[DONE]",
        b"[" * 100_000,
    ]
    look = stage.look(case, stage.says("c"), frames=[(float(at), one) for at, one in enumerate(data)])
    assert {kind: [piece.text for piece in pieces(look, kind)] for kind in ("content", "reasoning", "arguments")} == {
        "content": ["c"],
        "reasoning": ["a", "b"],
        "arguments": ["d"],
    }


def test_a_text_in_one_piece_is_a_burst_and_none_at_all_shows_nothing(stage: Any, case: Any) -> None:
    wanted = {"kind": "content", "at-least": 3}

    def of(*texts: str) -> Any:
        return comes_in_pieces(
            stage.look(case, stage.says("x"), frames=[(1.0, frame(content=text)) for text in texts]), wanted
        )

    assert of("1", "2", "3") is None
    assert of("1", "23").reason == "one-burst"
    assert of().outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("first", "last", "total", "held"),
    [
        (100.0, 9_800.0, 10_000.0, False),
        (9_500.0, 9_900.0, 10_000.0, True),
        (8_500.0, 9_900.0, 10_000.0, False),
        (950.0, 990.0, 1_000.0, False),
    ],
)
def test_increments_at_the_very_end_of_a_long_answer_were_held_back(
    stage: Any, case: Any, first: float, last: float, total: float, held: bool
) -> None:
    frames = [(first + (last - first) * at / 19, frame(content="x")) for at in range(20)]
    found = arrives_over_time(stage.look(case, stage.says("x"), frames=frames, total_ms=total), True)
    assert (found is not None) is held


# --- texts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "finish", "reason"),
    [
        ("1, 2, 3, 4, 5", "stop", None),
        ("1, 2, 4, 5", "stop", "miscounted"),
        ("1, 2, 2, 3, 4, 5", "stop", "miscounted"),
        ("1, 2, 3", "stop", "broke-off"),
        ("1, 2, 3", "length", None),
        ("1, 2, 9, 4", "length", "miscounted"),
        ("none", "stop", "no-count"),
        ("1, 2, ..., 5", "stop", "no-count"),
        ("1, 2, 3, 45", "length", None),
        ("", "length", "cut-by-length"),
    ],
)
def test_a_count_has_no_gap_and_comes_to_its_goal(
    stage: Any, case: Any, text: str, finish: str, reason: str | None
) -> None:
    found = counts_up(stage.look(case, stage.says(text, finish=finish)), 5)
    assert (found.reason if found else None) == reason


def test_a_number_cut_in_the_middle_is_no_slip(stage: Any, case: Any) -> None:
    text = ", ".join(map(str, range(1, 12))) + ", 1"
    assert counts_up(stage.look(case, stage.says(text, finish="length")), 50) is None


@pytest.mark.parametrize(
    ("tokens", "finish", "outcome"),
    [
        (100, "length", None),
        (101, "length", Outcome.FAIL),
        (100, "stop", Outcome.FAIL),
        (40, "stop", Outcome.INCONCLUSIVE),
        (40, "length", None),
        (40, None, Outcome.FAIL),
    ],
)
def test_only_an_answer_that_reached_its_limit_must_say_so(
    stage: Any, case: Any, tokens: int, finish: str | None, outcome: Outcome | None
) -> None:
    found = cut_at(stage.look(case, stage.says("x", finish=finish, usage=stage.counts(3, tokens))), 100)
    assert (found.outcome if found else None) is outcome


def test_logprobs_must_be_there(stage: Any, case: Any) -> None:
    status, said = stage.says("x")
    assert has_logprobs(stage.look(case, (status, said)), True).reason == "no-logprobs"
    with_them = replace(said, choices=(replace(said.choices[0], logprobs=1),))
    assert has_logprobs(stage.look(case, (status, with_them)), True) is None


def test_two_choices_are_two_whole_ones(stage: Any, case: Any) -> None:
    def of(*parts: tuple[int | None, str, str | None]) -> Any:
        made = tuple(Choice(index=index, answer=text, finish_reason=finish) for index, text, finish in parts)
        return choices(
            stage.look(case, (200, Observation(shape=Shape.COMPLETION, choices=made))), {"n": 2, "says": "ready"}
        )

    assert of((0, "ready", "stop"), (1, "Ready.", "stop")) is None
    assert of((0, "ready", "stop")).reason == "choice-count"
    assert of((0, "ready", "stop"), (0, "ready", "stop")).reason == "choice-count"
    assert of((0, "ready", "stop"), (None, "ready", "stop")).reason == "choice-count"
    assert of((0, "ready", "stop"), (1, "ready", None)).reason == "choice-unfinished"
    assert of((0, "ready", "stop"), (1, "!!!!", "stop")).reason == "wrong-answer"


ACCOUNTED = {"streamed": ["s1", "s2", "s3"], "whole": ["w1", "w2", "w3"], "before": "before"}


@pytest.mark.parametrize(
    ("streamed", "whole", "reason"),
    [
        ([9, 9, 9], [9, 9, 9], None),
        ([12, 9, 9], [9, 9, 10], None),  # one text was read as other tokens than it was made of
        ([10, 10, 9], [9, 9, 9], "tokens-lost"),
        ([9, 9, 9], [9, 12, 12], "tokens-lost"),
    ],
)
def test_streamed_and_whole_answers_account_alike_for_their_tokens(
    stage: Any, case: Any, streamed: list[int], whole: list[int], reason: str | None
) -> None:
    """Each answer was charged so many tokens more than its text counts as history."""
    siblings = {"before": stage.says(usage=stage.counts(50))}
    for kind, missing in (("s", streamed), ("w", whole)):
        for number, more in enumerate(missing, 1):
            siblings[f"{kind}{number}"] = stage.says("391", usage=stage.counts(20, 40 + number + more))
            siblings[f"after-{kind}{number}"] = stage.says(usage=stage.counts(50 + 40 + number))
    found = accounted_alike(stage.look(case, stage.says(), siblings=siblings), ACCOUNTED)
    assert (found and found.reason) == reason


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"s2": ("length", 9)}, "cut-by-length"),
        ({"w1": ("stop", None)}, "no-completion-tokens"),
        ({"after-s3": ("stop", None)}, "no-prompt-tokens"),
    ],
)
def test_what_was_not_counted_accounts_for_nothing(stage: Any, case: Any, broken: dict[str, Any], reason: str) -> None:
    names = [*ACCOUNTED["streamed"], *ACCOUNTED["whole"]]
    siblings = {
        name: stage.says(usage=stage.counts(50, 9)) for name in ["before", *names, *(f"after-{name}" for name in names)]
    }
    for name, (finish, tokens) in broken.items():
        siblings[name] = stage.says(finish=finish, **({} if tokens is None else {"usage": stage.counts(50, tokens)}))
    found = accounted_alike(stage.look(case, stage.says(), siblings=siblings), ACCOUNTED)
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, reason)


def test_usage_stands_where_it_belongs(stage: Any, case: Any) -> None:
    def of(wanted: str, *places: str) -> Any:
        usage = tuple(UsageReport(place=place, frame=0, raw={}) for place in places)
        return usage_place(stage.look(case, (200, Observation(shape=Shape.COMPLETION, usage=usage))), wanted)

    assert of("summary", "header", "choice", "summary") is None
    assert of("summary", "header", "choice").reason == "no-usage"
    assert of("summary").reason == "no-usage"
    assert of("nowhere", "header") is None
    assert of("nowhere", "choice").outcome is Outcome.PASS
