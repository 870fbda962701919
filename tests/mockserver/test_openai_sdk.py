"""The openai client, which shares no code with us, reads every clean answer."""

import json
from typing import Any

import openai
import pytest

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA: Any = {
    "type": "json_schema",
    "json_schema": {
        "name": "x",
        "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}


@pytest.fixture(params=["kimi-k3", "openai", "vllm"])
def sdk(serve, request):
    client = openai.OpenAI(base_url=serve(variant=request.param).server.base_url, api_key="none", max_retries=0)
    with client:
        yield client


def ask(sdk: openai.OpenAI, prompt: str, **fields: Any) -> Any:
    return sdk.chat.completions.create(model="kimi-k3", messages=[{"role": "user", "content": prompt}], **fields)


def streamed(sdk: openai.OpenAI, prompt: str, **fields: Any) -> Any:
    """The completion that the SDK's own accumulator makes of a stream."""
    with sdk.chat.completions.stream(
        model="kimi-k3", messages=[{"role": "user", "content": prompt}], **fields
    ) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def test_text(sdk):
    for answer in (ask(sdk, "Reply with exactly: hello world"), streamed(sdk, "Reply with exactly: hello world")):
        assert answer.choices[0].message.content == "hello world"
        assert answer.choices[0].finish_reason == "stop"


def test_usage(sdk):
    answer = streamed(sdk, "Hello", stream_options={"include_usage": True})
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


def test_tools(sdk):
    for answer in (
        ask(sdk, "call get_weather for Paris and for London", tools=[WEATHER]),
        streamed(sdk, "call get_weather for Paris and for London", tools=[WEATHER]),
    ):
        calls = answer.choices[0].message.tool_calls
        assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Paris", "London"]
        assert len({call.id for call in calls}) == 2
        assert answer.choices[0].finish_reason == "tool_calls"


def test_named_tool_choice(sdk):
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = ask(sdk, "Hello", tools=[WEATHER], tool_choice=choice)
    assert answer.choices[0].message.tool_calls[0].function.name == "get_weather"
    assert answer.choices[0].finish_reason in ("stop", "tool_calls")


def test_tool_loop(sdk):
    messages: list[Any] = [{"role": "user", "content": 'call get_weather with city "Oslo"'}]
    first = sdk.chat.completions.create(model="kimi-k3", messages=messages, tools=[WEATHER]).choices[0].message
    messages.append(first.model_dump())
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": "minus 4 degrees"} for call in first.tool_calls or []
    ]
    second = sdk.chat.completions.create(model="kimi-k3", messages=messages, tools=[WEATHER]).choices[0]
    assert second.finish_reason == "stop"
    assert "minus 4 degrees" in (second.message.content or "")


def test_json_schema(sdk):
    for answer in (ask(sdk, "a is 17", response_format=SCHEMA), streamed(sdk, "a is 17", response_format=SCHEMA)):
        assert json.loads(answer.choices[0].message.content) == {"a": 17}


def test_json_object(sdk):
    assert isinstance(
        json.loads(ask(sdk, "Give JSON", response_format={"type": "json_object"}).choices[0].message.content), dict
    )


def test_logprobs(sdk):
    answer = ask(sdk, "Reply with exactly: one two", logprobs=True, top_logprobs=2)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    assert all(len(entry.top_logprobs) == 2 for entry in entries)


def test_cuts(sdk):
    whole = ask(sdk, "Write 300 words", max_tokens=120)
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 120
    chunks = list(ask(sdk, "Write 300 words", max_tokens=120, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.completion_tokens == 120
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    stopped = ask(sdk, "Count from 1 to 9", stop=["5"])
    assert stopped.choices[0].message.content == "1, 2, 3, 4, "
    assert stopped.choices[0].finish_reason == "stop"


def test_errors_are_raised_as_what_they_are(sdk):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(sdk, "x", temperature=9)
    assert caught.value.body["message"]
    with pytest.raises(openai.NotFoundError):
        sdk.chat.completions.create(model="other", messages=[{"role": "user", "content": "x"}])


def test_models(sdk):
    assert [model.id for model in sdk.models.list()] == ["kimi-k3"]


def test_several_choices(serve):
    with openai.OpenAI(base_url=serve(variant="openai").server.base_url, api_key="none", max_retries=0) as sdk:
        whole = ask(sdk, "Give me a random string", n=3)
        joined = streamed(sdk, "Give me a random string", n=3)
    for answer in (whole, joined):
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        assert len({choice.message.content for choice in answer.choices}) == 3
