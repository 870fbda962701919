"""From response bytes to what they say and what the passive rules say of them.

The transport feeds a ``ExchangeReader`` the head and the bytes of one answer (its content encoding already undone) and
gets back one ``Received``. The reader decides by content type, request and first bytes whether the answer is an
event stream; it parses each frame once and hands it to the decoder and to the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from kvv.core import (
    Exchange,
    Fault,
    FaultKind,
    Finding,
    Frame,
    Identity,
    Level,
    Observation,
    Request,
    Shape,
    Upstream,
)
from kvv.protocol.decode import Decoder
from kvv.protocol.increments import IncrementTiming
from kvv.protocol.json_text import Lenient, parse, parse_event
from kvv.protocol.redaction.observations import (
    Redact,
    redact_findings,
    redact_frames,
    redact_observation,
    redact_text,
)
from kvv.protocol.rules import Rules
from kvv.protocol.sse import EventStream
from kvv.protocol.steady_state import Steady, envelope

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One answered attempt: as it was, what it says, and the passive rules' objections."""

    exchange: Exchange
    observation: Observation
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """``body_bytes`` bounds a body, ``text_bytes`` the text of a stream (no model writes four million tokens),
    ``event_bytes`` one event, ``stream_bytes`` a whole stream, ``barren_events`` the events in a row without a choice,
    ``kept_frames_bytes`` the frames kept for the store.
    """

    body_bytes: int = 64 * MIB
    text_bytes: int = 16 * MIB
    event_bytes: int = 16 * MIB
    stream_bytes: int = 1024 * MIB
    barren_events: int = 100_000
    json_depth: int = 200
    kept_frames_bytes: int = 32 * MIB


#: response headers worth keeping; everything else (cookies above all) is dropped
_KEPT_HEADER = re.compile(
    r"date|content-type|content-length|content-encoding|transfer-encoding|server|via|location|retry-after(-ms)?|cf-ray"
    r"|x-request-id|request-id|.*-request-id|.*generation-id|x-ratelimit-.*|ratelimit.*|x-rate-limit-.*|.*provider.*|.*deploy.*|x-msh-.*"
)
_HEADER_VALUE_LIMIT = 1_000
_HEADERS_LIMIT = 64

#: how an event stream may begin; the standard also allows any other field, which no server of this protocol sends first
_STREAM_START = (b"data:", b"event:", b"id:", b"retry:", b":")
_SNIFF_BYTES = 64
#: text is folded into blocks after this many steady chunks
_FOLD_EVERY = 512
#: after this many envelopes in a row that no frame matched, new ones are tried ever more rarely
_PATIENCE = 4


def kept_headers(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The headers worth storing, names lower-cased, values bounded; of ``location`` only the host."""
    kept: list[tuple[str, str]] = []
    for name, value in headers:
        name = name.lower()
        if _KEPT_HEADER.fullmatch(name) and len(kept) < _HEADERS_LIMIT:
            kept.append((name, _host(value) if name == "location" else value[:_HEADER_VALUE_LIMIT]))
    return tuple(kept)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class ExchangeReader:
    """A fold over one answer. ``feed`` returns False once a limit is exceeded: reading on would be useless."""

    def __init__(
        self,
        *,
        identity: Identity,
        attempt: int,
        request: Request,
        started: str,
        rules: Rules | None,
        keep_frames: bool,
        limits: ReadLimits,
        redact: Redact | None,
        look: Callable[[bytes], None] | None = None,
        steady: bool = True,
    ) -> None:
        """``redact`` maps stored bytes to what may be stored; ``look`` is shown a body, and each event of a stream
        whose envelope is new; ``steady`` False takes every frame the long way (for tests).
        """
        self._identity, self._attempt, self._request, self._started = identity, attempt, request, started
        self._rules = rules
        self._keep = keep_frames
        self._limits = limits
        self._text_limit = min(limits.text_bytes, limits.body_bytes)
        self._redact = redact
        self._look = look
        self._decoder = Decoder()
        self._events = EventStream(limits.event_bytes)
        self._pace = IncrementTiming()
        self._status: int | None = None
        self._headers: tuple[tuple[str, str], ...] = ()
        self._content_type = ""
        self._streaming: bool | None = None
        self._pieces: list[bytes] = []
        self._pieces_size = 0
        #: grows with every packet that says something: events with a choice, bytes of a body that are no blanks
        self.said = 0
        self._barren = 0
        self._bytes = 0
        self._open_body = False
        self._frame_count = 0
        self._frames: list[Frame] = []
        self._frames_size = 0
        self._frames_kept = keep_frames
        self._fault: Fault | None = None
        self._steady: Steady | None = None
        self._steady_on = steady
        self._unfolded = 0
        self._useless = 0
        self._wait = 0

    def head(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self._status = status
        self._headers = kept_headers(headers)
        self._content_type = next((value for name, value in self._headers if name == "content-type"), "")
        if self._rules is not None:
            self._rules.head(status, self._headers)
        _usage_headers(self._headers, self._decoder)

    def feed(self, data: bytes, offset_ms: float) -> bool:
        self._bytes += len(data)
        if not self._streaming:
            if self._fault is not None:
                return False
            if self._pace.first_byte_ms is None and data:
                self._pace.first_byte_ms = offset_ms
            self._pieces.append(data)
            self._pieces_size += len(data)
            if self._streaming is None:
                self._streaming = self._is_stream(b"".join(self._pieces))
            if not self._streaming:
                self.said += not data.isspace()
                return self._pieces_size <= self._limits.body_bytes or self._too_large("body", self._limits.body_bytes)
            data, self._pieces = b"".join(self._pieces), []
        events = self._events
        frames = events.feed(data, offset_ms)
        if frames:
            if self._take(frames, offset_ms):
                self.said += 1
                self._barren = 0
            else:
                self._barren += len(frames)
        if self._bytes > self._limits.stream_bytes:
            return self._too_large("stream", self._limits.stream_bytes)
        if self._barren > self._limits.barren_events:
            return self._too_large("run of events without a choice", self._limits.barren_events, "events")
        if events.overflow:
            return self._too_large("event", self._limits.event_bytes)
        return self._decoder.characters <= self._text_limit or self._too_large("text", self._text_limit)

    def finish(self, *, fault: Fault | None, total_ms: float, close_delimited: bool = False) -> Received:
        """The end. ``close_delimited``: only the closing of the connection marked the end, so a missing end is a cut,
        not a violation.
        """
        if self._streaming is None and self._pieces:
            self._streaming = self._is_stream(b"".join(self._pieces)) or False
            if self._streaming:
                self._take(self._events.feed(b"".join(self._pieces), total_ms), total_ms)
        if self._streaming:
            self._events.finish(total_ms)
            if self._rules is not None:
                self._rules.stream(self._events)
        elif self._pieces:
            self._body(total_ms)
        observation = self._decoder.finish()
        if self._status is None:
            observation = replace(observation, shape=Shape.NONE)
        fault = self._fault or fault or self._cut(observation, close_delimited)
        findings = self._rules.finish(observation, fault) if self._rules is not None else ()
        if close_delimited:
            findings = without_a_known_end(findings, done=self._decoder.done)
        return self._received(observation, findings, fault, total_ms)

    # --- frames ------------------------------------------------------------------------------------

    def _take(self, frames: list[Frame], offset_ms: float) -> bool:
        """Every frame once: the steady way where its envelope is known, else parsed, decoded and checked. Whether any
        held a choice.
        """
        steady, chosen = self._steady, self._decoder.chosen
        ticks = 0
        for frame in frames:
            if steady is not None and steady.take(frame):
                ticks += 1
            else:
                ticks += self._slow(frame)
                steady = self._steady
        if steady is not None:
            self._settle(steady)
        if ticks:
            self._pace.tick(offset_ms, ticks)
        self._frame_count += len(frames)
        if self._frames_kept:
            self._keep_frames(frames)
        return ticks > 0 or self._decoder.chosen > chosen

    def _settle(self, steady: Steady) -> None:
        """Book what came the steady way."""
        decoder = self._decoder
        decoder.characters += steady.fresh
        steady.fresh = 0
        if len(steady.pieces) >= _FOLD_EVERY:
            decoder.fold()
        if steady.texts is not None and self._rules is not None:
            self._rules.scan_when_full()

    def _slow(self, frame: Frame) -> int:
        """Parse, decode and check; returns 1 when the frame brought text."""
        decoder, rules, steady = self._decoder, self._rules, self._steady
        if steady is not None:
            self._settle(steady)
            self._useless = 0 if steady.hits else self._useless + 1
            self._steady = None
        if self._look is not None:
            self._look(frame.data)
        parsed = parse_event(frame.data, self._limits.json_depth)
        before = decoder.increments
        decoder.feed(frame, parsed)
        quiet = not isinstance(parsed, Lenient) and not frame.event
        if rules is not None:
            hits = rules.hits
            rules.feed(frame, parsed)
            quiet = quiet and rules.hits == hits
        if quiet and self._steady_on and decoder.steady is not None:
            self._learn(frame, *decoder.steady)
        self._unfolded += 1
        if self._unfolded >= _FOLD_EVERY:
            self._unfolded = 0
            decoder.fold()
        return decoder.increments - before

    def _learn(self, frame: Frame, field: str, pieces: list[str]) -> None:
        """Remember the envelope of a frame in which nothing but one text could matter to the decoder or to a rule."""
        if self._wait > 0:
            self._wait -= 1
            return
        if self._useless >= _PATIENCE:
            self._wait = min(32 << min(self._useless - _PATIENCE, 5), 1_024)
        slot = None
        if self._rules is not None:
            slot = self._rules.steady(field)
            if slot is None:
                return
        around = envelope(frame.data, field)
        if around is not None:
            self._steady = Steady(
                around, pieces, None if slot is None else slot.frames, None if slot is None else slot.texts
            )

    def _keep_frames(self, frames: list[Frame]) -> None:
        for frame in frames:
            self._frames_size += len(frame.data)
            if self._frames_size > self._limits.kept_frames_bytes:
                self._frames_kept = False
                return
            self._frames.append(frame)

    # --- what the answer is --------------------------------------------------------------------------

    def _is_stream(self, start: bytes) -> bool | None:
        """None while the first bytes do not tell yet."""
        text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
        claims = self._content_type.lower().startswith("text/event-stream")
        if not text:
            return None if len(start) < _SNIFF_BYTES else claims
        if claims:
            return text[:1] not in (b"{", b"[", b"<")
        if any(text.startswith(word) for word in _STREAM_START):
            return True
        if len(text) < 6 and any(word.startswith(text) for word in _STREAM_START):
            return None
        return False

    def _body(self, total_ms: float) -> None:
        data = b"".join(self._pieces)
        self._pieces = []
        text = data.strip()
        self._open_body = text.startswith(b"{") and not text.endswith(b"}")
        if self._look is not None:
            self._look(data)
        frame = Frame(1, total_ms, data, "body")
        parsed = parse(data, self._limits.json_depth)
        self._decoder.feed(frame, parsed)
        if self._rules is not None:
            self._rules.feed(frame, parsed)
        self._frame_count = 1
        if self._frames_kept:
            self._keep_frames([frame])

    def _too_large(self, what: str, limit: int, unit: str = "bytes") -> bool:
        self._fault = Fault(kind=FaultKind.TOO_LARGE, detail=f"the {what} exceeds {limit} {unit}", after_content=True)
        return False

    def _cut(self, observation: Observation, close_delimited: bool) -> Fault | None:
        if not close_delimited:
            return None
        if self._status != 200:
            broken = self._open_body and observation.shape is Shape.NOT_JSON
            return (
                Fault(kind=FaultKind.CUT, detail="closed before the body's end", after_content=True) if broken else None
            )
        if self._streaming:
            ended = self._decoder.done or self._decoder.finished or observation.error is not None
            return (
                None
                if ended
                else Fault(
                    kind=FaultKind.CUT, detail="closed before finish_reason and [DONE]", after_content=self._bytes > 0
                )
            )
        if self._bytes == 0 or (self._open_body and observation.shape is Shape.NOT_JSON):
            return Fault(kind=FaultKind.CUT, detail="closed before the body's end", after_content=self._bytes > 0)
        return None

    # --- the result ------------------------------------------------------------------------------------

    def _received(
        self, observation: Observation, findings: tuple[Finding, ...], fault: Fault | None, total_ms: float
    ) -> Received:
        frames = tuple(self._frames)
        if not self._frames_kept and self._rules is not None:
            frames = self._with_objected(frames, self._rules.objected())
        headers = self._headers
        if self._redact is not None:
            redact = self._redact
            frames = redact_frames(frames, redact)
            headers = tuple((name, redact_text(value, redact)) for name, value in headers)
            findings = redact_findings(findings, redact)
            observation = redact_observation(observation, redact)
        exchange = Exchange(
            identity=self._identity,
            attempt=self._attempt,
            role=self._request.role,
            started=self._started,
            status=self._status,
            headers=headers,
            content_type=self._content_type,
            frames=frames,
            frames_kept=self._frames_kept,
            frame_count=self._frame_count,
            bytes_received=self._bytes,
            fault=fault,
            upstream=self._upstream(observation),
            timing=self._pace.timing(total_ms),
        )
        return Received(exchange=exchange, observation=observation, findings=findings)

    def _with_objected(self, frames: tuple[Frame, ...], objected: Iterable[Frame]) -> tuple[Frame, ...]:
        """The kept frames and those a finding points at, as far as the limit allows."""
        merged = {frame.number: frame for frame in frames}
        room = self._limits.kept_frames_bytes
        for frame in objected:
            room -= len(frame.data)
            if room >= 0:
                merged.setdefault(frame.number, frame)
        return tuple(merged[number] for number in sorted(merged))

    def _upstream(self, observation: Observation) -> Upstream:
        """What the body names wins over a header: a gateway's own name stands in headers."""
        provider = self._decoder.provider
        if provider is None:
            provider = next((v for k, v in self._headers if _PROVIDER_HEADER.search(k)), None)
        return Upstream(provider=provider, system_fingerprint=self._decoder.system_fingerprint, model=observation.model)


#: x-provider, x-inference-provider, x-openrouter-provider, x-provider-name: no header of a provider's deploys, requests
#: or latencies
_PROVIDER_HEADER = re.compile(r"(?:^|[-_])provider(?:[-_]name)?$")

#: rules that miss something at a stream's very end
END_RULES = frozenset({"stream/done", "usage/tail-frame", "usage/missing"})


def without_a_known_end(findings: tuple[Finding, ...], *, done: bool) -> tuple[Finding, ...]:
    """Where only the closing connection ended a stream, a cut after finish_reason looks like a missing end: no must
    rests on that.
    """
    if done:
        return findings
    return tuple(
        replace(one, level=Level.SHOULD) if one.rule in END_RULES and one.level is Level.MUST else one
        for one in findings
    )


def _usage_headers(headers: Iterable[tuple[str, str]], decoder: Decoder) -> None:
    """Moonshot's accounting headers (P0.18) as one more usage report."""
    counts = {name.removeprefix("x-msh-usage-"): int(value) for name, value in headers if _is_usage_header(name, value)}
    raw: dict[str, object] = {}
    if "prompt-tokens" in counts:
        raw["prompt_tokens"] = counts["prompt-tokens"]
    if "cached-tokens" in counts:
        raw["prompt_tokens_details"] = {"cached_tokens": counts["cached-tokens"]}
    if raw:
        decoder.header_usage(raw)


def _is_usage_header(name: str, value: str) -> bool:
    return name.startswith("x-msh-usage-") and value.isascii() and value.isdecimal() and len(value) < 20


def read_again(exchange: Exchange, request: Request, rules: Rules | None, *, json_depth: int = 200) -> Received:
    """Decode and judge a stored exchange again; redaction was done before storing.

    Exact only while ``exchange.frames_kept``, and but for what never became a frame: an unterminated last event, blank
    events.
    """
    decoder = Decoder()
    if rules is not None and exchange.status is not None:
        rules.head(exchange.status, exchange.headers)
    for frame in exchange.frames:
        parsed = parse(frame.data, json_depth) if frame.event == "body" else parse_event(frame.data, json_depth)
        decoder.feed(frame, parsed)
        if rules is not None:
            rules.feed(frame, parsed)
    if rules is not None and not exchange.frames and exchange.bytes_received:
        # a body is always a frame, so this was a stream of comments
        rules.stream(EventStream())
    _usage_headers(exchange.headers, decoder)
    observation = decoder.finish()
    if exchange.status is None:
        observation = replace(observation, shape=Shape.NONE)
    findings = rules.finish(observation, exchange.fault) if rules is not None else ()
    headers = dict(exchange.headers)
    if "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", "").lower():
        findings = without_a_known_end(findings, done=decoder.done)
    return Received(exchange=exchange, observation=observation, findings=findings)
