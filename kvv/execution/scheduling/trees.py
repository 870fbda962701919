"""The work trees of one sample: made when a step first names them, one at a time, gone when the sample is concluded."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

from kvv.core import Case, Exec, Executed
from kvv.sandbox.base import Sandbox, SandboxError, Session, Workspace

#: samples that hold a tree at the same time: trees wait for the model most of the time, but each is a copy on the disk
AT_ONCE = 4 * (os.cpu_count() or 1)


def slots() -> asyncio.Semaphore:
    """Shared by all samples of a run."""
    return asyncio.Semaphore(max(10, AT_ONCE))


class Trees:
    def __init__(self, sandbox: Sandbox | None, case: Case, free: asyncio.Semaphore) -> None:
        self._sandbox = sandbox
        self._case = case
        self._free = free
        self._holds = False
        self._session: Session | None = None
        self._name = ""

    async def run(self, step: Exec) -> Executed:
        """Perform it; another tree's name ends the tree before. SandboxError where the sandbox failed, not the
        command.
        """
        session = await self._tree(step.tree)
        executed = await session.run(step.command)
        return replace(executed, emulated=True) if session.emulated else executed

    async def _tree(self, name: str) -> Session:
        if self._session is not None and name == self._name:
            return self._session
        if self._sandbox is None:
            raise SandboxError("this run has no sandbox")
        await self._end()
        if not self._holds:
            await self._free.acquire()
            self._holds = True
        self._session = await self._sandbox.open(Workspace.of(self._case.inputs["sandbox"]), name)
        self._name = name
        return self._session

    async def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def close(self) -> None:
        try:
            await self._end()
        finally:
            if self._holds:
                self._holds = False
                self._free.release()
