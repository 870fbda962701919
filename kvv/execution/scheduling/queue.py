"""The order in which works are handed out: as they come, but the first of a block runs alone until its first answer.

Cases of a block (``inputs["block"]``) begin with the same long text. Once one of them was answered, the vendor's prefix
cache serves the rest; sent together, each would pay for it in full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvv.execution.scheduling.stages import Plain, Source

if TYPE_CHECKING:
    from kvv.execution.scheduling.work import Work


class WorkQueue:
    """For the tasks of one event loop. Blocks must come whole: nothing of another block between their works."""

    def __init__(self, works: Iterable[Work] | Source) -> None:
        self._works = works if isinstance(works, Source) else Plain(works)
        self._turn = asyncio.Lock()
        self._open = asyncio.Event()
        self._open.set()
        self._block: str | None = None
        self._lead: Work | None = None

    async def take(self) -> Work | None:
        """The next work; waits while the first of its block is unanswered. None when all were taken."""
        async with self._turn:
            await self._open.wait()
            work = await self._works.next()
            block = None if work is None else work.case.inputs.get("block")
            if work is not None and block is not None and work.history:
                return work  # resumed behind its answer: it sends the long text no more
            if block is not None and block != self._block:
                self._lead = work
                self._open.clear()
            self._block = block or self._block
            return work

    def answered(self, work: Work) -> None:
        """This work has its first answer, or is over without one. May be said more than once."""
        if work is self._lead:
            self._lead = None
            self._open.set()

    def over(self, work: Work, *, concluded: bool) -> None:
        """This work is done with, and whether it was concluded: it is not where the run stops."""
        self.answered(work)
        self._works.over(work, concluded=concluded)
