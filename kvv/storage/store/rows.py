"""What the store hands out beside the core types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from kvv.core import Area, Evidence, Exchange, FaultKind, Finding, FindingKind, Level, Observation, Request
from kvv.protocol.classify import Assessment, Classification


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExchange:
    """One attempt with everything kept of it. ``parts`` are the sent body's bytes, large ones shared; ``restart``
    counts the beginnings of its sample from 0; ``cost`` in US dollars, None where no price was known."""

    exchange: Exchange
    request: Request
    parts: tuple[bytes, ...]
    observation: Observation
    findings: tuple[Finding, ...]
    standing: Classification
    restart: int
    cost: float | None

    @property
    def body(self) -> bytes:
        """What was sent, byte for byte."""
        return b"".join(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFindings:
    """All objections of one rule. ``exchanges`` counts exchanges, ``streamed`` those that streamed, ``count``
    objections; ``message`` and ``causes`` are the first one's. ``suites`` counts exchanges by suite, "" for probes of
    no case.
    """

    rule: str
    area: Area
    level: Level
    kind: FindingKind
    exchanges: int
    count: int
    message: str
    causes: tuple[str, ...]
    examples: tuple[Evidence, ...]
    suites: Mapping[str, int]
    streamed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTraffic:
    """A sample's exchanges with one role, all attempts together; ``first_token_ms`` is that of the first answer."""

    total_ms: float
    first_token_ms: float | None
    prompt_tokens: int
    completion_tokens: int
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingSample:
    """One answered exchange. ``tokens_per_s``: completion tokens after the first, over the time after the first; None
    where the answer was not streamed or had fewer than two tokens. ``attempt`` counts from 1."""

    case: str
    sample: int
    stream: bool
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    first_token_ms: float | None
    itl_p50_ms: float | None
    tokens_per_s: float | None
    total_ms: float | None
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRequest:
    """A request whose first attempt brought no whole answer. ``prompt_tokens`` are those of a later attempt, or of
    another sample of the same opening question; None where none was answered. ``fault`` is None where an HTTP answer
    came."""

    case: str
    stream: bool
    prompt_tokens: int | None
    standing: Classification
    fault: FaultKind | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAttempt:
    """One attempt without what it says. ``request`` is the identity's key with the beginning of its sample."""

    number: int
    request: str
    case: str
    purpose: str
    stream: bool
    standing: Classification
    total_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHead:
    """When an attempt started (UTC, ISO 8601), the features of its request as far as they were kept, and what it
    amounts to.
    """

    started: str
    features: frozenset[str]
    assessment: Assessment
    fault: FaultKind | None
    status: int | None


class RoleTraffic(TypedDict):
    """What one role's endpoint was asked. ``requests`` are identities, ``attempts`` what was sent for
    them; ``retried`` requests took more than one attempt; ``first_try_success`` requests were answered, or refused in
    due form, at the first. ``status`` counts attempts by HTTP status, "none" where no answer's head arrived. ``cost``
    in US dollars, None where no price was known."""

    requests: int
    attempts: int
    retried: int
    first_try_success: int
    status: dict[str, int]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: float | None


class StoredTraffic(RoleTraffic):
    """The sums over all roles, as they stand in report.json, and each role's own under ``roles``."""

    roles: dict[str, RoleTraffic]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """``at`` is UTC, ISO 8601."""

    at: str
    kind: str
    data: Mapping[str, Any]
