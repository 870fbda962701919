"""Section: errors, inside and outside a 200."""

from __future__ import annotations

from functools import partial

from kvv.core import Area, ErrorBody, Frame, Level, Observation, Shape
from kvv.protocol.rules.base import BREAKS, DIFFERS, OPENAI, RuleInfo, Scope, stream_rule
from kvv.protocol.rules.track import RuleContext

_rule = partial(RuleInfo, area=Area.ERRORS, kind=BREAKS, section="errors")
_SHAPE = "{error: {message, type}}"
RULES = (
    _rule(
        id="errors/in-200",
        level=Level.MUST,
        causes=("C23", "I02"),
        p0=True,
        source=f"{OPENAI}; {stream_rule('P0.17', 'P1.16')}",
        requirement=(
            "A request that fails before its first token MUST be answered with an error status, not with 200 and an"
            " error object."
        ),
    ),
    _rule(
        id="errors/after-content",
        level=Level.SHOULD,
        causes=("I05", "I07"),
        source=stream_rule("P1.16"),
        requirement="A stream that has begun SHOULD NOT end in an error event.",
    ),
    _rule(
        id="errors/envelope",
        level=Level.SHOULD,
        kind=DIFFERS,
        scope=Scope.KIMI_STREAM,
        p0=True,
        source=f"{OPENAI}; {stream_rule('P0.17')}",
        requirement=f"The body of a refusal SHOULD be {_SHAPE}.",
    ),
    _rule(
        id="errors/json",
        level=Level.SHOULD,
        causes=("I08",),
        p0=True,
        source=f"{OPENAI}; {stream_rule('P0.17')}",
        requirement="The body of a 400, 404, 422 or 429 SHOULD be one JSON object, not an event stream and not HTML.",
    ),
    _rule(
        id="errors/message",
        level=Level.SHOULD,
        causes=("E06", "I04"),
        source=OPENAI,
        requirement="An error object SHOULD carry a message that is not empty.",
    ),
)

_REFUSALS = frozenset({400, 404, 422, 429})


class Errors:
    __slots__ = ("_context", "_sink")

    def __init__(self, context: RuleContext) -> None:
        self._context = context
        self._sink = context.sink

    def in_200(self, frame: Frame) -> None:
        """A frame or body with an error object where the status is 200."""
        context = self._context
        context.error_frame = context.error_frame or frame
        begun = any(track.phase or track.finishes for track in context.choices.values())
        rule = "errors/after-content" if begun else "errors/in-200"
        self._sink.hit(
            rule,
            frame,
            "an error event ends a stream that had begun" if begun else "an error object comes with status 200",
        )

    def finish(self, observation: Observation) -> None:
        status, error = self._context.status, observation.error
        if error is not None and not error.message.strip():
            self._sink.hit("errors/message", self._frame(), "the error's message is empty")
        if status not in _REFUSALS:
            return
        if not self._context.streamed and observation.shape in (Shape.NOT_JSON, Shape.OTHER_JSON) and error is None:
            self._sink.hit("errors/json", self._frame(), f"the body of a {status} is {observation.shape}")
        elif self._context.streamed and self._context.first_frame is not None:
            self._sink.hit("errors/json", self._frame(), f"a {status} is an event stream")
        elif error is not None and not _enveloped(error):
            self._sink.hit("errors/envelope", self._frame(), f"the error body is not {_SHAPE}")

    def _frame(self) -> Frame | None:
        return self._context.error_frame or self._context.body_frame or self._context.first_frame


def _enveloped(error: ErrorBody) -> bool:
    return error.envelope and error.type is not None
