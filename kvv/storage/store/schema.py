"""The tables of a run's file, and how such a file is opened.

Text that came from an endpoint stands in BLOB columns as JSON (see ``codec``): SQLite's TEXT cannot hold lone
surrogates. Columns beside a record repeat what sums and filters need; the record is what counts.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from kvv.storage.files import is_private
from kvv.storage.store.errors import StoreError

#: "kvv1" in the file's header tells our files from any other SQLite file
APPLICATION_ID = 0x6B767631
VERSION = 1

#: another connection of ours never holds a lock longer than a checkpoint takes
BUSY_TIMEOUT_S = 10.0

#: steps of SQLite's machine between two looks at signals, about a tenth of a second; and looks after which one statement
#: has computed more than any of ours does on ten million records
STEPS, MOST_LOOKS = 2_000_000, 2_000
#: bytes of one value, packed or not; the largest that is written, a request of a million tokens, is a tenth of it
VALUE_LIMIT = 512 * 2**20

#: how long closing waits for readers in other processes
FINISH_TIMEOUT_S = 2.0

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;

-- content-addressed: digest is the SHA-256 of the plain bytes, data is one zstd frame
CREATE TABLE blob (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, size INTEGER NOT NULL, data BLOB NOT NULL) STRICT;

CREATE TABLE cases (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, suite TEXT NOT NULL, samples INTEGER NOT NULL,
    record BLOB NOT NULL) STRICT;
CREATE INDEX cases_by_suite ON cases (suite);

-- how often a sample was begun anew (its sandbox was gone); what belongs to earlier beginnings is kept, and no part of its history
CREATE TABLE restart (case_id TEXT NOT NULL, sample INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (case_id, sample)) STRICT, WITHOUT ROWID;

-- one row per attempt; ids grow in the order of the calls. body: the small parts, layout: how the large ones stand between them
CREATE TABLE exchange (id INTEGER PRIMARY KEY, case_id TEXT NOT NULL, sample INTEGER NOT NULL, restart INTEGER NOT NULL, step INTEGER NOT NULL,
    ask INTEGER NOT NULL, purpose TEXT NOT NULL, attempt INTEGER NOT NULL, role TEXT NOT NULL, stream INTEGER NOT NULL,
    status INTEGER, standing TEXT NOT NULL,
    prompt_tokens INTEGER, cached_tokens INTEGER, completion_tokens INTEGER, cost REAL, first_token_ms REAL, total_ms REAL, itl_p50_ms REAL,
    upstream BLOB, body INTEGER REFERENCES blob (id), layout TEXT) STRICT;
CREATE INDEX exchange_by_case ON exchange (case_id, sample, restart, step, ask);

-- apart from exchange, so that sums and timings do not read the answers. frames is NULL where they stand in data
CREATE TABLE record (exchange INTEGER PRIMARY KEY REFERENCES exchange (id), data BLOB NOT NULL, frames BLOB) STRICT;

CREATE TABLE finding (exchange INTEGER NOT NULL REFERENCES exchange (id), number INTEGER NOT NULL, rule TEXT NOT NULL, area TEXT NOT NULL,
    level TEXT NOT NULL, kind TEXT NOT NULL, detail BLOB NOT NULL, PRIMARY KEY (exchange, number)) STRICT, WITHOUT ROWID;

-- after: the last exchange at that time, which orders aliases and executions among the exchanges
CREATE TABLE alias (id INTEGER PRIMARY KEY, case_id TEXT NOT NULL, sample INTEGER NOT NULL, restart INTEGER NOT NULL, step INTEGER NOT NULL,
    ask INTEGER NOT NULL, purpose TEXT NOT NULL, exchange INTEGER NOT NULL REFERENCES exchange (id), after INTEGER NOT NULL) STRICT;
CREATE INDEX alias_by_case ON alias (case_id, sample, restart, step, ask);

CREATE TABLE executed (id INTEGER PRIMARY KEY, case_id TEXT NOT NULL, sample INTEGER NOT NULL, restart INTEGER NOT NULL, step INTEGER NOT NULL,
    after INTEGER NOT NULL, record BLOB NOT NULL) STRICT;
CREATE INDEX executed_by_case ON executed (case_id, sample, restart, step);

CREATE TABLE verdict (id INTEGER PRIMARY KEY, case_id TEXT NOT NULL, sample INTEGER NOT NULL, outcome TEXT NOT NULL, at TEXT NOT NULL,
    record BLOB NOT NULL, UNIQUE (case_id, sample)) STRICT;
CREATE TABLE verdict_history (id INTEGER PRIMARY KEY, case_id TEXT NOT NULL, sample INTEGER NOT NULL, outcome TEXT NOT NULL, at TEXT NOT NULL,
    record BLOB NOT NULL) STRICT;
CREATE INDEX verdict_history_by_case ON verdict_history (case_id, sample);

CREATE TABLE event (id INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, data BLOB NOT NULL) STRICT;
"""


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turns what SQLite says into a StoreError of one line."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {explain(error)}") from error


def explain(error: sqlite3.Error) -> str:
    text = " ".join(str(error).split())
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_NOTADB"):
        return "not a kvv store"
    if name.startswith("SQLITE_CORRUPT"):
        return f"the file is damaged or was cut short ({text})"
    if name.startswith("SQLITE_FULL"):
        return f"no space left ({text})"
    if name.startswith("SQLITE_IOERR"):
        return f"the disk failed or is full ({text})"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return f"cannot be opened or written here ({text})"
    if name.startswith("SQLITE_BUSY"):
        return f"locked by another process ({text})"
    if name.startswith("SQLITE_INTERRUPT"):
        return "reading it was interrupted, or takes more work than any run's store needs"
    if name.startswith("SQLITE_TOOBIG") or isinstance(error, sqlite3.DataError):
        return f"holds a value of more than {VALUE_LIMIT:,} bytes ({text})"
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in text:
        return "the store is closed"
    return text


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is wrong, rather than the disk that it lies on."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return name in ("SQLITE_ERROR", "SQLITE_SCHEMA") or name.startswith(
        ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CONSTRAINT", "SQLITE_MISMATCH")
    )


class _Reading(sqlite3.Connection):
    """Stops a statement that computes without end, whatever file it reads. What is done with its rows does not count.

    Signals are taken at each look: inside of SQLite none would be.
    """

    _looks = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.set_progress_handler(self._look, STEPS)
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_LIMIT)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self._looks = 0
        return super().execute(sql, parameters)

    def _look(self) -> bool:
        self._looks += 1
        return self._looks > MOST_LOOKS


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode, usable from any one thread at a time; nothing is read yet."""
    mode = "ro" if read_only else "rwc"
    factory: dict[str, Any] = {"factory": _Reading} if read_only else {}
    connection: sqlite3.Connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        **factory,
    )
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def check_files(path: Path, *, writing: bool) -> None:
    """StoreError unless the store, its logs and its lock are plain files of its folder, or absent.

    SQLite follows links and waits at pipes. A second name of the file (a hard link) may be somebody's copy: it is not
    written to. A store that is only read may be a link itself.
    """
    path = path if writing else path.resolve()
    for suffix in ("", "-wal", "-shm", "-journal", "-lock"):
        part = path.with_name(path.name + suffix)
        try:
            found = part.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"{part}: {error.strerror or error}") from error
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{part}: is no plain file but a link, a pipe, a device or a folder")
        if writing and found.st_nlink > 1:
            raise StoreError(
                f"{part}: has another name elsewhere (a hard link), which would change too; make a copy of the run"
            )


def put_empty(path: Path) -> None:
    """An empty file for a new store, private in a private folder: SQLite gives its logs the rights of the store."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if is_private(path.parent) else 0o644))
    except OSError as error:
        raise StoreError(f"{path}: cannot be opened or written here ({error.strerror or error})") from error


def prepare_writer(connection: sqlite3.Connection) -> None:
    """Write-ahead log, each commit synced: what is acknowledged survives a power cut too. Syncs are at most twenty a
    second.
    """
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -8000")


def create_tables(connection: sqlite3.Connection) -> None:
    connection.executescript(
        f"BEGIN; {TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;"
    )


def check_header(connection: sqlite3.Connection, path: Path) -> None:
    """Raises StoreError for a file that is no store, or one of a newer kvv."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StoreError(f"{path}: not a kvv store")
    if version > VERSION:
        raise StoreError(f"{path}: written by a newer kvv (store version {version}, this one reads up to {VERSION})")
    # a view may compute for ever and a trigger may delete what is read: neither is ever ours
    if _objects(connection) != _own_objects():
        raise StoreError(f"{path}: its tables, views, triggers and indexes are not those that kvv makes; it is refused")
    connection.execute("SELECT count(*) FROM meta").fetchone()


def _objects(connection: sqlite3.Connection) -> frozenset[tuple[str, ...]]:
    """Type, name, table and statement of all that the file defines, read without running any of it."""
    rows = connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master LIMIT 100")
    return frozenset(tuple(" ".join(str(part).split()) for part in row) for row in rows)


@cache
def _own_objects() -> frozenset[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        return _objects(connection)


def finish(connection: sqlite3.Connection) -> None:
    """Folds the log into the one file and leaves write-ahead mode, so that the file can be read from a read-only
    folder.

    A reader in another process can hold this up; then the log stays beside the file, complete, and the next writer
    folds it.
    """
    connection.execute(f"PRAGMA busy_timeout = {int(FINISH_TIMEOUT_S * 1000)}")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    except sqlite3.OperationalError as error:
        if not (getattr(error, "sqlite_errorname", "") or "").startswith("SQLITE_BUSY"):
            raise
