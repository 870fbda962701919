"""The judgement of one answer: each class of failure beside its nearest right neighbour."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from kvv.core import Done, Observation, Outcome, Shape


def first_class(verdict: Any) -> str:
    return verdict.facts["failed_calls"][0]["class"] if verdict.facts["failed_calls"] else ""


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_a_valid_call_passes_with_all_values(bench: Any) -> None:
    verdict = bench.judge(bench.case_with(SCHEMA), bench.call({"n": 1}))
    assert (verdict.outcome, verdict.reason) == (Outcome.PASS, "")
    assert {key: value for key, value in verdict.values.items() if key != "call_digest"} == {
        "triggered": 1.0,
        "called": 1.0,
        "calls": 1.0,
        "valid_calls": 1.0,
        "schema_valid": 1.0,
        "schema_valid_k2vv": 1.0,
        "unusable_calls": 0.0,
        "ambiguous_calls": 0.0,
    }


def test_calls_have_one_digest_however_they_are_written_and_another_for_another_argument(bench: Any) -> None:
    def digest(*calls: Any) -> float:
        return bench.judge(bench.case_with(SCHEMA), *calls).values["call_digest"]

    one = digest(bench.call({"n": 1, "m": 2}))
    assert 0 < one <= 1
    assert json.loads(json.dumps(one)) == one
    for same in ('{"m":2,"n":1}', ' { "m" : 2, "n" : 1.0 } '):
        assert digest(bench.call(same)) == one
    for other in ({"n": 2, "m": 2}, {"n": 1}, '{"n": 1, "m": "2"}', "{", '{"n": NaN}', "[" * 100_000):
        assert digest(bench.call(other)) != one
    assert digest(bench.call({"n": 1, "m": 2}, "sub")) != one
    pair = bench.call({"n": 1}), bench.call({"n": 2})
    assert digest(*pair) == digest(*reversed(pair)) != digest(pair[0], pair[0])
    assert bench.judge(bench.case_with(SCHEMA), text="no").values["call_digest"] == 0


def test_an_answer_without_calls_passes_and_did_not_trigger(bench: Any) -> None:
    verdict = bench.judge(bench.case_with(SCHEMA), text="no")
    assert verdict.outcome is Outcome.PASS
    assert (verdict.values["triggered"], verdict.values["called"], verdict.values["schema_valid"]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "name", "reason"),
    [
        ("{", "add", "arguments-not-json"),
        ({"n": 1}, "sub", "unknown-tool"),
        ({"n": 1}, None, "unknown-tool"),
        ({}, "add", "schema-mismatch"),
    ],
)
def test_a_failed_call_fails_with_its_class(bench: Any, arguments: Any, name: str | None, reason: str) -> None:
    verdict = bench.judge(bench.case_with(SCHEMA), bench.call(arguments, name))
    assert (verdict.outcome, verdict.reason, first_class(verdict)) == (Outcome.FAIL, reason, reason)
    assert verdict.values["schema_valid"] == verdict.values["valid_calls"] == 0.0


def test_one_bad_call_of_two_spoils_the_response_and_not_the_other_call(bench: Any) -> None:
    verdict = bench.judge(bench.case_with(SCHEMA), bench.call({"n": 1}), bench.call("{"))
    assert (verdict.values["calls"], verdict.values["valid_calls"], verdict.values["schema_valid"]) == (2.0, 1.0, 0.0)


def test_the_finish_reason_without_a_call_is_its_own_class(bench: Any) -> None:
    verdict = bench.judge(bench.case_with(SCHEMA), finish="tool_calls")
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, "no-call-despite-finish")
    assert (verdict.values["triggered"], verdict.values["called"]) == (1.0, 0.0)


def test_a_call_without_the_finish_reason_called_and_did_not_trigger(bench: Any) -> None:
    verdict = bench.judge(bench.case_with(SCHEMA), bench.call({"n": 1}), finish="stop")
    assert (verdict.values["triggered"], verdict.values["called"], verdict.outcome) == (0.0, 1.0, Outcome.PASS)


def test_a_last_call_cut_by_length_is_told_from_broken_json(bench: Any) -> None:
    case = bench.case_with(SCHEMA)
    verdict = bench.judge(case, bench.call("{"), bench.call('{"n": '), finish="length")
    assert [fact["class"] for fact in verdict.facts["failed_calls"]] == ["arguments-not-json", "cut-by-length"]
    assert verdict.truncated
    assert first_class(bench.judge(case, bench.call('{"n": '))) == "arguments-not-json"
    whole = bench.judge(case, bench.call({"n": 1}), finish="length")
    assert (whole.outcome, whole.truncated) == (Outcome.PASS, True)


MARKER = "<|tool_call_begin|>"


@pytest.mark.parametrize("text", [f"I call {MARKER} add", "<|open|>call"])
def test_markers_in_the_text_are_a_lost_call(bench: Any, text: str) -> None:
    verdict = bench.judge(bench.case_with(SCHEMA), text=text)
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, "markers-leaked")


def test_a_marker_in_arguments_explains_the_broken_call(bench: Any) -> None:
    verdict = bench.judge(bench.case_with(SCHEMA), bench.call('{"n": 1}' + MARKER))
    assert [fact["class"] for fact in verdict.facts["failed_calls"]] == ["markers-leaked"]


def test_a_marker_in_the_reasoning_counts_only_without_a_call(bench: Any) -> None:
    case = bench.case_with(SCHEMA)
    assert bench.judge(case, reasoning=MARKER, text="x").reason == "markers-leaked"
    assert bench.judge(case, bench.call({"n": 1}), reasoning=MARKER).outcome is Outcome.PASS


def test_a_marker_that_the_request_quotes_and_a_plain_token_name_are_no_leak(bench: Any) -> None:
    case = bench.case_with(SCHEMA)
    body = {**case.inputs["body"], "messages": [{"role": "user", "content": f"What is {MARKER}?"}]}
    quoting = replace(case, inputs={**case.inputs, "body": body})
    assert bench.judge(quoting, text=f"{MARKER} opens a call").outcome is Outcome.PASS
    assert bench.judge(case, text="The token [EOS] ends a text.").outcome is Outcome.PASS


def test_a_broken_schema_leaves_the_sample_inconclusive_but_its_trigger_known(bench: Any) -> None:
    verdict = bench.judge(bench.case_with({"type": "objekt"}), bench.call({"n": 1}))
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "schema-unusable")
    assert (verdict.values["triggered"], verdict.values["unusable_calls"]) == (1.0, 1.0)


def test_an_endpoints_failure_beside_a_broken_schema_is_a_failure(bench: Any) -> None:
    verdict = bench.judge(bench.case_with({"type": "objekt"}), bench.call({"n": 1}), bench.call("{}", "sub"))
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, "unknown-tool")


def test_dynamic_tools_of_a_system_message_are_declared(bench: Any) -> None:
    case = bench.case_with(SCHEMA)
    late = {
        "role": "system",
        "content": "",
        "tools": [{"type": "function", "function": {"name": "late", "parameters": {"type": "object"}}}],
    }
    body = {**case.inputs["body"], "messages": [{"role": "user", "content": "x"}, late]}
    case = replace(case, inputs={**case.inputs, "body": body})
    assert bench.judge(case, bench.call({}, "late")).outcome is Outcome.PASS
    assert bench.judge(case, bench.call({}, "later")).reason == "unknown-tool"


def test_facts_are_bounded_whatever_the_model_says(bench: Any) -> None:
    verdict = bench.judge(bench.case_with(SCHEMA), *[bench.call("{", "x" * 5_000)] * 500, finish="y" * 5_000)
    assert len(repr(verdict)) < 20_000
    assert verdict.facts["failures"] == {"unknown-tool": 500}


@pytest.mark.parametrize(
    ("remark", "reason"),
    [("missing-result", "missing-result"), ("recorded-failure", "recorded-failure"), ("odd", "200-none")],
)
def test_an_imported_sample_without_an_answer_keeps_the_importers_reason(bench: Any, remark: str, reason: str) -> None:
    case = bench.case_with(SCHEMA)
    answered = replace(bench.answered(case), observation=Observation(shape=Shape.NONE, deviations=(remark,)))
    step = bench.suite.step(case, [(answered,)])
    assert isinstance(step, Done)
    assert (step.verdict.outcome, step.verdict.reason) == (Outcome.INCONCLUSIVE, reason)


def test_judging_imports_no_numerics() -> None:
    """Worker processes import the suite inside the time limit of their first sample; scipy took it up on a loaded
    machine.
    """
    code = "import sys, kvv.suites.toolcall.suite; sys.exit(bool({'numpy', 'scipy', 'pandas'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
