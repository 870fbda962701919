"""A small repository as a git bundle, and each backend that works on this machine."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import rootfs

from kvv.core import Command, Executed
from kvv.sandbox import Sandbox, SandboxError, SandboxLimits, Session, Workspace
from kvv.sandbox.base import MIB
from kvv.sandbox.bubblewrap import Bubblewrap
from kvv.sandbox.container import Containers
from kvv.sandbox.engine import ContainerEngine, EngineError, socket_path
from kvv.sandbox.none import NoSandbox

#: small enough to be broken in a test
TIGHT = SandboxLimits(memory=256 * MIB, processes=60, file=32 * MIB, disk=48 * MIB, scratch=16 * MIB)


@cache
def container_image(path: Path) -> tuple[str, str]:
    """An image with bash, git and python3 in which a command runs, and why there is none."""
    try:
        image = rootfs.image(ContainerEngine(path))
        if not image:
            return "", "no image can be made of this machine's programs"
        asyncio.run(_tried(Containers(default_image=image)))
    except (EngineError, SandboxError, OSError) as error:
        return "", f"containers do not run here: {error}"
    return image, ""


async def _tried(sandbox: Sandbox) -> None:
    session = await sandbox.open(Workspace(image=container_name(sandbox)))
    await session.close()
    await sandbox.close()


def container_name(sandbox: Sandbox) -> str:
    assert isinstance(sandbox, Containers)
    return sandbox.default_image


def make(backend: str, limits: SandboxLimits = TIGHT) -> Sandbox:
    """The backend, or a skip with the reason why it cannot be tested here."""
    if backend == "docker":
        path = socket_path()
        if path is None:
            pytest.skip("no Docker-compatible socket")
        image, why = container_image(path)
        if why:
            pytest.skip(why)
        return Containers(limits, default_image=image)
    sandbox: Sandbox = Bubblewrap(limits) if backend == "bwrap" else NoSandbox(limits)
    if why := sandbox.missing():
        pytest.skip(f"{backend}: {why}")
    return sandbox


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """One commit with one file, ``a`` holding ``hello``."""
    folder: Path = tmp_path_factory.mktemp("repository")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost"]
    (folder / "a").write_text("hello\n")
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["add", "a"],
        ["commit", "-q", "-m", "base"],
        ["bundle", "create", "-q", "x.bundle", "main"],
    ):
        subprocess.run([*git, *arguments], cwd=folder, check=True)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()
    return Workspace(bundle=base64.b64encode((folder / "x.bundle").read_bytes()).decode(), commit=commit)


class Box:
    """One session, driven from synchronous tests."""

    def __init__(self, backend: str, workspace: Workspace, limits: SandboxLimits = TIGHT) -> None:
        self.sandbox = make(backend, limits)
        self._workspace = workspace

    def together(self, play: Callable[[Session], Awaitable[Any]]) -> Any:
        async def whole() -> Any:
            session = await self.sandbox.open(self._workspace)
            try:
                return await play(session)
            finally:
                await session.close()
                await self.sandbox.close()

        return asyncio.run(whole())

    def run(self, *scripts: str, timeout_s: float = 20.0, stdin: str = "", limit: int = 10_000) -> list[Executed]:
        """What each bash script gave, one after the other in one tree."""

        async def play(session: Session) -> list[Executed]:
            commands = (
                Command(argv=("bash", "-c", script), stdin=stdin, timeout_s=timeout_s, output_limit=limit)
                for script in scripts
            )
            return [await session.run(command) for command in commands]

        found: list[Executed] = self.together(play)
        return found


@pytest.fixture
def box(request: pytest.FixtureRequest, workspace: Workspace) -> Box:
    """Parametrised indirectly by the backend's name."""
    return Box(request.param, workspace)
