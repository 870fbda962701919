"""Section: response_format, as far as no schema is needed to judge it."""

from __future__ import annotations

from functools import partial

from kvv.core import Area, Level, Observation
from kvv.protocol.json_text import Lenient, Unparsed, parse
from kvv.protocol.rules.base import BREAKS, OPENAI, RuleInfo, Scope
from kvv.protocol.rules.track import RuleContext

_rule = partial(RuleInfo, area=Area.RESPONSE_FORMAT, kind=BREAKS, section="response format")
RULES = (
    _rule(
        id="format/json",
        level=Level.MUST,
        causes=("E01", "E02", "E05", "E09"),
        scope=Scope.JSON_OBJECT,
        source=OPENAI,
        requirement=(
            "With response_format json_object or json_schema the whole content of a finished answer MUST be JSON text."
        ),
    ),
)


class Formats:
    __slots__ = ("_context", "_sink")

    def __init__(self, context: RuleContext) -> None:
        self._context = context
        self._sink = context.sink

    def finish(self, observation: Observation, complete: bool) -> None:
        if not self._context.asked.json_format or not complete:
            return
        for choice in observation.choices:
            track = self._context.choices.get(choice.index)
            if choice.finish_reason != "stop" or choice.tool_calls or choice.refusal or track is None:
                continue
            text = choice.answer or ""
            parsed = parse(text.encode("utf-8", "backslashreplace"), depth=1_000)
            if (isinstance(parsed, Unparsed) and parsed.reason in ("empty", "syntax")) or (
                isinstance(parsed, Lenient) and parsed.reason == "nan"
            ):
                what = "empty" if not text.strip() else "no JSON"
                self._sink.hit("format/json", track.finish_frame, f"the content is {what}", excerpt=text[:300])
