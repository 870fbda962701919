"""Scoring in worker processes that can be killed: hostile text may hang a regular expression, SymPy or a schema.

Each worker is a child interpreter (``python -P -m kvv.execution.workers``) with its own pair of pipes. That it is not a
``multiprocessing`` pool has four reasons: the parent's main module is never imported again, a worker that is
killed in mid-answer shares no lock or pipe with the others, the child's environment holds no API key, and no
helper threads compete with the event loop for the interpreter lock.

A frame on a pipe is a length (four bytes, big endian) and a pickle. Pickles cross only between a process and its own
child.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from queue import SimpleQueue
from types import TracebackType
from typing import Any, BinaryIO, Self

from kvv.core.plugins import SUITES, find_entry_points

#: bytes of one pickled result; no verdict comes near it
RESULT_LIMIT = 64 << 20
#: characters kept of a remote exception's text and of its traceback
TEXT_LIMIT = 2_000
#: seconds for a child interpreter to come up, or to import a scorer's module, on a loaded machine
START_TIMEOUT_S = 120.0
#: a child killed while it started (a signal to the whole terminal) is started again this often
START_TRIES = 3
#: seconds that a task waits before another process is started for it: one costs a second of processor time to start
PATIENCE_S = 1.0
#: seconds beyond a task's own time-out after which a worker ends itself, should its parent be gone or stuck
SELF_KILL_GRACE_S = 5.0

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_HEAD = struct.Struct(">I")

#: what a child may know of the environment: no key, no token
_KEPT_ENV = re.compile(
    r"PATH|PATHEXT|HOME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP|SYSTEMROOT|WINDIR|SYSTEMDRIVE|COMSPEC|USERPROFILE|APPDATA|LOCALAPPDATA"
    r"|VIRTUAL_ENV|PYTHON(?!.*(?:KEY|TOKEN))\w*|LD_LIBRARY_PATH|DYLD_\w+",
    re.ASCII | re.IGNORECASE,
)


class WorkerTimeout(Exception):
    """The function did not return in time; its process was killed."""


class WorkerDied(Exception):
    """The process ended before it answered; its exit code is in the message."""


class WorkerError(Exception):
    """The function raised, or returned what cannot be sent back. The message is the remote exception's type and text,
    bounded; ``trace`` holds the last frames of the remote traceback, bounded."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class Workers:
    """At most ``count`` worker processes, replaced when killed or after ``recycle_after`` tasks. The first is started
    for the first task, each further one for a task that has waited ``patience_s`` while all others were busy.

    An async context manager that belongs to one event loop; leaving it kills what still runs.
    """

    def __init__(self, count: int | None = None, recycle_after: int = 5_000, *, patience_s: float = PATIENCE_S) -> None:
        if count is not None and count < 1:
            raise ValueError(f"count must be at least 1, not {count}")
        self._slots = asyncio.Semaphore(count or _default_count())
        self._recycle_after = max(1, recycle_after)
        self._idle: list[_Worker] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._patience_s = patience_s
        self._coming_up = 0
        self._up_since = 0.0
        self._all: set[_Worker] = set()
        self._open = False

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self._idle.clear()
        await asyncio.gather(*(self._discard(worker) for worker in list(self._all)))

    async def run(self, function: str, *args: Any, timeout_s: float, imports: Sequence[str] = ()) -> Any:
        """``function(*args)`` in a worker. ``function`` is ``package.module:name`` inside ``kvv`` or a package that
        registers suites.

        ``timeout_s`` (seconds) counts from the moment the worker, with the function's module imported, has the task;
        waiting for a free worker and that import are not counted, nor those of the modules in ``imports``, which our
        own code names. Raises WorkerTimeout, WorkerDied, WorkerError; ValueError for a name that is not allowed.
        """
        self._check_open()
        module = _allowed_module(function)
        task = pickle.dumps((function, timeout_s, args), pickle.HIGHEST_PROTOCOL)
        since = asyncio.get_running_loop().time()
        async with self._slots:
            self._check_open()  # it may have closed while this task waited
            worker = await self._free(since) or await self._start()
            healthy = False
            try:
                absent = [needed for needed in (module, *imports) if needed not in worker.modules]
                if absent:
                    with self._one_comes_up():
                        for needed in absent:
                            await worker.load(needed)
                ok, value = await worker.call(task, timeout_s, function)
                healthy = worker.tasks < self._recycle_after and self._open
            finally:
                if healthy:
                    self._idle.append(worker)
                    self._wake()
                else:
                    await self._discard(worker)
        if ok:
            return value
        raise WorkerError(*value)

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError("Workers is not open: use it as an async context manager")

    async def _free(self, since: float) -> _Worker | None:
        """An idle worker; None where the task that came at ``since`` has waited long enough for one, or none is there
        to wait for.
        """
        loop = asyncio.get_running_loop()
        while not self._idle and (self._all or self._coming_up):
            left = max(since, self._up_since) + self._patience_s - loop.time()
            if left <= 0 and not (self._coming_up and self._patience_s):
                break
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append(turn)
            with suppress(TimeoutError):
                await asyncio.wait_for(turn, max(left, self._patience_s))
            self._check_open()
        return self._idle.pop() if self._idle else None

    def _wake(self) -> None:
        """Let the first that waits look again."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    @contextmanager
    def _one_comes_up(self) -> Iterator[None]:
        """A worker that starts or imports is about to be of use: nobody's patience runs out meanwhile."""
        self._coming_up += 1
        try:
            yield
        finally:
            self._coming_up -= 1
            self._up_since = asyncio.get_running_loop().time()

    async def _start(self) -> _Worker:
        with self._one_comes_up():
            return await self._started()

    async def _started(self) -> _Worker:
        failure = ""
        for _ in range(START_TRIES):
            self._check_open()
            worker = await _Worker.spawn()
            self._all.add(worker)
            ready = False
            try:
                await worker.answer(START_TIMEOUT_S, "start of a worker")
                ready = True
                return worker
            except WorkerDied as error:
                failure = str(error)
            finally:
                if not ready:
                    await self._discard(worker)
        raise WorkerDied(f"no worker process came up in {START_TRIES} tries: {failure}")

    async def _discard(self, worker: _Worker) -> None:
        self._all.discard(worker)
        self._wake()
        await asyncio.shield(worker.end())


class _Worker:
    """The parent's end of one child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._to = process.stdin
        self._from = process.stdout
        self.tasks = 0
        self.modules: set[str] = set()

    @classmethod
    async def spawn(cls) -> _Worker:
        environment = {name: value for name, value in os.environ.items() if _KEPT_ENV.fullmatch(name)}
        environment |= {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "kvv.execution.workers", str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=1 << 20,
            env=environment,
            **_apart(),
        )
        return cls(process)

    async def load(self, module: str) -> None:
        """Import the module there; heavy scorers take seconds, which are not the task's."""
        self._send(pickle.dumps((module, START_TIMEOUT_S, ()), pickle.HIGHEST_PROTOCOL))
        ok, value = await self.answer(START_TIMEOUT_S, f"import of {module}")
        if not ok:
            raise WorkerError(*value)
        self.modules.add(module)

    async def call(self, task: bytes, timeout_s: float, name: str) -> tuple[bool, Any]:
        self.tasks += 1
        self._send(task)
        return await self.answer(timeout_s, name)

    def _send(self, task: bytes) -> None:
        # no drain: the child reads all the time, and one task at a time is under way
        self._to.write(_HEAD.pack(len(task)) + task)

    async def answer(self, timeout_s: float, name: str) -> tuple[bool, Any]:
        try:
            async with asyncio.timeout(timeout_s):
                (size,) = _HEAD.unpack(await self._from.readexactly(_HEAD.size))
                data = await self._from.readexactly(size)
        except TimeoutError:
            raise WorkerTimeout(f"{name} took longer than {timeout_s:g} s") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerDied(f"the process of {name} ended with exit code {await self._process.wait()}") from None
        try:
            answer: tuple[bool, Any] = pickle.loads(data)  # noqa: S301 our own child wrote it
        except Exception as error:  # building the result calls its class's own code, which may raise anything
            raise WorkerError(f"the result of {name} cannot be read: {_text(error)}") from error
        return answer

    async def end(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it ended in this very moment
                self._process.kill()
        self._to.close()
        await self._process.wait()
        with suppress(OSError):  # what was not yet written is of no interest
            await self._to.wait_closed()


def _apart() -> Mapping[str, Any]:
    """A process group of its own: a Ctrl-C at the terminal is the parent's business, also while the child starts."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"process_group": 0}


def processors() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _default_count() -> int:
    """One worker a processor, at most four: scoring is a small part of a run."""
    return min(4, processors())


def _allowed_module(function: str) -> str:
    """The module part of ``package.module:name``; ValueError where the name is malformed or lies outside the allowed
    packages.
    """
    module = function.partition(":")[0]
    if not _NAME.fullmatch(function):
        raise ValueError(f"{function[:100]!r} is no name of the form package.module:name")
    package = module.partition(".")[0]
    if package != "kvv" and package not in {entry.module.partition(".")[0] for entry in find_entry_points(SUITES)[0]}:
        raise ValueError(f"{function[:100]!r} lies neither in kvv nor in a package that registers suites")
    return module


# --- the child's side -------------------------------------------------------------------------------


def serve(parent: int) -> None:
    """Answer tasks from standard input on standard output until the input ends or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(parent)
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):  # a library that prints or reads must not disturb the frames
        os.dup2(null, number)
    inbox: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(source, inbox), daemon=True).start()
    _reply(sink, _packed(True, None))
    while True:
        _reply(sink, _perform(inbox.get(), null))


def _die_with(parent: int) -> None:
    """Where the kernel offers it, be killed with the parent: a hang that holds the interpreter lock cannot notice a
    closed pipe.
    """
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(0)


def _receive(source: BinaryIO, inbox: SimpleQueue[bytes]) -> None:
    """Pass frames on; the end of input is the parent's end, whatever the main thread is doing."""
    while len(head := source.read(_HEAD.size)) == _HEAD.size:
        inbox.put(source.read(_HEAD.unpack(head)[0]))
    os._exit(0)


def _perform(task: bytes, null: int) -> bytes:
    """One task's packed answer. The watchdog below is a C thread that needs no interpreter lock: the last resort on
    every platform.
    """
    try:
        name, timeout_s, args = pickle.loads(task)  # noqa: S301 our own parent wrote it
        faulthandler.dump_traceback_later(timeout_s + SELF_KILL_GRACE_S, exit=True, file=null)
        module, colon, attribute = name.partition(":")
        loaded = import_module(module)
        return _packed(True, _function(loaded, attribute)(*args) if colon else None)
    except BaseException as error:  # noqa: BLE001 whatever a scorer raises, SystemExit included, is reported and the worker lives on
        return _packed(False, (_text(error), "".join(traceback.format_tb(error.__traceback__)[-8:])[-TEXT_LIMIT:]))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _function(module: Any, attribute: str) -> Callable[..., Any]:
    """The module's own function: what it merely imported may not be called by name."""
    function = getattr(module, attribute)
    if not callable(function) or getattr(function, "__module__", "") != module.__name__:
        raise TypeError(f"{attribute} is no function of {module.__name__}")
    return function  # type: ignore[no-any-return]


def _packed(ok: bool, value: Any) -> bytes:
    try:
        data = pickle.dumps((ok, value), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 pickling calls the object's own code, which may raise anything
        return _packed(False, (f"the result cannot be sent back: {_text(error)}", ""))
    if len(data) > RESULT_LIMIT:
        return _packed(False, (f"the result has {len(data)} bytes, more than {RESULT_LIMIT}", ""))
    return data


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:TEXT_LIMIT]
    except Exception:  # noqa: BLE001 an exception's own __str__ may raise anything
        return type(error).__name__


def _reply(sink: BinaryIO, data: bytes) -> None:
    try:
        sink.write(_HEAD.pack(len(data)))
        sink.write(data)
        sink.flush()
    except OSError:
        os._exit(0)  # nobody listens any more


if __name__ == "__main__":
    serve(int(sys.argv[1]))
