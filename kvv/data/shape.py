"""A row as it was read, in the columns that its data set promises: other spellings renamed, bare strings in lists,
pictures on the shelf.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvv.data.pictures import from_cell
from kvv.data.spec import DatasetSpec


def shape_row(row: dict[str, Any], spec: DatasetSpec, where: str, folder: Path | None) -> dict[str, Any]:
    """Changes and returns ``row``. ``where`` names file and row; a picture with a path is looked for below ``folder``
    only.

    DataError for a picture that cannot be read.
    """
    for other, column in spec.aliases.items():
        if other in row and column not in row:
            row[column] = row.pop(other)
    for column, kind in spec.columns.items():
        match kind.removesuffix("?"):
            case "image" if row.get(column) is not None:
                row[column] = from_cell(row[column], f"{where}: column {column!r}", folder)
            case "texts" if isinstance(row.get(column), str):
                row[column] = [row[column]]
    return row


def holds_pictures(spec: DatasetSpec) -> bool:
    return any(kind.startswith("image") for kind in spec.columns.values())
