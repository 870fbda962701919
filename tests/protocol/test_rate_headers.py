"""The wait that a refusal's headers ask for."""

from __future__ import annotations

import pytest

from kvv.core import Exchange, Identity, Role
from kvv.protocol.rate_headers import rate_limit_wait_s, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7), ("1.5s", 1.5), ("6m0s", 360), ("20ms", 0.02), ("1h2m", 3720), ("soon", None), ("", None), ("-3", None)],
)
def test_a_reset_is_read_as_it_is_documented(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "9s"}, 3),
        ({"x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": "9s"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m2s"}, 62),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "5"}, 5),
    ],
)
def test_only_what_is_used_up_is_waited_for(headers: dict[str, str], seconds: float | None) -> None:
    identity = Identity(case="c", sample=0, step=0, ask=0, purpose="probe")
    exchange = Exchange(
        identity=identity, attempt=1, role=Role.TARGET, started="", status=429, headers=tuple(headers.items())
    )
    assert rate_limit_wait_s(exchange) == seconds
