"""How many tokens a prompt has, and how many of them a prefix cache already holds.

The constant overheads are those of the published K3 template; texts are counted by ``tokens``. The
generation stub has ten tokens of which the hosted API counts seven; engines count the other three too (``pending``).
"""

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any

from kvv.mockserver.canonical import compact
from kvv.mockserver.content.tokens import count
from kvv.mockserver.validation.images import PATCH, Image
from kvv.mockserver.validation.request import ChatRequest, Message, PastCall
from kvv.mockserver.variant import ModelVariant

MESSAGE = 11
ASSISTANT = 17
THINK_BLOCK = 6
EFFORT = {"low": 68, "high": 68, "max": 67}
CHOICE_NOTE = {"required": 36, "named": 36, "none": 38}
JSON_OBJECT = 47
JSON_SCHEMA = 60
GLOBAL_TOOLS = 35
DYNAMIC_TOOLS = 56
TOOLS_ELEMENT = 6
GENERATION = 7
# Parts of the published sums: call get_weather #1 is 16, argument city/string 14, tool message get_weather #1 21.
CALL = 16 - count("get_weather") - count("1")
ARGUMENT = 14 - count("city") - count("string")
TOOL_MESSAGE = 21 - count("get_weather") - count("1")
CACHE_BLOCK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of the prompt that is cached or not as a whole; ``key`` stands for its exact text."""

    key: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """How the template treats what has no fixed reading; the defaults are the correct ones, faults change them."""

    image_patch: int = PATCH
    image_scale: float = 1.0
    extra_tokens: int = 0
    history_ids: bool = False
    empty_as_parts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A rendered prompt: its segments in order and the tokens that are counted."""

    segments: tuple[Segment, ...]

    @property
    def tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)


def render_prompt(request: ChatRequest, variant: ModelVariant, rendering: Rendering | None = None) -> Prompt:
    """The prompt of a request in the template's order: tools, effort, messages, notes, generation stub."""
    how = rendering or Rendering()
    segments: list[Segment] = []
    if request.tools:
        segments.append(_tools(request.tools, GLOBAL_TOOLS))
    if request.thinking and request.effort is not None:
        segments.append(Segment(key=f"effort {request.effort}", tokens=EFFORT[request.effort]))
    for message in request.messages:
        segments.extend(_message(message, request, how))
    if note := CHOICE_NOTE.get(request.tool_choice):
        segments.append(Segment(key=f"choice {request.tool_choice}", tokens=note))
    segments.extend(_format(request))
    if not request.messages[-1].partial:
        segments.append(Segment(key=f"generate {request.thinking}", tokens=GENERATION + variant.pending))
    if how.extra_tokens:
        segments.insert(0, Segment(key="extra", tokens=how.extra_tokens))
    return Prompt(segments=tuple(segments))


def _tools(tools: tuple[Any, ...], overhead: int) -> Segment:
    text = compact([tool.raw for tool in tools]) + "\n"
    return Segment(key=f"tools {text}", tokens=overhead + count(text))


def _format(request: ChatRequest) -> list[Segment]:
    match request.response_format.kind:
        case "json_object":
            return [Segment(key="json_object", tokens=JSON_OBJECT)]
        case "json_schema":
            text = compact(request.response_format.schema) + "\n"
            return [Segment(key=f"schema {text}", tokens=JSON_SCHEMA + count(text))]
    return []


def _message(message: Message, request: ChatRequest, how: Rendering) -> list[Segment]:
    if message.tools is not None:
        return [_tools(message.tools, DYNAMIC_TOOLS)]
    overhead = MESSAGE
    match message.role:
        case "assistant":
            return [Segment(key=f"assistant {message!r}", tokens=_assistant(message, request.thinking, how))]
        case "tool":
            overhead = _tool_message(message, request, how)
    parts = message.parts
    sizes = [
        part.tokens(how.image_patch, how.image_scale) if isinstance(part, Image) else _text(part, how) for part in parts
    ]
    head = Segment(key=f"{message.role} {message.tool_call_id}", tokens=overhead)
    return [
        head,
        *(
            Segment(key=part.digest if isinstance(part, Image) else part, tokens=size)
            for part, size in zip(parts, sizes, strict=True)
        ),
    ]


def _text(text: str, how: Rendering) -> int:
    return count("[{'type': 'text', 'text': ''}]") if how.empty_as_parts and not text else count(text)


def _assistant(message: Message, thinking: bool, how: Rendering) -> int:
    # content null or absent renders nothing, whatever becomes of an empty text
    total = ASSISTANT + (_text(message.text, how) if message.parts else 0)
    if thinking:
        total += THINK_BLOCK + (count(message.reasoning) if message.reasoning.strip() else 0)
    if message.calls:
        total += TOOLS_ELEMENT + sum(_call(call, at, how) for at, call in enumerate(message.calls, 1))
    return total


def _call(call: PastCall, at: int, how: Rendering) -> int:
    total = CALL + count(call.name) + count(str(at)) + (count(call.id) if how.history_ids else 0)
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return total + ARGUMENT + count("json") + count(call.arguments)
    return total + sum(_argument(name, value) for name, value in arguments.items())


def _argument(name: str, value: Any) -> int:
    kinds = {
        bool: "boolean",
        type(None): "null",
        int: "number",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
    }
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ARGUMENT + count(name) + count(kinds[type(value)]) + count(text)


def _tool_message(message: Message, request: ChatRequest, how: Rendering) -> int:
    for past in request.messages:
        for at, call in enumerate(past.calls, 1):
            if call.id == message.tool_call_id:
                return TOOL_MESSAGE + count(call.name) + count(str(at)) + (count(call.id) if how.history_ids else 0)
    return TOOL_MESSAGE + count(message.tool_call_id)


class PrefixCache:
    """Remembers the prefixes of earlier prompts, by segment. A hit is counted in whole blocks of 256 tokens."""

    def __init__(self, capacity: int = 50_000) -> None:
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._capacity = capacity
        self._lock = Lock()

    def look_up_and_store(self, prompt: Prompt) -> int:
        """Tokens of this prompt that an earlier one had at its front; afterwards the prompt is known."""
        prefixes = []
        state = hashlib.sha256()
        for segment in prompt.segments:
            state.update(segment.key.encode("utf-8", "surrogatepass") + b"\0")
            prefixes.append(state.digest())
        with self._lock:
            cached = self._match(prompt, prefixes)
            for prefix in prefixes:
                self._known[prefix] = None
                self._known.move_to_end(prefix)
            while len(self._known) > self._capacity:
                self._known.popitem(last=False)
        return min(cached, prompt.tokens - 1) // CACHE_BLOCK * CACHE_BLOCK

    def _match(self, prompt: Prompt, prefixes: list[bytes]) -> int:
        total = 0
        for segment, prefix in zip(prompt.segments, prefixes, strict=True):
            if prefix not in self._known:
                break
            total += segment.tokens
        return total
