"""Works of several suites with barriers: a suite that may stop early waits until all samples before its next look are
concluded.

While one waits, the others' works are handed out.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvv.execution.scheduling.work import Work

#: (suite, number of the look, from 1) -> whether the suite ends here
TakeLook = Callable[[str, int], Awaitable[bool]]


class Source(ABC):
    """Where a queue has its works from. For the tasks of one event loop; ``next`` is called by one task at a time."""

    @abstractmethod
    async def next(self) -> Work | None:
        """The next work; None when there are no more."""

    def over(self, work: Work, *, concluded: bool) -> None:  # noqa: B027 only barriers want to know
        """``work`` is no longer in flight; ``concluded`` False: the run is stopping."""


class Plain(Source):
    """One work after another."""

    def __init__(self, works: Iterable[Work]) -> None:
        self._works = iter(works)

    async def next(self) -> Work | None:
        return next(self._works, None)


@dataclass(slots=True, kw_only=True)
class SuiteQueue:
    """One suite: ``parts`` give its works up to each of its looks, the last one up to its end, which is no stop.
    ``taken`` looks were taken by an earlier process and are not taken again."""

    suite: str
    parts: Sequence[Callable[[], Iterator[Work]]]
    taken: int = 0
    part: int = 0
    in_flight: int = 0
    _works: Iterator[Work] | None = field(default=None, init=False)

    @property
    def ended(self) -> bool:
        return self.part >= len(self.parts)

    @property
    def look_due(self) -> bool:
        return self.taken <= self.part < len(self.parts) - 1

    def take(self) -> Work | None:
        """The next work of this part."""
        if self._works is None:
            self._works = self.parts[self.part]()
        work = next(self._works, None)
        self.in_flight += work is not None
        return work

    def go_on(self, *, stop: bool) -> None:
        self.part = len(self.parts) if stop else self.part + 1
        self._works = None


class Stages(Source):
    """Lanes in the order of their precedence. ``look`` is awaited with nothing of its suite in flight."""

    def __init__(self, lanes: Sequence[SuiteQueue], look: TakeLook) -> None:
        self._lanes = lanes
        self._by_suite = {lane.suite: lane for lane in lanes}
        self._look = look
        self._moved = asyncio.Event()
        self._closed = False

    async def next(self) -> Work | None:
        while not self._closed:
            self._moved.clear()
            for lane in self._lanes:
                work = await self._from(lane)
                if work is not None:
                    return work
            if all(lane.ended for lane in self._lanes):
                return None
            # each lane that has not ended waits for its own samples in flight
            await self._moved.wait()
        return None

    async def _from(self, lane: SuiteQueue) -> Work | None:
        while not lane.ended and not self._closed:
            work = lane.take()
            if work is not None:
                return work
            if lane.in_flight:
                return None
            lane.go_on(stop=lane.look_due and await self._look(lane.suite, lane.part + 1))
        return None

    def over(self, work: Work, *, concluded: bool) -> None:
        self._by_suite[work.case.suite].in_flight -= 1
        self._closed = self._closed or not concluded
        self._moved.set()
