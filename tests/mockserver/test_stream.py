"""The stream rules, checked on clean streams of every shape."""

import json
import re
from typing import Any

import pytest

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "x",
        "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}
HISTORY = [
    {"role": "user", "content": "call get_weather"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "get_weather_0", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "get_weather_0", "content": "sunny"},
    {"role": "user", "content": "use get_weather for Paris and for London"},
]
CASES: dict[str, dict[str, Any]] = {
    "text": {"prompt": "Tell me something."},
    "no thinking": {"prompt": "Tell me something.", "thinking": {"type": "disabled"}},
    "tool": {"prompt": 'call get_weather with city "Paris"', "tools": [WEATHER]},
    "forced tool": {"prompt": "Hello.", "tools": [WEATHER], "tool_choice": "required"},
    "parallel": {"prompt": "call get_weather for Paris and for London", "tools": [WEATHER]},
    "second turn": {"messages": HISTORY, "tools": [WEATHER]},
    "schema": {"prompt": "Give me data.", "response_format": SCHEMA},
    "cut in reasoning": {"prompt": "Tell me something.", "max_tokens": 7},
    "cut in content": {"prompt": "Write 80 words", "thinking": {"type": "disabled"}, "max_tokens": 20},
    "cut in arguments": {
        "prompt": "Hello.",
        "tools": [WEATHER],
        "tool_choice": "required",
        "thinking": {"type": "disabled"},
        "max_tokens": 4,
    },
    "stop": {"prompt": "Count from 1 to 20", "stop": ["7"]},
    "unicode": {"prompt": "Reply with exactly: 你好 world 🎉 naïve\nsecond line\ttab"},
}


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(CASES[request.param])


@pytest.fixture
def got(kimi, case):
    return kimi.ask(stream=True, stream_options={"include_usage": True}, **case)


def test_lines_and_content_type(got):
    assert got.status == 200
    assert got.headers["content-type"].startswith("text/event-stream")
    assert all(line.startswith("data: ") for line in got.raw.decode().split("\n") if line)
    assert got.data[-1] == "[DONE]"
    assert got.data.count("[DONE]") == 1


def test_every_frame_has_one_choice_and_a_constant_head(got):
    frames = got.frames
    heads = {(frame["id"], frame["object"], frame["created"], frame["model"]) for frame in frames}
    assert len(heads) == 1
    head = heads.pop()
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{24}", head[0])
    assert head[1] == "chat.completion.chunk"
    assert isinstance(head[2], int)
    assert all(len(frame["choices"]) == 1 for frame in frames[:-1])
    assert all(frame["choices"][0].keys() >= {"index", "delta", "finish_reason"} for frame in frames[:-1])
    assert frames[-1]["choices"] == []


def test_role_comes_first_and_only_there(got):
    first, *rest = got.deltas
    assert first == {"role": "assistant", "content": ""}
    assert all("role" not in delta for delta in rest)


def test_deltas_hold_no_null_and_one_kind_each(got):
    for delta in got.deltas[1:]:
        assert None not in delta.values()
        assert len(delta) <= 1
    for delta in got.deltas:
        assert isinstance(delta.get("content", ""), str)
        assert isinstance(delta.get("reasoning_content", ""), str)


def test_boundary_frame_stands_once_between_reasoning_and_the_rest(got):
    kinds = [
        "boundary" if delta.get("reasoning_content") == "" else next(iter(delta), "end") for delta in got.deltas[1:]
    ]
    thinks, continues = "reasoning_content" in kinds, set(kinds) & {"content", "tool_calls"}
    assert kinds.count("boundary") == (1 if thinks and continues else 0)
    if "boundary" in kinds:
        at = kinds.index("boundary")
        assert set(kinds[:at]) == {"reasoning_content"}
        assert "reasoning_content" not in kinds[at:]


def test_tool_chunks_are_a_slot_and_then_increments(got):
    calls = [delta["tool_calls"] for delta in got.deltas if "tool_calls" in delta]
    assert all(len(entries) == 1 for entries in calls)
    seen: list[int] = []
    for (entry,) in calls:
        if entry["index"] not in seen:
            assert entry["index"] == len(seen)
            seen.append(entry["index"])
            assert entry.keys() == {"index", "id", "type", "function"}
            assert entry["function"] == {"name": entry["function"]["name"], "arguments": ""}
            assert re.fullmatch(rf"{entry['function']['name']}_\d+", entry["id"])
        else:
            assert entry["index"] == seen[-1]
            assert entry.keys() == {"index", "function"}
            assert entry["function"].keys() == {"arguments"}


def test_the_end_frame_has_an_empty_delta_finish_and_usage(got):
    end = got.frames[-2]["choices"][0]
    assert end["delta"] == {}
    assert end["finish_reason"] in {"stop", "length", "tool_calls"}
    assert [frame["choices"][0]["finish_reason"] for frame in got.frames[:-2]] == [None] * (len(got.frames) - 2)
    assert end["usage"] == got.frames[-1]["usage"]
    assert all("usage" not in frame and "usage" not in frame["choices"][0] for frame in got.frames[:-2])


def test_usage_adds_up_and_equals_the_headers(got):
    usage = got.usage
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 <= usage["completion_tokens_details"]["reasoning_tokens"] <= usage["completion_tokens"]
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
    assert got.headers["x-msh-usage-prompt-tokens"] == str(usage["prompt_tokens"])
    assert got.headers["x-msh-usage-cached-tokens"] == str(usage["prompt_tokens_details"]["cached_tokens"])


def test_finish_fits_what_was_sent(got, case):
    message = got.message
    capped = "max_tokens" in case
    assert message["finish"] == ("length" if capped else "tool_calls" if message["calls"] else "stop")
    assert not capped or got.usage["completion_tokens"] == case["max_tokens"]
    if not capped:
        assert all(isinstance(json.loads(arguments), dict) for _, _, arguments in message["calls"])


def test_stream_and_whole_answer_agree(kimi, got, case):
    whole = kimi.ask(**case)
    assert whole.status == 200
    one, other = got.message, whole.message
    assert [call[:2] for call in one["calls"]] == [call[:2] for call in other["calls"]]
    assert one["finish"] == other["finish"]
    assert got.usage["prompt_tokens"] == whole.usage["prompt_tokens"]
    assert whole.headers["x-msh-usage-prompt-tokens"] == str(whole.usage["prompt_tokens"])
    assert {"content", "role"} <= whole.body["choices"][0]["message"].keys()
    assert None not in whole.body["choices"][0]["message"].values()


def test_greedy_stream_and_whole_answer_are_equal(kimi, case):
    fields = {**case, "temperature": 0}
    assert kimi.ask(stream=True, **fields).message == kimi.ask(**fields).message


def test_no_tail_frame_unless_asked(kimi):
    got = kimi.ask("Hello", stream=True)
    assert all(frame["choices"] for frame in got.frames)
    assert "usage" in got.frames[-1]["choices"][0]


def test_call_ids_go_on_over_the_turns(kimi):
    got = kimi.ask(stream=True, **CASES["second turn"])
    assert [call[0] for call in got.message["calls"]] == ["get_weather_1", "get_weather_2"]


def test_token_ids_come_with_every_increment(kimi):
    got = kimi.ask("call get_weather", tools=[WEATHER], stream=True, stream_options={"include_internal_content": True})
    increments = [
        delta
        for delta in got.deltas
        if delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls")
    ]
    assert increments
    for delta in increments:
        ids = delta["internal_content"]["token_ids"]
        assert ids
        assert all(isinstance(one, int) for one in ids)
    assert sum(len(delta["internal_content"]["token_ids"]) for delta in increments) == got.usage["completion_tokens"]


def test_continuous_usage_grows_and_reasoning_freezes_with_the_calls(kimi):
    options = {"include_usage": True, "continuous_usage_stats": True}
    got = kimi.ask("call get_weather", tools=[WEATHER], stream=True, stream_options=options)
    running = [frame["usage"] for frame in got.frames]
    completion = [usage["completion_tokens"] for usage in running]
    reasoning = [usage["completion_tokens_details"]["reasoning_tokens"] for usage in running]
    assert completion == sorted(completion)
    assert reasoning == sorted(reasoning)
    assert running[-1] == running[-2]
    first_call = next(
        at for at, frame in enumerate(got.frames) if frame["choices"] and "tool_calls" in frame["choices"][0]["delta"]
    )
    assert set(reasoning[first_call:]) == {reasoning[-1]}


@pytest.mark.parametrize("stream", [True, False])
def test_logprobs_cover_every_completion_token(kimi, stream):
    got = kimi.ask("call get_weather", tools=[WEATHER], logprobs=True, top_logprobs=3, stream=stream)
    choices = [frame["choices"][0] for frame in got.frames] if stream else got.body["choices"]
    entries = [entry for choice in choices for entry in (choice.get("logprobs") or {"content": []})["content"]]
    assert len(entries) == got.usage["completion_tokens"]
    for entry in entries:
        assert entry["logprob"] <= 0
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert len(entry["top_logprobs"]) == 3
    if stream:
        assert "logprobs" not in choices[0]


def test_stop_cuts_content_and_is_never_looked_for_in_reasoning(kimi):
    got = kimi.ask("Reply with exactly: alpha beta gamma", stop=["beta"])
    assert got.message["content"] == "alpha "
    assert "beta" in got.message["reasoning"]
    assert got.message["finish"] == "stop"


@pytest.mark.parametrize("cap", [1, 2, 33, 90, 111])
def test_every_cap_is_met_exactly(kimi, cap):
    for stream in (False, True):
        got = kimi.ask("Write 200 words", max_completion_tokens=cap, stream=stream)
        assert got.usage["completion_tokens"] == cap
        assert got.message["finish"] == "length"
