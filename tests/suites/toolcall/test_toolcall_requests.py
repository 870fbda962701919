"""What identifies a request, what is sent of a row, and how history ids are renamed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvv.profiles.profile import load_profile
from kvv.suites.toolcall.k2vv import RowError, canonical, case_id, content, questions, with_k2_ids


def test_model_sampling_and_bookkeeping_do_not_identify_a_request(bench: Any) -> None:
    row = bench.row("hello")
    dressed = {
        **row,
        "model": "other",
        "temperature": 0.1,
        "top_p": 0.5,
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    dressed |= {"user": "u", "n": 1, "seed": 7, "data_index": 12, "expected": {"tool": "add"}, "tool_choice": None}
    assert case_id(content(dressed)) == case_id(content(row))


@pytest.mark.parametrize(
    "change",
    [
        {"tools": None},
        {"tool_choice": "required"},
        {"messages": [{"role": "user", "content": "hello "}]},
        {"response_format": {"type": "json_object"}},
    ],
)
def test_what_the_answer_depends_on_identifies_a_request(bench: Any, change: dict[str, Any]) -> None:
    row = bench.row("hello")
    assert case_id(content({**row, **change})) != case_id(content(row))


def test_the_order_of_keys_does_not_identify_a_request(bench: Any) -> None:
    row = bench.row("hello")
    assert case_id(content(dict(reversed(row.items())))) == case_id(content(row))


def test_the_case_id_is_the_documented_hash() -> None:
    row = {"messages": [{"role": "_input", "content": "ü"}], "model": "m"}
    digest = hashlib.sha256('{"messages":[{"content":"ü","role":"system"}]}'.encode()).hexdigest()
    assert case_id(content(row)) == f"toolcall/{digest[:16]}"


def test_role_input_becomes_system_and_the_row_is_left_alone() -> None:
    row = {"messages": [{"role": "_input", "content": "x"}]}
    assert content(row)["messages"][0]["role"] == "system"
    assert row["messages"][0]["role"] == "_input"


def test_identical_requests_are_one_case_asked_as_often_as_they_stand(bench: Any) -> None:
    rows = [bench.row("a"), bench.row("b"), {**bench.row("a"), "temperature": 1.0}]
    context = bench.context(rows, samples=3)
    cases = bench.suite.cases(context)
    assert [case.inputs["occurrences"] for case in cases] == [2, 1]
    assert [bench.suite.samples(case, context) for case in cases] == [6, 3]
    assert cases[0].inputs["rows"] == [1, 3]


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"messages": []},
        {"messages": ["x"]},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "user"}], "tools": {}},
    ],
)
def test_a_row_that_is_no_request_is_named(row: dict[str, Any]) -> None:
    with pytest.raises(RowError, match=r"^row 2: .+") as caught:
        questions([{"messages": [{"role": "user", "content": "x"}]}, row])
    assert "\n" not in str(caught.value)


def test_the_runs_model_and_sampling_go_over_the_rows(bench: Any) -> None:
    row = bench.row(
        "a", temperature=0.2, max_tokens=5, top_p=0.3, user="u", seed=1, expected={"tool": "add"}, presence_penalty=1
    )
    case = bench.suite.cases(bench.context([row], temperature=1.0, stream=True))[0]
    body = bench.suite.request(case).body
    assert body["model"] == "model-under-test"
    assert (body["temperature"], body["max_tokens"], body["top_p"]) == (1.0, 5, 0.3)
    assert body["stream_options"] == {"include_usage": True}
    assert not {"expected", "user", "seed", "presence_penalty"} & set(body)


def test_a_long_prompt_is_announced_to_limits_and_time_outs(bench: Any) -> None:
    short, long = bench.suite.cases(bench.context([bench.row("a"), bench.row("a" * 400_000)]))
    assert (
        bench.suite.request(long).expect_prompt_tokens
        > 100_000
        > 1_000
        > bench.suite.request(short).expect_prompt_tokens
    )


def test_fields_that_are_not_sent_are_told(bench: Any) -> None:
    context = bench.context([bench.row("a", user="u", presence_penalty=1)])
    stat = bench.suite.metrics([], context)[0]
    assert stat.comparability["row_fields_not_sent"] == ["presence_penalty", "user"]


HISTORY = [
    {"role": "user", "content": "x"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "search:0", "function": {"name": "search"}},
            {"id": "get:1", "function": {"name": "get"}},
        ],
    },
    {"role": "tool", "tool_call_id": "get:1", "content": "1"},
    {"role": "tool", "tool_call_id": "search:0", "content": "2"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "search:0", "function": {"name": "search"}}]},
    {"role": "tool", "tool_call_id": "search:0", "content": "3"},
]


def ids(messages: Any) -> list[str]:
    return [call["id"] for message in messages for call in message.get("tool_calls", ())] + [
        m["tool_call_id"] for m in messages if "tool_call_id" in m
    ]


def test_history_ids_take_moonshots_form_and_answers_follow() -> None:
    calls = ["functions.search:0", "functions.get:1", "functions.search:2"]
    answers = ["functions.get:1", "functions.search:0", "functions.search:2"]
    assert ids(with_k2_ids(HISTORY)) == calls + answers
    assert ids(HISTORY)[0] == "search:0"


def test_ids_in_the_form_stay() -> None:
    done = with_k2_ids(HISTORY)
    assert with_k2_ids(done) == done


def test_only_kimi_k2_gets_renamed_ids(bench: Any) -> None:
    row = {"messages": HISTORY, "tools": [bench.tool]}
    k3 = bench.context([row], profile=load_profile("kimi-k3"))
    k3_profile, claims = load_profile("kimi-k3"), load_profile("kimi-k2.6").claims
    k2 = bench.context([row], profile=k3_profile.model_copy(update={"claims": claims}))
    assert "search:0" in ids(bench.suite.cases(k3)[0].inputs["body"]["messages"])
    assert "functions.search:0" in ids(bench.suite.cases(k2)[0].inputs["body"]["messages"])
    assert bench.suite.cases(k2)[0].id == bench.suite.cases(k3)[0].id
    assert "functions.name:index" in bench.suite.metrics([], k2)[0].comparability["tool_ids"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "tools", "tool_calls", "id", "function", "name"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["messages", "tools", "stop", "x"]), JSON))
@settings(deadline=None, max_examples=60)
def test_any_row_is_a_question_or_a_row_error(row: dict[str, Any]) -> None:
    try:
        found = questions([row])
    except RowError:
        return
    with_k2_ids(found[0].content["messages"])
    assert found[0].case == case_id(content(json.loads(json.dumps(row))))


def test_lone_surrogates_have_a_hash() -> None:
    assert canonical("\ud800") == b'"\\ud800"'
