"""Which folders are runs, and which of them is the newest."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import kvv.cli.verbs.session
from kvv.planning.config import ConfigError, RunConfig
from kvv.storage.run_folder import CONFIG, STORE, find_run, runs_under, vendor_of, vendor_stored, write_config
from kvv.storage.store import Store, StoreError

SECOND = "20260101T000000Z"


def a_run(root: Path, name: str, *, put_ns: int | None = None) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    Store.create(folder / STORE, {}).close()
    write_config(folder, RunConfig())
    if put_ns is not None:
        os.utime(folder / CONFIG, ns=(put_ns, put_ns))
    return folder


def test_of_runs_of_the_same_second_the_last_is_the_one_that_began_last(tmp_path: Path) -> None:
    second_ns = 1_767_225_600 * 10**9
    order = ["f00000", "a00000", "c00000", "b00000"]
    made = [
        a_run(tmp_path, f"{SECOND}-local-m-{hash_}", put_ns=second_ns + 1_000_000 * number)
        for number, hash_ in enumerate(order)
    ]
    assert runs_under(tmp_path) == made
    assert find_run("last", str(tmp_path)) == made[-1]


def test_the_name_says_when_a_copied_run_began_and_run_toml_when_a_renamed_one_did(tmp_path: Path) -> None:
    copied = a_run(tmp_path, "20250101T000000Z-local-m-ffffff")  # its file is the newest of all
    renamed = a_run(tmp_path, "zz-baseline", put_ns=1_750_000_000 * 10**9)  # June 2025
    newest = a_run(tmp_path, f"{SECOND}-local-m-000000", put_ns=1)
    assert runs_under(tmp_path) == [copied, renamed, newest]


@pytest.mark.parametrize("left", ["nothing", "empty store", "store without configuration", "unnamed configuration"])
def test_what_a_killed_start_left_is_no_run(left: str, tmp_path: Path) -> None:
    usable = a_run(tmp_path, f"{SECOND}-local-m-000000")
    broken = a_run(tmp_path, "20270101T000000Z-local-m-000000")
    match left:
        case "nothing":
            shutil.rmtree(broken)
            broken.mkdir()
        case "empty store":
            (broken / CONFIG).unlink()
            (broken / STORE).write_bytes(b"")
        case "store without configuration":
            (broken / CONFIG).unlink()
        case _:
            (broken / CONFIG).rename(broken / f".{CONFIG}")
    assert find_run("last", str(tmp_path)) == usable
    with pytest.raises(ConfigError, match="no run"):
        find_run(broken.name, str(tmp_path))


def test_a_run_can_be_found_only_when_its_store_holds_the_whole_plan(
    kvv_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    def watched(folder: Path, config: RunConfig) -> None:
        assert not runs_under(folder.parent)
        with Store.open(folder / STORE, read_only=True) as store:
            held.append(len(list(store.cases())))
            assert store.meta()["model"] == "kimi-k3"
        write_config(folder, config)

    monkeypatch.setattr(kvv.cli.verbs.session, "write_config", watched)
    assert kvv_cli("run", "ocrbench", "--limit", "3").code in (0, 3)
    assert held == [3]


def test_a_start_that_fails_leaves_no_folder(kvv_cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(job: object, store: object) -> None:
        raise StoreError("no space left")

    monkeypatch.setattr(kvv.cli.verbs.session, "_put_plan", full)
    ran = kvv_cli("run", "ocrbench", "--limit", "1")
    assert ran.code in (2, 4)
    assert list((tmp_path / "out").iterdir()) == []


def test_two_runs_started_in_a_row_are_told_apart(kvv_cli: Any) -> None:
    for seed in range(4):
        ran = kvv_cli("run", "ocrbench", "--limit", "1", "--seed", str(seed))
        assert ran.report["seed"] == seed


@pytest.mark.parametrize(
    ("base_url", "vendor"),
    [
        ("http://127.0.0.1:8000/v1", "local-8000"),
        ("http://localhost:8001/v1", "local-8001"),
        ("http://[::1]:8000/v1", "local-8000"),
        ("http://127.0.0.1/v1", "local-80"),
        ("https://localhost/v1", "local-443"),
        ("http://10.0.0.7:8000/v1", "10.0.0.7"),
        ("https://api.example.com/v1", "example"),
        (None, "reference"),
    ],
)
def test_services_on_one_machine_are_told_apart_by_their_port(base_url: str | None, vendor: str) -> None:
    assert vendor_of(base_url) == vendor


def test_a_run_that_says_local_goes_by_the_port_of_its_address() -> None:
    assert vendor_stored("local", "http://127.0.0.1:8000/v1") == "local-8000"
    assert vendor_stored("local", "") == "local"
    assert vendor_stored("example", "http://127.0.0.1:8000/v1") == "example"
