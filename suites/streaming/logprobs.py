"""Log probabilities as numbers: what they must be whatever the model is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import exp
from typing import Any

from kvv.cases.checks import Check, CheckInput, CheckProblem
from kvv.cases.checks.base import cut, inconclusive, index_by_name, quote

#: rounding: a log probability may come in single precision or with few digits
NEAR = 2e-3
#: probabilities of a position sum to one at most; engines round each
MOST = 1.02
#: a chosen token cannot be so unlikely at every position: such values are signs, not probabilities
IMPOSSIBLE = -1000.0
#: characters of the tokens that end an answer
ENDING = 40
#: positions from which on equal lists show that they are one list
POSITIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One entry of logprobs.content: its token, value and alternatives (token, value)."""

    token: str
    value: float
    top: tuple[tuple[str, float], ...]


def positions(look: CheckInput) -> list[Position]:
    """The well-formed entries of the first choice in order; others are the passive rules' business."""
    return [
        one for frame in look.answered.exchange.frames for entry in _entries(frame.data) if (one := _position(entry))
    ]


def _entries(data: bytes) -> Iterator[Any]:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return
    for choice in (parsed.get("choices") or ()) if isinstance(parsed, dict) else ():
        match choice:
            case {"logprobs": {"content": list() as entries}} if choice.get("index", 0) == 0:
                yield from entries


def _position(entry: Any) -> Position | None:
    match entry:
        case {"token": str(token), "logprob": float() | int() as value}:
            top = tuple(
                (one["token"], float(one["logprob"]))
                for one in entry.get("top_logprobs") or ()
                if isinstance(one, dict)
                and isinstance(one.get("token"), str)
                and isinstance(one.get("logprob"), float | int)
            )
            return Position(token=token, value=float(value), top=top)
    return None


def logprob_values(look: CheckInput, asked: Any) -> CheckProblem | None:
    """With ``top_logprobs`` = ``asked``: so many alternatives, the chosen token's value equal to its entry's (or below
    all of them), sums of at most 1, and not the same list at every position.
    """
    found = positions(look)
    if len(found) < POSITIONS:
        return cut(look) or inconclusive("few-logprobs", f"{len(found)} positions have log probabilities")
    most, wanted = max(len(one.top) for one in found), int(asked)
    if most != wanted:
        return CheckProblem(reason="logprob-count", detail=f"{most} alternatives at most, {wanted} were asked for")
    problem = next((problem for one in found if (problem := _wrong(one)) is not None), None)
    if problem is not None:
        return problem
    if all(one.value < IMPOSSIBLE for one in found):
        return CheckProblem(reason="logprob-impossible", detail=f"every chosen token has about {found[0].value:.3g}")
    if len({one.token for one in found}) >= POSITIONS and len({one.top for one in found}) == 1:
        return CheckProblem(reason="logprobs-repeat", detail=f"all {len(found)} positions have the same alternatives")
    return None


def _wrong(one: Position) -> CheckProblem | None:
    total = sum(exp(min(value, 1.0)) for _, value in one.top)
    if total > MOST:
        return CheckProblem(
            reason="logprob-sum", detail=f"the alternatives of {quote(one.token)} have the probability {total:.2f}"
        )
    own = [value for token, value in one.top if token == one.token]
    if own and min(abs(value - one.value) for value in own) > NEAR:
        detail = f"{quote(one.token)} has {one.value:.4g}, and {own[0]:.4g} among its alternatives"
        return CheckProblem(reason="logprob-differs", detail=detail)
    if not own and one.top and one.value > min(value for _, value in one.top) + NEAR:
        detail = f"{quote(one.token)} has {one.value:.4g} and is missing among alternatives that are less likely"
        return CheckProblem(reason="logprob-missing", detail=detail)
    return None


def logprobs_join(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The tokens joined end with the content, a token that ends the answer aside; reasoning may stand before it."""
    joined = "".join(one.token for one in positions(look))
    answer = look.observation.answer.strip()
    if not joined or not answer:
        return cut(look) or inconclusive("few-logprobs", "there is nothing to compare")
    if answer in joined[-len(answer) - ENDING :]:
        return None
    return CheckProblem(reason="logprobs-do-not-join", detail=f"the tokens join to {quote(joined[-200:])}")


CHECKS: Mapping[str, Check] = index_by_name([logprob_values, logprobs_join])
