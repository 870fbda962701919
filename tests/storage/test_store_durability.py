"""What is acknowledged survives; what cannot be written is said; one process writes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvv.storage.store import Store, StoreError, schema
from kvv.storage.store.schema import APPLICATION_ID, VERSION

WRITER = """
import sys
from pathlib import Path
from types import SimpleNamespace
from kvv.core import Choice, Exchange, Frame, Identity, Observation, Outcome, Request, Role, Shape, Verdict
from kvv.storage.store import Store

store = Store.open(Path(sys.argv[1]))
number = store.concluded
print(number, flush=True)
known = number
while True:
    identity = Identity(case=f"suite/{number}", sample=0, step=0, ask=0, purpose="probe")
    frames = (Frame(1, 0.0, b"x" * (number % 5000)),)
    exchange = Exchange(identity=identity, attempt=1, role=Role.TARGET, started="", status=200, frames=frames)
    observation = Observation(shape=Shape.COMPLETION, choices=(Choice(answer=str(number)),))
    received = SimpleNamespace(exchange=exchange, observation=observation, findings=())
    store.put_exchange(received, Request(body={"n": number}), SimpleNamespace(parts=(b'{"n":%d}' % number,), size=10))
    store.put_verdict(Verdict(case=identity.case, sample=0, outcome=Outcome.PASS))
    number += 1
    if store.backlog_bytes > 2_000_000:
        store.flush()
    if store.concluded != known:
        known = store.concluded
        print(known, flush=True)
"""

#: permissions do not bind root, so it becomes somebody else
READER = """
import os, sys
from pathlib import Path
from kvv.storage.store import Store

if len(sys.argv) > 2 and os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
    assert not os.access(Path(sys.argv[1]).parent, os.W_OK, effective_ids=True)
with Store.open(Path(sys.argv[1]), read_only=True) as store:
    print(store.concluded)
"""


def run_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def beside(path: Path) -> list[str]:
    return sorted(item.name for item in path.parent.iterdir())


# --- kill -9 -----------------------------------------------------------------------------------------


def test_kill_9_at_random_moments_loses_no_acknowledged_exchange(store_path: Path) -> None:
    Store.create(store_path, {}).close()
    generator = random.Random(5)
    acknowledged = 0
    for _ in range(20):
        with run_python(WRITER, str(store_path)) as process:
            assert process.stdout is not None
            said = [process.stdout.readline()]
            timer = threading.Timer(generator.random() * 0.2, process.kill)
            timer.start()
            said += process.stdout.readlines()
            timer.cancel()
            assert process.stderr is not None
            assert process.stderr.read() == ""
        whole = [line for line in said if line.endswith("\n")]
        acknowledged = max(acknowledged, int(whole[-1]))
        with Store.open(store_path, read_only=True) as store:
            assert store.concluded >= acknowledged
    assert acknowledged > 0
    with Store.open(store_path) as store:
        stored = store.concluded
        assert [item.observation.answer for item in store.exchanges()] == [str(number) for number in range(stored)]
        judged = {int(case.removeprefix("suite/")) for case, _, _ in store.verdicts()}
        assert judged <= set(range(stored))
        assert len(judged) >= stored - 20
    connection = sqlite3.connect(store_path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
    assert beside(store_path) == ["store.sqlite"]


# --- one writer ------------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_in_this_process_and_in_another(store: Store) -> None:
    with pytest.raises(StoreError, match="locked by another process"):
        Store.open(store.path)
    with run_python(WRITER, str(store.path)) as process:
        _, said = process.communicate(timeout=20)
    assert "StoreError" in said.splitlines()[-1]
    assert "locked by another process" in said.splitlines()[-1]


def test_a_killed_writers_lock_is_gone_with_it(store_path: Path, make: Any) -> None:
    Store.create(store_path, {}).close()
    with run_python(WRITER, str(store_path)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(StoreError, match="locked"):
            Store.open(store_path)
        process.kill()
        process.stdout.read()
    with Store.open(store_path) as store:
        make.put(store, make.identity())


def test_of_many_that_open_at_once_one_writes(store_path: Path) -> None:
    Store.create(store_path, {}).close()
    opened: list[Store] = []
    refused: list[StoreError] = []
    gate = threading.Barrier(6)

    def attempt() -> None:
        gate.wait()
        try:
            opened.append(Store.open(store_path))
        except StoreError as error:
            refused.append(error)

    for _ in range(5):
        threads = [threading.Thread(target=attempt) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(opened), len(refused)) == (1, 5)
        opened.pop().close()
        refused.clear()


# --- failures surface ----------------------------------------------------------------------------------


def test_a_full_disk_surfaces_in_put_flush_wait_and_close(
    store_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = schema.prepare_writer

    def small_disk(connection: sqlite3.Connection) -> None:
        prepare(connection)
        connection.execute("PRAGMA max_page_count = 60")

    monkeypatch.setattr(schema, "prepare_writer", small_disk)
    store = Store.create(store_path, {})
    make.put(store, make.identity())
    store.flush()
    big = random.Random(0).randbytes(200_000)
    for ask in range(1, 4):
        with contextlib.suppress(StoreError):
            make.put(store, make.identity(ask=ask), body=big + bytes([ask]))
    for attempt in (
        store.flush,
        lambda: asyncio.run(store.drained(0)),
        lambda: make.put(store, make.identity()),
        lambda: store.put_event("x", {}),
    ):
        with pytest.raises(StoreError, match="no space left"):
            attempt()
    assert store.concluded == 1
    with pytest.raises(StoreError, match="no space left"):
        store.close()
    with Store.open(store_path) as again:
        assert again.concluded == 1
    assert beside(store_path) == ["store.sqlite"]


def test_who_waits_when_the_writer_fails_is_told(store_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = slow_store(store_path, monkeypatch, seconds=0.2, fail=True)
    make.put(store, make.identity())
    with pytest.raises(StoreError, match="disk I/O error"):
        asyncio.run(asyncio.wait_for(store.drained(0), 10))
    with pytest.raises(StoreError, match="disk I/O error"):
        store.close()


@pytest.mark.parametrize("path", ["missing/store.sqlite", "file/store.sqlite"])
def test_a_folder_that_cannot_be_written_gives_one_line(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"store\.sqlite: (cannot be opened|Not a directory)") as caught:
        Store.create(tmp_path / path, {})
    assert "\n" not in str(caught.value)


def test_create_refuses_an_existing_file_and_open_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        Store.create(tmp_path / "a", {})
    assert (tmp_path / "a").read_text() == "mine"
    for read_only in (True, False):
        with pytest.raises(StoreError, match="no such file"):
            Store.open(tmp_path / "b", read_only=read_only)
    assert beside(tmp_path / "a") == ["a"]


def foreign(path: Path, kind: str) -> None:
    if kind == "text":
        path.write_text("not a database, but longer than the header of one " * 40)
    elif kind == "empty":
        path.write_bytes(b"")
    else:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("CREATE TABLE t (x)")
        if kind == "newer":
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION + 1}")
        connection.close()


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    ("kind", "said"),
    [("text", "not a kvv store"), ("empty", "not a kvv store"), ("other", "not a kvv store"), ("newer", "newer kvv")],
)
def test_a_file_that_is_no_store_of_ours_is_left_alone(store_path: Path, kind: str, said: str, read_only: bool) -> None:
    foreign(store_path, kind)
    before = store_path.read_bytes()
    with pytest.raises(StoreError, match="newer kvv" if kind == "newer" else "not a kvv store"):
        Store.open(store_path, read_only=read_only)
    assert store_path.read_bytes() == before
    assert beside(store_path) == ["store.sqlite"]


@pytest.mark.parametrize("keep", [0.9, 0.5, 0.1])
def test_a_truncated_file_is_named(store_path: Path, make: Any, keep: float) -> None:
    with Store.create(store_path, {}) as store:
        for sample in range(200):
            make.put(store, make.identity(sample=sample), answer="x" * sample)
    data = store_path.read_bytes()
    store_path.write_bytes(data[: int(len(data) * keep)])
    for read_only in (True, False):
        with pytest.raises(StoreError, match="damaged or was cut short"):
            Store.open(store_path, read_only=read_only)


def test_a_closed_store_says_so_and_can_be_closed_again(store_path: Path, make: Any) -> None:
    store = Store.create(store_path, {})
    make.put(store, make.identity())
    store.flush()
    rows = store.exchanges()
    next(rows)
    store.close()
    store.close()
    for attempt in (lambda: store.put_event("x", {}), store.meta, lambda: next(store.exchanges())):
        with pytest.raises(StoreError, match="closed"):
            attempt()


# --- the disk is slow -------------------------------------------------------------------------------------


class SlowConnection(sqlite3.Connection):
    seconds = 0.0
    fail = False

    def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
        if statement == "COMMIT":
            time.sleep(self.seconds)
            if self.fail:
                raise sqlite3.OperationalError("disk I/O error")
        return super().execute(statement, values)


def slow_store(path: Path, monkeypatch: pytest.MonkeyPatch, *, seconds: float, fail: bool = False) -> Store:
    real = sqlite3.connect

    def slow_connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return real(*arguments, **options, factory=SlowConnection)

    Store.create(path, {}).close()
    monkeypatch.setattr(SlowConnection, "seconds", seconds)
    monkeypatch.setattr(SlowConnection, "fail", fail)
    monkeypatch.setattr(sqlite3, "connect", slow_connect)
    return Store.open(path)


def test_a_slow_commit_does_not_delay_a_put_and_drained_waits_for_it(
    store_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = slow_store(store_path, monkeypatch, seconds=0.3)
    received = [make.received(make.identity(sample=sample)) for sample in range(200)]

    async def use() -> tuple[float, float]:
        make.put(store, make.identity(sample=999))
        await asyncio.sleep(0.1)  # the commit has begun
        begin = time.perf_counter()
        for sample in range(200):
            make.put(store, received[sample].exchange.identity)
        put = time.perf_counter() - begin
        assert store.backlog_bytes > 200 * 1_000
        assert store.concluded == 0
        await store.drained(0)
        return put, time.perf_counter() - begin

    put, drained = asyncio.run(use())
    assert put < 0.15
    assert drained > 0.3
    assert (store.backlog_bytes, store.concluded) == (0, 201)
    store.close()


def test_drained_returns_at_once_below_the_mark_and_wakes_every_waiter(
    store_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = slow_store(store_path, monkeypatch, seconds=0.1)

    async def use() -> None:
        await store.drained(0)
        make.put(store, make.identity())
        await asyncio.wait_for(store.drained(10_000_000), 0.05)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.drained(0), 0.01)
        await asyncio.wait_for(asyncio.gather(*(store.drained(0) for _ in range(50))), 5)

    asyncio.run(use())
    store.close()


def test_flush_gives_up_after_its_timeout(store_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = slow_store(store_path, monkeypatch, seconds=0.3)
    make.put(store, make.identity())
    with pytest.raises(StoreError, match="not on disk after"):
        store.flush(0.01)
    store.flush(10)
    assert store.concluded == 1
    store.close()


def test_a_lone_exchange_is_committed_within_the_group_time(store: Store, make: Any) -> None:
    make.put(store, make.identity())
    deadline = time.monotonic() + 5
    while store.concluded == 0 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert store.concluded == 1


# --- reading beside writing ---------------------------------------------------------------------------------


def test_another_process_reads_what_is_committed_while_this_one_writes(store: Store, make: Any) -> None:
    make.put(store, make.identity())
    store.flush()
    make.put(store, make.identity(sample=1))
    with run_python(READER, str(store.path)) as process:
        out, error = process.communicate(timeout=20)
    assert (out.strip() in ("1", "2"), error) == (True, "")
    with Store.open(store.path, read_only=True) as reader:
        seen = reader.concluded
        make.put(store, make.identity(sample=2))
        store.flush()
        assert reader.concluded == seen + 1 or seen == 3
        with pytest.raises(StoreError, match="for reading only"):
            reader.put_event("x", {})


def test_a_reader_that_stays_delays_closing_but_loses_nothing(
    store_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "FINISH_TIMEOUT_S", 0.1)
    store = Store.create(store_path, {})
    with Store.open(store_path, read_only=True) as reader:
        make.put(store, make.identity())
        store.close()
        assert reader.concluded == 1
    Store.open(store_path).close()
    assert beside(store_path) == ["store.sqlite"]


def test_closing_leaves_one_file_with_everything(store_path: Path, make: Any) -> None:
    with Store.create(store_path, {}) as store:
        for sample in range(50):
            make.put(store, make.identity(sample=sample))
    assert beside(store_path) == ["store.sqlite"]
    moved = store_path.with_name("moved with spaces?#%.sqlite")
    shutil.move(store_path, moved)
    with Store.open(moved, read_only=True) as store:
        assert store.concluded == 50


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user may read, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folder permissions as POSIX has them")
def test_a_closed_store_can_be_read_in_a_read_only_folder(open_folder: Path, make: Any) -> None:
    path = open_folder / "store.sqlite"
    with Store.create(path, {}) as store:
        make.put(store, make.identity())
    path.chmod(0o444)
    open_folder.chmod(0o555)
    with run_python(READER, str(path), "as somebody who may not write") as process:
        out, error = process.communicate(timeout=20)
    assert (out.strip(), error) == ("1", "")
