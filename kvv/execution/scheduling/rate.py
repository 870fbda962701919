"""The speed of one endpoint, learned from its rate limit: one hold and one rate for every request that waits.

Nothing is held until the first 429. A refusal marks a moment at which the endpoint's allowance is used up, so what was
let through between two refusals, over the time between them, is the allowed rate. Requests are spaced at that rate,
which then rises slowly, and ever faster, until the next refusal measures it anew (the curve of CUBIC, RFC 9438).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

#: requests between two refusals from which the rate follows roughly, and well
SOME, ENOUGH = 5, 20
#: seconds of sending that are looked at where two refusals do not bound the time
RECENT_S = 5.0
#: part of the measured rate that is used at first
CAUTION = 0.99
#: the rate has doubled so many seconds, or so many requests if that takes longer, after a refusal
DOUBLE_S, DOUBLE_REQUESTS = 30.0, 150.0
#: seconds in which a rate doubles that no two refusals have measured yet
SEEK_S = 4.0
#: and in which one doubles that they measured roughly
ROUGH_S = 20.0
#: an increase from which the last refusal says nothing about the present rate
RAMPED = 1.5
#: a hold that the endpoint did not measure: this many intervals, within these bounds (seconds)
HOLD_INTERVALS, HOLD_LEAST_S, HOLD_MOST_S = 1.0, 0.1, 30.0
#: what a late timer may catch up, seconds
SLACK_S = 0.05
SLOWEST = 0.02
#: refusals of one shape, each with an answer to another shape since the one before, that show a limit of that shape
ROUNDS = 6
#: without an answer for so long, an endpoint that only refuses has no pace that a run can wait for
STARVED_S = 180.0
#: a request that runs for longer than this was let through
LET_THROUGH_S = 10.0


@dataclass(slots=True)
class _Suspect:
    """A shape whose requests are refused: the ``rate`` before its first refusal, and how often another was answered
    between two of its refusals.
    """

    rate: float | None
    tokens: int
    others: int = 0
    rounds: int = 0

    @property
    def alone(self) -> bool:
        return self.rounds >= ROUNDS


class Rate:
    """For the requests to one endpoint. ``clock`` in seconds. Every ``sent`` is followed by at most one ``answered`` or
    ``refused``.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._rate: float | None = None
        self._began: float | None = None
        self._next = 0.0
        self._hold = 0.0
        self._refused = 0.0
        self._anchor: float | None = None
        self._passed = 0
        self._measured = (0, 1.0)
        self._sure = False
        self._seek_s = SEEK_S
        self._in_a_row = 0
        self._recent: deque[float] = deque()
        self._suspects: dict[str, _Suspect] = {}
        self._flying: list[float] = []
        self._drought: float | None = None

    @property
    def per_second(self) -> float | None:
        """Requests a second that are sent now; None while no limit was met."""
        if self._rate is None:
            return None
        if not self._sure:
            return self._rate * math.exp2(min(60.0, (self._clock() - self._refused) / self._seek_s))
        rise = (self._clock() - self._refused) / max(DOUBLE_S, DOUBLE_REQUESTS / self._rate)
        return self._rate * (CAUTION + rise**3)

    @property
    def held_s(self) -> float:
        """Seconds to the end of the common hold."""
        return max(0.0, self._hold - self._clock())

    def wait_s(self) -> float:
        """Seconds until the next request may be sent; 0 for now."""
        until = max(self._hold, self._next) if self._rate is not None else self._hold
        return max(0.0, until - self._clock())

    def sent(self) -> float:
        """A request goes out now; the moment, which its end is reported with."""
        now = self._clock()
        self._began = now if self._began is None else self._began
        self._passed += 1
        self._recent.append(now)
        self._flying.append(now)
        while self._recent[0] < now - RECENT_S:
            self._recent.popleft()
        rate = self.per_second
        if rate is not None:
            self._next = max(self._next, now - SLACK_S) + 1 / rate
        return now

    def ended(self, sent: float) -> None:
        """The request is not under way any more, whatever came of it."""
        self._flying.remove(sent)

    @property
    def starved(self) -> bool:
        """Whether nothing but refusals came for so long that it is no matter of speed."""
        now = self._clock()
        running = any(sent < now - LET_THROUGH_S for sent in self._flying)
        return self._drought is not None and now - self._drought > STARVED_S and not running

    def answered(self, shape: str, tokens: int) -> None:
        """A request of this shape, of about this many prompt tokens, was answered or refused for what it asks."""
        self._drought = None
        self._in_a_row = 0
        self._suspects.pop(shape, None)
        for suspect in self._suspects.values():
            if 2 * tokens >= suspect.tokens:
                suspect.others += 1

    def refused(self, shape: str, tokens: int, sent: float, wait_s: float | None) -> bool:
        """The endpoint said "slow down", and for how many seconds. False where only this shape hears it while others
        are answered: then nothing is held.
        """
        now = self._clock()
        if self._alone(shape, tokens):
            return False
        self._drought = now if self._drought is None else self._drought
        self._hold = max(self._hold, now + wait_s if wait_s is not None else 0.0)
        if sent in self._recent:
            self._recent.remove(sent)
        if self._anchor is None or sent > self._anchor:
            self._passed -= 1
        if self._rate is not None and sent <= self._refused:  # went out before the first refusal of this burst came
            passed, seconds = self._measured
            self._measured = (passed - 1, seconds)
            if passed > 1:
                self._rate = (passed - 1) / seconds
            return True
        self._learn(now)
        assert self._rate is not None
        if wait_s is None:
            hold = max(HOLD_LEAST_S, HOLD_INTERVALS / self._rate) * 2.0**self._in_a_row
            self._hold = max(self._hold, now + min(HOLD_MOST_S, hold))
        self._in_a_row = min(self._in_a_row + 1, 8)
        self._refused, self._next = now, self._hold
        return True

    def _learn(self, now: float) -> None:
        """The rate at the first refusal of a burst."""
        before, current, anchor = self._rate, self.per_second, self._anchor
        began = self._began if self._began is not None else now
        window = max(1.0, min(RECENT_S, now - began))
        ramped = self._sure and before is not None and current is not None and current > RAMPED * before
        if before is None or anchor is None or ramped:
            self._measured, self._sure = (len(self._recent), window), False
            self._seek_s = SEEK_S
        elif self._passed >= SOME:
            self._measured, self._sure = (self._passed, now - anchor), self._sure or self._passed >= ENOUGH
            self._seek_s = ROUGH_S
        else:  # too few to measure: this rate is too high, and its half is not too low if so much passed
            self._measured = (0, 1.0)
            self._rate = max(SLOWEST, min(0.8 * before, max(self._passed / max(1.0, now - anchor), 0.5 * before)))
            return
        passed, seconds = self._measured
        self._rate = max(1, passed) / seconds
        if passed >= ENOUGH or anchor is None or ramped:
            self._anchor, self._passed = now, 0

    def _alone(self, shape: str, tokens: int) -> bool:
        suspect = self._suspects.setdefault(shape, _Suspect(rate=self._rate, tokens=tokens))
        if suspect.alone:
            return True
        for name, other in self._suspects.items():
            if name != shape and not other.alone:
                other.rounds = other.others = 0
        if suspect.others:
            suspect.others = 0
            suspect.rounds += 1
        if suspect.alone:
            self._rate, self._hold, self._next, self._anchor = suspect.rate, 0.0, 0.0, None
        return suspect.alone
