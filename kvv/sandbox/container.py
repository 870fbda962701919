"""The backend behind a Docker-compatible socket: one container per tree, from the instance's own image.

No network, bounded memory, processors and processes, no privilege to gain; only what is needed of root's capabilities.
The container's first process ends by itself after a day, the watchdog removes what a killed run leaves, and the next
run sweeps by label what both missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from kvv.core import Command, Executed
from kvv.sandbox.base import ENVIRONMENT, QUIET, Sandbox, SandboxError, SandboxLimits, Session, Workspace
from kvv.sandbox.engine import ContainerEngine, EngineError, socket_path
from kvv.sandbox.folder import RunFolder
from kvv.sandbox.output import Kept

LABEL = "org.kvv.sandbox"
#: on every container: which machine and process made it, for the sweep
OWNER = "org.kvv.owner"
CPUS = 2
LIFETIME_MINUTES = 24 * 60
#: seconds beyond a command's own time-out that the engine may take
GRACE_S = 30.0
#: what package managers, git and tests of a root container do; everything else is dropped
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
INSTALL = "a Docker-compatible socket (Docker, or `podman system service`; DOCKER_HOST names it)"
#: where a bundle goes when no image is named; must hold bash, git and python3
DEFAULT_IMAGE = "python:3.11"

MACHINES: Mapping[str, str] = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
#: named because Podman otherwise asks for more than an unprivileged root may have
_PLAIN_ULIMITS = (("nofile", 8192), ("nproc", 16_384))
#: the first process: no signal from inside ends it, it takes in orphans, and it ends by itself in the end
_FIRST = f"n=0; while [ $n -lt {LIFETIME_MINUTES} ]; do sleep 60 & wait $!; n=$((n+1)); done"
#: a command's standard input is a file of the container: the API's own way in differs between engines
_FED = 'exec < "$1"; shift; exec "$@"'
_STDIN = "kvv-stdin"


class Containers(Sandbox):
    name = "docker"

    def __init__(
        self,
        limits: SandboxLimits | None = None,
        engine: ContainerEngine | None = None,
        default_image: str = DEFAULT_IMAGE,
    ) -> None:
        path = socket_path()
        self._engine = engine or (ContainerEngine(path) if path else None)
        self._limits = limits or SandboxLimits(memory=8 << 30, disk=20 << 30)
        self.default_image = default_image
        self._run = uuid.uuid4().hex
        self._folder = RunFolder(lambda: [str(self._known.path), f"{LABEL}={self._run}"])
        self._swept = False
        self._slots = asyncio.Semaphore(os.cpu_count() or 1)

    @property
    def _known(self) -> ContainerEngine:
        if self._engine is None:
            raise SandboxError(f"{INSTALL} is not there")
        return self._engine

    def missing(self) -> str:
        if self._engine is None:
            return f"{INSTALL} is not there"
        try:
            self._engine.call("GET", "/version", timeout_s=10)
        except EngineError as error:
            return str(error)
        return ""

    def refuses(self, workspace: Workspace) -> str:
        if workspace.image or self._engine is None or self._engine.image(self.default_image) is not None:
            return ""
        return f"its instances need the image {self.default_image}: `docker pull {self.default_image}`"

    def identity(self, workspace: Workspace) -> str:
        if workspace.bundle or self._engine is None:
            return ""
        try:
            return str((self._engine.image(workspace.image) or {}).get("Id", ""))
        except EngineError:
            return ""

    async def begin(self, workspace: Workspace) -> Session:
        try:
            return await asyncio.to_thread(self._begin, workspace)
        except (EngineError, OSError) as error:
            raise SandboxError(str(error)) from error

    def _begin(self, workspace: Workspace) -> _Session:
        engine = self._known
        if not self._swept:
            self._swept = True
            sweep(engine)
        self._folder.new()  # starts the watchdog
        name = workspace.image or self.default_image
        image = engine.image(name)
        if image is None:
            engine.pull(name)
            image = engine.image(name) or {}
        container = engine.create(self._settings(name, workspace.workdir))
        try:
            engine.start(container)
        except EngineError:
            with contextlib.suppress(EngineError):
                engine.remove(container)
            raise
        native = MACHINES.get(platform.machine(), platform.machine())
        own = (
            QUIET
            if workspace.image
            else {name: value for name, value in ENVIRONMENT.items() if name not in ("PATH", "HOME")}
        )
        environment = [f"{name}={value}" for name, value in own.items()]
        emulated = image.get("Architecture", native) != native
        return _Session(engine, container, workspace.workdir, environment, self._slots, emulated=emulated)

    def _settings(self, image: str, workdir: str) -> dict[str, Any]:
        limits = self._limits
        return {
            "Image": image,
            "Entrypoint": ["sh", "-c"],
            "Cmd": [_FIRST],
            "WorkingDir": workdir,
            "Labels": {LABEL: self._run, OWNER: owner()},
            "NetworkDisabled": True,
            "Env": [],
            "HostConfig": {
                "NetworkMode": "none",
                "Memory": limits.memory,
                "MemorySwap": limits.memory,
                "NanoCpus": CPUS * 1_000_000_000,
                "PidsLimit": limits.processes,
                "CapDrop": ["ALL"],
                "CapAdd": list(CAPABILITIES),
                "SecurityOpt": ["no-new-privileges"],
                "ShmSize": 64 << 20,
                "Ulimits": [
                    {"Name": name, "Soft": value, "Hard": value}
                    for name, value in (("fsize", limits.file), ("core", 0), *_PLAIN_ULIMITS)
                ],
            },
        }

    async def close(self) -> None:
        if self._engine is not None and self._swept:
            await asyncio.to_thread(remove_labelled, self._engine, f"{LABEL}={self._run}")
        await asyncio.to_thread(self._folder.close)


class _Session(Session):
    def __init__(
        self,
        engine: ContainerEngine,
        container: str,
        workdir: str,
        environment: list[str],
        slots: asyncio.Semaphore,
        *,
        emulated: bool,
    ) -> None:
        self._environment = environment
        self._engine = engine
        self._container = container
        self._workdir = workdir
        self._slots = slots
        self.emulated = emulated

    async def run(self, command: Command) -> Executed:
        async with self._slots:
            try:
                return await asyncio.to_thread(self._run, command)
            except EngineError as error:
                raise SandboxError(str(error)) from error

    def _run(self, command: Command) -> Executed:
        kept, began = Kept(command.output_limit), time.monotonic()
        argv = list(command.argv)
        if command.stdin:
            self._engine.put(self._container, "/", _STDIN, command.stdin.encode("utf-8", "surrogatepass"))
            argv = ["sh", "-c", _FED, "fed", f"/{_STDIN}", *argv]
        settings = {
            "AttachStdout": True,
            "AttachStderr": True,
            "Cmd": argv,
            "WorkingDir": self._workdir,
            "Env": self._environment,
        }
        deadline = _Deadline(self._engine, self._container, command.timeout_s)
        try:
            with deadline:
                code = self._engine.execute(self._container, settings, kept.feed, timeout_s=command.timeout_s + GRACE_S)
        except TimeoutError:
            deadline.passed = True
            code = None
        killed = "time" if deadline.passed else "memory" if code == 137 and self._out_of_memory() else ""
        return Executed(
            exit_code=None if deadline.passed else code,
            output=kept.text(),
            timed_out=deadline.passed,
            seconds=time.monotonic() - began,
            elided=kept.elided,
            killed=killed,
            emulated=self.emulated,
        )

    def _out_of_memory(self) -> bool:
        state = (self._engine.call("GET", f"/containers/{self._container}/json") or {}).get("State") or {}
        return bool(state.get("OOMKilled"))

    async def close(self) -> None:
        with contextlib.suppress(EngineError):  # the run's end and the sweep try again
            await asyncio.to_thread(self._engine.remove, self._container)


class _Deadline:
    """Kills every process of the container but the first when the time is over: the API cannot end a command."""

    def __init__(self, engine: ContainerEngine, container: str, seconds: float) -> None:
        self._engine, self._container, self._seconds = engine, container, seconds
        self.passed = False

    def __enter__(self) -> None:
        self._timer = threading.Timer(self._seconds, self._kill)
        self._timer.daemon = True
        self._timer.start()

    def _kill(self) -> None:
        self.passed = True
        with contextlib.suppress(EngineError, TimeoutError):
            settings = {"AttachStdout": True, "AttachStderr": True, "Cmd": ["sh", "-c", "kill -9 -1"]}
            self._engine.execute(self._container, settings, lambda _: None, timeout_s=GRACE_S)

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


# --- sweeping ----------------------------------------------------------------------------------------


def owner() -> str:
    """Machine, process and the process's start: a number that is used again is not taken for its predecessor."""
    return f"{socket.gethostname()}/{os.getpid()}/{_started(os.getpid())}"


def _started(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[19].decode("ascii")
    except (OSError, IndexError):
        return ""


def alive(owned: str) -> bool:
    """Whether the process that made a container lives, or may live: one of another machine is left alone."""
    host, _, rest = owned.partition("/")
    pid, _, started = rest.partition("/")
    if host != socket.gethostname() or not pid.isdecimal():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _started(int(pid)) == started


def sweep(engine: ContainerEngine) -> int:
    """Remove the containers of processes that live no more; how many."""
    dead = [entry["id"] for entry in engine.labelled(LABEL) if not alive(str(entry["labels"].get(OWNER, "")))]
    for container in dead:
        engine.remove(container)
    return len(dead)


def remove_labelled(engine: ContainerEngine, label: str) -> None:
    """Whatever can be removed of it."""
    with contextlib.suppress(EngineError):
        for entry in engine.labelled(label):
            engine.remove(entry["id"])
