"""From a JSON body to a ``ChatRequest``, or an ``ApiError``.

Unknown top-level fields are ignored and null counts as absent, as on the hosted API. Of a wrong type nothing is
repaired: "1.0" is no number and true is no integer here.
"""

from typing import Any

from kvv.mockserver.config import JsonObject
from kvv.mockserver.errors import ApiError
from kvv.mockserver.validation.messages import read_messages
from kvv.mockserver.validation.request import ChatRequest
from kvv.mockserver.validation.thinking import read_thinking
from kvv.mockserver.validation.tools import read_response_format, read_tool_choice, read_tools
from kvv.mockserver.variant import ModelVariant

MAX_TOKENS_CEILING = 1_048_576
# K3 fixes its sampling. Public KVV wants 0 and 0.6 accepted, the hosted API only 1: all three are accepted here.
# top_p 1.0 is on nobody's rejected list and many SDKs send it by default, so it is accepted beside 0.95.
_FIXED: dict[str, tuple[float, ...]] = {
    "temperature": (0.0, 0.6, 1.0),
    "top_p": (0.95, 1.0),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
}
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "min_p": (0.0, 1.0),
}


def read_request(body: Any, *, model: str, variant: ModelVariant) -> ChatRequest:
    """The validated request of a parsed JSON body; raises ApiError."""
    if not isinstance(body, dict):
        raise ApiError("the body must be a JSON object", reason="json")
    name = _string(body, "model")
    if name is None:
        raise ApiError("model is required", param="model")
    if name != model:
        raise ApiError(
            f"model {name[:100]!r} is not found",
            status=404,
            kind="resource_not_found_error",
            param="model",
            reason="model",
        )
    try:
        return _read(body, name, variant)
    except RecursionError:
        raise ApiError("the request nests too deeply", reason="json") from None


def _read(body: JsonObject, model: str, variant: ModelVariant) -> ChatRequest:
    tools = read_tools(body.get("tools"), param="tools", variant=variant)
    messages = read_messages(body.get("messages"), variant=variant, taken={tool.name for tool in tools})
    request_tools = (*tools, *(tool for message in messages for tool in message.tools or ()))
    mode, tool_name = read_tool_choice(body.get("tool_choice"), tools=request_tools, variant=variant)
    thinking, effort = read_thinking(body, variant=variant)
    stream = bool(_boolean(body, "stream"))
    options = _object(body, "stream_options")
    top_logprobs = _integer(body, "top_logprobs", 0, 20) or 0
    logprobs = bool(_boolean(body, "logprobs"))
    if top_logprobs and not logprobs:
        raise ApiError("top_logprobs needs logprobs", param="top_logprobs")
    sampling = {name: _sampling(body, name, variant) for name in _RANGES}
    temperature = sampling["temperature"]
    _integer(body, "top_k", -1, None)
    _string(body, "user")
    parallel = _boolean(body, "parallel_tool_calls")
    return ChatRequest(
        model=model,
        messages=messages,
        tools=tools,
        stream=stream,
        include_usage=bool(_boolean(options, "include_usage")),
        include_internal_content=bool(_boolean(options, "include_internal_content")),
        continuous_usage=bool(_boolean(options, "continuous_usage_stats")),
        max_tokens=_token_limit(body),
        min_tokens=_integer(body, "min_tokens", 0, MAX_TOKENS_CEILING) or 0,
        stop=_stop(body, variant),
        temperature=1.0 if temperature is None else temperature,
        n=_choices(body, variant),
        seed=_integer(body, "seed", None, None),
        tool_choice=mode,
        tool_name=tool_name,
        parallel=parallel is not False,
        thinking=thinking,
        effort=effort,
        response_format=read_response_format(body.get("response_format"), variant=variant),
        logprobs=logprobs,
        top_logprobs=top_logprobs,
        logit_bias=_logit_bias(body),
    )


def _string(body: JsonObject, name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise ApiError(f"{name} must be a string", param=name)
    return value


def _boolean(body: JsonObject, name: str) -> bool | None:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise ApiError(f"{name} must be a boolean", param=name)
    return value


def _object(body: JsonObject, name: str) -> JsonObject:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ApiError(f"{name} must be an object", param=name)
    return value


def _integer(body: JsonObject, name: str, low: int | None, high: int | None) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or (isinstance(value, float) and not value.is_integer())
    ):
        raise ApiError(f"{name} must be an integer", param=name)
    if (low is not None and value < low) or (high is not None and value > high):
        raise ApiError(f"{name} is out of range", param=name)
    return int(value)


def _sampling(body: JsonObject, name: str, variant: ModelVariant) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ApiError(f"{name} must be a number", param=name)
    if variant.fixed_sampling and name in _FIXED:
        allowed = _FIXED[name]
        if value not in allowed:
            raise ApiError(
                f"invalid {name}: this model takes only {', '.join(f'{entry:g}' for entry in allowed)}", param=name
            )
        return float(value)
    low, high = _RANGES[name]
    if not low <= value <= high:
        raise ApiError(f"{name} must be from {low:g} to {high:g}", param=name)
    return float(value)


def _choices(body: JsonObject, variant: ModelVariant) -> int:
    n = _integer(body, "n", 1, None)
    if n is not None and n > variant.max_choices:
        raise ApiError(f"n must be at most {variant.max_choices}", param="n")
    return n or 1


def _token_limit(body: JsonObject) -> int | None:
    """max_completion_tokens wins over max_tokens when both are sent."""
    old = _integer(body, "max_tokens", 1, MAX_TOKENS_CEILING)
    new = _integer(body, "max_completion_tokens", 1, MAX_TOKENS_CEILING)
    return old if new is None else new


def _stop(body: JsonObject, variant: ModelVariant) -> tuple[str, ...]:
    value = body.get("stop")
    if value is None:
        return ()
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise ApiError("stop must be a string or a list of strings", param="stop")
    if len(entries) > variant.max_stops:
        raise ApiError(f"stop takes at most {variant.max_stops} entries", param="stop")
    limit = variant.stop_bytes
    if any(not entry or (limit is not None and len(entry.encode()) > limit) for entry in entries):
        raise ApiError("a stop entry is empty or too long", param="stop")
    return tuple(entries)


def _logit_bias(body: JsonObject) -> tuple[tuple[int, float], ...]:
    pairs = []
    for key, value in _object(body, "logit_bias").items():
        if (
            not key.isdecimal()
            or isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not -100 <= value <= 100
        ):
            raise ApiError("logit_bias maps token ids to numbers from -100 to 100", param="logit_bias")
        pairs.append((int(key), float(value)))
    return tuple(pairs)
