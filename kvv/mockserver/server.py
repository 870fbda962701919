"""The endpoint as a running server: a uvicorn in a daemon thread for tests and in-process runs, or in the
foreground.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from types import FrameType, TracebackType
from typing import Self

import orjson
import uvicorn
from starlette.types import Scope

from kvv.mockserver.app import make_app
from kvv.mockserver.config import JsonObject, MockConfig
from kvv.mockserver.engine import MockEngine
from kvv.mockserver.sending import transport_of

_START_TIMEOUT_S = 20.0
_ANY_HOST = ("0.0.0.0", "::", "")  # noqa: S104  only compared with, to name a reachable address


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that starts and stops at once instead of at the next tenth of a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._by_client: dict[object, object] = {}
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ready = threading.Event()

    async def main_loop(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.ready.set()
        ticks = 0
        while not await self.on_tick(ticks) and not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), 1.0)
            ticks += 10  # the base class refreshes the date header at every tenth tick

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for sock in sockets or ():
            sock.close()
        for connection in list(self.server_state.connections):
            if (transport := transport_of(connection)) is not None:
                transport.abort()
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # An aborted transport closes its socket in a later turn of the loop; there must be one.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for server in self.servers:
            await server.wait_closed()

    def stop(self) -> None:
        """Ask the server to stop; may be called from any thread."""
        self.should_exit = True
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                self._loop.call_soon_threadsafe(self._stop.set)

    def transport(self, scope: Scope) -> asyncio.Transport | None:
        """The transport that a request came in on, or None once it is gone."""
        client = scope["client"]
        connection = self._by_client.get(client)
        if connection is None or connection not in self.server_state.connections:
            self._by_client = {getattr(entry, "client", None): entry for entry in self.server_state.connections}
            connection = self._by_client.get(client)
        return None if connection is None else transport_of(connection)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. The protocol is named because asyncio turns Nagle's algorithm off only for sockets that say
    TCP; with it every answer would wait 40 ms for a delayed acknowledgement."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # on Windows it would let another process take the port over
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(2048)
    except OSError:
        sock.close()
        raise
    return sock


class MockServer:
    """The endpoint on a socket of its own, served from a daemon thread while the context is open.

    Raises OSError if the address is taken and ValueError if the configuration names an unknown variant or fault.
    """

    def __init__(self, config: MockConfig | None = None) -> None:
        self.config = config or MockConfig()
        self._engine = MockEngine(self.config)
        self._server: _Uvicorn | None = None
        self._thread: threading.Thread | None = None
        self.base_url = ""

    def __enter__(self) -> Self:
        sock = _listen(self.config.host, self.config.port)
        host = "127.0.0.1" if self.config.host in _ANY_HOST else self.config.host
        self.base_url = f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}/v1"
        server = _Uvicorn(
            uvicorn.Config(
                make_app(self._engine, lambda scope: server.transport(scope)),
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                ws="none",
            )
        )
        self._server = server
        self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [sock]}, name="kvv-reference", daemon=True
        )
        self._thread.start()
        if not server.ready.wait(_START_TIMEOUT_S):
            raise RuntimeError("the reference endpoint did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join(_START_TIMEOUT_S)

    def stats(self) -> JsonObject:
        """The server's own counts, as GET /kvv/stats gives them."""
        return self._engine.stats.snapshot()


def serve_forever(config: MockConfig) -> None:
    """Serve until SIGINT or SIGTERM; says where on the first line and prints the stats as a JSON line at the end."""
    stopped = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with MockServer(config) as server:
            faults = ", ".join(config.faults) or "none"
            print(f"listening on {server.base_url} (model {config.model}, faults {faults})", flush=True)
            # A wait without a limit cannot be interrupted on Windows.
            while not stopped.wait(0.5):
                pass
        print(orjson.dumps(server.stats()).decode(), flush=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    sys.stdout.flush()
