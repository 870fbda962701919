"""The pace that an endpoint allows, learned from what it answers and refuses. Pure: times come from the caller.

A 429 is the endpoint's speed. It holds every request to that endpoint (``Retry-After``), and tells that the requests
admitted since the last one were all that it takes. From then on requests start at just under that rate, slowly rising
until it refuses one again; where it stays silent well above the old limit, the limit has risen and the rate grows fast.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

#: after a refusal: the share of the measured rate that is used at first, and how long the rate then stays below it.
#: One refusal in 80 requests and 20 s keeps refusals under 2 % and a hold of one second under 5 % of the capacity
UNDER, FLAT_S, FLAT_REQUESTS = 0.97, 20.0, 80
#: the same after a guess
UNSURE_S, UNSURE_REQUESTS = 3.0, 15
#: growth a second beyond the measured rate; from ``RISEN`` times that rate on the limit is taken to have risen
GROWTH, RISEN, FAST_GROWTH = 0.03, 1.15, 1.4
#: a shorter span, or fewer requests in it, measures the rate poorly: then the rate is cut, within these shares
SPAN_S, SPAN_REQUESTS, CUT, LEAST_CUT = 2.0, 5, 0.8, 0.25
#: the span of starts by which a limit that has risen far is measured at first, seconds
RECENT_S = 1.0
#: a hold without ``Retry-After``, seconds; it doubles while nothing at all is answered
HOLD_S, HOLD_MOST_S = 0.5, 60.0
#: refusals in a row with fewer admitted requests between them, of which so many are admitted, are not for the pace
#: where they come on although fewer were admitted a second, by this factor, than before
QUICK_REQUESTS, MOSTLY, SLOWED = 20, 0.6, 3.0
#: as many more refused than admitted requests show that it was the pace
PATIENCE = 10
#: starts that are remembered while nothing was refused; by how much a late start does not delay the next, seconds
MEMORY, LATE_S = 10_000, 0.05
#: refusals in a row with one feature, and answers without it beside them, that make them the feature's own
FEATURE_REFUSALS = 6
#: the first rate, where the very first requests are refused
FIRST_RATE = 1.0


@dataclass(slots=True)
class FeatureTally:
    """Requests with one feature (streamed, a field of the body), beside those without it."""

    refused: int = 0
    #: of requests without the feature, since the first of these refusals
    others_answered: int = 0
    others_refused: int = 0


@dataclass(slots=True)
class Features:
    """Tells the endpoint's pace from a feature that it always answers with 429: six of six with it, while at least six
    interleaved requests without it were answered and hardly any refused.
    """

    _tallies: dict[str, FeatureTally] = field(default_factory=dict)

    def answered(self, features: Collection[str]) -> None:
        """A request with these features was admitted."""
        for name in features:
            self._tallies.pop(name, None)
        for tally in self._tallies.values():
            tally.others_answered += 1

    def refused(self, features: Collection[str]) -> bool:
        """Whether this refusal is a feature's own, and not the endpoint's pace."""
        for name, tally in self._tallies.items():
            if name not in features:
                tally.others_refused += 1
        own = [self._tallies.setdefault(name, FeatureTally()) for name in features]
        for tally in own:
            tally.refused += 1
        return any(
            tally.refused >= FEATURE_REFUSALS
            and tally.others_answered >= FEATURE_REFUSALS
            and tally.others_refused * 10 <= tally.others_answered
            for tally in own
        )


@dataclass(slots=True)
class Rate:
    """``limit`` is the measured rate, requests a second, None while nothing was refused. Times are of one clock, in
    seconds.
    """

    limit: float | None = None
    held_until: float = 0.0
    #: when the next request may start
    _next: float = 0.0
    #: starts of requests since the last refused one, less those that were refused; what is in flight counts
    _starts: deque[float] = field(default_factory=deque)
    #: the start of the last refused request that was news: then nothing was left to be had
    _empty: float | None = None
    #: when that refusal came
    _told: float = 0.0
    #: how long requests were held since then, seconds
    _held_s: float = 0.0
    #: how long the rate stays below the limit after ``_told``
    _flat: float = FLAT_S
    #: of refusals in a row that came soon after the one before: what was admitted and refused, and the most that was
    #: admitted a second between two of them
    _kept: int = 0
    _lost: int = 0
    _fastest: float = 0.0
    #: refusals that no slower pace avoids: the rate is not limited, some requests are
    regardless: bool = False
    #: since then: refused less admitted requests
    _unpaced: int = 0
    _silent: int = 0

    def wait_s(self, now: float) -> float:
        """How long the next request has to wait, 0 where it may start."""
        return max(0.0, self.held_until - now, self._next - now)

    def take(self, now: float) -> None:
        """A request starts."""
        if self._empty is None:
            self._empty = now
        self._starts.append(now)
        if self.limit is None and len(self._starts) > MEMORY:
            self._starts.popleft()
        if self.limit is not None:
            self._next = max(self._next, now - LATE_S) + 1.0 / self.rate(now)

    def rate(self, now: float) -> float:
        """Requests a second at this time; only where something was refused."""
        limit = self.limit or FIRST_RATE
        since = max(0.0, now - self._told)
        flat = self._flat
        if since <= flat:
            return limit * (UNDER + (1 - UNDER) * since / flat)
        fast = since - flat - (RISEN - 1) / GROWTH
        return float(limit * (1 + GROWTH * (since - flat) if fast <= 0 else RISEN * FAST_GROWTH**fast))

    def answered(self) -> None:
        """A request was admitted, whatever it was answered with."""
        self._silent = 0
        self._unpaced = max(-PATIENCE, self._unpaced - 1)

    def refused(self, started: float, now: float, retry_after_s: float | None) -> bool:
        """A request that started then was refused for its pace. True when this is news: refusals of requests that had
        started before the last one came said nothing new.
        """
        with suppress(ValueError):
            self._starts.remove(started)
        if self.limit is not None and started < self._told:
            self._lost += 1
            if retry_after_s is not None and now + retry_after_s > self.held_until:
                self._held_s += now + retry_after_s - max(now, self.held_until)
                self.held_until = now + retry_after_s
            return False
        if not self.regardless and self._comes_regardless(started):
            self.limit, self.regardless, self._unpaced = None, True, 0
        if self.regardless:
            self._starts.clear()
            self._unpaced += 1
            # most are refused: it was a limit after all, and is learned anew
            self.regardless = self._unpaced <= PATIENCE
            if self.regardless:
                self.held_until = max(self.held_until, now + (retry_after_s or 0.0))
                return False
            self._empty, self._kept, self._lost, self._fastest = now - SPAN_S, 0, 0, 0.0
        self.limit, sure = self._measured(started)
        self._flat = max(FLAT_S, FLAT_REQUESTS / self.limit) if sure else max(UNSURE_S, UNSURE_REQUESTS / self.limit)
        while self._starts and self._starts[0] <= started:
            self._starts.popleft()
        self._empty, self._told = started, now
        pause = min(HOLD_S, 1.0 / self.limit) * 2.0**self._silent if retry_after_s is None else retry_after_s
        self._silent += 1
        self.held_until = self._next = max(self.held_until, now + min(pause, max(HOLD_MOST_S, retry_after_s or 0.0)))
        self._held_s = self.held_until - now
        return True

    def _comes_regardless(self, started: float) -> bool:
        """Whether refusals come as often at a fraction of the pace, among requests that are mostly admitted. Under a
        limit as much is admitted a second, holds included, however fast requests come.
        """
        admitted = sum(start <= started for start in self._starts)
        if self._empty is None or admitted >= QUICK_REQUESTS:
            self._kept, self._lost, self._fastest = 0, 0, 0.0
            return False
        self._kept += admitted
        self._lost += 1
        throughput = admitted / max(started - self._empty, 1e-3)
        slowed = 0 < throughput * SLOWED <= self._fastest
        self._fastest = max(self._fastest, throughput)
        return slowed and self._kept >= MOSTLY * (self._kept + self._lost)

    def _measured(self, started: float) -> tuple[float, bool]:
        """The rate that was admitted up to the refused request, and whether that is more than a guess."""
        since = self._empty if self._empty is not None else started
        # nothing was sent while requests were held, and a bucket for a few requests gains nothing by that
        span, count = started - since - self._held_s, sum(start <= started for start in self._starts)
        if span < SPAN_S or count < SPAN_REQUESTS:
            if self.limit is None:
                return max(FIRST_RATE, count / max(span, SPAN_S)), False
            return max(self.limit * LEAST_CUT, min(self.limit * CUT, (count + 1) / max(span, 1e-3))), False
        whole = count / span
        if self.limit is None or started < self._told + self._flat:
            return whole, True
        # refused only above the old limit: it is no lower, perhaps a little higher. Where the rate had grown far
        # above it, the last second tells
        fast = self.rate(started) > RISEN * self.limit
        recent = sum(started - RECENT_S < start <= started for start in self._starts) / RECENT_S
        return (recent, False) if fast and recent > RISEN * whole else (max(whole, 1.01 * self.limit), True)
