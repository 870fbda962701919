"""Causes of several runs side by side: what one has and another has not."""

from __future__ import annotations

from collections.abc import Sequence

from kvv.rendering.document import DocumentTable, Section, Value
from kvv.storage.run_summary import CauseResult, RunSummary

#: causes of one table
LISTED = 40


def cause_section(sides: Sequence[RunSummary], names: Sequence[str], title: str) -> list[Section]:
    """A row a cause that counts on some side, those first that not every side has; nothing where no side has one."""
    held = [{cause.id: cause for cause in side.causes or () if cause.counts} for side in sides]
    without = ["not recorded" if side.causes is None else "–" for side in sides]
    every: dict[str, CauseResult] = {}
    for causes in held:
        every = causes | every
    order = sorted(every, key=lambda name: sum(name in causes for causes in held) == len(held))
    rows: list[tuple[Value, ...]] = [
        (
            every[name].title,
            *(causes[name].size or "yes" if name in causes else no for causes, no in zip(held, without, strict=True)),
        )
        for name in order
    ]
    if not rows:
        return []
    table = DocumentTable(
        name="causes", columns=("cause", *names), rows=tuple(rows[:LISTED]), left_out=max(0, len(rows) - LISTED)
    )
    return [Section(title=title, tables=(table,))]
