"""Opening a finished or unfinished run that the command line names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvv.planning.config import ConfigError
from kvv.storage.run_folder import STORE, find_run
from kvv.storage.store import Store, StoreError, WriteError


@contextmanager
def open_run(run: str, out: str | None, *, read_only: bool = True) -> Iterator[tuple[Store, Path]]:
    """A run's store and folder. A store that is damaged, here or wherever it is read later, is a usage error that names
    it.
    """
    folder = find_run(run, out or "reports")
    from kvv.storage.run_metadata import check_meta

    try:
        with Store.open(folder / STORE, read_only=read_only) as store:
            check_meta(store)
            yield store, folder
    except WriteError:
        raise
    except StoreError as error:
        raise ConfigError(f"RUN: {error}") from error
