"""Passive wire rules, applied to every exchange at no request.

``rules_for`` gives one fold over all sections for one exchange. A rule's level comes from the profile, its
surface and the policy; a rule that the profile does not promise is off. Rules read frames and what the decoder
made of them; they never judge what is missing after a transport fault or an error object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from kvv.core import Fault, Finding, Frame, Level, Observation, Request
from kvv.profiles.profile import Profile
from kvv.protocol.json_text import DONE, Lenient, Unparsed
from kvv.protocol.rules import (
    chunks,
    deltas,
    errors,
    finishes,
    formats,
    heuristics,
    ids,
    logprobs,
    streams,
    texts,
    tools,
    usages,
)
from kvv.protocol.rules.asked import Asked
from kvv.protocol.rules.base import Promises, RuleInfo, Sink, levels_of
from kvv.protocol.rules.track import ChoiceTrack, RuleContext, TextSlot
from kvv.protocol.sse import EventStream

__all__ = ["RULES", "RuleInfo", "Rules", "rules_for"]

_SECTIONS = (streams, chunks, deltas, tools, finishes, usages, logprobs, texts, ids, formats, errors, heuristics)
_ALL: tuple[RuleInfo, ...] = tuple(rule for section in _SECTIONS for rule in section.RULES)
#: every rule by its id, in the order of the sections
RULES: Mapping[str, RuleInfo] = MappingProxyType({rule.id: rule for rule in _ALL})


def rules_for(profile: Profile, request: Request, *, moonshot_stream: bool = False) -> Rules:
    """The fold for one exchange. ``moonshot_stream``: the policy that makes every P0 rule a must."""
    return Rules(RuleContext(profile, Asked(request), Sink(_levels(_Same(profile), moonshot_stream))))


class _Same:
    """A profile as a key that is equal to itself alone: a profile is frozen, and comparing its fields costs more than
    the levels.
    """

    __slots__ = ("profile",)

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    def __hash__(self) -> int:
        return id(self.profile)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.profile is self.profile


@lru_cache(maxsize=64)
def _levels(same: _Same, moonshot_stream: bool) -> Mapping[str, Level]:
    """The levels of all rules; read-only, as every exchange of the profile shares them."""
    return MappingProxyType(levels_of(_ALL, Promises.of(same.profile, moonshot_stream=moonshot_stream)))


class Rules:
    """One fold over all sections for one exchange: ``head``, ``feed`` per frame, ``stream`` at a stream's end,
    ``finish``.

    Frames that equal the one before but for one text may be appended to the slot that ``steady`` gives.
    """

    __slots__ = (
        "_context",
        "_deltas",
        "_envelope",
        "_errors",
        "_finishes",
        "_formats",
        "_heuristics",
        "_ids",
        "_logprobs",
        "_sink",
        "_slot",
        "_streams",
        "_texts",
        "_tools",
        "_usages",
    )

    def __init__(self, context: RuleContext) -> None:
        self._context = context
        self._sink = context.sink
        self._streams = streams.Streams(context)
        self._envelope = chunks.EnvelopeRule(context)
        self._deltas = deltas.Deltas(context)
        self._tools = tools.Tools(context)
        self._finishes = finishes.Finishes(context)
        self._usages = usages.Usages(context)
        self._logprobs = logprobs.Logprobs(context)
        self._texts = texts.Texts(context)
        self._ids = ids.Ids(context)
        self._formats = formats.Formats(context)
        self._errors = errors.Errors(context)
        self._heuristics = heuristics.Heuristics(context)
        self._slot: TextSlot | None = None

    @property
    def hits(self) -> int:
        """Objections so far."""
        return self._sink.hits

    def head(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """The answer's head; header names in lower case."""
        self._context.status = status
        self._streams.head(next((value for name, value in headers if name == "content-type"), ""))

    def feed(self, frame: Frame, parsed: object) -> None:
        """One event with its parsed data (``kvv.protocol.json_text``), or the whole body when ``frame.event`` is
        "body".
        """
        context = self._context
        if frame.event == "body":
            context.body_frame = frame
        if context.first_frame is None:
            context.first_frame = frame
            self._streams.first(frame)
        context.last_frame = frame
        if context.done is not None:
            self._streams.after_done(frame, done_again=parsed is DONE)
        if isinstance(parsed, Lenient):
            self._streams.lenient(frame, parsed.reason)
            if parsed.reason == "lone-surrogate" and not context.asked.holds_surrogate:
                self._sink.hit("text/lone-surrogate", frame, "half of a surrogate pair stands in a string")
            parsed = parsed.value
        if context.body_frame is not None:
            self._body(frame, parsed)
        elif parsed.__class__ is dict:
            self._chunk(frame, parsed)
        elif parsed is DONE:
            context.done = context.done or frame
        elif isinstance(parsed, Unparsed):
            self._streams.unparsed(frame, parsed)
        else:
            self._sink.hit("chunk/choices", frame, "an event's data is no JSON object")

    def steady(self, field: str) -> TextSlot | None:
        """Where frames equal to the last one but for the text of ``field`` may be appended instead of being fed.

        None when a rule must see each such frame. Whoever appends calls ``scan_when_full`` now and then.
        """
        context = self._context
        self._slot = None
        if (
            len(context.choices) != 1
            or context.done is not None
            or context.error_frame is not None
            or context.asked.logprobs
        ):
            return None
        track = next(iter(context.choices.values()))
        if track.finishes:
            return None
        if field != "arguments":
            self._slot = track.content if field == "content" else track.reasoning
        elif track.last_call is not None:
            self._slot = track.last_call.text
        return self._slot

    def scan_when_full(self) -> None:
        slot = self._slot
        if slot is not None and len(slot.texts) >= texts.BATCH:
            self._texts.scan(slot, last=False)

    def stream(self, events: EventStream) -> None:
        """The stream has ended; ``events`` tells what never became a frame."""
        self._streams.events(events)

    def finish(self, observation: Observation, fault: Fault | None) -> tuple[Finding, ...]:
        """Everything found. After a fault or an error object nothing is held against the answer for being
        incomplete.
        """
        context = self._context
        complete = fault is None and context.status == 200 and observation.error is None
        self._texts.finish(observation)
        self._streams.finish(observation, complete)
        self._errors.finish(observation)
        if context.status == 200:
            self._usages.finish(observation, complete)
            self._ids.finish(observation, complete)
            if not context.misplaced:
                for section in (
                    self._envelope,
                    self._tools,
                    self._finishes,
                    self._logprobs,
                    self._formats,
                    self._heuristics,
                ):
                    section.finish(observation, complete)
        return self._sink.findings(RULES)

    def objected(self) -> Iterable[Frame]:
        """The frames that findings point at."""
        return self._sink.objected()

    # --- one frame -----------------------------------------------------------------------------------

    def _chunk(self, frame: Frame, body: dict[str, Any]) -> None:
        context = self._context
        if context.status != 200:
            return
        if body.get("error"):
            self._errors.in_200(frame)
            if "choices" not in body:
                return
        elif "choices" not in body and "message" in body and ("code" in body or "type" in body):
            self._errors.in_200(frame)
            return
        choices = self._envelope.feed(frame, body)
        if choices is None:
            return
        for choice in choices:
            if choice.__class__ is dict:
                self._choice(frame, choice)
            else:
                self._sink.hit("chunk/choices", frame, "a choice is no object")
        usage = body.get("usage")
        if usage is not None:
            self._usages.chunk(frame, usage, choices)

    def _choice(self, frame: Frame, choice: dict[str, Any]) -> None:
        track = self._envelope.choice(frame, choice, "delta")
        delta = choice.get("delta")
        reason = choice.get("finish_reason")
        content = ""
        carries = False
        if delta.__class__ is dict:
            content, reasoning = self._deltas.feed(frame, track, delta, reason)
            carries = self._texts_of(frame, track, content, reasoning, delta.get("tool_calls"))
        if reason is not None or track.finishes:
            self._finishes.feed(frame, track, reason, carries)
        logprobs_ = choice.get("logprobs")
        if logprobs_ is not None or self._context.asked.logprobs:
            self._logprobs.feed(frame, track, logprobs_, content)
        usage = choice.get("usage")
        if usage is not None:
            self._usages.choice(frame, usage, ending=reason is not None)

    def _texts_of(self, frame: Frame, track: ChoiceTrack, content: str, reasoning: str, calls: object) -> bool:
        """Hands every text to the scan; whether there was any, or a tool call."""
        if content:
            self._texts.add(track.content, frame, content)
        if reasoning:
            self._texts.add(track.reasoning, frame, reasoning)
        if calls is None:
            return bool(content or reasoning)
        for call, piece in self._tools.feed(frame, track, calls):
            self._texts.add(call.text, frame, piece)
        for entry in calls if isinstance(calls, list) else ():
            function = entry.get("function") if isinstance(entry, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            if isinstance(name, str) and name:
                self._texts.whole("name", frame, name)
        return bool(content or reasoning or calls)

    def _body(self, frame: Frame, parsed: object) -> None:
        context = self._context
        is_json = not isinstance(parsed, Unparsed)
        self._streams.body(frame, is_json)
        if context.status != 200 or not isinstance(parsed, dict):
            return
        if parsed.get("error"):
            self._errors.in_200(frame)
            if "choices" not in parsed:
                return
        elif "choices" not in parsed:
            # some other JSON document: not a completion that lacks something
            return
        self._envelope.body()
        choices = self._envelope.feed(frame, parsed)
        for choice in choices or ():
            if not isinstance(choice, dict):
                self._sink.hit("chunk/choices", frame, "a choice is no object")
                continue
            track = self._envelope.choice(frame, choice, "message")
            message = choice.get("message")
            content, carries = "", False
            if isinstance(message, dict):
                content, reasoning = self._deltas.message(frame, track, message)
                carries = self._texts_of(frame, track, content, reasoning, message.get("tool_calls"))
            self._finishes.feed(frame, track, choice.get("finish_reason"), carries)
            self._logprobs.feed(frame, track, choice.get("logprobs"), content)
        self._usages.body(frame, parsed.get("usage"))
