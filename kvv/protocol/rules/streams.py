"""Section: the event stream itself, its content type and its end."""

from __future__ import annotations

from functools import partial

from kvv.core import Area, Frame, Level, Observation
from kvv.protocol.json_text import Unparsed
from kvv.protocol.rules.base import (
    BREAKS,
    DIFFERS,
    OPENAI,
    OPENAI_STREAM,
    RFC8259,
    WHATWG,
    RuleInfo,
    excerpt_of,
    stream_rule,
)
from kvv.protocol.rules.track import RuleContext
from kvv.protocol.sse import EventStream

_rule = partial(RuleInfo, area=Area.STREAMING, kind=BREAKS, section="event stream")
MUST, SHOULD = Level.MUST, Level.SHOULD
#: its decoder takes a blank line after an id for an event, and fails on the empty data
_OPENAI_PYTHON = "https://github.com/openai/openai-python, openai/_streaming.py"
RULES = (
    _rule(
        id="stream/content-type",
        level=MUST,
        causes=("C28",),
        p0=True,
        source=f"{WHATWG}; {OPENAI_STREAM}; {stream_rule('P0.6')}",
        requirement="An event stream MUST be labelled text/event-stream.",
    ),
    _rule(
        id="stream/not-streamed",
        level=MUST,
        causes=("C28",),
        source=OPENAI_STREAM,
        requirement="A request with stream true MUST be answered with an event stream.",
    ),
    _rule(
        id="stream/unasked",
        level=MUST,
        source=OPENAI,
        requirement="A request without stream true MUST be answered with one JSON body.",
    ),
    _rule(
        id="stream/json",
        level=MUST,
        causes=("C19",),
        p0=True,
        source=f"{OPENAI_STREAM}; {stream_rule('P0.6')}",
        requirement="The data of every event MUST be JSON or [DONE].",
    ),
    _rule(
        id="stream/strict-json",
        level=MUST,
        source=f"{RFC8259}",
        requirement="JSON MUST be UTF-8 without byte order mark, and MUST NOT contain NaN or Infinity.",
    ),
    _rule(
        id="stream/done",
        level=MUST,
        causes=("C24",),
        p0=True,
        source=f"{OPENAI_STREAM}; {stream_rule('P0.6', 'P1.2')}",
        requirement="A stream that ends properly MUST end with the event [DONE].",
    ),
    _rule(
        id="stream/done-once",
        level=SHOULD,
        kind=DIFFERS,
        source=OPENAI_STREAM,
        requirement="[DONE] SHOULD come once.",
    ),
    _rule(
        id="stream/after-done",
        level=MUST,
        source=OPENAI_STREAM,
        requirement="Nothing MUST follow [DONE]: clients have stopped reading.",
    ),
    _rule(
        id="stream/unterminated",
        level=SHOULD,
        source=WHATWG,
        requirement="The last event SHOULD end with a blank line: without it the standard drops the event.",
    ),
    _rule(
        id="stream/empty-event",
        level=SHOULD,
        causes=("C20",),
        source=_OPENAI_PYTHON,
        requirement="A stream that sets an event id SHOULD NOT send blank lines without data.",
    ),
    _rule(
        id="stream/no-chunks",
        level=MUST,
        causes=("C24",),
        source=OPENAI_STREAM,
        requirement="A stream MUST carry at least one chunk or an error.",
    ),
    _rule(
        id="body/content-type",
        level=SHOULD,
        kind=DIFFERS,
        source=f"{RFC8259} section 11",
        requirement="A JSON body SHOULD be labelled application/json.",
    ),
    _rule(
        id="body/strict-json",
        level=MUST,
        source=RFC8259,
        requirement="A JSON body MUST be UTF-8 without byte order mark, and MUST NOT contain NaN or Infinity.",
    ),
)


class Streams:
    __slots__ = ("_content_type", "_context", "_events", "_headed", "_mislabelled", "_sink", "_unparsed")

    def __init__(self, context: RuleContext) -> None:
        self._context = context
        self._sink = context.sink
        self._content_type = ""
        self._headed = False
        self._events: EventStream | None = None
        self._unparsed = 0

    def head(self, content_type: str) -> None:
        self._headed = True
        self._content_type = content_type.split(";", 1)[0].strip().lower()

    def first(self, frame: Frame) -> None:
        """The first frame shows what the answer is; only a 200 promises a completion."""
        context = self._context
        if not self._headed or context.status != 200:
            return
        label = self._content_type or "nothing"
        if context.streamed:
            if self._content_type != "text/event-stream":
                self._sink.hit("stream/content-type", frame, f"an event stream is labelled {label:.80}")
            if context.asked.known and not context.asked.stream:
                self._sink.hit("stream/unasked", frame, "an event stream answers a request without stream")

    def body(self, frame: Frame, is_json: bool) -> None:
        context = self._context
        if context.status != 200 or not is_json:
            return
        if self._content_type != "application/json" and not self._content_type.endswith("+json"):
            self._sink.hit("body/content-type", frame, f"a JSON body is labelled {self._content_type or 'nothing':.80}")
        if context.asked.known and context.asked.stream:
            self._sink.hit("stream/not-streamed", frame, "one JSON body answers a request with stream true")

    def after_done(self, frame: Frame, *, done_again: bool) -> None:
        if done_again:
            self._sink.hit("stream/done-once", frame, "[DONE] comes again")
        else:
            self._sink.hit("stream/after-done", frame, "an event follows [DONE]")

    def unparsed(self, frame: Frame, value: Unparsed) -> None:
        self._unparsed += 1
        self._sink.hit("stream/json", frame, f"an event's data is no JSON ({value.reason})")

    def lenient(self, frame: Frame, reason: str) -> None:
        if reason in ("nan", "not-utf8", "byte-order-mark"):
            rule = "stream/strict-json" if self._context.streamed else "body/strict-json"
            self._sink.hit(
                rule,
                frame,
                {"nan": "NaN or Infinity", "not-utf8": "bytes that are no UTF-8"}.get(reason, "a byte order mark"),
            )

    def events(self, events: EventStream) -> None:
        self._events = events

    def finish(self, observation: Observation, complete: bool) -> None:
        context, events = self._context, self._events
        left = events.unterminated if events is not None else b""
        if context.status != 200:
            return
        if left.strip() and complete:
            self._sink.hit(
                "stream/unterminated", None, "the last event has no blank line behind it", excerpt=excerpt_of(left)
            )
        if events is not None and events.empty_after_id:
            self._sink.hit(
                "stream/empty-event",
                context.first_frame,
                "blank lines without data come after an id",
                times=events.empty_after_id,
            )
        if not complete or not context.streamed or (context.first_frame is None and events is None):
            return
        if context.done is None and b"[DONE]" not in left:
            self._sink.hit("stream/done", context.last_frame, "the stream ends without [DONE]")
        if context.done is not None and not context.objects and not self._unparsed:
            self._sink.hit("stream/no-chunks", context.done, "[DONE] comes without a chunk")
