"""Small edits that several faults share: of choices, of frames, of byte parts, and questions about requests."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from kvv.mockserver.config import JsonObject
from kvv.mockserver.content.completion import Call, DraftChoice
from kvv.mockserver.content.tokens import tokenize
from kvv.mockserver.faults.model import Choices, Frames, Turn
from kvv.mockserver.wire import HttpReply, Part

PARSER_TAGS = ("<|open|>", "<|sep|>", "<|close|>")


def each(edit: Callable[[Turn, DraftChoice], DraftChoice]) -> Callable[[Turn, Choices], Choices]:
    """An edit of one choice as a hook for all of them."""
    return lambda turn, choices: tuple(edit(turn, choice) for choice in choices)


def each_call(edit: Callable[[Turn, Call], Call]) -> Callable[[Turn, Choices], Choices]:
    """An edit of one call as a hook for all calls of all choices."""
    return each(lambda turn, choice: replace(choice, calls=tuple(edit(turn, call) for call in choice.calls)))


def with_content(choice: DraftChoice, text: str) -> DraftChoice:
    return replace(choice, content=tuple(tokenize(text)))


def with_arguments(call: Call, text: str) -> Call:
    return replace(call, arguments=tuple(tokenize(text)))


def each_frame(edit: Callable[[Turn, JsonObject], JsonObject | None]) -> Callable[[Turn, Frames], Frames]:
    """An edit of one frame as a hook; None drops the frame. The edit may change the frame in place: it is this answer's
    own.
    """

    def hook(turn: Turn, frames: Frames) -> Frames:
        for frame in frames:
            edited = edit(turn, frame)
            if edited is not None:
                yield edited

    return hook


def delta(frame: JsonObject) -> JsonObject:
    """The delta of a frame's only choice; empty for a frame without one."""
    choices = frame.get("choices")
    result: JsonObject = choices[0]["delta"] if choices else {}
    return result


def tool_delta(frame: JsonObject) -> JsonObject | None:
    """The tool call entry of a frame, if it carries one."""
    calls = delta(frame).get("tool_calls")
    return calls[0] if calls else None


def finish(frame: JsonObject) -> str | None:
    choices = frame.get("choices")
    reason: str | None = choices[0].get("finish_reason") if choices else None
    return reason


def reasoning_key(frame: JsonObject) -> str | None:
    """The name under which this frame carries reasoning, if it does."""
    return next((name for name in ("reasoning_content", "reasoning") if name in delta(frame)), None)


def content_frame(like: JsonObject, text: str) -> JsonObject:
    """A content frame with the head of another frame."""
    return {**like, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}


def map_parts(reply: HttpReply, edit: Callable[[bytes, int], Iterable[Part]]) -> HttpReply:
    """The reply with each run of bytes replaced; the edit gets its number from 0."""

    def parts() -> Iterator[Part]:
        number = 0
        for part in reply.parts:
            if isinstance(part, bytes):
                yield from edit(part, number)
                number += 1
            else:
                yield part

    return replace(reply, parts=parts())


def raw_section(calls: Iterable[Call]) -> str:
    """Tool calls as the model writes them before a parser reads them, in the markers of K3."""
    opened, sep, closed = PARSER_TAGS
    inner = "".join(
        f'{opened}call tool="{call.name}" index="{at}"{sep}{call.text}{closed}call{sep}'
        for at, call in enumerate(calls, 1)
    )
    return f"{opened}tools{sep}{inner}{closed}tools{sep}"


def body_images(body: JsonObject) -> int:
    """How many image parts the messages of a body hold."""
    messages = body.get("messages")
    total = 0
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            total += sum(1 for part in content if isinstance(part, dict) and part.get("type") == "image_url")
    return total


def tool_schemas(body: JsonObject) -> Iterator[tuple[str, Any]]:
    """The parameters of every tool of a body that is shaped like one, with the tool's name."""
    messages = body.get("messages")
    places = [body.get("tools")]
    places.extend(
        message.get("tools")
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict)
    )
    for tools in places:
        for tool in tools if isinstance(tools, list) else ():
            function = tool.get("function") if isinstance(tool, dict) else None
            if isinstance(function, dict) and isinstance(function.get("parameters"), dict):
                yield str(function.get("name")), function["parameters"]


def nodes(schema: Any) -> Iterator[JsonObject]:
    """Every object inside a JSON value."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def parsed_arguments(call: Call) -> Any:
    """The arguments as a value, or None when they are no JSON (a cut call)."""
    try:
        return json.loads(call.text)
    except ValueError:
        return None
