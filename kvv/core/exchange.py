"""What came back: an exchange as it crossed the wire, and what was observed in it, nothing repaired."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kvv.core.request import Identity
from kvv.core.vocabulary import FaultKind, Role


@dataclass(slots=True)
class Frame:
    """One server-sent event, or the whole body of an answer that is no event stream (``event`` then is "body").

    ``data`` is the joined data field, undecoded; ``offset_ms`` counts from the moment the request was sent.
    Not frozen, and positional: some fifty thousand a second are made.
    """

    number: int
    offset_ms: float
    data: bytes
    event: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A transport fault. ``after_content`` says whether any body byte had arrived."""

    kind: FaultKind
    detail: str
    after_content: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Who really answered, as far as it says so."""

    provider: str | None = None
    system_fingerprint: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Milliseconds from the moment the request was sent. ``first_token_ms`` is the first non-empty increment."""

    first_byte_ms: float | None = None
    first_token_ms: float | None = None
    total_ms: float = 0.0
    increments: int = 0
    itl_p50_ms: float | None = None
    itl_p99_ms: float | None = None
    max_gap_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One attempt at one request, as it was: nothing repaired, nothing left out but what the limits cut.

    ``frames`` is complete when ``frames_kept`` is true; benchmark exchanges keep only objected frames.
    ``status`` is None when no answer's head arrived. ``id`` is the store's number, 0 before it is stored.
    """

    identity: Identity
    attempt: int
    role: Role
    started: str
    status: int | None
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = ""
    frames: tuple[Frame, ...] = ()
    frames_kept: bool = True
    frame_count: int = 0
    bytes_received: int = 0
    fault: Fault | None = None
    upstream: Upstream = Upstream()
    timing: Timing = Timing()
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call as sent: ``arguments`` is the joined text, never parsed or repaired; a field never sent is None."""

    index: int | None
    id: str | None
    name: str | None
    arguments: str
    type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """One usage object and where it stood: body, summary (tail frame), choice (end frame), chunk (a middle frame),
    header.
    """

    place: str
    frame: int
    raw: Mapping[str, Any]

    def count(self, name: str) -> int | None:
        """A top-level integer count, or None where it is absent or no integer."""
        value = self.raw.get(name)
        return value if value.__class__ is int else None

    def detail(self, group: str, name: str) -> int | None:
        """A count inside ``prompt_tokens_details`` or ``completion_tokens_details``."""
        inner = self.raw.get(group)
        value = inner.get(name) if isinstance(inner, dict) else None
        return value if value.__class__ is int else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One choice of a completion. ``answer`` is None when no content was ever sent (null included)."""

    index: int | None = None
    role: str | None = None
    answer: str | None = None
    reasoning: str | None = None
    reasoning_field: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    logprobs: int = 0
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """An error object, inside or outside a 200. ``envelope`` says whether it stood under ``error`` as an object."""

    message: str
    type: str | None = None
    code: str | int | None = None
    envelope: bool = True


class Shape(StrEnum):
    """What an answer's body turned out to be."""

    COMPLETION = "completion"
    ERROR = "error"
    OTHER_JSON = "other-json"
    NOT_JSON = "not-json"
    EMPTY = "empty"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What an exchange says, with nothing repaired: no default finish_reason, no invented index, calls in order of
    arrival.

    ``deviations`` are decoder remarks (kebab-case codes) about bytes that could not be placed.
    """

    shape: Shape
    choices: tuple[Choice, ...] = ()
    usage: tuple[UsageReport, ...] = ()
    error: ErrorBody | None = None
    done: bool = False
    id: str | None = None
    model: str | None = None
    deviations: tuple[str, ...] = ()

    @property
    def first(self) -> Choice:
        """The choice with index 0, else the first; an empty Choice where there is none."""
        for choice in self.choices:
            if choice.index == 0:
                return choice
        return self.choices[0] if self.choices else Choice()

    @property
    def answer(self) -> str:
        return self.first.answer or ""

    @property
    def reasoning(self) -> str:
        return self.first.reasoning or ""

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.first.tool_calls

    @property
    def finish_reason(self) -> str | None:
        return self.first.finish_reason

    def tokens(self, name: str) -> int | None:
        """A usage count from the most authoritative place: body or summary, then choice, then chunk."""
        for place in ("body", "summary", "choice", "chunk"):
            for report in reversed(self.usage):
                if report.place == place and report.count(name) is not None:
                    return report.count(name)
        return None

    def detail_tokens(self, group: str, name: str) -> int | None:
        for place in ("body", "summary", "choice", "chunk"):
            for report in reversed(self.usage):
                if report.place == place and report.detail(group, name) is not None:
                    return report.detail(group, name)
        return None
