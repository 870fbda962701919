"""Group i: errors in a false shape, dying engines, hangs and cuts."""

from collections.abc import Iterator
from dataclasses import replace

from kvv.mockserver.config import JsonObject
from kvv.mockserver.errors import ApiError
from kvv.mockserver.faults.edits import finish, tool_delta
from kvv.mockserver.faults.model import Frames, Respond, ServerFault, Turn
from kvv.mockserver.wire import Abort, Hang, HttpReply, Part, Wait, json_reply

_DIES_AT_STREAM = 3
_FRAMES_BEFORE_DEATH = 5
_HTML = (
    b"<!doctype html>\n<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n"
)
_ERROR = {"error": {"message": "upstream failed", "type": "server_error"}}


def _error_in_200(_turn: Turn, _body: JsonObject) -> JsonObject:
    return dict(_ERROR)


def _no_choices(_turn: Turn, body: JsonObject) -> JsonObject:
    return {**body, "choices": []}


def _always_502(turn: Turn, error: ApiError) -> ApiError:
    return ApiError("" if turn.streams else "upstream failed", status=502, kind="server_error", reason=error.reason)


def _cut_call_is_error(turn: Turn, frames: Frames) -> Frames:
    calling = False
    for frame in frames:
        calling = calling or tool_delta(frame) is not None
        if calling and finish(frame) == "length":
            yield {"error": {"message": "malformed_response", "type": "server_error"}}
            return
        yield frame


def _dies_mid_stream(turn: Turn, frames: Frames) -> Frames:
    """The engine dies in the third streamed answer; what came before it is whole."""
    streams = turn.memory["I07 streams"] = turn.memory.get("I07 streams", 0) + 1
    return _ended_by_error(turn, frames) if streams == _DIES_AT_STREAM else frames


def _ended_by_error(turn: Turn, frames: Frames) -> Frames:
    turn.memory["I07"] = True
    for number, frame in enumerate(frames):
        if number == _FRAMES_BEFORE_DEATH:
            break
        yield frame
    yield {"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError"}}


def _after_death(turn: Turn, body: JsonObject) -> JsonObject:
    if turn.memory.get("I07"):
        raise ApiError("EngineCore encountered an issue", status=500, kind="InternalServerError", reason="fault")
    return body


def _html_502(_turn: Turn, _error: ApiError) -> HttpReply:
    return HttpReply(status=502, headers=(("content-type", "text/html"),), parts=(_HTML,))


def _nested_schema_500(_turn: Turn, error: ApiError) -> ApiError:
    nested = error.reason == "schema" and "schema at /" in error.message
    return ApiError("internal error", status=500, kind="server_error", reason="schema") if nested else error


def _hangs_with_logprobs(_turn: Turn, body: JsonObject) -> JsonObject:
    if body.get("logprobs") is True:
        raise Respond(HttpReply(status=200, headers=(), parts=(Hang(),)))
    return body


def _gateway_timeout(turn: Turn, reply: HttpReply) -> HttpReply:
    """A non-stream answer that takes longer than the gateway waits becomes a 504 at that time."""
    limit = turn.config.gateway_timeout_s
    parts = tuple(reply.parts)
    if reply.status != 200 or sum(part.seconds for part in parts if isinstance(part, Wait)) <= limit:
        return replace(reply, parts=parts)
    late = json_reply({"error": {"message": "gateway timeout", "type": "server_error"}}, status=504)
    return replace(late, parts=(Wait(limit), *late.parts))


def _cut_in_arguments(turn: Turn, reply: HttpReply) -> HttpReply:
    if not reply.streamed or not turn.chance("I12", 0.5):
        return reply

    def parts() -> Iterator[Part]:
        arguments = 0
        for part in reply.parts:
            arguments += isinstance(part, bytes) and b'"arguments"' in part
            if arguments > 2:
                yield Abort()
                return
            yield part

    return replace(reply, parts=parts())


FAULTS = (
    ServerFault(
        id="I02",
        group="i",
        summary="200 with an error object and no choices",
        mode="nonstream",
        areas=("errors", "streaming"),
        on_message=_error_in_200,
    ),
    ServerFault(
        id="I03",
        group="i",
        summary="200 with choices []",
        mode="nonstream",
        areas=("errors", "streaming"),
        on_message=_no_choices,
    ),
    ServerFault(
        id="I04", group="i", summary="every error is a 502", mode="both", areas=("errors",), on_error=_always_502
    ),
    ServerFault(
        id="I05",
        group="i",
        summary="a call cut by length becomes an error event",
        mode="stream",
        areas=("errors", "tools"),
        on_frames=_cut_call_is_error,
    ),
    ServerFault(
        id="I07",
        group="i",
        summary="the engine dies in the third stream",
        mode="both",
        areas=("errors", "streaming"),
        on_frames=_dies_mid_stream,
        on_body=_after_death,
    ),
    ServerFault(
        id="I08",
        group="i",
        summary="errors are HTML pages with 502",
        mode="nonstream",
        areas=("errors",),
        on_error=_html_502,
    ),
    ServerFault(
        id="I09",
        group="i",
        summary="a bad nested schema gives 500",
        mode="nonstream",
        areas=("errors", "tools"),
        on_error=_nested_schema_500,
    ),
    ServerFault(
        id="I10",
        group="i",
        summary="a request with logprobs is never answered",
        mode="both",
        areas=("errors", "decoding"),
        on_body=_hangs_with_logprobs,
    ),
    ServerFault(
        id="I11",
        group="i",
        summary="slow non-stream answers become 504",
        mode="nonstream",
        areas=("errors", "availability"),
        on_reply=_gateway_timeout,
    ),
    ServerFault(
        id="I12",
        group="i",
        summary="half of the streams are cut inside arguments",
        mode="stream",
        areas=("errors", "streaming"),
        on_reply=_cut_in_arguments,
    ),
)
