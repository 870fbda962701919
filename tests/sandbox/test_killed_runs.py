"""kill -9 of the process that holds sandboxes: what it left is removed by its watchdog, and by the next run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvv.sandbox import Workspace
from kvv.sandbox.container import LABEL, OWNER, alive, owner, sweep
from kvv.sandbox.engine import ContainerEngine, socket_path
from kvv.sandbox.folder import PREFIX, RunFolder
from kvv.sandbox.folder import sweep as sweep_folders

from .conftest import container_image, make
from .test_guarantees import processes

HOLDER = """
import asyncio, sys
from kvv.core import Command
from kvv.sandbox import Workspace, find_backend
from kvv.sandbox.container import Containers

async def main(backend, image, bundle, commit, mark):
    sandbox = Containers(default_image=image) if backend == "docker" else find_backend(backend)
    session = await sandbox.open(Workspace(bundle=bundle, commit=commit))
    print("open", flush=True)
    await session.run(Command(argv=("bash", "-c", f"(setsid sleep {mark} &); sleep {mark}"), timeout_s=600))

asyncio.run(main(*sys.argv[1:]))
"""


def soon(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("backend", ["bwrap", pytest.param("docker", marks=pytest.mark.engines)])
def test_nothing_is_left_of_a_run_that_was_killed(backend: str, workspace: Workspace, tmp_path: Path) -> None:
    make(backend)
    path = socket_path()
    image = container_image(path)[0] if backend == "docker" and path else ""
    place = Path("/tmp") / f"kvv-killed-{os.getpid()}-{backend}"  # noqa: S108 every part of the way must be open to the sandbox's user
    place.mkdir(mode=0o711)
    mark = f"86397{os.getpid()}"
    environment = {**os.environ, "TMPDIR": str(place)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, backend, image, workspace.bundle, workspace.commit, mark],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        try:
            assert soon(lambda: sum(line.startswith(f"sleep {mark}") for line in processes().values()) == 2)
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
    assert soon(lambda: not any(line.startswith(f"sleep {mark}") for line in processes().values()))
    assert soon(lambda: not list(place.iterdir()))
    place.rmdir()
    if backend == "docker" and path:
        mine = [
            entry
            for entry in ContainerEngine(path).labelled(LABEL)
            if f"/{holder.pid}/" in entry["labels"].get(OWNER, "")
        ]
        assert mine == []


def test_folders_of_dead_processes_are_swept_and_those_of_living_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    living = RunFolder()
    session = living.new()
    dead = tmp_path / f"{PREFIX}dead"
    (dead / "1" / "tree").mkdir(parents=True)
    (dead / "lock").touch()
    stranger = tmp_path / "kvv-other"
    stranger.mkdir()
    rest, young = tmp_path / f"{PREFIX}rest", tmp_path / f"{PREFIX}young"
    rest.mkdir()
    young.mkdir()
    os.utime(rest, (1, 1))
    sweep_folders(tmp_path)
    assert not dead.exists()
    assert not rest.exists()
    assert young.exists()
    young.rmdir()
    assert session.exists()
    assert stranger.exists()
    living.close()
    assert sorted(tmp_path.iterdir()) == [stranger]


def test_a_container_belongs_to_a_process_not_to_a_number() -> None:
    assert alive(owner())
    host, pid, started = owner().split("/")
    assert not alive(f"{host}/{pid}/{int(started) + 1}")
    assert alive(f"another-machine/{pid}/1")
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert not alive(f"{host}/{gone}/1")


def test_the_sweep_removes_the_containers_of_the_dead_only() -> None:
    removed = []

    class Recorded(ContainerEngine):
        def __init__(self) -> None:
            """No socket behind it."""

        def labelled(self, label: str) -> list[dict[str, object]]:
            assert label == LABEL
            host, pid, started = owner().split("/")
            return [
                {"id": "mine", "labels": {OWNER: owner()}},
                {"id": "dead", "labels": {OWNER: f"{host}/{pid}/{int(started) - 1}"}},
            ]

        def remove(self, container: str) -> None:
            removed.append(container)

    assert sweep(Recorded()) == 1
    assert removed == ["dead"]
