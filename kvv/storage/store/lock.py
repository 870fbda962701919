"""One writer per run: a lock that the operating system releases when its holder dies.

The lock is a reserved lock on an empty SQLite file beside the store. SQLite takes it by the means of each
platform, so nothing goes stale after kill -9 and no process number has to be trusted.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from kvv.storage.store.errors import StoreError
from kvv.storage.store.schema import explain


class WriterLock:
    """Held from construction to ``release``. Raises StoreError when another writer, here or in another process, holds
    it.
    """

    def __init__(self, store: Path) -> None:
        target = store.resolve()
        self.path = target.with_name(target.name + "-lock")
        self._connection = self._take(store)

    def _take(self, store: Path) -> sqlite3.Connection:
        for _ in range(20):
            before = self._inode()
            connection = self._lock(store)
            # The last holder may have removed the file between our opening and locking it: a lock on a removed file
            # locks nobody out.
            if before is not None and before == self._inode():
                return connection
            connection.close()
        raise StoreError(f"{store}: its lock changes hands too fast")

    def _inode(self) -> int | None:
        try:
            return self.path.stat().st_ino
        except OSError:
            return None

    def _lock(self, store: Path) -> sqlite3.Connection:
        connection = None
        try:
            connection = sqlite3.connect(self.path, timeout=0.0, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = MEMORY")
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise StoreError(f"{store}: {explain(error)}") from error
        return connection

    def release(self) -> None:
        # Removed while held where the system allows it, else (Windows) after; whoever opened it meanwhile keeps it.
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            self._connection.close()
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
        self._connection.close()
