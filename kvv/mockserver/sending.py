"""Carries an ``HttpReply`` out over an ASGI connection: pacing, coalesced writes, and broken endings."""

import asyncio
import contextlib
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from kvv.mockserver.wire import Abort, Hang, Headers, HttpReply, Wait

_FLUSH_BYTES = 32_768
_LONG_WAIT = 0.05
_STAMPS = 2
# Finds the transport of a connection; None once it is gone.
Transports = Callable[[Scope], asyncio.Transport | None]


class Sending:
    """One reply on its way out. ``run`` returns whether all of it was handed to a connection that was still open."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, transports: Transports) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._transports = transports
        self._gone: asyncio.Task[None] | None = None
        self._due: float | None = None
        self._started = False
        #: when the first parts of the body were handed over, and the last (``time.perf_counter``)
        self.handed: list[float] = []

    async def run(self, reply: HttpReply, before_last: Callable[[], None]) -> bool:
        """Send a reply. ``before_last`` is called just before its last bytes go out: whoever has read them then finds
        them counted. A reply that does not get so far never calls it."""
        try:
            return await self._run(reply, before_last)
        finally:
            if self._gone is not None:
                self._gone.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._gone

    async def _run(self, reply: HttpReply, before_last: Callable[[], None]) -> bool:
        if reply.streamed:
            await self._start(reply.status, reply.headers)
        buffer = bytearray()
        for part in reply.parts:
            match part:
                case bytes():
                    buffer += part
                    if reply.streamed and len(buffer) >= _FLUSH_BYTES:
                        await self._flush(buffer)
                        await asyncio.sleep(0)
                        if self._closed():
                            return False
                case Wait(seconds):
                    if reply.streamed and buffer:
                        await self._flush(buffer)
                    if not await self._pause(seconds):
                        return False
                case Abort() | Hang():
                    await self._break_off(reply, buffer, part)
                    return False
        # Asked before and not after: a connection that ends with this answer is closed once the answer is out.
        if self._closed():
            return False
        before_last()
        await self._finish(reply, buffer)
        return True

    async def _start(self, status: int, headers: Headers) -> None:
        self._started = True
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def _flush(self, buffer: bytearray) -> None:
        self._stamp()
        await self._send({"type": "http.response.body", "body": bytes(buffer), "more_body": True})
        buffer.clear()

    async def _finish(self, reply: HttpReply, buffer: bytearray) -> None:
        if not self._started:
            headers = reply.headers
            if not any(name == "content-length" for name, _ in headers):
                headers = (*headers, ("content-length", str(len(buffer))))
            await self._start(reply.status, headers)
        self._stamp()
        await self._send({"type": "http.response.body", "body": bytes(buffer), "more_body": False})

    def _stamp(self) -> None:
        del self.handed[_STAMPS:]
        self.handed.append(time.perf_counter())

    async def _break_off(self, reply: HttpReply, buffer: bytearray, how: Abort | Hang) -> None:
        """Send what there is (nothing at all if there is nothing), then reset, close, or wait for the client to go."""
        if buffer or self._started:
            if not self._started:
                await self._start(reply.status, reply.headers)
            if buffer:
                await self._flush(buffer)
        if isinstance(how, Hang):
            await self._watch()
            return
        # One turn of the loop lets the bytes reach the socket before it is closed.
        await asyncio.sleep(0)
        transport = self._transports(self._scope)
        if transport is None:
            return
        sock: Any = transport.get_extra_info("socket")
        if how.reset and sock is not None:
            linger = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            transport.abort()
        else:
            transport.close()

    def _closed(self) -> bool:
        transport = self._transports(self._scope)
        return transport is None or transport.is_closing()

    async def _pause(self, seconds: float) -> bool:
        """Wait until ``seconds`` after the last due time, so that many short pauses do not drift; False if the client
        left.
        """
        if seconds <= 0:
            await asyncio.sleep(0)
            return not self._closed()
        loop = asyncio.get_running_loop()
        self._due = seconds + (loop.time() if self._due is None else self._due)
        left = self._due - loop.time()
        if left <= 0:
            return not self._closed()
        if seconds < _LONG_WAIT:
            await asyncio.sleep(left)
            return not self._closed()
        if self._gone is None:
            self._gone = asyncio.create_task(self._watch())
        done, _ = await asyncio.wait({self._gone}, timeout=left)
        return not done

    async def _watch(self) -> None:
        message: Message = {"type": ""}
        while message["type"] != "http.disconnect":
            message = await self._receive()


def transport_of(connection: Any) -> asyncio.Transport | None:
    """The transport of a uvicorn connection object."""
    transport = getattr(connection, "transport", None)
    return transport if isinstance(transport, asyncio.Transport) else None
