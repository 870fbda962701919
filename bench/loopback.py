"""A bare loopback server: the fastest peer a client can have, in its own process on its own core.

It parses no more of a request than the body's length, and answers from bytes made at start. The path of the
base URL says what: ``/c200b4i5/v1`` streams 200 chunks, 4 to a write, a write every 5 ms (0: as fast as the
client reads). A body without ``"stream":true`` gets one completion of about 2 kB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

MODEL = "bench-model"
SERVER_CPU, CLIENT_CPU = 1, 0
HEAD = {"id": "chatcmpl-" + "0123456789abcdef01234567", "created": 1_760_000_000, "model": MODEL}
ROUTE = re.compile(rb"/c(\d+)(?:b(\d+))?(?:i(\d+))?/")
ACCOUNTING = b"x-msh-usage-prompt-tokens: 20\r\nx-msh-usage-cached-tokens: 0\r\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + ACCOUNTING + b"transfer-encoding: chunked\r\n\r\n"
)


def usage(tokens: int) -> dict[str, object]:
    details = {"prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}}
    return {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 20 + tokens, **details}


def answer() -> bytes:
    """One completion of about 2 kB, with its head. Like the streams it keeps every rule of profile kimi-k3."""
    message = {"role": "assistant", "content": " ".join(f"word{number * 7919 % 1000:03}" for number in range(210))}
    body = {
        **HEAD,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage(480),
    }
    data = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
        ACCOUNTING,
        len(data),
        data,
    )


def events(chunks: int) -> Iterator[bytes]:
    """``chunks`` server-sent events of a correct stream, then usage and the terminator."""

    def event(choices: list[object], **fields: object) -> bytes:
        body = {**HEAD, "object": "chat.completion.chunk", "choices": choices, **fields}
        return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"

    def choice(delta: dict[str, str], finish: str | None = None, **fields: object) -> list[object]:
        return [{"index": 0, "delta": delta, "finish_reason": finish, **fields}]

    yield event(choice({"role": "assistant", "content": ""}))
    middle = [event(choice({"content": f" word{number:03}"})) for number in range(64)]
    for number in range(chunks - 3):
        yield middle[number % 64]
    yield event(choice({}, "stop", usage=usage(chunks - 3)))
    yield event([], usage=usage(chunks - 3))
    yield b"data: [DONE]\n\n"


@lru_cache(maxsize=8)
def writes(chunks: int, batch: int) -> Sequence[bytes]:
    """The stream cut into writes of ``batch`` HTTP chunks, one event each. Equal writes are one object."""
    framed = [b"%x\r\n%b\r\n" % (len(data), data) for data in events(chunks)]
    cache: dict[bytes, bytes] = {}
    joined = (b"".join(framed[start : start + batch]) for start in range(0, len(framed), batch))
    pieces = [cache.setdefault(piece, piece) for piece in joined]
    return [STREAM_HEAD + pieces[0], *pieces[1:], b"0\r\n\r\n"]


class BareProtocol(asyncio.Protocol):
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.buffer = self.head = self.start = b""
        self.missing = 0
        self.whole = answer()
        self.paused = False
        self.job: tuple[Sequence[bytes], int, float] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.job = None

    def data_received(self, data: bytes) -> None:
        """Large bodies are only counted, so that reading them delays no stream."""
        if self.missing:
            self.missing -= len(data)
        else:
            self.head, found, rest = (self.buffer + data).partition(b"\r\n\r\n")
            if not found:
                self.buffer = self.head
                return
            self.buffer = b""
            lower = self.head.lower()
            length = (
                int(lower.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]) if b"content-length:" in lower else 0
            )
            self.missing = length - len(rest)
            self.start = rest[:1000] + rest[-1000:]
        if self.missing < 2000:
            self.start += data[-1000:]
        if self.missing == 0:
            self.respond(self.head, self.start)

    def respond(self, head: bytes, body: bytes) -> None:
        if b'"stream":true' not in body and b'"stream": true' not in body:
            self.transport.write(self.whole)
            return
        route = ROUTE.search(head)
        chunks, batch, interval = (int(part or 0) for part in route.groups()) if route else (200, 1, 0)
        self.job = (writes(chunks, batch or 1), 0, interval / 1000)
        self.pump()

    def pump(self) -> None:
        """One write for each turn of the loop, as a real server writes token by token."""
        if self.job is None or self.paused:
            return
        pieces, position, interval = self.job
        self.transport.write(pieces[position])
        if position + 1 == len(pieces):
            self.job = None
            return
        self.job = (pieces, position + 1, interval)
        if interval:
            self.loop.call_later(interval, self.pump)
        else:
            self.loop.call_soon(self.pump)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.pump()


def pin(cpu: int) -> None:
    """Keep this process on one core; without effect where the system cannot, or has but one."""
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {cpu})


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(BareProtocol, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def bare_server(*, pinned: bool = True) -> Iterator[str]:
    """Start the server in its own process; yields ``http://127.0.0.1:PORT``."""
    argv = [sys.executable, __file__, *(["--cpu", str(SERVER_CPU)] if pinned else [])]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", type=int, default=-1)
    if (cpu := parser.parse_args().cpu) >= 0:
        pin(cpu)
    asyncio.run(serve())
