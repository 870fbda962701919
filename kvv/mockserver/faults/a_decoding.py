"""Group a: decoding parameters that are ignored, clamped, refused or applied in the wrong place."""

from dataclasses import replace
from typing import Any

from kvv.mockserver.config import JsonObject
from kvv.mockserver.content.completion import DraftChoice
from kvv.mockserver.content.compose import Draft
from kvv.mockserver.errors import ApiError
from kvv.mockserver.faults.edits import delta, each, each_frame, with_content
from kvv.mockserver.faults.model import ServerFault, Turn
from kvv.mockserver.validation.request import ChatRequest

_RANGES = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "min_p": (0.0, 1.0),
}
_FIXED = {"temperature": (0.0, 0.6, 1.0), "top_p": (0.95, 1.0), "presence_penalty": (0.0,), "frequency_penalty": (0.0,)}


def _greedy(_turn: Turn, request: ChatRequest) -> ChatRequest:
    return replace(request, temperature=0.0)


def _default_temperature(turn: Turn, request: ChatRequest) -> ChatRequest:
    return replace(request, temperature=0.7) if turn.body.get("temperature") is None else request


def _greedy_with_images(_turn: Turn, request: ChatRequest) -> ChatRequest:
    return replace(request, temperature=0.0) if any(message.images for message in request.messages) else request


def _clamp(turn: Turn, body: JsonObject) -> JsonObject:
    clamped = dict(body)
    for name, (low, high) in _RANGES.items():
        value = body.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = min(max(value, low), high)
            if turn.variant.fixed_sampling and name in _FIXED:
                value = min(_FIXED[name], key=lambda allowed, wanted=value: abs(allowed - wanted))  # type: ignore[misc]
            clamped[name] = value
    for name, least, most in (("n", 1, turn.variant.max_choices), ("top_k", -1, 10**9)):
        number: Any = body.get(name)
        if isinstance(number, int) and not isinstance(number, bool):
            clamped[name] = min(max(number, least), most)
    return clamped


def _no_processors(_turn: Turn, request: ChatRequest) -> ChatRequest:
    return replace(request, logit_bias=(), min_tokens=0)


def _refuse_processors(_turn: Turn, body: JsonObject) -> JsonObject:
    for name in ("min_p", "logit_bias"):
        if body.get(name) is not None:
            raise ApiError(f"{name} is not supported with speculative decoding", param=name)
    return body


def _shared_generator(turn: Turn, request: ChatRequest) -> ChatRequest:
    return replace(request, seed=None) if turn.active > 1 else request


def _refuse_choices(_turn: Turn, body: JsonObject) -> JsonObject:
    if isinstance(body.get("n"), int) and body["n"] > 1:
        raise ApiError("n above 1 is not supported in this workflow", param="n")
    return body


def _stop_in_reasoning(turn: Turn, draft: Draft, _index: int) -> Draft:
    stops = turn.request.stop if turn.request is not None else ()
    found = [at for at in (draft.reasoning.find(stop) for stop in stops) if at >= 0]
    return Draft(reasoning=draft.reasoning[: min(found)]) if found else draft


def _show_stop(turn: Turn, choice: DraftChoice) -> DraftChoice:
    stops = turn.request.stop if turn.request is not None else ()
    return with_content(choice, choice.text + stops[0]) if stops and choice.finish == "stop" else choice


def _several_calls(_turn: Turn, request: ChatRequest) -> ChatRequest:
    return replace(request, parallel=True)


def _no_logprobs(_turn: Turn, frame: JsonObject) -> JsonObject:
    if frame["choices"] and "logprobs" in frame["choices"][0] and not delta(frame).get("content"):
        frame["choices"][0]["logprobs"] = None
    return frame


FAULTS = (
    ServerFault(
        id="A01",
        group="a",
        summary="temperature is dropped, always greedy",
        mode="both",
        areas=("decoding",),
        on_request=_greedy,
    ),
    ServerFault(
        id="A02",
        group="a",
        summary="without temperature 0.7 is used",
        mode="both",
        areas=("decoding",),
        on_request=_default_temperature,
    ),
    ServerFault(
        id="A04",
        group="a",
        summary="greedy when the request holds an image",
        mode="both",
        areas=("decoding", "vision"),
        on_request=_greedy_with_images,
    ),
    ServerFault(
        id="A05",
        group="a",
        summary="out-of-range numbers are clamped and answered with 200",
        mode="both",
        areas=("decoding",),
        on_body=_clamp,
    ),
    ServerFault(
        id="A06",
        group="a",
        summary="logit_bias, min_p and min_tokens have no effect",
        mode="both",
        areas=("decoding",),
        on_request=_no_processors,
    ),
    ServerFault(
        id="A07",
        group="a",
        summary="min_p and logit_bias are refused with 400",
        mode="both",
        areas=("decoding",),
        on_body=_refuse_processors,
    ),
    ServerFault(
        id="A08",
        group="a",
        summary="a seed is ignored while other requests are active",
        mode="both",
        dwell_s=0.03,
        areas=("decoding",),
        on_request=_shared_generator,
    ),
    ServerFault(
        id="A11", group="a", summary="n above 1 is refused", mode="both", areas=("decoding",), on_body=_refuse_choices
    ),
    ServerFault(
        id="A13",
        group="a",
        summary="stop matches inside the reasoning and ends the answer",
        mode="both",
        areas=("decoding", "reasoning"),
        on_draft=_stop_in_reasoning,
    ),
    ServerFault(
        id="A14",
        group="a",
        summary="the stop string is left at the end of the text",
        mode="nonstream",
        areas=("decoding",),
        on_choices=each(_show_stop),
    ),
    ServerFault(
        id="A15",
        group="a",
        summary="parallel_tool_calls false has no effect",
        mode="both",
        areas=("decoding", "tools"),
        on_request=_several_calls,
    ),
    ServerFault(
        id="A16",
        group="a",
        summary="logprobs are null on chunks without content",
        mode="stream",
        areas=("decoding", "streaming"),
        on_frames=each_frame(_no_logprobs),
    ),
    ServerFault(
        id="A19",
        group="a",
        summary="temperature, top_p and top_k are never read",
        mode="nonstream",
        areas=("decoding",),
        on_request=_greedy,
    ),
)
