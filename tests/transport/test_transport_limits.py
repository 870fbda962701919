"""Endless, huge and hostile answers are bounded in memory and time; encodings are undone within the same bounds."""

from __future__ import annotations

import gzip
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from kvv.core import FaultKind, Shape

Fetch = Callable[..., Any]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def endless(hostile: ModuleType, name: str) -> Any:
    """Servers that never stop, by name."""

    def forever(first: bytes, piece: bytes, *, chunked: bool = False) -> Any:
        def act(talk: Any) -> None:
            if chunked:
                talk.stream_head()
            talk.send(first)
            talk.send_for_ever(piece)

        return hostile.once(act)

    return {
        "status-line": forever(b"HTTP/1.1 200 ", b"a" * 65536),
        "header-line": forever(b"HTTP/1.1 200 OK\r\nx: ", b"a" * 65536),
        "header-lines": forever(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 1000),
        "trailers": forever(b"0\r\n", b"a: b\r\n" * 1000, chunked=True),
        "body": forever(HEAD + b"\r\n", b"a" * 65536),
        "chunked-body": forever(b"", b"10000\r\n" + b"a" * 65536 + b"\r\n", chunked=True),
        "sse-line": forever(b"6\r\ndata: \r\n", b"10000\r\n" + b"a" * 65536 + b"\r\n", chunked=True),
        "sse-event": forever(b"", b"10\r\n" + b"data: 0123456789"[:15] + b"\n" + b"\r\n", chunked=True),
        "chunk-extension": forever(b"5;x=", b"a" * 65536, chunked=True),
        "informational": forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    }[name]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("status-line", FaultKind.PROTOCOL),
        ("header-line", FaultKind.PROTOCOL),
        ("header-lines", FaultKind.PROTOCOL),
        ("trailers", FaultKind.PROTOCOL),
        ("body", FaultKind.TOO_LARGE),
        ("chunked-body", FaultKind.TOO_LARGE),
        ("sse-line", FaultKind.TOO_LARGE),
        ("sse-event", FaultKind.TOO_LARGE),
        ("chunk-extension", FaultKind.FIRST_BYTE_TIMEOUT),
        ("informational", FaultKind.FIRST_BYTE_TIMEOUT),
    ],
)
def test_an_endless_answer_is_ended_and_named(fetch: Fetch, hostile: ModuleType, name: str, kind: FaultKind) -> None:
    received = fetch(endless(hostile, name), first_byte_timeout=0.5, request={"stream": True})
    assert received.exchange.fault.kind is kind, received.exchange.fault
    assert received.exchange.bytes_received < 3 * 2**20


def test_an_endless_stream_of_good_events_ends_at_the_body_limit(fetch: Fetch, hostile: ModuleType) -> None:
    def act(talk: Any) -> None:
        talk.stream_head()
        event = hostile.delta("word " * 2_000)
        talk.send_for_ever(b"%x\r\n%b\r\n" % (len(event), event))

    received = fetch(hostile.once(act), request={"stream": True})
    assert received.exchange.fault.kind is FaultKind.TOO_LARGE
    assert len(received.observation.answer) < 2 * 2**20


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, lambda data: zlib.compress(data)[2:-4]])
def test_gzip_and_both_kinds_of_deflate_are_undone(
    fetch: Fetch, hostile: ModuleType, pack: Callable[[bytes], bytes]
) -> None:
    encoding = "gzip" if pack is gzip.compress else "deflate"
    body = pack(hostile.COMPLETION)
    received = fetch(hostile.always(lambda talk: talk.answer(body, headers=[f"content-encoding: {encoding}"])))
    assert received.exchange.fault is None
    assert received.observation.answer == "42"


def test_a_gzipped_stream_is_read_event_by_event(fetch: Fetch, hostile: ModuleType) -> None:
    packer = zlib.compressobj(wbits=31)

    def act(talk: Any) -> None:
        talk.stream_head("content-encoding: gzip")
        for event in hostile.stream("The ", "answer"):
            talk.chunk(packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH))
            time.sleep(0.05)
        talk.chunk(packer.flush())
        talk.send(b"0\r\n\r\n")

    received = fetch(hostile.once(act), request={"stream": True})
    assert received.exchange.fault is None
    assert received.observation.answer == "The answer"
    first, second = (frame.offset_ms for frame in received.exchange.frames[:2])
    assert second - first > 25


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda data: b"not gzip at all", "broken"),
        (lambda data: data[:30] + bytes(30) + data[60:], "broken"),
        (lambda data: data[:-20], "ends before its end"),
        (lambda data: data + b"trailing", "broken"),
    ],
)
def test_a_broken_encoding_is_a_fault(
    fetch: Fetch, hostile: ModuleType, spoil: Callable[[bytes], bytes], what: str
) -> None:
    body = spoil(gzip.compress(hostile.COMPLETION))
    fault = fetch(hostile.always(lambda talk: talk.answer(body, headers=["content-encoding: gzip"]))).exchange.fault
    assert fault.kind is FaultKind.BAD_ENCODING
    assert what in fault.detail


def test_an_encoding_that_was_not_asked_for_is_a_fault(fetch: Fetch, hostile: ModuleType) -> None:
    received = fetch(hostile.always(lambda talk: talk.answer(headers=["content-encoding: br"])))
    assert received.exchange.status == 200
    assert received.exchange.fault.kind is FaultKind.BAD_ENCODING


def test_a_gzip_bomb_is_too_large_and_never_unpacked_in_full(fetch: Fetch, hostile: ModuleType) -> None:
    packed = hostile.bomb(60)
    server = hostile.always(lambda talk: talk.answer(packed, headers=["content-encoding: gzip"]))
    tracemalloc.start()
    try:
        received = fetch(server)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert received.exchange.fault.kind is FaultKind.TOO_LARGE
    assert peak < 16 * 2**20


def test_deep_json_is_survived(fetch: Fetch, hostile: ModuleType) -> None:
    body = hostile.deep_json(100_000)
    received = fetch(hostile.always(lambda talk: talk.answer(body)))
    assert received.exchange.fault is None
    assert received.observation.shape is not Shape.COMPLETION
    assert sys.getrecursionlimit() < 100_000


# --- bytes that say nothing ------------------------------------------------------------------------


def pinging(
    hostile: ModuleType,
    piece: bytes,
    *,
    before: tuple[bytes, ...] = (),
    after: tuple[bytes, ...] = (),
    lasting: float = 60.0,
    kind: str,
) -> Any:
    """Sends ``piece`` every 20 ms for ``lasting`` seconds between what comes before and after, or until the client
    hangs up.
    """

    def act(talk: Any) -> None:
        talk.send(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        for data in before:
            talk.chunk(data)
        end = time.monotonic() + lasting
        while time.monotonic() < end:
            talk.chunk(piece)
            time.sleep(0.02)
        for data in after:
            talk.chunk(data)
        talk.send(b"0\r\n\r\n")

    return hostile.once(act)


SSE, JSON = "text/event-stream", "application/json"


@pytest.mark.parametrize(
    ("piece", "before", "kind"),
    [
        (b": ping\n\n", (), SSE),
        (b":\n", (), SSE),
        (b"event: ping\n\n", (), SSE),
        (b"data:\n\n", (), SSE),
        (b": ping\n\n", (b'data: {"choices":[]}\n\n',), SSE),
        (b" ", (), JSON),
        (b"\n", (b'{"id":',), JSON),
    ],
)
def test_an_answer_that_only_shows_that_it_lives_is_ended_in_time(
    fetch: Fetch, hostile: ModuleType, piece: bytes, before: Any, kind: str
) -> None:
    received = fetch(pinging(hostile, piece, before=before, kind=kind), first_byte_timeout=0.3, idle_timeout=0.2)
    fault = received.exchange.fault
    assert fault is not None
    assert fault.kind is FaultKind.IDLE_TIMEOUT
    assert fault.detail == "only comments or blanks, and no data within 0.5 s"
    assert 400 < received.exchange.timing.total_ms < 5_000


def test_a_server_that_pings_while_it_reads_a_long_prompt_has_the_time_that_the_prompt_is_given(
    fetch: Fetch, hostile: ModuleType
) -> None:
    """A second for the first byte and 0.5 s for 500 prompt tokens more: 1.2 s of pings are legal, each gap being
    short.
    """
    pings = pinging(hostile, b": ping\n\n", after=tuple(hostile.stream("hello")), lasting=1.2, kind=SSE)
    received = fetch(
        pings, request={"expect_prompt_tokens": 500, "stream": True}, first_byte_timeout=1.0, idle_timeout=0.5
    )
    assert received.exchange.fault is None
    assert received.observation.answer == "hello"


def test_pings_between_two_events_do_not_end_an_answer_that_goes_on(fetch: Fetch, hostile: ModuleType) -> None:
    first, *rest = hostile.stream("one", "two")
    pings = pinging(hostile, b": ping\n\n", before=(first,), after=tuple(rest), lasting=0.5, kind=SSE)
    received = fetch(pings, request={"stream": True}, first_byte_timeout=1.0, idle_timeout=0.5)
    assert received.exchange.fault is None
    assert received.observation.answer == "onetwo"


def test_silence_is_still_ended_by_the_idle_limit(fetch: Fetch, hostile: ModuleType) -> None:
    def act(talk: Any) -> None:
        talk.stream_head()
        talk.chunk(b": ping\n\n")
        talk.hang()

    received = fetch(hostile.once(act), first_byte_timeout=5.0, idle_timeout=0.2)
    assert received.exchange.fault is not None
    assert received.exchange.fault.detail == "no further byte within 0.2 s"
