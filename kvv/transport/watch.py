"""The time limits of one request, cheap enough for a stream of a hundred thousand packets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from kvv.core import Fault, FaultKind

#: no answer may take longer, however steadily it drips
TOTAL_S = 6 * 3600.0
#: a stream that stays open so long after its terminator is complete: the client leaves, as the openai client does at
#: once
AFTER_DONE_S = 5.0
#: how often a silent connection is asked whether it still lives
LOOK_S = 1.0


class Watch:
    """One lazy timer: a packet costs an assignment, not a rescheduling.

    Before the first byte of the body the limit is ``first_byte`` seconds, afterwards ``idle``; ``deadline`` bounds
    the whole, in seconds from now. Bytes that say nothing (comments of an event stream, blanks before a body) are a
    sign of life, but not for ever: without news the limit is ``first_byte`` and ``idle`` together, so that a server
    that pings during a long prefill is never worse off than one that is silent. The block is left by TimeoutError;
    ``fault`` then says why, None after the stream's own end.
    ``broken`` is asked every second: a connection may have died without anyone waking who waits for its bytes.
    """

    def __init__(self, *, first_byte: float, idle: float, deadline: float | None) -> None:
        self._idle = idle
        self._quiet = first_byte + idle
        self._phase: FaultKind | None = FaultKind.FIRST_BYTE_TIMEOUT
        self._limit = first_byte
        self._last = self._news = time.perf_counter()
        self._end = self._last + (TOTAL_S if deadline is None else min(TOTAL_S, deadline))
        self._doubt = False
        self.fault: Fault | None = None
        self.broken: Callable[[], Fault | None] = lambda: None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._scope = asyncio.timeout(None)
        await self._scope.__aenter__()
        self._timer = self._loop.call_later(min(LOOK_S, self._due() - self._last), self._check)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._scope.__aexit__(kind, error, trace)

    @property
    def fired(self) -> bool:
        """Whether the block was left because of this watch."""
        return self._scope.expired()

    def restart(self) -> float:
        """The clock of the first byte starts now. Returns ``time.perf_counter()``."""
        self._last = self._news = time.perf_counter()
        return self._last

    def beat(self) -> float:
        """Bytes of the body came. Returns ``time.perf_counter()``."""
        self._last = time.perf_counter()
        if self._phase is FaultKind.FIRST_BYTE_TIMEOUT:
            self._enter(FaultKind.IDLE_TIMEOUT, self._idle)
        return self._last

    def news(self) -> None:
        """The bytes of the last beat said something."""
        self._news = self._last

    def terminated(self) -> None:
        """The stream's terminator came; the end of the body should follow at once."""
        self._enter(None, min(AFTER_DONE_S, self._idle))

    def _enter(self, phase: FaultKind | None, limit: float) -> None:
        self._phase, self._limit = phase, limit
        if limit < LOOK_S:  # else the next look will see
            self._timer.cancel()
            self._timer = self._loop.call_later(limit, self._check)

    def _due(self) -> float:
        return min(self._last + self._limit, self._news + self._quiet, self._end)

    def _check(self) -> None:
        now = time.perf_counter()
        wait = self._due() - now
        self.fault = self.broken()
        if self.fault is None:
            if wait > 0:
                self._doubt = False
            elif not self._doubt:
                # perhaps it was us who slept (a suspended machine, a long computation) and bytes lie in the socket:
                # look once more
                self._doubt, wait = True, 0.02
            if wait > 0:
                self._timer = self._loop.call_later(min(LOOK_S, wait), self._check)
                return
            self.fault = self._too_late(now)
        self._scope.reschedule(self._loop.time())

    def _too_late(self, now: float) -> Fault | None:
        if now >= self._end:
            return Fault(kind=FaultKind.TOTAL_TIMEOUT, detail="the deadline passed before the answer was complete")
        if self._phase is None:
            return None
        if now < self._last + self._limit:
            return Fault(
                kind=FaultKind.IDLE_TIMEOUT, detail=f"only comments or blanks, and no data within {self._quiet:g} s"
            )
        what = "first byte" if self._phase is FaultKind.FIRST_BYTE_TIMEOUT else "further byte"
        return Fault(kind=self._phase, detail=f"no {what} within {self._limit:g} s")
