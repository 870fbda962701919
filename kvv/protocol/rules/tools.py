"""Section: tool calls, as they stream and as they end up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from kvv.core import Area, Frame, Level, Observation, ToolCall
from kvv.protocol.decode import MAX_CALLS
from kvv.protocol.json_text import Lenient, Unparsed, parse, plain
from kvv.protocol.rules.base import (
    BREAKS,
    DIFFERS,
    KVV,
    OPENAI,
    OPENAI_STREAM,
    OPENAI_TOOLS,
    RuleInfo,
    Scope,
    kind_of,
    stream_rule,
)
from kvv.protocol.rules.track import CallTrack, ChoiceTrack, RuleContext

_rule = partial(RuleInfo, area=Area.TOOLS, kind=BREAKS, section="tool calls")
_choice = partial(RuleInfo, area=Area.TOOL_CHOICE, kind=BREAKS, section="tool calls")
_kimi = partial(
    RuleInfo, area=Area.TOOLS, level=Level.SHOULD, kind=DIFFERS, scope=Scope.KIMI_STREAM, section="tool calls"
)
MUST, SHOULD = Level.MUST, Level.SHOULD
RULES = (
    _rule(
        id="tools/shape",
        level=MUST,
        source=OPENAI,
        requirement="`tool_calls` MUST be a list of objects, each with an object `function`.",
    ),
    _rule(
        id="tools/empty-list",
        level=SHOULD,
        kind=DIFFERS,
        causes=("B52",),
        source=OPENAI,
        requirement="A message or delta without tool calls SHOULD leave `tool_calls` out, not send an empty list.",
    ),
    _rule(
        id="tools/index",
        level=MUST,
        causes=("B21",),
        p0=True,
        source=f"{OPENAI_STREAM}; {stream_rule('P0.3', 'P0.13')}",
        requirement="Every tool-call delta MUST carry an integer `index`.",
    ),
    _rule(
        id="tools/index-order",
        level=MUST,
        causes=("B12", "B58"),
        p0=True,
        source=f"{OPENAI_STREAM}; {stream_rule('P0.14')}",
        requirement="Tool-call indexes MUST count 0, 1, 2... within one answer.",
    ),
    _rule(
        id="tools/index-reused",
        level=MUST,
        causes=("B19", "B57"),
        p0=True,
        source=f"{OPENAI_STREAM}; {stream_rule('P0.14')}",
        requirement="A second tool call MUST NOT reuse the index of another.",
    ),
    _rule(
        id="tools/id",
        level=MUST,
        causes=("B57",),
        p0=True,
        source=f"{OPENAI_STREAM}; {stream_rule('P0.13')}",
        requirement="Every tool call MUST carry a non-empty string `id`, in a stream with its first chunk.",
    ),
    _rule(
        id="tools/id-distinct",
        level=MUST,
        causes=("B57",),
        source=OPENAI_TOOLS,
        requirement="The ids of one answer's tool calls MUST be distinct.",
    ),
    _rule(
        id="tools/name",
        level=MUST,
        causes=("B23", "B09"),
        p0=True,
        source=f"{OPENAI_STREAM}; {stream_rule('P0.13')}",
        requirement="Every tool call MUST carry a non-empty function name, in a stream with its first chunk.",
    ),
    _rule(
        id="tools/name-once",
        level=MUST,
        causes=("B22",),
        p0=True,
        source=f"{OPENAI_STREAM}; {stream_rule('P0.3')}",
        requirement="The function name MUST be sent once: clients join its pieces.",
    ),
    _rule(
        id="tools/type",
        level=SHOULD,
        p0=True,
        source=f"{OPENAI}; {stream_rule('P0.13')}",
        requirement="A tool call SHOULD carry type function, in a stream with its first chunk.",
    ),
    _rule(
        id="tools/arguments-type",
        level=MUST,
        source=OPENAI,
        requirement="`function.arguments` MUST be a string.",
    ),
    _rule(
        id="tools/arguments-json",
        level=MUST,
        causes=("B36", "B44", "B58", "I12", "J10"),
        p0=True,
        source=f"{KVV}; {stream_rule('P0.14')}",
        requirement="The joined arguments MUST be JSON text, unless the answer was cut by its length.",
    ),
    _rule(
        id="tools/arguments-object",
        level=MUST,
        causes=("B35",),
        source=f"{KVV}; {OPENAI_TOOLS}",
        requirement="The arguments MUST be a JSON object, not JSON encoded twice.",
    ),
    _rule(
        id="tools/arguments-escaped",
        level=SHOULD,
        kind=DIFFERS,
        causes=("B42",),
        source="https://github.com/vllm-project/vllm/pull/46308; RFC 8259 section 7 calls both forms equal",
        requirement=(
            "Arguments SHOULD carry letters as they are, not as \\u escapes: those cost tokens when they come back as"
            " history."
        ),
    ),
    _rule(
        id="tools/known-name",
        level=SHOULD,
        kind=DIFFERS,
        causes=("B37", "B54"),
        source=KVV,
        requirement="A called function SHOULD be one that the request declares.",
    ),
    _rule(
        id="tools/unrequested",
        level=MUST,
        causes=("B60",),
        source=OPENAI,
        requirement="An answer MUST NOT call tools when the request declares none.",
    ),
    _choice(
        id="tools/choice-none",
        level=MUST,
        causes=("B33",),
        source=OPENAI,
        requirement="With tool_choice none the answer MUST NOT call tools.",
    ),
    _choice(
        id="tools/choice-required",
        level=MUST,
        causes=("B27",),
        scope=Scope.REQUIRED,
        source=f"{OPENAI}; {KVV}",
        requirement="With tool_choice required the answer MUST call a tool, unless it was cut by its length.",
    ),
    _choice(
        id="tools/choice-named",
        level=MUST,
        scope=Scope.NAMED,
        source=OPENAI,
        requirement=(
            "A named tool_choice of a declared function MUST yield a call of it, unless its length cut the answer."
        ),
    ),
    _choice(
        id="tools/serial",
        area=Area.TOOLS,
        level=MUST,
        engine=SHOULD,
        # Moonshot's documentation does not name the parameter
        moonshot=SHOULD,
        causes=("A15",),
        scope=Scope.PARALLEL,
        source=OPENAI_TOOLS,
        requirement="With parallel_tool_calls false the answer MUST call at most one tool.",
    ),
    _kimi(
        id="tools/continuation",
        p0=True,
        source=stream_rule("P0.3"),
        requirement="A continuation chunk SHOULD carry only index and function.arguments.",
    ),
    _kimi(
        id="tools/first-arguments",
        p0=True,
        source=stream_rule("P0.13"),
        requirement='The first chunk of a tool call SHOULD carry arguments "".',
    ),
    _kimi(
        id="tools/arguments-key",
        source=stream_rule("P1.8"),
        requirement="Every tool-call delta SHOULD carry the key `arguments`.",
    ),
    _kimi(
        id="tools/clustered",
        source=stream_rule("P1.9"),
        requirement="The chunks of one tool call SHOULD follow each other.",
    ),
    _rule(
        id="tools/id-form",
        level=SHOULD,
        kind=DIFFERS,
        causes=("B17",),
        scope=Scope.TOOL_ID,
        source=stream_rule("P2"),
        requirement="A tool call's id SHOULD have the form that the model was trained with.",
    ),
)


#: an escape of one UTF-16 unit, its backslash not escaped itself
_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u([0-9a-fA-F]{4})")


class Tools:
    __slots__ = ("_context", "_kimi", "_sink")

    def __init__(self, context: RuleContext) -> None:
        self._context = context
        self._sink = context.sink
        self._kimi = context.sink.on("tools/arguments-key")

    def feed(self, frame: Frame, track: ChoiceTrack, value: object) -> list[tuple[CallTrack, str]]:
        """The non-empty pieces of arguments and the calls they belong to."""
        if value is None:
            return []
        if not isinstance(value, list):
            self._sink.hit("tools/shape", frame, f"tool_calls is {kind_of(value)}, not a list")
            return []
        if not value:
            self._sink.hit("tools/empty-list", frame, "tool_calls is an empty list")
        pieces: list[tuple[CallTrack, str]] = []
        for entry in value:
            if not isinstance(entry, dict) or not isinstance(entry.get("function"), dict):
                self._sink.hit("tools/shape", frame, "a tool call is no object with an object function")
                if not isinstance(entry, dict):
                    continue
            function = entry.get("function")
            function = function if isinstance(function, dict) else {}
            call = self._call(frame, track, entry, function)
            if call is None:
                continue
            arguments = function.get("arguments")
            if arguments.__class__ is str:
                if arguments:
                    pieces.append((call, arguments))
            elif arguments is None and self._context.streamed:
                # beside chunks with text nobody misses it: what the call has in the end decides
                call.null_frame = frame if "arguments" in function else call.null_frame
            elif "arguments" in function:
                self._sink.hit("tools/arguments-type", frame, f"arguments is {kind_of(arguments)}, not a string")
            if self._kimi and self._context.streamed and "arguments" not in function:
                self._sink.hit("tools/arguments-key", frame, "a tool-call delta has no key arguments")
        return pieces

    def _call(
        self, frame: Frame, track: ChoiceTrack, entry: dict[str, Any], function: dict[str, Any]
    ) -> CallTrack | None:
        index = entry.get("index")
        streamed = self._context.streamed
        if index.__class__ is not int:
            if streamed:
                self._sink.hit("tools/index", frame, f"a tool-call delta's index is {kind_of(index)}")
            index = None
        id = entry.get("id")
        call = track.open_calls.get(index)
        if call is not None and streamed and not (isinstance(id, str) and id and call.id and id != call.id):
            self._continuation(frame, track, call, entry, function)
            return call
        if call is not None and streamed and index is not None:
            self._sink.hit(
                "tools/index-reused", frame, f"the call {id!r:.80} has the index {index} of the call {call.id!r:.80}"
            )
        elif streamed and index is not None and index != len(track.open_calls):
            self._sink.hit(
                "tools/index-order", frame, f"a new call has index {index!r:.40}, not {len(track.open_calls)}"
            )
        if len(track.calls) >= MAX_CALLS:
            return None
        return self._begin(frame, track, index, entry, function)

    def _begin(
        self, frame: Frame, track: ChoiceTrack, index: int | None, entry: dict[str, Any], function: dict[str, Any]
    ) -> CallTrack:
        call = CallTrack(index, frame)
        hit = self._sink.hit
        id, name = entry.get("id"), function.get("name")
        if isinstance(id, str) and id:
            call.id = id
            if any(other.id == id for other in track.calls):
                hit("tools/id-distinct", frame, f"two calls have the id {id!r:.80}")
            form = self._context.profile.wire.tool_id
            if form and not re.fullmatch(form, id[:400]):
                hit("tools/id-form", frame, f"the id {id!r:.80} is not of the form {form}")
        else:
            hit("tools/id", frame, f"a tool call begins with id {kind_of(id)}")
        if isinstance(name, str) and name:
            call.named = True
        else:
            hit("tools/name", frame, f"a tool call begins with name {kind_of(name)}")
        if entry.get("type") != "function":
            hit("tools/type", frame, f"a tool call begins with type {kind_of(entry.get('type'))}")
        if self._kimi and self._context.streamed and function.get("arguments") != "":
            hit("tools/first-arguments", frame, "the first chunk of a tool call does not carry empty arguments")
        track.calls.append(call)
        track.open_calls[index] = call
        track.last_call = call
        if not self._context.streamed:
            track.open_calls.clear()
        return call

    def _continuation(
        self, frame: Frame, track: ChoiceTrack, call: CallTrack, entry: dict[str, Any], function: dict[str, Any]
    ) -> None:
        name, id = function.get("name"), entry.get("id")
        if name:
            if call.named:
                self._sink.hit("tools/name-once", frame, f"the name {kind_of(name)} is sent again")
            call.named = True
        if isinstance(id, str) and id and not call.id:
            call.id = id
        if self._kimi:
            extra = [k for k in entry if k not in ("index", "function")] + [k for k in function if k != "arguments"]
            if extra:
                self._sink.hit(
                    "tools/continuation", frame, f"a continuation chunk carries {', '.join(map(str, extra))[:100]}"
                )
            if track.last_call is not call:
                self._sink.hit(
                    "tools/clustered",
                    frame,
                    f"a chunk of call {call.index} comes after call {track.last_call and track.last_call.index}",
                )
        track.last_call = call
        call.last = frame

    def finish(self, observation: Observation, complete: bool) -> None:
        """``complete``: neither a transport fault nor an error object ended the answer."""
        asked = self._context.asked
        names = asked.tools() if any(choice.tool_calls for choice in observation.choices) or asked.tool_choice else None
        for choice in observation.choices:
            track = self._context.choices.get(choice.index)
            if track is None:
                continue
            whole = complete and choice.finish_reason not in ("length", "content_filter")
            for number, call in enumerate(choice.tool_calls):
                frame = track.calls[number].end if number < len(track.calls) else None
                null_frame = track.calls[number].null_frame if number < len(track.calls) else None
                if null_frame is not None and not call.arguments:
                    self._sink.hit("tools/arguments-type", null_frame, "arguments is null, not a string")
                if whole:
                    self._arguments(frame, call, needed=names is None or names.get(call.name or "", True))
                    self._escapes(frame, call)
                if names and call.name and call.name not in names:
                    self._sink.hit(
                        "tools/known-name", frame, f"the function {call.name!r:.120} is not among those declared"
                    )
            self._counts(track, choice.tool_calls, names, whole)

    def _arguments(self, frame: Frame | None, call: ToolCall, *, needed: bool) -> None:
        """``needed``: the function requires an argument. For one that takes none, public APIs do send "" for {}."""
        text = call.arguments
        parsed = parse(text.encode("utf-8", "backslashreplace"))
        if isinstance(parsed, Unparsed) or (isinstance(parsed, Lenient) and parsed.reason == "nan"):
            reason = "empty" if not text else parsed.reason
            cap = None if text or needed else SHOULD
            self._sink.hit(
                "tools/arguments-json",
                frame,
                f"the arguments of {call.name!r:.80} are no JSON ({reason})",
                excerpt=text[-400:],
                cap=cap,
            )
        elif not isinstance(plain(parsed), dict):
            self._sink.hit(
                "tools/arguments-object", frame, f"the arguments of {call.name!r:.80} are no object", excerpt=text[:400]
            )

    def _escapes(self, frame: Frame | None, call: ToolCall) -> None:
        """Every letter beyond ASCII is escaped, though the request shows some as they are: the serialiser's doing, not
        the model's.
        """
        text = call.arguments
        if "\\u" not in text or not text.isascii() or not self._context.asked.shows_letters:
            return
        units = [chr(int(digits, 16)) for digits in _ESCAPE.findall(text)]
        # halves of a surrogate pair stand for letters or pictures; signs that nobody can see are escaped with good
        # reason
        shown = sum(not unit.isascii() and (unit.isprintable() or "\ud800" <= unit <= "\udfff") for unit in units)
        if shown:
            message = f"{shown} characters in the arguments of {call.name!r:.80} are escaped"
            self._sink.hit("tools/arguments-escaped", frame, message, excerpt=text[:400])

    def _counts(
        self, track: ChoiceTrack, calls: tuple[ToolCall, ...], names: Mapping[str, bool] | None, whole: bool
    ) -> None:
        asked, hit = self._context.asked, self._sink.hit
        frame = track.calls[0].frame if track.calls else track.finish_frame
        if calls:
            if names is not None and not names:
                hit("tools/unrequested", frame, f"{len(calls)} tool calls, though the request declares no tools")
            elif asked.tool_choice == "none":
                hit("tools/choice-none", frame, f"{len(calls)} tool calls with tool_choice none")
            if asked.serial_calls and len(calls) > 1:
                hit(
                    "tools/serial",
                    track.calls[-1].frame if track.calls else frame,
                    f"{len(calls)} tool calls with parallel_tool_calls false",
                )
            if (
                asked.tool_choice == "named"
                and asked.named_tool in (names or ())
                and any(call.name != asked.named_tool for call in calls)
            ):
                hit("tools/choice-named", frame, f"another function than {asked.named_tool!r:.80} is called")
        elif whole and names:
            if asked.tool_choice == "required":
                hit("tools/choice-required", frame, "no tool call with tool_choice required")
            elif asked.tool_choice == "named" and asked.named_tool in names:
                hit("tools/choice-named", frame, "no tool call with a named tool_choice")
