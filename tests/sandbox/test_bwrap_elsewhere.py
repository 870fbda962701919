"""A bwrap that only PATH knows: what was tried is what runs the commands."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvv.core import Command
from kvv.sandbox import Sandbox, SandboxError, Workspace, choose
from kvv.sandbox.bubblewrap import Bubblewrap

from .conftest import make

#: where commands find programs, whatever our own PATH is
SYSTEM_PATH = "/usr/bin:/bin"


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that everybody may enter (as root the sandbox runs as another user), with a copy of bwrap in it, first
    on PATH.
    """
    make("bwrap")
    program = shutil.which("bwrap")
    assert program is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copy(program, folder / "bwrap")
        monkeypatch.setenv("PATH", f"{folder}:{SYSTEM_PATH}")
        yield folder


def ran(sandbox: Sandbox, workspace: Workspace, script: str) -> str:
    async def whole() -> str:
        try:
            session = await sandbox.open(workspace)
            try:
                return (await session.run(Command(argv=("bash", "-c", script)))).output
            finally:
                await session.close()
        finally:
            await sandbox.close()

    return asyncio.run(whole())


def test_commands_run_by_the_bwrap_that_was_tried(
    elsewhere: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = choose("bwrap", workspace)
    # neither a later PATH nor the system's own program counts any more
    monkeypatch.setenv("PATH", SYSTEM_PATH)
    told = ran(sandbox, workspace, "cat a; tr '\\0' ' ' < /proc/1/cmdline; stat -Lc %i /proc/1/exe")
    assert told.startswith("hello\nbwrap --args")
    assert told.split()[-1] == str((elsewhere / "bwrap").stat().st_ino)
    assert str(elsewhere) not in told


def test_a_bwrap_that_is_gone_when_a_command_runs_is_named(elsewhere: Path, workspace: Workspace) -> None:
    sandbox = choose("bwrap", workspace)
    (elsewhere / "bwrap").unlink()
    with pytest.raises(SandboxError, match=f"{elsewhere}/bwrap cannot be started"):
        ran(sandbox, workspace, "true")


def test_a_bwrap_that_does_not_run_is_named_with_its_place(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere / "bwrap").write_text("#!/bin/sh\necho broken; exit 1\n")
    assert Bubblewrap().missing() == f"{elsewhere}/bwrap does not run here (broken)"
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("PATH", f".:{SYSTEM_PATH}")
    assert Bubblewrap().missing() == f"{elsewhere}/bwrap does not run here (broken)"
