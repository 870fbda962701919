"""A benchmark's valid request that was refused: believed only when the same request is refused again while a plain one
is answered.

A 400 or 422 on a valid request is the vendor's failure, and one more kept sample confirms it. An
account or a gateway that gave out in mid-run refuses everything: then the plain request is refused too, and nothing is
known of the vendor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvv.core import Answered, Ask, Case, Evidence, Outcome, Request, Verdict
from kvv.protocol.classify import BESIDE, Classification, assess, judge_unanswered

#: fields of a body that may be what was refused: the plain request goes without
_OWN_FIELDS = frozenset(
    [
        *(
            "messages",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "response_format",
            "stop",
            "stream",
            "stream_options",
            "n",
            "seed",
        ),
        *("temperature", "top_p", "max_tokens", "max_completion_tokens", "presence_penalty", "frequency_penalty"),
        *("thinking", "chat_template_kwargs", "reasoning_effort"),
    ]
)


def is_refused(answered: Answered) -> bool:
    return assess(answered.exchange, answered.observation).standing is Classification.REFUSED


def once_more(request: Request) -> Ask:
    """The same request, and beside it the plainest one to the same model."""
    assert isinstance(request.body, Mapping)
    body: dict[str, Any] = {name: value for name, value in request.body.items() if name not in _OWN_FIELDS}
    body["messages"] = [{"role": "user", "content": "Reply with exactly: ready"}]
    body["max_tokens"] = 64
    # never an answer of a minute ago: an account may have given out since
    control = replace(request, body=body, stream=False, purpose=BESIDE, expect_prompt_tokens=0)
    return Ask(requests=(replace(request, purpose="confirm"), control))


def judge_repeated(case: Case, first: Answered, again: Answered, control: Answered) -> Verdict:
    """FAIL for a refusal that was repeated beside an answered control, else INCONCLUSIVE with what stood against it."""
    found = judge_unanswered(case, first)
    assert found is not None
    second = assess(again.exchange, again.observation)
    evidence = (*found.evidence, Evidence(exchange=again.exchange.identity.key, excerpt=second.detail))
    if second.standing is Classification.ANSWERED:
        return _open(found, evidence, "unstable-refusal", "the same valid request was refused once and answered once")
    if second.standing is not Classification.REFUSED:
        return _open(found, evidence, second.reason, f"refused, and asked again without an answer: {second.detail}")
    if assess(control.exchange, control.observation).standing is not Classification.ANSWERED:
        return _open(
            found,
            evidence,
            "control-not-answered",
            f"refused, but the plainest request was not answered either: {found.detail}",
        )
    return replace(found, evidence=evidence)


def judge_recorded(case: Case, answered: Answered) -> Verdict:
    """A recorded refusal, which nobody can ask about again."""
    found = judge_unanswered(case, answered)
    assert found is not None
    return _open(found, found.evidence, "unconfirmed-refusal", f"refused once, as recorded: {found.detail}")


def _open(found: Verdict, evidence: tuple[Evidence, ...], reason: str, detail: str) -> Verdict:
    return replace(found, outcome=Outcome.INCONCLUSIVE, reason=reason, detail=detail[:500], evidence=evidence)
