"""Section: log probabilities."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from kvv.core import Area, Frame, Level, Observation
from kvv.protocol.rules.base import BREAKS, DIFFERS, OPENAI, RuleInfo, Scope, kind_of, stream_rule
from kvv.protocol.rules.track import ChoiceTrack, RuleContext

_rule = partial(RuleInfo, area=Area.DECODING, kind=BREAKS, section="logprobs")
RULES = (
    _rule(
        id="logprobs/present",
        level=Level.MUST,
        causes=("A16",),
        scope=Scope.LOGPROBS,
        source=f"{OPENAI}; {stream_rule('P1.17')}",
        requirement="With logprobs true an answer with text MUST carry choices[].logprobs.content.",
    ),
    _rule(
        id="logprobs/shape",
        level=Level.MUST,
        source=f"{OPENAI}; {stream_rule('P1.17')}",
        requirement=(
            "Each entry of logprobs.content MUST have a string token, a finite logprob not above 0, and a list"
            " top_logprobs."
        ),
    ),
    _rule(
        id="logprobs/coverage",
        level=Level.SHOULD,
        kind=DIFFERS,
        causes=("A16",),
        scope=Scope.LOGPROBS,
        source=OPENAI,
        requirement="Every chunk with content SHOULD carry logprobs when some do.",
    ),
    _rule(
        id="logprobs/first-chunk",
        level=Level.SHOULD,
        kind=DIFFERS,
        scope=Scope.KIMI_STREAM,
        source=stream_rule("P1.17"),
        requirement="The first chunk of a choice SHOULD NOT carry logprobs.",
    ),
)

#: engines round: a probability of one may come as a logprob a hair above 0
_ROUNDING = 1e-3


class Logprobs:
    __slots__ = ("_bare", "_bare_frame", "_context", "_sink")

    def __init__(self, context: RuleContext) -> None:
        self._context = context
        self._sink = context.sink
        self._bare = 0
        self._bare_frame: Frame | None = None

    def feed(self, frame: Frame, track: ChoiceTrack, logprobs: object, content: str) -> None:
        """Called where logprobs are not null, and for every choice when the request asked for them."""
        entries = logprobs.get("content") if isinstance(logprobs, dict) else None
        if logprobs is not None:
            if not isinstance(logprobs, dict) or not isinstance(entries, list | None):
                self._sink.hit("logprobs/shape", frame, f"logprobs is {kind_of(logprobs)}")
                return
            for entry in entries or ():
                wrong = _wrong(entry)
                if wrong:
                    self._sink.hit("logprobs/shape", frame, wrong)
                    break
        if entries:
            track.logprobs += len(entries)
            if track.deltas == 1 and self._context.streamed and not content:
                self._sink.hit("logprobs/first-chunk", frame, "the first chunk carries logprobs")
        elif content:
            self._bare += 1
            self._bare_frame = self._bare_frame or frame

    def finish(self, observation: Observation, complete: bool) -> None:
        if not self._context.asked.logprobs or not complete:
            return
        for choice in observation.choices:
            track = self._context.choices.get(choice.index)
            if choice.answer and track is not None and not track.logprobs:
                self._sink.hit(
                    "logprobs/present", track.finish_frame, "no logprobs came, though the request asked for them"
                )
                return
        if self._bare and self._context.streamed:
            self._sink.hit("logprobs/coverage", self._bare_frame, f"{self._bare} chunks with content carry no logprobs")


def _wrong(entry: Any) -> str:
    """What is wrong with one entry, "" when nothing is."""
    if not isinstance(entry, dict) or not isinstance(entry.get("token"), str):
        return "an entry has no string token"
    value = entry.get("logprob")
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value > _ROUNDING:
        return f"a logprob is {kind_of(value)}"
    if not isinstance(entry.get("top_logprobs"), list):
        return f"top_logprobs is {kind_of(entry.get('top_logprobs'))}"
    return ""
