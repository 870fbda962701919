"""Accepted baselines: one small JSON file each in a folder, made by `kvv baseline accept` and by nothing else.

A file holds a run's ``RunSummary`` (settings, per-case values, no answers), so that it outlives the run's folder and
can be
committed:

    {"kvv_baseline": 1, "accepted": "2026-03-01T12:00:00Z", "note": "...", "build": "...", "expires": "2026-06-01",
     "side": {...}}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from kvv.planning.config import ConfigError
from kvv.planning.plain_file import read_plain
from kvv.rendering.escape import plain
from kvv.storage.run_folder import slug, vendor_stored
from kvv.storage.run_summary import RunSummary

FORMAT = 1
FOLDER = "baselines"
#: a file beyond this is no baseline
SIZE_LIMIT = 256 << 20

_SIDE = TypeAdapter(RunSummary)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """``accepted`` is an ISO 8601 UTC time; "" for a run that was named by hand. ``build`` is the user's word for what
    was served (an image digest, a release); after the day ``expires`` (ISO 8601, "" for never) nobody passes by it.
    """

    side: RunSummary
    accepted: str = ""
    note: str = ""
    build: str = ""
    expires: str = ""

    @property
    def when(self) -> str:
        return self.accepted or self.side.date

    def expired(self, today: date) -> bool:
        """Whether its last day is over."""
        return bool(self.expires) and today.isoformat() > self.expires


def baseline_text(baseline: Baseline) -> str:
    """The same baseline gives the same bytes."""
    head = {"kvv_baseline": FORMAT, "accepted": baseline.accepted, "note": baseline.note}
    head |= {name: value for name in ("build", "expires") if (value := getattr(baseline, name))}
    table = {**head, "side": _SIDE.dump_python(baseline.side, mode="json")}
    return json.dumps(table, ensure_ascii=True, sort_keys=True, separators=(",", ":")) + "\n"


def write_baseline(folder: Path, baseline: Baseline) -> Path:
    """``<folder>/<vendor>-<model>/<run id>.json``; ConfigError where it cannot be written or stands there already."""
    side = baseline.side
    path = folder / f"{slug(side.vendor)}-{slug(side.model)}" / f"{slug(side.run_id, 120)}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as out:
            out.write(baseline_text(baseline))
    except FileExistsError:
        raise ConfigError(f"RUN: {path} is there already: this run was accepted before") from None
    except OSError as error:
        raise ConfigError(f"--baselines: cannot write {path}: {error.strerror or error}") from error
    return path


def read_baseline(path: Path) -> Baseline:
    """ConfigError, of one line that names the file, for anything that is no baseline."""
    try:
        text = read_plain(path, limit=SIZE_LIMIT, follow=True)
    except OSError as error:
        raise ConfigError(f"--baseline: {path}: {error.strerror or error}") from error
    except ValueError:
        raise ConfigError(f"--baseline: {path}: is no JSON that can be read") from None
    return parse_baseline(text, str(path))


def parse_baseline(text: str | bytes, path: str) -> Baseline:
    """The baseline that ``baseline_text`` wrote. ConfigError, of one line that names the file."""
    try:
        table = json.loads(text)
        if not isinstance(table, dict) or table.get("kvv_baseline") != FORMAT:
            raise ConfigError(
                f"--baseline: {path} is no baseline file of format {FORMAT} (`kvv baseline accept` writes one)"
            )
        side = _SIDE.validate_python(table.get("side"))
        side = replace(side, vendor=vendor_stored(side.vendor, side.base_url))
        texts = {name: str(table.get(name, "")) for name in ("accepted", "note", "build", "expires")}
        if texts["expires"]:
            date.fromisoformat(texts["expires"])
        return Baseline(side=side, **texts)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"--baseline: {path}: side.{plain(where, 120)}: {plain(first['msg'], 160)}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"--baseline: {path}: is no JSON that can be read") from None


def accepted_baselines(folder: Path, *, vendor: str | None = None, model: str | None = None) -> list[Baseline]:
    """Of this vendor and model (all where None), the newest first; an empty list where there is none."""
    found = [read_baseline(path) for path in sorted(folder.glob("*/*.json"))]
    found = [b for b in found if vendor in (None, b.side.vendor) and model in (None, b.side.model)]
    return sorted(found, key=lambda baseline: baseline.when, reverse=True)


def newest_first(baselines: Sequence[Baseline]) -> list[Baseline]:
    return sorted(baselines, key=lambda baseline: baseline.when, reverse=True)
