"""One command as a process of this machine: fed, read within bounds, watched, and ended with everything it started."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import stat
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvv.sandbox.output import Kept

#: seconds between two looks at a running command's memory
MEMORY_EVERY_S = 0.2
#: seconds between two looks at its disk, and how many times longer than the look itself
DISK_EVERY_S, DISK_REST = 0.5, 10
#: how long a killed command's pipes may take to close
CLOSING_S = 2.0
_CHUNK = 1 << 16


@dataclass(slots=True, kw_only=True)
class ProcessBounds:
    """What ends a command. ``memory`` in bytes over the whole process tree, ``disk`` in bytes under ``tree``."""

    timeout_s: float
    output_limit: int
    memory: int
    disk: int
    tree: Path


@dataclass(slots=True, kw_only=True)
class ProcessEnd:
    """``killed`` says which bound ended it: time, memory, disk; "" where it ended by itself."""

    code: int | None
    output: str
    elided: int
    killed: str
    seconds: float


@dataclass(slots=True, kw_only=True)
class Launch:
    """``options`` go to the process constructor (user, pass_fds...); ``started`` is called once it runs."""

    argv: Sequence[str]
    stdin: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    started: Callable[[], None] = lambda: None


async def run(launch: Launch, bounds: ProcessBounds) -> ProcessEnd:
    """Raises OSError where the process cannot be started. Cancelled, it kills first."""
    began = time.monotonic()
    feed = PIPE if launch.stdin else DEVNULL
    process = await asyncio.create_subprocess_exec(
        *launch.argv, stdin=feed, stdout=PIPE, stderr=STDOUT, start_new_session=True, limit=_CHUNK, **launch.options
    )
    launch.started()
    kept = Kept(bounds.output_limit)
    killed = ""
    reading = asyncio.ensure_future(_talk(process, launch.stdin.encode("utf-8", "surrogatepass"), kept))
    watching = asyncio.ensure_future(_watch(process, bounds))
    try:
        done, _ = await asyncio.wait({reading, watching}, timeout=bounds.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if reading not in done:
            killed = watching.result() if watching in done else "time"
    finally:
        watching.cancel()
        _kill(process)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(reading), CLOSING_S)
        reading.cancel()
        await _exited(process)
        # nobody may read a pipe that a process outside our reach holds open; there is no public way to say so
        process._transport.close()  # type: ignore[attr-defined]
    text = kept.text()
    code = None if killed == "time" else process.returncode
    return ProcessEnd(code=code, output=text, elided=kept.elided, killed=killed, seconds=time.monotonic() - began)


async def _talk(process: Process, stdin: bytes, kept: Kept) -> None:
    """Until the command has ended: what it left behind may hold the pipe open for ever."""
    writing = asyncio.ensure_future(_write(process, stdin))
    listening = asyncio.ensure_future(_listen(process, kept))
    try:
        await _exited(process)
        # the pipe's remaining bytes; whoever else holds it gets no time
        _kill(process)
        await asyncio.wait({listening}, timeout=CLOSING_S)
    finally:
        for task in (writing, listening):
            task.cancel()


async def _exited(process: Process) -> None:
    """``wait`` alone may wait for the pipes too, which a left-behind process holds open."""
    waiting = asyncio.ensure_future(process.wait())
    while process.returncode is None:
        await asyncio.wait({waiting}, timeout=0.05)
    waiting.cancel()


async def _listen(process: Process, kept: Kept) -> None:
    assert process.stdout is not None
    while chunk := await process.stdout.read(_CHUNK):
        kept.feed(chunk)


async def _write(process: Process, data: bytes) -> None:
    if process.stdin is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


def _kill(process: Process) -> None:
    """All that it started and that can be found; in a PID namespace the rest ends with it."""
    for pid in list(descendants(process.pid))[1:]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _watch(process: Process, bounds: ProcessBounds) -> str:
    """Which bound was broken; looks until it is cancelled."""
    next_disk = time.monotonic() + DISK_EVERY_S
    while True:
        await asyncio.sleep(MEMORY_EVERY_S)
        if bounds.memory and _too_much(process.pid, bounds.memory):
            return "memory"
        if bounds.disk and time.monotonic() >= next_disk:
            before = time.monotonic()
            if await asyncio.to_thread(_disk, process.pid, bounds) > bounds.disk:
                return "disk"
            next_disk = time.monotonic() + max(DISK_EVERY_S, DISK_REST * (time.monotonic() - before))


def _disk(pid: int, bounds: ProcessBounds) -> int:
    """Bytes in the tree, and of files that were unlinked while a process holds them open."""
    return disk_usage(bounds.tree, bounds.disk) + unlinked_files(list(descendants(pid)), bounds.tree)


def descendants(pid: int) -> Iterator[int]:
    """The process and all that it started, as Linux shows them; nothing on other systems."""
    waiting = [pid]
    while waiting:
        found = waiting.pop()
        yield found
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{found}/task"):
                waiting += map(int, Path(f"/proc/{found}/task/{thread}/children").read_text("ascii").split())


def _too_much(pid: int, limit: int) -> bool:
    """The cheap look first; pages that forked processes share count once only in the dear one."""
    pids = list(descendants(pid))
    unmapped = memory_files(pids)
    return sum(map(resident_bytes, pids)) + unmapped > limit and sum(map(proportional, pids)) + unmapped > limit


def resident_bytes(pid: int) -> int:
    """Bytes of the process in memory, without files."""
    return _kilobytes(f"/proc/{pid}/status", ("RssAnon:", "RssShmem:"))


def proportional(pid: int) -> int:
    """Bytes of the process in memory, shared ones divided by the number of those who share them."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))


def _kilobytes(path: str, names: tuple[str, ...]) -> int:
    with contextlib.suppress(OSError, ValueError):
        lines = Path(path).read_text("ascii", "replace").splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(names))
    return 0


def memory_files(pids: Sequence[int]) -> int:
    """Bytes of files that live in memory alone (memfd), each once: what is written to them belongs to no process."""
    return _held(pids, lambda path, found: os.readlink(path).startswith("/memfd:"))


def unlinked_files(pids: Sequence[int], tree: Path) -> int:
    """Bytes of the tree's files that have no name any more and are held open, each once."""
    device = os.stat(tree).st_dev
    return _held(
        pids, lambda path, found: found.st_nlink == 0 and found.st_dev == device and stat.S_ISREG(found.st_mode)
    )


def _held(pids: Sequence[int], counts: Callable[[str, os.stat_result], bool]) -> int:
    """Allocated bytes of open files that count."""
    sizes = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{name}"
                with contextlib.suppress(OSError):
                    if counts(path, found := os.stat(path)):
                        sizes[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def disk_usage(tree: Path, enough: int) -> int:
    """Allocated bytes under ``tree``; stops counting beyond ``enough``. A tree with longer paths than the system takes
    hides what is below: it counts as more than enough."""
    total, waiting = 0, [str(tree)]
    while waiting and total <= enough:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError as error:  # gone meanwhile, or closed to us
            if error.errno == errno.ENAMETOOLONG:
                return enough + 1
            continue
        for entry in entries:
            try:
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    return enough + 1
    return total
