"""What the scheduler is given to do, whom it tells, and why it stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kvv.cases.suite import Suite
from kvv.core import Answered, Case, Identity, Reply, Verdict
from kvv.protocol.reader import Received


class Observer(Protocol):
    """What the progress display wants to know."""

    def concluded(self, case: Case, verdict: Verdict) -> None: ...
    def exchanged(self, received: Received, limit: int) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(slots=True, kw_only=True)
class Work:
    """One sample to conclude. ``history`` and ``attempts`` (by identity key) come from a stored run that is resumed."""

    suite: Suite
    case: Case
    keep_frames: bool
    history: list[Reply] = field(default_factory=list)
    attempts: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Control:
    """An answered control; ``at`` is when, on the monotonic clock, in seconds."""

    identity: Identity
    answered: Answered
    at: float


class Stopped(Exception):
    """The run is stopping: leave this case unconcluded, for `kvv resume`."""


@dataclass(slots=True, kw_only=True)
class Stop:
    """Why the run ended early; ``reason`` is a stable code, ``sentence`` is for people."""

    reason: str = ""
    sentence: str = ""

    def __bool__(self) -> bool:
        return bool(self.reason)
