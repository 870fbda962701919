"""What is asked: a case, and the requests that are made of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kvv.core.vocabulary import Area, Credential, Level, Role


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
    """How a picture's bytes are sent: as the data set has them, or re-encoded as KVV does (JPEG with Pillow's
    defaults).
    """

    AS_IS = "as-is"
    KVV_JPEG = "kvv-jpeg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture of a data set; in a request it is the ``url`` of an ``image_url`` part and stands for a base64 data
    URL.

    Named by the SHA-256 of its bytes (hex): the data room knows where they lie, and reads and encodes them only when
    the request is sent. ``size`` is in bytes, ``width`` and ``height`` in pixels, ``where`` names file, row and column
    for messages.
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
        """An estimate for limits and costs: one token for every 28 x 28 pixels. The real model's formula is not
        public."""
        return max(1, -(-self.width // 28)) * max(1, -(-self.height // 28))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds; None takes the run's own value."""

    connect: float | None = None
    first_byte: float | None = None
    idle: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request. ``body`` is a JSON-like mapping (``Fragment`` allowed anywhere in it, ``Picture`` as an
    ``image_url.url``) or, for malformed bodies, the raw bytes. ``purpose`` tells repeats apart: probe, control,
    confirm, liveness, judge...

    A control may be answered by an identical control of the last minute instead of being sent again.
    ``expect_prompt_tokens`` is the planner's estimate, used for limits and time-outs. ``credential``: what stands where
    the key belongs.
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
