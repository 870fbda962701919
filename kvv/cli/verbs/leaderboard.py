"""`kvv leaderboard`: many runs as one table; `--submission` writes what a vendor would send in."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from kvv.analysis.leaderboard import PublishedEntry, as_json, document, public_columns
from kvv.analysis.leaderboard import leaderboard as make_leaderboard
from kvv.cli.verbs.documents import put, write
from kvv.core.lazy import numpy as np
from kvv.planning.config import ConfigError
from kvv.profiles.published import load_published
from kvv.rendering.document import markdown as to_markdown
from kvv.rendering.escape import plain
from kvv.reporting import json as report_json
from kvv.reporting import leaderboard as row_report
from kvv.reporting import markdown
from kvv.storage.baselines import Baseline, baseline_text, read_baseline
from kvv.storage.run_folder import EXAMPLE, STORE
from kvv.storage.run_summary import RunSummary
from kvv.storage.run_summary_reader import open_finished, side_of
from kvv.storage.snapshot import build_view
from kvv.storage.totals import summary_of
from kvv.storage.view import RunView

#: a run's results without its answers, inside a submission
RESULTS = "results.json"
RUNS_LIMIT = 200


def leaderboard(arguments: argparse.Namespace) -> int:
    if arguments.submission:
        return _submission(arguments)
    sides: list[RunSummary] = []
    for name in arguments.folders:
        found = _sides(Path(name))
        if not found:
            raise ConfigError(f"DIR: {name} holds no finished run and no submission")
        sides += found
    every = _counted_once(sides)
    board = make_leaderboard(every, np.random.default_rng(0), newest=not arguments.all, published=published_rows(every))
    put(arguments, document(board), lambda: as_json(board))
    return 0


def _counted_once(sides: Sequence[RunSummary]) -> list[RunSummary]:
    """Without a run named twice, by itself and inside its folder, and, which is said, without copies and imports of
    one.
    """
    kept: list[RunSummary] = []
    for side in sides:
        same = next((other for other in kept if other.same_run(side)), None)
        if same is None:
            kept.append(side)
        elif same.run_id != side.run_id:
            print(
                plain(f"left out: {side.run_id} holds the same results as {same.run_id}; they count once"),
                file=sys.stderr,
            )
    return kept


def published_rows(sides: Sequence[RunSummary]) -> dict[str, list[PublishedEntry]]:
    """The public leaderboard's rows of these runs' models, by profile; in the leaderboard's own columns."""
    columns = {column.key: column.id for column in public_columns() if column.key}
    found = {}
    for profile in {side.profile for side in sides}:
        known = load_published(profile)
        if known is not None:
            found[profile] = [
                PublishedEntry(
                    vendor=row.vendor,
                    model=known.model,
                    source=known.leaderboard,
                    values={columns[name]: value for name, value in row.values.items() if name in columns},
                )
                for row in known.row
            ]
    return found


def _sides(folder: Path) -> list[RunSummary]:
    """Of the folder itself, else of the folders in it. Runs that have not ended are said and left out."""
    if not folder.is_dir():
        raise ConfigError(f"DIR: {folder} is no folder")
    if _holds_run(folder):
        return [_side(folder)]
    inner = sorted(path for path in folder.iterdir() if path.is_dir() and path.name != EXAMPLE and _holds_run(path))
    if len(inner) > RUNS_LIMIT:
        raise ConfigError(f"DIR: {folder} holds {len(inner)} runs, at most {RUNS_LIMIT} at once")
    found = []
    for path in inner:
        try:
            found.append(_side(path))
        except ConfigError as error:
            print(plain(f"left out: {error}"), file=sys.stderr)
    return found


def _holds_run(folder: Path) -> bool:
    return (folder / STORE).is_file() or (folder / RESULTS).is_file()


def _side(folder: Path) -> RunSummary:
    if not (folder / STORE).is_file():
        return read_baseline(folder / RESULTS).side
    with open_finished(str(folder), None, "DIR") as (store, found):
        return summary_of(store, found)


# --- submission --------------------------------------------------------------------------------------


def _submission(arguments: argparse.Namespace) -> int:
    if len(arguments.folders) != 1 or not (Path(arguments.folders[0]) / STORE).is_file():
        raise ConfigError("--submission: wants exactly one run folder")
    with open_finished(arguments.folders[0], None, "DIR") as (store, _):
        view = build_view(store)
        side = side_of(store, view)
    target = Path(arguments.submission)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"--submission: {target} is no empty folder")
    files = {
        "SUBMISSION.md": _cover(view, side),
        "leaderboard.json": row_report.render(view),
        "report.json": report_json.render(view),
        "report.md": markdown.render(view),
        RESULTS: baseline_text(Baseline(side=side)),
    }
    sums = "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in files.items())
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--submission: cannot make {target}: {error.strerror or error}") from error
    for name, text in {**files, "SHA256SUMS": sums}.items():
        write(target / name, text, "--submission")
    print(plain(f"wrote {', '.join([*files, 'SHA256SUMS'])} to {target}", 1000))
    return 0


def _cover(view: RunView, side: RunSummary) -> str:
    board = make_leaderboard([side], np.random.default_rng(0))
    text = to_markdown(document(board))
    files = (
        f"- `leaderboard.json`: the row; `report.json`, `report.md`: the whole report of the run\n- `{RESULTS}`: every"
        " sample's values without the answers; `kvv leaderboard` and `kvv gate --baseline` read it and pair it with"
        " other runs\n- `SHA256SUMS`: check with `sha256sum -c SHA256SUMS`\n"
    )
    return (
        f"{text}\n## Files\n\n{files}\nMade by kvv {plain(view.run.kvv_version, 40)}, run"
        f" {plain(view.run.run_id, 150)}.\n"
    )
