"""A raw socket server that does, on purpose, what no server should.

Each connection runs one behaviour (a function of a ``Talk``) on a thread of its own. ``BEHAVIOURS`` names those
other tests may want too. Nothing here knows HTTP beyond finding the end of a request.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

COMPLETION = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
    }
).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRequest:
    head: bytes
    body: bytes

    def header(self, name: str) -> str | None:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name.encode():
                return value.strip().decode()
        return None


@dataclass(slots=True)
class Talk:
    """One connection, seen from the server."""

    socket: socket.socket
    server: Hostile
    number: int
    buffer: bytes = b""
    served: int = 0

    def read_head(self) -> bytes | None:
        while b"\r\n\r\n" not in self.buffer:
            if not (data := self.socket.recv(65536)):
                return None
            self.buffer += data
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        return head

    def read_request(self) -> RawRequest | None:
        """The next request, or None when the client closed."""
        head = self.read_head()
        if head is None:
            return None
        length = int(RawRequest(head=head, body=b"").header("content-length") or 0)
        while len(self.buffer) < length:
            if not (data := self.socket.recv(65536)):
                return None
            self.buffer += data
        request = RawRequest(head=head, body=self.buffer[:length])
        self.buffer = self.buffer[length:]
        self.served += 1
        with self.server.lock:
            self.server.requests.append(request)
        return request

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(
        self,
        body: bytes = COMPLETION,
        *,
        status: str = "200 OK",
        headers: Iterable[str] = (),
        kind: str = "application/json",
    ) -> None:
        lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *headers]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def stream_head(self, *headers: str) -> None:
        lines = ["HTTP/1.1 200 OK", "content-type: text/event-stream", "transfer-encoding: chunked", *headers]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def reset(self) -> None:
        """RST, not FIN."""
        self.socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
        )
        self.socket.close()

    def hang(self) -> None:
        """Say nothing more until the server is stopped or the client has gone."""
        with contextlib.suppress(TimeoutError):
            while not self.server.stopped.is_set() and self.socket.recv(65536):
                pass

    def send_for_ever(self, piece: bytes) -> None:
        while not self.server.stopped.is_set():
            self.send(piece)


Behaviour = Callable[[Talk], None]


@dataclass(slots=True)
class Hostile:
    """``with Hostile(behaviour) as server``: listens on loopback, counts connections, keeps every request's bytes."""

    behaviour: Behaviour
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)
    requests: list[RawRequest] = field(default_factory=list)
    connections: int = 0
    bytes_sent: int = 0
    listener: socket.socket = field(init=False)
    open: set[socket.socket] = field(default_factory=set)
    threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        with contextlib.suppress(OSError):  # a blocked accept() wakes on shutdown on Linux, on close elsewhere
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with self.lock:
            remaining = list(self.open)
        for sock in remaining:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(5)

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.stopped.is_set():
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.settimeout(10)
            with self.lock:
                self.connections += 1
                self.open.add(sock)
                talk = Talk(sock, self, self.connections)
            self._start(lambda talk=talk: self._serve(talk))  # type: ignore[misc]

    def _serve(self, talk: Talk) -> None:
        # the client may go at any moment, and resetting is what some behaviours are for
        with contextlib.suppress(OSError):
            self.behaviour(talk)
        with self.lock:
            self.open.discard(talk.socket)
        talk.socket.close()


# --- behaviours ----------------------------------------------------------------------------------


def always(act: Behaviour) -> Behaviour:
    """Read a request, act, for as long as the client keeps the connection."""

    def behave(talk: Talk) -> None:
        while talk.read_request() is not None:
            act(talk)

    return behave


def once(act: Behaviour) -> Behaviour:
    """Read one request, act, close."""

    def behave(talk: Talk) -> None:
        if talk.read_request() is not None:
            act(talk)

    return behave


def answering(
    status: str, body: bytes = b'{"error":{"message":"no","type":"x"}}', *headers: str, kind: str = "application/json"
) -> Behaviour:
    return always(lambda talk: talk.answer(body, status=status, headers=headers, kind=kind))


def sending(*pieces: bytes, gap: float = 0.0) -> Behaviour:
    """Send these bytes after a request, then close."""

    def act(talk: Talk) -> None:
        for piece in pieces:
            talk.send(piece)
            if gap:
                time.sleep(gap)

    return once(act)


def delta(content: str) -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": content}, "finish_reason": None}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "m",
        "choices": [choice],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def stream(*contents: str, end: bool = True) -> Iterator[bytes]:
    yield from map(delta, contents)
    if end:
        body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_760_000_000, "model": "m"}
        yield (
            b"data: "
            + json.dumps({**body, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).encode()
            + b"\n\n"
        )
        yield b"data: [DONE]\n\n"


def streaming(*contents: str) -> Behaviour:
    def act(talk: Talk) -> None:
        talk.stream_head()
        for event in stream(*contents):
            talk.chunk(event)
        talk.send(b"0\r\n\r\n")

    return always(act)


def closing_after(requests: int, *, announced: bool = False) -> Behaviour:
    """A server that closes a connection after so many answers, with or without saying so."""

    def behave(talk: Talk) -> None:
        for number in range(1, requests + 1):
            if talk.read_request() is None:
                return
            talk.answer(headers=["connection: close"] if announced and number == requests else [])

    return behave


def cut_stream(*contents: str, hard: bool = False) -> Behaviour:
    """A stream that ends without its end: FIN, or RST when ``hard``."""

    def act(talk: Talk) -> None:
        talk.stream_head()
        for event in stream(*contents, end=False):
            talk.chunk(event)
        if hard:
            time.sleep(0.05)
            talk.reset()

    return once(act)


def deep_json(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def bomb(megabytes: int) -> bytes:
    """A gzip file of so many megabytes of zeros, made piece by piece."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = bytes(2**20)
    return b"".join([*(packer.compress(piece) for _ in range(megabytes)), packer.flush()])


def gzipped(body: bytes = COMPLETION) -> Behaviour:
    return always(lambda talk: talk.answer(gzip.compress(body), headers=["content-encoding: gzip"]))


def slow_drip(gap: float) -> Behaviour:
    """A comment every ``gap`` seconds and never an answer."""

    def act(talk: Talk) -> None:
        talk.stream_head()
        while not talk.server.stopped.wait(gap):
            talk.chunk(b": still here\n\n")

    return once(act)


def echo(talk: Talk) -> None:
    """Whatever the client sent as its Authorization, in headers and body."""
    while (request := talk.read_request()) is not None:
        key = request.header("authorization") or ""
        body = json.dumps(
            {"error": {"message": f"bad credentials: {key}", "type": "auth", "head": request.head.decode()}}
        ).encode()
        talk.answer(
            body,
            status="401 Unauthorized",
            headers=[f"x-request-id: {key}", f"www-authenticate: {key}", f"server: {key}"],
        )


BEHAVIOURS: dict[str, Behaviour] = {
    "completion": always(lambda talk: talk.answer()),
    "stream": streaming("The ", "answer ", "is 42."),
    "hang": always(lambda talk: talk.hang()),
    "accept-and-say-nothing": lambda talk: talk.hang(),
    "only-500": answering("500 Internal Server Error"),
    "only-429": answering("429 Too Many Requests"),
    "html-502": answering("502 Bad Gateway", b"<html><h1>502 Bad Gateway</h1></html>", kind="text/html"),
    "html-200": answering("200 OK", b"<html><h1>Welcome</h1></html>", kind="text/html"),
    "close-after-1": closing_after(1),
    "close-after-100": closing_after(100),
    "reset-before-head": once(lambda talk: talk.reset()),
    "cut-before-content": cut_stream(),
    "cut-after-content": cut_stream("The ", "answer "),
    "echo": echo,
}
