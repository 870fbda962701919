"""Barriers: a suite's next part is handed out when all before it is concluded and its look was taken; other suites go
on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from kvv.cases.suite import load_suite
from kvv.core import Area, Case, Level
from kvv.execution.scheduling.queue import WorkQueue
from kvv.execution.scheduling.stages import Stages, SuiteQueue
from kvv.execution.scheduling.work import Work


def work(suite: str, name: str, block: str | None = None) -> Work:
    inputs = {} if block is None else {"block": block}
    case = Case(
        id=name, suite=suite, area=Area.ACCURACY, level=Level.MUST, requirement="", source="", since="", inputs=inputs
    )
    return Work(suite=load_suite("params"), case=case, keep_frames=False)


@dataclass
class Looks:
    """Answers ``stop`` at the looks named in it, and remembers all that were taken."""

    stop: set[tuple[str, int]] = field(default_factory=set)
    taken: list[tuple[str, int]] = field(default_factory=list)

    async def __call__(self, suite: str, number: int) -> bool:
        self.taken.append((suite, number))
        return (suite, number) in self.stop


def lane(suite: str, *parts: str, taken: int = 0) -> SuiteQueue:
    def works(names: str) -> Iterator[Work]:
        return iter([work(suite, name) for name in names.split()])

    return SuiteQueue(suite=suite, parts=[lambda names=names: works(names) for names in parts], taken=taken)  # type: ignore[misc]


async def ready(queue: WorkQueue) -> Work | None:
    try:
        async with asyncio.timeout(0.05):
            return await queue.take()
    except TimeoutError:
        return None


async def names(queue: WorkQueue, n: int) -> list[str]:
    found = [await ready(queue) for _ in range(n)]
    return [one.case.id if one else "-" for one in found]


def test_while_one_suite_waits_for_its_look_the_others_flow() -> None:
    looks = Looks()

    async def play() -> None:
        queue = WorkQueue(Stages([lane("a", "a1 a2", "a3", "a4"), lane("b", "b1 b2 b3 b4 b5 b6")], looks))
        first, second = await ready(queue), await ready(queue)
        assert first
        assert second
        assert (first.case.id, second.case.id) == ("a1", "a2")
        assert await names(queue, 2) == ["b1", "b2"], "a3 is behind the look"
        queue.over(first, concluded=True)
        assert await names(queue, 1) == ["b3"], "a2 is still in flight"
        assert looks.taken == []
        queue.over(second, concluded=True)
        third = await ready(queue)
        assert third
        assert third.case.id == "a3", "after its look the longer suite comes first again"
        queue.over(third, concluded=True)
        assert await names(queue, 4) == ["a4", "b4", "b5", "b6"]
        assert looks.taken == [("a", 1), ("a", 2)], "the end is no look"

    asyncio.run(play())


def test_a_suite_that_a_look_ends_gives_nothing_more() -> None:
    looks = Looks(stop={("a", 1)})

    async def play() -> None:
        queue = WorkQueue(Stages([lane("a", "a1", "a2 a3", "a4"), lane("b", "b1")], looks))
        first = await ready(queue)
        assert first
        queue.over(first, concluded=True)
        last = await ready(queue)
        assert last
        assert last.case.id == "b1"
        queue.over(last, concluded=True)
        assert await queue.take() is None
        assert looks.taken == [("a", 1)]

    asyncio.run(play())


def test_with_nothing_else_to_do_the_queue_waits_for_the_samples_in_flight() -> None:
    looks = Looks()

    async def play() -> list[str]:
        queue = WorkQueue(Stages([lane("a", "a1 a2", "a3")], looks))
        one, two = await ready(queue), await ready(queue)
        assert one
        assert two
        waiting = asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        queue.over(one, concluded=True)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        queue.over(two, concluded=True)
        found = await waiting
        assert found
        return [found.case.id]

    assert asyncio.run(play()) == ["a3"]


def test_a_run_that_stops_takes_no_look_and_lets_nobody_wait() -> None:
    looks = Looks()

    async def play() -> Work | None:
        queue = WorkQueue(Stages([lane("a", "a1", "a2")], looks))
        one = await ready(queue)
        assert one
        waiting = asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        queue.over(one, concluded=False)
        return await waiting

    assert asyncio.run(play()) is None
    assert looks.taken == []


def test_looks_of_an_earlier_process_are_not_taken_again_and_a_part_that_is_done_is_looked_at_once() -> None:
    looks = Looks()

    async def play() -> list[str]:
        # parts 1 and 2 were concluded before; look 1 was taken, the process died before look 2
        queue = WorkQueue(Stages([lane("a", "", "", "a3", "a4", taken=1)], looks))
        return await names(queue, 1)

    assert asyncio.run(play()) == ["a3"]
    assert looks.taken == [("a", 2)]


def test_works_of_another_suite_between_two_of_a_block_make_no_new_leader() -> None:
    works = [work("b", "b1", "chat"), work("a", "free"), work("b", "b2", "chat"), work("b", "b3", "chat")]

    async def play() -> list[str]:
        queue = WorkQueue(works)
        lead = await ready(queue)
        assert lead
        queue.answered(lead)
        return await names(queue, 3)

    assert asyncio.run(play()) == ["free", "b2", "b3"]
