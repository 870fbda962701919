"""Checks at their edges: what passes, what fails, and what an answer cannot show."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.cases.checks import ANSWER_CHECKS, COMPARISONS, CheckProblem
from kvv.cases.checks.schema import mismatch, read_json
from kvv.core import Outcome

TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}


def outcome(problem: CheckProblem | None) -> tuple[Outcome, str]:
    return (Outcome.PASS, "") if problem is None else (problem.outcome, problem.reason)


@pytest.mark.parametrize(
    ("tokens", "wanted", "expected"),
    [
        (36, {"exact": 36}, (Outcome.PASS, "")),
        (37, {"exact": 36}, (Outcome.FAIL, "prompt-tokens")),
        (39, {"exact": 36}, (Outcome.FAIL, "prompt-tokens")),
        (39, {"exact": 36, "stub": 3}, (Outcome.PASS, "known-stub")),
        (38, {"exact": 36, "stub": 3}, (Outcome.FAIL, "prompt-tokens")),
        (35, {"exact": 36, "stub": 3, "upto": 3}, (Outcome.FAIL, "prompt-tokens")),
        (99, {"exact": 99, "upto": 3}, (Outcome.PASS, "")),
        (100, {"exact": 99, "upto": 3}, (Outcome.PASS, "within-tolerance")),
        (102, {"exact": 99, "upto": 3}, (Outcome.PASS, "known-stub")),
        (103, {"exact": 99, "upto": 3}, (Outcome.FAIL, "prompt-tokens")),
    ],
)
def test_only_the_published_tolerance_and_the_known_stub_pass(
    lab: Any, tokens: int, wanted: Any, expected: tuple[Outcome, str]
) -> None:
    assert outcome(ANSWER_CHECKS["prompt-tokens"](lab.look(lab.counts(tokens)), wanted)) == expected


def test_one_token_too_many_is_called_what_it_looks_like(lab: Any) -> None:
    problem = ANSWER_CHECKS["prompt-tokens"](lab.look(lab.counts(37)), 36)
    assert problem is not None
    assert "BOS" in problem.detail


def test_a_count_that_is_absent_is_no_verdict(lab: Any) -> None:
    assert outcome(ANSWER_CHECKS["prompt-tokens"](lab.look(lab.says()), 36))[0] is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"calls": [("f", '{"a": 1}')]}, Outcome.PASS),
        ({"calls": [("f", '{"a": 1}')], "finish": "stop"}, Outcome.FAIL),
        ({"text": "", "finish": "tool_calls"}, Outcome.FAIL),
        ({"text": None, "reasoning": "hm", "finish": "length"}, Outcome.INCONCLUSIVE),
        # a forced call that never came: running on to the limit is the fault itself (SGLang 39895)
        ({"text": "blah blah", "finish": "length"}, Outcome.FAIL),
        ({"calls": [("f", '{"a":')], "finish": "length"}, Outcome.INCONCLUSIVE),
        ({"calls": [("g", "{}")]}, Outcome.FAIL),
        ({"calls": [(None, "{}")]}, Outcome.FAIL),
    ],
)
def test_a_forced_call(lab: Any, answer: dict[str, Any], expected: Outcome) -> None:
    assert outcome(ANSWER_CHECKS["calls"](lab.look(lab.says(answer.pop("text", None), **answer)), "f"))[0] is expected


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('{"a": 1}', ""),
        ('{"a": "1"}', "schema-mismatch"),
        ("{}", "schema-mismatch"),
        ('"{\\"a\\": 1}"', "arguments-no-object"),
        ('{"a": 1', "arguments-not-json"),
        ('{"a": 1, "a": 2}', "arguments-not-json"),
        ('{"a": NaN}', "arguments-not-json"),
        ("[" * 100_000, "arguments-not-json"),
    ],
)
def test_arguments_against_the_schema_of_the_tool_wherever_it_was_declared(
    lab: Any, arguments: str, reason: str
) -> None:
    for body in ({"tools": [TOOL], "messages": []}, {"messages": [{"role": "system", "tools": [TOOL]}]}):
        assert (
            outcome(ANSWER_CHECKS["valid-arguments"](lab.look(lab.says(None, calls=[("f", arguments)]), body), True))[1]
            == reason
        )


@pytest.mark.parametrize(
    ("text", "reason"),
    [('{"a":1}', ""), ("```json\n{}\n```", "content-not-json"), ("", "content-not-json"), ("[1]", "content-no-object")],
)
def test_content_that_must_be_a_json_object(lab: Any, text: str, reason: str) -> None:
    assert outcome(ANSWER_CHECKS["content-json"](lab.look(lab.says(text)), "object"))[1] == reason


def test_json_cut_by_length_shows_nothing(lab: Any) -> None:
    assert (
        outcome(ANSWER_CHECKS["content-json"](lab.look(lab.says('{"a": "bc', finish="length")), "object"))[0]
        is Outcome.INCONCLUSIVE
    )


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ({}, ""),
        ({"kind": None}, "error-envelope"),
        ({"message": ""}, "error-envelope"),
        ({"envelope": False}, "error-envelope"),
    ],
)
def test_the_envelope_of_a_refusal(lab: Any, refusal: dict[str, Any], reason: str) -> None:
    assert outcome(ANSWER_CHECKS["error-envelope"](lab.look(lab.refuses(**refusal)), True))[1] == reason


def test_a_refusal_as_an_event_stream_is_told(lab: Any) -> None:
    check = ANSWER_CHECKS["plain-error"]
    assert check(lab.look(lab.refuses(), content_type="application/json; charset=utf-8"), True) is None
    assert (
        outcome(check(lab.look(lab.refuses(), content_type="text/event-stream; charset=utf-8"), True))[1]
        == "error-as-stream"
    )


@pytest.mark.parametrize(
    ("usage", "reason"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}, ""),
        ({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 8}, "usage-sum"),
        ({"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5}, "usage-zero"),
        ({"completion_tokens": 2, "total_tokens": 2}, "usage-missing"),
    ],
)
def test_the_sum_of_usage(lab: Any, usage: dict[str, int], reason: str) -> None:
    assert outcome(ANSWER_CHECKS["usage-adds-up"](lab.look(lab.says(usage=usage)), True))[1] == reason


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ([4, 5, 6, 5], [9, 12, 8, 10], (Outcome.PASS, "")),
        ([9, 12, 8, 10], [4, 5, 6, 5], (Outcome.FAIL, "effort-inverted")),
        ([5, 5, 5, 5], [5, 5, 5, 5], (Outcome.FAIL, "effort-ignored")),
        ([5, 9, 7, 6], [6, 5, 7, 6], (Outcome.INCONCLUSIVE, "effort-unclear")),
    ],
)
def test_effort_is_judged_by_the_length_of_several_samples(
    lab: Any, low: list[int], high: list[int], expected: tuple[Outcome, str]
) -> None:
    siblings = {
        f"{name}.{at}": lab.says(reasoning="x" * size)
        for name, sizes in (("low", low), ("max", high))
        for at, size in enumerate(sizes, 1)
    }
    assert outcome(COMPARISONS["reasoning-grows"](lab.look(lab.says(), siblings=siblings), ["low", "max"])) == expected


def test_a_known_shortcut_is_named(lab: Any) -> None:
    look = lab.look(lab.says(), siblings={"dynamic": lab.counts(80), "global": lab.counts(80)})
    rule = {"of": "dynamic", "minus": "global", "is": 21, "known": {"0": "merged by a gateway"}}
    problem = COMPARISONS["prompt-token-difference"](look, rule)
    assert problem is not None
    assert "merged by a gateway" in problem.detail


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        ([20, 105, 190], None),
        ([20, 106, 191], "prompt-tokens-uneven"),
        ([20, 105, 105], "prompt-tokens-uneven"),
        ([20, 20, 20], None),
    ],
)
def test_counts_that_grow_in_equal_steps(lab: Any, tokens: list[int], reason: str | None) -> None:
    look = lab.look(
        lab.says(),
        siblings={name: lab.counts(count) for name, count in zip(("none", "one", "two"), tokens, strict=True)},
    )
    found = COMPARISONS["prompt-tokens-in-steps"](look, ["none", "one", "two"])
    assert (found and found.reason) == reason


def test_structures_that_differ_only_in_text_are_the_same(lab: Any) -> None:
    same = {"a": lab.counts(9, text="one"), "b": lab.counts(9, text="two")}
    assert COMPARISONS["same-structure"](lab.look(lab.says(), siblings=same), True) is None
    other = {"a": lab.says("x", finish="stop"), "b": lab.says("x", finish="tool_calls")}
    assert outcome(COMPARISONS["same-structure"](lab.look(lab.says(), siblings=other), True))[1] == "structures-differ"
    cut = {"a": lab.says("x", finish="stop"), "b": lab.says("x", finish="length")}
    assert outcome(COMPARISONS["same-structure"](lab.look(lab.says(), siblings=cut), True))[0] is Outcome.INCONCLUSIVE


def test_tool_ids_that_repeat_over_turns_are_told(lab: Any) -> None:
    ids = {"one": lab.says(None, calls=[("f", "{}", "f_0")]), "two": lab.says(None, calls=[("f", "{}", "f_0")])}
    assert outcome(COMPARISONS["distinct-tool-ids"](lab.look(lab.says(), siblings=ids), True))[1] == "tool-id-repeats"


@given(text=st.text(max_size=200))
def test_any_text_is_read_or_refused_with_one_line(text: str) -> None:
    lines = 1
    try:
        read_json(text)
    except ValueError as error:
        lines = len(str(error).splitlines())
    assert lines == 1


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3),
    )
)
def test_a_mismatch_is_bounded_and_never_raises(value: Any) -> None:
    found = mismatch(value, TOOL["function"]["parameters"])  # type: ignore[index,arg-type]
    assert found is not None
    assert len(found) < 300


def test_a_reference_abroad_is_never_fetched() -> None:
    with pytest.raises(Exception, match=r"example\.invalid"):
        mismatch(1, {"$ref": "https://example.invalid/schema.json"})
