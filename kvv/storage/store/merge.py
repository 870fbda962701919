"""Joining the stores of one run's shards: rows are copied as they are, numbers shifted, blobs shared by content."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from kvv.storage.store import schema
from kvv.storage.store.errors import StoreError
from kvv.storage.store.lock import WriterLock

#: (table, columns copied as they are, columns that count exchanges); blobs, cases and exchange bodies are copied apart
_SHIFTED = (
    ("record", ("data", "frames"), ("exchange",)),
    ("finding", ("number", "rule", "area", "level", "kind", "detail"), ("exchange",)),
    ("alias", ("case_id", "sample", "restart", "step", "ask", "purpose"), ("exchange", "after")),
    ("executed", ("case_id", "sample", "restart", "step", "record"), ("after",)),
    ("verdict", ("case_id", "sample", "outcome", "at", "record"), ()),
    ("verdict_history", ("case_id", "sample", "outcome", "at", "record"), ()),
    ("event", ("at", "kind", "data"), ()),
)
_EXCHANGE = (
    "case_id, sample, restart, step, ask, purpose, attempt, role, stream, status, standing, prompt_tokens,"
    " cached_tokens, completion_tokens, cost, first_token_ms, total_ms, itl_p50_ms, upstream"
)


def merge_into(target: Path, parts: Sequence[Path]) -> None:
    """Copies everything but ``meta`` of ``parts`` into the store ``target``, in their order. All of it or, with a
    StoreError, nothing.

    Parts must be closed and share no case: a case that stands in two of them is a StoreError.
    """
    lock = WriterLock(target)
    try:
        with schema.sqlite_errors(target):
            connection = schema.connect(target)
            try:
                schema.check_header(connection, target)
                for part in parts:
                    _check(part)
                    with schema.sqlite_errors(part):
                        connection.execute("ATTACH DATABASE ? AS part", (f"{part.absolute().as_uri()}?mode=ro",))
                    _copy(connection, part)
                    connection.execute("DETACH DATABASE part")
            finally:
                connection.close()
    finally:
        lock.release()


def _check(part: Path) -> None:
    if not part.is_file():
        raise StoreError(f"{part}: no such file")
    with schema.sqlite_errors(part):
        connection = schema.connect(part, read_only=True)
        try:
            schema.check_header(connection, part)
        finally:
            connection.close()


def _copy(connection: sqlite3.Connection, part: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        _copy_rows(connection)
    except sqlite3.IntegrityError as error:
        connection.execute("ROLLBACK")
        raise StoreError(f"{part}: holds a case that another part holds too ({schema.explain(error)})") from error
    except (sqlite3.Error, ValueError, KeyError) as error:
        connection.execute("ROLLBACK")
        raise StoreError(
            f"{part}: {schema.explain(error) if isinstance(error, sqlite3.Error) else 'damaged body layout'}"
        ) from error
    connection.execute("COMMIT")


def _copy_rows(connection: sqlite3.Connection) -> None:
    (shift,) = connection.execute("SELECT coalesce(max(id), 0) FROM main.exchange").fetchone()
    connection.execute(
        "INSERT INTO main.cases (id, suite, samples, record) SELECT id, suite, samples, record FROM part.cases ORDER BY"
        " number"
    )
    connection.execute(
        "INSERT INTO main.blob (digest, size, data) SELECT digest, size, data FROM part.blob p "
        "WHERE NOT EXISTS (SELECT 1 FROM main.blob m WHERE m.digest = p.digest) ORDER BY id"
    )
    places = dict(connection.execute("SELECT p.id, m.id FROM part.blob p JOIN main.blob m ON m.digest = p.digest"))
    marks = ", ".join("?" * (_EXCHANGE.count(",") + 4))
    rows = connection.execute(f"SELECT id, body, layout, {_EXCHANGE} FROM part.exchange ORDER BY id")  # noqa: S608 our own column names
    connection.executemany(
        f"INSERT INTO main.exchange (id, body, layout, {_EXCHANGE}) VALUES ({marks})",  # noqa: S608
        (
            (number + shift, None if body is None else places[body], _layout(layout, places), *rest)
            for number, body, layout, *rest in rows
        ),
    )
    connection.execute("INSERT OR IGNORE INTO main.restart SELECT * FROM part.restart")
    for table, plain, shifted in _SHIFTED:
        columns = ", ".join((*shifted, *plain))
        chosen = ", ".join((*(f"{name} + {int(shift)}" for name in shifted), *plain))
        order = "exchange, number" if table == "finding" else "exchange" if table == "record" else "id"
        connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {chosen} FROM part.{table} ORDER BY {order}")  # noqa: S608


def _layout(layout: str | None, places: dict[int, int]) -> str | None:
    """Negative numbers name large blobs."""
    if layout is None:
        return None
    return json.dumps([-places[-item] if item < 0 else item for item in json.loads(layout)], separators=(",", ":"))
