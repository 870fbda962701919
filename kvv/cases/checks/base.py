"""What a check sees and what it may say.

A check is a pure function of an answered request and of the value that stands beside its name in the case file. It is
named after what it demands; its name in a case file is the function's, with hyphens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvv.core import Answered, Case, Observation, Outcome

#: characters of an answer that a detail quotes
QUOTED = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckProblem:
    """``outcome`` FAIL: the answer breaks the requirement; INCONCLUSIVE: this answer cannot show it; PASS: kept, but
    something worth a note was seen. One more sample must show a FAIL too, or it proves nothing."""

    reason: str
    detail: str
    outcome: Outcome = Outcome.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInput:
    """One answer, the case it belongs to, and every answer of the case so far by its request's name (this one
    included).
    """

    answered: Answered
    case: Case
    siblings: Mapping[str, Answered]

    @property
    def observation(self) -> Observation:
        return self.answered.observation

    @property
    def sent(self) -> Mapping[str, Any]:
        """The request's body; empty where raw bytes were sent."""
        body = self.answered.request.body
        return body if isinstance(body, Mapping) else {}


Check = Callable[[CheckInput, Any], "CheckProblem | None"]


def index_by_name(functions: Iterable[Check]) -> dict[str, Check]:
    return {function.__name__.replace("_", "-"): function for function in functions}


def inconclusive(reason: str, detail: str) -> CheckProblem:
    return CheckProblem(reason=reason, detail=detail, outcome=Outcome.INCONCLUSIVE)


def quote(text: str | None) -> str:
    """Bounded and escaped: model output is hostile text."""
    if text is None:
        return "nothing"
    return repr(text if len(text) <= QUOTED else text[: QUOTED - 1] + "…")


def cut(look: CheckInput) -> CheckProblem | None:
    """An answer cut by length cannot show what would have come after."""
    if look.observation.finish_reason == "length":
        return inconclusive("cut-by-length", "the answer was cut by length before it could show this")
    return None


def group(look: CheckInput, name: str) -> list[Answered]:
    """The samples of the request ``name``."""
    return [answered for key, answered in look.siblings.items() if key == name or key.startswith(f"{name}.")]


def prompt_tokens_of(look: CheckInput, name: str) -> int | CheckProblem:
    """usage.prompt_tokens of the named answer; a Problem where it has none (that usage is there is another rule's
    business).
    """
    tokens = look.siblings[name].observation.tokens("prompt_tokens")
    return (
        inconclusive("no-prompt-tokens", f"the answer to {name!r} reports no usage.prompt_tokens")
        if tokens is None
        else tokens
    )
