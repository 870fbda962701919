"""Whatever a server or the network does is recorded for what it is, in bounded time."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from kvv.core import FaultKind, Shape, Timeouts
from kvv.protocol.classify import Classification, assess, retry_after_seconds

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

Fetch = Callable[..., Any]


def test_a_good_answer_has_no_fault(fetch: Fetch) -> None:
    received = fetch("completion")
    assert received.exchange.status == 200
    assert received.exchange.fault is None
    assert received.observation.answer == "42"
    assert 0 < received.exchange.timing.total_ms < 2_000


def test_a_good_stream_has_no_fault_and_offsets_that_grow(fetch: Fetch) -> None:
    received = fetch("stream", request={"stream": True})
    assert received.exchange.fault is None
    assert received.observation.answer == "The answer is 42."
    offsets = [frame.offset_ms for frame in received.exchange.frames]
    assert offsets == sorted(offsets)
    assert offsets[0] > 0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("31536000", 31_536_000.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("soon", None), (None, None)],
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_and_its_retry_after_are_recorded(
    fetch: Fetch, hostile: ModuleType, status: int, value: str | None, seconds: float | None
) -> None:
    headers = [] if value is None else [f"Retry-After: {value}"]
    received = fetch(hostile.answering(f"{status} Busy", b'{"error":{"message":"busy"}}', *headers))
    assert received.exchange.status == status
    assert received.exchange.fault is None
    assert retry_after_seconds(received.exchange) == seconds
    assert assess(received.exchange, received.observation).retry


@pytest.mark.parametrize(("behaviour", "status"), [("html-502", 502), ("html-200", 200), ("only-500", 500)])
def test_what_is_no_completion_is_kept_as_it_is(fetch: Fetch, behaviour: str, status: int) -> None:
    received = fetch(behaviour)
    assert (received.exchange.status, received.exchange.fault) == (status, None)
    assert received.observation.shape is (Shape.ERROR if behaviour == "only-500" else Shape.NOT_JSON)


def test_an_error_object_in_a_200_is_recorded(fetch: Fetch, hostile: ModuleType) -> None:
    received = fetch(hostile.answering("200 OK", b'{"error":{"message":"busy","type":"overloaded_error"}}'))
    assert received.observation.error.type == "overloaded_error"
    assert received.exchange.fault is None


def until(condition: Callable[[], Any]) -> None:
    """Wait at most two seconds for another thread."""
    end = time.monotonic() + 2
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)


def framing(hostile: ModuleType, name: str) -> Any:
    """Servers that break HTTP's framing, by name."""
    sending, completion = hostile.sending, hostile.COMPLETION
    return {
        "half-head": sending(b"HTTP/1.1 200 OK\r\ncontent-ty"),
        "half-body": sending(HEAD + b"content-length: 100\r\n\r\n" + b'{"a":'),
        "length-too-long": sending(HEAD + b"content-length: 500\r\n\r\n" + completion),
        "length-too-short": sending(HEAD + b"content-length: 5\r\n\r\n" + completion),
        "length-no-number": sending(HEAD + b"content-length: five\r\n\r\n" + completion),
        "two-lengths": sending(HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\n123456"),
        "chunk-size-no-number": sending(STREAM_HEAD + b"zz\r\nhello\r\n0\r\n\r\n"),
        "chunk-size-negative": sending(STREAM_HEAD + b"-5\r\nhello\r\n0\r\n\r\n"),
        "chunk-size-overflow": sending(STREAM_HEAD + b"f" * 40 + b"\r\nhello\r\n0\r\n\r\n"),
        "chunk-size-no-number-later": sending(STREAM_HEAD + b"5\r\nhello\r\n", b"zz\r\nhello\r\n0\r\n\r\n", gap=0.05),
        "no-http": sending(b"SSH-2.0-OpenSSH_9.6\r\n"),
        "nul-in-header": sending(b"HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n"),
        "reset-before-head": hostile.BEHAVIOURS["reset-before-head"],
        "closed-before-head": hostile.once(lambda talk: None),
        "reset-in-body": hostile.cut_stream("The ", "answer", hard=True),
        "cut-before-content": hostile.cut_stream(),
        "cut-after-content": hostile.cut_stream("The ", "answer"),
    }[name]


@pytest.mark.parametrize(
    ("name", "kind", "status", "after_content"),
    [
        ("half-head", FaultKind.RESET, None, False),
        ("half-body", FaultKind.CUT, 200, True),
        ("length-too-long", FaultKind.CUT, 200, True),
        ("length-too-short", FaultKind.PROTOCOL, None, False),
        ("length-no-number", FaultKind.PROTOCOL, None, False),
        ("two-lengths", FaultKind.PROTOCOL, None, False),
        ("chunk-size-no-number", FaultKind.PROTOCOL, None, False),
        ("chunk-size-negative", FaultKind.PROTOCOL, None, False),
        ("chunk-size-overflow", FaultKind.PROTOCOL, None, False),
        ("chunk-size-no-number-later", FaultKind.PROTOCOL, 200, True),
        ("no-http", FaultKind.PROTOCOL, None, False),
        ("nul-in-header", FaultKind.PROTOCOL, None, False),
        ("reset-before-head", FaultKind.RESET, None, False),
        ("closed-before-head", FaultKind.RESET, None, False),
        ("reset-in-body", FaultKind.RESET, 200, True),
        ("cut-before-content", FaultKind.CUT, 200, False),
        ("cut-after-content", FaultKind.CUT, 200, True),
    ],
)
def test_broken_framing_is_a_fault_of_its_kind(
    fetch: Fetch, hostile: ModuleType, name: str, kind: FaultKind, status: int | None, after_content: bool
) -> None:
    received = fetch(framing(hostile, name))
    fault = received.exchange.fault
    assert (fault.kind, received.exchange.status, fault.after_content) == (kind, status, after_content), fault
    assert "\n" not in fault.detail
    assert len(fault.detail) <= 300
    assert assess(received.exchange, received.observation).standing is Classification.UNAVAILABLE


def test_what_came_before_a_cut_is_kept(fetch: Fetch) -> None:
    received = fetch("cut-after-content", request={"stream": True})
    assert received.observation.answer == "The answer "
    assert received.observation.finish_reason is None


def test_a_body_ended_by_closing_is_whole_when_it_is(fetch: Fetch, hostile: ModuleType) -> None:
    received = fetch(hostile.sending(HEAD + b"\r\n" + hostile.COMPLETION))
    assert received.exchange.fault is None
    assert received.observation.answer == "42"


def test_a_body_ended_by_closing_is_cut_when_it_breaks_off(fetch: Fetch, hostile: ModuleType) -> None:
    events = b"".join(hostile.stream("The ", "answer", end=False))
    received = fetch(
        hostile.sending(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + events),
        request={"stream": True},
    )
    assert received.exchange.fault.kind is FaultKind.CUT


def test_a_closed_port_is_a_connect_fault(fetch: Fetch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    fault = fetch(f"http://127.0.0.1:{port}/v1").exchange.fault
    assert fault.kind is FaultKind.CONNECT
    assert "ECONNREFUSED" in fault.detail


def test_an_unknown_host_is_a_dns_fault(fetch: Fetch) -> None:
    assert fetch("http://no-such-host.invalid/v1").exchange.fault.kind is FaultKind.DNS


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"])
def test_tls_on_a_plain_port_is_a_tls_fault(fetch: Fetch, serve: Callable[[Any], Any], reply: bytes) -> None:
    def plain(talk: Any) -> None:
        talk.socket.recv(65536)
        talk.send(reply)

    server = serve(plain)
    assert fetch(f"https://127.0.0.1:{server.port}/v1").exchange.fault.kind is FaultKind.TLS


@pytest.mark.parametrize("behaviour", ["hang", "accept-and-say-nothing"])
def test_a_hang_is_a_first_byte_timeout(fetch: Fetch, behaviour: str) -> None:
    started = time.perf_counter()
    fault = fetch(behaviour, first_byte_timeout=0.2).exchange.fault
    assert fault.kind is FaultKind.FIRST_BYTE_TIMEOUT
    assert not fault.after_content
    assert time.perf_counter() - started >= 0.2


def test_a_head_without_a_body_is_still_a_first_byte_timeout(fetch: Fetch, hostile: ModuleType) -> None:
    received = fetch(hostile.once(lambda talk: (talk.stream_head(), talk.hang())), first_byte_timeout=0.2)
    assert received.exchange.status == 200
    assert received.exchange.fault.kind is FaultKind.FIRST_BYTE_TIMEOUT


def test_silence_in_mid_stream_is_an_idle_timeout(fetch: Fetch, hostile: ModuleType) -> None:
    behaviour = hostile.once(lambda talk: (talk.stream_head(), talk.chunk(hostile.delta("The ")), talk.hang()))
    received = fetch(behaviour, request={"stream": True}, idle_timeout=0.2)
    assert received.exchange.fault.kind is FaultKind.IDLE_TIMEOUT
    assert received.exchange.fault.after_content
    assert received.observation.answer == "The "


def test_a_slow_first_byte_is_no_fault_within_its_limit_though_beyond_the_idle_limit(
    fetch: Fetch, hostile: ModuleType
) -> None:
    behaviour = hostile.always(lambda talk: (time.sleep(0.3), talk.answer()))
    assert fetch(behaviour, idle_timeout=0.1, first_byte_timeout=3).exchange.fault is None


def test_a_long_prompt_is_given_more_time_for_its_first_byte(fetch: Fetch, hostile: ModuleType) -> None:
    behaviour = hostile.always(lambda talk: (time.sleep(0.3), talk.answer()))
    assert fetch(behaviour, first_byte_timeout=0.1).exchange.fault.kind is FaultKind.FIRST_BYTE_TIMEOUT
    assert fetch(behaviour, first_byte_timeout=0.1, request={"expect_prompt_tokens": 1_000}).exchange.fault is None
    # nobody counted: the body's size says it, also over a request's own limit
    long = {"body": {"messages": [{"role": "user", "content": "word " * 2_000}]}}
    assert fetch(behaviour, request={**long, "timeouts": Timeouts(first_byte=0.1)}).exchange.fault is None


def test_a_steady_drip_ends_at_the_deadline(fetch: Fetch, hostile: ModuleType) -> None:
    received = fetch(hostile.slow_drip(0.02), idle_timeout=0.5, request={"stream": True, "deadline": 0.4})
    assert received.exchange.fault.kind is FaultKind.TOTAL_TIMEOUT
    assert received.exchange.fault.after_content


def test_nothing_is_sent_after_the_deadline(fetch: Fetch, serve: Callable[[Any], Any]) -> None:
    server = serve("hang")
    assert fetch(server.base_url, request={"deadline": -1.0}).exchange.fault.kind is FaultKind.TOTAL_TIMEOUT


def test_a_stream_left_open_after_its_terminator_is_complete(fetch: Fetch, hostile: ModuleType) -> None:
    def act(talk: Any) -> None:
        talk.stream_head()
        for event in hostile.stream("42"):
            talk.chunk(event)
        talk.hang()

    received = fetch(hostile.once(act), request={"stream": True}, idle_timeout=0.3)
    assert received.exchange.fault is None
    assert received.observation.done


def test_bytes_that_arrived_while_we_were_busy_are_no_timeout(
    run: Callable[..., Any], serve: Callable[[Any], Any], hostile: ModuleType
) -> None:
    """The loop is blocked beyond the limit, as by a suspended machine; the bytes have lain in the socket for long."""

    def act(talk: Any) -> None:
        talk.stream_head()
        first, second, *others = hostile.stream("The ", "answer")
        talk.chunk(first)
        time.sleep(0.2)
        talk.chunk(second)
        time.sleep(0.7)
        for event in others:
            talk.chunk(event)
        talk.send(b"0\r\n\r\n")

    async def work(send: Any) -> Any:
        task = asyncio.create_task(send(stream=True))
        await asyncio.sleep(0.1)
        time.sleep(0.6)  # noqa: ASYNC251 - blocking the loop is the point
        return await task

    received = run(serve(hostile.once(act)).base_url, work, idle_timeout=0.4)
    assert received.exchange.fault is None
    assert received.observation.answer == "The answer"


def test_a_cancelled_request_raises_and_closes_its_connection(
    run: Callable[..., Any], serve: Callable[[Any], Any], hostile: ModuleType
) -> None:
    closed = []
    server = serve(hostile.once(lambda talk: closed.append(talk.socket.recv(1))))

    async def work(send: Any) -> None:
        task = asyncio.create_task(send())
        await asyncio.to_thread(lambda: until(lambda: server.requests))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(lambda: until(lambda: closed))

    run(server.base_url, work)
    assert closed == [b""]


def test_no_mutation_of_a_good_answer_raises(
    run: Callable[..., Any], serve: Callable[[Any], Any], hostile: ModuleType
) -> None:
    """Bytes flipped, dropped and doubled anywhere in head and body: always a Received, never an exception."""
    source = random.Random(20_250_806)
    body = b"".join(hostile.stream("The ", "answer"))
    head = STREAM_HEAD.replace(b"chunked\r\n", b"chunked\r\nretry-after: 3\r\nset-cookie: a=b; path=/\r\n")
    whole = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)

    def mutated() -> bytes:
        data = bytearray(whole)
        for _ in range(source.choice((1, 1, 2, 5))):
            at = source.randrange(min(len(data), 220) if source.random() < 0.8 else len(data))
            match source.randrange(3):
                case 0:
                    data[at] = source.randrange(256)
                case 1:
                    del data[at : at + source.randrange(1, 9)]
                case _:
                    data[at:at] = data[at : at + source.randrange(1, 9)]
        return bytes(data)

    server = serve(hostile.once(lambda talk: talk.send(mutated())))

    async def work(send: Any) -> list[Any]:
        return list(await asyncio.gather(*(send(stream=True) for _ in range(150))))

    results = run(server.base_url, work, first_byte_timeout=1.0, idle_timeout=1.0)
    assert len(results) == 150
    assert sum(received.exchange.fault is not None for received in results) > 20
