"""The degradation suite: clean against correct endpoints, and able to say no."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.core import Level, Outcome, Request
from kvv.suites.degradation.checks import each_says, each_value, junk, no_junk, sentences
from kvv.suites.degradation.suite import DegradationSuite

SUITE = DegradationSuite()
PROSE = (
    "A stone bridge begins with its piers. Masons set heavy blocks on firm ground, then build a wooden frame that"
    " carries the arch until the keystone closes it. Once the mortar is dry the frame is struck, and the bridge bears"
    " its own weight for centuries."
)


def test_the_reference_endpoint_passes_every_case(stage: Any, clean: Any) -> None:
    variant, profile, surface = clean
    cases = stage.asked(SUITE, profile=profile, surface=surface)
    verdicts = stage.against_reference(SUITE, cases, variant=variant)
    assert [(verdict.case, verdict.detail) for verdict in verdicts if verdict.outcome is not Outcome.PASS] == []


def test_every_case_can_fail(stage: Any) -> None:
    answers = iter(range(10**6))

    def restless(request: Request) -> Any:
        """Never says the same twice, and calls a tool with half of its arguments where there is one."""
        calls = (
            [("put_record", '{"code": "K-77')] if isinstance(request.body, dict) and request.body.get("tools") else []
        )
        return stage.says(f"{next(answers)} ????//// ?? " + "!" * 40, calls=calls)

    for case in stage.asked(SUITE):
        verdict = stage.against(SUITE, case, restless)
        assert verdict.outcome is Outcome.FAIL, (case.id, verdict)


@pytest.mark.parametrize(
    ("fault", "case"),
    [
        ("J06", "degradation/cache/fixed-greedy/thinking-on/whole"),
        ("J06", "degradation/cache/greedy-text/thinking-on/whole"),
        ("J08", "degradation/load/json/thinking-on/whole"),
        ("J12", "degradation/load/prose/thinking-on/whole"),
        ("J10", "degradation/load/call/thinking-on/stream"),
        ("J12", "degradation/start/prose/thinking-on/whole"),
        ("J12", "degradation/length/fixed/thinking-on/stream"),
    ],
)
def test_a_known_fault_fails_the_case_made_for_it(stage: Any, fault: str, case: str) -> None:
    [verdict] = stage.against_reference(SUITE, [one for one in stage.asked(SUITE) if one.id == case], faults=(fault,))
    assert verdict.outcome is Outcome.FAIL, verdict


def test_calls_that_degrade_with_the_run_fail_at_its_end(stage: Any) -> None:
    cases = sorted((one for one in stage.asked(SUITE) if one.id.split("/")[2] == "call"), key=lambda case: case.risk)
    verdicts = {verdict.case: verdict for verdict in stage.against_reference(SUITE, cases, faults=("J11",))}
    assert cases[-1].id == "degradation/end/call/thinking-on/whole"
    assert cases[-1].level is Level.MUST
    assert verdicts[cases[-1].id].outcome is Outcome.FAIL


# --- junk --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (PROSE, None),
        ("Short.", None),
        (PROSE + "\n\n" + "=" * 40 + "\n" + PROSE.upper(), None),
        ("It costs 1000000000000000 marks. " + PROSE, None),
        ("!" * 200, "in a row"),
        ("????//// ?? //// ????", "neither letters"),
        (PROSE + " " + "a" * 12, "in a row"),
        (PROSE + " \x07", "control"),
        (PROSE + " \ufffd", "control"),
        ("We go on and on and on to the next of the same. " * 5, "the same 8 words"),
        (
            "zx ## ;; }} {{ ?? // 00 11 22 ## ;; }} qq ?? // 33 44 55 ## ;; }} {{ ?? // 66 77 88 99 ## ;;",
            "neither letters",
        ),
        (
            (
                "Мост строят из камня, сначала ставят опоры, потом делают арку и закрывают её замковым камнем сверху, а"
                " затем убирают леса."
            ),
            "another script",
        ),
    ],
)
def test_junk_is_told_from_prose(text: str, why: str | None) -> None:
    found = junk(text)
    assert (found is None) if why is None else (found is not None and why in found)


@given(st.text(max_size=400))
def test_no_text_breaks_the_junk_detector(text: str) -> None:
    assert junk(text) is None or isinstance(junk(text), str)


def test_an_empty_answer_is_no_prose(stage: Any) -> None:
    [case, *_] = stage.asked(SUITE)
    assert no_junk(stage.look(case, stage.says("")), True).reason == "no-content"
    assert no_junk(stage.look(case, stage.says("", finish="length")), True).outcome is Outcome.INCONCLUSIVE
    assert no_junk(stage.look(case, stage.says(PROSE)), True) is None


# --- mixed up ------------------------------------------------------------------------------------------------


def test_each_answer_must_be_its_own(stage: Any) -> None:
    [case, *_] = stage.asked(SUITE)
    wanted = {"a": {"colour": "red"}, "b": {"colour": "blue"}}

    def of(a: str, b: str) -> Any:
        return each_value(stage.look(case, stage.says(b), siblings={"a": stage.says(a), "b": stage.says(b)}), wanted)

    assert of('{"colour":"red"}', '{"colour":"blue"}') is None
    assert of('{"colour":"blue"}', '{"colour":"blue"}').reason == "answers-mixed-up"
    assert of('{"colour":"pink"}', '{"colour":"blue"}').reason == "wrong-value"
    assert of('{"colour":', '{"colour":"blue"}').reason == "content-not-json"


def test_an_answer_that_holds_anothers_text_is_mixed_up(stage: Any) -> None:
    [case, *_] = stage.asked(SUITE)

    def of(a: str, b: str) -> Any:
        return each_says(
            stage.look(case, stage.says(b), siblings={"a": stage.says(a), "b": stage.says(b)}),
            {"a": "Oslo", "b": "Lima"},
        )

    assert of("Oslo", "lima.") is None
    assert of("Oslo and Lima", "Lima").reason == "answers-mixed-up"
    assert of("Bergen", "Lima").reason == "wrong-answer"


def test_a_prefix_is_long_enough_for_a_cache_and_always_the_same() -> None:
    text = sentences([45, "old bridge"], {})
    assert sentences([45, "old bridge"], {}) == text
    assert len(set(text.split(". "))) == 45
    assert len(text) > 3_000
