"""Group c: chunks and server-sent events that break clients."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

from kvv.mockserver.config import JsonObject
from kvv.mockserver.content.completion import DraftChoice
from kvv.mockserver.errors import ApiError, error_body
from kvv.mockserver.faults.edits import delta, each, each_frame, finish, map_parts, reasoning_key, tool_delta
from kvv.mockserver.faults.model import Frames, ServerFault, Turn
from kvv.mockserver.wire import DONE, EVENT_STREAM, JSON, HttpReply, Part, Wait, event, with_header

_HOLD_S = 0.3
_QUOTES = frozenset("\"'`“”‘’")


def _no_role(_turn: Turn, frame: JsonObject) -> JsonObject:
    delta(frame).pop("role", None)
    return frame


def _null_thinking(_turn: Turn, frame: JsonObject) -> JsonObject:
    if reasoning_key(frame) is not None:
        frame["choices"][0]["delta"] = {"role": None, "content": None}
    return frame


def _early_role(turn: Turn, reply: HttpReply) -> HttpReply:
    """The first event goes out on acceptance; the generation follows later."""
    if not reply.streamed:
        return reply
    hold = max(turn.config.ttft_ms / 1000, _HOLD_S)

    def parts() -> Iterator[Part]:
        first = True
        for part in reply.parts:
            if first and isinstance(part, Wait):
                continue
            yield part
            if first:
                yield Wait(hold)
            first = False

    return replace(reply, parts=parts())


def _usage_on_finish(turn: Turn, frame: JsonObject) -> JsonObject:
    if finish(frame) is not None and turn.usage is not None:
        usage = turn.usage
        frame["usage"] = {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.total,
        }
    return frame


def _zero_usage(_turn: Turn, frame: JsonObject) -> JsonObject:
    frame["usage"] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    for choice in frame["choices"]:
        if choice["finish_reason"] is None:
            del choice["finish_reason"]
    return frame


def _empty_first(_turn: Turn, frames: Frames) -> Frames:
    first = True
    for frame in frames:
        if first:
            yield {**frame, "choices": []}
        first = False
        yield frame


def _new_id(_turn: Turn, frame: JsonObject) -> JsonObject:
    return {**frame, "id": f"chatcmpl-{uuid.uuid4().hex[:24]}"}


def _moving_created(_turn: Turn, frame: JsonObject) -> JsonObject:
    return {**frame, "created": int(time.time())}


def _across_a_second(_turn: Turn, reply: HttpReply) -> HttpReply:
    """Holds the stream until the next second begins: in a shorter stream the moving time would not be seen."""

    def edit(data: bytes, number: int) -> list[Part]:
        return [data, Wait(1.01 - time.time() % 1)] if number == 2 else [data]

    return map_parts(reply, edit) if reply.streamed else reply


def _empty_id(_turn: Turn, frame: JsonObject) -> JsonObject:
    return {**frame, "id": ""}


def _counting_index(_turn: Turn, frames: Frames) -> Frames:
    for number, frame in enumerate(frames):
        for choice in frame["choices"]:
            choice["index"] = number
            choice["message"] = {"role": "assistant", "content": choice["delta"].get("content", "")}
        yield frame


def _plural_object(_turn: Turn, frame: JsonObject) -> JsonObject:
    return {**frame, "object": "chat.completions.chunk"}


def _drop_after_quote(turn: Turn, frames: Frames) -> Frames:
    after_quote = False
    for number, frame in enumerate(frames):
        text = delta(frame).get("content") or ""
        if after_quote and text and turn.chance(f"C18 {number}", 0.5):
            after_quote = False
            continue
        after_quote = bool(_QUOTES & set(text[-1:]))
        yield frame


def _after_first(extra: bytes, turn: Turn, reply: HttpReply) -> HttpReply:
    def edit(data: bytes, number: int) -> list[Part]:
        return [data, extra] if number == 0 else [data]

    return map_parts(reply, edit) if reply.streamed and reply.status == 200 else reply


def _comment_as_data(turn: Turn, reply: HttpReply) -> HttpReply:
    return _after_first(b"data: : PING\n\n", turn, reply)


def _ping_with_id(turn: Turn, reply: HttpReply) -> HttpReply:
    return _after_first(b"id: 1\n: ping\n\n", turn, reply)


def _comments_before_done(_turn: Turn, reply: HttpReply) -> HttpReply:
    def edit(data: bytes, _number: int) -> list[Part]:
        return [b": x-meta=1\n: x-cost=0\n" + data] if data == DONE else [data]

    return map_parts(reply, edit) if reply.streamed else reply


def _error_as_stream(turn: Turn, error: ApiError) -> ApiError | HttpReply:
    if not turn.streams:
        return error
    return HttpReply(
        status=200,
        headers=(("content-type", EVENT_STREAM),),
        parts=(event(error_body(error, turn.variant.name)), DONE),
        streamed=True,
    )


def _done_only(_turn: Turn, reply: HttpReply) -> HttpReply:
    return replace(reply, parts=(DONE,)) if reply.streamed else reply


def _one_chunk_of_arguments(_turn: Turn, frames: Frames) -> Frames:
    held: JsonObject | None = None
    for frame in frames:
        entry = tool_delta(frame)
        if entry is not None and "id" not in entry:
            if held is None:
                held = frame
            else:
                known = tool_delta(held)
                if known is not None:
                    known["function"]["arguments"] += entry["function"]["arguments"]
            continue
        if held is not None:
            yield held
            held = None
        yield frame


def _last_thought_lost(_turn: Turn, choice: DraftChoice) -> DraftChoice:
    return replace(choice, reasoning=choice.reasoning[:-1])


def _json_type(_turn: Turn, reply: HttpReply) -> HttpReply:
    return replace(reply, headers=with_header(reply.headers, "content-type", JSON)) if reply.streamed else reply


def _doubled_text(_turn: Turn, frame: JsonObject) -> JsonObject:
    if (key := reasoning_key(frame)) is not None and delta(frame)[key]:
        delta(frame)["content"] = delta(frame)[key]
    return frame


FAULTS = (
    ServerFault(
        id="C01",
        group="c",
        summary="no role in the first chunk",
        mode="stream",
        areas=("streaming",),
        on_frames=each_frame(_no_role),
    ),
    ServerFault(
        id="C03",
        group="c",
        summary="role and content are null during thinking",
        mode="stream",
        areas=("streaming", "reasoning"),
        on_frames=each_frame(_null_thinking),
    ),
    ServerFault(
        id="C04",
        group="c",
        summary="the role chunk is sent before generation begins",
        mode="stream",
        areas=("streaming",),
        on_reply=_early_role,
    ),
    ServerFault(
        id="C08",
        group="c",
        summary="usage on the finish chunk without being asked",
        mode="stream",
        areas=("streaming",),
        on_frames=each_frame(_usage_on_finish),
    ),
    ServerFault(
        id="C09",
        group="c",
        summary="usage is zero on each chunk, finish_reason is missing",
        mode="stream",
        areas=("streaming",),
        on_frames=each_frame(_zero_usage),
    ),
    ServerFault(
        id="C10",
        group="c",
        summary="a chunk with empty choices comes first",
        mode="stream",
        areas=("streaming",),
        on_frames=_empty_first,
    ),
    ServerFault(
        id="C12",
        group="c",
        summary="the id differs on every chunk",
        mode="stream",
        areas=("streaming",),
        on_frames=each_frame(_new_id),
    ),
    ServerFault(
        id="C13",
        group="c",
        summary="created moves during the stream",
        mode="stream",
        areas=("streaming",),
        on_frames=each_frame(_moving_created),
        on_reply=_across_a_second,
    ),
    ServerFault(
        id="C14",
        group="c",
        summary="the id is empty",
        mode="stream",
        areas=("streaming",),
        on_frames=each_frame(_empty_id),
    ),
    ServerFault(
        id="C15",
        group="c",
        summary="the choice index counts chunks, a message stands beside delta",
        mode="stream",
        areas=("streaming",),
        on_frames=_counting_index,
    ),
    ServerFault(
        id="C16",
        group="c",
        summary="object is chat.completions.chunk",
        mode="stream",
        areas=("streaming",),
        on_frames=each_frame(_plural_object),
    ),
    ServerFault(
        id="C18",
        group="c",
        summary="tokens after a quote vanish",
        mode="stream",
        areas=("streaming",),
        on_frames=_drop_after_quote,
    ),
    ServerFault(
        id="C19",
        group="c",
        summary="a comment is sent as data",
        mode="stream",
        areas=("streaming",),
        on_reply=_comment_as_data,
    ),
    ServerFault(
        id="C20",
        group="c",
        summary="a ping carries an id and ends an event",
        mode="stream",
        areas=("streaming",),
        on_reply=_ping_with_id,
    ),
    ServerFault(
        id="C22",
        group="c",
        summary="comments are packed into the event of [DONE]",
        mode="stream",
        areas=("streaming",),
        on_reply=_comments_before_done,
    ),
    ServerFault(
        id="C23",
        group="c",
        summary="errors come as an event inside a 200",
        mode="stream",
        areas=("errors", "streaming"),
        on_error=_error_as_stream,
    ),
    ServerFault(
        id="C24",
        group="c",
        summary="the stream is [DONE] alone",
        mode="stream",
        areas=("streaming",),
        on_reply=_done_only,
    ),
    ServerFault(
        id="C25",
        group="c",
        summary="arguments come in one chunk",
        mode="stream",
        areas=("streaming", "tools"),
        on_frames=_one_chunk_of_arguments,
    ),
    ServerFault(
        id="C27",
        group="c",
        summary="the last reasoning delta is missing",
        mode="stream",
        areas=("streaming", "reasoning"),
        on_choices=each(_last_thought_lost),
    ),
    ServerFault(
        id="C28",
        group="c",
        summary="the stream's content type is JSON",
        mode="stream",
        areas=("streaming",),
        on_reply=_json_type,
    ),
    ServerFault(
        id="C32",
        group="c",
        summary="reasoning is also sent as content",
        mode="stream",
        areas=("streaming", "reasoning"),
        on_frames=each_frame(_doubled_text),
    ),
)
