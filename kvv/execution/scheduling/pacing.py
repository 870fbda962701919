"""Several endpoints side by side in one process: none runs ahead of the slowest that lives, so that they are asked at
the same time of day.

Every lane goes through the same waves (gate, contract, benchmarks) and, within a wave, through the same seeded order. A
lane begins its next work only while it is less than a window ahead of what the slowest other lane has concluded in this
wave, and a wave only when no lane is in an earlier one. The window is as large as the largest number of requests that a
lane may have in flight, and a few more: it spreads lanes by no more than what is under way anyway. A lane that has
ended, that hangs, or that asks whether its endpoint is still there holds nobody.

Counting what is concluded, not its place in the order, lets one long answer take one place of the window instead of
stopping all lanes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

#: works by which a lane may be ahead beside those that are in flight
SLACK = 8
#: this many attempts in a row to which an endpoint said nothing at all (no refusal, no "slow down") make a lane that
#: nobody waits for
SILENT = 6
#: seconds for which the others wait for a lane that has not reached its endpoint yet
REACH_PATIENCE_S = 30.0
#: before the first wave, and after the last
BEFORE, AFTER = -1, 1_000


class Pacer:
    """Makes the lanes' paces; for the tasks of one event loop."""

    def __init__(self) -> None:
        self.lanes: list[PaceSetting] = []
        self._event = asyncio.Event()

    def lane(self, limit: Callable[[], int], leader: PaceSetting | None = None) -> PaceSetting:
        """``limit`` says how many requests the lane may have in flight now; beside a ``leader`` it has no purpose
        without that one.
        """
        pace = PaceSetting(self, limit, leader)
        self.lanes.append(pace)
        return pace

    def moved(self) -> None:
        """Whoever waits looks again."""
        self._event.set()
        self._event = asyncio.Event()

    async def change(self) -> None:
        await self._event.wait()


class PaceSetting:
    """One lane's place among the others; alone it never waits."""

    def __init__(self, pacer: Pacer, limit: Callable[[], int], leader: PaceSetting | None) -> None:
        self._pacer = pacer
        self._leader = leader
        self.limit = limit
        self.wave = BEFORE
        self.begun = 0
        self.concluded = 0
        self.away = False
        self.left = False
        self._silent = 0
        self._turn = asyncio.Lock()

    async def enter(self, wave: int) -> None:
        """Begins a wave, once no living lane is in an earlier one."""
        self.wave, self.begun, self.concluded, self.away = wave, 0, 0, False
        self._pacer.moved()
        if wave == 0:
            await self._assembled()
        while not self.left and any(other.wave < wave for other in self._others()):
            await self._pacer.change()

    async def _assembled(self) -> None:
        """Waits for the lanes that look for their endpoints, with patience. Who is late catches up from behind: then it
        is waited for again.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(REACH_PATIENCE_S):
                while not self.left and self._late():
                    await self._pacer.change()
        for lane in self._late():
            lane.away = True

    def _late(self) -> list[PaceSetting]:
        return [lane for lane in self._pacer.lanes if lane.wave == BEFORE and not lane.left]

    async def turn(self) -> None:
        """Waits until one more work may begin; first come, first served. Every call is followed by one of ``over``."""
        async with self._turn:
            while self._ahead():
                await self._pacer.change()
            self.begun += 1

    def over(self) -> None:
        """A work that had its turn is concluded, or given up."""
        self.concluded += 1
        self._pacer.moved()

    def skip(self) -> None:
        """A work that an earlier part of the run concluded keeps its place in the count."""
        self.begun += 1
        self.over()

    @contextmanager
    def absent(self) -> Iterator[None]:
        """While the endpoint is asked whether it lives, nobody waits for it but those whom it leads."""
        self.away = True
        self._pacer.moved()
        try:
            yield
        finally:
            self.away, self._silent = False, 0

    def heard(self, *, silent: bool) -> None:
        """An attempt ended, with an answer of any kind or in silence. A lane that hangs is waited for no more until it
        speaks again.
        """
        before = self._silent >= SILENT
        self._silent = self._silent + 1 if silent else 0
        if before is not (self._silent >= SILENT):
            self.away = not before
            self._pacer.moved()

    def finish(self) -> None:
        """What comes after the last wave is nobody's concern."""
        self.wave = AFTER
        self._pacer.moved()

    def leave(self) -> None:
        """This lane has ended: it waits for nobody, and nobody for it."""
        self.left = True
        self._pacer.moved()

    def _others(self) -> list[PaceSetting]:
        """Those that are waited for. A lane and the one that it stands beside wait for each other at the start whatever
        happens.
        """
        tied = (self._leader, *(lane for lane in self._pacer.lanes if lane._leader is self and lane.wave == BEFORE))
        return [
            lane for lane in self._pacer.lanes if lane is not self and not lane.left and (not lane.away or lane in tied)
        ]

    def _ahead(self) -> bool:
        """Whether one more work would be more than a window ahead of the slowest."""
        if self.left or self.wave == AFTER:
            return False
        others = self._others()
        behind = [lane.concluded if lane.wave == self.wave else 0 for lane in others if lane.wave <= self.wave]
        return bool(behind) and self.begun - min(behind) >= SLACK + max(lane.limit() for lane in (self, *others))
