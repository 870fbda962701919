"""A ``Document`` on a terminal: rich tables, texts never read as markup."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from kvv.rendering.document import Document, DocumentTable, Value, sparkline, text_of
from kvv.rendering.escape import plain

#: rows of one table, excerpts of one section and lines of one excerpt; the other formats have more
ROWS, EXCERPTS, LINES = 60, 12, 4
_COLOURS = {"pass": "green", "fail": "red", "error": "magenta", "inconclusive": "yellow"}


def show(document: Document, console: Console) -> None:
    console.print(Text(plain(document.title, 1000), style=f"bold {_COLOURS.get(document.outcome, '')}".strip()))
    for line in document.lead:
        console.print(Text(f"  {plain(line, 2000)}"))
    for section in document.sections:
        console.print()
        console.print(Text(plain(section.title, 200), style="bold"))
        for note in section.notes:
            console.print(Text(f"  {plain(note, 1000)}"))
        for chart in section.charts:
            console.print(Text(f"  {plain(sparkline(chart), 400)}"))
        for table in section.tables:
            console.print(_table(table))
            if more := max(0, len(table.rows) - ROWS) + table.left_out:
                console.print(Text(f"  ... and {more} more"))
        for excerpt in section.excerpts[:EXCERPTS]:
            console.print(Text(f"  {plain(excerpt.line, 300)}"))
            for title, text in excerpt.texts:
                console.print(Text(f"    {plain(title, 60)}: {plain(text, LINES * 80)}", style="dim"))
        if more := max(0, len(section.excerpts) - EXCERPTS) + section.left_out:
            console.print(Text(f"  ... and {more} more (--format md, json, html)"))


def _table(table: DocumentTable) -> RichTable:
    drawn = RichTable(box=box.SIMPLE, pad_edge=False)
    for column in table.columns:
        drawn.add_column(Text(plain(column, 100)), overflow="fold")
    for row in table.rows[:ROWS]:
        drawn.add_row(*map(_cell, row))
    return drawn


def _cell(value: Value) -> Text:
    return Text(plain(text_of(value), 300))
