"""Local data: every format gives the same rows, and what is broken is named with file and row in one line."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvv import data
from kvv.data import DataError, canonical_sha256, load
from kvv.data.local import read_file, split_files
from kvv.data.spec import DatasetSpec, check_rows, load_spec

ROWS = [{"problem": f"What is {i} plus ü?", "answer": str(i), "id": f"r{i}"} for i in range(5)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def spec(**columns: str) -> DatasetSpec:
    return DatasetSpec(
        title="t",
        licence="l",
        source="s",
        fixture="f",
        columns=columns or {"problem": "string", "answer": "string", "id": "string"},
    )


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def failure(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        load("aime2025", path=path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


# --- every format ------------------------------------------------------------------------------------


def _jsonl(folder: Path) -> Path:
    return write(folder / "rows.jsonl", LINES)


def _bom(folder: Path) -> Path:
    return write(folder / "bom.jsonl", b"\xef\xbb\xbf" + LINES.encode() + b"\n\n")


def _gzip(folder: Path) -> Path:
    return write(folder / "rows.jsonl.gz", gzip.compress(LINES.encode()))


def _json(folder: Path) -> Path:
    return write(folder / "rows.json", json.dumps(ROWS, indent=1))


def _parquet(folder: Path) -> Path:
    pd.DataFrame(ROWS).to_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def _csv(folder: Path) -> Path:
    pd.DataFrame(ROWS).to_csv(folder / "rows.csv", index=False, encoding="utf-8-sig")
    return folder / "rows.csv"


def _hub_folder(folder: Path) -> Path:
    place = folder / "hub"
    (place / "data").mkdir(parents=True)
    pd.DataFrame(ROWS[:3]).to_parquet(place / "data" / "test-00000-of-00002.parquet")
    pd.DataFrame(ROWS[3:]).to_parquet(place / "data" / "test-00001-of-00002.parquet")
    pd.DataFrame(ROWS).to_parquet(place / "data" / "train-00000-of-00001.parquet")
    write(place / "README.md", "card")
    write(place / ".cache" / "test.jsonl", "{}")
    return place


def _flat_folder(folder: Path) -> Path:
    write(folder / "flat" / "test.jsonl", LINES)
    return folder / "flat"


def _saved(folder: Path) -> Path:
    import datasets

    datasets.Dataset.from_list(ROWS).save_to_disk(folder / "saved")
    return folder / "saved"


def _saved_dictionary(folder: Path) -> Path:
    import datasets

    splits = {"train": datasets.Dataset.from_list(ROWS[:1]), "test": datasets.Dataset.from_list(ROWS)}
    datasets.DatasetDict(splits).save_to_disk(folder / "dict")
    return folder / "dict"


FORMATS = [_jsonl, _bom, _gzip, _json, _parquet, _csv, _hub_folder, _flat_folder, _saved, _saved_dictionary]


@pytest.mark.parametrize("make", FORMATS, ids=lambda make: make.__name__)
def test_every_format_gives_the_same_rows_and_digest(make: Any, tmp_path: Path) -> None:
    dataset = load("aime2025", path=make(tmp_path))
    assert list(dataset.rows) == ROWS
    assert dataset.sha256 == canonical_sha256(ROWS, ("id", "answer", "problem"))
    assert dataset.revision == f"local sha256:{dataset.sha256[:12]}"
    assert not dataset.fixture


def test_the_digest_follows_content_and_order_and_ignores_other_columns() -> None:
    digest = canonical_sha256(ROWS, ("problem", "answer", "id"))
    assert digest == canonical_sha256(
        [{"extra": 1, **dict(reversed(row.items()))} for row in ROWS], ("id", "problem", "answer")
    )
    assert digest != canonical_sha256(ROWS[::-1], ("problem", "answer", "id"))
    assert digest != canonical_sha256([{**ROWS[0], "answer": "00"}, *ROWS[1:]], ("problem", "answer", "id"))
    row = '{"a":"ü","b":1}\n'  # by hand: sorted keys, no spaces, a newline
    assert canonical_sha256([{"b": 1, "a": "ü", "c": 0}], "ab") == hashlib.sha256(row.encode()).hexdigest()


def test_nothing_is_imported_and_no_socket_opened_for_local_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    load("aime2025", path=_jsonl(tmp_path))
    assert len(load("aime2025", fixture=True).rows) == 12
    heavy = "{'datasets', 'pandas', 'pyarrow'}"
    code = (
        f"import sys; from kvv.data import load; load('aime2025', fixture=True); print(sorted({heavy} &"
        " set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_the_fixture_is_a_complete_small_set() -> None:
    dataset = load("aime2025", fixture=True)
    assert dataset.fixture
    assert dataset.origin == "fixture"
    assert all(0 <= int(row["answer"]) <= 999 and row["answer"] == str(int(row["answer"])) for row in dataset.rows)


def test_json_integers_beside_nulls_stay_integers_and_absent_fields_absent(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", '{"n": 1, "big": 12345678901234567890123}\n{"n": null}\n')
    assert read_file(path, spec(n="integer?")) == [{"n": 1, "big": 12345678901234567890123}, {"n": None}]


def test_parquet_nulls_and_nested_values_survive(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"n": 1, "tools": [{"name": "a"}]}, {"n": None, "tools": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert read_file(tmp_path / "rows.parquet", spec(n="integer?")) == rows


def test_csv_cells_become_what_the_columns_say(tmp_path: Path) -> None:
    wanted = spec(i="integer", f="number", b="boolean", l="list", s="string", o="integer?")
    path = write(tmp_path / "t.csv", 'i,f,b,l,s,o\n7,0.5,true,"[1, ""a""]",007,\n')
    assert read_file(path, wanted) == [{"i": 7, "f": 0.5, "b": True, "l": [1, "a"], "s": "007", "o": None}]
    path = write(tmp_path / "u.csv", "i,f,b,l,s,o\n7,0.5,true,[],x,1\nseven,0.5,true,[],x,1\n")
    with pytest.raises(DataError, match=r"u.csv: row 2: column 'i': 'seven' is no integer"):
        read_file(path, wanted)


# --- what is broken ----------------------------------------------------------------------------------

LFS = (
    "version https://git-lfs.github.com/spec/v1\noid"
    " sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", LINES + '{"problem": "p", "id": "x"}\n', "row 6: column 'answer' is missing"),
        (
            "a.jsonl",
            LINES + '{"problem": "p", "answer": 7, "id": "x"}\n',
            "row 6: column 'answer' should be string, is int 7",
        ),
        (
            "a.jsonl",
            LINES + '{"problem": "p", "answer": null, "id": "x"}\n',
            "row 6: column 'answer' should be string, is NoneType",
        ),
        ("a.jsonl", LINES + LINES, "row 6: id 'r0' stands already in row 1"),
        ("a.jsonl", LINES + '{"problem": \n', "line 6: not JSON"),
        ("a.jsonl", LINES + "[1]\n", "line 6: should be an object, is list"),
        ("a.jsonl", LINES + '{"problem": NaN}\n', "line 6: not JSON: ValueError: NaN"),
        ("a.jsonl", LINES + "[" * 100_000 + "\n", "line 6: not JSON"),
        ("a.jsonl", LINES + "1" * 5_000 + "\n", "line 6: not JSON"),
        ("a.jsonl", LINES.encode() + b'{"problem": "\xff"}\n', "line 6: not UTF-8 (byte 0xff at position 13)"),
        ("a.jsonl", LINES.encode("utf-16"), "line 1: not UTF-8"),
        ("a.jsonl", LFS, "is a Git LFS pointer"),
        ("a.parquet", LFS, "is a Git LFS pointer"),
        ("a.jsonl.gz", LFS, "is a Git LFS pointer"),
        ("a.jsonl", "", "is empty"),
        ("a.jsonl", "\n \n", "holds no row"),
        ("a.json", "[]", "holds no row"),
        ("a.json", '{"rows": []}', "should hold a list of rows, holds dict"),
        ("a.json", '[{"problem": "p"}, 3]', "row 2: should be an object, is int"),
        ("a.json", "[", "not JSON"),
        ("a.jsonl.gz", gzip.compress(LINES.encode(), mtime=0)[:-20], "the gzip file is truncated"),
        ("a.jsonl.gz", LINES, "not a sound gzip file"),
        ("a.jsonl.gz", gzip.compress(LINES.encode(), mtime=0)[:30] + b"\x00" * 60, "not a sound gzip file"),
        ("a.parquet", b"PAR1" + b"\x00" * 40, "row 1: not a sound parquet file"),
        ("a.parquet", LINES, "row 1: not a sound parquet file"),
        ("a.csv", 'problem,answer,id\np,"7,x\n', "not CSV"),
        ("a.csv", "problem,id\np,x\n", "row 1: column 'answer' is missing; there are 'problem', 'id'"),
        ("a.csv", "problem,answer,id\n", "holds no row"),
        ("a.txt", LINES, "not one of .parquet"),
        ("a.parquet.gz", LINES, "not one of .parquet"),
    ],
)
def test_what_is_broken_is_named_in_one_line(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    assert words in failure(write(tmp_path / name, content))


@pytest.mark.parametrize(
    ("bad", "column"),
    [
        ({"problem": "half \ud800 a pair"}, "problem"),
        ({"id": "\udfff"}, "id"),
        ({"extra": [{"deep": ["\ud83d"]}]}, "extra"),
        ({"extra": {"\udc00": 1}}, "extra"),
    ],
)
def test_half_a_surrogate_pair_is_named_by_file_row_and_column(
    tmp_path: Path, bad: dict[str, Any], column: str
) -> None:
    rows = [ROWS[0], {**ROWS[1], **bad}, {**ROWS[2], "problem": "\U0001f600 is a pair"}]
    lines = write(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    whole = write(tmp_path / "rows.json", json.dumps(rows))
    packed = write(tmp_path / "rows.jsonl.gz", gzip.compress(lines.read_bytes()))
    for path, place in ((lines, "line 2"), (packed, "line 2"), (whole, "row 2")):
        assert failure(path) == f"{path}: {place}: column {column!r}: holds a lone surrogate, which is no character"
    assert len(load("aime2025", path=write(tmp_path / "good.json", json.dumps([rows[0], rows[2]]))).rows) == 2


def test_a_name_of_half_a_pair_is_shown_as_an_escape(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", json.dumps({**ROWS[0], "\ud800": 1}) + "\n")
    failure(path).encode("utf-8")


def test_a_truncated_parquet_file_is_an_error(tmp_path: Path) -> None:
    path = _parquet(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    assert "not a sound parquet file" in failure(path)


def test_a_missing_file_and_an_empty_folder_are_errors(tmp_path: Path) -> None:
    assert "no such file or folder" in failure(tmp_path / "absent.jsonl")
    assert "holds no data file of the split 'test'" in failure(tmp_path)


def test_a_saved_dictionary_without_the_split_is_an_error(tmp_path: Path) -> None:
    import datasets

    datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)}).save_to_disk(tmp_path / "d")
    assert "holds no split 'test', only train" in failure(tmp_path / "d")


def test_a_broken_saved_folder_is_an_error(tmp_path: Path) -> None:
    place = _saved(tmp_path)
    next(place.glob("*.arrow")).write_bytes(b"broken")
    assert "not a sound data-set folder" in failure(place)


def test_a_broken_file_inside_a_folder_is_named(tmp_path: Path) -> None:
    write(tmp_path / "test.jsonl", LINES + "{")
    with pytest.raises(DataError, match=r"test\.jsonl: line 6"):
        load("aime2025", path=tmp_path)


def test_a_config_has_its_own_folder_and_parquet_goes_first(tmp_path: Path) -> None:
    for place in (
        "vision/test-0.parquet",
        "standard/test-0.parquet",
        "standard/test.jsonl",
        "standard/train-0.parquet",
    ):
        write(tmp_path / place, "x")
    chosen = DatasetSpec(title="t", licence="l", source="s", fixture="f", columns={"a": "any"}, config="standard")
    assert [path.relative_to(tmp_path).as_posix() for path in split_files(tmp_path, chosen)] == [
        "standard/test-0.parquet"
    ]


@pytest.mark.parametrize(
    ("names", "any_name", "chosen"),
    [
        (("refs.jsonl",), False, ["refs.jsonl"]),
        (("refs.jsonl", "types.jsonl"), True, ["refs.jsonl", "types.jsonl"]),
        (("refs.jsonl", "refs.csv"), True, ["refs.jsonl"]),
        (("refs.jsonl", "x/test.jsonl", "x/invalid.jsonl"), True, ["x/test.jsonl"]),
    ],
)
def test_files_of_any_name_are_read_only_where_none_has_the_splits(
    tmp_path: Path, names: tuple[str, ...], any_name: bool, chosen: list[str]
) -> None:
    for name in names:
        write(tmp_path / name, "x")
    wanted = DatasetSpec(title="t", licence="l", source="s", fixture="f", columns={"a": "any"}, any_name=any_name)
    assert [path.relative_to(tmp_path).as_posix() for path in split_files(tmp_path, wanted)] == chosen


def test_several_files_of_other_names_are_refused_unless_any_name_will_do(tmp_path: Path) -> None:
    for name in ("refs.jsonl", "types.jsonl"):
        write(tmp_path / name, "x")
    with pytest.raises(DataError, match=r"no data file of the split 'test' \(2 other data files\)"):
        split_files(tmp_path, DatasetSpec(title="t", licence="l", source="s", fixture="f", columns={"a": "any"}))


def test_a_folder_of_schemas_may_call_its_files_as_it_likes(tmp_path: Path) -> None:
    write(tmp_path / "refs.jsonl", '{"type": "object"}\n')
    write(tmp_path / "types.jsonl", '{"type": "string"}\n')
    assert [row["type"] for row in load("tools", path=tmp_path).rows] == ["object", "string"]


def test_booleans_are_no_numbers_and_optional_columns_may_be_absent() -> None:
    check_rows([{"n": 1.5}, {"n": 1}], spec(n="number", m="string?"), "x")
    with pytest.raises(DataError, match="row 1: column 'n' should be integer, is bool True"):
        check_rows([{"n": True}], spec(n="integer"), "x")


def test_an_unknown_data_set_lists_the_known_ones() -> None:
    with pytest.raises(DataError, match="no data set 'nope'; known: aime2025"):
        load("nope")
    with pytest.raises(DataError, match="no data set"):
        load("../aime2025")


def test_every_shipped_description_is_sound_and_its_fixture_loads() -> None:
    for name in data.names():
        found = load_spec(name)
        assert found.licence
        assert found.source
        assert load(name, fixture=True).fixture


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80), st.sampled_from(["f.jsonl", "f.json", "f.csv", "f.jsonl.gz", "f.parquet"]))
def test_no_bytes_make_a_reader_raise_anything_else(tmp_path: Path, content: bytes, name: str) -> None:
    path = write(tmp_path / name, content)
    message = ""
    try:
        assert all(isinstance(row, dict) for row in read_file(path, spec(a="integer?")))
    except DataError as error:
        message = str(error)
    assert "\n" not in message


VALUES = st.one_of(st.none(), st.integers(), st.text(max_size=9), st.booleans())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.text(max_size=5), VALUES), min_size=1, max_size=5))
def test_json_lines_are_read_back_as_they_were(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert read_file(write(tmp_path / "r.jsonl", text), spec(a="any?")) == rows
    canonical_sha256(rows, {key for row in rows for key in row})
