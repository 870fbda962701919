"""What every importer shares: reading JSON Lines files, and recorded answers as exchanges.

A recorded answer goes through the same reader as a live one. What the recording lost (the stream's frames, the
headers, the timing of tokens) stays lost: nothing is invented.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from io import BufferedReader
from pathlib import Path
from typing import Any

from kvv.core import (
    Case,
    Dataset,
    Exchange,
    Fault,
    FaultKind,
    Finding,
    Identity,
    Observation,
    Request,
    Role,
    Shape,
    Timing,
)
from kvv.core.usage_error import ConfigError
from kvv.profiles.profile import Profile
from kvv.protocol.reader import ExchangeReader, ReadLimits
from kvv.protocol.rules import rules_for

#: bytes of one line; a recorded answer is far below it
LINE_LIMIT = 256 << 20


class ImportFileError(ValueError):
    """A file that cannot be imported; the message is one line that names file and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What ``kvv import`` was given beside the file: ``requests`` and ``scores`` are further files; ``model`` is the
    model's name where the results do not say it; ``seed`` is the run's.
    """

    requests: Path | None = None
    scores: Path | None = None
    model: str | None = None
    seed: int = 0


def no_scores(options: ImportOptions) -> None:
    """ConfigError where a file of scores was given to an importer that reads none."""
    if options.scores is not None:
        raise ConfigError("SCORES: is for beam")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSample:
    """One recorded sample. Without an answer the exchange has a fault and the observation's deviations hold the
    reason.
    """

    case: str
    sample: int
    request: Request
    exchange: Exchange
    observation: Observation
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A recorded run. ``records`` has one entry for each sample of each case (``samples[case id]`` of them), in that
    order.

    ``notes`` say in whole sentences how results were joined and what was missing; ``variant`` is the suite's, for its
    report.
    """

    suite: str
    cases: Sequence[Case]
    samples: Mapping[str, int]
    records: Sequence[RecordedSample]
    notes: Sequence[str]
    model: str
    dataset: Dataset
    variant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLine:
    """One JSON object of a file and its line number, from 1, blank lines counted."""

    number: int
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A JSON Lines file."""

    path: Path
    lines: Sequence[RecordedLine]

    def error(self, line: int, message: str) -> ImportFileError:
        return ImportFileError(f"{self.path}, line {line}: {message}")


def read_lines(path: Path) -> Lines:
    """Read a JSON Lines file, gzipped or plain (told by its first bytes). ImportFileError for anything else."""
    lines: list[RecordedLine] = []
    try:
        with _open(path) as source:
            for number, raw in _raw_lines(path, source):
                if raw.strip():
                    lines.append(RecordedLine(number=number, value=_object(path, number, raw)))
    except OSError as error:
        raise ImportFileError(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error):
        raise ImportFileError(f"{path}: the compressed file is damaged") from None
    if not lines:
        raise ImportFileError(f"{path}: is empty")
    return Lines(path=path, lines=lines)


def _open(path: Path) -> gzip.GzipFile | BufferedReader:
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return gzip.GzipFile(path, "rb") if compressed else path.open("rb")


def _raw_lines(path: Path, source: gzip.GzipFile | BufferedReader) -> Iterator[tuple[int, bytes]]:
    number = 0
    while raw := source.readline(LINE_LIMIT + 1):
        number += 1
        if len(raw) > LINE_LIMIT:
            raise ImportFileError(f"{path}, line {number}: is longer than {LINE_LIMIT >> 20} MiB")
        yield number, raw


def _object(path: Path, number: int, raw: bytes) -> Mapping[str, Any]:
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        value = json.loads(text)
    except UnicodeDecodeError:
        raise ImportFileError(f"{path}, line {number}: is no UTF-8 text") from None
    except json.JSONDecodeError as error:
        hint = " (a Git LFS pointer? fetch the file itself)" if raw.startswith(b"version https://git-lfs") else ""
        raise ImportFileError(f"{path}, line {number}: is no JSON: {error.msg} at column {error.colno}{hint}") from None
    except (RecursionError, ValueError):
        raise ImportFileError(f"{path}, line {number}: is no JSON that can be read") from None
    if not isinstance(value, dict):
        raise ImportFileError(f"{path}, line {number}: is no JSON object")
    return value


def record_answer(
    case: Case,
    request: Request,
    response: object,
    *,
    started: object,
    duration_ms: object,
    profile: Profile,
    whole: bool,
) -> RecordedSample:
    """A recorded response as the body of a 200. ``whole`` False: the recorder put it together from a stream, so its
    frame is not what the endpoint sent; it is dropped and no rule sees it."""
    identity = identity_of(case, request)
    reader = ExchangeReader(
        identity=identity,
        attempt=1,
        request=request,
        started=_time(started),
        rules=rules_for(profile, request) if whole else None,
        keep_frames=whole,
        limits=ReadLimits(body_bytes=LINE_LIMIT, event_bytes=LINE_LIMIT, kept_frames_bytes=LINE_LIMIT),
        redact=None,
    )
    total_ms = _milliseconds(duration_ms)
    reader.head(200, (("content-type", "application/json"),))
    reader.feed(json.dumps(response, ensure_ascii=True, separators=(",", ":")).encode("ascii"), total_ms)
    received = reader.finish(fault=None, total_ms=total_ms)
    # the first byte came we do not know when
    exchange = replace(received.exchange, timing=Timing(total_ms=total_ms))
    return RecordedSample(
        case=case.id,
        sample=case.sample,
        request=request,
        exchange=exchange,
        observation=received.observation,
        findings=received.findings,
    )


def record_no_answer(
    case: Case, request: Request, *, reason: str, detail: str, started: object = None
) -> RecordedSample:
    """A sample without a recorded answer: inconclusive, with ``reason`` in the observation's deviations."""
    exchange = Exchange(
        identity=identity_of(case, request),
        attempt=1,
        role=Role.TARGET,
        started=_time(started),
        status=None,
        fault=Fault(kind=FaultKind.CANCELLED, detail=detail[:300]),
    )
    observation = Observation(shape=Shape.NONE, deviations=(reason,))
    return RecordedSample(case=case.id, sample=case.sample, request=request, exchange=exchange, observation=observation)


def identity_of(case: Case, request: Request) -> Identity:
    return Identity(case=case.id, sample=case.sample, step=0, ask=0, purpose=request.purpose)


def _time(value: object) -> str:
    """An ISO 8601 time as it was recorded, else empty."""
    if not isinstance(value, str) or len(value) > 40:
        return ""
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return ""
    return value


def _milliseconds(value: object) -> float:
    """A time as it was recorded, else 0: nothing took a thousand years."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e14:
        return 0.0
    return float(value)


def first_object(path: Path) -> Mapping[str, Any]:
    """The first line of a JSON Lines file that is not blank. ImportFileError as ``read_lines``."""
    try:
        with _open(path) as source:
            for number, raw in _raw_lines(path, source):
                if raw.strip():
                    return _object(path, number, raw)
    except OSError as error:
        raise ImportFileError(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error):
        raise ImportFileError(f"{path}: the compressed file is damaged") from None
    raise ImportFileError(f"{path}: is empty")
