"""A finished run as pandas data frames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def read_run(run: str | Path) -> dict[str, pd.DataFrame]:
    """The tables of a finished run's folder: ``suites`` (one row a metric), ``gates``, ``checks``, ``findings``.

    The columns are those of ``kvv report --format parquet``; values are shares from 0 to 1. A ValueError of one line
    says why a folder cannot be read, also where a package is not installed whose suite was asked.
    """
    # pandas and the store are loaded for this alone: every suite of another package imports kvv.api
    from kvv.reporting.parquet import frames
    from kvv.storage.run_summary_reader import open_finished
    from kvv.storage.snapshot import build_view

    with open_finished(str(run), None) as (store, _):
        return frames(build_view(store))
