"""No sandbox: commands run as this user on this machine, in a copy of the tree. Only by name, with a warning."""

from __future__ import annotations

import asyncio
import shutil
import sys

from kvv.core import Command, Executed
from kvv.sandbox.base import ENVIRONMENT, ONLY_BUNDLES, Sandbox, SandboxError, SandboxLimits, Session, Workspace
from kvv.sandbox.folder import RunFolder, remove
from kvv.sandbox.process import Launch, ProcessBounds, run


class NoSandbox(Sandbox):
    name = "none"

    def __init__(self, limits: SandboxLimits | None = None) -> None:
        self._limits = limits or SandboxLimits()
        self._folder = RunFolder()

    def missing(self) -> str:
        if sys.platform == "win32":
            return "a POSIX system"
        absent = [name for name in ("bash", "git", "python3", "base64") if shutil.which(name) is None]
        return f"{absent[0]} is not installed" if absent else ""

    def refuses(self, workspace: Workspace) -> str:
        return "" if workspace.bundle and not workspace.image else ONLY_BUNDLES

    async def begin(self, workspace: Workspace) -> Session:
        if refusal := self.refuses(workspace):
            raise SandboxError(refusal)
        return _Session(self._folder, self._limits)

    async def close(self) -> None:
        await asyncio.to_thread(self._folder.close)


class _Session(Session):
    def __init__(self, folder: RunFolder, limits: SandboxLimits) -> None:
        self._folder = folder.new()
        self._tree = self._folder / "tree"
        self._home = self._folder / "home"
        self._tree.mkdir()
        self._home.mkdir()
        self._limits = limits

    async def run(self, command: Command) -> Executed:
        limits = self._limits
        bounds = ProcessBounds(
            timeout_s=command.timeout_s,
            output_limit=command.output_limit,
            memory=limits.memory,
            disk=limits.disk,
            tree=self._tree,
        )
        environment = {**ENVIRONMENT, "HOME": str(self._home), "TMPDIR": str(self._home)}
        try:
            ended = await run(
                Launch(argv=command.argv, stdin=command.stdin, options={"cwd": self._tree, "env": environment}), bounds
            )
        except OSError as error:
            raise SandboxError(f"{command.argv[0]} cannot be started: {error}") from error
        return Executed(
            exit_code=ended.code,
            output=ended.output,
            timed_out=ended.killed == "time",
            seconds=ended.seconds,
            elided=ended.elided,
            killed=ended.killed,
        )

    async def close(self) -> None:
        await asyncio.to_thread(remove, self._folder)
