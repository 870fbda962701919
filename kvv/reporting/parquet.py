"""The tables of a run as Parquet, for pandas: one file each, with the columns of the CSV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from kvv.reporting.csv import TABLES, tables
from kvv.storage.view import RunView


def render(view: RunView) -> dict[str, bytes]:
    """File name -> content, of every table, the empty ones included. Texts are as they came: bounded, and never a
    formula to any reader.
    """
    return {f"{name}.parquet": frame.to_parquet(None, index=False) for name, frame in frames(view).items()}


def samples(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """One more table, of every judged sample: tokens, latency and answer, as the caller reads them from the store."""
    content: bytes = _frame([dict(row) for row in rows]).to_parquet(None, index=False)
    return content


def frames(view: RunView) -> dict[str, pd.DataFrame]:
    """The same tables as data frames, by name: suites, gates, checks, findings."""
    found = tables(view)
    return {name: _frame(found[name]) for name in TABLES}


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(dict.fromkeys(column for row in rows for column in row)) or ["run_id"])
    for column in frame.columns:
        # a column has one type: suites put what they like into their comparability
        kinds = {
            float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)
            for value in frame[column].dropna()
        }
        if len(kinds) > 1:
            frame[column] = [None if pd.isna(value) else str(value) for value in frame[column]]
    return frame
