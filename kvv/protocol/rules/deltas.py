"""Section: deltas and messages (role, content, reasoning and the order they come in)."""

from __future__ import annotations

from functools import partial
from typing import Any

from kvv.core import Area, Frame, Level
from kvv.protocol.decode import REASONING_FIELDS
from kvv.protocol.rules.base import BREAKS, DIFFERS, OPENAI, OPENAI_STREAM, RuleInfo, Scope, kind_of, stream_rule
from kvv.protocol.rules.track import ChoiceTrack, RuleContext

_rule = partial(RuleInfo, area=Area.STREAMING, kind=BREAKS, section="deltas")
_kimi = partial(
    RuleInfo, area=Area.STREAMING, level=Level.SHOULD, kind=DIFFERS, scope=Scope.KIMI_STREAM, section="deltas"
)
MUST, SHOULD = Level.MUST, Level.SHOULD
RULES = (
    _rule(
        id="delta/role-first",
        level=MUST,
        causes=("C01", "C03"),
        p0=True,
        source=f"{OPENAI_STREAM}; {stream_rule('P0.9')}",
        requirement="Each choice MUST name the role assistant before or with its first text or tool call.",
    ),
    _rule(
        id="delta/role-value",
        level=MUST,
        source=OPENAI,
        requirement="A role, where it is sent, MUST be assistant.",
    ),
    _rule(
        id="delta/role-once",
        level=SHOULD,
        kind=DIFFERS,
        source=stream_rule("P1.6"),
        requirement="The role SHOULD be sent once per choice: accumulating clients join its repeats.",
    ),
    _rule(
        id="delta/content-type",
        level=MUST,
        p0=True,
        source=f"{OPENAI}; {stream_rule('P0.10')}",
        requirement="`content` MUST be a string or null.",
    ),
    _rule(
        id="delta/reasoning-type",
        area=Area.REASONING,
        level=MUST,
        p0=True,
        source=stream_rule("P0.12") + f"; {OPENAI}",
        requirement="`reasoning_content`, where it is sent, MUST be a string or null.",
    ),
    _rule(
        id="delta/reasoning-field",
        area=Area.REASONING,
        level=SHOULD,
        kind=DIFFERS,
        scope=Scope.THINKING,
        source="the profile's thinking.fields",
        requirement="Reasoning SHOULD come in a field that the model's clients know.",
    ),
    _kimi(
        id="delta/null",
        causes=("C03",),
        p0=True,
        source=stream_rule("P0.10", "P0.12"),
        requirement="A delta SHOULD leave out what it does not carry, not send it as null.",
    ),
    _kimi(
        id="delta/one-kind",
        causes=("C32",),
        p0=True,
        source=stream_rule("mutual exclusion"),
        requirement="A chunk SHOULD carry only one of content, reasoning and tool calls.",
    ),
    _kimi(
        id="delta/first-finish",
        p0=True,
        source=stream_rule("P0.9"),
        requirement="The first chunk of a choice SHOULD have finish_reason null.",
    ),
    _kimi(
        id="delta/first-content",
        source=stream_rule("P1.5"),
        requirement="The first delta of a choice SHOULD carry the key `content`, empty or null.",
    ),
    _kimi(
        id="delta/boundary",
        area=Area.REASONING,
        source=stream_rule("P1.7"),
        requirement=(
            'Exactly one chunk with reasoning_content "" SHOULD mark the end of reasoning, and none come after.'
        ),
    ),
    _rule(
        id="delta/contiguous",
        area=Area.REASONING,
        level=SHOULD,
        kind=DIFFERS,
        scope=Scope.PHASES,
        source=stream_rule("P1.7", "P1.9"),
        requirement="Reasoning, content and tool calls SHOULD each come in one piece, in this order.",
    ),
    _kimi(
        id="delta/end-empty",
        source=stream_rule("P1.10", "P1.12"),
        requirement="The chunk with finish_reason SHOULD have an empty delta.",
    ),
    _rule(
        id="delta/token-ids",
        level=Level.MAY,
        kind=DIFFERS,
        scope=Scope.KIMI_STREAM,
        p0=True,
        source=stream_rule("P0.5"),
        requirement=(
            "With stream_options.include_internal_content every increment MAY carry delta.internal_content.token_ids."
        ),
    ),
)

_ORDER = {"": 0, "reasoning": 1, "content": 2, "tools": 3}
_NULLABLE = ("content", "role", "tool_calls", *REASONING_FIELDS)


class Deltas:
    __slots__ = ("_asked", "_fields", "_kimi", "_null", "_phases", "_sink")

    def __init__(self, context: RuleContext) -> None:
        sink = self._sink = context.sink
        self._asked = context.asked
        self._fields = context.profile.thinking.fields
        self._kimi = sink.on("delta/boundary")
        self._null = sink.on("delta/null")
        self._phases = sink.on("delta/contiguous")

    def feed(self, frame: Frame, track: ChoiceTrack, delta: dict[str, Any], finish: object) -> tuple[str, str]:
        """The non-empty content and reasoning texts of the delta ("" where there is none)."""
        content = delta.get("content")
        if content.__class__ is not str:
            if content is not None:
                self._sink.hit("delta/content-type", frame, f"content is {kind_of(content)}")
            content = ""
        reasoning = self._reasoning(frame, delta) if "reasoning_content" in delta or "reasoning" in delta else ""
        calls = delta.get("tool_calls")
        carries = bool(content or reasoning or calls)
        if "role" in delta or (carries and not track.role):
            self._role(frame, track, delta, carries=carries)
        if carries:
            phase = "reasoning" if reasoning else "content" if content else "tools"
            if phase != track.phase:
                self._turn(frame, track, phase)
            if phase != "tools" and ((content and reasoning) or calls):
                self._sink.hit(
                    "delta/one-kind", frame, "a chunk carries more than one of content, reasoning and tool calls"
                )
        if self._kimi:
            self._kimi_stream(frame, track, delta, finish, carries)
        if carries and self._asked.token_ids:
            self._token_ids(frame, delta)
        track.deltas += 1
        return content, reasoning

    def message(self, frame: Frame, track: ChoiceTrack, message: dict[str, Any]) -> tuple[str, str]:
        """The same for the message of a body."""
        content = message.get("content")
        if not isinstance(content, str):
            if content is not None:
                self._sink.hit("delta/content-type", frame, f"content is {kind_of(content)}")
            content = ""
        if message.get("role") is None:
            self._sink.hit("delta/role-first", frame, "the message has no role")
        else:
            self._role(frame, track, message, carries=True)
        return content, self._reasoning(frame, message)

    def _reasoning(self, frame: Frame, delta: dict[str, Any]) -> str:
        text = ""
        for field in REASONING_FIELDS:
            value = delta.get(field)
            if value.__class__ is str:
                if value and not text:
                    text = value
                    if field not in self._fields:
                        known = " or ".join(self._fields) or "any field"
                        self._sink.hit("delta/reasoning-field", frame, f"reasoning comes in {field!r}, not in {known}")
            elif value is not None and field == "reasoning_content":
                self._sink.hit("delta/reasoning-type", frame, f"{field} is {kind_of(value)}")
        return text

    def _role(self, frame: Frame, track: ChoiceTrack, delta: dict[str, Any], *, carries: bool) -> None:
        role = delta.get("role")
        if role is None or role == "":
            if carries and not track.role:
                track.role = True
                self._sink.hit("delta/role-first", frame, "text or a tool call comes before any role")
            return
        if role != "assistant":
            self._sink.hit("delta/role-value", frame, f"role is {kind_of(role)}")
        if track.role:
            self._sink.hit("delta/role-once", frame, "the role is sent again")
        track.role = True

    def _turn(self, frame: Frame, track: ChoiceTrack, phase: str) -> None:
        """A choice goes on to another phase."""
        if self._phases and _ORDER[phase] < _ORDER[track.phase]:
            self._sink.hit("delta/contiguous", frame, f"{phase} comes after {track.phase}")
        if self._kimi and track.phase == "reasoning" and phase == "content" and track.boundaries != 1:
            self._sink.hit(
                "delta/boundary",
                frame,
                f"{track.boundaries} empty reasoning_content chunks stand between reasoning and content, not 1",
            )
        track.phase = phase

    def _kimi_stream(
        self, frame: Frame, track: ChoiceTrack, delta: dict[str, Any], finish: object, carries: bool
    ) -> None:
        first = track.deltas == 0
        if self._null and None in delta.values():
            nulls = [
                key for key in _NULLABLE if key in delta and delta[key] is None and not (first and key == "content")
            ]
            if nulls:
                self._sink.hit("delta/null", frame, f"{', '.join(nulls)} sent as null")
        if first:
            if finish is not None:
                self._sink.hit("delta/first-finish", frame, "the first chunk of a choice already has a finish_reason")
            if delta.get("content", "-") not in ("", None):
                self._sink.hit("delta/first-content", frame, "the first delta does not carry an empty content")
        elif not carries and delta.get("reasoning_content") == "":
            if track.phase == "reasoning":
                track.boundaries += 1
            elif track.phase:
                self._sink.hit("delta/boundary", frame, f"an empty reasoning_content comes in the {track.phase} phase")
        if finish is not None and delta and not first:
            self._sink.hit(
                "delta/end-empty",
                frame,
                f"the chunk with finish_reason carries {', '.join(sorted(map(str, delta)))[:100]}",
            )

    def _token_ids(self, frame: Frame, delta: dict[str, Any]) -> None:
        inner = delta.get("internal_content")
        ids = inner.get("token_ids") if isinstance(inner, dict) else None
        if not isinstance(ids, list) or not ids or any(id.__class__ is not int for id in ids):
            self._sink.hit("delta/token-ids", frame, "an increment has no internal_content.token_ids")
