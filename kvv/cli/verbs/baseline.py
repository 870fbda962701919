"""`kvv baseline`: what later nights are held to. Made by hand (`accept`) or by measuring (`init`), never by a night."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from kvv.cli.flags import flags_of
from kvv.cli.verbs.documents import put
from kvv.cli.verbs.gate import side_in
from kvv.cli.verbs.session import start
from kvv.core import Outcome
from kvv.core.exit_codes import ExitCode
from kvv.planning.config import ConfigError, load_config
from kvv.rendering.document import Document, DocumentTable, Section
from kvv.rendering.escape import jsonable
from kvv.reporting.text import plain
from kvv.storage.baselines import Baseline, accepted_baselines, write_baseline
from kvv.storage.run_metadata import now
from kvv.storage.run_summary import RunSummary

#: options of this verb; the others of ``init`` are a run's
OWN = ("action", "baselines", "count", "note", "force", "expires", "build")


def baseline(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.baselines)
    if arguments.action == "list":
        put(arguments, _listing(accepted_baselines(folder), folder), lambda: _listing_json(accepted_baselines(folder)))
        return 0
    if arguments.action == "init":
        return _init(arguments, folder)
    side, run_folder = side_in(arguments.run, arguments.out, "RUN")
    if not arguments.force:
        _acceptable(side, run_folder)
    _accept(arguments, folder, side)
    return 0


def _accept(arguments: argparse.Namespace, folder: Path, side: RunSummary) -> None:
    expires = _last_day(arguments.expires).isoformat() if arguments.expires else ""
    accepted = Baseline(
        side=side, accepted=now(), note=arguments.note or "", build=arguments.build or "", expires=expires
    )
    path = write_baseline(folder, accepted)
    print(plain(f"accepted {side.run_id} as the baseline of {side.vendor} {side.model}: {path}", 1000))


def _last_day(text: str) -> date:
    """``90d`` from today, or a day as 2026-06-01."""
    today = datetime.now(UTC).date()
    try:
        last = (
            today + timedelta(days=int(text[:-1])) if re.fullmatch(r"[0-9]{1,5}d", text) else date.fromisoformat(text)
        )
    except (ValueError, OverflowError):
        raise ConfigError(f"--expires: wants days as 90d or a day as 2026-06-01, got {text!r:.40}") from None
    if last < today:
        raise ConfigError(f"--expires: {last} is over already")
    return last


def _init(arguments: argparse.Namespace, folder: Path) -> int:
    """Measures ``--count`` times with a run's own options and accepts each; one that failed or is partial ends it."""
    if arguments.count < 1:
        raise ConfigError(f"--count: wants 1 or more, got {arguments.count}")
    if arguments.expires:
        _last_day(arguments.expires)
    flags = {name: value for name, value in flags_of(arguments).items() if name not in OWN}
    config = load_config({**flags, "tier": arguments.tier or "nightly"})
    if not config.base_url:
        raise ConfigError("--base-url: say which endpoint is to be the baseline")
    for number in range(arguments.count):
        kept: list[Path] = []
        # each is another draw of the model's answers, not of the questions
        code = start(config, contract_only=False, tell=lambda _, view, made: kept.append(made))  # noqa: B023
        if not kept or code == ExitCode.INTERRUPTED:
            return code or ExitCode.ERROR
        side, run_folder = side_in(str(kept[0]), None, "RUN")
        try:
            _acceptable(side, run_folder)
        except ConfigError as error:
            print(
                plain(f"kvv baseline init: run {number + 1} of {arguments.count} was not accepted: {error}", 600),
                file=sys.stderr,
            )
            return code or ExitCode.INCONCLUSIVE
        _accept(arguments, folder, side)
    return ExitCode.PASS


def _acceptable(side: RunSummary, folder: Path) -> None:
    """A baseline is what later nights are held to: a failed or incomplete run is accepted only on the user's word."""
    if side.partial:
        raise ConfigError(f"RUN: {folder} is partial; `kvv resume` completes it, --force accepts it all the same")
    if side.verdict in (Outcome.FAIL.value, Outcome.ERROR.value):
        raise ConfigError(f"RUN: the verdict of {folder} is {side.verdict}; --force accepts it all the same")


def _listing(found: Sequence[Baseline], folder: Path) -> Document:
    rows = tuple(
        (
            b.side.vendor,
            b.side.model,
            b.accepted,
            b.side.run_id,
            b.side.verdict,
            ", ".join(b.side.suites),
            b.build,
            b.expires,
            b.note,
        )
        for b in found
    )
    columns = ("vendor", "model", "accepted", "run", "verdict", "suites", "build", "expires", "note")
    table = DocumentTable(name="baselines", columns=columns, rows=rows)
    return Document(
        title=f"{len(rows)} accepted baselines under {folder}/", sections=(Section(title="Baselines", tables=(table,)),)
    )


def _listing_json(found: Sequence[Baseline]) -> str:
    rows = [
        {
            "vendor": b.side.vendor,
            "model": b.side.model,
            "accepted": b.accepted,
            "run_id": b.side.run_id,
            "verdict": b.side.verdict,
            "build": b.build,
            "expires": b.expires,
            "note": b.note,
        }
        for b in found
    ]
    return json.dumps(jsonable(rows), ensure_ascii=True, indent=1) + "\n"
