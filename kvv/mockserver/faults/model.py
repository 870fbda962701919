"""What a fault is: hooks into a correct exchange, at the level where the real server went wrong.

The engine calls the hooks in this order: ``on_body`` (the parsed request, before validation), ``on_request`` (after
it), ``on_rendering`` (how the template treats the prompt), ``on_right`` (whether the answer key answers rightly, or a
picture is read rightly), ``on_draft`` (what the model says, before limits; usage follows), ``on_usage``, ``on_choices``
(what the parser and the gateway make of it; usage no longer follows), then ``on_message`` or ``on_frames`` (JSON), and
``on_reply`` (status, headers, bytes). ``on_error`` sees refused requests. A hook may raise ``ApiError`` or ``Respond``.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from kvv.mockserver.config import JsonObject, MockConfig
from kvv.mockserver.content.completion import DraftChoice, Usage
from kvv.mockserver.content.compose import Draft
from kvv.mockserver.content.prompt import Rendering
from kvv.mockserver.errors import ApiError
from kvv.mockserver.validation.request import ChatRequest
from kvv.mockserver.variant import ModelVariant
from kvv.mockserver.wire import HttpReply

Mode = Literal["stream", "nonstream", "both"]
Area = Literal[
    "decoding",
    "tools",
    "tool-choice",
    "dynamic-tools",
    "streaming",
    "reasoning",
    "response-format",
    "usage",
    "vision",
    "long-context",
    "errors",
    "degradation",
    "accuracy",
    "availability",
    "latency",
]
Frames = Iterator[JsonObject]
Choices = tuple[DraftChoice, ...]


class Respond(Exception):
    """Ends the exchange with this reply, whatever the request was."""

    def __init__(self, reply: HttpReply) -> None:
        super().__init__(reply.status)
        self.reply = reply


@dataclass(slots=True, kw_only=True)
class Turn:
    """One exchange as a fault sees it. ``ordinal`` counts requests from 0, ``active`` those in flight with this one.

    ``memory`` belongs to one server and lives over its requests; ``cached`` is the prefix-cache hit in tokens and
    ``client`` names the connection.
    """

    config: MockConfig
    variant: ModelVariant
    ordinal: int
    active: int
    body: JsonObject
    memory: dict[str, Any] = field(default_factory=dict)
    request: ChatRequest | None = None
    usage: Usage | None = None
    ask: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    client: str = ""

    @property
    def streams(self) -> bool:
        return self.body.get("stream") is True

    @property
    def has_tools(self) -> bool:
        messages = self.body.get("messages")
        dynamic = isinstance(messages, list) and any(
            isinstance(message, dict) and message.get("tools") for message in messages
        )
        return bool(self.body.get("tools")) or dynamic

    @property
    def number(self) -> int:
        """The number of the assistant turn that is asked for, from 1."""
        messages = self.body.get("messages")
        return (
            1 + sum(1 for message in messages if isinstance(message, dict) and message.get("role") == "assistant")
            if isinstance(messages, list)
            else 1
        )

    def chance(self, label: str, probability: float) -> bool:
        """A draw that depends on the seed, the label and the request's ordinal only."""
        digest = hashlib.sha256(f"{self.config.seed}\0{label}\0{self.ordinal}".encode()).digest()
        return int.from_bytes(digest[:7], "big") / 2**56 < probability


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFault:
    """One fault of the catalogue (or a quirk). ``areas`` names where a verifier should see it, the likeliest first.

    ``dwell_s`` keeps every request in flight for at least this long (seconds), for faults that need neighbours: answers
    that are made at once would never overlap.
    """

    id: str
    group: str
    summary: str
    mode: Mode
    areas: tuple[Area, ...]
    dwell_s: float = 0.0
    on_body: Callable[[Turn, JsonObject], JsonObject] | None = None
    on_request: Callable[[Turn, ChatRequest], ChatRequest] | None = None
    on_rendering: Callable[[Turn, Rendering], Rendering] | None = None
    on_right: Callable[[Turn, bool], bool] | None = None
    on_draft: Callable[[Turn, Draft, int], Draft] | None = None
    on_usage: Callable[[Turn, Usage], Usage] | None = None
    on_choices: Callable[[Turn, Choices], Choices] | None = None
    on_message: Callable[[Turn, JsonObject], JsonObject] | None = None
    on_frames: Callable[[Turn, Frames], Frames] | None = None
    on_error: Callable[[Turn, ApiError], ApiError | HttpReply] | None = None
    on_reply: Callable[[Turn, HttpReply], HttpReply] | None = None
