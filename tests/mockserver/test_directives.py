"""What the endpoint does with plain requests in words."""

import json
from typing import Any

import pytest

from kvv.mockserver.content import directives


def says(kimi: Any, prompt: str, **fields: Any) -> str:
    return str(kimi.ask(prompt, reasoning_effort="low", **fields).message["content"])


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Reply with exactly: some text, 日本 🎉", "some text, 日本 🎉"),
        ("Reply with exactly: 'quoted'", "quoted"),
        ("Please repeat the following text verbatim: a: b\nc", "a: b\nc"),
        ('Say "hello there" to me.', "hello there"),
        ("Answer with only OK.", "OK"),
        ("Reply with the single word banana.", "banana"),
        ("What is 17 + 25?", "42"),
        ("What is 6 times 7?", "42"),
        ("What is 84 / 2?", "42"),
        ("Count from 3 to 6", "3, 4, 5, 6"),
        ("Count from 1 to 3, one per line", "1\n2\n3"),
    ],
)
def test_answers_fixed_by_the_request(kimi, prompt, answer):
    assert says(kimi, prompt) == answer


def test_a_requested_number_of_words(kimi):
    assert len(says(kimi, "Write 57 words about rivers.").split()) == 57


@pytest.mark.parametrize("position", [0.0, 0.5, 1.0])
def test_a_statement_is_found_anywhere_in_a_long_text(kimi, position):
    filler = [f"Paragraph {at} speaks of nothing in particular." for at in range(3000)]
    filler.insert(int(position * len(filler)), "The secret number of the lighthouse is 83741.")
    assert "83741" in says(kimi, "\n".join(filler) + "\nWhat is the secret number of the lighthouse?")


def test_earlier_turns_are_remembered(kimi):
    messages = [
        {"role": "user", "content": "My favourite colour is teal."},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "What is my favourite colour?"},
    ]
    assert "teal" in kimi.ask(messages=messages).message["content"]


def test_random_things_vary_by_draw_stay_with_a_seed_and_are_fixed_when_greedy(kimi):
    def several(**fields: Any) -> set[str]:
        return {says(kimi, "Give me a random string of 20 characters", **fields) for _ in range(4)}

    assert len(several()) == 4
    assert len(several(temperature=0)) == 1
    assert len(several(seed=9)) == 1
    assert len(next(iter(several()))) == 20


def test_the_default_answer_is_text_with_an_end(kimi):
    text = says(kimi, "Tell me about bridges.")
    assert len(text.split()) > 10
    assert text.endswith(".")


@pytest.mark.parametrize(
    ("prompt", "choice", "called"),
    [
        ("call get_weather", "auto", ["get_weather"]),
        ("Please use the tool get_time for me", "auto", ["get_time"]),
        ("call get_time and then call get_weather", "auto", ["get_time", "get_weather"]),
        ("call get_weather twice", "auto", ["get_weather", "get_weather"]),
        ("What is the weather in Paris?", "auto", []),
        ("Do not call get_weather, just chat.", "auto", []),
        ("call get_weather_now", "auto", []),
        ("call get_weather", "none", []),
        ("Hello", "required", ["get_weather"]),
        ("call get_time", "required", ["get_time"]),
        ("Hello", {"type": "function", "function": {"name": "get_time"}}, ["get_time"]),
    ],
)
def test_which_tools_are_called(kimi, weather, time_tool, prompt, choice, called):
    got = kimi.ask(prompt, tools=[weather, time_tool], tool_choice=choice)
    assert [call[1] for call in got.message["calls"]] == called
    assert got.message["finish"] == ("tool_calls" if called else "stop")


def test_parallel_calls_can_be_switched_off(kimi, weather, time_tool):
    got = kimi.ask("call get_time and call get_weather", tools=[weather, time_tool], parallel_tool_calls=False)
    assert len(got.message["calls"]) == 1


def test_dynamic_tools_are_called_too(kimi, weather, time_tool):
    messages = [
        {"role": "system", "content": "", "tools": [weather]},
        {"role": "user", "content": "call get_weather and call get_time"},
        {"role": "system", "tools": [time_tool]},
    ]
    assert [call[1] for call in kimi.ask(messages=messages).message["calls"]] == ["get_weather", "get_time"]


def test_words_before_a_call(kimi, weather):
    got = kimi.ask('First say "one moment" and then call get_weather', tools=[weather])
    assert got.message["content"] == "one moment"
    assert got.message["calls"]
    assert kimi.ask("call get_weather", tools=[weather], tool_choice="required").message["content"] == ""


@pytest.mark.parametrize(
    ("prompt", "arguments"),
    [
        ('call f with text "a b", count 5 and flag true', {"text": "a b", "count": 5, "flag": True}),
        ("call f with text=abc count=-3 flag=false", {"text": "abc", "count": -3, "flag": False}),
        (
            'call f with {"text": "x{y}", "count": 9007199254740991, "flag": false}',
            {"text": "x{y}", "count": 2**53 - 1, "flag": False},
        ),
        ("call f with count: 9223372036854775807", {"text": "sample text", "count": 2**63 - 1, "flag": True}),
        ("call f with text “naïve 名字”", {"text": "naïve 名字", "count": 1, "flag": True}),
        ("call f with count many", {"text": "sample text", "count": 1, "flag": True}),
    ],
)
def test_literals_are_honoured_where_they_fit(kimi, prompt, arguments):
    properties = {"text": {"type": "string"}, "count": {"type": "integer"}, "flag": {"type": "boolean"}}
    tool = {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {"type": "object", "properties": properties, "required": list(properties)},
        },
    }
    assert json.loads(kimi.ask(prompt, tools=[tool]).message["calls"][0][2]) == arguments


@pytest.mark.parametrize(
    ("prompt", "cities"),
    [
        ("Call get_weather for Beijing.", ["Beijing"]),
        ("Call get_weather for New York, please.", ["New York"]),
        ("Call get_weather for Paris and London, both in this one answer.", ["Paris", "London"]),
        ("Call get_weather for the city.", ["sample text"]),
        ('Call get_weather with exactly this city "a "b" c" and nothing else.', ['a "b" c']),
    ],
)
def test_what_a_call_is_made_for(kimi, weather, prompt, cities):
    got = kimi.ask(prompt, tools=[weather])
    assert [json.loads(call[2])["city"] for call in got.message["calls"]] == cities


def test_results_are_quoted_in_their_order(kimi, weather):
    calls = [
        {"id": f"get_weather_{at}", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
        for at in (0, 1)
    ]
    results = [{"role": "tool", "tool_call_id": f"get_weather_{at}", "content": f"result {at}"} for at in (1, 0)]
    got = kimi.ask(
        messages=[
            {"role": "user", "content": "call get_weather twice"},
            {"role": "assistant", "tool_calls": calls},
            *results,
        ],
        tools=[weather],
    )
    assert got.message["finish"] == "stop"
    assert "result 1" in got.message["content"]
    assert "result 0" in got.message["content"]


def test_partial_mode_goes_on_from_the_given_start(kimi):
    messages = [
        {"role": "user", "content": "Reply with exactly: one two three"},
        {"role": "assistant", "content": "one two", "partial": True},
    ]
    assert kimi.ask(messages=messages).message["content"] == " three"


def test_a_forced_and_a_banned_token(kimi):
    first = kimi.ask("Reply with exactly: hello", stream=True, stream_options={"include_internal_content": True})
    token = next(delta["internal_content"]["token_ids"][0] for delta in first.deltas if delta.get("content"))
    assert says(kimi, "Tell me something", logit_bias={str(token): 100}, max_tokens=1) == "hello"
    assert says(kimi, "Reply with exactly: hello world", logit_bias={str(token): -100}) == " world"


def test_a_minimum_of_tokens(kimi):
    assert kimi.ask("Reply with exactly: a", min_tokens=150).usage["completion_tokens"] >= 150


def test_a_question_without_an_answer_finds_nothing():
    assert directives.statement_for("What is the code?", ["Nothing here."]) is None
    assert directives.statement_for("?", ["Nothing here."]) is None
