"""One response: did it call, do its calls hold, and if not, why. Hostile text goes in: call this where it can be
killed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from kvv.core import Observation, ToolCall
from kvv.profiles.profile import Markers
from kvv.suites.toolcall.k2vv import declared_tools, request_text
from kvv.suites.toolcall.schema import Failure, FailureClass, SchemaCheck, bound_message

#: failures of one response that are kept as facts; all are counted
KEPT_FAILURES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """``failures`` has one entry per failed call, the endpoint's and the data set's alike."""

    finish_reason: str | None
    triggered: bool
    tools: tuple[str, ...]
    valid_calls: int
    failures: tuple[Failure, ...]
    k2vv_valid: bool
    ambiguous: int
    call_digest: float = 0.0

    @property
    def own_failures(self) -> tuple[Failure, ...]:
        """Those that are the endpoint's."""
        return tuple(f for f in self.failures if f.failure is not FailureClass.SCHEMA_UNUSABLE)

    @property
    def unusable(self) -> int:
        """Calls whose tool's own schema is broken: nobody can tell whether they are right."""
        return len(self.failures) - len(self.own_failures)

    @property
    def schema_valid(self) -> bool:
        """There are calls and all of them hold."""
        return bool(self.tools) and not self.failures

    def values(self) -> dict[str, float]:
        """What the suite's metrics and its reference files are made of."""
        return {
            "triggered": float(self.triggered),
            "called": float(bool(self.tools)),
            "calls": float(len(self.tools)),
            "valid_calls": float(self.valid_calls),
            "schema_valid": float(self.schema_valid),
            "schema_valid_k2vv": float(self.k2vv_valid),
            "unusable_calls": float(self.unusable),
            "ambiguous_calls": float(self.ambiguous),
            "call_digest": self.call_digest,
        }

    def facts(self) -> dict[str, Any]:
        counts: dict[str, int] = {}
        for failure in self.failures:
            counts[failure.failure.value] = counts.get(failure.failure.value, 0) + 1
        return {
            "finish_reason": bound_message(self.finish_reason) if self.finish_reason is not None else None,
            "tools": list(self.tools[:KEPT_FAILURES]),
            "failures": counts,
            "failed_calls": [failure.as_fact() for failure in self.failures[:KEPT_FAILURES]],
        }


def tool_markers(markers: Markers) -> tuple[str, ...]:
    """Texts whose sight means that a call was not parsed. Of the special tokens only those in ``<|...|>``: ``[EOS]``
    may be prose.
    """
    return (*markers.tools, *(text for text in markers.special if text.startswith("<|")))


def score(body: Mapping[str, Any], observation: Observation, markers: Sequence[str]) -> Scored:
    """Score one answer to ``body``. ``markers`` must never reach a client; one that the request itself quotes is no
    leak.
    """
    check = SchemaCheck(declared_tools(body))
    quoted = request_text(body) if markers else ""
    markers = [marker for marker in markers if marker not in quoted]
    finish = observation.finish_reason
    checked = [(call, check.check(call)) for call in observation.tool_calls]
    failures = [
        failure
        for place, (call, found) in enumerate(checked, start=1)
        if (failure := _failure(call, found.failure, markers, cut=finish == "length" and place == len(checked)))
        is not None
    ]
    valid_calls = len(checked) - len(failures)
    leaked = _first(markers, observation.answer) or (not checked and _first(markers, observation.reasoning))
    if leaked:
        failures.append(Failure(failure=FailureClass.MARKERS_LEAKED, message=f"{leaked} in the text"))
    elif finish == "tool_calls" and not checked:
        failures.append(
            Failure(
                failure=FailureClass.NO_CALL_DESPITE_FINISH, message="finish_reason is tool_calls, and there is no call"
            )
        )
    return Scored(
        finish_reason=finish,
        triggered=finish == "tool_calls",
        tools=tuple(bound_message(call.name or "") for call, _ in checked),
        valid_calls=valid_calls,
        failures=tuple(failures),
        ambiguous=sum(found.ambiguous for _, found in checked),
        call_digest=digest_calls(observation.tool_calls),
        k2vv_valid=finish == "tool_calls" and bool(checked) and all(found.k2vv for _, found in checked),
    )


def digest_calls(calls: Sequence[ToolCall]) -> float:
    """A number above 0 and up to 1 that is equal for equal calls, 0 without any: tools and arguments, whatever the
    order of calls and members, and however blanks and numbers are written. Arguments that are no JSON count as text.
    """
    if not calls:
        return 0.0
    told = sorted(json.dumps([call.name or "", _canonical(call.arguments)]) for call in calls)
    digest = hashlib.sha256("\n".join(told).encode()).digest()
    # 48 bits are exact in a float, and reference files hold numbers from 0 to 1
    return (int.from_bytes(digest[:6], "big") + 1) / 2**48


def _canonical(arguments: str) -> str:
    try:
        found = json.loads(arguments, parse_float=_number, parse_constant=_no_number)
        return json.dumps(found, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments


def _number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() else value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _failure(call: ToolCall, failure: Failure | None, markers: Sequence[str], *, cut: bool) -> Failure | None:
    """The one class of a call: a leaked marker explains more than what it broke, a cut more than the half it left."""
    leaked = _first(markers, call.name or "") or _first(markers, call.arguments)
    if leaked:
        return Failure(
            failure=FailureClass.MARKERS_LEAKED, tool=bound_message(call.name or ""), message=f"{leaked} in the call"
        )
    if failure is not None and failure.failure is FailureClass.ARGUMENTS_NOT_JSON and cut:
        return replace(failure, failure=FailureClass.CUT_BY_LENGTH)
    return failure


def _first(markers: Sequence[str], text: str) -> str | None:
    return next((marker for marker in markers if marker in text), None)
