"""What an endpoint says of its rate limit in a response's head."""

from __future__ import annotations

import re

from kvv.core import Exchange
from kvv.protocol.classify import retry_after_seconds

_REMAINING = re.compile(r"(x-rate-?limit|ratelimit)-remaining(|-requests|-tokens)")
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def rate_limit_wait_s(exchange: Exchange) -> float | None:
    """Seconds to wait after a refusal: Retry-After, else the longest reset of what is used up (requests or tokens).

    Reads ``x-ratelimit-*`` as OpenAI documents them ("6m0s", "20ms") and ``ratelimit-*`` of the IETF draft (seconds).
    None where nothing readable is said.
    """
    stated = retry_after_seconds(exchange)
    if stated is not None:
        return stated
    said = dict(exchange.headers)
    resets = [
        seconds_of(said.get(name.replace("-remaining", "-reset"), ""))
        for name, value in said.items()
        if _REMAINING.fullmatch(name) and re.fullmatch(r"0+(\.0+)?", value.strip())
    ]
    return max((reset for reset in resets if reset is not None), default=None)


def seconds_of(text: str) -> float | None:
    """Seconds of "7", "1.5s", "6m0s" or "20ms"; None for everything else."""
    text = text.strip().lower()
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
