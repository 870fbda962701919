"""Offline copies: pull, verify, where. A copy is a folder in the hub's own layout with a ``manifest.json`` beside the
files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kvv.data.beam import write_layout
from kvv.data.cache import copy_folder
from kvv.data.rows import convert, questions_digest, rows_of
from kvv.data.spec import DataError, DatasetSpec, canonical_sha256, check_rows, fixture_of, load_spec, shipped_names

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a copy holds. ``problems`` are one line each; ``str`` is for the terminal."""

    name: str
    path: str
    rows: int
    sha256: str
    expected_sha256: str
    files: int = 0
    commit: str = ""
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        if self.problems:
            return "\n".join(f"{self.name}: {problem}" for problem in self.problems)
        pinned = "as pinned" if self.expected_sha256 else "no pinned checksum to compare with"
        commit = f", commit {self.commit}" if self.commit else ""
        return f"{self.name}: {self.rows} rows in {self.path}{commit}, sha256 {self.sha256} ({pinned})"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlace:
    """One place where a data set may be found; ``present`` is None where only the network could tell."""

    kind: str
    location: str
    present: bool | None

    def __str__(self) -> str:
        state = {True: "present", False: "absent", None: "online"}[self.present]
        return f"{self.kind:<8} {state:<8} {self.location}"


def pull(
    name: str, into: Path | None = None, mirror: str | None = None, revision: str | None = None, variant: str = ""
) -> Report:
    """Fetch, check and store a copy; an existing copy is replaced only by a sound one. DataError where anything is
    wrong.

    For a set with a layout of its own ``mirror`` may be a folder in any of its forms; it is rewritten in that layout.
    """
    spec = load_spec(name, variant)
    if not spec.repo:
        raise DataError(f"{name} is on no hub: {spec.note or spec.source}")
    target = into if into is not None else copy_folder(name, variant)
    if target.exists() and not (target / MANIFEST).exists() and any(target.iterdir()):
        raise DataError(f"{target}: is no copy made by `kvv data pull`; choose an empty or new folder")
    asked = revision or spec.revision
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        staged = Path(scratch) / "copy"
        commit, where = _stage(spec, staged, asked, mirror)
        rows, _ = rows_of(staged, spec)
        check_rows(rows, spec, where)
        digest = check_content(rows, spec, where)
        _write_manifest(staged, name, spec, asked=asked, commit=commit, mirror=mirror, rows=len(rows), digest=digest)
        if target.exists():
            os.replace(target, Path(scratch) / "old")
        os.replace(staged, target)
    return verify(name, target, variant=variant)


def _stage(spec: DatasetSpec, staged: Path, revision: str, mirror: str | None) -> tuple[str, str]:
    """Put the files there; the commit, and what to call the source in errors."""
    from kvv.data.hub import fetch, read_hub

    if spec.layout != "beam":
        commit = fetch(spec, staged, revision=revision, mirror=mirror)
        shutil.rmtree(staged / ".cache", ignore_errors=True)  # the hub client's own notes
        return commit, f"{spec.repo}@{commit}"
    if mirror is None:
        served, commit = read_hub(spec, revision=revision, offline=False)
        where = f"{spec.repo}@{commit}"
        rows = convert(served, spec, where)
    elif Path(mirror).expanduser().is_dir():
        commit, where = "", mirror
        rows, note = rows_of(Path(mirror).expanduser(), spec)
        if note:
            raise DataError(f"{mirror}: is not whole: {note}")
    else:
        raise DataError(
            f"--from: {mirror!r:.100} is no folder; the set {spec.repo} is rewritten, set HF_ENDPOINT for a mirror of"
            " the hub"
        )
    check_rows(rows, spec, where)
    write_layout(rows, spec.variant, staged)
    return commit, where


def check_content(rows: list[dict[str, Any]], spec: DatasetSpec, where: str) -> str:
    """The rows' digest; DataError naming both where the data set pins another, or another count."""
    digest = canonical_sha256(rows, spec.columns)
    if spec.rows is not None and len(rows) != spec.rows:
        raise DataError(f"{where}: holds {len(rows)} rows, {spec.rows} expected")
    if spec.sha256 and digest != spec.sha256:
        raise DataError(
            f"{where}: the rows have sha256 {digest}, {spec.sha256} expected; use --data to run on other content"
        )
    if spec.questions_sha256 and (found := questions_digest(rows, spec)) != spec.questions_sha256:
        raise DataError(
            f"{where}: the questions have sha256 {found}, {spec.questions_sha256} expected; use --data to run on other"
            " content"
        )
    return digest


def _write_manifest(
    folder: Path, name: str, spec: DatasetSpec, *, asked: str, commit: str, mirror: str | None, rows: int, digest: str
) -> None:
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    manifest = {
        "version": 1,
        "name": name,
        "repo": spec.repo,
        "revision": asked,
        "commit": commit,
        "endpoint": _origin(mirror or os.environ.get("HF_ENDPOINT") or ""),
        "pulled": datetime.now(UTC).isoformat(timespec="seconds"),
        "kvv_version": version("kvv"),
        "licence": spec.licence,
        "rows": rows,
        "sha256": digest,
        "files": files,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")


def _origin(address: str) -> str:
    """Scheme, host and port of a mirror, whose address may carry a password; the library's own default has no address
    here.
    """
    if not address:
        return "the Hugging Face hub"
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def file_sha256(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """The manifest of a copy, {} where there is none; DataError where it is broken."""
    path = folder / MANIFEST
    if not path.exists():
        return {}
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise DataError(f"{path}: unreadable manifest ({type(error).__name__})") from error
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or not all(isinstance(facts, dict) for facts in files.values()):
        raise DataError(f"{path}: is no manifest of a data set")
    found: Mapping[str, Any] = manifest
    return found


def verify(name: str, path: str | Path | None = None, variant: str = "") -> Report:
    """Check a copy (default: the one in the cache): each file against the manifest, the rows against the columns and
    the pinned digest.

    Never raises for what is wrong with the data: the report lists it.
    """
    spec = load_spec(name, variant)
    place = Path(path) if path is not None else copy_folder(name, variant)
    problems: list[str] = []
    manifest: Mapping[str, Any] = {}
    rows: list[dict[str, Any]] = []
    digest = ""
    try:
        if path is None and not place.exists():
            raise DataError(f"{place}: no copy; fetch it with `kvv data pull {name}`")
        manifest = read_manifest(place) if place.is_dir() else {}
        problems += _file_problems(place, manifest)
        rows, note = rows_of(place, spec)
        problems += [note] if note else []
        check_rows(rows, spec, str(place))
        digest = canonical_sha256(rows, spec.columns)
        check_content(rows, spec, str(place))
    except DataError as error:
        problems.append(str(error))
    return Report(
        name=name,
        path=str(place),
        rows=len(rows),
        sha256=digest,
        expected_sha256=spec.sha256 or spec.questions_sha256,
        files=len(manifest.get("files", {})),
        commit=str(manifest.get("commit", "")),
        problems=tuple(problems),
    )


def _file_problems(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    problems = []
    for name, facts in manifest.get("files", {}).items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            problems.append(f"{folder / MANIFEST}: names a file outside the folder: {name!r:.100}")
        elif not path.is_file():
            problems.append(f"{path}: is missing")
        elif (found := file_sha256(path)) != facts.get("sha256"):
            problems.append(f"{path}: has sha256 {found}, the manifest says {facts.get('sha256')}")
    return problems


def _shown(name: str, spec: DatasetSpec) -> str:
    """Ours by its name in the package, another package's by its path."""
    return f"kvv.fixtures/{spec.fixture}" if name in shipped_names() else str(fixture_of(name, spec))


def where(name: str, variant: str = "") -> list[CopyPlace]:
    """In the order in which ``load`` looks: the copy in the cache, the hub; and the fixture, which is used only on
    request.
    """
    spec = load_spec(name, variant)
    copy = copy_folder(name, variant)
    places = [CopyPlace(kind="copy", location=str(copy), present=(copy / MANIFEST).exists())]
    if spec.repo:
        endpoint = _origin(os.environ.get("HF_ENDPOINT") or "")
        places.append(CopyPlace(kind="hub", location=f"{spec.repo} at {spec.revision} ({endpoint})", present=None))
    if spec.fixture:
        places.append(CopyPlace(kind="fixture", location=_shown(name, spec), present=True))
    return places
