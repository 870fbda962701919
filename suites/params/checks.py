"""What the pre-check reads out of log probabilities."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from kvv.cases.checks import Check, CheckInput, CheckProblem
from kvv.cases.checks.base import inconclusive, index_by_name
from kvv.core import Answered

#: alternatives that two answers must share, and how many nats they must lie apart, before their spread tells anything
LEAST_SHARED, LEAST_SPREAD = 3, 1.0
#: what lies below is no probability but a sign: OpenAI writes -9999 for a token that is as good as impossible
FLOOR = -50.0


def same_temperature(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ of, like, within }``: the first content token of both answers was drawn at the same temperature.

    A temperature of T widens the distances between log probabilities by 1/T, whatever the model: the ratio of the
    spreads of the alternatives that both answers show is the ratio of their temperatures. It must lie within 1 +-
    ``within``. Endpoints that report log probabilities from before the temperature always pass.
    """
    one, other = (_alternatives(look.siblings[wanted[key]]) for key in ("of", "like"))
    shared = sorted(one.keys() & other.keys())
    if len(shared) < LEAST_SHARED:
        return inconclusive(
            "few-alternatives",
            f"{len(shared)} alternatives of the first token are in both answers, want {LEAST_SHARED}",
        )
    spreads = [
        max(values[token] for token in shared) - min(values[token] for token in shared) for values in (one, other)
    ]
    if min(spreads) < LEAST_SPREAD:
        return inconclusive(
            "alternatives-alike", f"the alternatives lie {spreads[0]:.2f} and {spreads[1]:.2f} nats apart"
        )
    ratio = spreads[1] / spreads[0]
    if abs(ratio - 1) <= float(wanted["within"]):
        return None
    return CheckProblem(
        reason="other-temperature",
        detail=(
            f"log probabilities of {wanted['of']!r} lie {spreads[0]:.2f} nats apart, those of {wanted['like']!r}"
            f" {spreads[1]:.2f}: drawn at {ratio:.2f} times its temperature"
        ),
    )


def _alternatives(answered: Answered) -> Mapping[str, float]:
    """Token -> log probability, of the first token of the content; of one that comes twice the first."""
    for frame in answered.exchange.frames:
        for entry in _entries(frame.data):
            shown: dict[str, float] = {}
            for one in entry.get("top_logprobs") or ():
                match one:
                    case {"token": str(token), "logprob": float() | int() as value} if (
                        FLOOR < value <= sys.float_info.max
                    ):
                        shown.setdefault(token, float(value))
            return shown
    return {}


def _entries(data: bytes) -> Iterator[Mapping[str, Any]]:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return
    for choice in (parsed.get("choices") or ()) if isinstance(parsed, dict) else ():
        match choice:
            case {"logprobs": {"content": [dict() as first, *_]}}:
                yield first


COMPARISONS: Mapping[str, Check] = index_by_name([same_temperature])
