"""How many requests and prompt tokens may be in flight at one endpoint: additive increase, multiplicative decrease."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from time import monotonic

from kvv.execution.scheduling.rate import Rate

#: after a decrease the limit rests this long, so that one burst of 429s counts once
COOLDOWN_S = 1.0
START_LIMIT = 8
#: time to first token: the median of the first answers, and by how much the recent ones may exceed it
EARLY_ANSWERS = 15
SLOWER_TIMES = 4.0
SLOWER_MS = 2_000.0
RECENT_ANSWERS = 8
AUTO_CEILING = 64


class Limiter:
    """``fixed`` requests in flight, or, when None, an adaptive limit between 1 and ``AUTO_CEILING``.

    Grows by one for each limit's worth of answers, and only while the limit is really used; halves on 5xx and
    time-outs. A request above ``max_tokens`` still runs, alone. How often requests start is ``rate``'s business.
    """

    def __init__(self, *, fixed: int | None, max_tokens: int) -> None:
        self._fixed = fixed
        self._limit = float(fixed or START_LIMIT)
        self._max_tokens = max_tokens
        self._running = 0
        self._tokens = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._rested = 0.0
        self._early: list[float] = []
        self._turn = asyncio.Lock()
        self.rate = Rate()
        self._recent: deque[float] = deque(maxlen=RECENT_ANSWERS)

    @property
    def limit(self) -> int:
        return int(self._limit)

    @property
    def ceiling(self) -> int:
        """What the limit may grow to."""
        return self._fixed or AUTO_CEILING

    @property
    def running(self) -> int:
        return self._running

    @asynccontextmanager
    async def slot(self, tokens: int) -> AsyncIterator[None]:
        """Holds one request of about ``tokens`` prompt tokens; first come, first served."""
        await self._acquire(tokens)
        try:
            yield
        finally:
            self._running -= 1
            self._tokens -= tokens
            self._wake()

    async def _acquire(self, tokens: int) -> None:
        if not self._waiting and self._fits(tokens):
            self._running += 1
            self._tokens += tokens
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (tokens, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._running -= 1
                self._tokens -= tokens
            else:
                with suppress(ValueError):  # a wake-up between may have dropped the cancelled entry already
                    self._waiting.remove(entry)
            self._wake()
            raise

    async def turn(self, pause: Callable[[float], Awaitable[None]], stopped: Callable[[], bool]) -> float:
        """Wait until the endpoint's pace allows one more request, first come, first served; when it starts, in seconds
        of the monotonic clock. ``pause`` sleeps, and wakes early when the run stops.
        """
        async with self._turn:
            while (wait := self.rate.wait_s(monotonic())) > 0 and not stopped():
                await pause(wait)
            now = monotonic()
            self.rate.take(now)
            return now

    def _fits(self, tokens: int) -> bool:
        if self._running == 0:
            return True
        return self._running < self.limit and self._tokens + tokens <= self._max_tokens

    def _wake(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            tokens, turn = self._waiting.popleft()
            if turn.done():
                continue
            self._running += 1
            self._tokens += tokens
            turn.set_result(None)

    def answered(self, first_token_ms: float | None = None) -> bool:
        """An answer came: grow, if the limit was what held us back and the first tokens do not come ever later.

        True when they do and the limit was halved for it.
        """
        if first_token_ms is not None and self._slower(first_token_ms):
            return self.pressed()
        if self._fixed is None and self._running >= self.limit - 1:
            self._limit = min(AUTO_CEILING, self._limit + 1 / max(self._limit, 1))
            self._wake()
        return False

    def _slower(self, first_token_ms: float) -> bool:
        """Whether recent times to first token are several times the early ones: the endpoint queues what we send."""
        if len(self._early) < EARLY_ANSWERS:
            self._early.append(first_token_ms)
            return False
        self._recent.append(first_token_ms)  # their median: one long request says nothing about the endpoint
        if len(self._recent) < RECENT_ANSWERS:
            return False
        recent, early = (sorted(values)[len(values) // 2] for values in (self._recent, self._early))
        return recent > SLOWER_TIMES * early + SLOWER_MS

    def pressed(self) -> bool:
        """The endpoint said slow down: halve, once per cooldown. True when the limit changed."""
        now = monotonic()
        if self._fixed is not None or now - self._rested < COOLDOWN_S or self._limit <= 1:
            return False
        self._rested = now
        self._limit = max(1.0, self._limit / 2)
        return True
