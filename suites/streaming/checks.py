"""What the streaming suite asks of frames, beyond the passive rules that see every stream anyway."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from kvv.cases.checks import Check, CheckInput, CheckProblem
from kvv.cases.checks.base import cut, inconclusive, index_by_name, prompt_tokens_of, quote
from kvv.core import Outcome

#: an answer that takes less than this many milliseconds tells nothing about how it was paced
LONG_MS = 2_000.0
#: a stream whose increments all fall into this last share of its time was held back
BURST_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One increment: milliseconds since the request, and its text."""

    offset_ms: float
    text: str


def pieces(look: CheckInput, kind: str) -> list[Piece]:
    """The increments of the first choice: ``content``, ``reasoning`` (whatever its field) or ``arguments``, in order of
    arrival.
    """
    return [
        Piece(offset_ms=frame.offset_ms, text=text)
        for frame in look.answered.exchange.frames
        for delta in _deltas(frame.data)
        for text in _texts(delta, kind)
        if text
    ]


def _deltas(data: bytes) -> Iterator[Mapping[str, Any]]:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return
    for choice in parsed.get("choices") or () if isinstance(parsed, dict) else ():
        match choice:
            case {"delta": dict() as delta} if choice.get("index", 0) == 0:
                yield delta


def _texts(delta: Mapping[str, Any], kind: str) -> Iterator[str]:
    match kind:
        case "content":
            values: list[Any] = [delta.get("content")]
        case "reasoning":
            values = [delta.get("reasoning_content"), delta.get("reasoning")]
        case _:
            calls = delta.get("tool_calls")
            functions = (
                [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
            )
            values = [function.get("arguments") for function in functions if isinstance(function, dict)]
    yield from (value for value in values if isinstance(value, str))


def comes_in_pieces(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ kind, at-least }``: the text of this kind came in at least so many increments."""
    if not look.answered.exchange.frames_kept:
        return inconclusive("frames-not-kept", "the frames of this answer were not kept")
    found = pieces(look, wanted["kind"])
    if len(found) >= wanted["at-least"]:
        return None
    size = sum(len(piece.text) for piece in found)
    if not size:
        return cut(look) or inconclusive("nothing-to-see", f"the answer has no {wanted['kind']}")
    detail = (
        f"{size} characters of {wanted['kind']} came in {len(found)} increments, want at least {wanted['at-least']}"
    )
    return CheckProblem(reason="one-burst", detail=detail)


def arrives_over_time(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """Increments are sent as they are made: not all of them in the last tenth of an answer that took two seconds or
    more.
    """
    times = [piece.offset_ms for kind in ("reasoning", "content", "arguments") for piece in pieces(look, kind)]
    total = look.answered.exchange.timing.total_ms
    if len(times) < 10 or total < LONG_MS:
        return None
    spread = max(times) - min(times)
    if spread >= BURST_SHARE * total:
        return None
    detail = f"{len(times)} increments within {spread:.0f} ms at the end of {total:.0f} ms"
    return CheckProblem(reason="held-back", detail=detail)


def counts_up(look: CheckInput, goal: Any) -> CheckProblem | None:
    """The content counts from 1 to this number without a gap or a repeat; cut by length, to wherever it was cut.

    A model that writes dots instead of numbers, or none at all, shows nothing.
    """
    text = look.observation.answer
    numbers = [int(number[:12]) for number in re.findall(r"\d+", text)]
    if not numbers or "..." in text or "…" in text:
        return cut(look) or inconclusive("no-count", f"the model did not count: {quote(text)}")
    ended = look.observation.finish_reason == "length"
    if ended:
        numbers.pop()  # it may be cut in the middle
    slip = next((at for at, number in enumerate(numbers, 1) if number != at), None)
    if slip is not None:
        around = numbers[max(0, slip - 3) : slip + 2]
        return CheckProblem(
            reason="miscounted", detail=f"number {slip} of the content is {numbers[slip - 1]} (around it {around})"
        )
    if ended or len(numbers) >= int(goal):
        return None
    detail = f"the content counts to {len(numbers)}, want {goal}; finish_reason {look.observation.finish_reason!r}"
    return CheckProblem(reason="broke-off", detail=detail)


def cut_at(look: CheckInput, limit: Any) -> CheckProblem | None:
    """The answer was cut at ``max_tokens``: finish_reason length, and no more tokens than that.

    A model that stopped by itself before the limit shows nothing; one that reached it and says otherwise does.
    """
    tokens, finish = look.observation.tokens("completion_tokens"), look.observation.finish_reason
    if tokens is not None and tokens > int(limit):
        return CheckProblem(reason="limit-exceeded", detail=f"{tokens} completion tokens where the limit is {limit}")
    if finish == "length":
        return None
    if tokens is None or tokens >= int(limit):
        return CheckProblem(
            reason="finish-reason",
            detail=f"finish_reason is {finish!r} after {tokens} tokens of at most {limit}, want 'length'",
        )
    if finish is None:
        return CheckProblem(reason="finish-reason", detail="no finish_reason")
    return inconclusive("ended-early", f"the model ended by itself after {tokens} tokens, before the limit of {limit}")


def has_logprobs(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """There are log probabilities beside the content."""
    if look.observation.first.logprobs > 0:
        return None
    return CheckProblem(reason="no-logprobs", detail="logprobs were asked for and are nowhere in the answer")


def choices(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ n, says }``: n choices with the indices 0 to n-1, each finished, each with this text in its content."""
    found = look.observation.choices
    indices = sorted(choice.index if choice.index is not None else -1 for choice in found)
    if indices != list(range(int(wanted["n"]))):
        return CheckProblem(
            reason="choice-count", detail=f"choices have the indices {indices}, want 0 to {int(wanted['n']) - 1}"
        )
    for choice in found:
        if choice.finish_reason is None:
            return CheckProblem(reason="choice-unfinished", detail=f"choice {choice.index} has no finish_reason")
        if str(wanted["says"]).casefold() not in (choice.answer or "").casefold() and choice.finish_reason != "length":
            return CheckProblem(reason="wrong-answer", detail=f"choice {choice.index} says {quote(choice.answer)}")
    return None


def usage_place(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """Usage stands in this place (``body``, or ``summary``: a frame of its own after the last choice); ``nowhere``
    notes where it stands unasked.
    """
    places = [report.place for report in look.observation.usage if report.place != "header"]
    shown = ", ".join(dict.fromkeys(places))
    if wanted == "nowhere":
        if not places:
            return None
        return CheckProblem(
            reason="usage-unasked", detail=f"usage in {shown} although it was not asked for", outcome=Outcome.PASS
        )
    if wanted in places:
        return None
    return CheckProblem(
        reason="no-usage", detail=f"usage stands {'in ' + shown if places else 'nowhere'}, want it in {wanted}"
    )


def accounted_alike(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ streamed, whole, before }``: lists of answers, each of which came back as history in a request named
    ``after-...``.

    What an answer's text counts as history (over the request ``before``, which lacks it) falls short of its
    completion_tokens by the marks between its parts: as far for a streamed answer as for a whole one, or text was lost
    on the way. A text may be made of other tokens than it is read as, so the medians must differ.
    """
    short: dict[str, float] = {}
    for kind in ("streamed", "whole"):
        found = [_shortfall(look, name, wanted["before"]) for name in wanted[kind]]
        told = [one for one in found if isinstance(one, int)]
        if len(told) < len(found):
            return next(one for one in found if isinstance(one, CheckProblem))
        short[kind] = median(told)
    lost = abs(short["streamed"] - short["whole"])
    if lost < 1:
        return None
    kind = "streamed" if short["streamed"] > short["whole"] else "whole"
    detail = (
        f"the text of {kind} answers falls {short[kind]:g} tokens short of completion_tokens, {lost:g} more than that"
        " of the others"
    )
    return CheckProblem(reason="tokens-lost", detail=detail)


def _shortfall(look: CheckInput, name: str, before: str) -> int | CheckProblem:
    """Tokens that the answer ``name`` was charged beyond those which its text adds to a prompt."""
    observation = look.siblings[name].observation
    if observation.finish_reason == "length":
        return inconclusive("cut-by-length", f"the answer {name!r} was cut by length")
    spent = observation.tokens("completion_tokens")
    if spent is None:
        return inconclusive("no-completion-tokens", f"the answer {name!r} reports no usage.completion_tokens")
    after, without = prompt_tokens_of(look, f"after-{name}"), prompt_tokens_of(look, before)
    if isinstance(after, CheckProblem):
        return after
    return without if isinstance(without, CheckProblem) else spent - (after - without)


COMPARISONS: Mapping[str, Check] = index_by_name([accounted_alike])
CHECKS: Mapping[str, Check] = index_by_name(
    [comes_in_pieces, arrives_over_time, counts_up, cut_at, has_logprobs, choices, usage_place]
)
