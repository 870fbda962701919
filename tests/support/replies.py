"""Answers as a suite sees them, made without a network: what completions and refusals say, and the exchanges they came
in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvv.core import (
    Choice,
    ErrorBody,
    Exchange,
    Fault,
    FaultKind,
    Frame,
    Identity,
    Observation,
    Role,
    Shape,
    Timing,
    ToolCall,
    UsageReport,
)


def completion(text: str | None = "ready", **fields: Any) -> Observation:
    """Content, and ``calls`` (name, arguments, id), ``finish``, ``reasoning`` in its ``field``, ``usage`` in its
    ``place``.
    """
    calls = tuple(
        ToolCall(
            index=at,
            id=call[2] if len(call) > 2 else f"{call[0]}_{at}",
            name=call[0],
            arguments=call[1],
            type="function",
        )
        for at, call in enumerate(fields.get("calls", ()))
    )
    reasoning = fields.get("reasoning")
    choice = Choice(
        index=0,
        role="assistant",
        answer=text,
        reasoning=reasoning,
        reasoning_field=None if reasoning is None else fields.get("field", "reasoning_content"),
        tool_calls=calls,
        finish_reason=fields.get("finish", "tool_calls" if calls else "stop"),
    )
    usage = (UsageReport(place=fields.get("place", "body"), frame=0, raw=fields["usage"]),) if "usage" in fields else ()
    return Observation(shape=Shape.COMPLETION, choices=(choice,), usage=usage)


def counts(prompt: int, completion: int = 1, cached: int | None = None) -> dict[str, Any]:
    """A usage object that adds up."""
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **details}


def refusal(message: str = "no", kind: str | None = "invalid_request_error", *, envelope: bool = True) -> Observation:
    return Observation(shape=Shape.ERROR, error=ErrorBody(message=message, type=kind, envelope=envelope))


def exchange(
    identity: Identity,
    status: int | None,
    *,
    frames: Sequence[Frame] = (),
    total_ms: float = 0.0,
    fault: FaultKind | None = None,
    content_type: str = "application/json",
) -> Exchange:
    return Exchange(
        identity=identity,
        attempt=1,
        role=Role.TARGET,
        started="",
        status=status,
        content_type=content_type,
        frames=tuple(frames),
        fault=Fault(kind=fault, detail="") if fault else None,
        timing=Timing(total_ms=total_ms),
    )
