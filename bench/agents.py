"""Do many instances of the coding agent at once leave anything behind, and what do they cost?

Whole runs of the shipped instances, all at once, each in a process of its own: on every sandbox that works here, with
our agent and, where it is installed, with mini-swe-agent's. Shown is how long a run took, how often instances ended as
the reference endpoint's count says, and what was left five seconds later: processes, mounts, containers, files in the
folder for temporary ones. Bound: nothing left.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tables import show

from kvv.sandbox import SandboxError, Workspace, choose
from kvv.sandbox.adapters import AGENTS, OWN, AdapterError, identity
from kvv.sandbox.container import LABEL
from kvv.sandbox.engine import ContainerEngine, socket_path

WAIT_S = 5.0
INSTANCES = 6


def processes() -> set[str]:
    return {path.name for path in Path("/proc").iterdir() if path.name.isdecimal()}


def command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def mounts() -> int:
    return Path("/proc/mounts").read_text("utf-8").count("\n")


def containers() -> int:
    path = socket_path()
    return len(ContainerEngine(path).labelled(LABEL)) if path else 0


def measured(sandbox: str, agent: str, samples: int) -> list[object]:
    # every part of the way must be open to the sandbox's user
    place = Path(tempfile.mkdtemp(prefix="kvv-bench-agents-", dir="/tmp"))
    place.chmod(0o711)
    with tempfile.TemporaryDirectory() as out:
        before = processes(), mounts(), containers()
        began = time.monotonic()
        options = [
            "--samples",
            str(samples),
            "--concurrency",
            str(INSTANCES * samples),
            "--sandbox",
            sandbox,
            "--agent",
            agent,
            "--out",
            out,
            "-q",
        ]
        environment = {**os.environ, "TMPDIR": str(place)}
        # a wrong count is told below
        subprocess.run(
            [sys.executable, "-m", "kvv", "run", "swebench", *options],
            check=False,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        seconds = time.monotonic() - began
        report = json.loads(next(Path(out).glob("*/report.json")).read_text("utf-8"))
    time.sleep(WAIT_S)
    row = next(row for row in report["suites"] if row["id"] == "swebench" and row["primary"])
    left = [
        line for pid in processes() - before[0] if str(place) in (line := command_line(pid)) or "kvv-sandbox-" in line
    ]
    files = len(list(place.iterdir()))
    shutil.rmtree(place, ignore_errors=True)
    counted = abs(row["value"] - row["reference"]["value"]) < 1e-9
    leaks = [len(left), mounts() - before[1], containers() - before[2], files]
    said = "ok" if counted and not any(leaks) else "FAIL"
    return [f"{sandbox}, {agent}", row["n_concluded"], "yes" if counted else "no", f"{seconds:.1f} s", *leaks, said]


def works(sandbox: str) -> bool:
    try:
        choose(sandbox, Workspace(bundle="aGk=", commit="x"))
    except SandboxError as error:
        print(f"{sandbox} is left out: {error}")
        return False
    return True


def agents() -> list[str]:
    try:
        identity(AGENTS, "mini")
    except AdapterError as error:
        print(f"mini is left out: {error}")
        return [OWN]
    return [OWN, "mini"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one sample of each instance")
    samples = 1 if parser.parse_args().quick else 2
    rows = [
        measured(sandbox, agent, samples)
        for sandbox in ("bwrap", "docker", "none")
        if works(sandbox)
        for agent in agents()
    ]
    header = ("sandbox, agent", "instances", "as counted", "time", "processes", "mounts", "containers", "files", "")
    show(f"{INSTANCES * samples} instances at once, and what was left", header, rows)
    return any(row[-1] != "ok" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
