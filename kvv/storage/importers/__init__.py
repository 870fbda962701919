"""Recorded results of other tools, turned into what a run of ours would have stored, to be judged under our rules.

An importer is a function of a file and ``ImportOptions``. Other packages register one under the entry-point group
``kvv.importers``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import cast

from kvv.core.plugins import IMPORTERS, find_entry_points
from kvv.core.usage_error import ConfigError
from kvv.storage.importers.recorded import Imported, ImportFileError, ImportOptions, RecordedSample, first_object

__all__ = [
    "ImportFileError",
    "ImportOptions",
    "Imported",
    "Importer",
    "RecordedSample",
    "importer",
    "importer_ids",
    "recognise",
]

#: reads a file of recorded results; ImportFileError names file and line, ConfigError an option
Importer = Callable[[Path, ImportOptions], Imported]

#: the tool's name -> the module whose ``read`` imports its results
SHIPPED: Mapping[str, str] = {
    "k2vv": "k2vv",
    "mmmu-pro": "mmmu_pro",
    "beam": "beam",
    "inspect": "inspect_log",
    "evalscope": "evalscope",
    "lm-eval": "lm_eval",
}
#: what the first line of a tool's JSON Lines has, the more particular first
MARKS: Mapping[str, frozenset[str]] = {
    "lm-eval": frozenset({"doc", "resps"}),
    "evalscope": frozenset({"index", "sample_score"}),
    "beam": frozenset({"chat_id", "question_type", "question_index"}),
    "k2vv": frozenset({"data_index"}),
    "mmmu-pro": frozenset({"id", "options", "answer"}),
}


def importer_ids() -> list[str]:
    """Tools whose results can be read, ours first."""
    return [*SHIPPED, *sorted(plugged_importers()[0])]


def importer(tool: str) -> Importer:
    """The importer of this name; ConfigError for an unknown one."""
    if tool in SHIPPED:
        return cast(Importer, import_module(f"{__name__}.{SHIPPED[tool]}").read)
    if tool in plugged_importers()[0]:
        return plugged_importers()[0][tool]
    raise ConfigError(f"TOOL: no importer {tool!r:.60}; known: {', '.join(importer_ids())}")


def recognise(path: Path) -> str:
    """The tool whose results a file holds, told by its content. ImportFileError for a file of no known form."""
    try:
        with path.open("rb") as file:
            archive = file.read(4) == b"PK\x03\x04"
    except OSError as error:
        raise ImportFileError(f"{path}: {error.strerror or error}") from None
    if archive:
        return "inspect"
    keys = set(first_object(path))
    for tool, marks in MARKS.items():
        if marks <= keys:
            return tool
    raise ImportFileError(
        f"{path}: is of no form that is known; name the tool: kvv import TOOL FILE ({', '.join(SHIPPED)})"
    )


@cache
def plugged_importers() -> tuple[Mapping[str, Importer], list[str]]:
    """Other packages' importers by name, and one line for each that cannot be used."""
    found: dict[str, Importer] = {}
    entries, broken = find_entry_points(IMPORTERS)
    for entry in entries:
        try:
            loaded = entry.load()
            why = "" if callable(loaded) else f"it gives a {type(loaded).__name__}, not a function"
        except (Exception, SystemExit) as error:  # noqa: BLE001 another package's code may raise anything
            why = f"{type(error).__name__}: {error}"
        if not why and entry.name in {*SHIPPED, *found}:
            why = "there is another importer of this name"
        if why:
            broken.append(f"importer {entry.name!r} ({entry.value}): {why}")
        else:
            found[entry.name] = loaded
    return found, broken
