"""What a data set promises: ``suites/<name>/dataset.toml``, and the check of rows against it."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvv.core import Picture
from kvv.core.plugins import SUITES, find_entry_points, folder_of

#: ``image`` is a ``Picture`` (rows hold no bytes); ``texts`` a list of strings, for which one bare string may stand; a
#: trailing ``?`` allows null and absence

_PYTHON: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "texts": (list,),
    "object": (dict,),
    "image": (Picture,),
}


FILE = "dataset.toml"


class DataError(ValueError):
    """Data that is missing, unreadable or not what it should be; the message is one line that names file and row."""


class DatasetVariant(BaseModel):
    """What one variant of a data set has of its own: a size, a config."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    repo: str | None = None
    revision: str | None = None
    config: str | None = None
    split: str | None = None
    rows: int | None = None
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    questions_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    files: tuple[str, ...] | None = None
    fixture: str | None = None
    columns: Mapping[str, str] | None = None


class PinnedQuestions(BaseModel):
    """The content of some columns, whatever the order of the rows: says where questions came from when whole rows
    cannot be pinned.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    columns: tuple[str, ...]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    source: str


class DatasetSpec(BaseModel):
    """One ``dataset.toml``.

    ``repo`` is the hub's id, empty where no hub has the set; ``files`` are the patterns ``kvv data pull`` fetches;
    ``sha256`` is over the canonical rows and pins the content whatever ``revision`` says; ``key`` is the column whose
    values must be unique; ``fixture`` lies under ``fixtures/``, another
    package's beside its ``dataset.toml``, and is "" where none ships; ``note`` tells how to get a set that no hub has.

    ``variants`` override single fields; ``variant`` is the one that was chosen, ``default_variant`` the one that is
    taken without a choice. ``aliases`` are other names of columns (other -> ours), as another copy of the set spells
    them. ``any_name``: of a folder without files of the split's name every data file is read, not only a single one.
    ``layout`` names a form that needs a reader of its own, ``questions_sha256`` pins the question file that this reader
    can write.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    title: str
    repo: str = ""
    revision: str = "main"
    config: str | None = None
    split: str = "test"
    any_name: bool = False
    files: tuple[str, ...] = ("*.parquet", "*.jsonl", "*.json", "*.csv", "README.md")
    rows: int | None = None
    sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    key: str | None = None
    licence: str
    source: str
    fixture: str = ""
    note: str = ""
    layout: Literal["", "beam", "swebench"] = ""
    questions_sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    variant: str = ""
    default_variant: str = ""
    variants: Mapping[str, DatasetVariant] = Field(default_factory=dict)
    aliases: Mapping[str, str] = Field(default_factory=dict)
    pinned_questions: PinnedQuestions | None = None
    columns: Mapping[str, str]


def names() -> list[str]:
    """Suites that have a ``dataset.toml``, sorted; another package's lies beside the module of its suite."""
    plugged = [entry.name for entry in find_entry_points(SUITES)[0]]
    return sorted(
        name for name in {*shipped_names(), *plugged} if (home := _home(name)) and home.joinpath(FILE).is_file()
    )


def shipped_names() -> frozenset[str]:
    """Folders of our own suites."""
    return frozenset(entry.name for entry in files("kvv.suites").iterdir() if entry.is_dir())


def _home(name: str) -> Traversable | None:
    """The folder of a suite's ``dataset.toml``; a built-in suite goes before another package's of the same name."""
    return files("kvv.suites").joinpath(name) if name in shipped_names() else folder_of(SUITES, name)


def fixture_of(name: str, spec: DatasetSpec) -> Traversable:
    """The small set that ships with the suite; DataError where none does."""
    home = _home(name)
    if not spec.fixture or home is None:
        raise DataError(f"{name} ships no fixture; use --data {name}=PATH")
    return (files("kvv.fixtures") if name in shipped_names() else home).joinpath(spec.fixture)


def load_spec(name: str, variant: str = "") -> DatasetSpec:
    """The data set ``name``, its variants laid over it; DataError for an unknown one."""
    home = _home(name) if name in names() else None
    if home is None:
        raise DataError(f"no data set {name!r}; known: {', '.join(names())}")
    try:
        spec = DatasetSpec.model_validate(tomllib.loads(home.joinpath(FILE).read_text("utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise DataError(f"{name}/{FILE}: {one_line(error)}") from error
    chosen = variant or spec.default_variant
    if not chosen:
        return spec
    if chosen not in spec.variants:
        raise DataError(f"{name} has no variant {chosen!r:.40}; known: {', '.join(spec.variants) or 'none'}")
    return spec.model_copy(update={"variant": chosen, **spec.variants[chosen].model_dump(exclude_none=True)})


def check_rows(rows: Sequence[Mapping[str, Any]], spec: DatasetSpec, where: str) -> None:
    """DataError at the first row that lacks a column, has a value of another type, or repeats a key."""
    if not rows:
        raise DataError(f"{where}: holds no row")
    seen: dict[Any, int] = {}
    for number, row in enumerate(rows, 1):
        for column, kind in spec.columns.items():
            _check_value(row, column, kind, f"{where}: row {number}")
        if spec.key is not None:
            first = seen.setdefault(row[spec.key], number)
            if first != number:
                raise DataError(
                    f"{where}: row {number}: {spec.key} {row[spec.key]!r:.60} stands already in row {first}"
                )


def _check_value(row: Mapping[str, Any], column: str, kind: str, where: str) -> None:
    optional, kind = kind.endswith("?"), kind.removesuffix("?")
    if column not in row:
        if optional:
            return
        raise DataError(
            f"{where}: column {column!r} is missing; there are {', '.join(map(repr, list(row)[:12]))[:300]}"
        )
    value = row[column]
    if (value is None and optional) or kind == "any":
        return
    right = isinstance(value, _PYTHON[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if right and kind == "texts":
        right = all(isinstance(item, str) for item in value)
    if not right:
        raise DataError(f"{where}: column {column!r} should be {kind}, is {type(value).__name__} {value!r:.60}")


def canonical_sha256(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> str:
    """Hex digest over the declared columns: each row as JSON (sorted keys, no spaces, UTF-8) and a newline, in order.

    Bytes and pictures count by their own digest, so that it does not matter in which container the rows came.
    """
    digest = hashlib.sha256()
    order = sorted(columns)
    for row in rows:
        kept = {column: row[column] for column in order if row.get(column) is not None}
        line = json.dumps(kept, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=_bytes_digest)
        digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def questions_note(rows: Sequence[Mapping[str, Any]], spec: DatasetSpec) -> str:
    """Whether the questions are those that are pinned, as a clause for the revision; "" where none are."""
    pinned = spec.pinned_questions
    if pinned is None:
        return ""
    lines = sorted(
        json.dumps([row.get(column) for column in pinned.columns], ensure_ascii=True, default=_bytes_digest)
        for row in rows
    )
    same = hashlib.sha256("\n".join(lines).encode()).hexdigest() == pinned.sha256
    return f"; questions {'as' if same else 'other than'} in {pinned.source}"


def _bytes_digest(value: object) -> str:
    if isinstance(value, Picture):
        return f"sha256:{value.digest}"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"sha256:{hashlib.sha256(value).hexdigest()}"
    return str(value)


def one_line(error: BaseException, limit: int = 300) -> str:
    """An exception as one line: its type where the text does not speak for itself."""
    text = " ".join(str(error).split())[:limit]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
