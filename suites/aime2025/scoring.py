"""Two readings of one answer: KVV's lenient one by math-verify, and a strict one (last box, an integer).

KVV's rule (benchmark ``aime2025`` of MoonshotAI/Kimi-Vendor-Verifier): math-verify parses the whole visible completion
with its default configuration, the first parsed object is compared with the gold answer (parsed from a doubly boxed
text) by ``verify(..., strict=False)``, and any exception is a wrong answer. It takes the last number of a text without
a box, so a truncated answer may earn a point. KVV's lock file has math-verify 0.8.0, which reads some adjacent boxes
and percentages otherwise than later versions (``pip install 'kvv[parity]'`` installs it); the row says which one
scored.

``score`` may hang or exhaust memory on hostile text: it is called in a worker process that is killed on a time-out,
with math-verify's own alarms off (they fail outside the main thread).
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

from kvv.protocol.visible_text import inspect_visible, visible

#: characters kept of an extracted answer
EXCERPT = 120
#: an AIME answer has three digits; longer integers cannot be right and are not converted
MAX_DIGITS = 18

_THINK_END = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_THINK_START = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_BOX = re.compile(r"\\boxed(?![A-Za-z])\s*")
_AROUND = r"(?:\\[,;:! ]|[\s$~])*"
_INTEGER = re.compile(rf"{_AROUND}([+-]?[0-9]{{1,{MAX_DIGITS}}}){_AROUND}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """``lenient``: KVV's rule on what follows a whole think block at the beginning; ``moonshot``: on what KVV scores;
    ``strict``: the last box holds the integer. The extracted texts are excerpts, "" where nothing was found.
    """

    lenient: bool
    moonshot: bool
    strict: bool
    lenient_answer: str
    strict_answer: str


def score(answer: str, gold: str, *, reasoned: bool = False) -> Score:
    """All readings of an answer; ``reasoned``: it came with a field for its reasoning. Never raises for any text; may
    not return in time (see the module).
    """
    own, inspected = visible(answer), inspect_visible(answer, reasoned=reasoned)
    lenient, shown = _lenient(own, gold)
    box = last_box(after_thinking(answer))
    want = gold_integer(gold)
    return Score(
        lenient=lenient,
        moonshot=lenient if inspected == own else _lenient(inspected, gold)[0],
        strict=want is not None and box is not None and integer(box) == want,
        lenient_answer=shown,
        strict_answer=(box or "")[:EXCERPT],
    )


@cache
def scorer_name() -> str:
    """The libraries whose versions change results."""
    return " ".join(f"{package}-{version(package)}" for package in ("math-verify", "latex2sympy2_extended"))


# --- strict ------------------------------------------------------------------------------------------


def after_thinking(answer: str) -> str:
    """The text behind the last leaked think block; a block that never ends leaves nothing behind its beginning."""
    ends = list(_THINK_END.finditer(answer))
    rest = answer[ends[-1].end() :] if ends else answer
    start = _THINK_START.search(rest)
    return rest[: start.start()] if start else rest


def last_box(text: str) -> str | None:
    r"""The content of the last ``\boxed{...}``, braces balanced; None where there is none or it never closes.

    Boxes are tried from the last one backwards only past boxes without a brace (``\boxed 7``), never past an unclosed
    one: a text cut inside its last box has not answered.
    """
    for found in reversed(list(_BOX.finditer(text))):
        start = found.end()
        if text[start : start + 1] != "{":
            continue
        end = _closing(text, start)
        return None if end is None else text[start + 1 : end]
    return None


def _closing(text: str, start: int) -> int | None:
    depth, position = 0, start
    while position < len(text):
        match text[position]:
            case "\\":
                position += 1  # an escaped brace is a character
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if depth == 0:
                    return position
        position += 1
    return None


def integer(text: str) -> int | None:
    """An integer written as digits, with an optional sign, leading zeros, and LaTeX spacing or dollar signs around;
    None for all else.
    """
    if len(text) > 4 * MAX_DIGITS:
        return None
    found = _INTEGER.fullmatch(text)
    return int(found[1]) if found else None


def gold_integer(gold: str) -> int | None:
    """The gold answer's integer; one public copy writes an angle's as ``336^\\circ``."""
    return integer(gold.removesuffix("^\\circ"))


# --- lenient -----------------------------------------------------------------------------------------


def _lenient(answer: str, gold: str) -> tuple[bool, str]:
    library = _math_verify()
    shown = ""
    try:
        parsed = library.parse(answer, parsing_timeout=None)
        if not parsed:
            return False, ""
        shown = str(parsed[-1] if isinstance(parsed[-1], str) else type(parsed[0]).__name__)[:EXCERPT]
        return bool(library.verify(_gold(gold), parsed[0], strict=False, timeout_seconds=None)), shown
    except Exception:  # noqa: BLE001 KVV's rule: any exception of the parser or of SymPy is a wrong answer
        return False, shown


@cache
def _gold(gold: str) -> Any:
    return _math_verify().parse(rf"\boxed{{\boxed{{{gold}}}}}", parsing_timeout=None)[0]


@cache
def _math_verify() -> Any:
    """Imported late (SymPy costs a second); its warnings that time-outs are off say what we chose."""
    library: Any = import_module("math_verify")
    for name in ("math_verify", "math_verify.parser", "math_verify.grader", "math_verify.utils"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return library
