"""The conversation: roles, content parts, history tool calls and dynamic tools."""

import json
from typing import Any

from kvv.mockserver.config import JsonObject
from kvv.mockserver.errors import ApiError
from kvv.mockserver.validation.images import Image, image_from_url
from kvv.mockserver.validation.request import Message, PastCall, Role
from kvv.mockserver.validation.tools import read_tools
from kvv.mockserver.variant import ModelVariant

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def _bad(message: str, at: int) -> ApiError:
    return ApiError(f"messages[{at}]: {message}", param="messages")


def read_messages(value: Any, *, variant: ModelVariant, taken: set[str]) -> tuple[Message, ...]:
    """The validated messages. ``taken`` holds the names of the global tools, which dynamic ones must not repeat."""
    if not isinstance(value, list) or not value:
        raise ApiError("messages must be a list that is not empty", param="messages")
    names = set(taken)
    messages = []
    for at, entry in enumerate(value):
        message = _read_message(entry, at, variant, names)
        names.update(tool.name for tool in message.tools or ())
        messages.append(message)
    return tuple(messages)


def _read_message(entry: Any, at: int, variant: ModelVariant, names: set[str]) -> Message:
    if not isinstance(entry, dict):
        raise _bad("must be an object", at)
    role = _ROLES.get(entry["role"]) if isinstance(entry.get("role"), str) else None
    if role is None:
        raise _bad("role must be system, user, assistant or tool", at)
    if variant.dynamic_tools and entry.get("tools") is not None:
        return _dynamic(entry, at, role, variant, names)
    match role:
        case "system":
            return Message(role=role, parts=_parts(entry, at, images=False))
        case "user":
            return Message(role=role, parts=_parts(entry, at, images=True))
        case "tool":
            tool_call_id = entry.get("tool_call_id")
            if not isinstance(tool_call_id, str) or not tool_call_id:
                raise _bad("a tool message needs a tool_call_id", at)
            return Message(role=role, parts=_parts(entry, at, images=True), tool_call_id=tool_call_id)
    return _assistant(entry, at)


def _dynamic(entry: JsonObject, at: int, role: Role, variant: ModelVariant, names: set[str]) -> Message:
    if role != "system":
        raise _bad("only a system message may declare tools", at)
    if entry.get("content") not in (None, "", []):
        raise _bad("content cannot be used with tools", at)
    tools = read_tools(entry["tools"], param="messages.tools", variant=variant, taken=names, dynamic=True)
    return Message(role=role, tools=tools)


def _assistant(entry: JsonObject, at: int) -> Message:
    calls = tuple(_past_call(call, at) for call in _optional_list(entry, "tool_calls", at))
    reasoning = entry.get("reasoning_content", entry.get("reasoning"))
    if reasoning is not None and not isinstance(reasoning, str):
        raise _bad("reasoning_content must be a string", at)
    partial = entry.get("partial")
    if partial is not None and not isinstance(partial, bool):
        raise _bad("partial must be a boolean", at)
    if entry.get("content") is None:
        if not calls and not reasoning:
            raise _bad("an assistant message needs content or tool_calls", at)
        parts: tuple[str | Image, ...] = ()
    else:
        parts = _parts(entry, at, images=False)
    return Message(role="assistant", parts=parts, reasoning=reasoning or "", calls=calls, partial=bool(partial))


def _optional_list(entry: JsonObject, name: str, at: int) -> list[Any]:
    value = entry.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _bad(f"{name} must be a list", at)
    return value


def _past_call(call: Any, at: int) -> PastCall:
    match call:
        case {"id": str(name_id), "function": {"name": str(name), "arguments": str(arguments)}} if (
            name_id and call.get("type", "function") == "function"
        ):
            return PastCall(id=name_id, name=name, arguments=arguments)
        case {"id": str(name_id), "function": {"name": str(name), "arguments": dict(arguments)}} if name_id:
            return PastCall(id=name_id, name=name, arguments=json.dumps(arguments, ensure_ascii=False))
    raise _bad("a tool call needs id, function.name and function.arguments", at)


def _parts(entry: JsonObject, at: int, *, images: bool) -> tuple[str | Image, ...]:
    content = entry.get("content")
    if isinstance(content, str):
        return (content,)
    if not isinstance(content, list) or not content:
        raise _bad("content must be a string or a list of parts", at)
    return tuple(_part(part, at, images) for part in content)


def _part(part: Any, at: int, images: bool) -> str | Image:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "image_url", "image_url": str(url)}:
            if not images:
                raise _bad("images are only allowed in user and tool messages", at)
            return image_from_url(url)
        case {"type": str(kind)}:
            raise _bad(f"content part {kind[:40]!r} is malformed or not supported", at)
    raise _bad("a content part needs a type", at)
