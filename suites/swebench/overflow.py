"""Refusals in the middle of an agent's work: a history that no longer fits, and what only calls itself that.

A refusal is an overflow where the error's code says so or the message states a size. The promised window decides whose
it is: a history that would have fitted was refused by the vendor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvv.cases.confirm_refusal import judge_repeated
from kvv.core import Answered, Case, ErrorBody, Outcome, Verdict
from kvv.protocol.encode import encode

#: error codes and types of servers that say nothing else
CODES = frozenset(
    {
        *("context_length_exceeded", "context_window_exceeded", "model_context_window_exceeded"),
        *("string_above_max_length", "exceed_context_size_error", "prompt_too_long"),
    }
)
#: a limit in tokens that stands in a sentence about the prompt's length
_SIZE = r"(\d[\d,]{3,})"
_LIMITS = tuple(
    re.compile(pattern.replace("SIZE", _SIZE), re.I)
    for pattern in (
        r"(?:context|model|token|input|sequence)[^.\d]{0,60}(?:length|limit|window)[^.\d]{0,30}SIZE",
        r"SIZE tokens? (?:>|exceeds?|is longer than)[^\d]{0,60}SIZE",
        r"too long: SIZE[^\d]{0,20}>[^\d]{0,20}SIZE",
        r"input \(SIZE tokens?\)[^\d]{0,80}\(SIZE tokens?\)",
    )
)
#: limits in tokens of another kind
_RATES = re.compile(r"per (?:minute|second|hour|day)|\b[TR]P[MD]\b|rate.?limit|quota", re.I)
#: an error message is hostile: this much of it is read
MESSAGE = 2_000
#: tokens that a chat template may add to what was sent
TEMPLATE = 2_000

_REASONING = re.compile(
    r"reasoning_content\b.{0,80}(?:missing|required|must|expected|not found)|missing.{0,40}reasoning_content", re.I
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a refusal says of its cause: ``limit`` in tokens where it states one."""

    limit: int | None = None


def claimed(error: ErrorBody | None) -> Claim | None:
    """None for a refusal that does not say, by its code or with a size, that the request is too long."""
    if error is None:
        return None
    limit = _stated_limit(error.message[:MESSAGE])
    words = {str(word).lower() for word in (error.code, error.type) if word is not None}
    return Claim(limit=limit) if limit is not None or words & CODES else None


def _stated_limit(message: str) -> int | None:
    if _RATES.search(message):
        return None
    for pattern in _LIMITS:
        if found := pattern.search(message):
            return int(found[found.lastindex or 1].replace(",", "")[:12])
    return None


@dataclass(slots=True)
class Sizes:
    """Tokens of the history, from the usage of the last answer and what was added to it since."""

    tokens: int | None = None
    size: int = 0

    def answered(self, answered: Answered) -> None:
        said = answered.observation
        prompt = said.tokens("prompt_tokens")
        self.tokens = None if prompt is None else prompt + (said.tokens("completion_tokens") or 0)
        self.size = _bytes(answered)

    def at_most(self, refused: Answered) -> int:
        """No tokenizer makes more tokens of a text than it has bytes."""
        size = _bytes(refused)
        known = size if self.tokens is None else min(size, self.tokens + max(0, size - self.size))
        return known + TEMPLATE


def _bytes(answered: Answered) -> int:
    return encode(answered.request.body).size


def below_promise(claim: Claim, size: int, inputs: Mapping[str, Any]) -> str:
    """Why an overflow is none by what the model promises, "" where it may be one. ``size`` is the history's at most."""
    window = inputs.get("window")
    if not window:
        return ""
    if claim.limit is not None and claim.limit < window:
        return f"the endpoint's window is {claim.limit:,} tokens; {window:,} are promised"
    room = inputs["body"].get("max_tokens") or inputs["body"].get("max_completion_tokens") or 0
    if size + room <= window:
        return (
            f"refused as too long at no more than {size:,} tokens and {room:,} for the answer; {window:,} are promised"
        )
    return ""


def judge_refusal(case: Case, first: Answered, again: Answered, control: Answered, *, short: str) -> Verdict:
    """As any refusal's, with a reason of its own where a shorter window than promised, or a field that was sent back as
    it came, is behind it."""
    found = judge_repeated(case, first, again, control)
    if found.outcome is not Outcome.FAIL:
        return found
    if short:
        return replace(found, reason="context-below-promise", detail=f"{short}: {found.detail}"[:500])
    error = first.observation.error
    if error is not None and _REASONING.search(error.message[:MESSAGE]):
        return replace(found, reason="reasoning-demanded")
    return found
