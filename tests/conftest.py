"""What every test may use: the command line in-process, and the folder of real data where there is one."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import kvv.execution.scheduling.scheduler
import kvv.execution.workers
from kvv.cli.main import main
from kvv.storage.run_folder import runs_under

# how long an example takes says more of the machine's load than of the code
settings.register_profile("kvv", deadline=None)
settings.load_profile("kvv")


def pytest_xdist_auto_num_workers() -> int:
    """Two more than cores: a third of the tests' time is waiting for pauses, time-outs and processes."""
    return (os.cpu_count() or 1) + 2


@dataclass(frozen=True)
class Ran:
    """One call of the command line; ``folder`` is the newest run folder under --out, if any."""

    code: int
    out: str
    err: str
    root: Path

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def folder(self) -> Path:
        return [folder for folder in runs_under(self.root) if (folder / "report.json").is_file()][-1]

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text("utf-8"))
        return found

    def row(self, suite: str, metric: str | None = None) -> dict[str, Any]:
        rows = [
            row
            for row in self.report["suites"]
            if row["id"] == suite and (row["primary"] if metric is None else row["metric"] == metric)
        ]
        assert len(rows) == 1, [(row["id"], row["metric"]) for row in self.report["suites"]]
        found: dict[str, Any] = rows[0]
        return found


Kvv = Callable[..., Ran]


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's state folder, for this process and those that it starts: no test leaves anything in a real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def kvv_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kvv:
    """Runs the command line in this process, in an empty folder, with short pauses between attempts."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("KVV_") and name != "KVV_SHARED"]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(kvv.execution.scheduling.scheduler, "BACKOFF_S", 0.01)
    # a worker loads its mathematics for longer than most tests have work for it: one is enough
    monkeypatch.setattr(kvv.execution.workers, "_default_count", lambda: 1)
    monkeypatch.setattr(kvv.execution.scheduling.scheduler, "BREAKER_PAUSES_S", (0.05, 0.1, 0.2))
    root = tmp_path / "out"

    def run(*arguments: str, out: Path | None = None) -> Ran:
        stdout, stderr = io.StringIO(), io.StringIO()
        argv = [*arguments]
        if arguments[0] in ("run", "check", "import", "resume", "score", "vendors"):
            argv += ["--out", str(out or root)]
        with redirect_stdout(stdout), redirect_stderr(stderr):
            try:
                code = main(argv)
            except SystemExit as stop:  # argparse ends the process on usage errors and --help
                code = int(stop.code or 0)
        return Ran(code, stdout.getvalue(), stderr.getvalue(), out or root)

    return run


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real public data; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("KVV_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    if not (folder / "data").is_dir():
        pytest.skip("the shared data folder is absent (set KVV_SHARED)")
    return folder
