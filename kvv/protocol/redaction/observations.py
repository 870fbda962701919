"""Lays a caller's redaction over everything of an answer that will be stored or shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvv.core import Choice, Finding, Frame, Observation, ToolCall

#: maps bytes to what may be stored of them; returns its argument when there is nothing to hide
Redact = Callable[[bytes], bytes]


def redact_text(text: str, redact: Redact) -> str:
    data = text.encode("utf-8", "surrogatepass")
    clean = redact(data)
    return text if clean == data else clean.decode("utf-8", "surrogatepass")


def redact_frames(frames: tuple[Frame, ...], redact: Redact) -> tuple[Frame, ...]:
    return tuple(Frame(frame.number, frame.offset_ms, redact(frame.data), frame.event) for frame in frames)


def redact_findings(findings: tuple[Finding, ...], redact: Redact) -> tuple[Finding, ...]:
    return tuple(
        replace(found, message=redact_text(found.message, redact), excerpt=redact_text(found.excerpt, redact))
        for found in findings
    )


def redact_observation(observation: Observation, redact: Redact) -> Observation:
    """Texts and the error's message; counts and names are left alone."""
    error = observation.error
    return replace(
        observation,
        choices=tuple(_choice(choice, redact) for choice in observation.choices),
        error=error and replace(error, message=redact_text(error.message, redact)),
    )


def _choice(choice: Choice, redact: Redact) -> Choice:
    return replace(
        choice,
        answer=choice.answer and redact_text(choice.answer, redact),
        reasoning=choice.reasoning and redact_text(choice.reasoning, redact),
        refusal=choice.refusal and redact_text(choice.refusal, redact),
        tool_calls=tuple(_call(call, redact) for call in choice.tool_calls),
    )


def _call(call: ToolCall, redact: Redact) -> ToolCall:
    return replace(call, arguments=redact_text(call.arguments, redact)) if call.arguments else call
