"""Section: finish_reason, stop strings and the output cap."""

from __future__ import annotations

from functools import partial

from kvv.core import Area, Frame, Level, Observation
from kvv.protocol.rules.base import BREAKS, DIFFERS, KVV, OPENAI, OPENAI_STREAM, RuleInfo, kind_of, stream_rule
from kvv.protocol.rules.track import ChoiceTrack, RuleContext

_rule = partial(RuleInfo, area=Area.STREAMING, kind=BREAKS, section="finish")
MUST, SHOULD = Level.MUST, Level.SHOULD
RULES = (
    _rule(
        id="finish/known",
        level=MUST,
        p0=True,
        source=f"{OPENAI}; {stream_rule('P0.15')}",
        requirement=(
            "finish_reason MUST be one of stop, length, tool_calls, content_filter and those the profile names."
        ),
    ),
    _rule(
        id="finish/extended",
        area=Area.AVAILABILITY,
        level=SHOULD,
        kind=DIFFERS,
        source=stream_rule("P0.15", "P1.13"),
        requirement="An answer SHOULD end with a plain finish_reason: an extended one says that it ended abnormally.",
    ),
    _rule(
        id="finish/missing",
        level=MUST,
        p0=True,
        source=f"{OPENAI}; {stream_rule('P1.11')}",
        requirement="Every choice of an answer that ends properly MUST have a finish_reason.",
    ),
    _rule(
        id="finish/once",
        level=MUST,
        source=f"{OPENAI_STREAM}; {stream_rule('P1.11')}",
        requirement="finish_reason MUST be set exactly once per choice.",
    ),
    _rule(
        id="finish/nothing-after",
        level=MUST,
        source=f"{OPENAI_STREAM}; {stream_rule('P1.11')}",
        requirement="After its finish_reason a choice MUST NOT carry text or tool calls.",
    ),
    _rule(
        id="finish/tool-calls",
        area=Area.TOOLS,
        level=MUST,
        causes=("B24", "B25", "B26"),
        source=f"{OPENAI}; {KVV}",
        requirement="An answer with tool calls MUST finish with tool_calls; stop is legal for a named tool_choice.",
    ),
    _rule(
        id="finish/calls-missing",
        area=Area.TOOLS,
        level=MUST,
        causes=("B05", "B27", "B60"),
        source=f"{OPENAI}; {KVV}",
        requirement="finish_reason tool_calls MUST NOT come without tool calls.",
    ),
    _rule(
        id="finish/at-cap",
        level=SHOULD,
        kind=DIFFERS,
        causes=("H07",),
        source=OPENAI,
        requirement="An answer as long as max_tokens SHOULD finish with length.",
    ),
    _rule(
        id="finish/over-cap",
        area=Area.USAGE,
        level=SHOULD,
        kind=DIFFERS,
        causes=("A19",),
        source=OPENAI,
        requirement="completion_tokens SHOULD NOT exceed max_tokens.",
    ),
    _rule(
        id="finish/stop-string",
        area=Area.DECODING,
        level=MUST,
        causes=("A14",),
        source=f"{OPENAI}; {stream_rule('P1.1')}",
        requirement="The answer MUST NOT contain a stop string of the request.",
    ),
)

#: OpenAI's own for the deprecated field functions
_LEGACY = "function_call"


class Finishes:
    __slots__ = ("_context", "_extended", "_known", "_sink")

    def __init__(self, context: RuleContext) -> None:
        self._context = context
        self._sink = context.sink
        wire = context.profile.wire
        self._known = wire.finish_reasons
        self._extended = wire.extended_finish_reasons

    def feed(self, frame: Frame, track: ChoiceTrack, reason: object, carries: bool) -> None:
        """Called for a choice whose finish_reason is not null, and for every choice that already had one."""
        if track.finishes and carries:
            self._sink.hit("finish/nothing-after", frame, "text or a tool call comes after finish_reason")
        if reason is None:
            return
        track.finishes += 1
        if track.finishes > 1:
            self._sink.hit("finish/once", frame, f"finish_reason comes again: {kind_of(reason)}")
            return
        track.finish, track.finish_frame = reason, frame
        self._context.finished += 1
        if not isinstance(reason, str) or (
            reason not in self._known and reason not in self._extended and reason != _LEGACY
        ):
            self._sink.hit("finish/known", frame, f"finish_reason is {kind_of(reason)}")
        elif reason in self._extended:
            self._sink.hit("finish/extended", frame, f"finish_reason is {reason!r}")

    def finish(self, observation: Observation, complete: bool) -> None:
        for choice in observation.choices:
            track = self._context.choices.get(choice.index)
            if track is None:
                continue
            if choice.finish_reason is None:
                if complete and not track.finishes:
                    self._sink.hit(
                        "finish/missing", self._context.last_frame, "the answer ends without a finish_reason"
                    )
                continue
            self._consistent(track, choice.finish_reason, bool(choice.tool_calls))
            self._stops(track, choice.answer or "")
        self._cap(observation)

    def _consistent(self, track: ChoiceTrack, reason: str, calls: bool) -> None:
        asked = self._context.asked
        frame = track.finish_frame
        if reason == "tool_calls" and not calls:
            self._sink.hit("finish/calls-missing", frame, "finish_reason is tool_calls and there is no tool call")
        elif calls and reason == "stop" and asked.tool_choice != "named":
            # OpenAI itself answers stop to some forced calls; only the Kimi contract rules that out
            forced = asked.tool_choice == "required" and "moonshot" not in self._context.profile.claims.contracts
            self._sink.hit(
                "finish/tool-calls", frame, "finish_reason is stop after tool calls", cap=SHOULD if forced else None
            )

    def _stops(self, track: ChoiceTrack, answer: str) -> None:
        for stop in self._context.asked.stops:
            at = answer.find(stop)
            if at >= 0:
                around = answer[max(0, at - 40) : at + 80]
                self._sink.hit(
                    "finish/stop-string",
                    track.finish_frame,
                    f"the answer shows the stop string {stop!r:.80}",
                    excerpt=around,
                )
                return

    def _cap(self, observation: Observation) -> None:
        cap, spent = self._context.asked.cap, observation.tokens("completion_tokens")
        if cap is None or spent is None or len(observation.choices) != 1:
            return
        frame = next(iter(self._context.choices.values())).finish_frame if self._context.choices else None
        if spent > cap:
            self._sink.hit("finish/over-cap", frame, f"{spent} completion tokens, max_tokens was {cap}")
        elif spent == cap and observation.finish_reason == "stop":
            self._sink.hit("finish/at-cap", frame, f"all {cap} tokens were used and finish_reason is stop")
