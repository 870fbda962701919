"""A loopback server that speaks as much of the hub's protocol as the libraries need to load and to fetch one small data
set.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    endpoint: str
    requests: list[str] = field(default_factory=list)


@contextmanager
def serve(repo: str, files: Mapping[str, bytes]) -> Iterator[FakeHub]:
    hub = FakeHub(endpoint="")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None: ...

        def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), "X-Repo-Commit": COMMIT, **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _json(self, value: object) -> None:
            self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _entry(self, name: str) -> dict[str, object]:
            return {
                "type": "file",
                "path": name,
                "size": len(files[name]),
                "oid": hashlib.sha1(files[name]).hexdigest(),  # noqa: S324 as git does
            }

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            if path.startswith(f"/api/datasets/{repo}/tree/"):
                self._json([self._entry(name) for name in files])
            elif path == f"/api/datasets/{repo}" or path.startswith(f"/api/datasets/{repo}/revision/"):
                siblings = [{"rfilename": name} for name in files]
                self._json(
                    {
                        "id": repo,
                        "sha": COMMIT,
                        "siblings": siblings,
                        "private": False,
                        "tags": [],
                        "downloads": 0,
                        "likes": 0,
                    }
                )
            elif path.startswith(f"/datasets/{repo}/resolve/") and path.split("/", 5)[-1].split("/", 1)[-1] in files:
                body = files[path.split("/", 5)[-1].split("/", 1)[-1]]
                self._answer(200, body, {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "Accept-Ranges": "bytes"})  # noqa: S324 as git does
            else:
                self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})

        do_HEAD = do_GET

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            hub.requests.append(f"POST {self.path}")
            wanted = body.get("paths", []) if isinstance(body, dict) else []
            self._json([self._entry(name) for name in wanted if name in files])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
