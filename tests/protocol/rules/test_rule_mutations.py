"""Each rule sees the smallest change that breaks it, at its level and in the right frame, and is silent without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from kvv.core import Level, Surface
from kvv.protocol.rules import RULES

MUST, SHOULD, MAY = Level.MUST, Level.SHOULD, Level.MAY


def delta(answer: Any, frame: int) -> dict[str, Any]:
    found: dict[str, Any] = choice(answer, frame)["delta"]
    return found


def choice(answer: Any, frame: int) -> dict[str, Any]:
    found: dict[str, Any] = answer.frames[frame]["choices"][0]
    return found


def call(answer: Any, frame: int) -> dict[str, Any]:
    found: dict[str, Any] = delta(answer, frame)["tool_calls"][0]
    return found


def message(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = answer.body["choices"][0]["message"]
    return found


def usage(answer: Any) -> dict[str, Any]:
    """The tail frame's own copy of usage."""
    answer.frames[-2]["usage"] = orjson.loads(orjson.dumps(answer.frames[-2]["usage"]))
    found: dict[str, Any] = answer.frames[-2]["usage"]
    return found


def all_text(answer: Any, text: str, *, field_name: str = "content", at: int = 1) -> None:
    """The frame ``at`` brings ``text``; the other texts go."""
    for frame in answer.frames[:-2]:
        for entry in frame["choices"]:
            if entry["delta"].get("content"):
                entry["delta"]["content"] = ""
    answer.frames[at]["choices"][0]["delta"] = {field_name: text}


@dataclass
class Row:
    """``frame`` is the event number that the finding must name: None for the whole answer, -1 to not look."""

    rule: str
    base: str
    change: Callable[[Any], Any]
    level: Level = MUST
    frame: int | None = -1
    profile: dict[str, Any] = field(default_factory=dict)
    name: str = ""


def insert(answer: Any, at: int, *frames: Any) -> None:
    answer.frames[at:at] = frames


def copy_of(answer: Any, frame: int, **top: Any) -> dict[str, Any]:
    made: dict[str, Any] = orjson.loads(orjson.dumps(answer.frames[frame])) | top
    return made


def with_choice(answer: Any, frame: int, **fields: Any) -> dict[str, Any]:
    made = copy_of(answer, frame)
    made["choices"][0] |= fields
    return made


def strip_kimi_tail(answer: Any) -> None:
    answer.request["stream_options"] = {}
    del answer.frames[-2]


def ask_token_ids(answer: Any, *, given: bool) -> None:
    answer.request["stream_options"] = {"include_usage": True, "include_internal_content": True}
    for frame in answer.frames[:-2]:
        if given and any(frame["choices"][0]["delta"].get(key) for key in ("content", "reasoning_content")):
            frame["choices"][0]["delta"]["internal_content"] = {"token_ids": [1]}


def running(answer: Any, *counts: int) -> None:
    answer.request["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    for frame, count in zip(answer.frames, counts, strict=False):
        frame["usage"] = {"prompt_tokens": 11, "completion_tokens": count, "total_tokens": 11 + count}


def escape_arguments(answer: Any, arguments: str) -> None:
    """The request shows Chinese letters; the second call's arguments are these."""
    answer.request["messages"] = [{"role": "user", "content": "\u5317\u4eac"}]
    call(answer, 5)["function"]["arguments"] = arguments


def logprob(value: Any = -0.1) -> dict[str, Any]:
    return {"content": [{"token": "a", "logprob": value, "bytes": None, "top_logprobs": []}]}


def with_logprobs(answer: Any, frames: tuple[int, ...], entry: Any) -> None:
    answer.request["logprobs"] = True
    for frame in frames:
        choice(answer, frame)["logprobs"] = entry


def set_in(target: dict[str, Any], **fields: Any) -> None:
    target.update(fields)


def drop(target: dict[str, Any], key: str) -> None:
    del target[key]


LOOP = "The next step is to add the numbers. " * 30
BROKEN_OFF = "This is a sentence of some length. " * 3 + "Another one follows it here. " * 4 + "Then comes the"
MIXED = (
    "A text that is long enough to be looked at by this rule, wherein one wo月rd is mixed, says the test of this rule."
)


def forced_stop(answer: Any) -> None:
    choice(answer, 6)["finish_reason"] = "stop"
    answer.request["tool_choice"] = "required"


def reasoning_grows(answer: Any) -> None:
    """Running usage of choices: the reasoning count rises once more after the first call began to stream."""
    answer.request["stream_options"]["continuous_usage_stats"] = True
    for frame, reasoning in ((2, 3), (5, 3), (7, 4)):
        counts = {"completion_tokens": frame, "completion_tokens_details": {"reasoning_tokens": reasoning}}
        choice(answer, frame)["usage"] = counts


def untopped() -> dict[str, Any]:
    made = logprob()
    del made["content"][0]["top_logprobs"]
    return made


def same_twice(answer: Any) -> None:
    for frame, value in enumerate(
        ({"reasoning": "Hello there, how are"}, {"reasoning": " you?"}, {"content": "Hello there, how are you?"}, {})
    ):
        choice(answer, frame + 1)["delta"] = value


ROWS = [
    # event stream
    Row("stream/content-type", "openai", lambda a: a.headers.append(("content-type", "application/json")), frame=1),
    Row(
        "stream/content-type",
        "openai",
        lambda a: a.headers.append(("content-type", "text/plain")),
        frame=1,
        name="plain",
    ),
    Row("stream/not-streamed", "openai-body", lambda a: a.request.update(stream=True), frame=1),
    Row("stream/unasked", "openai", lambda a: a.request.update(stream=False), frame=1),
    Row("stream/json", "openai", lambda a: insert(a, 1, b": OPENROUTER PROCESSING"), frame=2),
    Row("stream/json", "openai", lambda a: insert(a, 1, b'{"id":'), frame=2, name="cut"),
    Row("stream/json", "openai", lambda a: insert(a, 1, b"[" * 300 + b"]" * 300), frame=2, name="deep"),
    Row(
        "stream/strict-json",
        "openai",
        lambda a: insert(a, 2, orjson.dumps(a.frames[1] | {"x": 0}).replace(b'"x":0', b'"x":NaN')),
        frame=3,
    ),
    Row(
        "stream/strict-json",
        "openai",
        lambda a: insert(a, 2, orjson.dumps(a.frames[1]).replace(b"Hello", b"\xff")),
        frame=3,
        name="utf8",
    ),
    Row("stream/done", "openai", lambda a: a.frames.pop(), frame=6),
    Row("stream/done-once", "openai", lambda a: a.frames.append(b"[DONE]"), SHOULD, frame=8),
    Row("stream/after-done", "openai", lambda a: a.frames.append(a.frames[1]), frame=8),
    Row(
        "stream/unterminated", "openai", lambda a: (a.frames.pop(), set_tail(a, b"data: [DONE]\n")), SHOULD, frame=None
    ),
    Row(
        "stream/empty-event",
        "openai",
        lambda a: a.frames.__setitem__(0, orjson.dumps(a.frames[0]) + b"\nid: 1\n\n: ping"),
        SHOULD,
    ),
    Row("stream/no-chunks", "openai", lambda a: a.frames.__setitem__(slice(0, 6), []), frame=1),
    Row("body/content-type", "openai-body", lambda a: a.headers.append(("content-type", "text/html")), SHOULD),
    Row(
        "body/strict-json",
        "openai-body",
        lambda a: set_body(a, orjson.dumps(a.body).replace(b'"logprobs":null', b'"x":Infinity')),
        frame=1,
    ),
    Row("body/strict-json", "openai-body", lambda a: set_body(a, b"\xef\xbb\xbf" + orjson.dumps(a.body)), name="bom"),
    # envelope
    Row("chunk/id", "openai", lambda a: a.frames[2].update(id=""), frame=3),
    Row("chunk/id", "openai", lambda a: drop(a.frames[0], "id"), frame=1, name="absent"),
    Row("chunk/id", "openai-body", lambda a: drop(a.body, "id"), name="body"),
    Row("chunk/id-constant", "openai", lambda a: a.frames[2].update(id="other"), frame=3),
    Row("chunk/object", "openai", lambda a: a.frames[2].update(object="chat.completions.chunk"), frame=3),
    Row("chunk/object", "openai-body", lambda a: a.body.update(object="chat.completion.chunk"), name="body"),
    Row("chunk/created", "openai", lambda a: a.frames[2].update(created="now"), frame=3),
    Row("chunk/created", "openai", lambda a: a.frames[2].update(created=1.5), frame=3, name="float"),
    Row("chunk/created-constant", "openai", lambda a: a.frames[2].update(created=2), SHOULD, frame=3),
    Row("chunk/model", "openai", lambda a: a.frames[2].update(model=None), frame=3),
    Row("chunk/model-constant", "openai", lambda a: a.frames[2].update(model="x"), SHOULD, frame=3),
    Row("chunk/choices", "openai", lambda a: a.frames[2].update(choices=None), frame=3),
    Row("chunk/choices", "openai-body", lambda a: a.body.update(choices=[]), name="body"),
    Row("chunk/choices", "openai", lambda a: insert(a, 1, b"3"), frame=2, name="number"),
    Row("chunk/choices", "openai", lambda a: a.frames[2].update(choices=[3]), frame=3, name="choice"),
    Row("chunk/choices", "openai-body", lambda a: a.body.update(choices=["x"]), name="body-choice"),
    Row("chunk/empty-choices", "openai", lambda a: insert(a, 2, copy_of(a, 1, choices=[])), SHOULD, frame=3),
    Row(
        "chunk/one-choice", "kimi", lambda a: a.frames[4]["choices"].append(a.frames[4]["choices"][0]), SHOULD, frame=5
    ),
    Row("chunk/one-choice", "kimi", lambda a: insert(a, 0, copy_of(a, 0, choices=[])), SHOULD, frame=1, name="none"),
    Row("chunk/choice-index", "openai", lambda a: choice(a, 2).update(index=197), frame=3),
    Row("chunk/choice-index", "openai", lambda a: drop(choice(a, 2), "index"), frame=3, name="absent"),
    Row("chunk/choice-index", "openai-body", lambda a: drop(a.body["choices"][0], "index"), name="body"),
    Row("chunk/delta", "openai", lambda a: drop(choice(a, 2), "delta"), frame=3),
    Row("chunk/delta", "openai-body", lambda a: a.body["choices"][0].update(message="Hi"), name="body"),
    Row("chunk/finish-key", "openai", lambda a: drop(choice(a, 2), "finish_reason"), frame=3),
    Row("chunk/message", "openai", lambda a: choice(a, 2).update(message={"content": "x"}), SHOULD, frame=3),
    Row("chunk/choice-count", "openai", lambda a: a.request.update(n=2)),
    # deltas
    Row("delta/role-first", "openai", lambda a: drop(delta(a, 0), "role"), frame=2),
    Row("delta/role-first", "openai", lambda a: delta(a, 0).update(role=None), frame=2, name="null"),
    Row("delta/role-first", "openai-body", lambda a: drop(message(a), "role"), name="body"),
    Row("delta/role-value", "openai", lambda a: delta(a, 0).update(role="user"), frame=1),
    Row("delta/role-once", "openai", lambda a: delta(a, 2).update(role="assistant"), SHOULD, frame=3),
    Row("delta/content-type", "openai", lambda a: delta(a, 2).update(content=["x"]), frame=3),
    Row(
        "delta/content-type",
        "openai-body",
        lambda a: message(a).update(content=[{"type": "text", "text": "x"}]),
        name="body",
    ),
    Row("delta/reasoning-type", "kimi", lambda a: delta(a, 2).update(reasoning_content={"x": 1}), frame=3),
    Row("delta/reasoning-field", "kimi", lambda a: set_delta(a, 2, {"reasoning": "Hm"}), SHOULD, frame=3),
    Row("delta/null", "kimi", lambda a: delta(a, 4).update(reasoning_content=None), SHOULD, frame=5),
    Row("delta/null", "kimi", lambda a: delta(a, 1).update(role=None, content=None), SHOULD, frame=2, name="C03"),
    Row("delta/one-kind", "kimi", lambda a: delta(a, 2).update(content=" greets."), SHOULD, frame=3),
    Row("delta/first-finish", "kimi", lambda a: choice(a, 0).update(finish_reason="stop"), SHOULD, frame=1),
    Row("delta/first-content", "kimi", lambda a: drop(delta(a, 0), "content"), SHOULD, frame=1),
    Row("delta/boundary", "kimi", lambda a: a.frames.pop(3), SHOULD, frame=4),
    Row("delta/boundary", "kimi", lambda a: insert(a, 3, copy_of(a, 3)), SHOULD, frame=6, name="two"),
    Row("delta/boundary", "kimi", lambda a: insert(a, 5, copy_of(a, 3)), SHOULD, frame=6, name="late"),
    Row("delta/contiguous", "kimi", lambda a: insert(a, 5, copy_of(a, 1)), SHOULD, frame=6),
    Row("delta/end-empty", "kimi", lambda a: delta(a, 6).update(content=""), SHOULD, frame=7),
    Row("delta/token-ids", "kimi", lambda a: ask_token_ids(a, given=False), MAY, frame=2),
    # tool calls
    Row("tools/shape", "openai-tools", lambda a: delta(a, 2).update(tool_calls={"index": 0}), frame=3),
    Row("tools/shape", "openai-tools", lambda a: drop(call(a, 2), "function"), frame=3, name="function"),
    Row("tools/empty-list", "openai", lambda a: delta(a, 2).update(tool_calls=[]), SHOULD, frame=3),
    Row("tools/empty-list", "openai-body", lambda a: message(a).update(tool_calls=[]), SHOULD, name="body"),
    Row("tools/index", "openai-tools", lambda a: drop(call(a, 2), "index"), frame=3),
    Row("tools/index-order", "openai-tools", lambda a: [call(a, i).update(index=3) for i in (4, 5)], frame=5),
    Row(
        "tools/index-order",
        "openai-tools",
        lambda a: [call(a, i).update(index=1) for i in (1, 2, 3)],
        frame=2,
        name="first",
    ),
    Row("tools/index-reused", "openai-tools", lambda a: [call(a, i).update(index=0) for i in (4, 5)], frame=5),
    Row("tools/id", "openai-tools", lambda a: drop(call(a, 1), "id"), frame=2),
    Row("tools/id", "openai-body-tools", lambda a: message(a)["tool_calls"][1].update(id=""), name="body"),
    Row("tools/id", "openai-tools", lambda a: call(a, 2).update(id=call(a, 1).pop("id")), frame=2, name="late"),
    Row("tools/id-distinct", "openai-tools", lambda a: call(a, 4).update(id="call_a"), frame=5),
    Row(
        "tools/id-distinct", "openai-body-tools", lambda a: message(a)["tool_calls"][1].update(id="call_a"), name="body"
    ),
    Row("tools/name", "openai-tools", lambda a: call(a, 1)["function"].update(name=""), frame=2),
    Row("tools/name-once", "openai-tools", lambda a: call(a, 2)["function"].update(name="get_weather"), frame=3),
    Row("tools/type", "openai-tools", lambda a: drop(call(a, 1), "type"), SHOULD, frame=2),
    Row(
        "tools/arguments-type",
        "openai-tools",
        lambda a: call(a, 5)["function"].update(arguments={"city": "Rome"}),
        frame=6,
    ),
    Row(
        "tools/arguments-type",
        "openai-body-tools",
        lambda a: message(a)["tool_calls"][0]["function"].update(arguments=None),
        name="body-null",
    ),
    Row(
        "tools/arguments-type",
        "openai-body-tools",
        lambda a: message(a)["tool_calls"][0]["function"].update(arguments={}),
        name="body",
    ),
    Row("tools/arguments-json", "openai-tools", lambda a: a.frames.pop(3), frame=3),
    Row(
        "tools/arguments-json",
        "openai-tools",
        lambda a: call(a, 5)["function"].update(arguments='{"city":"\\月"}'),
        frame=6,
        name="B44",
    ),
    Row("tools/arguments-json", "openai-tools", lambda a: a.frames.pop(5), frame=5, name="empty"),
    Row(
        "tools/arguments-object",
        "openai-tools",
        lambda a: call(a, 5)["function"].update(arguments='"{\\"city\\":\\"Rome\\"}"'),
        frame=6,
    ),
    Row(
        "tools/arguments-escaped",
        "openai-tools",
        lambda a: escape_arguments(a, '{"city":"\\u5317\\u4eac"}'),
        SHOULD,
        frame=6,
        name="B42",
    ),
    Row(
        "tools/arguments-escaped",
        "openai-tools",
        lambda a: escape_arguments(a, '{"city":"\\ud83d\\ude42"}'),
        SHOULD,
        frame=6,
        name="emoji",
    ),
    Row("tools/known-name", "openai-tools", lambda a: call(a, 4)["function"].update(name="get_whether"), SHOULD),
    Row("tools/unrequested", "openai-tools", lambda a: drop(a.request, "tools")),
    Row("tools/choice-none", "openai-tools", lambda a: a.request.update(tool_choice="none")),
    Row("tools/choice-required", "openai", lambda a: a.request.update(tool_choice="required", tools=[WEATHER])),
    Row("tools/choice-named", "openai", lambda a: a.request.update(tool_choice=named("get_weather"), tools=[WEATHER])),
    Row(
        "tools/choice-named",
        "openai-tools",
        lambda a: a.request.update(tool_choice=named("other"), tools=[WEATHER, OTHER]),
        name="other",
    ),
    Row("tools/serial", "openai-tools", lambda a: a.request.update(parallel_tool_calls=False)),
    Row("tools/continuation", "kimi-tools", lambda a: call(a, 4).update(id="get_weather_0"), SHOULD, frame=5),
    Row("tools/first-arguments", "kimi-tools", lambda a: call(a, 3)["function"].update(arguments=" "), SHOULD, frame=4),
    Row("tools/arguments-key", "kimi-tools", lambda a: drop(call(a, 3)["function"], "arguments"), SHOULD, frame=4),
    Row("tools/clustered", "kimi-tools", lambda a: insert(a, 5, a.frames.pop(6)), SHOULD, frame=7),
    Row("tools/id-form", "kimi-tools", lambda a: call(a, 3).update(id="functions.get_weather:0"), SHOULD, frame=4),
    # finish
    Row("finish/known", "openai", lambda a: choice(a, 4).update(finish_reason="stop_163586"), frame=5),
    Row("finish/known", "openai", lambda a: choice(a, 4).update(finish_reason=""), frame=5, name="empty"),
    Row("finish/known", "openai-body", lambda a: a.body["choices"][0].update(finish_reason="eos"), name="body"),
    Row("finish/extended", "kimi", lambda a: choice(a, 6).update(finish_reason="repeat"), SHOULD, frame=7),
    Row("finish/missing", "openai", lambda a: choice(a, 4).update(finish_reason=None)),
    Row("finish/missing", "openai-body", lambda a: a.body["choices"][0].update(finish_reason=None), name="body"),
    Row("finish/once", "openai", lambda a: insert(a, 5, copy_of(a, 4)), frame=6),
    Row("finish/nothing-after", "openai", lambda a: insert(a, 5, copy_of(a, 1)), frame=6),
    Row("finish/tool-calls", "openai-tools", lambda a: choice(a, 6).update(finish_reason="stop"), frame=7),
    Row(
        "finish/tool-calls",
        "openai-body-tools",
        lambda a: a.body["choices"][0].update(finish_reason="stop"),
        name="body",
    ),
    Row("finish/tool-calls", "openai-tools", forced_stop, SHOULD, name="required"),
    Row("finish/calls-missing", "openai", lambda a: choice(a, 4).update(finish_reason="tool_calls"), frame=5),
    Row("finish/at-cap", "openai", lambda a: a.request.update(max_tokens=7), SHOULD),
    Row("finish/over-cap", "openai", lambda a: a.request.update(max_tokens=6), SHOULD),
    Row("finish/stop-string", "openai", lambda a: a.request.update(stop=["how can"])),
    Row("finish/stop-string", "openai", lambda a: a.request.update(stop=", how"), name="across"),
    # usage
    Row("usage/missing", "openai", lambda a: a.frames.pop(5)),
    Row("usage/missing", "openai-body", lambda a: drop(a.body, "usage"), name="body"),
    Row("usage/tail-frame", "openai", lambda a: a.frames[4].update(usage=a.frames.pop(5)["usage"])),
    Row("usage/tail-position", "openai", lambda a: insert(a, 3, a.frames.pop(5)), SHOULD, frame=4),
    Row("usage/once", "openai", lambda a: insert(a, 5, copy_of(a, 5)), frame=7),
    Row("usage/integers", "openai", lambda a: drop(usage(a), "prompt_tokens"), frame=6),
    Row("usage/integers", "openai", lambda a: usage(a).update(total_tokens=18.0), frame=6, name="float"),
    Row("usage/integers", "openai", lambda a: usage(a).update(total_tokens=True), frame=6, name="bool"),
    Row(
        "usage/integers",
        "openai",
        lambda a: usage(a).update(completion_tokens=-1, total_tokens=10),
        frame=6,
        name="negative",
    ),
    Row("usage/integers", "openai", lambda a: a.frames[5].update(usage=[7]), frame=6, name="list"),
    Row("usage/integers", "openai-body", lambda a: a.body.update(usage=7), frame=1, name="body"),
    Row("usage/integers", "kimi", lambda a: choice(a, 6).update(usage=7), frame=7, name="choice"),
    Row("usage/total", "openai", lambda a: usage(a).update(total_tokens=19), frame=6),
    Row("usage/prompt-zero", "openai", lambda a: usage(a).update(prompt_tokens=0, total_tokens=7), frame=6),
    Row("usage/completion-zero", "openai", lambda a: usage(a).update(completion_tokens=0, total_tokens=11), frame=6),
    Row("usage/cached", "openai", lambda a: usage(a).update(prompt_tokens_details={"cached_tokens": 12}), frame=6),
    Row(
        "usage/cached",
        "openai-body",
        lambda a: a.body["usage"].update(prompt_tokens_details={"cached_tokens": -1}),
        name="negative",
    ),
    Row(
        "usage/reasoning",
        "openai",
        lambda a: usage(a).update(completion_tokens_details={"reasoning_tokens": 8}),
        frame=6,
    ),
    Row(
        "usage/reasoning-zero",
        "kimi",
        lambda a: usage(a).update(completion_tokens_details={"reasoning_tokens": 0}),
        SHOULD,
        frame=8,
    ),
    Row("usage/equal", "kimi", lambda a: usage(a).update(prompt_tokens=12, total_tokens=19), frame=8),
    Row("usage/equal", "openai-body", lambda a: a.body["usage"].update(cached_tokens=5), frame=1, name="flat"),
    Row("usage/unasked", "openai", lambda a: a.request.update(stream_options={}), SHOULD, frame=6),
    Row(
        "usage/unasked",
        "openai",
        lambda a: (strip_kimi_tail(a), a.frames[4].update(usage={})),
        SHOULD,
        frame=5,
        name="C08",
    ),
    Row("usage/monotonic", "openai", lambda a: running(a, 0, 2, 1), SHOULD, frame=3),
    Row("usage/monotonic", "kimi-tools", reasoning_grows, SHOULD, frame=8, name="reasoning"),
    Row("usage/middle", "kimi", lambda a: a.frames[4].update(usage={"prompt_tokens": 1}), SHOULD, frame=5, name="top"),
    Row("usage/middle", "kimi", lambda a: choice(a, 4).update(usage={"prompt_tokens": 1}), SHOULD, frame=5),
    Row("usage/details", "kimi", lambda a: drop(usage(a), "prompt_tokens_details"), SHOULD, frame=8),
    Row("usage/end-frame", "kimi", lambda a: drop(choice(a, 6), "usage"), SHOULD, frame=7),
    Row("usage/headers", "kimi", lambda a: a.headers.clear(), MAY, frame=None),
    Row(
        "usage/headers-equal",
        "kimi",
        lambda a: a.headers.__setitem__(0, ("x-msh-usage-prompt-tokens", "10")),
        SHOULD,
        frame=8,
    ),
    # logprobs
    Row(
        "logprobs/present", "openai", lambda a: a.request.update(logprobs=True), profile={"claims": {"logprobs": True}}
    ),
    Row("logprobs/shape", "openai", lambda a: with_logprobs(a, (1, 2, 3), logprob(value=0.5)), frame=2),
    Row("logprobs/shape", "openai", lambda a: with_logprobs(a, (1, 2, 3), {"content": ["a"]}), frame=2, name="entry"),
    Row("logprobs/shape", "openai", lambda a: choice(a, 1).update(logprobs=[1]), frame=2, name="list"),
    Row("logprobs/shape", "openai-body", lambda a: a.body["choices"][0].update(logprobs=untopped()), name="top"),
    Row(
        "logprobs/coverage",
        "openai",
        lambda a: with_logprobs(a, (1, 2), logprob()),
        SHOULD,
        frame=4,
        profile={"claims": {"logprobs": True}},
    ),
    Row("logprobs/first-chunk", "kimi", lambda a: with_logprobs(a, (0, 4, 5), logprob()), SHOULD, frame=1),
    # text
    Row("text/replacement", "openai", lambda a: delta(a, 2).update(content="caf\ufffd!"), frame=3),
    Row(
        "text/lone-surrogate",
        "openai",
        lambda a: insert(a, 2, orjson.dumps(a.frames[1]).replace(b"Hello", b"\\ud83d")),
        frame=3,
    ),
    Row("leak/special", "kimi", lambda a: delta(a, 5).update(content=" there.<|end_of_msg|>"), frame=6),
    Row("leak/special", "kimi", lambda a: delta(a, 2).update(reasoning_content="<|open|>"), frame=3, name="reasoning"),
    Row(
        "leak/special",
        "kimi-tools",
        lambda a: call(a, 7)["function"].update(arguments='{"city":"Rome<|close|>"}'),
        frame=8,
        name="arguments",
    ),
    Row("leak/tools", "kimi", lambda a: set_texts(a, ["<|tool_call_be", "gin|>functions"]), frame=6),
    Row(
        "leak/tools",
        "kimi-tools",
        lambda a: call(a, 3)["function"].update(name="get_weather<|tool_call_end|>"),
        frame=4,
        name="name",
    ),
    Row("leak/think", "kimi", lambda a: set_texts(a, ["<think>", "Hm"]), frame=5),
    Row("leak/think", "kimi", lambda a: set_texts(a, ["Hm</th", "ink>Hello"]), frame=6, name="orphan"),
    # ids, response format
    Row("ids/chat", "kimi", lambda a: [f.update(id="chatcmpl-xyz") for f in a.frames[:-1]], SHOULD, frame=1),
    Row("format/json", "openai", lambda a: a.request.update(response_format={"type": "json_object"}), frame=5),
    # errors
    Row("errors/in-200", "openai-body", lambda a: set_body(a, {"error": {"message": "x", "type": "y"}})),
    Row(
        "errors/in-200",
        "openai",
        lambda a: a.frames.__setitem__(slice(0, 6), [{"error": {"message": "too long"}}]),
        frame=1,
        name="C23",
    ),
    Row(
        "errors/in-200",
        "openai",
        lambda a: a.frames.__setitem__(slice(0, 6), [{"message": "x", "code": 500}]),
        frame=1,
        name="flat",
    ),
    Row(
        "errors/after-content", "openai", lambda a: insert(a, 3, {"error": {"message": "engine died"}}), SHOULD, frame=4
    ),
    Row("errors/envelope", "kimi-body", lambda a: refuse(a, {"message": "no", "type": "x"}), SHOULD),
    Row("errors/json", "openai-body", lambda a: refuse(a, b"<html>no</html>"), SHOULD),
    Row("errors/json", "openai", lambda a: setattr(a, "status", 400), SHOULD, name="stream"),
    Row("errors/message", "openai-body", lambda a: refuse(a, {"error": {"message": "", "type": "x"}}), SHOULD),
    # heuristics
    Row("heuristic/repetition", "openai", lambda a: all_text(a, LOOP), SHOULD),
    Row("heuristic/junk", "openai", lambda a: all_text(a, "?" * 60 + "//"), SHOULD),
    Row("heuristic/reasoning-is-answer", "vllm", same_twice, SHOULD),
    Row(
        "heuristic/answer-in-reasoning",
        "vllm",
        lambda a: (set_delta(a, 3, {"content": ""}), set_delta(a, 4, {"content": ""})),
        SHOULD,
    ),
    Row("heuristic/empty-answer", "openai-body", lambda a: message(a).update(content=""), SHOULD),
    Row("heuristic/breaks-off", "openai", lambda a: all_text(a, BROKEN_OFF), SHOULD),
    Row("heuristic/language-mixing", "openai", lambda a: all_text(a, MIXED), MAY),
]

OTHER = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def set_body(answer: Any, body: Any) -> None:
    answer.body = body


def set_tail(answer: Any, tail: bytes) -> None:
    answer.tail = tail


def set_delta(answer: Any, frame: int, value: dict[str, Any]) -> None:
    choice(answer, frame)["delta"] = value


def set_texts(answer: Any, texts: list[str]) -> None:
    for frame, text in zip((4, 5), texts, strict=True):
        set_delta(answer, frame, {"content": text})


def refuse(answer: Any, body: Any) -> None:
    answer.body, answer.status = body, 400


def prepared(lab: Any, row: Row) -> Any:
    answer = lab.base(row.base)
    if row.profile:
        answer.profile = lab.profile(answer.profile.id, **row.profile)
    return answer


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.rule}{':' + row.name if row.name else ''}" for row in ROWS])
def test_a_rule_sees_what_breaks_it_and_only_that(lab: Any, row: Row) -> None:
    assert row.rule not in prepared(lab, row).rules()
    broken = prepared(lab, row)
    row.change(broken)
    received = broken.read()
    mine = [finding for finding in received.findings if finding.rule == row.rule]
    assert mine, f"found only {[f.rule for f in received.findings]}"
    assert mine[0].level is row.level
    if row.frame != -1:
        assert mine[0].frame == row.frame
    assert mine[0].message
    assert len(mine[0].excerpt) <= 400
    kept = {frame.number for frame in received.exchange.frames}
    assert {finding.frame for finding in received.findings} - {None} == kept


def test_every_rule_has_a_row() -> None:
    assert {row.rule for row in ROWS} == set(RULES)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if RULES[row.rule].section == "heuristics"], ids=lambda row: row.rule
)
def test_heuristics_are_never_must_even_under_the_strictest_policy(lab: Any, row: Row) -> None:
    broken = prepared(lab, row)
    broken.moonshot = True
    row.change(broken)
    assert broken.rules()[row.rule] is not MUST


@pytest.mark.parametrize(
    "row", [row for row in ROWS if RULES[row.rule].p0], ids=[f"{r.rule}{r.name}" for r in ROWS if RULES[r.rule].p0]
)
def test_the_policy_moonshot_stream_makes_every_p0_rule_a_must(lab: Any, row: Row) -> None:
    broken = prepared(lab, row)
    broken.moonshot = True
    row.change(broken)
    assert broken.rules()[row.rule] is MUST


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES.values() if rule.scope == "kimi-stream"], ids=lambda rule: rule.id
)
def test_kimi_rules_are_silent_for_other_profiles(lab: Any, rule: Any) -> None:
    for row in ROWS:
        if row.rule == rule.id:
            for profile in (lab.profile("openai"), lab.profile("kimi-k3", Surface.ENGINE)):
                broken = prepared(lab, row)
                broken.profile = profile
                row.change(broken)
                assert rule.id not in broken.rules()


def test_rules_are_well_described() -> None:
    for rule in RULES.values():
        assert {"must": "MUST", "should": "SHOULD", "may": "MAY"}[rule.level] in rule.requirement, rule.id
        assert rule.requirement.endswith("."), rule.id
        assert rule.source, rule.id


def test_must_rules_rest_on_a_public_source() -> None:
    for rule in RULES.values():
        if rule.level is MUST:
            assert "http" in rule.source or "published" in rule.source, rule.id


def test_causes_are_in_the_fault_catalogue(fault_ids: frozenset[str]) -> None:
    assert {cause for rule in RULES.values() for cause in rule.causes} <= fault_ids


def test_at_most_three_findings_per_rule_and_the_count_in_words(lab: Any) -> None:
    answer = lab.base("openai")
    answer.frames[1:1] = [copy_of(answer, 1, created=index) for index in range(50)]
    found = [finding for finding in answer.read().findings if finding.rule == "chunk/created-constant"]
    assert [finding.frame for finding in found] == [2, 3, 4]
    assert "50 times" in found[0].message
