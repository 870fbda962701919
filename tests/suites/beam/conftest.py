"""A loopback judge with one fixed answer."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pytest


@dataclass
class Serving:
    url: str
    asked: int = 0


@contextmanager
def serving(status: int, body: bytes, *, first: bytes | None = None) -> Iterator[Serving]:
    """``first`` is the body of a 200 to the first request, the rest get ``status`` and ``body``."""
    state = Serving("")

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.asked += 1
            code, text = (200, first) if first is not None and state.asked == 1 else (status, body)
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that hung up is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def serve() -> Callable[[int, bytes], AbstractContextManager[Serving]]:
    return serving
