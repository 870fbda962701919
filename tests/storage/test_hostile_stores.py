"""A store from elsewhere runs nothing: what it defines beside our own tables is refused before anything is read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kvv.storage.store import Store, StoreError

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
