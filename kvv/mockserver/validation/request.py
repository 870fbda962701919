"""A validated request. Everything after validation works on these types and trusts them."""

from dataclasses import dataclass
from typing import Literal

from kvv.mockserver.config import JsonObject
from kvv.mockserver.validation.images import Image

Role = Literal["system", "user", "assistant", "tool"]
Effort = Literal["low", "high", "max"]
ChoiceMode = Literal["auto", "none", "required", "named"]
FormatKind = Literal["text", "json_object", "json_schema"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A declared function. ``raw`` is the declaration as sent; ``parameters`` its JSON schema ({} if none was sent)."""

    name: str
    parameters: JsonObject
    raw: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCall:
    """A tool call in the history; ``arguments`` is the string as the client sent it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the conversation. ``tools`` is not None exactly for a dynamic-tools message."""

    role: Role
    parts: tuple[str | Image, ...] = ()
    reasoning: str = ""
    calls: tuple[PastCall, ...] = ()
    tool_call_id: str = ""
    tools: tuple[Tool, ...] | None = None
    partial: bool = False

    @property
    def text(self) -> str:
        return "\n".join(part for part in self.parts if isinstance(part, str))

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(part for part in self.parts if isinstance(part, Image))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFormat:
    kind: FormatKind = "text"
    schema: JsonObject | None = None
    strict: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A chat completion as it will be carried out: defaults are filled in, aliases resolved."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    stream: bool = False
    include_usage: bool = False
    include_internal_content: bool = False
    continuous_usage: bool = False
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    temperature: float = 1.0
    n: int = 1
    seed: int | None = None
    tool_choice: ChoiceMode = "auto"
    tool_name: str | None = None
    parallel: bool = True
    thinking: bool = True
    effort: Effort | None = None
    response_format: ResponseFormat = ResponseFormat()
    logprobs: bool = False
    top_logprobs: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """Global tools, then those that the messages declare, in order."""
        dynamic = [tool for message in self.messages for tool in message.tools or ()]
        return (*self.tools, *dynamic)

    @property
    def last_user(self) -> Message | None:
        return next((message for message in reversed(self.messages) if message.role == "user"), None)

    @property
    def past_calls(self) -> int:
        """How many tool calls the history holds; the next call's global index."""
        return sum(len(message.calls) for message in self.messages)

    @property
    def turn(self) -> int:
        """The number of the assistant turn that this request asks for, from 1."""
        return 1 + sum(1 for message in self.messages if message.role == "assistant" and not message.partial)
