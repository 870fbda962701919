"""Reading ``--judge-prompts``: a file or a folder of the user's."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvv.cases.judge_prompts import NEEDED, JudgePrompts, checked, python_constants
from kvv.core.usage_error import ConfigError
from kvv.planning.plain_file import read_plain
from kvv.protocol.json_text import parse

#: where the official repository keeps its prompts
OFFICIAL_FILE = "src/prompts.py"
#: bytes; the official file has 11,000 lines
LIMIT = 8_000_000


def read_judge_prompts(path: str | None) -> JudgePrompts | None:
    """A folder with ``item.txt``, ``order.txt``, ``question.txt`` or a checkout of the official repository; or a file:
    ``.py`` with constants, ``.toml`` or ``.json`` with these names, any other the text of ``item``.

    Raises ConfigError naming option and file.
    """
    if path is None:
        return None
    place = Path(path)
    try:
        return checked(_of_folder(place) if place.is_dir() else _of_file(place))
    except OSError as error:
        raise ConfigError(f"--judge-prompts: {error.filename or path}: {error.strerror or error}") from None
    except ValueError as error:  # no UTF-8, no TOML, no JSON, or no prompt of ours
        raise ConfigError(f"--judge-prompts: {path}: {error}") from None


def _of_folder(folder: Path) -> Mapping[str, str]:
    official = folder / OFFICIAL_FILE
    found = dict(_of_file(official)) if official.is_file() else {}
    for name in NEEDED:
        if (folder / f"{name}.txt").is_file():
            found[name] = _text(folder / f"{name}.txt")
    return found


def _of_file(path: Path) -> Mapping[str, str]:
    text = _text(path)
    if path.suffix == ".py":
        return python_constants(text)
    table: Any = {"item": text}
    if path.suffix in (".json", ".toml"):
        table = parse(text.encode()) if path.suffix == ".json" else tomllib.loads(text)
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise ValueError("wants a table of texts")
    return table


def _text(path: Path) -> str:
    return read_plain(path, limit=LIMIT, follow=True)
