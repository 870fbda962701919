"""What it means: findings and verdicts, and the rows and gates that are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvv.core.vocabulary import Area, FindingKind, Level, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Points at the bytes: the exchange's identity key, the frame's number (None: the whole answer), an excerpt of at
    most 400 characters.
    """

    exchange: str
    frame: int | None = None
    excerpt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A passive rule's objection to one exchange. ``causes`` are ids of the fault catalogue known to look like this."""

    rule: str
    area: Area
    level: Level
    kind: FindingKind
    message: str
    frame: int | None = None
    excerpt: str = ""
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one case. ``values`` feed the suite's metrics; ``facts`` are JSON-like and shown as they are;
    ``reason`` is a kebab-case code that never changes meaning, empty for a plain pass."""

    case: str
    sample: int
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    scorer: str = "1"
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceValue:
    """What a Stat is compared with. ``kind``: per-case, published-mean, interleaved, server-count."""

    value: float
    n: int
    kind: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimResult:
    """What one of a suite's planned looks showed (early stopping): look ``number`` of ``of``, after ``asked`` of
    ``planned`` samples.

    ``bound`` is O'Brien and Fleming's for ``z``, the difference from -margin in standard errors with the open samples
    counted against it (None where there is no standard error); ``interval`` holds the true difference with
    ``confidence``, however many of the looks were taken. ``stopped``: nothing was asked after this look.
    """

    number: int
    of: int
    asked: int
    planned: int
    stopped: bool
    bound: float
    z: float | None
    confidence: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """One report row. ``estimate`` is None when nothing was concluded; worst and best case count the inconclusive as
    wrong and as right.
    """

    suite: str
    metric: str
    primary: bool
    estimate: float | None
    interval: tuple[float, float] | None
    n_planned: int
    n_concluded: int
    n_inconclusive: int
    n_truncated: int
    worst_case: float | None
    best_case: float | None
    kvv_value: float | None = None
    reference: ReferenceValue | None = None
    margin: float | None = None
    verdict: Outcome | None = None
    look: InterimResult | None = None
    breakdown: Mapping[str, Any] = field(default_factory=dict)
    comparability: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A decision. ``degraded``: a real but tolerable loss."""

    id: str
    area: Area
    level: Level
    decision: Outcome
    reason: str = ""
    method: str = ""
    margin: float | None = None
    degraded: bool = False
