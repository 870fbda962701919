"""The rows that a benchmark is asked over, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Rows in the public data set's own columns, and where they came from (``fixture`` when they ship with us)."""

    rows: Sequence[Mapping[str, Any]]
    origin: str
    revision: str
    sha256: str = ""
    fixture: bool = False
