"""Where the trees of a run lie, and who removes them when the run cannot.

One folder per process, locked while the process lives. A folder whose lock is free belongs to a process that was killed: the next one
removes it. A watchdog, a small process of its own that waits for the end of its standard input, removes it at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

PREFIX = "kvv-sandbox-"
LOCK = "lock"


class RunFolder:
    """Made at the first ``new``; ``close`` removes it. ``watch`` are further arguments for the watchdog."""

    def __init__(self, watch: Callable[[], list[str]] = list) -> None:
        self._watch = watch
        self._path: Path | None = None
        self._lock = -1
        self._dog: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._making = threading.Lock()

    def new(self) -> Path:
        """An empty folder of one session."""
        with self._making:
            if self._path is None:
                self._path = self._make()
        folder = self._path / str(next(self._numbers))
        folder.mkdir()
        return folder

    def _make(self) -> Path:
        sweep(Path(tempfile.gettempdir()))
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        path.chmod(0o711)
        self._lock = os.open(path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        dog = [sys.executable, "-I", "-S", str(Path(__file__).with_name("watchdog.py")), str(path), *self._watch()]
        self._dog = subprocess.Popen(  # noqa: S603 our own script
            dog, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/"
        )
        return path

    def close(self) -> None:
        if self._path is None:
            return
        remove(self._path)
        os.close(self._lock)
        self._path = None
        if self._dog is not None and self._dog.stdin is not None:
            self._dog.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._dog.wait(timeout=10)


def sweep(place: Path) -> None:
    """Remove folders of processes that live no more; other users' folders are left alone."""
    for path in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(path)
            finally:
                os.close(lock)


def remove(path: Path) -> None:
    """The folder and all in it, whatever modes a command gave its folders."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        for folder, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(folder, 0o700)
            for name in os.listdir(folder):
                inner = os.path.join(folder, name)
                if os.path.isdir(inner) and not os.path.islink(inner):
                    os.chmod(inner, 0o700)
        shutil.rmtree(path, ignore_errors=True)
