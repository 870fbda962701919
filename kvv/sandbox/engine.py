"""The container engine's HTTP API over its Unix socket: Docker Engine, Docker Desktop and Podman speak it alike (API
version 1.40).

A plain client of the few calls that a sandbox needs, blocking, one connection a call; its users call it from threads.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import socket
import struct
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

VERSION = "v1.40"
#: an answer that is no stream is not longer than this, bytes
ANSWER_LIMIT = 64 << 20
_CHUNK = 1 << 16


class EngineError(Exception):
    """The engine does not answer, or refuses; one line. ``status`` is 0 where there was no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def socket_path(environ: Mapping[str, str] | None = None) -> Path | None:
    """Where DOCKER_HOST points (unix:// only), else the first usual place that exists."""
    environ = os.environ if environ is None else environ
    named = environ.get("DOCKER_HOST", "")
    if named:
        return Path(named.removeprefix("unix://")) if named.startswith("unix://") else None
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    home = Path(environ.get("HOME") or "/nonexistent")
    places = [Path("/var/run/docker.sock"), home / ".docker/run/docker.sock", Path(runtime, "docker.sock")]
    places += [Path("/run/podman/podman.sock"), Path(runtime, "podman/podman.sock")]
    return next((place for place in places if place.is_socket()), None)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class ContainerEngine:
    def __init__(self, path: Path) -> None:
        self.path = path

    def call(self, method: str, target: str, body: object = None, *, timeout_s: float = 60.0, **query: str) -> Any:
        """The parsed JSON answer, None where it is empty. ``body``: bytes (a tar file) or something JSON-like."""
        connection = _Connection(self.path, timeout_s)
        try:
            answer = self._send(connection, method, target, body, query)
            data = answer.read(ANSWER_LIMIT)
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(
                f"the container engine at {self.path} does not answer: {type(error).__name__} {error}"
            ) from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise EngineError(f"the container engine refuses: {_message(data)}", answer.status)
        try:
            return json.loads(data) if data.strip() else None
        except ValueError:
            return None

    def _send(
        self, connection: _Connection, method: str, target: str, body: object, query: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = "application/x-tar" if isinstance(body, bytes) else "application/json"
        url = f"/{VERSION}{target}{'?' + urlencode(query) if query else ''}"
        connection.request(method, url, data, {"Content-Type": kind})
        return connection.getresponse()

    # --- containers ------------------------------------------------------------------------------------

    def create(self, settings: Mapping[str, Any]) -> str:
        """The new container's id; it is not started."""
        return str(self.call("POST", "/containers/create", settings)["Id"])

    def start(self, container: str) -> None:
        self.call("POST", f"/containers/{container}/start")

    def remove(self, container: str) -> None:
        """Kills it too; one that is gone is no error."""
        try:
            self.call("DELETE", f"/containers/{container}", force="true", v="true")
        except EngineError as error:
            if error.status not in (404, 409):
                raise

    def labelled(self, label: str) -> list[dict[str, Any]]:
        """All containers with the label (name or name=value): id and labels."""
        found = self.call("GET", "/containers/json", all="true", filters=json.dumps({"label": [label]}))
        return [{"id": entry["Id"], "labels": entry.get("Labels") or {}} for entry in found]

    def put(self, container: str, folder: str, name: str, data: bytes) -> None:
        """A file in an existing folder of the container, readable by all."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
        self.call("PUT", f"/containers/{container}/archive", packed.getvalue(), path=folder)

    def image(self, name: str) -> dict[str, Any] | None:
        """What the engine knows of an image, None where it is not here."""
        try:
            found: dict[str, Any] = self.call("GET", f"/images/{quote(name, safe='/:@')}/json")
        except EngineError as error:
            if error.status == 404:
                return None
            raise
        return found

    def pull(self, name: str, *, timeout_s: float = 3600.0) -> None:
        repository, _, tag = (
            name.partition("@")
            if "@" in name
            else name.rpartition(":")
            if ":" in name.rsplit("/", 1)[-1]
            else (name, "", "latest")
        )
        self.call("POST", "/images/create", timeout_s=timeout_s, fromImage=repository, tag=tag)

    # --- commands --------------------------------------------------------------------------------------

    def execute(
        self, container: str, settings: Mapping[str, Any], feed: Callable[[bytes], None], *, timeout_s: float
    ) -> int | None:
        """Runs a command, gives its output to ``feed`` as it comes; the exit code. TimeoutError when it is not over in
        time.
        """
        started = self.call("POST", f"/containers/{container}/exec", settings)["Id"]
        connection = _Connection(self.path, timeout_s)
        try:
            answer = self._send(connection, "POST", f"/exec/{started}/start", {"Detach": False, "Tty": False}, {})
            if answer.status >= 300:
                raise EngineError(f"the container engine refuses: {_message(answer.read(_CHUNK))}", answer.status)
            _frames(answer, feed)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, TimeoutError):
                raise
            raise EngineError(f"the container engine broke off: {type(error).__name__} {error}") from error
        finally:
            connection.close()
        code = self.call("GET", f"/exec/{started}/json").get("ExitCode")
        return code if isinstance(code, int) else None


def _frames(answer: http.client.HTTPResponse, feed: Callable[[bytes], None]) -> None:
    """The engine's multiplexed stream: 8 bytes of head (which stream, 3 zeros, length), then that many bytes of
    output.
    """
    while head := _exactly(answer, 8):
        left = struct.unpack(">I", head[4:])[0]
        while left:
            part = answer.read(min(left, _CHUNK))
            if not part:
                return
            feed(part)
            left -= len(part)


def _exactly(answer: http.client.HTTPResponse, size: int) -> bytes:
    data = answer.read(size)
    return data if len(data) == size else b""


def _message(data: bytes) -> str:
    try:
        said = json.loads(data)["message"]
    except (ValueError, KeyError, TypeError):
        said = data.decode("utf-8", "replace")
    return " ".join(str(said).split())[:300]
