"""Instances of a suite whose cases are long works (a coding agent): one line each, with a link to the page that tells
every step.

A row's ``breakdown["instances"]`` maps an instance to its facts; ``page`` is a path in the run's folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kvv.core import Stat
from kvv.rendering.escape import plain

KEY = "instances"
#: heading -> fact, in order
COLUMNS: Mapping[str, str] = {
    "outcome": "outcome",
    "reason": "reason",
    "agent's end": "exit",
    "steps": "steps",
    "commands": "commands",
    "prompt tokens": "prompt_tokens",
    "completion tokens": "completion_tokens",
    "$": "cost",
    "patch applied by": "applied",
}
_PATH = re.compile(r"(?!/)(?!.*(?:^|/)\.\.?(?:/|$))[A-Za-z0-9._~%/-]{1,1000}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLine:
    """``href`` is relative to the run's folder and safe in an attribute, "" where there is no page; ``cells`` are plain
    text.
    """

    name: str
    href: str
    cells: tuple[str, ...]


def lines_of(stat: Stat) -> list[InstanceLine]:
    """[] for a row without instances."""
    found = stat.breakdown.get(KEY)
    return (
        [_line(str(name), facts) for name, facts in found.items() if isinstance(facts, Mapping)]
        if isinstance(found, Mapping)
        else []
    )


def _line(name: str, facts: Mapping[str, Any]) -> InstanceLine:
    page = str(facts.get("page") or "")
    # the file's own name holds the percent signs
    href = quote(page, safe="/") if _PATH.fullmatch(page) else ""
    return InstanceLine(
        name=plain(name, 200), href=href, cells=tuple(_cell(facts.get(fact)) for fact in COLUMNS.values())
    )


def _cell(value: Any) -> str:
    match value:
        case None | "":
            return "–"
        case bool() | str():
            return plain(value, 80)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.4f}"
        case _:
            return plain(value, 80)


def describe(value: Any) -> str:
    """A table of counts or means in one line: ``submitted 5, loop 1``."""
    if not isinstance(value, Mapping):
        return plain(value, 300)
    return plain(
        ", ".join(
            f"{name} {f'{number:.4g}' if isinstance(number, float) else number}" for name, number in value.items()
        )
        or "none",
        300,
    )
