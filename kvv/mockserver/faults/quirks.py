"""Correct but unusual behaviour, which no verifier may call a fault."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from kvv.mockserver.config import JsonObject
from kvv.mockserver.errors import ApiError, error_body
from kvv.mockserver.faults.edits import delta, each_frame, map_parts, reasoning_key, tool_delta
from kvv.mockserver.faults.model import Area, Frames, Respond, ServerFault, Turn
from kvv.mockserver.wire import HttpReply, Part, Wait, json_reply, with_header

SLOW_FIRST_TOKEN_S = 1.0
_CLOSE_AFTER = 100


def _comments(_turn: Turn, reply: HttpReply) -> HttpReply:
    def edit(data: bytes, number: int) -> list[Part]:
        return [b": keep-alive\n\n", data] if number % 3 == 0 else [data]

    return map_parts(reply, edit) if reply.streamed else reply


def _crlf(_turn: Turn, reply: HttpReply) -> HttpReply:
    return map_parts(reply, lambda data, _number: [data.replace(b"\n", b"\r\n")]) if reply.streamed else reply


def _split(_turn: Turn, reply: HttpReply) -> HttpReply:
    def edit(data: bytes, number: int) -> list[Part]:
        at = 1 + (number * 7) % max(1, len(data) - 1)
        return [data[:at], Wait(0), data[at:], Wait(0)]

    return map_parts(reply, edit) if reply.streamed else reply


def _merged(_turn: Turn, reply: HttpReply) -> HttpReply:
    def parts() -> Iterator[Part]:
        held: list[bytes] = []
        for part in reply.parts:
            if isinstance(part, bytes):
                held.append(part)
            if len(held) == 5:
                yield b"".join(held)
                yield Wait(0)
                held.clear()
        yield b"".join(held)

    return replace(reply, parts=parts()) if reply.streamed else reply


def _null_deltas(_turn: Turn, frame: JsonObject) -> JsonObject:
    for choice in frame["choices"]:
        if choice["delta"]:
            for name in ("content", "tool_calls", "refusal", "function_call"):
                choice["delta"].setdefault(name, None)
    return frame


def _extra_in_frame(_turn: Turn, frame: JsonObject) -> JsonObject:
    for choice in frame["choices"]:
        choice["x_choice"] = {"note": "extra"}
        choice["delta"]["x_delta"] = 1
    return {**frame, "x_provider": {"name": "reference", "region": None}}


def _extra_in_message(_turn: Turn, body: JsonObject) -> JsonObject:
    for choice in body["choices"]:
        choice["x_choice"] = {"note": "extra"}
        choice["message"]["x_message"] = 1
    return {**body, "x_provider": {"name": "reference", "region": None}}


def _whole_arguments(_turn: Turn, frames: Frames) -> Frames:
    held: JsonObject | None = None
    for frame in frames:
        entry = tool_delta(frame)
        if held is not None and entry is not None and "id" not in entry:
            opened = tool_delta(held)
            if opened is not None:
                opened["function"]["arguments"] += entry["function"]["arguments"]
            continue
        if held is not None:
            yield held
            held = None
        if entry is not None:
            held = frame
        else:
            yield frame


def _one_in(every: int, error: ApiError) -> Callable[[Turn, JsonObject], JsonObject]:
    """Requests at a fixed distance are turned away before anything else; the first of each run is answered."""

    def hook(turn: Turn, body: JsonObject) -> JsonObject:
        if turn.ordinal % every == every - 1:
            raise Respond(
                json_reply(error_body(error, turn.variant.name), status=error.status, headers=(("retry-after", "0"),))
            )
        return body

    return hook


def _slow_first_token(_turn: Turn, reply: HttpReply) -> HttpReply:
    def parts() -> Iterator[Part]:
        yield Wait(SLOW_FIRST_TOKEN_S)
        yield from reply.parts

    return replace(reply, parts=parts()) if reply.status == 200 else reply


def _gzip(_turn: Turn, reply: HttpReply) -> HttpReply:
    """Compressed event by event, each flushed, whatever the client accepts (all of ours accept gzip)."""

    def parts() -> Iterator[Part]:
        packer = zlib.compressobj(wbits=31)
        for part in reply.parts:
            yield packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH) if isinstance(part, bytes) else part
        yield packer.flush()

    return replace(reply, headers=with_header(reply.headers, "content-encoding", "gzip"), parts=parts())


def _close_each(_turn: Turn, reply: HttpReply) -> HttpReply:
    return replace(reply, headers=with_header(reply.headers, "connection", "close"))


def _close_100(turn: Turn, reply: HttpReply) -> HttpReply:
    served = turn.memory.setdefault("close-100", {})
    served[turn.client] = served.get(turn.client, 0) + 1
    if served[turn.client] < _CLOSE_AFTER:
        return reply
    del served[turn.client]
    return _close_each(turn, reply)


def _flat_error(turn: Turn, error: ApiError) -> HttpReply:
    return json_reply(error_body(error, turn.variant.name)["error"], status=error.status)


def _reasoning_frame(_turn: Turn, frame: JsonObject) -> JsonObject:
    if reasoning_key(frame) == "reasoning_content":
        changes = delta(frame)
        changes["reasoning"] = changes.pop("reasoning_content")
    return frame


def _reasoning_message(_turn: Turn, body: JsonObject) -> JsonObject:
    for choice in body["choices"]:
        if "reasoning_content" in choice["message"]:
            choice["message"]["reasoning"] = choice["message"].pop("reasoning_content")
    return body


_BUSY_429 = ApiError("rate limit reached", status=429, kind="rate_limit_reached_error", reason="busy")
_BUSY_503 = ApiError("overloaded, try again", status=503, kind="engine_overloaded_error", reason="busy")
_NONE: tuple[Area, ...] = ()

QUIRKS = (
    ServerFault(
        id="quirk:comments",
        group="quirk",
        summary="comments between the events",
        mode="stream",
        areas=_NONE,
        on_reply=_comments,
    ),
    ServerFault(id="quirk:crlf", group="quirk", summary="CRLF line ends", mode="stream", areas=_NONE, on_reply=_crlf),
    ServerFault(
        id="quirk:split",
        group="quirk",
        summary="writes end in the middle of events",
        mode="stream",
        areas=_NONE,
        on_reply=_split,
    ),
    ServerFault(
        id="quirk:merged",
        group="quirk",
        summary="several events in one write",
        mode="stream",
        areas=_NONE,
        on_reply=_merged,
    ),
    ServerFault(
        id="quirk:null-deltas",
        group="quirk",
        summary="absent delta fields are null",
        mode="stream",
        areas=_NONE,
        on_frames=each_frame(_null_deltas),
    ),
    ServerFault(
        id="quirk:extra-fields",
        group="quirk",
        summary="unknown fields at every level",
        mode="both",
        areas=_NONE,
        on_frames=each_frame(_extra_in_frame),
        on_message=_extra_in_message,
    ),
    ServerFault(
        id="quirk:whole-arguments",
        group="quirk",
        summary="a call comes whole in one chunk",
        mode="stream",
        areas=_NONE,
        on_frames=_whole_arguments,
    ),
    ServerFault(
        id="quirk:rate-limit-1in5",
        group="quirk",
        summary="every fifth request gets 429",
        mode="both",
        areas=_NONE,
        on_body=_one_in(5, _BUSY_429),
    ),
    ServerFault(
        id="quirk:unavailable-1in7",
        group="quirk",
        summary="every seventh request gets 503",
        mode="both",
        areas=_NONE,
        on_body=_one_in(7, _BUSY_503),
    ),
    ServerFault(
        id="quirk:slow-first-token",
        group="quirk",
        summary="one second before the first token",
        mode="both",
        areas=_NONE,
        on_reply=_slow_first_token,
    ),
    ServerFault(id="quirk:gzip", group="quirk", summary="compressed answers", mode="both", areas=_NONE, on_reply=_gzip),
    ServerFault(
        id="quirk:close-each",
        group="quirk",
        summary="the connection closes after each answer",
        mode="both",
        areas=_NONE,
        on_reply=_close_each,
    ),
    ServerFault(
        id="quirk:close-100",
        group="quirk",
        summary="a connection closes after 100 answers",
        mode="both",
        areas=_NONE,
        on_reply=_close_100,
    ),
    ServerFault(
        id="quirk:flat-error",
        group="quirk",
        summary="error fields without the outer error object",
        mode="both",
        areas=_NONE,
        on_error=_flat_error,
    ),
    ServerFault(
        id="quirk:reasoning-field",
        group="quirk",
        summary="reasoning instead of reasoning_content",
        mode="both",
        areas=_NONE,
        on_frames=each_frame(_reasoning_frame),
        on_message=_reasoning_message,
    ),
)
