"""All that a folder keeps, for tests that look for what must not be there."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import zstandard


def everything_in(folder: Path) -> bytes:
    """Every file of a folder, the values of its stores unpacked."""
    found = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    for path in folder.rglob("store.sqlite"):
        with sqlite3.connect(path) as store:
            tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            values = [value for table in tables for row in store.execute(f"SELECT * FROM {table}") for value in row]  # noqa: S608 its own names
        found += [value if isinstance(value, bytes) else str(value).encode() for value in values]
        found += [
            zstandard.ZstdDecompressor().decompressobj().decompress(value)
            for value in values
            if isinstance(value, bytes) and value.startswith(zstandard.FRAME_HEADER)
        ]
    return b"\n".join(found)
