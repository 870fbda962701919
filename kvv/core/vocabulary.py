"""Closed vocabularies: outcomes, levels, areas, roles, surfaces, faults."""

from __future__ import annotations

from enum import StrEnum


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


#: the strongest first
STRENGTH = tuple(Level)


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


#: a key that nobody has been given; in no form that a service could take for a leaked one
WRONG_KEY = "kvv-no-such-key"


class Credential(StrEnum):
    """The key a request carries: the run's own, none, or one that nobody has been given."""

    OWN = "own"
    NONE = "none"
    WRONG = "wrong"
