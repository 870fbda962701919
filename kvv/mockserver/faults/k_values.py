"""Group k: values that are changed, lost or made up on the way, from public reports of 2025 and 2026."""

import json
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kvv.mockserver.config import JsonObject
from kvv.mockserver.content.completion import Call, DraftChoice
from kvv.mockserver.content.compose import Draft
from kvv.mockserver.errors import ApiError
from kvv.mockserver.faults.edits import (
    content_frame,
    delta,
    each,
    each_call,
    each_frame,
    finish,
    parsed_arguments,
    tool_delta,
    with_arguments,
    with_content,
)
from kvv.mockserver.faults.model import Area, Frames, Mode, ServerFault, Turn
from kvv.mockserver.validation.request import ChatRequest, Message

_LATE_TEXT = "data:image/"
_MARKS = ("<|im_start|>", "<image>", "{{ ")


# --- reasoning, stops, text ---------------------------------------------------------------------------------------


def _cut_reasoning_as_content(_turn: Turn, choice: DraftChoice) -> DraftChoice:
    if choice.finish != "length" or choice.content or choice.calls:
        return choice
    return replace(choice, content=choice.reasoning, reasoning=())


def _forced_without_thoughts(turn: Turn, choice: DraftChoice) -> DraftChoice:
    forced = turn.request is not None and turn.request.tool_choice in ("required", "named")
    return replace(choice, reasoning=()) if forced else choice


def _half_a_stop(turn: Turn, draft: Draft, _index: int) -> Draft:
    for stop in turn.request.stop if turn.request is not None else ():
        before, found, _ = draft.content.partition(stop)
        if found and len(stop) > 3:
            return replace(draft, content=before + stop[: len(stop) // 2])
    return draft


def _fragment_at_the_end(_turn: Turn, choice: DraftChoice) -> DraftChoice:
    return choice if choice.calls or not choice.content else with_content(choice, f"{choice.text}<|")


def _lines_before(_turn: Turn, choice: DraftChoice) -> DraftChoice:
    return choice if choice.calls or not choice.content else with_content(choice, f"\n\n{choice.text}")


def _one_piece(_turn: Turn, frames: Frames) -> Frames:
    held = ""
    for frame in frames:
        text = delta(frame).get("content")
        if text and not finish(frame):
            held += text
            continue
        if held and finish(frame):
            yield content_frame(frame, held)
            held = ""
        yield frame


# --- arguments ----------------------------------------------------------------------------------------------------


def _each_text(edit: Callable[[str], Any]) -> Callable[[Turn, tuple[DraftChoice, ...]], tuple[DraftChoice, ...]]:
    """Every text among the arguments of every call, edited."""

    def walk(value: Any) -> Any:
        match value:
            case str():
                return edit(value)
            case dict():
                return {key: walk(item) for key, item in value.items()}
            case list():
                return [walk(item) for item in value]
        return value

    def call(_turn: Turn, one: Call) -> Call:
        arguments = parsed_arguments(one)
        return one if not isinstance(arguments, dict) else with_arguments(one, _compact(walk(arguments)))

    return each_call(call)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _guessed(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | bool | None) else text


def _all_texts(_turn: Turn, call: Call) -> Call:
    arguments = parsed_arguments(call)
    if not isinstance(arguments, dict):
        return call
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    return with_arguments(call, _compact(texts))


def _lower_keys(_turn: Turn, call: Call) -> Call:
    arguments = parsed_arguments(call)
    reserved = ("type", "description", "items", "name")
    if not isinstance(arguments, dict):
        return call
    return with_arguments(call, _compact({key: value for key, value in arguments.items() if key not in reserved}))


def _null_message(_turn: Turn, body: JsonObject) -> JsonObject:
    for choice in body["choices"]:
        for call in choice["message"].get("tool_calls") or ():
            if call["function"]["arguments"] == "{}":
                call["function"]["arguments"] = None
    return body


def _null_frames(_turn: Turn, frame: JsonObject) -> JsonObject | None:
    entry = tool_delta(frame)
    if entry is None:
        return frame
    entry["function"]["arguments"] = (
        None if entry["function"]["arguments"] in ("", "{}") else entry["function"]["arguments"]
    )
    return frame


# --- what reaches the model ---------------------------------------------------------------------------------------


def _messages(edit: Callable[[tuple[Message, ...]], Iterator[Message]]) -> Callable[[Turn, ChatRequest], ChatRequest]:
    return lambda _turn, request: replace(request, messages=tuple(edit(request.messages)))


def _by_position(messages: tuple[Message, ...]) -> Iterator[Message]:
    """The results that follow calls belong to these calls in order, whatever their ids say."""
    waiting: list[str] = []
    for message in messages:
        if message.calls:
            waiting = [call.id for call in message.calls]
        if message.role == "tool" and waiting:
            message = replace(message, tool_call_id=waiting.pop(0))
        yield message


def _no_results(messages: tuple[Message, ...]) -> Iterator[Message]:
    return (replace(message, parts=("",)) if message.role == "tool" else message for message in messages)


def _no_late_system(messages: tuple[Message, ...]) -> Iterator[Message]:
    return (
        message
        for at, message in enumerate(messages)
        if not at or message.role != "system" or message.tools is not None or len(messages) == 1
    )


def _last_turn_alone(messages: tuple[Message, ...]) -> Iterator[Message]:
    """Earlier answers and questions are dropped; results keep their calls."""
    plain = all(message.role in ("system", "user", "assistant") and not message.calls for message in messages)
    last = max((at for at, message in enumerate(messages) if message.role == "user"), default=0)
    return (m for at, m in enumerate(messages) if not plain or at >= last or m.role == "system")


def _second_system(_turn: Turn, body: JsonObject) -> JsonObject:
    roles = [m.get("role") for m in body.get("messages") or () if isinstance(m, dict) and not m.get("tools")]
    if "system" in roles[1:]:
        raise ApiError("System message must be at the beginning.", param="messages")
    return body


def _refuse_texts(*words: str) -> Callable[[Turn, JsonObject], JsonObject]:
    def hook(_turn: Turn, body: JsonObject) -> JsonObject:
        for message in body.get("messages") or ():
            content = message.get("content") if isinstance(message, dict) else None
            if isinstance(content, str) and any(word in content for word in words):
                raise ApiError("the prompt holds an image that cannot be read", param="messages")
        return body

    return hook


def _refuse_parameters(_turn: Turn, body: JsonObject) -> JsonObject:
    if ";charset=" in json.dumps(body.get("messages")) or ";name=" in json.dumps(body.get("messages")):
        raise ApiError("image_url must be a base64 data URL", param="messages")
    return body


# --- response formats ---------------------------------------------------------------------------------------------


def _sorted_keys(turn: Turn, draft: Draft, _index: int) -> Draft:
    if turn.request is None or turn.request.response_format.kind == "text":
        return draft
    try:
        value = json.loads(draft.content)
    except ValueError:
        return draft
    return replace(draft, content=json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")))


def _always_strict(_turn: Turn, request: ChatRequest) -> ChatRequest:
    return replace(request, response_format=replace(request.response_format, strict=True))


# --- log probabilities --------------------------------------------------------------------------------------------

Entries = list[JsonObject]


def _first_everywhere(entries: Entries, memory: JsonObject) -> None:
    for entry in entries:
        entry["top_logprobs"] = memory.setdefault("first", entry["top_logprobs"])


def _all(value: float) -> Callable[[Entries, JsonObject], None]:
    def edit(entries: Entries, _memory: JsonObject) -> None:
        for entry in entries:
            for one in (entry, *entry["top_logprobs"]):
                one["logprob"] = value

    return edit


def _other_value(entries: Entries, _memory: JsonObject) -> None:
    for entry in entries:
        entry["logprob"] -= 1.0


def _one_alternative(entries: Entries, _memory: JsonObject) -> None:
    for entry in entries:
        del entry["top_logprobs"][1:]


def _shifted(entries: Entries, memory: JsonObject) -> None:
    for entry in entries:
        memory["before"], entry["token"] = entry["token"], memory.get("before", "")


def _in_frames(edit: Callable[[Entries, JsonObject], None]) -> Callable[[Turn, Frames], Frames]:
    def hook(_turn: Turn, frames: Frames) -> Frames:
        memory: JsonObject = {}
        for frame in frames:
            for choice in frame["choices"]:
                edit((choice.get("logprobs") or {}).get("content") or [], memory)
            yield frame

    return hook


def _in_message(edit: Callable[[Entries, JsonObject], None]) -> Callable[[Turn, JsonObject], JsonObject]:
    def hook(_turn: Turn, body: JsonObject) -> JsonObject:
        for choice in body["choices"]:
            edit((choice.get("logprobs") or {}).get("content") or [], {})
        return body

    return hook


def _fault(id: str, summary: str, *areas: Area, mode: Mode = "both", **hooks: Any) -> ServerFault:
    return ServerFault(id=id, group="k", summary=summary, mode=mode, areas=areas, **hooks)


def _logprobs(id: str, summary: str, edit: Callable[[Entries, JsonObject], None]) -> ServerFault:
    return _fault(id, summary, "decoding", on_frames=_in_frames(edit), on_message=_in_message(edit))


FAULTS = (
    _fault("K01", "reasoning cut by max_tokens is content", "reasoning", on_choices=each(_cut_reasoning_as_content)),
    _fault(
        "K02",
        "a forced call switches thinking off",
        "tool-choice",
        "reasoning",
        on_choices=each(_forced_without_thoughts),
    ),
    _fault("K03", "tool results are matched by position, not by id", "tools", on_request=_messages(_by_position)),
    _fault("K04", "the first half of a stop string is shown", "decoding", on_draft=_half_a_stop),
    _fault(
        "K05",
        "the beginning of a special token ends each streamed answer",
        "streaming",
        mode="stream",
        on_choices=each(_fragment_at_the_end),
    ),
    _fault("K06", "white space at the ends of text arguments is cut off", "tools", on_choices=_each_text(str.strip)),
    _fault("K07", "text arguments come in lower case", "tools", on_choices=_each_text(str.lower)),
    _fault(
        "K08",
        "line ends of text arguments become line feeds",
        "tools",
        on_choices=_each_text(lambda text: text.replace("\r\n", "\n")),
    ),
    _fault(
        "K09",
        "text arguments are brought to a normal form",
        "tools",
        on_choices=_each_text(lambda text: unicodedata.normalize("NFC", text)),
    ),
    _fault("K10", "text arguments that look like other values become these", "tools", on_choices=_each_text(_guessed)),
    _fault(
        "K11", "system messages after the first message are dropped", "usage", on_request=_messages(_no_late_system)
    ),
    _fault("K12", "a second or late system message is refused", "usage", "errors", on_body=_second_system),
    _fault("K13", "a prompt whose text mentions a data URL is refused", "errors", on_body=_refuse_texts(_LATE_TEXT)),
    _fault("K14", "a prompt whose text mentions template markers is refused", "errors", on_body=_refuse_texts(*_MARKS)),
    _fault("K15", "a data URL with a parameter is refused", "vision", on_body=_refuse_parameters),
    _logprobs("K16", "each position has the first one's alternatives", _first_everywhere),
    _logprobs("K17", "all log probabilities are 0", _all(0.0)),
    _logprobs("K18", "all log probabilities are the lowest number", _all(-3.4e38)),
    _logprobs("K19", "the chosen token's value is not its alternative's", _other_value),
    _logprobs("K20", "one alternative, however many are asked for", _one_alternative),
    _fault("K21", "JSON keys come in alphabetical order", "response-format", on_draft=_sorted_keys),
    _fault("K22", "strict false is ignored", "response-format", on_request=_always_strict),
    _fault(
        "K23",
        "calls without arguments have null for them",
        "tools",
        on_message=_null_message,
        on_frames=each_frame(_null_frames),
    ),
    _fault("K24", "a streamed text comes in one piece", "streaming", mode="stream", on_frames=_one_piece),
    _fault(
        "K25", "two line feeds begin each streamed answer", "streaming", mode="stream", on_choices=each(_lines_before)
    ),
    _fault("K26", "earlier turns are dropped", "usage", on_request=_messages(_last_turn_alone)),
    _fault("K27", "the text of tool results is lost", "tools", on_request=_messages(_no_results)),
    _fault("K28", "every argument is a text", "tools", on_choices=each_call(_all_texts)),
    _fault("K29", "arguments named like keywords are lost", "tools", on_choices=each_call(_lower_keys)),
    _logprobs("K30", "the tokens of the log probabilities lag one behind", _shifted),
)
