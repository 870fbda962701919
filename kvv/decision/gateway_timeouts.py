"""Answers that are all cut at the same age: a time limit of something between us and the model. Pure.

A gateway with a limit on silence or on the whole answer spoils exactly the long answers, so that only a run's slowest
cases suffer and each for itself looks like the network's doing (buffered answers of 60 s and more
ended in a 504).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvv.core import Exchange, FaultKind

#: the report's word for it
SUSPECTED = "gateway-timeout-suspected"
#: cuts at the same age that are no accident, and the share of all cuts of that mode that they must be
LEAST, SHARE = 4, 0.5
#: what fails sooner was never waited for
SHORTEST_MS = 1_000.0
#: ages within this factor and so many milliseconds of each other are the same
SAME_FACTOR, SAME_MS = 1.02, 250.0
#: statuses by which gateways say that they gave up waiting; 524 is Cloudflare's. A busy server's 502 and 503 say
#: something else
_GAVE_UP = frozenset({408, 504, 524})
#: what the far side did; our own time-outs end at equal ages by themselves
_CUT = frozenset({FaultKind.CUT, FaultKind.RESET, FaultKind.PROTOCOL})


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnding:
    """How one attempt ended. ``total_ms`` from the request's last byte; ``answered``: it came to its own end."""

    exchange: str
    stream: bool
    total_ms: float
    answered: bool
    status: int | None = None
    fault: FaultKind | None = None

    @staticmethod
    def of(exchange: Exchange, *, stream: bool, answered: bool) -> AttemptEnding:
        return AttemptEnding(
            exchange=exchange.identity.key,
            stream=stream,
            total_ms=exchange.timing.total_ms,
            answered=answered,
            status=exchange.status,
            fault=exchange.fault.kind if exchange.fault else None,
        )

    @property
    def cut(self) -> bool:
        """Ended from the far side after a wait."""
        return not self.answered and self.total_ms >= SHORTEST_MS and (self.status in _GAVE_UP or self.fault in _CUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """``cuts`` of ``of`` ended ``after_ms`` milliseconds (the earliest); ``examples`` are identity keys, the first
    few.
    """

    stream: bool
    after_ms: float
    cuts: int
    of: int
    examples: tuple[str, ...]

    @property
    def sentence(self) -> str:
        mode = "streamed" if self.stream else "not streamed"
        ages = f"{self.cuts} of {self.of} answers cut short ({mode}) ended after {self.after_ms / 1000:.1f} s"
        return f"{ages}, and none took longer: a gateway's time limit"


def suspected_timeouts(endings: Iterable[AttemptEnding]) -> list[Suspicion]:
    """At most one for each mode: most cuts at the same age, and no answer of that mode that lived longer."""
    cuts: dict[bool, list[AttemptEnding]] = {}
    longest: dict[bool, float] = {}
    for ending in endings:
        if ending.answered:
            longest[ending.stream] = max(longest.get(ending.stream, 0.0), ending.total_ms)
        elif ending.cut:
            cuts.setdefault(ending.stream, []).append(ending)
    found = (_suspected(stream, cuts[stream], longest.get(stream, 0.0)) for stream in sorted(cuts))
    return [one for one in found if one is not None]


def _suspected(stream: bool, cuts: list[AttemptEnding], longest: float) -> Suspicion | None:
    """The age at which most cuts lie together, as the widest group of the sorted ages."""
    cuts.sort(key=lambda ending: ending.total_ms)
    first = best = size = 0
    for last, ending in enumerate(cuts):
        while ending.total_ms > _latest(cuts[first]):
            first += 1
        if last + 1 - first > size:
            best, size = first, last + 1 - first
    if size < LEAST or size <= SHARE * len(cuts) or longest > _latest(cuts[best]):
        return None
    together = cuts[best : best + size]
    return Suspicion(
        stream=stream,
        after_ms=together[0].total_ms,
        cuts=size,
        of=len(cuts),
        examples=tuple(one.exchange for one in together[:5]),
    )


def _latest(ending: AttemptEnding) -> float:
    return ending.total_ms * SAME_FACTOR + SAME_MS
