"""The writer thread: takes what was put, in order, and commits it in groups.

Callers never wait for the disk. What is put stands in a queue until its group's commit; who starts new work
waits for ``drained`` first, which bounds the queue. A writer that failed never takes anything again: the next
put, flush or wait raises StoreError.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from kvv.storage.store.errors import StoreError, WriteError
from kvv.storage.store.inserts import Inserter
from kvv.storage.store.schema import explain, is_damage

#: the longest time from the first row of a group to its commit
GROUP_S = 0.05

#: a group is committed early at this size, so that the log stays small
GROUP_BYTES = 16 * 2**20


class WriteTask(NamedTuple):
    """One thing to write; ``run`` None asks for a commit at once, ``last`` ends the thread."""

    run: Callable[..., None] | None
    arguments: tuple[Any, ...] = ()
    size: int = 0
    exchanges: int = 0
    last: bool = False


class Waiter(NamedTuple):
    below: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


class Writer:
    """Owns the connection until ``stop`` returns."""

    def __init__(self, connection: sqlite3.Connection, path: Path, *, concluded: int = 0) -> None:
        self.concluded = concluded
        self._path = path
        self._connection = connection
        self._inserter = Inserter(connection)
        self._queue: SimpleQueue[WriteTask] = SimpleQueue()
        self._put_lock = threading.Lock()
        self._committed = threading.Condition()
        self._put_count = self._done_count = 0
        self._put_bytes = self._done_bytes = 0
        self._failure: StoreError | None = None
        self._waiters: list[Waiter] = []
        self._stopping = False
        # A daemon: a process that forgot to close ends; what it was not told to be committed, it loses.
        self._thread = threading.Thread(target=self._run, name="kvv-store", daemon=True)
        self._thread.start()

    # --- any thread ------------------------------------------------------------------------------

    @property
    def backlog_bytes(self) -> int:
        return self._put_bytes - self._done_bytes

    def put(self, job: WriteTask) -> None:
        """Never blocks on the disk. Raises StoreError after a failure and after ``stop``."""
        with self._put_lock:
            if self._failure is not None:
                raise self._fresh_failure()
            if self._stopping:
                raise StoreError(f"{self._path}: the store is closed")
            self._put_count += 1
            self._put_bytes += job.size
            self._queue.put(job)

    def flush(self, timeout: float | None) -> None:
        with self._put_lock:
            goal = self._put_count
            self._queue.put(WriteTask(run=None))
        with self._committed:
            reached = self._committed.wait_for(lambda: self._done_count >= goal or self._failure is not None, timeout)
            if self._done_count >= goal:
                return
        if self._failure is not None:
            raise self._fresh_failure()
        if not reached:
            raise WriteError(f"{self._path}: not on disk after {timeout} s, the disk is slow or hangs")

    async def drained(self, below: int) -> None:
        if self.backlog_bytes <= below and self._failure is None:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._committed:
            if self._failure is not None:
                raise self._fresh_failure()
            if self.backlog_bytes <= below:
                return
            self._waiters.append(Waiter(below, loop, future))
        await future

    def stop(self) -> None:
        """Commits what was put and ends the thread. Raises StoreError where something could not be committed."""
        with self._put_lock:
            self._stopping = True
            self._queue.put(WriteTask(run=None, last=True))
        self._thread.join()
        if self._failure is not None and self._done_count < self._put_count:
            raise self._fresh_failure()

    def _fresh_failure(self) -> StoreError:
        """A new exception each time: a shared one would collect the tracebacks of all who meet it."""
        return type(self._failure or StoreError())(*(self._failure or StoreError()).args)

    # --- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._group(self._queue.get()):
                pass
        except Exception as error:  # noqa: BLE001 - whatever ends the writer must reach those who put and wait, or it drops silently
            self._fail(error)

    def _group(self, job: WriteTask) -> bool:
        """One transaction, from this job until the time or the size of a group is reached; true after the last job."""
        deadline = time.monotonic() + GROUP_S
        count = size = exchanges = 0
        while True:
            if job.run is None:
                break
            if count == 0:
                self._connection.execute("BEGIN IMMEDIATE")
            job.run(self._inserter, *job.arguments)
            count, size, exchanges = count + 1, size + job.size, exchanges + job.exchanges
            wait = deadline - time.monotonic()
            if wait <= 0 or size >= GROUP_BYTES:
                break
            try:
                job = self._queue.get(timeout=wait)
            except Empty:
                break
        if count:
            self._connection.execute("COMMIT")
            self._acknowledge(count, size, exchanges)
        return job.last

    def _acknowledge(self, count: int, size: int, exchanges: int) -> None:
        with self._committed:
            self._done_count += count
            self._done_bytes += size
            self.concluded += exchanges
            self._committed.notify_all()
            ready = [waiter for waiter in self._waiters if self.backlog_bytes <= waiter.below]
            self._waiters = [waiter for waiter in self._waiters if waiter not in ready]
        for waiter in ready:
            _wake(waiter, None)

    def _fail(self, error: Exception) -> None:
        with suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")
        if isinstance(error, StoreError):
            failure: StoreError = type(error)(f"{self._path}: {error}")
        elif isinstance(error, sqlite3.Error):
            failure = (StoreError if is_damage(error) else WriteError)(f"{self._path}: {explain(error)}")
        else:
            failure = StoreError(f"{self._path}: {type(error).__name__}: {' '.join(str(error).split())}")
        failure.__cause__ = error
        with self._committed:
            with self._put_lock:
                self._failure = failure
            waiters, self._waiters = self._waiters, []
            self._committed.notify_all()
        for waiter in waiters:
            _wake(waiter, self._fresh_failure())
        with suppress(Empty):  # nothing of it will be written: let its memory go
            while True:
                self._queue.get_nowait()


def _wake(waiter: Waiter, error: StoreError | None) -> None:
    def settle() -> None:
        if not waiter.future.done():
            if error is None:
                waiter.future.set_result(None)
            else:
                waiter.future.set_exception(error)

    with suppress(RuntimeError):  # the loop was closed meanwhile, with whoever waited
        waiter.loop.call_soon_threadsafe(settle)
