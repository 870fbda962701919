"""Section: the envelope of chunks and bodies (id, object, created, model, choices)."""

from __future__ import annotations

from functools import partial
from typing import Any

from kvv.core import Area, Frame, Level, Observation
from kvv.protocol.decode import MAX_CHOICES
from kvv.protocol.rules.base import BREAKS, DIFFERS, OPENAI, OPENAI_STREAM, RuleInfo, Scope, kind_of, stream_rule
from kvv.protocol.rules.track import ChoiceTrack, RuleContext

_rule = partial(RuleInfo, area=Area.STREAMING, kind=BREAKS, section="chunk envelope")
MUST, SHOULD = Level.MUST, Level.SHOULD


def _both(*numbers: str) -> str:
    return f"{OPENAI_STREAM}; {stream_rule(*numbers)}"


RULES = (
    _rule(
        id="chunk/id",
        level=MUST,
        causes=("C14",),
        p0=True,
        source=_both("P0.7"),
        requirement="Every completion object MUST carry a non-empty string `id`.",
    ),
    _rule(
        id="chunk/id-constant",
        level=MUST,
        causes=("C12",),
        source=_both("P1.3"),
        requirement="All chunks of an answer with one choice MUST carry the same `id`.",
    ),
    _rule(
        id="chunk/object",
        level=MUST,
        causes=("C16",),
        p0=True,
        source=_both("P0.7"),
        requirement="`object` MUST be chat.completion.chunk in a stream and chat.completion in a body.",
    ),
    _rule(
        id="chunk/created",
        level=MUST,
        p0=True,
        source=_both("P0.7", "P1.4"),
        requirement="Every completion object MUST carry an integer `created`.",
    ),
    _rule(
        id="chunk/created-constant",
        level=SHOULD,
        kind=DIFFERS,
        causes=("C13",),
        source=_both("P1.3"),
        requirement="All chunks of an answer SHOULD carry the same `created`.",
    ),
    _rule(
        id="chunk/model",
        level=MUST,
        p0=True,
        source=_both("P0.7"),
        requirement="Every completion object MUST carry a non-empty string `model`.",
    ),
    _rule(
        id="chunk/model-constant",
        level=SHOULD,
        kind=DIFFERS,
        source=stream_rule("P1.3", "P1.14"),
        requirement="All chunks of an answer SHOULD name the same `model`.",
    ),
    _rule(
        id="chunk/choices",
        level=MUST,
        causes=("I03",),
        p0=True,
        source=OPENAI,
        requirement="Every completion object MUST carry a list `choices`; in a body it MUST NOT be empty.",
    ),
    _rule(
        id="chunk/empty-choices",
        level=SHOULD,
        causes=("C10",),
        source=_both("P0.8"),
        requirement="A chunk after the first with empty `choices` SHOULD carry usage.",
    ),
    _rule(
        id="chunk/one-choice",
        level=SHOULD,
        kind=DIFFERS,
        scope=Scope.KIMI_STREAM,
        p0=True,
        source=stream_rule("P0.8"),
        requirement="A chunk SHOULD carry exactly one choice, unless it is the usage chunk.",
    ),
    _rule(
        id="chunk/choice-index",
        level=MUST,
        causes=("C15",),
        p0=True,
        source=_both("P0.8"),
        requirement="Every choice MUST carry an integer `index` from 0 to n-1.",
    ),
    _rule(
        id="chunk/delta",
        level=MUST,
        p0=True,
        source=_both("P0.8"),
        requirement="Every choice MUST carry an object: `delta` in a chunk, `message` in a body.",
    ),
    _rule(
        id="chunk/finish-key",
        level=MUST,
        causes=("C09",),
        p0=True,
        source=_both("P0.8"),
        requirement="Every choice MUST carry the key `finish_reason`, null until the end.",
    ),
    _rule(
        id="chunk/message",
        level=SHOULD,
        kind=DIFFERS,
        causes=("C15",),
        source=OPENAI_STREAM,
        requirement="A choice SHOULD NOT carry `message` in a stream nor `delta` in a body.",
    ),
    _rule(
        id="chunk/choice-count",
        level=MUST,
        p0=True,
        source=_both("P0.16"),
        requirement="An answer MUST have `n` choices.",
    ),
)

#: keys by which Azure marks its own frames: filter results come with empty id, object and model, and without a delta
_FILTER_KEYS = ("prompt_filter_results", "prompt_annotations")
_CHOICE_FILTER_KEYS = ("content_filter_results", "content_filter_offsets", "content_filter_result")


class EnvelopeRule:
    __slots__ = ("_context", "_created", "_id", "_model", "_object", "_sink")

    def __init__(self, context: RuleContext) -> None:
        self._context = context
        self._sink = context.sink
        self._id: object = None
        self._created: object = None
        self._model: object = None
        self._object = "chat.completion.chunk"

    def body(self) -> None:
        """What follows is no stream."""
        self._object = "chat.completion"

    def feed(self, frame: Frame, body: dict[str, Any]) -> list[Any] | None:
        """The choices to look into; None when this is not a completion's envelope."""
        choices = body.get("choices")
        ordinary = (
            choices.__class__ is list and len(choices) == 1 and choices[0].__class__ is dict and "delta" in choices[0]
        )
        if not ordinary and self._is_filter_frame(body, choices):
            return None
        id, created, model = body.get("id"), body.get("created"), body.get("model")
        # one comparison while nothing changes; the first frame, and any that differs, goes the long way
        if (
            id != self._id
            or created != self._created
            or model != self._model
            or id is None
            or body.get("object") != self._object
        ):
            self._identify(frame, body, id, created, model)
        context = self._context
        context.objects += 1
        if not ordinary:
            if not isinstance(choices, list):
                self._sink.hit("chunk/choices", frame, f"choices is {kind_of(choices)}, not a list")
                return None
            if len(choices) != 1:
                self._several(frame, body, choices)
        return choices

    def choice(self, frame: Frame, choice: dict[str, Any], place: str) -> ChoiceTrack:
        """The choice's track; checks what stands around its ``place`` (delta or message)."""
        context = self._context
        index = choice.get("index")
        if index.__class__ is not int or not 0 <= index < context.asked.n:
            self._sink.hit(
                "chunk/choice-index", frame, f"a choice's index is {index!r:.80}, with n = {context.asked.n}"
            )
            # one choice is meant where one was asked for; what it lacks at the end is then the index's fault
            context.misplaced = True
            index = 0 if context.asked.n == 1 else index if index.__class__ is int else None
        track = context.choices.get(index)
        if track is None:
            track = ChoiceTrack(index)
            if len(context.choices) < MAX_CHOICES:
                context.choices[index] = track
        if "finish_reason" not in choice:
            self._sink.hit("chunk/finish-key", frame, "a choice has no key finish_reason")
        other = "message" if place == "delta" else "delta"
        if choice.get(other) is not None:
            self._sink.hit("chunk/message", frame, f"a choice carries {other!r}")
        if choice.get(place).__class__ is not dict:
            self._sink.hit("chunk/delta", frame, f"a choice's {place} is {kind_of(choice.get(place))}, not an object")
        return track

    def finish(self, observation: Observation, complete: bool) -> None:
        context = self._context
        seen = sum(1 for index in context.choices if index is not None)
        if complete and context.objects and seen < context.asked.n and context.asked.n > 1:
            self._sink.hit("chunk/choice-count", context.last_frame, f"{seen} choices came, n was {context.asked.n}")

    def _identify(self, frame: Frame, body: dict[str, Any], id: object, created: object, model: object) -> None:
        hit = self._sink.hit
        if not isinstance(id, str) or not id:
            hit("chunk/id", frame, f"id is {kind_of(id)}")
        elif self._id is None:
            self._id = id
        elif id != self._id and self._context.asked.n == 1:
            hit("chunk/id-constant", frame, f"id is {id!r:.80}, it was {self._id!r:.80}")
        if body.get("object") != self._object:
            hit("chunk/object", frame, f"object is {body.get('object')!r:.80}, not {self._object}")
        if not isinstance(created, int) or isinstance(created, bool):
            hit("chunk/created", frame, f"created is {kind_of(created)}, not an integer")
        elif self._created is None:
            self._created = created
        elif created != self._created:
            hit("chunk/created-constant", frame, f"created is {created}, it was {self._created}")
        if not isinstance(model, str) or not model:
            hit("chunk/model", frame, f"model is {kind_of(model)}")
        elif self._model is None:
            self._model = model
        elif model != self._model:
            hit("chunk/model-constant", frame, f"model is {model!r:.80}, it was {self._model!r:.80}")

    def _several(self, frame: Frame, body: dict[str, Any], choices: list[Any]) -> None:
        context = self._context
        if choices:
            if context.streamed:
                self._sink.hit("chunk/one-choice", frame, f"a chunk carries {len(choices)} choices")
        elif not context.streamed:
            self._sink.hit("chunk/choices", frame, "the body's choices are empty")
        elif not isinstance(body.get("usage"), dict):
            self._sink.hit("chunk/one-choice", frame, "a chunk without usage carries no choice")
            if context.objects > 1:
                self._sink.hit("chunk/empty-choices", frame, "a chunk has neither a choice nor usage")

    @staticmethod
    def _is_filter_frame(body: dict[str, Any], choices: object) -> bool:
        if not isinstance(choices, list):
            return False
        if not choices:
            return any(key in body for key in _FILTER_KEYS)
        first = choices[0]
        return (
            "delta" not in first and any(key in first for key in _CHOICE_FILTER_KEYS)
            if isinstance(first, dict)
            else False
        )
