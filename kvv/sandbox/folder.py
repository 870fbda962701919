"""Where the trees of a run lie, and who removes them when the run cannot.

One folder per process, locked while the process lives. A folder whose lock is free belongs to a process that was
killed: the next one removes it. A watchdog, a small process of its own that waits for the end of its standard input,
removes it at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

PREFIX = "kvv-sandbox-"
LOCK = "lock"
#: a folder without a lock that was not touched for so long, seconds, is the rest of one
HALF_REMOVED_S = 60.0


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
            dog,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
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
            if not (path / LOCK).exists():
                # half removed; one that is being made has its lock at once
                if time.time() - path.stat().st_mtime > HALF_REMOVED_S:
                    remove(path)
                continue
            lock = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(path)
            finally:
                os.close(lock)


def remove(path: Path) -> None:
    """The folder and all in it, whatever modes a command gave its folders and however deep it nested them: deeper than
    a path may be long, and than Python may recurse."""
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        with contextlib.suppress(OSError):
            quiet = subprocess.DEVNULL
            subprocess.run([*command, "--", str(path)], stdin=quiet, stdout=quiet, stderr=quiet, check=False)  # noqa: S603
        if not path.exists():
            return
