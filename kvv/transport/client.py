"""HTTP/1.1 to the endpoints: with `notify.py`, which posts a line, the only module in kvv/ that imports an HTTP client.

aiohttp's own client is used directly: at 64 connections it measured best by far (``bench/clients.py``). Whatever
the network or the server does becomes a ``Received``; nothing is repaired, followed or sent again here.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlunsplit
from weakref import WeakSet

import aiohttp
from aiohttp import http_exceptions
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from kvv.core import Credential, Fault, FaultKind, Identity, Observation, Request, Role, Timeouts
from kvv.protocol.encode import EncodedBody
from kvv.protocol.reader import ExchangeReader, ReadLimits, Received
from kvv.protocol.redaction.redactor import Detector, Redactor
from kvv.protocol.redaction.split_secrets import without_pieces
from kvv.protocol.rules import Rules
from kvv.transport.endpoint import Endpoint, base_url, headers, proxy_for, secrets
from kvv.transport.inflate import BadEncoding, Inflater
from kvv.transport.watch import Watch

CONNECT_S, FIRST_BYTE_S, IDLE_S = 10.0, 600.0, 120.0
#: characters of an excerpt that the rules have cut
EXCERPT = 400
#: prefill may take this much longer for each expected prompt token (a slow engine reads about 1,000 a second)
FIRST_BYTE_S_PER_TOKEN = 0.001
LONG_PROMPT_TOKENS = 1_000
#: where nobody counted the prompt's tokens
BYTES_PER_TOKEN = 4
#: shorter than the idle limit of common servers (gunicorn 2 s, uvicorn and node 5 s), so that few requests meet a
#: closing one
KEEP_ALIVE_S = 1.5
#: after so many requests lost to closing connections, connections are not reused for a while
STALE_LIMIT, NO_REUSE_S = 3, 60.0

TERMINATORS = (b"[DONE]\n\n", b"[DONE]\r\n\r\n")
READ_SIZE = 2**16
WRITE_SIZE = 2**18
HEADER_LINE, HEADER_COUNT = 16_384, 256
DETAIL_LENGTH = 300


class Transport:
    """Sends requests to the endpoints; an async context manager. Makes no more than ``max_connections`` per endpoint.

    Proxies come from the environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY) and are never used for loopback; netrc is
    never read, no cookie kept, no redirect followed. The time-outs (seconds) are the run's; a request's own go over
    them.
    """

    def __init__(
        self,
        endpoints: Mapping[Role, Endpoint],
        *,
        redactor: Redactor,
        limits: ReadLimits,
        connect_timeout: float | None = None,
        first_byte_timeout: float | None = None,
        idle_timeout: float | None = None,
        max_connections: int = 512,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._limits = limits
        self._timeouts = Timeouts(connect=connect_timeout, first_byte=first_byte_timeout, idle=idle_timeout)
        self._channels = {
            role: _Channel(endpoint, max_connections, ssl_context) for role, endpoint in endpoints.items()
        }
        self._redactor = redactor.plus(secret for channel in self._channels.values() for secret in channel.secrets)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()
        await asyncio.sleep(0)  # lets the closed connections say so before the loop may end

    async def send(
        self,
        request: Request,
        body: EncodedBody,
        *,
        identity: Identity,
        attempt: int,
        rules: Rules | None,
        keep_frames: bool,
        deadline: float | None = None,
    ) -> Received:
        """One attempt. Never raises for anything the network or the server does; cancelling closes the connection.

        ``deadline``: seconds from now to the end of the whole run.
        """
        channel = self._channels[request.role]
        detector = Detector(self._redactor)
        reader = ExchangeReader(
            identity=identity,
            attempt=attempt,
            request=request,
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            rules=rules,
            keep_frames=keep_frames,
            limits=self._limits,
            redact=None,  # done below, once, over everything
            look=detector.look,
        )
        call = _Call(reader, detector)
        connect, first_byte, idle = self._patience(request, body.size)
        watch = Watch(first_byte=first_byte, idle=idle, deadline=deadline)
        fault: Fault | None = None
        try:
            async with watch:
                fault = await call.run(channel, request, body, connect, watch)
        except (
            aiohttp.ClientError,
            http_exceptions.HttpProcessingError,
            OSError,
        ) as error:  # TimeoutError is an OSError
            fault = watch.fault if watch.fired else _fault(error, connect)
        except BadEncoding as error:
            fault = Fault(kind=FaultKind.BAD_ENCODING, detail=str(error))
        finally:
            if not call.answered:
                call.abort()
        if fault is not None:
            channel.note(fault, reused=call.reused, answered=call.answered)
            fault = replace(
                fault, detail=self._redactor.message(fault.detail)[:DETAIL_LENGTH], after_content=call.content
            )
        received = reader.finish(fault=fault, total_ms=call.elapsed_ms(), close_delimited=call.close_delimited)
        return self._scrubbed(received, suspicious=call.detector.found)

    def _scrubbed(self, received: Received, *, suspicious: bool) -> Received:
        """Where no packet held a secret, one can still be spelled out over several frames: only in what they add up
        to.
        """
        if any(map(self._redactor.suspects, _joined(received.observation))):
            exchange = received.exchange
            received = replace(
                received, exchange=replace(exchange, frames=without_pieces(exchange.frames, self._redactor))
            )
            suspicious = True
        if not suspicious:
            return received
        whole = self._redactor.value(received)
        # the rules cut their excerpts before anything was scrubbed
        findings = tuple(
            replace(new, excerpt=self._redactor.cut(old.excerpt, EXCERPT))
            for old, new in zip(received.findings, whole.findings, strict=True)
        )
        return replace(whole, findings=findings)

    def _patience(self, request: Request, size: int) -> tuple[float, float, float]:
        """Seconds to connect, to the first byte and between bytes, for a body of ``size`` bytes; prefill time grows
        with the prompt.
        """
        own, run = request.timeouts, self._timeouts
        connect = own.connect or run.connect or CONNECT_S
        tokens = request.expect_prompt_tokens or size // BYTES_PER_TOKEN
        extra = tokens * FIRST_BYTE_S_PER_TOKEN if tokens >= LONG_PROMPT_TOKENS else 0.0
        # a request's own limit and the run's: the shorter one
        limits = [limit for limit in (own.first_byte, run.first_byte) if limit]
        first_byte = min(limits, default=FIRST_BYTE_S) + extra
        return connect, first_byte, own.idle or run.idle or IDLE_S


class _Channel:
    """One endpoint's sessions: one that reuses connections, and one that does not, for servers that close them
    unannounced.
    """

    def __init__(self, endpoint: Endpoint, max_connections: int, ssl_context: ssl.SSLContext | None) -> None:
        self._url = base_url(endpoint)
        self._headers = {credential: headers(endpoint, credential) for credential in Credential}
        self._proxy = proxy_for(endpoint.base_url, os.environ)
        self.secrets = secrets(endpoint, self._proxy)
        self._max_connections = max_connections
        self._ssl = ssl_context
        self._urls: dict[str, URL] = {}
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._seen: WeakSet[asyncio.BaseTransport] = WeakSet()
        self._stale = 0
        self._reuse_from = 0.0

    def open(self, request: Request, payload: _Body | None, connect: float) -> Any:
        """aiohttp's request context."""
        session = self._session(reuse=time.monotonic() >= self._reuse_from)
        if request.path not in self._urls:
            path, _, query = request.path.partition("?")
            parts = self._url._replace(
                path=self._url.path + path, query="&".join(filter(None, (self._url.query, query)))
            )
            self._urls[request.path] = URL(urlunsplit(parts))
        return session.request(
            request.method,
            self._urls[request.path],
            data=payload,
            headers=self._headers[
                request.credential
            ],  # not the session's: those would go to a proxy's CONNECT as well, key and all
            proxy=self._proxy,
            allow_redirects=False,
            timeout=_client_timeout(connect),
        )

    def note(self, fault: Fault, *, reused: bool, answered: bool) -> None:
        """Learn from a request that a closing connection swallowed."""
        if fault.kind is FaultKind.RESET and reused and not answered:
            self._stale += 1
            if self._stale >= STALE_LIMIT:
                self._stale, self._reuse_from = 0, time.monotonic() + NO_REUSE_S

    def is_reused(self, connection: asyncio.BaseTransport) -> bool:
        """Whether this connection carried a request before."""
        if connection in self._seen:
            return True
        self._seen.add(connection)
        return False

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()

    def _session(self, *, reuse: bool) -> aiohttp.ClientSession:
        if reuse not in self._sessions:
            keep: dict[str, Any] = {"keepalive_timeout": KEEP_ALIVE_S} if reuse else {"force_close": True}
            self._sessions[reuse] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._max_connections, ssl=self._ssl or True, resolver=aiohttp.ThreadedResolver(), **keep
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                read_bufsize=READ_SIZE,
                max_line_size=HEADER_LINE,
                max_field_size=HEADER_LINE,
                max_headers=HEADER_COUNT,
            )
        return self._sessions[reuse]


@cache
def _client_timeout(connect: float) -> aiohttp.ClientTimeout:
    """Only the connecting is left to aiohttp; the rest is ``Watch``'s."""
    return aiohttp.ClientTimeout(total=None, connect=None, sock_connect=connect, sock_read=None)


def _joined(observation: Observation) -> Iterator[str]:
    """The texts that may come from more than one frame."""
    for choice in observation.choices:
        yield from filter(None, (choice.answer, choice.reasoning, choice.refusal))
        for call in choice.tool_calls:
            yield f"{call.name} {call.arguments}"


class _Call:
    """What is known of one attempt while it runs. ``origin`` is the moment offsets count from
    (``time.perf_counter``).
    """

    __slots__ = ("_reader", "answered", "close_delimited", "content", "detector", "origin", "reused", "socket")

    def __init__(self, reader: ExchangeReader, detector: Detector) -> None:
        self._reader = reader
        self.detector = detector
        self.origin = time.perf_counter()
        self.answered = self.content = self.close_delimited = self.reused = False
        self.socket: asyncio.WriteTransport | None = None

    def abort(self) -> None:
        """Closing politely would wait for a peer that takes no more bytes."""
        if self.socket is not None:
            self.socket.abort()

    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self.origin) * 1000

    async def run(
        self, channel: _Channel, request: Request, body: EncodedBody, connect: float, watch: Watch
    ) -> Fault | None:
        payload = _Body(body, self, watch, channel) if body.size or request.method == "POST" else None
        async with channel.open(request, payload, connect) as response:
            self.answered = True
            try:
                return await self._take(response, watch)
            finally:
                if (
                    response.connection is not None
                ):  # None: the answer is complete, and the connection may be another request's by now
                    self.abort()

    async def _take(self, response: aiohttp.ClientResponse, watch: Watch) -> Fault | None:
        raw = response.raw_headers
        head = b"\n".join(value for _, value in raw)
        self.detector.feed(head)
        self.detector.look(head)
        self._reader.head(
            response.status, [(name.decode("latin-1").lower(), value.decode("utf-8", "replace")) for name, value in raw]
        )
        delimited = (
            "content-length" in response.headers or "chunked" in response.headers.get("transfer-encoding", "").lower()
        )
        self.close_delimited = not delimited and response.status not in (204, 304)
        watch.broken = lambda: _unnoticed(response)
        inflater = Inflater(response.headers.get("content-encoding", ""))
        if not await self._read(response, inflater, watch):
            return Fault(
                kind=FaultKind.TOO_LARGE, detail="the answer exceeds a limit on its size, its lines or its nesting"
            )
        inflater.finish()
        return None

    async def _read(self, response: aiohttp.ClientResponse, inflater: Inflater, watch: Watch) -> bool:
        """The body to its end; False when the reader wants no more."""
        terminators = (
            TERMINATORS if response.headers.get("content-type", "").lower().startswith("text/event-stream") else ()
        )
        said = 0
        while data := await response.content.readany():
            offset = (watch.beat() - self.origin) * 1000
            self.content = True
            for piece in (data,) if inflater.transparent else inflater.feed(data):
                self.detector.feed(piece)
                if not self._reader.feed(piece, offset):
                    return False
                if self._reader.said != said:
                    said = self._reader.said
                    watch.news()
                if piece.endswith(terminators):
                    watch.terminated()
                if len(piece) >= READ_SIZE:
                    await asyncio.sleep(0)  # one packet may unpack to megabytes, and others have streams to read
        return True


class _Body(aiohttp.Payload):
    """The parts of a body, sent one by one: four megabytes are never joined, nor pushed at once into the socket's
    buffer.
    """

    def __init__(self, body: EncodedBody, call: _Call, watch: Watch, channel: _Channel) -> None:
        super().__init__(body, content_type="application/json")
        self._size = body.size
        self._parts = body.parts if body.size > WRITE_SIZE else (b"".join(body.parts),)
        self._call = call
        self._watch = watch
        self._channel = channel

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._parts).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        self._call.origin = self._watch.restart()
        if (connection := getattr(writer, "transport", None)) is not None:
            self._call.socket, self._call.reused = connection, self._channel.is_reused(connection)
        for part in self._parts:
            if len(part) <= WRITE_SIZE:
                await writer.write(part)
                continue
            view = memoryview(part)
            for start in range(0, len(part), WRITE_SIZE):
                await writer.write(view[start : start + WRITE_SIZE])
        self._watch.restart()


# --- what goes wrong -----------------------------------------------------------------------------


def _fault(error: BaseException, connect: float) -> Fault:
    """A client exception as a Fault, in words of our own: an exception's text may quote URLs, credentials or the
    server.
    """
    match error:
        case aiohttp.ConnectionTimeoutError():
            return Fault(kind=FaultKind.CONNECT, detail=f"no connection within {connect:g} s")
        case aiohttp.ClientConnectorDNSError():
            return Fault(kind=FaultKind.DNS, detail=f"the host's name was not resolved ({_system(error)})")
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return Fault(kind=FaultKind.TLS, detail=f"TLS failed ({_tls(error)})")
        case aiohttp.ClientProxyConnectionError():
            return Fault(kind=FaultKind.CONNECT, detail=f"the proxy was not reached ({_system(error)})")
        case aiohttp.ClientHttpProxyError():
            return Fault(kind=FaultKind.CONNECT, detail=f"the proxy refused the tunnel with status {error.status}")
        case aiohttp.ClientConnectorError() if error.errno is None and isinstance(error.os_error, ConnectionResetError):
            return Fault(kind=FaultKind.TLS, detail="the server broke off the TLS handshake")
        case aiohttp.ClientConnectorError():
            return Fault(kind=FaultKind.CONNECT, detail=f"no connection ({_system(error)})")
        case aiohttp.ServerDisconnectedError():
            where = "before an answer" if isinstance(error.message, str) else "inside the head of its answer"
            return Fault(kind=FaultKind.RESET, detail=f"the server closed the connection {where}")
        case aiohttp.ClientPayloadError():
            return _payload_fault(error)
        case aiohttp.ClientResponseError() | http_exceptions.HttpProcessingError():
            return Fault(kind=FaultKind.PROTOCOL, detail=f"malformed HTTP: {_one_line(error.message)}")
        case OSError():
            return Fault(kind=FaultKind.RESET, detail=f"the connection broke ({_system(error)})")
    return Fault(kind=FaultKind.RESET, detail="the connection broke")


def _payload_fault(error: aiohttp.ClientPayloadError) -> Fault:
    """A body that broke: by RST (which only the message tells), by ending too early, or by malformed framing."""
    if found := re.search(r"\b(Connection\w*Error|BrokenPipeError|OSError)\(", str(error)):
        return Fault(kind=FaultKind.RESET, detail=f"the connection broke ({found[1]})")
    cause = error.__cause__
    if isinstance(cause, http_exceptions.HttpProcessingError) and "Not enough data" not in cause.message:
        return Fault(kind=FaultKind.PROTOCOL, detail=f"malformed HTTP: {_one_line(cause.message)}")
    return Fault(kind=FaultKind.CUT, detail="the connection was closed before the body was complete")


def _unnoticed(response: aiohttp.ClientResponse) -> Fault | None:
    """aiohttp closes a connection on malformed framing in mid-body without waking the body's reader."""
    connection = response.connection
    protocol = connection.protocol if connection is not None else None
    if (
        protocol is None
        or protocol.exception() is None
        or response.content.is_eof()
        or response.content.exception() is not None
    ):
        return None
    return Fault(kind=FaultKind.PROTOCOL, detail="malformed HTTP: the framing of the body")


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _system(error: BaseException) -> str:
    """The operating system's name for an error, such as ECONNREFUSED, else the exception's class."""
    for cause in (error, getattr(error, "os_error", None), *_causes(error)):
        if isinstance(cause, socket.gaierror):
            return _one_line(str(cause.strerror))
        number = getattr(cause, "errno", None)
        if isinstance(number, int) and number in errno.errorcode:
            return errno.errorcode[number]
    return type(error).__name__


def _tls(error: BaseException) -> str:
    for cause in _causes(error):
        reason = getattr(cause, "verify_message", None) or getattr(cause, "reason", None)
        if isinstance(reason, str) and isinstance(cause, ssl.SSLError):
            return _one_line(reason)
    return type(error).__name__


def _one_line(text: str) -> str:
    return " ".join(text.split())[:DETAIL_LENGTH]
