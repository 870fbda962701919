"""Entry points by which other packages register suites, profiles and importers.

``registered`` reads metadata and imports nothing of theirs; ``folder_of`` imports the packages around a module at most.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, distributions
from importlib.util import find_spec
from pathlib import Path

SUITES, PROFILES, IMPORTERS = "kvv.suites", "kvv.profiles", "kvv.importers"


def find_entry_points(group: str) -> tuple[list[EntryPoint], list[str]]:
    """The well-formed entry points of a group, first on the path first, and one line for whatever is malformed."""
    found: dict[tuple[str, str], EntryPoint] = {}
    malformed: list[str] = []
    for distribution in distributions():
        try:
            if group not in (distribution.read_text("entry_points.txt") or ""):
                continue
            entries = list(distribution.entry_points.select(group=group))
        except Exception as error:  # noqa: BLE001 what reading it raises is no fault of ours
            malformed.append(f"entry points of {_name(distribution)}: {type(error).__name__}: {error}")
            continue
        for entry in entries:
            if EntryPoint.pattern.fullmatch(entry.value):
                found.setdefault((entry.name, entry.value), entry)
            else:
                malformed.append(f"plug-in {entry.name!r}: {entry.value!r} is not of the form package.module:name")
    return list(found.values()), list(dict.fromkeys(malformed))  # a folder may be on the path twice


@cache
def folder_of(group: str, name: str) -> Path | None:
    """Where the module of the entry point ``name`` lies, None where there is none: its data files are beside it."""
    for entry in find_entry_points(group)[0]:
        if entry.name == name and (origin := _origin(entry.module)):
            return Path(origin).parent
    return None


def _origin(module: str) -> str | None:
    try:
        spec = find_spec(module)
    except (Exception, SystemExit):  # noqa: BLE001 a parent package of another's may raise anything
        return None
    return None if spec is None else spec.origin


def _name(distribution: object) -> str:
    """From where it lies: its metadata may be as broken."""
    return str(getattr(distribution, "_path", distribution)).replace("\\", "/").rpartition("/")[2]
