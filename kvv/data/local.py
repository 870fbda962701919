"""Rows from local files: .jsonl, .json, .csv (each also .gz), .parquet, folders of them, and folders written by
``save_to_disk``.

JSON is parsed line by line with the standard library and not by pandas, whose frames turn integers beside nulls into
floats, absent fields into NaN, and cannot say which line is broken.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from kvv.data.shape import holds_pictures, shape_row
from kvv.data.spec import DataError, DatasetSpec, one_line

Row = dict[str, Any]

#: bytes of one line; the longest real row (a conversation of ten million tokens) has about 50 MB
LINE_LIMIT = 512 << 20
#: bytes of a file that must be parsed in one piece
WHOLE_LIMIT = 2 << 30

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
BOM = b"\xef\xbb\xbf"

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

SUFFIXES = (".parquet", ".jsonl", ".json", ".csv")


def read_path(path: Path, spec: DatasetSpec) -> list[Row]:
    """All rows of a file or folder, unchecked against the columns. DataError names the file and, where there is one,
    the row.
    """
    if path.is_dir():
        return _read_folder(path, spec)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    return read_file(path, spec)


def read_file(path: Path, spec: DatasetSpec) -> list[Row]:
    kind = _kind(path.name)
    if kind is None:
        raise DataError(f"{path}: not one of {', '.join(SUFFIXES)} (.gz allowed), nor a data-set folder")
    try:
        with path.open("rb") as raw:
            head = raw.read(len(LFS_POINTER))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or one_line(error)}") from error
    if head == LFS_POINTER:
        raise DataError(f"{path}: is a Git LFS pointer, not the file; fetch it with `git lfs pull`")
    if not head:
        raise DataError(f"{path}: is empty")
    readers: Mapping[str, Callable[[Path, DatasetSpec], list[Row]]] = {
        ".parquet": _read_parquet,
        ".jsonl": _read_jsonl,
        ".json": _read_json,
        ".csv": _read_csv,
    }
    return readers[kind](path, spec)


def _kind(name: str) -> str | None:
    lowered = name.lower()
    kind = next((suffix for suffix in SUFFIXES if lowered.removesuffix(".gz").endswith(suffix)), None)
    return None if kind == ".parquet" and lowered.endswith(".gz") else kind


# --- text formats ----------------------------------------------------------------------------------


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines of a plain or gzipped file, without a byte order mark; DataError for a broken gzip."""
    number = 0
    try:
        with _open(path) as source:
            while line := source.readline(LINE_LIMIT + 1):
                number += 1
                if len(line) > LINE_LIMIT:
                    raise DataError(f"{path}: line {number}: longer than {LINE_LIMIT} bytes")
                yield number, line.removeprefix(BOM) if number == 1 else line
    except EOFError as error:
        raise DataError(f"{path}: line {number + 1}: the gzip file is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: line {number + 1}: not a sound gzip file ({one_line(error, 80)})") from error


def _open(path: Path) -> BinaryIO | gzip.GzipFile:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")


def _text(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 (byte {raw[error.start]:#04x} at position {error.start})") from error


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON: {error.msg} at character {error.pos}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON: {one_line(error, 120)}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _read_jsonl(path: Path, spec: DatasetSpec) -> list[Row]:
    rows = []
    for number, line in _lines(path):
        where = f"{path}: line {number}"
        text = _text(line, where)
        if text.strip():
            rows.append(shape_row(_record(_parsed(text, where), where), spec, where, path.parent))
    return rows


def _read_json(path: Path, spec: DatasetSpec) -> list[Row]:
    """A list of objects, as ``to_json(orient="records")`` writes it."""
    parsed = _parsed(_text(_whole(path), str(path)), str(path))
    if not isinstance(parsed, list):
        raise DataError(f"{path}: should hold a list of rows, holds {type(parsed).__name__}")
    places = ((row, f"{path}: row {number}") for number, row in enumerate(parsed, 1))
    return [shape_row(_record(row, where), spec, where, path.parent) for row, where in places]


def read_json_file(path: Path) -> Any:
    """One JSON document, plain or gzipped; DataError names the file."""
    try:
        parsed = _parsed(_text(_whole(path), str(path)), str(path))
        check_characters(parsed, str(path))
        return parsed
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or one_line(error)}") from error


def _record(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise DataError(f"{where}: should be an object, is {type(value).__name__}")
    check_characters(value, where)
    return value


def check_characters(value: Any, where: str) -> None:
    """JSON can name half of a surrogate pair, which is no character: no request, no report and no checksum could hold
    the text.
    """
    waiting = [("", value)]
    while waiting:
        place, item = waiting.pop()
        if isinstance(item, str):
            if not item.isascii() and _LONE_SURROGATE.search(item):
                raise DataError(
                    f"{where}: {f'column {place!r}: ' if place else ''}holds a lone surrogate, which is no character"
                )
        elif isinstance(item, dict):
            waiting += [(place, name) for name in item]
            waiting += [(place or _shown(name), inner) for name, inner in item.items()]
        elif isinstance(item, list):
            waiting += [(place, inner) for inner in item]


def _shown(name: str) -> str:
    return name.encode("ascii", "backslashreplace").decode()[:60]


def _whole(path: Path) -> bytes:
    parts, size = [], 0
    for _, line in _lines(path):
        size += len(line)
        if size > WHOLE_LIMIT:
            raise DataError(f"{path}: larger than {WHOLE_LIMIT} bytes: use .jsonl or .parquet")
        parts.append(line)
    return b"".join(parts)


def _read_csv(path: Path, spec: DatasetSpec) -> list[Row]:
    """Every cell is text; declared numbers and JSON values are converted. An empty cell of an optional column is
    null.
    """
    from io import StringIO

    import pandas as pd

    text = _text(_whole(path), str(path))
    try:
        frame = pd.read_csv(StringIO(text), dtype=object, keep_default_na=False, na_filter=False)
    except (ValueError, pd.errors.ParserError) as error:
        raise DataError(f"{path}: not CSV: {one_line(error, 160)}") from error
    rows: list[Row] = [{str(column): value for column, value in row.items()} for row in frame.to_dict("records")]
    for number, row in enumerate(rows, 1):
        shape_row(row, spec, f"{path}: row {number}", path.parent)
        for column, kind in spec.columns.items():
            if isinstance(row.get(column), str):
                row[column] = _cell(row[column], kind, f"{path}: row {number}: column {column!r}")
    return rows


def _cell(text: str, kind: str, where: str) -> Any:
    if kind.endswith("?") and not text:
        return None
    kind = kind.removesuffix("?")
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return {"true": True, "false": False}[text.lower()]
            case "list" | "object":
                return _parsed(text, where)
            case _:
                return text
    except (ValueError, KeyError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{where}: {text!r:.60} is no {kind}") from error


# --- parquet and folders ---------------------------------------------------------------------------


def _read_parquet(path: Path, spec: DatasetSpec) -> list[Row]:
    """Through pyarrow (which ``datasets`` brings): a list of batches needs no second copy of the whole table, and null
    stays null.

    Pictures leave the memory batch by batch, hence small ones; pyarrow's own read-ahead would keep every row group it
    has read.
    """
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    rows: list[Row] = []
    try:
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as source:
            for batch in source.iter_batches(batch_size=8 if holds_pictures(spec) else 256):
                for row in batch.to_pylist():
                    rows.append(shape_row(row, spec, f"{path}: row {len(rows) + 1}", path.parent))
    except DataError:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path}: row {len(rows) + 1}: not a sound parquet file ({one_line(error, 160)})") from error
    return rows


def _read_folder(folder: Path, spec: DatasetSpec) -> list[Row]:
    if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
        from kvv.data.hub import read_saved

        return read_saved(folder, spec)
    rows: list[Row] = []
    for path in split_files(folder, spec):
        rows += read_file(path, spec)
    return rows


def split_files(folder: Path, spec: DatasetSpec) -> list[Path]:
    """The split's files in a folder laid out as the hub does: ``data/test-00000-of-00001.parquet``, ``test.jsonl``,
    ``<config>/test...``.

    Of several formats the first in the order of SUFFIXES is read; the config's folder is chosen where there is one.
    Without a file of the split a single data file is taken for it, whatever its name; where the spec allows any name,
    all are.
    """
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and _kind(path.name)
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    found = [path for path in found if path.name not in ("manifest.json", "dataset_infos.json", "dataset_info.json")]
    if spec.config is not None:
        found = [path for path in found if spec.config in path.relative_to(folder).parts[:-1]] or found
    named = [
        path for path in found if path.name.lower().startswith(spec.split.lower()) or path.parent.name == spec.split
    ]
    chosen = named or (found if len(found) == 1 or spec.any_name else [])
    for suffix in SUFFIXES:
        of_kind = [path for path in chosen if _kind(path.name) == suffix]
        if of_kind:
            return of_kind
    raise DataError(f"{folder}: holds no data file of the split {spec.split!r} ({len(found)} other data files)")
