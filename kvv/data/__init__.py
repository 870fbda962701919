"""Data sets: the hub at a pinned content, local files, offline copies, and the small fixtures that ship.

The only room that imports ``datasets`` and pandas readers, both lazily. Whatever is wrong with data is a ``DataError``
of one line.
"""

from __future__ import annotations

import os
from importlib.resources import as_file
from pathlib import Path

from kvv.core import Dataset
from kvv.data.cache import cache_folder, copy_folder
from kvv.data.copies import (
    CopyPlace,
    Report,
    check_content,
    pull,
    read_manifest,
    verify,
    where,
)
from kvv.data.rows import convert, rows_of
from kvv.data.spec import (
    DataError,
    DatasetSpec,
    canonical_sha256,
    check_rows,
    fixture_of,
    load_spec,
    names,
    questions_note,
)

__all__ = [
    "CopyPlace",
    "DataError",
    "DatasetSpec",
    "Report",
    "cache_folder",
    "canonical_sha256",
    "copy_folder",
    "load",
    "load_spec",
    "names",
    "pull",
    "verify",
    "where",
]


def load(
    name: str, *, path: str | Path | None = None, fixture: bool = False, offline: bool = False, variant: str = ""
) -> Dataset:
    """The rows of the data set ``name``, checked against its columns.

    From ``path`` (any content with the right columns), or the shipped fixture, both without network; else from the copy
    in the cache, else from the hub, and then the content must be the pinned one. ``offline`` (or HF_HUB_OFFLINE) keeps
    the hub client off the network.
    """
    spec = load_spec(name, variant)
    if path is not None:
        return _from_path(Path(path).expanduser(), spec)
    if fixture:
        return _from_fixture(name, spec)
    copy = copy_folder(name, variant)
    if manifest := read_manifest(copy):
        rows, _ = rows_of(copy, spec)
        check_rows(rows, spec, str(copy))
        digest = check_content(rows, spec, str(copy))
        revision = f"{manifest.get('commit') or spec.revision}{questions_note(rows, spec)}"
        return Dataset(rows=rows, origin=f"{spec.repo} (copy in {copy})", revision=revision, sha256=digest)
    return _from_hub(name, spec, offline=offline)


def _from_path(path: Path, spec: DatasetSpec) -> Dataset:
    rows, note = rows_of(path, spec)
    check_rows(rows, spec, str(path))
    digest = canonical_sha256(rows, spec.columns)
    known = bool(spec.sha256) and digest == spec.sha256
    origin = f"{path} ({note})" if note else str(path)
    revision = "as pinned" if known else f"local sha256:{digest[:12]}{questions_note(rows, spec)}"
    return Dataset(rows=rows, origin=origin, revision=revision, sha256=digest)


def _from_fixture(name: str, spec: DatasetSpec) -> Dataset:
    with as_file(fixture_of(name, spec)) as path:
        rows, _ = rows_of(path, spec)
    check_rows(rows, spec, f"fixtures/{spec.fixture}")
    digest = canonical_sha256(rows, spec.columns)
    return Dataset(rows=rows, origin="fixture", revision=f"fixture sha256:{digest[:12]}", sha256=digest, fixture=True)


def _from_hub(name: str, spec: DatasetSpec, *, offline: bool) -> Dataset:
    if not spec.repo:
        raise DataError(f"{name} is on no hub: {spec.note or spec.source}; then use --data {name}=PATH")
    from kvv.data.hub import read_hub

    offline = offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    rows, commit = read_hub(spec, revision=spec.revision, offline=offline)
    where = f"{spec.repo}@{commit}"
    rows = convert(rows, spec, where)
    check_rows(rows, spec, where)
    return Dataset(
        rows=rows,
        origin=where,
        revision=f"{commit}{questions_note(rows, spec)}",
        sha256=check_content(rows, spec, where),
    )
