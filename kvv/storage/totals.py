"""A large run's summary, kept beside its store, so that leaderboards and comparisons do not read every sample again.

``totals.json`` is believed only where this user's key vouches for it, for this very store (size, times) and for this
very code: a received folder cannot bring results of its own. Anything else is computed from the store, and written
anew where the folder can be written.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import cache
from pathlib import Path

import kvv.suites
from kvv.cases.suite import built_in
from kvv.planning.config import ConfigError
from kvv.storage.baselines import Baseline, baseline_text, parse_baseline
from kvv.storage.files import replace_file
from kvv.storage.run_folder import STORE
from kvv.storage.run_summary import RunSummary
from kvv.storage.run_summary_reader import side_of
from kvv.storage.seal import keyed_hash
from kvv.storage.store import Store

TOTALS = "totals.json"
#: bytes of a store that is read faster than it is worth a second file
SMALL = 4 << 20
#: a file beyond this is no summary
SIZE_LIMIT = 256 << 20


def summary_of(store: Store, folder: Path) -> RunSummary:
    """``side_of`` the store in this folder, from its totals where they fit."""
    kept = kept_summary(folder)
    if kept is not None:
        return kept
    mark = _mark(folder)
    side = side_of(store)
    if mark is not None and mark == _mark(folder) and set(side.suites) <= set(built_in()):
        text = baseline_text(Baseline(side=side))
        if (mac := keyed_hash(_bound(mark, text))) is not None:
            with suppress(OSError):  # a folder that cannot be written: the next reader computes it as well
                replace_file(folder / TOTALS, json.dumps({"mac": mac}) + "\n" + text)
    return side


def kept_summary(folder: Path) -> RunSummary | None:
    """The summary that stands beside the store, None where there is none that fits."""
    path = folder / TOTALS
    mark = _mark(folder)
    try:
        if mark is None or path.is_symlink() or not path.is_file() or path.stat().st_size > SIZE_LIMIT:
            return None
        head, _, text = path.read_text("utf-8").partition("\n")
        mac = keyed_hash(_bound(mark, text))
        if mac is None or json.loads(head) != {"mac": mac}:
            return None
        return parse_baseline(text, str(path)).side
    except (OSError, ValueError, ConfigError, RecursionError):
        return None


def _mark(folder: Path) -> str | None:
    """What tells this state of the store, and the code that reads it, from any other; None where nothing is to be
    kept.
    """
    try:
        found = (folder / STORE).stat()
        wal = folder / f"{STORE}-wal"
        if found.st_size < SMALL or (wal.exists() and wal.stat().st_size):
            return None
    except OSError:
        return None
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {_code()}"


def _bound(mark: str, text: str) -> bytes:
    return f"{TOTALS}\n{mark}\n{text}".encode()


@cache
def _code() -> str:
    """Changes with any module of ours: what a summary is made of may change with it."""
    roots = {*kvv.__path__, *kvv.suites.__path__}
    files = (path for root in roots for path in Path(root).rglob("*.py"))
    listed = sorted(f"{path} {(at := path.stat()).st_size} {at.st_mtime_ns}" for path in files)
    return hashlib.sha256("\n".join([kvv.__version__, *listed]).encode()).hexdigest()
