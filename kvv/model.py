"""The vocabulary of the project: what is planned, sent, received, observed, judged and reported.

Frozen, slotted, keyword-only dataclasses and closed enumerations; nothing here does I/O. The flow is

    Case -> Request -> Exchange -> Observation -> Verdict -> Stat -> Gate
                        frames  -> Finding  (on every exchange)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """What one case came to. INCONCLUSIVE is the network's fault, FAIL the vendor's, ERROR ours."""

    PASS = "pass"  # noqa: S105 a verdict, no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    SKIP = "skip"
    ERROR = "error"


class Level(StrEnum):
    MUST = "must"
    SHOULD = "should"
    MAY = "may"


class Area(StrEnum):
    """The closed vocabulary of report areas."""

    DECODING = "decoding"
    TOOLS = "tools"
    TOOL_CHOICE = "tool-choice"
    DYNAMIC_TOOLS = "dynamic-tools"
    STREAMING = "streaming"
    REASONING = "reasoning"
    RESPONSE_FORMAT = "response-format"
    USAGE = "usage"
    VISION = "vision"
    LONG_CONTEXT = "long-context"
    ERRORS = "errors"
    DEGRADATION = "degradation"
    ACCURACY = "accuracy"
    AVAILABILITY = "availability"
    LATENCY = "latency"


class FindingKind(StrEnum):
    BREAKS_CLIENTS = "breaks clients"
    DIFFERS = "differs from the reference"


class Role(StrEnum):
    """Which endpoint a request goes to; each role has its own URL, key and limits."""

    TARGET = "target"
    JUDGE = "judge"
    REFERENCE = "reference"


class Surface(StrEnum):
    VENDOR = "vendor"
    ENGINE = "engine"
    OFFICIAL = "official"


class FaultKind(StrEnum):
    """What went wrong below the level of an HTTP answer."""

    CONNECT = "connect"
    DNS = "dns"
    TLS = "tls"
    FIRST_BYTE_TIMEOUT = "first-byte-timeout"
    IDLE_TIMEOUT = "idle-timeout"
    TOTAL_TIMEOUT = "total-timeout"
    RESET = "reset"
    CUT = "cut"
    PROTOCOL = "protocol"
    TOO_LARGE = "too-large"
    BAD_ENCODING = "bad-encoding"
    CANCELLED = "cancelled"


# --- what is asked -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One sample of one question: the unit that gets a verdict.

    ``id`` is a slug path that never changes meaning (``params/temperature/reject-1.1``); ``sample`` counts
    repeats of the same question from 0; ``cluster`` names what makes samples dependent (problem,
    conversation, repository). ``inputs`` is whatever the suite's own functions need, JSON-like and picklable.
    """

    id: str
    suite: str
    area: Area
    level: Level
    requirement: str
    source: str
    since: str
    inputs: Mapping[str, Any]
    risk: bool = False
    cluster: str = ""
    sample: int = 0

    @property
    def key(self) -> str:
        return f"{self.id}#{self.sample}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """JSON text that was serialised before, kept as one shared object through encoding, sending and storing.

    Stands for one value, or, with ``splice``, for the comma-joined items of a list, in the place in a list
    where it stands: a million-token history is serialised once and shared by its twenty questions.
    """

    data: bytes
    digest: str
    splice: bool = False

    @staticmethod
    def of(data: bytes, *, splice: bool = False) -> Fragment:
        return Fragment(data=data, digest=hashlib.sha256(data).hexdigest(), splice=splice)


class PictureForm(StrEnum):
    """How a picture's bytes are sent: as the data set has them, or re-encoded as KVV does (JPEG with Pillow's defaults)."""

    AS_IS = "as-is"
    KVV_JPEG = "kvv-jpeg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture of a data set; in a request it is the ``url`` of an ``image_url`` part and stands for a base64 data URL.

    Named by the SHA-256 of its bytes (hex): the data room knows where they lie, and reads and encodes them only when the
    request is sent. ``size`` is in bytes, ``width`` and ``height`` in pixels, ``where`` names file, row and column for messages.
    """

    digest: str
    size: int
    media: str
    width: int
    height: int
    where: str
    form: PictureForm = PictureForm.AS_IS

    @property
    def tokens(self) -> int:
        """An estimate for limits and costs: one token for every 28 x 28 pixels. The real model's formula is not public (contract.md 2.7)."""
        return max(1, -(-self.width // 28)) * max(1, -(-self.height // 28))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds; None takes the run's own value."""

    connect: float | None = None
    first_byte: float | None = None
    idle: float | None = None


class Credential(StrEnum):
    """The key a request carries: the run's own, none, or one that nobody has been given."""

    OWN = "own"
    NONE = "none"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request. ``body`` is a JSON-like mapping (``Fragment`` allowed anywhere in it, ``Picture`` as an
    ``image_url.url``) or, for malformed bodies, the raw bytes. ``purpose`` tells repeats apart: probe, control, confirm, liveness, judge...

    A control may be answered by an identical control of the last minute instead of being sent again.
    ``expect_prompt_tokens`` is the planner's estimate, used for limits and time-outs. ``credential``: what stands where the key belongs.
    """

    body: Mapping[str, Any] | bytes
    stream: bool = False
    role: Role = Role.TARGET
    purpose: str = "probe"
    method: str = "POST"
    path: str = "/chat/completions"
    timeouts: Timeouts = field(default_factory=Timeouts)
    expect_prompt_tokens: int = 0
    credential: Credential = Credential.OWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Names one request of a run for ever: controls and repeats may send identical bodies on purpose."""

    case: str
    sample: int
    step: int
    ask: int
    purpose: str

    @property
    def key(self) -> str:
        return f"{self.case}#{self.sample}/{self.step}.{self.ask}.{self.purpose}"


# --- what came back ----------------------------------------------------------------------------


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
    """One usage object and where it stood: body, summary (tail frame), choice (end frame), chunk (a middle frame), header."""

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
    """What an exchange says, with nothing repaired: no default finish_reason, no invented index, calls in order of arrival.

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


# --- what it means -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Points at the bytes: the exchange's identity key, the frame's number (None: the whole answer), an excerpt of at most 400 characters."""

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
class Stat:
    """One report row. ``estimate`` is None when nothing was concluded; worst and best case count the inconclusive as wrong and as right."""

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


# --- sans-IO steps of a suite --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command for the sandbox. ``timeout_s`` in seconds, ``output_limit`` in characters, half from the output's beginning, half from its end."""

    argv: tuple[str, ...]
    stdin: str = ""
    timeout_s: float = 60.0
    output_limit: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Send these requests concurrently."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exec:
    """Run this command in the case's sandbox. ``tree`` names its work tree: another name than before ends that tree and makes a new one."""

    command: Command
    tree: str = "work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The last attempt at one request, decoded, with what the passive rules said of it."""

    request: Request
    exchange: Exchange
    observation: Observation
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """How a command ended: ``exit_code`` is None after a time-out. Standard output and error are one text, ``elided`` characters left out
    of its middle. ``killed`` names the bound that ended it (time, memory, disk); ``emulated``: on another processor's instructions."""

    exit_code: int | None
    output: str
    timed_out: bool = False
    seconds: float = 0.0
    elided: int = 0
    killed: str = ""
    emulated: bool = False


Step = Ask | Exec | Done
Reply = tuple[Answered, ...] | Executed
History = Sequence[Reply]
