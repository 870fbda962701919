"""Prompt tokens by the published constants, and the published differences exactly."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.mockserver.content.tokens import count, token_id, tokenize

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Look up.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    },
    {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}},
]
OFF = {"thinking": {"type": "disabled"}}


@pytest.fixture
def tokens(kimi):
    def counted(prompt: str | None = "one two three", **fields: Any) -> int:
        got = kimi.ask(prompt, **fields)
        assert got.status == 200, got.raw
        return int(got.usage["prompt_tokens"])

    return counted


def test_a_user_message_costs_its_text_and_the_wrapper(tokens):
    assert tokens(**OFF) == 11 + 3 + 7


def test_published_constant_of_a_lone_assistant_message(tokens):
    for text in ("hello", "你好"):
        message = {"role": "assistant", "content": text}
        assert tokens(None, messages=[message], thinking={"type": "enabled", "effort": "high"}) == 99


CAPITAL = {
    "type": "json_schema",
    "json_schema": {
        "name": "capital_answer",
        "schema": {
            "type": "object",
            "properties": {"capital": {"type": "boolean"}},
            "required": ["capital"],
            "additionalProperties": False,
        },
    },
}


@pytest.mark.parametrize(
    ("texts", "fields", "published"),
    [
        (["请用 JSON 格式回答：北京是中国的首都吗？答案需要包含键 capital。"], OFF, 36),
        (
            ["请用 JSON 格式回答：北京是中国的首都吗？答案需要包含键 capital。"],
            {**OFF, "response_format": CAPITAL},
            119,
        ),
        (["你是一个简洁、准确的助手。", "你好"], OFF, 36),
        (["你是一个简洁、准确的助手。", "你好"], {}, 103),
    ],
)
def test_published_constants_of_whole_requests(tokens, texts, fields, published):
    roles = ["user"] if len(texts) == 1 else ["system", "user"]
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    assert tokens(None, messages=messages, **fields) == published


def test_effort_notes(tokens):
    base = tokens(**OFF)
    by_effort = {
        effort: tokens(thinking={"type": "enabled", "effort": effort}) - base for effort in ("low", "high", "max")
    }
    assert by_effort == {"low": 68, "high": 68, "max": 67}
    assert tokens() - base == 67


def test_dynamic_tools_cost_21_more_than_global_ones(tokens):
    plain = [{"role": "user", "content": "hi"}]
    declared = {"role": "system", "content": "", "tools": TOOLS}
    assert tokens(None, messages=[declared, *plain]) - tokens(None, messages=plain, tools=TOOLS) == 21
    assert tokens(None, messages=[*plain, declared]) == tokens(None, messages=[declared, *plain])


def test_tool_choice_notes(tokens):
    auto = tokens(tools=TOOLS)
    assert tokens(tools=TOOLS, tool_choice="required") - auto == 36
    assert tokens(tools=TOOLS, tool_choice="none") - auto == 38
    assert tokens(tools=TOOLS, tool_choice="auto") == auto


def test_response_format_notes(tokens):
    schema = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
    wanted = json.dumps(schema, sort_keys=True, separators=(",", ":")) + "\n"
    base = tokens()
    assert tokens(response_format={"type": "json_object"}) - base == 47
    assert tokens(response_format={"type": "text"}) == base
    assert tokens(
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    ) - base == 60 + count(wanted)


def test_two_identical_user_turns_cost_eleven_and_the_text(tokens):
    turn = {"role": "user", "content": "one two three four"}
    assert tokens(None, messages=[turn, turn]) - tokens(None, messages=[turn]) == 11 + 4


def test_the_order_of_tool_keys_does_not_matter(tokens):
    def reversed_keys(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: reversed_keys(value[key]) for key in reversed(value)}
        return [reversed_keys(item) for item in value] if isinstance(value, list) else value

    assert tokens(tools=reversed_keys(TOOLS)) == tokens(tools=TOOLS)


def test_history_counts_think_block_reasoning_calls_and_results(tokens):
    user, plain = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}
    base = tokens(None, messages=[user])
    assert tokens(None, messages=[user, plain, user]) - base == 17 + 6 + 1 + 12
    assert tokens(None, messages=[user, plain, user], **OFF) - tokens(None, messages=[user], **OFF) == 17 + 1 + 12
    thought = {**plain, "reasoning_content": "two words"}
    assert tokens(None, messages=[user, thought, user]) - tokens(None, messages=[user, plain, user]) == 2
    call = {
        "id": "get_weather_0",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
    }
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "get_weather_0", "content": "sunny"}
    assert tokens(None, messages=[user, calling, result]) - base == 17 + 6 + 6 + 16 + 14 + count("Paris") + 21 + 1


@pytest.mark.parametrize("content", ["", None])
def test_empty_null_and_absent_content_of_a_call_count_alike(tokens, content):
    call = {"id": "f_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    user, result = {"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "f_0", "content": "x"}
    absent = {"role": "assistant", "tool_calls": [call]}
    assert tokens(None, messages=[user, {**absent, "content": content}, result]) == tokens(
        None, messages=[user, absent, result]
    )


def test_a_fault_that_renders_empty_text_as_parts_leaves_null_and_absent_content_alone(serve):
    call = {"id": "f_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    user, result = {"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "f_0", "content": "x"}
    past = {"role": "assistant", "tool_calls": [call]}
    counts = {}
    for name, content in (("empty", {"content": ""}), ("null", {"content": None}), ("absent", {})):
        messages = [user, {**past, **content}, result]
        counts[name] = [serve(faults=faults).ask(messages=messages).usage["prompt_tokens"] for faults in ((), ("F05",))]
    assert counts["empty"][0] == counts["null"][0] == counts["absent"][0] == counts["null"][1] == counts["absent"][1]
    assert counts["empty"][1] > counts["empty"][0]


def test_the_engine_variant_counts_three_more(serve, tokens):
    fields = {"chat_template_kwargs": {"thinking": False}}
    vllm = serve(variant="vllm").ask("one two three", **fields).usage["prompt_tokens"]
    assert vllm - tokens("one two three", **fields) == 3


def test_cached_tokens_follow_the_longest_known_prefix_in_blocks(serve):
    client = serve(fresh=True)

    def cached(messages: list[Any], **fields: Any) -> int:
        return int(client.ask(None, messages=messages, **fields).usage["prompt_tokens_details"]["cached_tokens"])

    long = [{"role": "user", "content": " ".join(["word"] * 700)}]
    other = [{"role": "user", "content": " ".join(["term"] * 700)}]
    declared = {"role": "system", "tools": TOOLS}
    assert cached(long) == 0
    assert cached(other) == 0
    assert cached(long) == 768
    assert cached([*long, {"role": "user", "content": "more"}]) == 768
    assert cached([*long, declared]) == 768
    assert cached(long, tools=TOOLS) == 0


@given(st.text(max_size=300))
def test_tokens_join_back_to_the_text(text):
    assert "".join(tokenize(text)) == text
    assert count(text) == len(tokenize(text))


@pytest.mark.parametrize(
    "part",
    [
        "word it's, and HTTPServer 12345\n\n ok  ",
        "汉字标点的中国的准确的文字。",
        "no cut is found in-here,",
        "naïve Ünïcode, данные и слова ",
    ],
)
def test_long_texts_are_counted_in_parts_and_yet_exactly(part):
    text = part * 20_000
    assert count(text) == len(tokenize(text))


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=30))
def test_ids_are_stable_and_below_the_special_tokens(token):
    assert token_id(token) == token_id(token) < 163_584


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("The quick brown fox jumps", 5),
        ("hello", 1),
        ("", 0),
        ("你好", 1),
        ("汉字", 2),
        ("12345", 2),
        ("getWeather", 2),
        ("it's fine", 2),
        ("a\n\nb", 3),
    ],
)
def test_counts_of_plain_texts(text, size):
    assert count(text) == size
