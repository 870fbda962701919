"""How verbs that print a ``Document`` offer their formats."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from kvv.planning.config import ConfigError
from kvv.rendering.document import Document, csv_text, html, markdown
from kvv.rendering.terminal import show

#: columns where standard output is no terminal
PIPE_WIDTH = 180


def put(arguments: argparse.Namespace, document: Document, as_json: Callable[[], str]) -> None:
    """Prints the document, or writes it to ``--to``; ConfigError where that cannot be written."""
    if arguments.format == "text":
        _text(arguments, document)
        return
    make: dict[str, Callable[[], str]] = {
        "md": lambda: markdown(document),
        "html": lambda: html(document),
        "csv": lambda: csv_text(document),
        "json": as_json,
    }
    text = make[arguments.format]()
    if arguments.to:
        write(Path(arguments.to), text)
    else:
        sys.stdout.write(text)


def _text(arguments: argparse.Namespace, document: Document) -> None:
    if not arguments.to:
        console = Console(file=sys.stdout, highlight=False)
        show(document, console if console.is_terminal else Console(file=sys.stdout, width=PIPE_WIDTH, highlight=False))
        return
    try:
        with Path(arguments.to).open("w", encoding="utf-8", newline="\n") as out:
            show(document, Console(file=out, width=PIPE_WIDTH, highlight=False))
    except OSError as error:
        raise ConfigError(f"--to: cannot write {arguments.to}: {error.strerror or error}") from error


def write(path: Path, text: str, option: str = "--to") -> None:
    try:
        path.write_text(text, "utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"{option}: cannot write {path}: {error.strerror or error}") from error
