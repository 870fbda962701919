"""Entry points by which other packages register suites. Reads their metadata and imports nothing of theirs."""

from __future__ import annotations

from importlib.metadata import EntryPoint, distributions

GROUP = "kvv.suites"


def registered() -> tuple[list[EntryPoint], list[str]]:
    """The well-formed entry points, first on the path first, and one line for whatever is malformed."""
    found: dict[tuple[str, str], EntryPoint] = {}
    malformed: list[str] = []
    for distribution in distributions():
        try:
            if GROUP not in (distribution.read_text("entry_points.txt") or ""):
                continue
            entries = list(distribution.entry_points.select(group=GROUP))
        except Exception as error:  # noqa: BLE001 what reading it raises is no fault of ours
            malformed.append(f"entry points of {_name(distribution)}: {type(error).__name__}: {error}")
            continue
        for entry in entries:
            if EntryPoint.pattern.fullmatch(entry.value):
                found.setdefault((entry.name, entry.value), entry)
            else:
                malformed.append(f"plug-in {entry.name!r}: {entry.value!r} is not of the form package.module:name")
    return list(found.values()), list(dict.fromkeys(malformed))  # a folder may be on the path twice


def _name(distribution: object) -> str:
    """From where it lies: its metadata may be as broken."""
    return str(getattr(distribution, "_path", distribution)).replace("\\", "/").rpartition("/")[2]
