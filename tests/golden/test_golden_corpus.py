"""What commit f692479 left and said (tests/golden/corpus, verdicts, texts) is read, judged, resumed and compared alike
by the code of today.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import sqlite3
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import zstandard

HERE = Path(__file__).resolve().parent


def load_make() -> ModuleType:
    """``make.py`` beside this file: it replays for the test as it did when the corpus was made."""
    spec = importlib.util.spec_from_file_location("golden_make", HERE / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


golden: Any = load_make()
WHOLE_MATRIX = (
    os.environ.get("KVV_GOLDEN_FULL") == "1"
)  # read here: the command line's fixture takes such variables away
#: argparse lays help out by the interpreter's version, dependencies' own wording follows theirs
SAME_PYTHON = platform.python_version_tuple()[:2] == ("3", "11")


@pytest.fixture
def replay(kvv_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in golden.TERMINAL.items():
        monkeypatch.setenv(name, value)
    return golden.Replay(kvv_cli)


@pytest.mark.parametrize("group", golden.GROUPS)
def test_verdicts_and_outputs_are_those_of_the_corpus(group: str, replay: Any) -> None:
    """Decisions, exit codes, outcomes and values strictly; then the wording, which `make.py --update` may write
    anew.
    """
    if group == "selftest" and WHOLE_MATRIX:
        golden.replay_selftest(replay, ())
        group = "selftest-full"
    else:
        golden.GROUPS[group](replay)
    assert golden.differences(group, golden.verdicts_of(group), replay.facts) == [], (
        f"list it in {golden.CHANGES.name} if a defect's mending means it"
    )
    if group != "help" or SAME_PYTHON:
        assert replay.texts == golden.texts_of(group), (
            f"if it is meant: python tests/golden/make.py --update --group {group}"
        )


def test_the_sample_of_the_matrix_is_the_matrixs() -> None:
    whole, sample = golden.verdicts_of("selftest-full"), golden.verdicts_of("selftest")
    assert len([key for key in whole if "/" not in key]) > 125
    assert {key: value for key, value in sample.items() if whole.get(key) != value} == {}


def test_every_change_names_a_group_that_is_replayed() -> None:
    groups = [*golden.GROUPS, "selftest-full"]
    assert [c for c in golden.changes() if not any(fnmatchcase(group, c["group"]) for group in groups)] == []


def test_recorded_values_are_expected_where_a_pattern_covers_them_only(
    changed: Callable[[str], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golden, "CHANGED", tmp_path / "changed")
    entry = '[[change]]\ngroup = "s*"\nwhy = "a defect"\nwhat = "c/*"'
    assert changed(entry)["c/value"] == 0.5
    golden.write_changed("small", {"a/verdict": "fail", "b/verdict": "pass", "c/value": 0.75, "c/more": 1})
    assert changed(entry) == {"a/verdict": "pass", "b/verdict": "pass", "c/value": 0.75, "c/more": 1}
    golden.write_changed("small", {"a/verdict": "pass", "b/verdict": "pass"})
    assert changed(entry) == {"a/verdict": "pass", "b/verdict": "pass"}
    with pytest.raises(ValueError, match="under no entry"):
        changed("")


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """What is expected of a group of three facts under a list of changes."""
    (tmp_path / "small.json").write_text(
        json.dumps({"a/verdict": "pass", "b/verdict": "pass", "c/value": 0.5}), "utf-8"
    )
    monkeypatch.setattr(golden, "VERDICTS", tmp_path)
    monkeypatch.setattr(golden, "CHANGES", tmp_path / "changes.toml")

    def under(text: str) -> dict[str, Any]:
        (tmp_path / "changes.toml").write_text(text, "utf-8")
        found: dict[str, Any] = golden.verdicts_of("small")
        return found

    return under


def test_a_listed_change_is_expected_and_nothing_else(changed: Callable[[str], dict[str, Any]]) -> None:
    entry = '[[change]]\ngroup = "small"\nwhy = "a defect"\n'
    assert changed("") == {"a/verdict": "pass", "b/verdict": "pass", "c/value": 0.5}
    assert changed(entry + 'what = "a/verdict"\nfrom = "pass"\nto = "fail"')["a/verdict"] == "fail"
    assert changed(entry + 'what = "?/verdict"\nfrom = "pass"\nto = "fail"') == {
        "a/verdict": "fail",
        "b/verdict": "fail",
        "c/value": 0.5,
    }
    assert changed(entry + 'what = "d/verdict"\nto = "skip"')["d/verdict"] == "skip"
    assert "c/value" not in changed(entry + 'what = "c/value"\nfrom = 0.5')


@pytest.mark.parametrize(
    "entry",
    [
        'what = "a/verdict"\nfrom = "fail"\nto = "pass"',  # not what the corpus says
        'what = "z/*"\nfrom = "pass"\nto = "fail"',  # names nothing
        'what = "a/verdict"\nto = "fail"',  # calls new what is there
    ],
)
def test_a_change_that_does_not_fit_the_corpus_is_an_error(
    entry: str, changed: Callable[[str], dict[str, Any]]
) -> None:
    with pytest.raises(ValueError, match="is not"):
        changed(f'[[change]]\ngroup = "small"\nwhy = "a defect"\n{entry}')


def test_a_change_without_a_reason_is_an_error(changed: Callable[[str], dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="needs group, what and why"):
        changed('[[change]]\ngroup = "small"\nwhat = "a/verdict"\nfrom = "pass"\nto = "fail"\nwhy = " "')


def test_a_difference_is_found_in_either_direction() -> None:
    one = {"verdict": "pass", "value": 0.5, "flag": True}
    assert golden.differences("gate", one, dict(one)) == []
    assert golden.differences("gate", one, {**one, "value": 0.5 + 1e-9}) == []
    for other in (
        {**one, "verdict": "fail"},
        {**one, "value": 0.5001},
        {**one, "flag": 1},
        {"verdict": "pass", "value": 0.5},
        {**one, "more": 1},
    ):
        assert len(golden.differences("gate", one, other)) == 1, other
    assert golden.differences("help", one, {**one, "more": 1}) == []
    assert len(golden.differences("help", one, {"verdict": "pass", "value": 0.5})) == 1


def contents(path: Path, work: Path) -> Iterator[bytes]:
    """What a file of the corpus holds: archives unpacked, every value of a store, its compressed ones as they were."""
    if not path.name.endswith(".tar.xz"):
        yield path.read_bytes()
        return
    with tarfile.open(path) as packed:
        packed.extractall(work / path.name, filter="data")
    for file in (work / path.name).rglob("*.*"):
        if file.suffix != ".sqlite":
            yield file.read_bytes()
            continue
        with closing(sqlite3.connect(file)) as store:
            for (table,) in store.execute("select name from sqlite_master where type = 'table'").fetchall():
                for value in chain.from_iterable(store.execute(f"select * from {table}")):  # noqa: S608
                    if isinstance(value, bytes) and value.startswith(golden.ZSTANDARD):
                        yield zstandard.ZstdDecompressor().decompressobj().decompress(value)
                    elif isinstance(value, (bytes, str)):
                        yield value if isinstance(value, bytes) else value.encode()


def test_the_corpus_names_no_machine_and_no_key(tmp_path: Path) -> None:
    paths = [
        path
        for folder in (golden.CORPUS, golden.VERDICTS, golden.TEXTS)
        for path in folder.rglob("*")
        if path.is_file()
    ]
    assert len(paths) > 40
    forbidden = re.compile(rb"/(?:root|home|Users|work|tmp)/[\w.-]+|Bearer [\w-]{8}|\bsk-[A-Za-z0-9]{16}")
    assert {
        path.name: found.group()
        for path in paths
        for data in contents(path, tmp_path)
        if (found := forbidden.search(data))
    } == {}
    assert sum(path.stat().st_size for path in paths) < 8_000_000
