"""The tools suite: clean against correct endpoints, and able to say no."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvv.core import Outcome, Request
from kvv.suites.tools.checks import argument_values, distinct_ids, reports_results, says_all, valid_formats
from kvv.suites.tools.suite import ToolsSuite

SUITE = ToolsSuite()


def test_the_reference_endpoint_passes_every_case(stage: Any, clean: Any) -> None:
    variant, profile, surface = clean
    cases = stage.asked(SUITE, profile=profile, surface=surface, tier="full")
    verdicts = stage.against_reference(SUITE, cases, variant=variant)
    assert [(verdict.case, verdict.detail) for verdict in verdicts if verdict.outcome is not Outcome.PASS] == []


def nonsense(stage: Any, request: Request) -> Any:
    """Answers everything with a call of a tool that nobody declared."""
    return stage.says(None, calls=[("sing", '{"value": 1')], finish="tool_calls")


def prose(stage: Any, request: Request) -> Any:
    return stage.says("I would rather not.", finish="content")


def by_position(stage: Any, request: Request) -> Any:
    """Takes the first result for that of the first call."""
    results = [one for one in request.body["messages"] if one["role"] == "tool"]
    swapped = bool(results) and results[0]["tool_call_id"].endswith("_1")
    usage = stage.counts(20)  # whatever the results say
    return stage.says("unknown" if swapped else "code WX-4471 or code TM-9302", finish="stop", usage=usage)


def refusing(stage: Any, request: Request) -> Any:
    return stage.refuses()


def test_every_case_can_fail(stage: Any) -> None:
    """One of a few crude endpoints fails each case; level may cases that allow a refusal only need one that is
    wrong.
    """
    for case in stage.asked(SUITE):
        outcomes = [
            stage.against(SUITE, case, lambda request, wrong=wrong: wrong(stage, request)).outcome
            for wrong in (nonsense, prose, refusing, by_position)
        ]
        assert Outcome.FAIL in outcomes, (case.id, outcomes)
        assert Outcome.PASS not in outcomes[:2], (case.id, outcomes)


@pytest.mark.parametrize(
    ("fault", "case"),
    [
        ("B11", "tools/name/hyphens/thinking-on/whole"),
        ("A15", "tools/not-parallel/thinking-on/whole"),
        ("B35", "tools/fixed/ascii/thinking-on/whole"),
        ("B36", "tools/schema/types/01/stream"),
        ("B44", "tools/fixed/chinese/thinking-on/whole"),
        ("B15", "tools/preamble/thinking-on/stream"),
        ("B17", "tools/id-form/thinking-on/whole"),
        ("B45", "tools/schema/refs/01/whole"),
    ],
)
def test_a_known_fault_fails_the_case_made_for_it(stage: Any, fault: str, case: str) -> None:
    cases = [one for one in stage.asked(SUITE) if one.id == case]
    [verdict] = stage.against_reference(SUITE, cases, faults=(fault,))
    assert verdict.outcome is Outcome.FAIL, verdict


# --- checks ----------------------------------------------------------------------------------------------


@pytest.fixture
def case(stage: Any) -> Any:
    return stage.asked(SUITE)[0]


def test_ids_must_be_there_and_differ(stage: Any, case: Any) -> None:
    def of(*ids: str | None) -> Any:
        return distinct_ids(stage.look(case, stage.says(None, calls=[("f", "{}", one) for one in ids])), True)

    assert of("f_0", "f_1") is None
    assert of("f_0", "f_0").reason == "tool-id-repeats"
    assert of("f_0", None).reason == "no-tool-id"
    assert of("f_0", "").reason == "no-tool-id"


def test_each_wanted_value_stands_in_some_call(stage: Any, case: Any) -> None:
    look = stage.look(
        case, stage.says(None, calls=[("f", '{"city":"paris, France"}'), ("f", "no json"), ("f", '["x"]')])
    )
    assert argument_values(look, {"name": "city", "all": ["Paris"]}) is None
    assert argument_values(look, {"name": "city", "all": ["Paris", "London"]}).reason == "argument-missing"


def test_results_are_asked_for_only_of_tools_that_were_called(stage: Any, case: Any) -> None:
    siblings = {"call": stage.says(None, calls=[("f", "{}")])}
    wanted = {"of": "call", "contents": {"f": "WX-1", "g": "TM-2"}}
    assert reports_results(stage.look(case, stage.says("It is wx-1."), siblings=siblings), wanted) is None
    assert reports_results(stage.look(case, stage.says("It is TM-2."), siblings=siblings), wanted) is not None
    assert reports_results(stage.look(case, stage.says(None, calls=[("g", "{}")]), siblings=siblings), wanted) is None


def test_every_result_of_a_prepared_history_is_reported(stage: Any, case: Any) -> None:
    wanted = ["WX-1", "TM-2"]
    assert reports_results(stage.look(case, stage.says("wx-1 and TM-2")), wanted) is None
    assert reports_results(stage.look(case, stage.says("WX-1 alone")), wanted).reason == "wrong-answer"
    assert reports_results(stage.look(case, stage.says(None, calls=[("g", "{}")])), wanted) is None


def test_a_text_cut_by_length_is_not_blamed(stage: Any, case: Any) -> None:
    assert says_all(stage.look(case, stage.says("al", finish="length")), ["all"]).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("form", "right", "wrong"),
    [
        ("date", "2026-02-28", "2026-02-30"),
        ("date-time", "2026-02-28T10:00:00Z", "2026-02-28"),
        ("email", "a@b.example", "a b.example"),
        ("ipv4", "192.0.2.1", "192.0.2.256"),
        ("ipv6", "2001:db8::1", "2001:db8::g"),
        ("uuid", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-42d3-a456-42661417400"),
        ("colour", "anything", None),
    ],
)
def test_a_format_is_checked_where_the_schema_names_one(
    stage: Any, case: Any, form: str, right: str, wrong: str | None
) -> None:
    body = {
        "tools": [
            {"function": {"name": "f", "parameters": {"properties": {"value": {"type": "string", "format": form}}}}}
        ]
    }

    def of(value: Any) -> Any:
        return valid_formats(
            stage.look(case, stage.says(None, calls=[("f", json.dumps({"value": value}))]), body=body), True
        )

    assert of(right) is None
    if wrong is not None:
        assert of(wrong).reason == "format-mismatch"
        assert of(7).reason == "format-mismatch"
