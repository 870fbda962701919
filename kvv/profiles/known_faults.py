"""What faults of the catalogue were elsewhere: engine, layer or setting, and the report of it (known_faults.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class KnownFault:
    """``where`` and ``link`` are "" where the fault was made up from a rule and not reported; ``cases`` are
    ``reason@area`` of the contract cases that it fails.
    """

    id: str
    where: str = ""
    link: str = ""
    cases: frozenset[str] = frozenset()


@cache
def known_faults() -> dict[str, KnownFault]:
    """Every fault that the file describes, by its id."""
    table = tomllib.loads(files("kvv.profiles").joinpath("known_faults.toml").read_text("utf-8"))
    return {
        name: KnownFault(name, entry.get("where", ""), entry.get("link", ""), frozenset(entry.get("cases", ())))
        for name, entry in table.items()
    }


def faults_like(ids: Collection[str], failed: Collection[str]) -> tuple[KnownFault, ...]:
    """Faults that look like this: those of ``ids`` (named by wire rules), then those that fail cases as in ``failed``
    (``reason@area``); the ones that explain most of it and were reported somewhere first.
    """
    every = known_faults()
    named = {name: every.get(name) or KnownFault(name) for name in ids}
    seen = {name: fault for name, fault in every.items() if fault.cases & set(failed)}
    found = {**named, **seen}
    return tuple(
        sorted(
            found.values(),
            key=lambda fault: (fault.id not in ids, not fault.where, -len(fault.cases & set(failed)), fault.id),
        )
    )
