"""A store that is damaged is one line and exit code 2 on every verb that opens one, whatever is wrong with it."""

from __future__ import annotations

import shutil
import sqlite3
from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kvv.cli.main import build_parser
from kvv.storage.run_metadata import run_meta
from kvv.storage.store import Store

#: the one case of the run below
CASE = "aime2025/own-02"

#: from the damaged run's folder and a whole one to a command line
VERBS: dict[str, Callable[[str, str], tuple[str, ...]]] = {
    "report": lambda folder, whole: ("report", folder),
    "report-html": lambda folder, whole: ("report", folder, "--format", "html"),
    "show": lambda folder, whole: ("show", CASE, "--run", folder),
    "show-rule": lambda folder, whole: ("show", folder, "--rule", "*"),
    "score": lambda folder, whole: ("score", folder),
    "resume": lambda folder, whole: ("resume", folder),
    "compare": lambda folder, whole: ("compare", folder, whole),
    "gate": lambda folder, whole: ("gate", folder, "--baseline", whole),
    "merge": lambda folder, whole: ("merge", folder, whole),
    "baseline": lambda folder, whole: ("baseline", "accept", folder),
}
#: reads a store only where the package that it writes for is installed
EXPORT = {"export": lambda folder, whole: ("export", "inspect", folder)}
if find_spec("inspect_ai"):
    VERBS |= EXPORT


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run, made once."""
    from kvv.cli.main import main

    out = tmp_path_factory.mktemp("whole")
    assert main(["run", "aime2025", "--case", CASE, "--samples", "1", "--out", str(out), "-q"]) in (0, 3)
    (folder,) = out.iterdir()
    return folder


@pytest.fixture
def broken(whole: Path, tmp_path: Path) -> Callable[[str, tuple[Any, ...]], str]:
    def spoil(statement: str, values: tuple[Any, ...] = ()) -> str:
        folder = tmp_path / "broken"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        connection = sqlite3.connect(folder / "store.sqlite")
        connection.execute(statement, values)
        connection.commit()
        connection.close()
        return str(folder)

    return spoil


def refused(ran: Any) -> bool:
    assert "Traceback" not in ran.said
    assert "internal error" not in ran.said
    lines = [line for line in ran.err.splitlines() if line.startswith("kvv ")]
    return ran.code == 2 and len(lines) == 1 and "RUN: " in lines[0] and "store.sqlite" in lines[0] and ran.out == ""


REQUIRED = (
    "run_id",
    "kvv_version",
    "started",
    "seed",
    "base_url",
    "vendor",
    "model",
    "profile",
    "surface",
    "tier",
    "preset",
    "policy",
)
#: what older stores lack
ADDED_LATER = (
    "seal",
    "profile_table",
    "shard",
    "sandbox",
    "policy_sha256",
    "published",
    "chosen_cases",
    "official_rules",
    "published_otherwise",
    "api_key_env",
    "header_env",
)
REQUIRED += ("in_process", "contract_only", "suites", "skipped", "profile_reason")


@pytest.mark.parametrize("key", REQUIRED)
def test_a_record_without_one_of_its_keys_is_named(key: str, broken: Any, whole: Path, kvv_cli: Any) -> None:
    folder = broken("DELETE FROM meta WHERE key = ?", (key,))
    for verb in VERBS:
        ran = kvv_cli(*VERBS[verb](folder, str(whole)))
        assert refused(ran), (verb, ran)
        assert key in ran.err


def test_these_are_all_keys_that_a_run_writes(whole: Path) -> None:
    with Store.open(whole / "store.sqlite", read_only=True) as store:
        written = set(store.meta())
    assert set(REQUIRED) <= written
    assert written - set(REQUIRED) <= {*ADDED_LATER, "finished", "stop", "blocked", "configuration", "server_counts"}
    assert run_meta.__name__ == "run_meta"


@pytest.mark.parametrize(
    "value", [b"5", b'"x"', b"[]", b"{}", b"null", b"[1, 2]", b'{"a": 1}', b"", b"\xff", b"[[[[", b"true", b"1e999"]
)
@pytest.mark.parametrize("key", [*REQUIRED, "stop"])
def test_a_record_of_another_shape_never_ends_in_a_traceback(key: str, value: bytes, broken: Any, kvv_cli: Any) -> None:
    folder = broken("UPDATE meta SET value = ? WHERE key = ?", (value, key))
    ran = kvv_cli("report", folder)
    assert ran.code == 0 or refused(ran), ran


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE cases SET record = x'00'",
        "UPDATE cases SET record = CAST('{}' AS BLOB)",
        "UPDATE verdict SET record = CAST('{\"case\": 5}' AS BLOB)",
        'UPDATE verdict SET record = CAST(\'{"outcome": "maybe"}\' AS BLOB)',
        "UPDATE verdict SET record = x'ffff'",
        "UPDATE record SET data = x'28b52ffd'",
        "UPDATE exchange SET standing = 'nonsense'",
        "DROP TABLE verdict",
        "DROP TABLE record",
        "DROP TABLE finding",
    ],
)
def test_damaged_rows_are_refused_by_whoever_reads_them(statement: str, broken: Any, whole: Path, kvv_cli: Any) -> None:
    told = 0
    for command in VERBS.values():
        ran = kvv_cli(*command(broken(statement), str(whole)))
        # it reads nothing of what is damaged
        unharmed = ran.code in (0, 3) or any(
            words in ran.err
            for words in ("--rule: no finding", "is no shard", "is the run itself", "holds the same run as")
        )
        assert refused(ran) or (unharmed and "internal" not in ran.said), (statement, ran)
        told += refused(ran)
    assert told


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 5_000])
def test_a_file_that_is_no_store_is_refused_by_every_verb(
    content: bytes, whole: Path, tmp_path: Path, kvv_cli: Any
) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(whole, folder)
    (folder / "store.sqlite").write_bytes(content)
    for command in VERBS.values():
        assert refused(kvv_cli(*command(str(folder), str(whole))))


def test_a_store_cut_in_the_middle_is_refused_or_read(whole: Path, tmp_path: Path, kvv_cli: Any) -> None:
    data = (whole / "store.sqlite").read_bytes()
    folder = tmp_path / "broken"
    shutil.copytree(whole, folder)
    codes = []
    for share in (0.1, 0.5, 0.9, 0.99):
        (folder / "store.sqlite").write_bytes(data[: int(len(data) * share)])
        ran = kvv_cli("report", str(folder))
        assert ran.code == 0 or refused(ran), ran
        codes.append(ran.code)
    assert codes[:2] == [2, 2]


def _parsers(action: Action) -> dict[str, ArgumentParser]:
    return dict(action.choices or {}) if isinstance(action, _SubParsersAction) else {}


def test_every_verb_that_takes_a_run_is_tried_here() -> None:
    def takes_a_run(parser: ArgumentParser) -> bool:
        inner = [each for action in parser._actions for each in _parsers(action).values()]
        return any(action.dest in ("run", "runs") for action in parser._actions) or any(map(takes_a_run, inner))

    verbs = _parsers(next(action for action in build_parser()._actions if action.dest == "verb"))
    taking = {name for name, parser in verbs.items() if takes_a_run(parser)}
    assert taking == {name.partition("-")[0] for name in (*VERBS, *EXPORT)}


def test_a_run_that_is_still_going_on_can_be_reported_and_not_resumed(
    whole: Path, tmp_path: Path, kvv_cli: Any
) -> None:
    folder = tmp_path / "going"
    shutil.copytree(whole, folder)
    with Store.open(folder / "store.sqlite") as store:
        store.put_event("note", {})
        store.flush()
        assert kvv_cli("report", str(folder)).code == 0
        assert refused(kvv_cli("resume", str(folder)))
