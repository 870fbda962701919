"""The work trees of one sample: made when a step first names them, one at a time, gone when the sample is concluded."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from kvv.core import Case, Command, Exec, Executed
from kvv.sandbox.base import Sandbox, SandboxError, Session, Workspace
from kvv.storage.files import replace_file

#: samples that hold a tree at the same time: trees wait for the model most of the time, but each is a copy on the disk
AT_ONCE = 4 * (os.cpu_count() or 1)
#: shared trees whose results are held in memory
SHARED = 64
#: bytes of one kept file that are read
KEPT_LIMIT = 64 << 20


def slots() -> asyncio.Semaphore:
    """Shared by all samples of a run."""
    return asyncio.Semaphore(max(10, AT_ONCE))


class SharedResults:
    """What commands of shared trees came to, by tree and by all commands up to there. ``folder`` is where trees that
    were found good are kept for later runs, None where none is.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._trees: OrderedDict[str, dict[str, Executed]] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    def lock(self, workspace: str) -> asyncio.Lock:
        """Held by the one sample that tries a workspace; the others wait for what it finds."""
        return self._locks.setdefault(workspace, asyncio.Lock())

    def tree(self, key: str, *, kept: bool) -> dict[str, Executed]:
        if key not in self._trees:
            self._trees[key] = self._read(key) if kept else {}
            while len(self._trees) > SHARED:
                self._trees.popitem(last=False)
        self._trees.move_to_end(key)
        return self._trees[key]

    def keep(self, key: str, results: Mapping[str, Executed]) -> None:
        """A disk that takes nothing costs the next run a trial, nothing else."""
        if self._folder is not None:
            found = {digest: asdict(executed) for digest, executed in results.items()}
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                replace_file(self._folder / f"{key}.json", json.dumps(found))

    def _read(self, key: str) -> dict[str, Executed]:
        """Nothing where the file cannot be read: it is then tried again."""
        if self._folder is None:
            return {}
        path = self._folder / f"{key}.json"
        try:
            if path.stat().st_size > KEPT_LIMIT:
                return {}
            return {digest: _executed(fields) for digest, fields in json.loads(path.read_bytes()).items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}


def _executed(fields: Mapping[str, object]) -> Executed:
    """TypeError or ValueError for what is none."""
    executed = Executed(**fields)  # type: ignore[arg-type]
    for name, kind in _KINDS.items():
        value = getattr(executed, name)
        if not isinstance(value, kind):
            raise ValueError(f"{name} is of another type")
    return executed


_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "exit_code": (int, type(None)),
    "output": str,
    "timed_out": bool,
    "seconds": (int, float),
    "elided": int,
    "killed": str,
    "emulated": bool,
}


@dataclass(slots=True)
class _SharedTree:
    """The shared tree that a sample is in. ``ran`` are its commands up to here, ``digest`` stands for them."""

    results: dict[str, Executed]
    ran: list[Command] = field(default_factory=list)
    digest: str = ""

    def after(self, command: Command) -> str:
        return hashlib.sha256(f"{self.digest}\n{json.dumps(asdict(command))}".encode("utf-8", "replace")).hexdigest()


class Trees:
    def __init__(
        self, sandbox: Sandbox | None, case: Case, free: asyncio.Semaphore, shared: SharedResults | None = None
    ) -> None:
        self._sandbox = sandbox
        self._case = case
        self._free = free
        self._holds = False
        self._session: Session | None = None
        self._name = ""
        self._results = shared or SharedResults()
        self._shared: _SharedTree | None = None
        self._lock: asyncio.Lock | None = None

    async def run(self, step: Exec) -> Executed:
        """Perform it; another tree's name ends the tree before. SandboxError where the sandbox failed, not the
        command.
        """
        if step.shared:
            return await self._run_shared(step)
        if self._shared is not None:
            await self._end()
        self._unlock()
        return await self._run(step.command, step.tree)

    async def _run(self, command: Command, tree: str) -> Executed:
        session = await self._tree(tree)
        executed = await session.run(command)
        return replace(executed, emulated=True) if session.emulated else executed

    async def _run_shared(self, step: Exec) -> Executed:
        """Known results need no tree. One that is not known is run after all that came before it."""
        workspace = json.dumps(self._case.inputs["sandbox"], sort_keys=True)
        if self._lock is None and not self._holds:
            # who holds a tree waits for nobody: others that hold this lock may wait for a tree
            lock = self._results.lock(hashlib.sha256(workspace.encode()).hexdigest())
            await lock.acquire()
            self._lock = lock
        if self._shared is None or self._name != step.tree:
            await self._end()
            self._shared, self._name = await self._shared_tree(workspace, step.tree), step.tree
        shared = self._shared
        if step.keep:
            # an image that was not here before has its identity now
            key, kept = await self._key(workspace, step.tree)
            if kept:
                self._results.keep(key, shared.results)
            return Executed(exit_code=0, output="")
        digest = shared.after(step.command)
        if digest not in shared.results:
            if self._session is None:
                for earlier in shared.ran:
                    await self._run(earlier, step.tree)
            shared.results[digest] = await self._run(step.command, step.tree)
        shared.ran.append(step.command)
        shared.digest = digest
        return shared.results[digest]

    async def _shared_tree(self, workspace: str, tree: str) -> _SharedTree:
        key, kept = await self._key(workspace, tree)
        return _SharedTree(self._results.tree(key, kept=kept))

    async def _key(self, workspace: str, tree: str) -> tuple[str, bool]:
        """A tree's name among all, and whether what is found there holds for later runs."""
        if self._sandbox is None:
            raise SandboxError("this run has no sandbox")
        identity = await asyncio.to_thread(self._sandbox.identity, Workspace.of(self._case.inputs["sandbox"]))
        parts = [self._sandbox.name, identity, workspace, tree]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest(), bool(identity)

    async def _tree(self, name: str) -> Session:
        if self._session is not None and name == self._name:
            return self._session
        if self._sandbox is None:
            raise SandboxError("this run has no sandbox")
        shared = self._shared
        await self._end()
        self._shared = shared
        if not self._holds:
            await self._free.acquire()
            self._holds = True
        self._session = await self._sandbox.open(Workspace.of(self._case.inputs["sandbox"]), name)
        self._name = name
        return self._session

    async def _end(self) -> None:
        session, self._session, self._shared = self._session, None, None
        if session is not None:
            await session.close()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    async def close(self) -> None:
        try:
            await self._end()
        finally:
            self._unlock()
            if self._holds:
                self._holds = False
                self._free.release()
