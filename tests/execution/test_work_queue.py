"""Blocks: the first work of each runs alone until it has an answer, whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kvv.cases.suite import load_suite
from kvv.core import Area, Case, Level
from kvv.execution.scheduling.queue import WorkQueue
from kvv.execution.scheduling.work import Work


def work(name: str, block: str | None, history: list[Any] | None = None) -> Work:
    inputs: Mapping[str, Any] = {} if block is None else {"block": block}
    case = Case(
        id=name, suite="s", area=Area.ACCURACY, level=Level.MUST, requirement="", source="", since="", inputs=inputs
    )
    return Work(suite=load_suite("params"), case=case, keep_frames=False, history=history or [])


async def ready(queue: WorkQueue) -> str | None:
    """The next work's name, or None where it has to wait."""
    try:
        async with asyncio.timeout(0.05):
            taken = await queue.take()
    except TimeoutError:
        return None
    return taken.case.id if taken else "end"


def test_the_first_of_a_block_runs_alone_and_the_rest_together() -> None:
    works = [work("a1", "a"), work("a2", "a"), work("a3", "a"), work("b1", "b"), work("b2", "b"), work("free", None)]

    async def play() -> list[str | None]:
        queue = WorkQueue(works)
        seen = [await ready(queue), await ready(queue)]
        queue.answered(works[0])
        seen += [await ready(queue), await ready(queue), await ready(queue), await ready(queue)]
        queue.answered(works[1])  # another work's answer opens nothing
        seen.append(await ready(queue))
        queue.answered(works[3])
        return [*seen, await ready(queue), await ready(queue), await ready(queue)]

    assert asyncio.run(play()) == ["a1", None, "a2", "a3", "b1", None, None, "b2", "free", "end"]


def test_works_without_a_block_never_wait() -> None:
    async def play() -> list[str | None]:
        queue = WorkQueue([work("1", None), work("2", None)])
        return [await ready(queue), await ready(queue), await ready(queue)]

    assert asyncio.run(play()) == ["1", "2", "end"]


def test_a_work_resumed_behind_its_answer_leads_nobody() -> None:
    works = [work("kept", "a", history=[()]), work("first", "a"), work("second", "a")]

    async def play() -> list[str | None]:
        queue = WorkQueue(works)
        return [await ready(queue), await ready(queue), await ready(queue)]

    assert asyncio.run(play()) == ["kept", "first", None]
