"""Correct servers are not accused: recorded shapes of OpenAI, vLLM and Kimi, and the unusual but legal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from kvv.core import Fault, FaultKind, Level, Surface


@pytest.mark.parametrize(
    "name",
    ["openai", "openai-tools", "openai-body", "openai-body-tools", "vllm", "kimi", "kimi-tools", "kimi-body", "n2"],
)
def test_a_clean_exchange_has_no_finding(lab: Any, name: str) -> None:
    received = lab.base(name).read()
    assert received.findings == ()
    assert received.observation.deviations == ()
    assert received.observation.finish_reason in ("stop", "tool_calls")


@pytest.mark.parametrize("name", ["kimi", "kimi-tools", "kimi-body"])
def test_a_clean_kimi_exchange_has_no_finding_under_the_strictest_policy(lab: Any, name: str) -> None:
    answer = lab.base(name)
    answer.moonshot = True
    assert answer.rules() == {}


def each_delta(answer: Any, change: Callable[[dict[str, Any]], None]) -> None:
    for frame in answer.frames:
        for choice in frame["choices"] if isinstance(frame, dict) else ():
            change(choice)


def comments(answer: Any) -> None:
    answer.frames = [frame for f in answer.frames for frame in (f, f)][::2]
    answer.tail = b": bye\n\n"
    answer.frames.insert(1, b"" + orjson.dumps(answer.frames.pop(1)) + b"\n\n: OPENROUTER PROCESSING\n\n: x")


def null_deltas(answer: Any) -> None:
    each_delta(
        answer,
        lambda c: c["delta"].update(
            {k: None for k in ("role", "tool_calls", "refusal", "function_call") if k not in c["delta"]}
        ),
    )


def extra_fields(answer: Any) -> None:
    each_delta(answer, lambda c: c.update({"matched_stop": None, "native_finish_reason": None}))
    for frame in answer.frames[:-1]:
        frame |= {"provider": "X", "obfuscation": "a8f", "x_groq": {"id": 1}}


def reasoning_field(answer: Any) -> None:
    answer.frames.insert(
        1, {**answer.frames[1], "choices": [{**answer.frames[1]["choices"][0], "delta": {"reasoning": "Hm."}}]}
    )


def azure_prompt_filter(answer: Any) -> None:
    results = [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}]
    answer.frames.insert(
        0, {"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": results}
    )
    offsets = {
        "content_filter_offsets": {"check_offset": 4},
        "content_filter_results": {},
        "finish_reason": None,
        "index": 0,
    }
    answer.frames.insert(3, {"choices": [offsets], "created": 0, "id": "", "model": "", "object": ""})


def first_frame_without_choices(answer: Any) -> None:
    answer.frames.insert(0, {**answer.frames[0], "choices": []})


def whole_arguments(answer: Any) -> None:
    for frame in answer.frames[2:4]:
        answer.frames.remove(frame)
    answer.frames[1]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] = '{"city":"Paris"}'


def both_calls_in_one_chunk(answer: Any) -> None:
    second = answer.frames.pop(4)["choices"][0]["delta"]["tool_calls"][0]
    answer.frames[1]["choices"][0]["delta"]["tool_calls"].append(second)


def usage_not_asked(answer: Any) -> None:
    answer.request["stream_options"] = {}
    del answer.frames[-2]


def named_tool_choice_stop(answer: Any) -> None:
    answer.request["tool_choice"] = {"type": "function", "function": {"name": "get_weather"}}
    answer.frames[-3]["choices"][0]["finish_reason"] = "stop"


def content_beside_calls(answer: Any) -> None:
    each_delta(answer, lambda c: c["delta"].update(content=""))


def one_chunk(answer: Any) -> None:
    answer.frames[1:5] = []
    answer.frames[0]["choices"][0] |= {"delta": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}


def length_cuts_arguments(answer: Any) -> None:
    del answer.frames[5]
    answer.frames[-3]["choices"][0]["finish_reason"] = "length"


def cut_by_the_network(answer: Any) -> None:
    del answer.frames[3:]
    answer.fault = Fault(kind=FaultKind.RESET, detail="reset", after_content=True)


def closed_without_end(answer: Any) -> None:
    del answer.frames[3:]
    answer.close_delimited = True


def running_usage(answer: Any) -> None:
    answer.request["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    for tokens, frame in enumerate(answer.frames[:5]):
        frame["usage"] = {"prompt_tokens": 11, "completion_tokens": tokens, "total_tokens": 11 + tokens}


def event_ids_and_charset(answer: Any) -> None:
    answer.headers = [("Content-Type", "text/event-stream; charset=utf-8")]
    answer.frames[0] = orjson.dumps(answer.frames[0]) + b"\nid: 1\nevent: message\nretry: 3000"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("openai", comments),
        ("openai", null_deltas),
        ("openai", extra_fields),
        ("openai", reasoning_field),
        ("openai", azure_prompt_filter),
        ("openai", first_frame_without_choices),
        ("openai-tools", whole_arguments),
        ("openai-tools", both_calls_in_one_chunk),
        ("openai", usage_not_asked),
        ("openai-tools", named_tool_choice_stop),
        ("openai-tools", content_beside_calls),
        ("openai", one_chunk),
        ("openai-tools", length_cuts_arguments),
        ("openai", cut_by_the_network),
        ("openai-tools", cut_by_the_network),
        ("openai", closed_without_end),
        ("openai", running_usage),
        ("openai", event_ids_and_charset),
        ("n2", null_deltas),
    ],
)
def test_an_unusual_but_legal_server_has_no_finding(lab: Any, name: str, change: Callable[[Any], None]) -> None:
    answer = lab.base(name)
    change(answer)
    received = answer.read()
    assert [(f.rule, f.message) for f in received.findings] == []


@pytest.mark.parametrize("ending", [b"\r\n", b"\r"])
def test_other_line_ends_have_no_finding(lab: Any, ending: bytes) -> None:
    answer = lab.base("openai")
    wire = answer.wire().replace(b"\n", ending).replace(b"data: ", b"data:")
    answer.frames, answer.tail = [], wire
    assert answer.rules() == {}


@pytest.mark.parametrize(
    "body",
    [
        {"object": "error", "message": "bad", "type": "BadRequestError", "code": 400},
        {"error": {"message": "bad", "type": "invalid_request_error"}},
        {"error": "bad"},
        {"detail": "bad"},
        {"detail": [{"loc": ["body"], "msg": "bad"}]},
    ],
)
@pytest.mark.parametrize("status", [400, 422, 429, 503])
def test_any_error_object_outside_a_200_is_legal_for_openai(lab: Any, body: object, status: int) -> None:
    answer = lab.base("openai-body")
    answer.body, answer.status = body, status
    assert answer.rules() == {}


def test_markers_that_the_request_holds_may_be_answered(lab: Any) -> None:
    answer = lab.base("kimi")
    answer.request["messages"] = [{"role": "user", "content": "What does <|end_of_msg|> do, and </think>?"}]
    answer.frames[4]["choices"][0]["delta"]["content"] = "<|end_of_msg|> ends, </think> closes"
    assert answer.rules() == {}


def test_the_kimi_profile_only_says_should_to_a_correct_openai_server(lab: Any) -> None:
    """Exactly the differences that Moonshot's stream specification has from the OpenAI API, none of them a must."""
    answer = lab.base("openai-tools")
    answer.profile = lab.profile("kimi-k3")
    assert answer.rules() == {
        "ids/chat": Level.SHOULD,
        "tools/id-form": Level.SHOULD,
        "usage/details": Level.SHOULD,
        "usage/end-frame": Level.SHOULD,
        "usage/headers": Level.MAY,
    }


@pytest.mark.parametrize("name", ["openai", "openai-tools", "vllm", "openai-body"])
def test_a_stock_engine_is_green_on_surface_engine(lab: Any, name: str) -> None:
    answer = lab.base(name)
    answer.profile = lab.profile("kimi-k3", Surface.ENGINE)
    assert answer.rules() == {}
