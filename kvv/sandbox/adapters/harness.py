"""SWE-bench's own harness as a tree of a sandbox: one command is one instance with its patch, its output is what the
harness wrote.

The harness starts a container of its own from the instance's image, by its own rules: with the network, and with the
capabilities that it asks for. What holds for our sandboxes does not hold there. It is an infrastructure failure, hence
nobody's verdict, where it wrote no report and does not say that the patch or the tests were the cause.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvv.core import Command, Executed
from kvv.sandbox.base import MIB, Sandbox, SandboxError, Session, Workspace
from kvv.sandbox.container import INSTALL, LABEL, MACHINES, OWNER, owner, remove_labelled, sweep
from kvv.sandbox.engine import ContainerEngine, EngineError, socket_path
from kvv.sandbox.folder import RunFolder, remove
from kvv.sandbox.process import Launch, ProcessBounds, run

#: the tree's name in a step
TREE = "harness"
#: the command that a step names; there is no other
COMMAND = ("swebench",)

DRIVER = Path(__file__).with_name("harness_driver.py")
#: on the container of one instance: which one
INSTANCE = "org.kvv.harness"
#: seconds beyond the tests' own time-out: the container's start and end, the log's reading
GRACE_S = 600.0
#: bytes that the harness itself may use; its containers are the engine's
MEMORY, DISK = 4096 * MIB, 1024 * MIB
#: characters of a log that are kept, half from each end
LOG = 4_000

APPLIED, NOT_APPLIED = ">>>>> Applied Patch", ">>>>> Patch Apply Failed"
TIMED_OUT = "Test timed out after"


def missing() -> str:
    """Why the harness cannot run here, beside its package; "" where it can."""
    path = socket_path()
    if path is None:
        return f"{INSTALL} is not there"
    try:
        ContainerEngine(path).call("GET", "/version", timeout_s=10)
    except EngineError as error:
        return str(error)
    return ""


class WithHarness(Sandbox):
    """A sandbox, and the harness for the tree that is named so."""

    name = "swebench"

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner
        self._run = uuid.uuid4().hex
        path = socket_path()
        self._engine = ContainerEngine(path) if path else None
        self._folder = RunFolder(lambda: [str(path), f"{LABEL}={self._run}"] if path else [])
        self._slots = asyncio.Semaphore(max(1, (os.cpu_count() or 1) // 2))
        self._began = False

    def missing(self) -> str:
        return self._inner.missing() or missing()

    def refuses(self, workspace: Workspace) -> str:
        return self._inner.refuses(workspace)

    def identity(self, workspace: Workspace) -> str:
        return self._inner.identity(workspace)

    async def begin(self, workspace: Workspace) -> Session:
        return await self._inner.begin(workspace)

    async def open(self, workspace: Workspace, tree: str = "") -> Session:
        if tree != TREE:
            return await self._inner.open(workspace, tree)
        if self._engine is None:
            raise SandboxError(f"{INSTALL} is not there")
        try:
            return await asyncio.to_thread(self._harness, self._engine, workspace)
        except (EngineError, OSError) as error:
            raise SandboxError(str(error)) from error

    def _harness(self, engine: ContainerEngine, workspace: Workspace) -> Session:
        if not self._began:
            self._began = True
            sweep(engine)
        return _Harness(engine, self._folder.new(), workspace.image, {LABEL: self._run, OWNER: owner()}, self._slots)

    async def close(self) -> None:
        await self._inner.close()
        if self._engine is not None and self._began:
            await asyncio.to_thread(remove_labelled, self._engine, f"{LABEL}={self._run}")
        await asyncio.to_thread(self._folder.close)


class _Harness(Session):
    """``emulated`` is found when it runs."""

    def __init__(
        self, engine: ContainerEngine, folder: Path, image: str, labels: Mapping[str, str], slots: asyncio.Semaphore
    ) -> None:
        self._engine = engine
        self._folder = folder
        self._image = image
        self._slots = slots
        # the harness removes a container of the same name first: no two may share it
        self._run_id = f"kvv-{uuid.uuid4().hex}"
        self._labels = {**labels, INSTANCE: self._run_id}

    async def run(self, command: Command) -> Executed:
        """``command.stdin`` is JSON: ``row`` and ``prediction`` in the harness's own columns. The output is JSON too,
        see ``_told``.
        """
        if command.argv != COMMAND:
            raise SandboxError(f"the harness runs instances only, not {command.argv[:1]}")
        asked = json.loads(command.stdin)
        async with self._slots:
            try:
                return await self._graded(asked["row"], asked["prediction"], command)
            except (EngineError, OSError) as error:
                raise SandboxError(f"swebench: {error}") from error

    async def _graded(self, row: Mapping[str, Any], prediction: Mapping[str, Any], command: Command) -> Executed:
        for name, content in (("data.json", [row]), ("predictions.json", [prediction])):
            (self._folder / name).write_text(json.dumps(content), "utf-8")
        alive, held = os.pipe()
        try:
            launch = Launch(
                argv=self._argv(alive, row, command),
                options={"cwd": self._folder, "env": self._environment(), "pass_fds": (alive,)},
            )
            bounds = ProcessBounds(
                timeout_s=command.timeout_s + GRACE_S, output_limit=LOG, memory=MEMORY, disk=DISK, tree=self._folder
            )
            ended = await run(launch, bounds)
        finally:
            os.close(alive)
            os.close(held)
        emulated = await asyncio.to_thread(self._emulated)
        logs = (
            self._folder
            / "logs"
            / "run_evaluation"
            / self._run_id
            / str(prediction["model_name_or_path"])
            / str(row["instance_id"])
        )
        text = await asyncio.to_thread(_told, logs, str(row["instance_id"]), ended.output)
        return Executed(
            exit_code=0 if not ended.killed else None,
            output=text,
            seconds=ended.seconds,
            killed=ended.killed,
            emulated=emulated,
        )

    def _argv(self, alive: int, row: Mapping[str, Any], command: Command) -> list[str]:
        files = [
            "--dataset_name",
            "data.json",
            "--predictions_path",
            "predictions.json",
            "--instance_ids",
            str(row["instance_id"]),
        ]
        bounds = [
            "--timeout",
            str(int(command.timeout_s)),
            "--max_workers",
            "1",
            "--run_id",
            self._run_id,
            "--report_dir",
            ".",
        ]
        return [sys.executable, "-P", str(DRIVER), str(alive), json.dumps(self._labels), *files, *bounds]

    def _environment(self) -> dict[str, str]:
        """Nothing of ours but where libraries and programs lie, and the engine."""
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self._folder), "DOCKER_HOST": f"unix://{self._engine.path}", "HF_HUB_OFFLINE": "1"}

    def _emulated(self) -> bool:
        """False where the engine does not say: without an image the harness has said so."""
        native = MACHINES.get(platform.machine(), platform.machine())
        try:
            return bool((self._engine.image(self._image) or {}).get("Architecture", native) != native)
        except EngineError:
            return False

    async def close(self) -> None:
        """The harness removes its container itself, unless it was killed or there is no `docker` program."""
        await asyncio.to_thread(remove_labelled, self._engine, f"{INSTANCE}={self._run_id}")
        await asyncio.to_thread(remove, self._folder)


def _told(logs: Path, instance: str, said: str) -> str:
    """What the harness found, as JSON: ``report`` is the instance's own (None without one), ``applied`` and
    ``timed_out`` are told by its log, ``wrong`` is its first error, ``log`` is the log's beginning and end, or what the
    harness printed where there is no log."""
    log = _read(logs / "run_instance.log")
    try:
        report = json.loads(_read(logs / "report.json") or "null")
    except (ValueError, RecursionError):
        report = None
    found = report.get(instance) if isinstance(report, dict) else None
    text = log or said
    wrong = [line for line in text.splitlines() if " - ERROR - " in line]
    return json.dumps(
        {
            "report": found if isinstance(found, dict) else None,
            "applied": APPLIED in log and NOT_APPLIED not in log,
            "refused": NOT_APPLIED in log,
            "timed_out": TIMED_OUT in log,
            "wrong": wrong[0].partition(" - ERROR - ")[2][:LOG] if wrong else "",
            "log": text if len(text) <= LOG else text[: LOG // 2] + text[-LOG // 2 :],
        }
    )


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
