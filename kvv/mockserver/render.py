"""How a completion looks on the wire: the non-stream body and the frames of a stream."""

import secrets
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import log
from typing import Any

from kvv.mockserver.canonical import encode_canonical, plain
from kvv.mockserver.config import JsonObject
from kvv.mockserver.content.completion import Call, DraftChoice, Tokens, Usage
from kvv.mockserver.content.tokens import token_id
from kvv.mockserver.validation.request import ChatRequest
from kvv.mockserver.variant import IdStyle, ModelVariant
from kvv.mockserver.wire import event

_ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEnvelope:
    """What all frames of one answer share. ``created`` is in Unix seconds."""

    id: str
    created: int
    model: str
    variant: ModelVariant
    request: ChatRequest
    usage: Usage
    extra: JsonObject = field(default_factory=dict)

    def head(self, kind: str) -> JsonObject:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            **dict(self.variant.extra),
            **self.extra,
        }


def completion_id(style: IdStyle) -> str:
    """A fresh completion id in the variant's form."""
    match style:
        case "kimi":
            return f"chatcmpl-{secrets.token_hex(12)}"
        case "openai":
            return "chatcmpl-" + "".join(secrets.choice(_ALNUM) for _ in range(29))
    return f"chatcmpl-{uuid.uuid4().hex}"


def call_id(style: IdStyle, name: str, position: int) -> str:
    """The id of a call; ``position`` counts all calls of the conversation from 0."""
    match style:
        case "kimi":
            return f"{name}_{position}"
        case "openai":
            return "call_" + "".join(secrets.choice(_ALNUM) for _ in range(24))
    return f"chatcmpl-tool-{uuid.uuid4().hex}"


def usage_object(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def accounting_headers(usage: Usage) -> tuple[tuple[str, str], ...]:
    return (("x-msh-usage-prompt-tokens", str(usage.prompt)), ("x-msh-usage-cached-tokens", str(usage.cached)))


# --- log probabilities -----------------------------------------------------------------------------------------------


_ENDINGS = ("s", "ed", "ing", "ly", ".", ",", "!", "?", ";", ":", "-", "er", "al", "y", "ty", "or", "an", "en", "ic")


def _chances(token: str, temperature: float) -> list[float]:
    """Made-up but fixed probabilities of a token and of its alternatives, sharpened by the temperature as any softmax
    is.
    """
    p = 0.55 + token_id(token) % 400 / 1000
    fixed = [p, *((1 - p) * 0.5 ** (at + 1) for at in range(len(_ENDINGS)))]
    if temperature <= 0:
        return [1.0, *(0.0 for _ in _ENDINGS)]
    sharp = [chance ** (1 / temperature) for chance in fixed]
    return [value / sum(sharp) for value in sharp]


def _log(value: float) -> float:
    return round(log(max(value, 1e-9)), 6)


def _entry(token: str, request: ChatRequest) -> JsonObject:
    chances = _chances(token, request.temperature)
    shown = [
        _one(text, chance)
        for text, chance in zip([token, *(f"{token}{ending}" for ending in _ENDINGS)], chances, strict=True)
    ]
    return {**shown[0], "top_logprobs": shown[: request.top_logprobs]}


def _one(token: str, chance: float) -> JsonObject:
    return {"token": token, "logprob": _log(chance), "bytes": list(token.encode("utf-8", "surrogatepass"))}


def logprobs_for(tokens: Tokens, request: ChatRequest) -> JsonObject:
    """The logprobs object of these tokens, with as many alternatives as asked for."""
    return {"content": [_entry(token, request) for token in tokens]}


# --- the non-stream body ---------------------------------------------------------------------------------------------


def body(envelope: ReplyEnvelope, choices: tuple[DraftChoice, ...]) -> JsonObject:
    """The chat.completion object."""
    return {
        **envelope.head("chat.completion"),
        "choices": [_body_choice(envelope, choice) for choice in choices],
        "usage": usage_object(envelope.usage),
    }


def _body_choice(envelope: ReplyEnvelope, choice: DraftChoice) -> JsonObject:
    variant, request = envelope.variant, envelope.request
    message: JsonObject = {"role": "assistant", "content": choice.text}
    if variant.null_content and choice.calls and not choice.content:
        message["content"] = None
    if choice.reasoning:
        message[variant.reasoning_field] = "".join(choice.reasoning)
    if choice.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
            for call in choice.calls
        ]
    if variant.ids == "openai":
        message["refusal"] = None
    result: JsonObject = {"index": choice.index, "message": message, "finish_reason": choice.finish}
    if request.logprobs:
        result["logprobs"] = logprobs_for(all_tokens(choice), request)
    elif variant.null_content:
        result["logprobs"] = None
    return result


def all_tokens(choice: DraftChoice) -> Tokens:
    """Every token of a choice in order, a call's name as one."""
    calls: list[str] = []
    for call in choice.calls:
        calls.append(call.name)
        calls.extend(call.arguments)
    return (*choice.reasoning, *choice.content, *calls)


# --- the stream ------------------------------------------------------------------------------------------------------

OBJECT = "chat.completion.chunk"


def frames(envelope: ReplyEnvelope, choices: tuple[DraftChoice, ...]) -> Iterator[JsonObject]:
    """The chunk objects in order, without the closing ``[DONE]``. Choices are interleaved frame by frame."""
    head = envelope.head(OBJECT)
    request = envelope.request
    null_usage = {"usage": None} if envelope.variant.null_usage and request.include_usage else {}
    counters = _Counters(envelope.usage) if request.continuous_usage else None
    streams = [_choice_frames(envelope, choice) for choice in choices]
    while streams:
        for stream in tuple(streams):
            step = next(stream, None)
            if step is None:
                streams.remove(stream)
                continue
            choice, spent = step
            frame = {**head, "choices": [choice], **null_usage}
            if counters is not None:
                frame["usage"] = counters.after(spent, choice["delta"], envelope.variant.reasoning_field)
            yield frame
    if request.include_usage:
        yield {**head, "choices": [], "usage": usage_object(envelope.usage)}


def events(envelope: ReplyEnvelope, choices: tuple[DraftChoice, ...]) -> Iterator[bytes]:
    """The stream of ``frames`` as encoded events, with the parts that all frames share encoded once."""
    request = envelope.request
    if len(choices) > 1 or request.continuous_usage:
        yield from (event(frame) for frame in frames(envelope, choices))
        return
    head = plain(envelope.head(OBJECT))[:-1].encode()
    null_usage = b',"usage":null' if envelope.variant.null_usage and request.include_usage else b""
    before, after = b"data: " + head + b',"choices":[', b"]" + null_usage + b"}\n\n"
    for choice, _ in _choice_frames(envelope, choices[0]):
        yield before + encode_canonical(choice) + after
    if request.include_usage:
        yield event({**envelope.head(OBJECT), "choices": [], "usage": usage_object(envelope.usage)})


class _Counters:
    """Running usage for continuous_usage_stats."""

    def __init__(self, final: Usage) -> None:
        self._final = final
        self._completion = 0
        self._reasoning = 0

    def after(self, spent: int, delta: JsonObject, reasoning_field: str) -> JsonObject:
        self._completion += spent
        self._reasoning += spent if reasoning_field in delta else 0
        running = Usage(
            prompt=self._final.prompt, cached=self._final.cached, completion=self._completion, reasoning=self._reasoning
        )
        return usage_object(running)


def _choice_frames(envelope: ReplyEnvelope, choice: DraftChoice) -> Iterator[tuple[JsonObject, int]]:
    """The choices[0] objects of one choice with the tokens that each spends."""
    variant, request = envelope.variant, envelope.request
    bare = not (request.logprobs or request.include_internal_content)
    index = choice.index

    def step(delta: JsonObject, token: str) -> tuple[JsonObject, int]:
        result: JsonObject = {"index": index, "delta": delta, "finish_reason": None}
        if not bare:
            if request.include_internal_content:
                delta["internal_content"] = {"token_ids": [token_id(token)]}
            if request.logprobs:
                result["logprobs"] = logprobs_for((token,), request)
        return result, 1

    yield _bare(index, {"role": "assistant", "content": ""}), 0
    for token in choice.reasoning:
        yield step({variant.reasoning_field: token}, token)
    if choice.reasoning and variant.boundary and (choice.content or choice.calls):
        yield _bare(index, {variant.reasoning_field: ""}), 0
    for token in choice.content:
        yield step({"content": token}, token)
    for at, call in enumerate(choice.calls):
        yield step({"tool_calls": [_slot(at, call)]}, call.name)
        for token in call.arguments:
            yield step({"tool_calls": [{"index": at, "function": {"arguments": token}}]}, token)
    end = _bare(index, {})
    end["finish_reason"] = choice.finish
    if variant.usage_on_choice:
        end["usage"] = usage_object(envelope.usage)
    yield end, 0


def _bare(index: int, delta: JsonObject) -> JsonObject:
    return {"index": index, "delta": delta, "finish_reason": None}


def _slot(at: int, call: Call) -> dict[str, Any]:
    return {"index": at, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
