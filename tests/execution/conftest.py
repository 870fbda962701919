"""A loopback server that answers every POST through one function, over real sockets."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Fixed:
    """What to send: status, body, headers; ``hang`` seconds of silence first."""

    status: int = 200
    body: bytes = b"{}"
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    hang: float = 0.0


@dataclass
class Serving:
    url: str
    seen: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def serving(answer: Callable[[int, dict[str, str], bytes], Fixed]) -> Iterator[Serving]:
    """``answer(number, headers, body)`` for each request, numbered from 0."""
    state = Serving("")
    ended = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.seen.append(dict(self.headers))
            fixed = answer(len(state.seen) - 1, dict(self.headers), body)
            if fixed.hang and ended.wait(fixed.hang):
                return
            self.send_response(fixed.status)
            for name, value in {
                "Content-Type": fixed.content_type,
                "Content-Length": str(len(fixed.body)),
                **fixed.headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(fixed.body)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that hung up is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield state
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


#: serve(status=..., body=..., ...) for a fixed answer, or serve(answer=function)
Serve = Callable[..., Any]


@pytest.fixture
def serve() -> Serve:
    def start(answer: Callable[[int, dict[str, str], bytes], dict[str, Any]] | None = None, **how: Any) -> Any:
        return serving(lambda number, headers, body: Fixed(**(answer(number, headers, body) if answer else how)))

    return start
