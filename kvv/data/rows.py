"""Rows of a path in the form that the suite knows, whatever layout the data set has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvv.data.beam import from_hub, questions_sha256, read_beam
from kvv.data.local import Row, read_path
from kvv.data.spec import DatasetSpec
from kvv.data.swebench import from_rows, read_swebench


def rows_of(path: Path, spec: DatasetSpec) -> tuple[list[Row], str]:
    """The rows, and a note on what was left out."""
    if spec.layout == "beam":
        read = read_beam(path, spec)
        return read.rows, read.note
    if spec.layout == "swebench":
        return read_swebench(path, spec), ""
    return read_path(path, spec), ""


def convert(rows: list[dict[str, Any]], spec: DatasetSpec, where: str) -> list[Row]:
    """The hub's own rows in the suite's form."""
    if spec.layout == "swebench":
        return from_rows(rows, where)
    return from_hub(rows, spec, where) if spec.layout == "beam" else rows


def questions_digest(rows: list[Row], spec: DatasetSpec) -> str:
    return questions_sha256(rows) if spec.layout == "beam" else ""
