"""What the openai and vllm variants promise, and where they differ from the kimi one."""

import re
from typing import Any

import pytest


@pytest.fixture
def ask_openai(serve):
    return serve(variant="openai").ask


@pytest.fixture
def ask_vllm(serve):
    return serve(variant="vllm").ask


SAMPLING = [
    {"temperature": 2},
    {"temperature": 0.3},
    {"top_p": 0.5},
    {"presence_penalty": -2},
    {"frequency_penalty": 1.5},
    {"n": 4},
]


@pytest.mark.parametrize("fields", SAMPLING)
def test_sampling_within_range_is_accepted(ask_openai, ask_vllm, fields):
    assert ask_openai("x", **fields).status == 200
    assert ask_vllm("x", **fields).status == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 2.1},
        {"temperature": -1},
        {"top_p": 1.1},
        {"presence_penalty": 3},
        {"n": 0},
        {"temperature": "hot"},
    ],
)
def test_sampling_out_of_range_is_refused(ask_openai, ask_vllm, fields):
    assert ask_openai("x", **fields).status == 400
    assert ask_vllm("x", **fields).status == 400


def test_error_fields_are_those_of_the_real_servers(ask_openai, ask_vllm):
    assert ask_openai("x", n=0).body["error"].keys() == {"message", "type", "param", "code"}
    error = ask_vllm("x", n=0).body["error"]
    assert (error["type"], error["code"]) == ("BadRequestError", 400)


def test_openai_reasons_only_when_asked(ask_openai):
    assert ask_openai("x").message["reasoning"] == ""
    assert ask_openai("x").usage["completion_tokens_details"]["reasoning_tokens"] == 0
    assert ask_openai("x", reasoning_effort="low").message["reasoning"] != ""


def test_openai_stream_has_no_kimi_extras(ask_openai):
    got = ask_openai("x", stream=True, stream_options={"include_usage": True})
    assert not [name for name in got.headers if name.startswith("x-msh")]
    assert all("usage" not in choice for frame in got.frames for choice in frame["choices"])
    assert [frame["usage"] for frame in got.frames[:-1]] == [None] * (len(got.frames) - 1)
    assert got.frames[-1]["usage"]["total_tokens"] > 0
    assert re.fullmatch(r"chatcmpl-[A-Za-z0-9]{29}", got.frames[0]["id"])


def test_openai_ignores_message_level_tools(ask_openai):
    tool = {"type": "function", "function": {"name": "f"}}
    assert (
        ask_openai(
            messages=[{"role": "system", "content": "Hi", "tools": [tool]}, {"role": "user", "content": "x"}]
        ).status
        == 200
    )


def test_vllm_names_reasoning_in_its_own_way_and_sends_no_usage_unasked(ask_vllm):
    got = ask_vllm("x", stream=True)
    assert any("reasoning" in delta for delta in got.deltas)
    assert not any("reasoning_content" in delta for delta in got.deltas)
    assert b"usage" not in got.raw
    assert ask_vllm("x").body["choices"][0]["message"]["reasoning"]
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{32}", got.frames[0]["id"])


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [({}, True), ({"chat_template_kwargs": {"thinking": False}}, False), ({"reasoning_effort": "none"}, False)],
)
def test_vllm_thinks_by_template_arguments(ask_vllm, fields, thinks):
    assert bool(ask_vllm("x", **fields).message["reasoning"]) is thinks


def test_vllm_adds_no_effort_note_of_its_own(ask_vllm):
    def tokens(**fields: Any) -> int:
        return int(ask_vllm("x", **fields).usage["prompt_tokens"])

    assert tokens(chat_template_kwargs={"thinking_effort": "high"}) - tokens() == 68


def test_vllm_call_ids(ask_vllm, weather):
    got = ask_vllm("call get_weather", tools=[weather])
    assert re.fullmatch(r"chatcmpl-tool-[0-9a-f]{32}", got.message["calls"][0][0])


def test_several_choices_are_interleaved_with_one_choice_a_frame(ask_openai):
    got = ask_openai("Tell me something.", n=2, stream=True)
    indices = [frame["choices"][0]["index"] for frame in got.frames]
    assert indices[:4] == [0, 1, 0, 1]
    assert len({frame["id"] for frame in got.frames}) == 1
    finishes = [frame["choices"][0]["finish_reason"] for frame in got.frames]
    assert finishes.count("stop") == 2


def test_an_unknown_variant_is_an_error(serve):
    with pytest.raises(ValueError, match="variant"):
        serve(variant="other", fresh=True)
