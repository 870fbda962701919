"""What the long-context suite asks of answers and counts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from kvv.cases.checks import Check, CheckInput, CheckProblem
from kvv.cases.checks.base import cut, inconclusive, index_by_name, prompt_tokens_of, quote

#: a segment must add at least this share of what the first segments added per token asked for
PLATEAU = 0.5
#: tokens a number that are ample for a count, its separators and the thinking before it
AMPLE = 10


def finds(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The content holds the needle's value. A model may overlook one once; two of two samples must miss it."""
    if str(wanted) in look.observation.answer.replace(",", "").replace(" ", ""):
        return None
    return cut(look) or CheckProblem(
        reason="needle-missed", detail=f"content is {quote(look.observation.answer)}, want {wanted}"
    )


def no_plateau(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ name = size, ... }``: usage.prompt_tokens keeps pace with the size of the prompt, from each name to the next
    larger one.

    A prompt that is cut in silence shows as counts that stand still: a segment that adds less than half of what the
    steepest segment adds for the same size.
    """
    counts: list[tuple[str, float, int]] = []
    for name, size in sorted(wanted.items(), key=lambda item: float(item[1])):
        tokens = prompt_tokens_of(look, name)
        if isinstance(tokens, CheckProblem):
            return tokens
        counts.append((name, float(size), tokens))
    slopes = [(later[0], (later[2] - earlier[2]) / (later[1] - earlier[1])) for earlier, later in pairwise(counts)]
    steepest = max(slope for _, slope in slopes)
    shown = ", ".join(f"{name} {tokens}" for name, _, tokens in counts)
    if steepest <= 0:
        return CheckProblem(
            reason="prompt-tokens-plateau", detail=f"prompt_tokens does not grow with the prompt: {shown}"
        )
    slow = next((name for name, slope in slopes if slope < PLATEAU * steepest), None)
    if slow is None:
        return None
    return CheckProblem(reason="prompt-tokens-plateau", detail=f"prompt_tokens stands still towards {slow}: {shown}")


def counts_to(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The content was not cut: it ends by itself, and a count reaches its goal. An answer that stops short by choice
    shows nothing, nor does one that was given room for the count many times over and did something else with it.
    """
    if look.observation.finish_reason == "length":
        tokens = look.observation.tokens("completion_tokens")
        if tokens is not None and tokens > AMPLE * int(wanted):
            return inconclusive("did-not-count", f"cut after {tokens} completion tokens, ample for a count to {wanted}")
        return CheckProblem(
            reason="small-default-budget",
            detail=f"cut by length after {tokens} completion tokens although no max_tokens was sent",
        )
    if str(wanted) in look.observation.answer:
        return None
    return inconclusive("ended-early", f"the answer ends before {wanted}: {quote(look.observation.answer[-60:])}")


CHECKS: Mapping[str, Check] = index_by_name([finds, counts_to])
COMPARISONS: Mapping[str, Check] = index_by_name([no_plateau])
