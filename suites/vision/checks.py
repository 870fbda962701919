"""Whether an answer says what its pictures show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvv.cases.checks import Check, CheckInput, CheckProblem
from kvv.cases.checks.base import cut, index_by_name, quote
from kvv.suites.vision.drawing import COLOURS

#: digits of a number that is no ordinal or count beside it
_LARGE = 3
SHAPES = ("circle", "square", "triangle")


def reads(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The numbers of the content are these, in this order: a number, or a list of them.

    Small numbers beside large ones ("picture 2 shows 4817") and separators within a single number are forgiven; a model
    may misread once, two of two samples must.
    """
    numbers = [str(number) for number in (wanted if isinstance(wanted, (list, tuple)) else [wanted])]
    found = re.findall(r"\d+", look.observation.answer)
    least = min(min(map(len, numbers)), _LARGE)
    if [number for number in found if len(number) >= least] == numbers or (
        len(numbers) == 1 and "".join(found) == numbers[0]
    ):
        return None
    return cut(look) or CheckProblem(
        reason="misread", detail=f"content {quote(look.observation.answer)}, the pictures show {', '.join(numbers)}"
    )


def names(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The content names this colour or shape and no other."""
    known = SHAPES if wanted in SHAPES else tuple(COLOURS)
    words = re.findall(r"[a-z]+", look.observation.answer.lower().replace("gray", "grey"))
    said = [word for word in known if word in words]
    if said == [wanted]:
        return None
    return cut(look) or CheckProblem(
        reason="misread", detail=f"content {quote(look.observation.answer)}, the picture shows {wanted}"
    )


CHECKS: Mapping[str, Check] = index_by_name([reads, names])
