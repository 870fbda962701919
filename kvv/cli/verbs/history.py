"""`kvv history`: each metric of the runs in a folder over time. Quality comes from their report.json, the rest from
their stores.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from kvv.analysis.history import Reading, Unread, as_json, document
from kvv.analysis.history import history as make_history
from kvv.cli.verbs.documents import put
from kvv.core.lazy import numpy as np
from kvv.planning.config import ConfigError
from kvv.planning.plain_file import read_plain
from kvv.rendering.document import Unit
from kvv.reporting.text import plain
from kvv.stats.metrics import NEVER_ASKED
from kvv.storage.run_folder import EXAMPLE, STORE, vendor_stored
from kvv.storage.run_summary import Measured, Service
from kvv.storage.run_summary_reader import service_of
from kvv.storage.snapshot import LISTED_SAMPLES
from kvv.storage.store import Store, StoreError
from kvv.storage.totals import kept_summary

REPORT = "report.json"
#: bytes of one; the largest that is written, of a full run with every finding, has some megabytes
REPORT_LIMIT = 256 << 20
#: what of a row's comparability decides whether two nights stand in one series
WAY = ("data_revision", "sampling", "preset", "judge", "agent", "scorer_version")
#: in a report's coverage: one shard alone, and cases that were chosen by name
PART = re.compile(r"shard \d+ of \d+ alone")
CHOSEN = re.compile(r"only cases .*")
#: why a sample was never asked, for people; the codes are the verdicts' (kvv.stats.metrics.NEVER_ASKED)
CUT_SHORT = {"early-stop": "stopped early"}


class _Report(BaseModel):
    """The few fields of report.json that are read; the others may be anything."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Look(_Report):
    """Of a run with early stopping: at which look the row's suite was ended, where it was."""

    number: int = 0
    of: int = 0
    stopped: bool = False


class _Row(_Report):
    id: str
    metric: str
    primary: bool
    value: float | None
    ci95: tuple[float, float] | None
    n_concluded: int
    n_planned: int
    comparability: dict[str, Any]
    look: _Look | None = None


class _Endpoint(_Report):
    model: str
    vendor: str
    base_url: str = ""


class _Check(_Report):
    suite: str
    verdict: str
    reason: str = ""


class _Selected(_Report):
    id: str
    skipped: str = ""
    fixture: bool = False


class _Run(_Report):
    run_id: str
    finished: str
    endpoint: _Endpoint
    suites: list[_Row]
    partial: bool = False
    coverage: str = ""
    headline: str = ""
    trouble: str = ""
    checks: list[_Check] = []
    selected: list[_Selected] = []

    @property
    def concluded(self) -> bool:
        return any(row.n_concluded for row in self.suites) or any(
            check.verdict in ("pass", "fail") for check in self.checks
        )

    def cut_short(self, suite: str | None) -> str:
        """Why a value of this suite (of any, where None) is of less than what was planned, "" where it is of all."""
        if part := PART.search(self.coverage):
            return part[0]
        look = next(
            (row.look for row in self.suites if row.look and row.look.stopped and suite in (None, row.id)), None
        )
        if look is not None:
            return f"stopped early, at look {look.number} of {look.of}: not all that was planned was asked"
        listed = [check.reason for check in self.checks if suite in (None, check.suite)]
        codes = [reason for reason in listed if reason in NEVER_ASKED]
        # a report lists so many samples of a benchmark: one that was never asked may stand beyond them
        if not codes and not (self.partial and (suite is None or len(listed) >= LISTED_SAMPLES)):
            return ""
        said = CUT_SHORT.get(codes[0], "partial") if codes else "partial"
        return f"{said}: not all that was planned was asked" + (f" ({self.trouble})" if self.trouble else "")


def history(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise ConfigError(f"DIR: {folder} is no folder")
    paths = sorted(
        path
        for path in folder.iterdir()
        if path.name != EXAMPLE and ((path / STORE).is_file() or (path / REPORT).is_file())
    )
    readings, unread, notes = collect(paths, every=arguments.metrics == "all")
    if not readings and not unread:
        raise ConfigError(f"DIR: {folder} holds no finished run" + (f" ({notes[0]})" if notes else ""))
    found = make_history(readings, np.random.default_rng(0), notes=notes, unread=unread)
    put(arguments, document(found), lambda: as_json(found))
    return 0


def collect(paths: Iterable[Path], *, every: bool = False) -> tuple[list[Reading], list[Unread], list[str]]:
    """What the runs in these folders measured, those that concluded nothing, and notes on those left out."""
    readings: list[Reading] = []
    unread: list[Unread] = []
    notes: list[str] = []
    for path in paths:
        try:
            run = _read(path)
        except ConfigError as error:
            notes.append(f"left out: {error}")
            continue
        if run.concluded:
            readings += [*_quality(run, every=every), *_beside(run, path)]
        else:
            unread.append(
                Unread(**_head(run), reason=plain(run.trouble or run.headline or "nothing was concluded", 300))
            )
    return readings, unread, notes


def _read(path: Path) -> _Run:
    """ConfigError for a folder that has no report that can be read."""
    try:
        return _Run.model_validate_json(read_plain(path / REPORT, limit=REPORT_LIMIT))
    except FileNotFoundError:
        raise ConfigError(f"{path} has no {REPORT}: the run has not ended") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path / REPORT}: cannot be read: {plain(str(error), 160)}") from None
    except ValidationError as error:
        raise ConfigError(f"{path / REPORT}: {plain(error.errors(include_url=False)[0]['msg'], 160)}") from None


def _quality(run: _Run, *, every: bool) -> Iterator[Reading]:
    fixtures = {suite.id for suite in run.selected if suite.fixture}
    # an F1 without an official run has no value: then the suite's other rows tell of it
    valueless = {row.id for row in run.suites if row.primary and row.value is None and row.n_concluded}
    for row in run.suites:
        if every or (row.value is not None if row.id in valueless else row.primary):
            low, high = row.ci95 or (None, None)
            way = {name: row.comparability.get(name) for name in WAY}
            yield Reading(
                **_head(run),
                suite=row.id,
                metric=row.metric,
                value=Measured(value=row.value, low=low, high=high, n=row.n_concluded),
                unit=Unit.SHARE,
                n_planned=row.n_planned,
                # other questions are another benchmark, as `kvv compare` has it
                way={**way, "questions": row.n_planned, "chosen": _chosen(run), "fixture": row.id in fixtures},
                apart=run.cut_short(row.id),
            )


def _chosen(run: _Run) -> str:
    found = CHOSEN.search(run.coverage)
    return found[0] if found else ""


def _beside(run: _Run, path: Path) -> Iterator[Reading]:
    """Nothing where the store is gone: a median without its interval says too little."""
    try:
        store = Store.open(path / STORE, read_only=True)
    except StoreError:
        return
    try:
        kept = kept_summary(path)
        found: Service = service_of(store) if kept is None else kept.service
    except StoreError:
        return
    finally:
        store.close()
    # times and counts are of what was asked: a run of other suites has others though nothing changed
    way: dict[str, Any] = {
        "suites": sorted(suite.id for suite in run.selected if not suite.skipped),
        "chosen": _chosen(run),
    }
    way |= {"fixture": any(suite.fixture for suite in run.selected if not suite.skipped)}
    apart = run.cut_short(None)
    for metric, value, unit in (
        ("first try answered", found.first_try, Unit.SHARE),
        ("time to first token, median", found.ttft_ms, Unit.MS),
        ("inter-token latency, median", found.itl_ms, Unit.MS),
        ("tokens/s, median", found.output_tps, Unit.RATE),
        ("completion tokens, mean", found.completion_tokens, Unit.TOKENS),
    ):
        if value.value is not None:
            yield Reading(
                **_head(run),
                suite="service",
                metric=metric,
                value=value,
                unit=unit,
                n_planned=value.n,
                way=way,
                apart=apart,
            )


def _head(run: _Run) -> dict[str, Any]:
    vendor = vendor_stored(run.endpoint.vendor, run.endpoint.base_url)
    return {"run_id": run.run_id, "date": run.finished, "vendor": vendor, "model": run.endpoint.model}
