"""Making hostile text harmless: bounded, no control characters, no way out of the format it stands in.

``str.isprintable`` decides what may stand: it is false for control and format characters (ANSI escapes, bidi
controls, zero-width characters), lone surrogates, private and unassigned code points and odd blanks. They are shown as
escapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

#: characters of any one text in a report; the store has the rest
TEXT_LIMIT = 4_000
LINE_LIMIT = 400
_DEPTH_LIMIT = 12
_ITEM_LIMIT = 500


def bound_text(text: str, limit: int) -> str:
    """At most ``limit`` characters, and a note of how many are missing."""
    return text if len(text) <= limit else f"{text[:limit]} [... {len(text) - limit} more characters]"


def _visible(ch: str) -> str:
    if ch.isprintable():
        return ch
    code = ord(ch)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


#: what the log readers of CI services obey: wherever it stands (Azure Pipelines, GitHub Actions, TeamCity, GitLab), and
#: where a line begins with it (GitHub Actions, after blanks too; Buildkite). The last character becomes an escape.
_COMMAND = re.compile(
    r"##(?=\[|vso\[|teamcity\[)|section_(?=(?:start|end):)"
    r"|::(?=(?:error|warning|notice|debug|group|endgroup|echo|stop-commands|add-mask|add-matcher|remove-matcher"
    r"|add-path|set-env|set-output|save-state)[ :])",
    re.IGNORECASE,
)
_COMMAND_LINE = re.compile(r"^[^\S\n]*(?:::|---|\+\+\+|~~~|\^\^\^)", re.MULTILINE)


def uncommanding(text: str) -> str:
    """The text without a workflow command of a CI service; nothing else is changed."""
    for pattern in (_COMMAND, _COMMAND_LINE):
        text = pattern.sub(lambda m: f"{m[0][:-1]}\\x{ord(m[0][-1]):02x}", text)
    return text


def uncommanding_json(text: str) -> str:
    """The same JSON value without a workflow command: ``#`` stands in strings only, where it has another spelling."""
    return text.replace("##", "#\\u0023").replace("section_", "section\\u005f")


def plain(text: object, limit: int = LINE_LIMIT) -> str:
    """One harmless line: newlines and tabs become blanks, everything unprintable an escape."""
    cut = bound_text(str(text), limit)
    cut = re.sub(r"[\r\n\t]+", " ", cut)
    return uncommanding(cut if cut.isprintable() else "".join(map(_visible, cut)))


def block(text: object, limit: int = TEXT_LIMIT) -> str:
    """Harmless text of several lines: newline and tab stay, everything else unprintable is an escape."""
    lines = bound_text(str(text), limit).replace("\r\n", "\n").split("\n")
    return uncommanding(
        "\n".join(
            line if line.replace("\t", "").isprintable() else "".join(ch if ch == "\t" else _visible(ch) for ch in line)
            for line in lines
        )
    )


def jsonable(value: Any, limit: int = TEXT_LIMIT, depth: int = 0) -> Any:
    """A JSON-like copy: strings bounded and free of lone surrogates and NUL, numbers finite (else null), nesting and
    lists bounded.
    """
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return re.sub(r"[\x00\ud800-\udfff]", lambda m: _visible(m.group()), bound_text(value, limit))
        case bytes():
            return jsonable(value.decode("utf-8", "backslashreplace"), limit)
        case _ if depth >= _DEPTH_LIMIT:
            return "[nested too deep]"
        case Mapping():
            pairs = list(value.items())[:_ITEM_LIMIT]
            return {jsonable(str(k), 200): jsonable(v, limit, depth + 1) for k, v in pairs}
        case Sequence() | set() | frozenset():
            items = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
            return [jsonable(item, limit, depth + 1) for item in items[:_ITEM_LIMIT]]
        case _:
            return jsonable(str(value), limit)


#: what Markdown, its tables or a mention parser would read; an underscore inside a word is a letter to them
_MEANS = re.compile(r"[\\`*\[\]|~$<]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|(?<=\])\(|(?<!\w)@(?=\w)")
#: what begins a heading, quote, list, rule or underline where it stands first
_BEGINS = re.compile(r"[#>+=-]|[0-9]{1,9}(?=[.)])")
#: a backslash would do, but not for every reader
_ENTITIES = {"<": "&lt;", "&": "&amp;", "@": "&#64;"}


def cell(text: object, limit: int = LINE_LIMIT) -> str:
    """A Markdown table cell or the text of a line: one line that is shown as it is, with a backslash only where a
    character would mean something. HTML, entities and mentions are written as entities, which no reader of Markdown
    takes for anything else."""
    line = plain(text, limit).strip()
    escaped = _MEANS.sub(lambda m: _ENTITIES.get(m[0], f"\\{m[0]}"), line)
    first = _BEGINS.match(escaped)
    if first is None:
        return escaped
    return f"{first[0]}\\{escaped[first.end() :]}" if first[0].isdecimal() else f"\\{escaped}"


def fence_text(text: object, limit: int = TEXT_LIMIT) -> str:
    """A Markdown code block whose fence is longer than any run of backticks inside."""
    body = block(text, limit)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", body)), default=0))
    return f"{fence}\n{body}\n{fence}"


def bold(text: str, limit: int = 300) -> str:
    """A Markdown cell in bold; four asterisks alone would be a rule across the page."""
    shown = cell(text, limit)
    return f"**{shown}**" if shown.strip() else shown


def percent(value: float | None, digits: int = 2) -> str:
    """A share as it stands in tables: 0.9324 -> "93.24"; a missing one is a dash."""
    return "–" if value is None else f"{100 * value:.{digits}f}"
