"""Frames to an observation, with nothing repaired.

Two places need a choice where clients differ, and both are recorded as a deviation: a tool-call delta whose
non-empty id differs from the one its index had before starts a new call (a merging client would garble two
calls), and pieces of a name are joined as the OpenAI client libraries join them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from kvv.core import Choice, ErrorBody, Frame, Observation, Shape, ToolCall, UsageReport
from kvv.protocol.error_body import read_error
from kvv.protocol.json_text import DONE, Unparsed, parse, plain

REASONING_FIELDS = ("reasoning_content", "reasoning")
#: choices and calls beyond these are counted as deviations and dropped: an index is hostile input
MAX_CHOICES = 256
MAX_CALLS = 4_096
_RANK = {
    shape: rank
    for rank, shape in enumerate((Shape.EMPTY, Shape.NOT_JSON, Shape.OTHER_JSON, Shape.ERROR, Shape.COMPLETION))
}


class _Text:
    """Joined text with bounded overhead: pieces are folded into blocks."""

    __slots__ = ("blocks", "pieces")

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.pieces: list[str] = []

    def fold(self) -> None:
        if self.pieces:
            self.blocks.append("".join(self.pieces))
            self.pieces.clear()

    def value(self) -> str:
        return "".join(self.blocks) + "".join(self.pieces)

    def __bool__(self) -> bool:
        return any(self.blocks) or any(self.pieces)


class _Call:
    __slots__ = ("arguments", "id", "index", "name", "type")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id: str | None = None
        self.name: str | None = None
        self.type: str | None = None
        self.arguments = _Text()

    def build(self) -> ToolCall:
        return ToolCall(index=self.index, id=self.id, name=self.name, type=self.type, arguments=self.arguments.value())


class _Choice:
    __slots__ = (
        "answer",
        "calls",
        "finish_reason",
        "index",
        "logprobs",
        "open_calls",
        "reasoning",
        "reasoning_field",
        "refusal",
        "role",
    )

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.role: str | None = None
        self.answer: _Text | None = None
        self.reasoning: _Text | None = None
        self.reasoning_field: str | None = None
        self.refusal: _Text | None = None
        self.calls: list[_Call] = []
        self.open_calls: dict[int | None, _Call] = {}
        self.finish_reason: str | None = None
        self.logprobs = 0

    def build(self) -> Choice:
        return Choice(
            index=self.index,
            role=self.role,
            answer=None if self.answer is None else self.answer.value(),
            reasoning=None if self.reasoning is None else self.reasoning.value(),
            reasoning_field=self.reasoning_field,
            tool_calls=tuple(call.build() for call in self.calls),
            finish_reason=self.finish_reason,
            logprobs=self.logprobs,
            refusal=None if self.refusal is None else self.refusal.value(),
        )


def _says(choice: object) -> bool:
    """Whether a choice holds a message or a piece of one, be it empty."""
    return isinstance(choice, dict) and (
        isinstance(choice.get("delta"), dict) or isinstance(choice.get("message"), dict)
    )


class Decoder:
    """A fold from frames to one ``Observation``; repairs nothing and never raises.

    ``increments`` counts frames that brought text, ``characters`` the text held. After ``feed``, ``steady`` names
    the field and the list its text went to when the frame was nothing but one piece of text in a known place:
    frames equal to it but for that piece may then be appended there directly.
    """

    __slots__ = (
        "_choices",
        "_deviations",
        "_error",
        "_id",
        "_in_stream",
        "_model",
        "_shape",
        "_usage",
        "characters",
        "chosen",
        "done",
        "finished",
        "increments",
        "provider",
        "steady",
        "system_fingerprint",
    )

    def __init__(self) -> None:
        self._choices: dict[int | None, _Choice] = {}
        self._deviations: dict[str, None] = {}
        self._usage: dict[str, list[UsageReport]] = {}
        self._error: ErrorBody | None = None
        self._shape = Shape.EMPTY
        self._id: str | None = None
        self._model: str | None = None
        self._in_stream = True
        self.provider: str | None = None
        self.system_fingerprint: str | None = None
        self.done = False
        self.finished = False
        self.increments = 0
        self.characters = 0
        #: objects that held a choice
        self.chosen = 0
        self.steady: tuple[str, list[str]] | None = None

    def feed(self, frame: Frame, parsed: object) -> None:
        """Take one event, or the whole body when ``frame.event`` is "body"."""
        self.steady = None
        self._in_stream = frame.event != "body"
        value = plain(parsed)
        if value is DONE:
            self.done = True
        elif isinstance(value, Unparsed):
            self._unparsed(value)
        elif isinstance(value, dict):
            self._object(value, frame)
        else:
            self._deviate("not-an-object")
            self._seen(Shape.OTHER_JSON)

    def header_usage(self, raw: Mapping[str, Any]) -> None:
        """Usage counts that came as response headers."""
        self._usage["header"] = [UsageReport(place="header", frame=0, raw=raw)]

    def fold(self) -> None:
        """Join small pieces of text, so that a long stream costs its text and no more."""
        for choice in self._choices.values():
            for text in (choice.answer, choice.reasoning):
                if text is not None:
                    text.fold()
            if choice.calls:
                choice.calls[-1].arguments.fold()

    def finish(self) -> Observation:
        return Observation(
            shape=self._shape,
            choices=tuple(choice.build() for choice in self._choices.values()),
            usage=tuple(report for reports in self._usage.values() for report in reports),
            error=self._error,
            done=self.done,
            id=self._id,
            model=self._model,
            deviations=tuple(self._deviations),
        )

    def _deviate(self, code: str) -> None:
        self._deviations[code] = None

    def _seen(self, shape: Shape) -> None:
        """A completion outranks an error, an error other JSON, other JSON what is no JSON."""
        if shape is not self._shape and _RANK[shape] > _RANK[self._shape]:
            self._shape = shape

    def _unparsed(self, value: Unparsed) -> None:
        if value.reason != "empty" or self._in_stream:
            self._deviate(f"json-{value.reason}")
            self._seen(Shape.NOT_JSON)

    def _object(self, body: dict[str, Any], frame: Frame) -> None:
        choices = body.get("choices")
        error = body.get("error")
        if error is not None and error != "" and error is not False:
            self._error = self._error or read_error(body)
            self._seen(Shape.ERROR)
        elif choices is None and (found := read_error(body)) is not None:
            self._error = self._error or found
            self._seen(Shape.ERROR)
        self._envelope(body)
        before, usages = self.characters, len(self._usage)
        usage = body.get("usage")
        if isinstance(usage, dict):
            self._report("body" if not self._in_stream else "chunk" if choices else "summary", frame, usage)
        elif usage is not None:
            self._deviate("usage-not-an-object")
        if not isinstance(choices, list):
            if choices is not None:
                self._deviate("choices-not-a-list")
            self._seen(Shape.OTHER_JSON)
            return
        # an empty list is legal in a stream's first and last frame; an answer that never holds more is no completion
        self._seen(Shape.COMPLETION if any(map(_says, choices)) else Shape.OTHER_JSON)
        self.chosen += bool(choices)
        for choice in choices:
            if isinstance(choice, dict):
                self._choice(choice, frame)
            else:
                self._deviate("choice-not-an-object")
        if self.characters != before:
            self.increments += 1
        if self.steady is not None and (
            len(choices) != 1 or error is not None or usage is not None or len(self._usage) != usages
        ):
            self.steady = None

    def _envelope(self, body: dict[str, Any]) -> None:
        if self._id is None and isinstance(body.get("id"), str):
            self._id = body["id"][:400]
        if self._model is None and isinstance(body.get("model"), str) and body["model"]:
            self._model = body["model"][:400]
        if self.system_fingerprint is None and isinstance(body.get("system_fingerprint"), str):
            self.system_fingerprint = body["system_fingerprint"][:400]
        if self.provider is None and isinstance(body.get("provider"), str):
            self.provider = body["provider"][:400]

    def _report(self, place: str, frame: Frame, raw: dict[str, Any]) -> None:
        """Per-chunk usage may come thousands of times: the last counts. Repeats elsewhere are kept, a few."""
        kept = self._usage.setdefault(place, [])
        if place in ("chunk", "choice") and kept:
            kept.pop()
        if len(kept) < 4:
            kept.append(UsageReport(place=place, frame=frame.number, raw=raw))

    def _choice(self, raw: dict[str, Any], frame: Frame) -> None:
        index = raw.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            self._deviate("choice-index-missing")
            index = None
        choice = self._choices.get(index)
        if choice is None:
            if len(self._choices) >= MAX_CHOICES:
                self._deviate("too-many-choices")
                return
            choice = self._choices[index] = _Choice(index)
        here, other = ("delta", "message") if self._in_stream else ("message", "delta")
        delta = raw.get(here)
        if raw.get(other) is not None:
            self._deviate(f"{other}-beside-{here}" if delta is not None else f"{other}-for-{here}")
        if isinstance(delta, dict):
            self._delta(choice, delta)
        elif delta is not None:
            self._deviate(f"{here}-not-an-object")
        self._ending(choice, raw, frame)

    def _ending(self, choice: _Choice, raw: dict[str, Any], frame: Frame) -> None:
        reason = raw.get("finish_reason")
        if reason is not None:
            self.steady = None
            if not isinstance(reason, str):
                self._deviate("finish-reason-not-a-string")
            elif choice.finish_reason is None:
                choice.finish_reason = reason[:200]
                self.finished = True
            else:
                self._deviate("finish-reason-repeated")
        usage = raw.get("usage")
        if usage is not None:
            self.steady = None
            if isinstance(usage, dict):
                self._report("choice", frame, usage)
            else:
                self._deviate("usage-not-an-object")
        logprobs = raw.get("logprobs")
        if logprobs is not None:
            self.steady = None
            content = logprobs.get("content") if isinstance(logprobs, dict) else None
            choice.logprobs += len(content) if isinstance(content, list) else 0

    def _delta(self, choice: _Choice, delta: dict[str, Any]) -> None:
        steady: tuple[str, list[str]] | None = None
        parts = 0
        for key, value in delta.items():
            if value is None:
                continue
            parts += 1
            if key == "content":
                if isinstance(value, str):
                    if choice.answer is None:
                        choice.answer = _Text()
                    choice.answer.pieces.append(value)
                    self.characters += len(value)
                    steady = (key, choice.answer.pieces) if value else None
                else:
                    self._deviate("content-not-a-string")
            elif key in REASONING_FIELDS:
                text = self._reasoning(choice, key, value)
                steady = (key, text.pieces) if text is not None and value else None
            elif key == "tool_calls":
                steady = self._tool_calls(choice, value)
            elif key == "role":
                if isinstance(value, str):
                    choice.role = choice.role or value[:200]
                else:
                    self._deviate("role-not-a-string")
            elif key == "refusal" and isinstance(value, str):
                choice.refusal = choice.refusal or _Text()
                choice.refusal.pieces.append(value)
                self.characters += len(value)
        if parts == 1:
            self.steady = steady

    def _reasoning(self, choice: _Choice, field: str, value: object) -> _Text | None:
        """The first field that carried text is the reasoning; the same text under a second name is dropped."""
        if not isinstance(value, str):
            if field == "reasoning_content" or not isinstance(value, dict | list):
                self._deviate("reasoning-not-a-string")
            return None
        if choice.reasoning is None or (choice.reasoning_field != field and value and not choice.reasoning):
            choice.reasoning = choice.reasoning or _Text()
            choice.reasoning_field = field
        elif choice.reasoning_field != field:
            if value:
                self._deviate("two-reasoning-fields")
            return None
        choice.reasoning.pieces.append(value)
        self.characters += len(value)
        return choice.reasoning

    def _tool_calls(self, choice: _Choice, value: object) -> tuple[str, list[str]] | None:
        if not isinstance(value, list):
            self._deviate("tool-calls-not-a-list")
            return None
        steady: tuple[str, list[str]] | None = None
        for entry in value:
            if isinstance(entry, dict):
                steady = self._tool_call(choice, entry)
            else:
                self._deviate("tool-call-not-an-object")
        return steady if len(value) == 1 else None

    def _tool_call(self, choice: _Choice, entry: dict[str, Any]) -> tuple[str, list[str]] | None:
        index = entry.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            if self._in_stream:
                self._deviate("tool-index-missing")
            index = None
        call_id = entry.get("id")
        call_id = call_id if isinstance(call_id, str) else None
        call = choice.open_calls.get(index)
        if call is not None and call_id and call.id and call_id != call.id and index is not None:
            self._deviate("tool-index-reused")
        if call is None or (not self._in_stream) or (call_id and call.id and call_id != call.id):
            if len(choice.calls) >= MAX_CALLS:
                self._deviate("too-many-calls")
                return None
            if choice.calls:
                choice.calls[-1].arguments.fold()
            call = choice.open_calls[index] = _Call(index)
            choice.calls.append(call)
        call.id = call.id or (call_id if call_id is None else call_id[:400])
        if isinstance(entry.get("type"), str):
            call.type = call.type or entry["type"][:200]
        if not self._in_stream and index is None:
            choice.open_calls.clear()
        function = entry.get("function")
        if not isinstance(function, dict):
            if function is not None:
                self._deviate("function-not-an-object")
            return None
        return self._function(
            call, function, alone=all(v is None for k, v in entry.items() if k not in ("index", "function"))
        )

    def _function(self, call: _Call, function: dict[str, Any], *, alone: bool) -> tuple[str, list[str]] | None:
        name = function.get("name")
        if isinstance(name, str):
            call.name = ((call.name or "") + name)[:4_000]
            self.characters += len(name)
        elif name is not None:
            self._deviate("function-name-not-a-string")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.arguments.pieces.append(arguments)
            self.characters += len(arguments)
            if arguments and alone and all(v is None for k, v in function.items() if k != "arguments"):
                return "arguments", call.arguments.pieces
        elif arguments is not None:
            self._deviate("arguments-not-a-string")
            try:
                call.arguments.pieces.append(orjson.dumps(arguments).decode())
            except TypeError:
                # lone surrogates inside: nobody could have sent them on
                call.arguments.pieces.append("null")
        return None


def decode_body(data: bytes, depth: int = 200) -> Observation:
    """The observation of an answer that is no event stream."""
    decoder = Decoder()
    decoder.feed(Frame(1, 0.0, data, "body"), parse(data, depth))
    return decoder.finish()
