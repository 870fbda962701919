"""Group b, first part: what tool-call parsers lose, leak or mislabel."""

import re
import uuid
from collections.abc import Callable
from dataclasses import replace

from kvv.mockserver.config import JsonObject
from kvv.mockserver.content.completion import Call, DraftChoice
from kvv.mockserver.content.tokens import tokenize
from kvv.mockserver.faults.edits import (
    content_frame,
    delta,
    each,
    each_call,
    each_frame,
    finish,
    raw_section,
    tool_delta,
    with_arguments,
    with_content,
)
from kvv.mockserver.faults.model import Choices, Frames, ServerFault, Turn

_BLOCKS = re.compile(
    r"<\|open\|>tools<\|sep\|>.*?<\|close\|>tools<\|sep\|>|<tool_call>.*?</tool_call>|<\|tool_calls_section_begin\|>.*?<\|tool_calls_section_end\|>",
    re.S,
)


def _choice_of(turn: Turn) -> str:
    return turn.request.tool_choice if turn.request is not None else "auto"


def _leak_section(_turn: Turn, frames: Frames) -> Frames:
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for frame in frames:
        if (entry := tool_delta(frame)) is not None:
            names[entry["index"]] = entry["function"].get("name", names.get(entry["index"], ""))
            arguments[entry["index"]] = arguments.get(entry["index"], "") + entry["function"]["arguments"]
        if finish(frame) is not None and names:
            calls = [Call(id="", name=name, arguments=(arguments[at],)) for at, name in names.items()]
            for token in tokenize(raw_section(calls)):
                yield content_frame(frame, token)
        yield frame


def _drop_calls_after_reasoning(turn: Turn, choice: DraftChoice) -> DraftChoice:
    return replace(choice, calls=(), finish="stop") if choice.calls and choice.reasoning else choice


def _stop_after_first_delta(_turn: Turn, frames: Frames) -> Frames:
    seen = False
    for frame in frames:
        if tool_delta(frame) is not None:
            if seen:
                continue
            seen = True
        yield frame


def _plain_names_only(_turn: Turn, choice: DraftChoice) -> DraftChoice:
    odd = [call for call in choice.calls if not re.fullmatch(r"\w+", call.name)]
    if not odd:
        return choice
    kept = tuple(call for call in choice.calls if call not in odd)
    left = replace(choice, calls=kept, finish=choice.finish if kept or choice.finish == "length" else "stop")
    return with_content(left, choice.text + raw_section(odd))


def _index_from_history(turn: Turn, frame: JsonObject) -> JsonObject:
    if (entry := tool_delta(frame)) is not None and turn.request is not None:
        entry["index"] += turn.request.past_calls
    return frame


def _drop_preamble(_turn: Turn, frames: Frames) -> Frames:
    held: list[JsonObject] = []
    calling = False
    for frame in frames:
        if delta(frame).get("content") and not calling:
            held.append(frame)
            continue
        if tool_delta(frame) is not None:
            calling = True
            held.clear()
        if finish(frame) is not None:
            yield from held
            held.clear()
        yield frame


def _foreign_id(_turn: Turn, call: Call) -> Call:
    return replace(call, id=f"chatcmpl-tool-{uuid.uuid4().hex}")


def _edit_entry(edit: Callable[[JsonObject], None]) -> Callable[[Turn, Frames], Frames]:
    def one(_turn: Turn, frame: JsonObject) -> JsonObject:
        if (entry := tool_delta(frame)) is not None:
            edit(entry)
        return frame

    return each_frame(one)


def _index_zero(entry: JsonObject) -> None:
    entry["index"] = 0


def _no_index(entry: JsonObject) -> None:
    del entry["index"]


def _repeat_name(_turn: Turn, frames: Frames) -> Frames:
    names: dict[int, str] = {}
    for frame in frames:
        if (entry := tool_delta(frame)) is not None:
            name = entry["function"].setdefault("name", names.get(entry["index"], ""))
            names[entry["index"]] = name
        yield frame


def _late_name(_turn: Turn, frames: Frames) -> Frames:
    waiting: dict[int, str] = {}
    for frame in frames:
        if (entry := tool_delta(frame)) is not None:
            function = entry["function"]
            if "name" in function:
                waiting[entry["index"]], function["name"] = function["name"], ""
            elif entry["index"] in waiting:
                function["name"] = waiting.pop(entry["index"])
        yield frame


def _stop_when_named(turn: Turn, choice: DraftChoice) -> DraftChoice:
    return replace(choice, finish="stop") if _choice_of(turn) == "named" and choice.finish == "tool_calls" else choice


def _stop_with_calls(_turn: Turn, choice: DraftChoice) -> DraftChoice:
    return replace(choice, finish="stop") if choice.finish == "tool_calls" else choice


def _always_stop(_turn: Turn, choice: DraftChoice) -> DraftChoice:
    return replace(choice, finish="stop")


def _required_ignored(turn: Turn, choice: DraftChoice) -> DraftChoice:
    if _choice_of(turn) != "required" or not choice.calls:
        return choice
    return with_content(replace(choice, calls=(), finish="tool_calls"), "I think no tool is needed for this.")


def _empty_calls_when_required(turn: Turn, body: JsonObject) -> JsonObject:
    if _choice_of(turn) == "required":
        for choice in body["choices"]:
            choice["message"].setdefault("tool_calls", [])
    return body


def _block_in_text(turn: Turn, choice: DraftChoice) -> DraftChoice:
    if _choice_of(turn) != "none" or turn.request is None or not turn.request.callable_tools:
        return choice
    call = Call(id="", name=turn.request.callable_tools[0].name, arguments=("{}",))
    return with_content(choice, choice.text + raw_section([call]))


def _strip_blocks(turn: Turn, choice: DraftChoice) -> DraftChoice:
    return with_content(choice, _BLOCKS.sub("", choice.text)) if _choice_of(turn) == "none" else choice


def _call_despite_none(turn: Turn, choice: DraftChoice) -> DraftChoice:
    if _choice_of(turn) != "none" or turn.request is None or not turn.request.callable_tools:
        return choice
    name = turn.request.callable_tools[0].name
    call = Call(id=f"{name}_{turn.request.past_calls}", name=name, arguments=("{}",))
    return replace(choice, content=(), calls=(call,), finish="tool_calls")


def _channel_in_name(_turn: Turn, call: Call) -> Call:
    return replace(call, name=f"{call.name}<|channel|>commentary")


def _leak_opener(_turn: Turn, frames: Frames) -> Frames:
    leaked = False
    for frame in frames:
        if tool_delta(frame) is not None and not leaked:
            leaked = True
            yield content_frame(frame, "<｜DSML｜")
            yield content_frame(frame, "function_calls>")
        yield frame


def _numbered_ids(_turn: Turn, frame: JsonObject) -> JsonObject:
    if (entry := tool_delta(frame)) is not None:
        entry["id"] = str(entry["index"]) if "id" in entry else ""
        entry["index"] = 0
    return frame


def _first_arguments_lost(_turn: Turn, choices: Choices) -> Choices:
    def one(choice: DraftChoice) -> DraftChoice:
        if len(choice.calls) < 2:
            return choice
        return replace(choice, calls=(replace(choice.calls[0], arguments=()), *choice.calls[1:]))

    return tuple(one(choice) for choice in choices)


def _calls_without_tools(turn: Turn, choice: DraftChoice) -> DraftChoice:
    if turn.has_tools or choice.finish != "stop":
        return choice
    return with_content(
        replace(choice, finish="tool_calls"),
        choice.text + "\n<tool_call>\n<function=search>\n</function>\n</tool_call>",
    )


def _empty_list_in_message(_turn: Turn, body: JsonObject) -> JsonObject:
    for choice in body["choices"]:
        choice["message"].setdefault("tool_calls", [])
    return body


def _empty_list_in_delta(_turn: Turn, frame: JsonObject) -> JsonObject:
    if "content" in delta(frame):
        delta(frame).setdefault("tool_calls", [])
    return frame


def _empty_arguments(_turn: Turn, call: Call) -> Call:
    return with_arguments(call, "{}")


FAULTS = (
    ServerFault(
        id="B01",
        group="b",
        summary="the raw tool section is echoed into content",
        mode="stream",
        areas=("tools", "streaming"),
        on_frames=_leak_section,
    ),
    ServerFault(
        id="B05",
        group="b",
        summary="streamed calls are lost after reasoning",
        mode="stream",
        areas=("tools", "streaming"),
        on_choices=each(_drop_calls_after_reasoning),
    ),
    ServerFault(
        id="B09",
        group="b",
        summary="tool deltas end after the first",
        mode="stream",
        areas=("tools", "streaming"),
        on_frames=_stop_after_first_delta,
    ),
    ServerFault(
        id="B11",
        group="b",
        summary="calls of functions with a hyphen stay in the text",
        mode="both",
        areas=("tools",),
        on_choices=each(_plain_names_only),
    ),
    ServerFault(
        id="B12",
        group="b",
        summary="the tool index starts at the number of past calls",
        mode="stream",
        areas=("tools", "streaming"),
        on_frames=each_frame(_index_from_history),
    ),
    ServerFault(
        id="B15",
        group="b",
        summary="text before the calls is lost",
        mode="stream",
        areas=("tools", "streaming"),
        on_frames=_drop_preamble,
    ),
    ServerFault(
        id="B17",
        group="b",
        summary="call ids have a foreign form",
        mode="both",
        areas=("tools", "tool-choice"),
        on_choices=each_call(_foreign_id),
    ),
    ServerFault(
        id="B19",
        group="b",
        summary="every tool delta has index 0",
        mode="stream",
        areas=("tools", "streaming"),
        on_frames=_edit_entry(_index_zero),
    ),
    ServerFault(
        id="B21",
        group="b",
        summary="tool deltas have no index",
        mode="stream",
        areas=("tools", "streaming"),
        on_frames=_edit_entry(_no_index),
    ),
    ServerFault(
        id="B22",
        group="b",
        summary="the name is repeated in every tool delta",
        mode="stream",
        areas=("tools", "streaming"),
        on_frames=_repeat_name,
    ),
    ServerFault(
        id="B23",
        group="b",
        summary="the first tool delta has an empty name",
        mode="stream",
        areas=("tools", "streaming"),
        on_frames=_late_name,
    ),
    ServerFault(
        id="B24",
        group="b",
        summary="finish is stop for a named tool choice",
        mode="stream",
        areas=("tools", "tool-choice"),
        on_choices=each(_stop_when_named),
    ),
    ServerFault(
        id="B25",
        group="b",
        summary="finish is stop though calls were streamed",
        mode="stream",
        areas=("tools", "streaming"),
        on_choices=each(_stop_with_calls),
    ),
    ServerFault(
        id="B26",
        group="b",
        summary="finish is always stop",
        mode="both",
        areas=("tools", "streaming"),
        on_choices=each(_always_stop),
    ),
    ServerFault(
        id="B27",
        group="b",
        summary="required is ignored, finish says tool_calls",
        mode="nonstream",
        areas=("tool-choice", "tools"),
        on_choices=each(_required_ignored),
        on_message=_empty_calls_when_required,
    ),
    ServerFault(
        id="B31",
        group="b",
        summary="tool_choice none gives a raw tool block as text",
        mode="both",
        areas=("tool-choice", "tools"),
        on_choices=each(_block_in_text),
    ),
    ServerFault(
        id="B32",
        group="b",
        summary="tool-shaped text is deleted under none",
        mode="nonstream",
        areas=("tool-choice", "tools"),
        on_choices=each(_strip_blocks),
    ),
    ServerFault(
        id="B33",
        group="b",
        summary="none is ignored, calls with {} come",
        mode="both",
        areas=("tool-choice", "tools"),
        on_choices=each(_call_despite_none),
    ),
    ServerFault(
        id="B36",
        group="b",
        summary="streamed arguments are {}",
        mode="stream",
        areas=("tools", "streaming"),
        on_choices=each_call(_empty_arguments),
    ),
    ServerFault(
        id="B52",
        group="b",
        summary="plain answers carry tool_calls []",
        mode="both",
        areas=("tools", "streaming"),
        on_message=_empty_list_in_message,
        on_frames=each_frame(_empty_list_in_delta),
    ),
    ServerFault(
        id="B54",
        group="b",
        summary="a channel marker is glued to the tool name",
        mode="both",
        areas=("tools",),
        on_choices=each_call(_channel_in_name),
    ),
    ServerFault(
        id="B55",
        group="b",
        summary="an opening DSML tag leaks, split over two chunks",
        mode="stream",
        areas=("tools", "streaming"),
        on_frames=_leak_opener,
    ),
    ServerFault(
        id="B57",
        group="b",
        summary="ids are plain numbers, all with index 0",
        mode="stream",
        areas=("tools", "streaming"),
        on_frames=each_frame(_numbered_ids),
    ),
    ServerFault(
        id="B58",
        group="b",
        summary="the first of two calls loses its arguments",
        mode="stream",
        areas=("tools", "streaming"),
        on_choices=_first_arguments_lost,
    ),
    ServerFault(
        id="B60",
        group="b",
        summary="finish tool_calls and tool markup without any tool",
        mode="nonstream",
        areas=("tools", "streaming"),
        on_choices=each(_calls_without_tools),
    ),
)
