"""What of a request may decide how an endpoint treats it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvv.core import Picture, Request

STREAMED, WHOLE = "streamed", "whole"
TOOLS, IMAGES, LONG, INVALID = "tools", "images", "long-prompt", "invalid"
#: prompts of so many tokens are long
LONG_TOKENS = 8_000
#: fields that every request has, or that say again how it is answered
_COMMON = frozenset({"model", "messages", "stream", "stream_options"})
#: fields of which the value is part of the feature; any other may be a text of the user's own
_VALUED = frozenset(
    {"tool_choice", "parallel_tool_calls", "response_format", "thinking", "enable_thinking", "reasoning_effort"}
)
_LONGEST = 40


def features_of(request: Request) -> frozenset[str]:
    """Streamed or whole, with images, and the fields of the body; of a field whose value is one of few, the value
    too (``tool_choice=required``, ``thinking.type=disabled``).
    """
    found = {STREAMED if request.stream else WHOLE}
    if isinstance(request.body, Mapping):
        found.update(_fields(request.body))
        if any(_shows(message) for message in _listed(request.body.get("messages"))):
            found.add(IMAGES)
    return frozenset(found)


def is_long(request: Request, size: int) -> bool:
    """Whether the prompt is long, by the planner's estimate, else by the body's ``size`` in bytes, of which a picture's
    say nothing.
    """
    tokens = request.expect_prompt_tokens or (0 if IMAGES in features_of(request) else size // 4)
    return tokens >= LONG_TOKENS


def _fields(body: Mapping[str, Any]) -> Iterator[str]:
    for name, value in body.items():
        if name in _COMMON or len(name) > _LONGEST:
            continue
        yield name
        kind = value.get("type") if isinstance(value, Mapping) else value
        if name in _VALUED and isinstance(kind, (str, bool)) and len(str(kind)) <= _LONGEST:
            yield f"{name}{'.type' if isinstance(value, Mapping) else ''}={str(kind).lower()}"


def _shows(message: object) -> bool:
    """A message with a picture in it; a fragment holds text."""
    content = message.get("content") if isinstance(message, Mapping) else None
    return any(isinstance(part, Picture) or _kind(part) == "image_url" for part in _listed(content))


def _kind(part: object) -> object:
    return part.get("type") if isinstance(part, Mapping) else None


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, (list, tuple)) else ()
