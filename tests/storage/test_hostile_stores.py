"""A store from elsewhere runs nothing: what it defines beside our own tables is refused before anything is read."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from kvv.storage.store import Store, StoreError, schema
from kvv.storage.store.blobs import Unpacker

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"

ATTACKS = {
    "view in place of a table": f"DROP TABLE meta; CREATE VIEW meta AS {ENDLESS} 'run_id' AS key, x AS value FROM n;",
    "view beside": f"CREATE VIEW more AS {ENDLESS} x FROM n;",
    "trigger": "CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM verdict; END;",
    "table": "CREATE TABLE more (x);",
    "index that computes": "CREATE INDEX more ON event (abs(id));",
    "table of another shape": "DROP TABLE event; CREATE TABLE event (id, at, kind, data DEFAULT (randomblob(9)));",
    "missing table": "DROP TABLE event;",
}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    Store.create(tmp_path / "store.sqlite", {"run_id": "r"}).close()
    return tmp_path / "store.sqlite"


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_store_that_defines_anything_of_its_own_is_refused_in_one_line(
    made: Path, attack: str, read_only: bool
) -> None:
    with closing(sqlite3.connect(made)) as connection:
        connection.executescript(attack)
    before = made.read_bytes()
    with pytest.raises(StoreError, match="are not those that kvv makes") as refused:
        Store.open(made, read_only=read_only)
    assert "\n" not in str(refused.value)
    assert made.read_bytes() == before


@pytest.mark.parametrize("read_only", [True, False])
def test_our_own_store_is_opened(made: Path, read_only: bool) -> None:
    with closing(sqlite3.connect(made)) as connection:
        connection.execute("VACUUM")
    with Store.open(made, read_only=read_only) as store:
        assert store.meta()["run_id"] == "r"


def counting(made: Path, rows: int) -> None:
    with closing(sqlite3.connect(made)) as connection:
        connection.executemany(
            "INSERT INTO event (at, kind, data) VALUES ('', 'note', ?)", ((b"{}",) for _ in range(rows))
        )
        connection.commit()


def test_a_statement_that_computes_too_long_is_stopped(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counting(made, 3_000)
    monkeypatch.setattr(schema, "STEPS", 1_000)
    with Store.open(made, read_only=True) as store:
        assert len(list(store.events())) == 3_000
    monkeypatch.setattr(schema, "MOST_LOOKS", 3)
    with Store.open(made, read_only=True) as store, pytest.raises(StoreError, match="more work than any") as stopped:
        list(store.events())
    assert "\n" not in str(stopped.value)


@pytest.mark.skipif(os.name == "nt", reason="timers of POSIX")
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals are of the main thread")
def test_a_signal_ends_a_statement_without_end(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(schema, "STEPS", 10_000)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with closing(schema.connect(made, read_only=True)) as connection:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            # the exception is raised inside of SQLite, which knows it as a wish to stop
            with pytest.raises((sqlite3.OperationalError, KeyboardInterrupt)):
                connection.execute(f"{ENDLESS} count(*) FROM n").fetchone()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_value_that_unpacks_without_measure_is_refused(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(1_000_000))
    assert Unpacker().unpack(bomb) == bytes(1_000_000)
    monkeypatch.setattr("kvv.storage.store.blobs.VALUE_LIMIT", 999_999)
    with pytest.raises(StoreError, match="without a believable size"):
        Unpacker().unpack(bomb)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 100)
    with pytest.raises(StoreError, match="without a believable size"):
        Unpacker().unpack(unsized)


def test_a_value_larger_than_any_of_ours_is_not_read(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(made)) as connection:
        connection.execute("INSERT INTO event (at, kind, data) VALUES ('', 'note', zeroblob(2000000))")
        connection.commit()
    monkeypatch.setattr(schema, "VALUE_LIMIT", 1_000_000)
    with Store.open(made, read_only=True) as store, pytest.raises(StoreError, match="more than 1,000,000 bytes"):
        list(store.events())
