"""Instances of coding benchmarks: SWE-bench's columns, and folders of DeepSWE / Harbor tasks."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from kvv.data.local import Row, read_path
from kvv.data.spec import DataError, DatasetSpec, one_line

#: bytes of one bundle
BUNDLE_LIMIT = 64 << 20
LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")


def read_swebench(path: Path, spec: DatasetSpec) -> list[Row]:
    """Rows of a file or of a folder. DataError names file and row."""
    rows = read_path(path, spec)
    folder = path if path.is_dir() else path.parent
    return [_with_bundle(row, f"{path}: row {number}", folder) for number, row in enumerate(from_rows(rows, str(path)), 1)]


def from_rows(rows: list[dict[str, Any]], where: str) -> list[Row]:
    """The classic sets hold lists of tests as JSON text."""
    for number, row in enumerate(rows, 1):
        for column in LISTS:
            row[column] = _list(row.get(column), f"{where}: row {number}: column {column!r}")
    return rows


def _list(value: Any, where: str) -> Any:
    """``shaped`` has made a list of one out of a text."""
    text = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(text, str) or not text.lstrip().startswith("["):
        return value
    try:
        parsed = json.loads(text)
    except ValueError as error:
        # a test whose name begins with a bracket is a name
        if isinstance(value, list):
            return value
        raise DataError(f"{where}: not JSON: {one_line(error, 80)}") from error
    return parsed if isinstance(parsed, list) else value


def _with_bundle(row: Row, where: str, folder: Path) -> Row:
    """A bundle is named by its path below the folder, and becomes its content in base64."""
    name = row.get("bundle")
    if not isinstance(name, str) or not name:
        return row
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise DataError(f"{where}: the bundle {name!r:.80} lies outside of {folder}")
    try:
        if path.stat().st_size > BUNDLE_LIMIT:
            raise DataError(f"{where}: the bundle {name!r:.80} is larger than {BUNDLE_LIMIT} bytes")
        row["bundle"] = base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError as error:
        raise DataError(f"{where}: the bundle {name!r:.80}: {error.strerror or one_line(error)}") from error
    return row
