"""Comparisons of two groups of samples: what one way of asking gets, the other must get too.

A model may answer any prompt wrongly. What it does in all samples of one group and in none of the other is the
server's doing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kvv.cases.checks.base import Check, CheckInput, CheckProblem, group, inconclusive, index_by_name, quote
from kvv.core import Answered


def texts_alike(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ of, like }``: where all samples of ``like`` have one text, not all of ``of`` have another one.

    With ``white-space`` texts are compared with the white space around them, else without.
    """
    exact = bool(wanted.get("white-space"))
    of, like = ([_text(answered, exact=exact) for answered in _uncut(look, wanted[key])] for key in ("of", "like"))
    if not of or not like:
        return inconclusive("cut-by-length", "the answers were cut by length")
    if len(set(like)) > 1:
        return inconclusive("texts-vary", f"the samples of {wanted['like']!r} differ among themselves")
    if like[0] in of:
        return None
    common = Counter(of).most_common(1)[0][0]
    return CheckProblem(
        reason="texts-differ",
        detail=f"{wanted['of']} {quote(common)}, {wanted['like']} {quote(like[0])}, in every sample",
    )


def as_often(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ of, like, says }`` or ``{ of, like, reasoning = true }``: what every sample of ``like`` shows, some sample
    of ``of`` shows too.
    """
    of, like = ([_shows(one, wanted) for one in group(look, wanted[key])] for key in ("of", "like"))
    what = "reasoning" if "reasoning" in wanted else repr(str(wanted["says"]))
    detail = (
        f"{what} in {sum(of)} of {len(of)} answers to {wanted['of']}, {sum(like)} of {len(like)} to {wanted['like']}"
    )
    if any(of):
        return None
    if not all(like) or not like:
        return inconclusive("not-shown", detail)
    return CheckProblem(reason="lost-in-one-form", detail=detail)


def cut_in_reasoning(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ cut, free }``: where the answer without a limit thinks for long, the one cut at its first tokens has no
    content: what it has is reasoning.
    """
    short, free = (look.siblings[wanted[key]].observation for key in ("cut", "free"))
    if short.finish_reason != "length":
        return inconclusive("ended-early", "the limit did not cut the answer")
    if len(free.reasoning) < _LONG_REASONING:
        return inconclusive("no-reasoning", "the answer without a limit hardly thinks")
    if not short.answer.strip():
        return None
    return CheckProblem(
        reason="reasoning-as-content",
        detail=f"cut inside its reasoning the answer has the content {quote(short.answer)}",
    )


#: characters of reasoning that no limit of a few tokens gets past
_LONG_REASONING = 100


def _uncut(look: CheckInput, name: str) -> list[Answered]:
    return [one for one in group(look, name) if one.observation.finish_reason != "length"]


def _text(answered: Answered, *, exact: bool) -> str:
    text = answered.observation.answer
    return text if exact else text.strip()


def _shows(answered: Answered, wanted: Mapping[str, Any]) -> bool:
    observation = answered.observation
    if "reasoning" in wanted:
        return bool(observation.reasoning.strip())
    return str(wanted["says"]).casefold() in observation.answer.casefold()


ALIKE: Mapping[str, Check] = index_by_name([texts_alike, as_often, cut_in_reasoning])
