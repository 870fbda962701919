"""`kvv prune`: old runs keep their reports and lose their stores (requests, answers, bytes)."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kvv.cli.verbs.confirm import FOLDER as CONFIRMING
from kvv.planning.config import ConfigError
from kvv.rendering.escape import plain
from kvv.storage.baselines import accepted_baselines
from kvv.storage.run_folder import EXAMPLE, STORE
from kvv.storage.run_summary_reader import open_finished

DAYS = re.compile(r"([0-9]{1,5})d")


def prune(arguments: argparse.Namespace) -> int:
    """Exit code 0; ConfigError for wrong options."""
    days = DAYS.fullmatch(arguments.keep)
    if not days:
        raise ConfigError(f"--keep: wants days as 90d, got {arguments.keep!r:.40}")
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise ConfigError(f"DIR: {folder} is no folder")
    before = datetime.now(UTC) - timedelta(days=int(days[1]))
    kept = {baseline.side.run_id for baseline in accepted_baselines(Path(arguments.baselines))}
    freed = 0
    for run, why in _runs(folder, before, kept):
        if why:
            print(plain(f"kept {run.name}: {why}", 300))
            continue
        parts = [*run.glob(f"{STORE}*"), run / CONFIRMING]
        size = sum(file.stat().st_size for part in parts for file in _files(part))
        freed += size
        print(plain(f"{'would remove' if arguments.dry_run else 'removed'} {run.name}: {size / 1e6:,.1f} MB", 300))
        if not arguments.dry_run:
            for part in parts:
                shutil.rmtree(part) if part.is_dir() and not part.is_symlink() else part.unlink(missing_ok=True)
    print(f"{freed / 1e6:,.1f} MB {'would be freed' if arguments.dry_run else 'freed'}")
    return 0


def _files(part: Path) -> Iterator[Path]:
    if part.is_symlink() or part.is_file():
        yield from [part] if part.is_file() and not part.is_symlink() else []
    else:
        yield from (file for file in part.rglob("*") if file.is_file() and not file.is_symlink())


def _runs(folder: Path, before: datetime, baselines: set[str]) -> Iterator[tuple[Path, str]]:
    """Runs that ended before that time, each with why its store stays ("" where it goes)."""
    for run in sorted(path for path in folder.iterdir() if path.name != EXAMPLE and not path.is_symlink()):
        if not (run / STORE).is_file():
            continue
        try:
            with open_finished(str(run), None) as (store, _):
                meta = store.meta()
        except ConfigError as error:
            yield run, str(error)
            continue
        finished = datetime.fromisoformat(meta["finished"])
        if finished >= before:
            continue
        if meta["run_id"] in baselines:
            yield run, "it is an accepted baseline"
        elif not (run / "report.json").is_file():
            yield run, "it has no report.json (`kvv report` reads its store)"
        else:
            yield run, ""
