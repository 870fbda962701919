"""`kvv history`: each metric of the runs in a folder over time. Quality comes from their report.json, the rest from their stores."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from kvv.compare.history import Reading, as_json, document
from kvv.compare.history import history as make_history
from kvv.compare.side import Measured, Service
from kvv.config import ConfigError
from kvv.report.document import Unit
from kvv.report.text import plain
from kvv.runfolder import EXAMPLE, STORE, vendor_stored
from kvv.sides import service_of
from kvv.store import Store, StoreError
from kvv.verbs.documents import put

REPORT = "report.json"
#: what of a row's comparability decides whether two nights stand in one series
WAY = ("data_revision", "sampling", "preset", "judge", "agent", "scorer_version")


class _Report(BaseModel):
    """The few fields of report.json that are read; the others may be anything."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Row(_Report):
    id: str
    metric: str
    primary: bool
    value: float | None
    ci95: tuple[float, float] | None
    n_concluded: int
    n_planned: int
    comparability: dict[str, Any]


class _Endpoint(_Report):
    model: str
    vendor: str
    base_url: str = ""


class _Run(_Report):
    run_id: str
    finished: str
    endpoint: _Endpoint
    suites: list[_Row]


def history(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise ConfigError(f"DIR: {folder} is no folder")
    readings: list[Reading] = []
    notes: list[str] = []
    for path in sorted(path for path in folder.iterdir() if path.name != EXAMPLE and ((path / STORE).is_file() or (path / REPORT).is_file())):
        try:
            readings += _readings(path, every=arguments.metrics == "all")
        except ConfigError as error:
            notes.append(f"left out: {error}")
    if not readings:
        raise ConfigError(f"DIR: {folder} holds no finished run" + (f" ({notes[0]})" if notes else ""))
    found = make_history(readings, np.random.default_rng(0), notes=notes)
    put(arguments, document(found), lambda: as_json(found))
    return 0


def _readings(path: Path, *, every: bool) -> list[Reading]:
    """ConfigError for a folder that has no report that can be read."""
    try:
        run = _Run.model_validate_json((path / REPORT).read_bytes())
    except OSError:
        raise ConfigError(f"{path} has no {REPORT}: the run has not ended") from None
    except ValidationError as error:
        raise ConfigError(f"{path / REPORT}: {plain(error.errors(include_url=False)[0]['msg'], 160)}") from None
    return [*_quality(run, every=every), *_beside(run, path)]


def _quality(run: _Run, *, every: bool) -> Iterator[Reading]:
    for row in run.suites:
        if row.primary or every:
            low, high = row.ci95 or (None, None)
            yield Reading(
                **_head(run),
                suite=row.id,
                metric=row.metric,
                value=Measured(value=row.value, low=low, high=high, n=row.n_concluded),
                unit=Unit.SHARE,
                n_planned=row.n_planned,
                way={name: row.comparability.get(name) for name in WAY},
            )


def _beside(run: _Run, path: Path) -> Iterator[Reading]:
    """Nothing where the store is gone: a median without its interval says too little."""
    try:
        store = Store.open(path / STORE, read_only=True)
    except StoreError:
        return
    try:
        found: Service = service_of(store)
    except StoreError:
        return
    finally:
        store.close()
    for metric, value, unit in (
        ("first try answered", found.first_try, Unit.SHARE),
        ("time to first token, median", found.ttft_ms, Unit.MS),
        ("inter-token latency, median", found.itl_ms, Unit.MS),
        ("tokens/s, median", found.output_tps, Unit.RATE),
        ("completion tokens, mean", found.completion_tokens, Unit.TOKENS),
    ):
        if value.value is not None:
            yield Reading(**_head(run), suite="service", metric=metric, value=value, unit=unit, n_planned=value.n)


def _head(run: _Run) -> dict[str, Any]:
    vendor = vendor_stored(run.endpoint.vendor, run.endpoint.base_url)
    return {"run_id": run.run_id, "date": run.finished, "vendor": vendor, "model": run.endpoint.model}
