"""Lanes side by side: none runs ahead of the slowest living one by more than a window, and a dead one holds nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kvv.execution.scheduling.pacing import SILENT, SLACK, Pacer, PaceSetting

LIMIT = 2
WINDOW = SLACK + LIMIT


def lanes(count: int) -> Sequence[PaceSetting]:
    pacer = Pacer()
    return [pacer.lane(lambda: LIMIT) for _ in range(count)]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def race(pace: PaceSetting, works: int, done: list[int]) -> None:
    for number in range(works):
        await pace.turn()
        done.append(number)
        pace.over()


def test_a_lane_stops_a_window_ahead_of_the_slowest_and_goes_on_with_it() -> None:
    async def run() -> None:
        fast, middle, slow = lanes(3)
        for lane in (fast, middle, slow):
            lane.wave = 0
        done: list[int] = []
        task = asyncio.create_task(race(fast, 100, done))
        await race(middle, WINDOW, [])
        await settle()
        assert len(done) == WINDOW
        await slow.turn()
        await settle()
        assert len(done) == WINDOW  # begun is not concluded
        slow.over()
        await settle()
        assert len(done) == WINDOW + 1
        task.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("how", ["leave", "absent"])
def test_a_lane_that_is_dead_or_looks_for_its_endpoint_holds_nobody(how: str) -> None:
    async def run() -> None:
        fast, slow = lanes(2)
        fast.wave = slow.wave = 0
        done: list[int] = []
        task = asyncio.create_task(race(fast, WINDOW + 5, done))
        await settle()
        assert len(done) == WINDOW
        if how == "leave":
            slow.leave()
            await settle()
        else:
            with slow.absent():
                await settle()
        assert len(done) == WINDOW + 5
        await task

    asyncio.run(run())


def test_a_lane_that_hangs_holds_nobody_until_it_speaks_and_one_that_is_told_to_slow_down_is_waited_for() -> None:
    async def run() -> None:
        fast, slow = lanes(2)
        fast.wave = slow.wave = 0
        done: list[int] = []
        task = asyncio.create_task(race(fast, 3 * WINDOW, done))
        for silent in (*[True] * (SILENT - 1), False, *[True] * (SILENT - 1)):  # one answer, or one 429, between
            slow.heard(silent=silent)
            await settle()
            assert len(done) == WINDOW
        slow.heard(silent=True)
        await settle()
        assert len(done) == 3 * WINDOW
        slow.heard(silent=True)
        slow.heard(silent=False)
        late = asyncio.create_task(race(fast, 1, done))
        await settle()
        assert len(done) == 3 * WINDOW
        late.cancel()
        await task

    asyncio.run(run())


def test_a_lane_that_is_nothing_without_another_waits_for_it_in_its_absence() -> None:
    async def run() -> None:
        pacer = Pacer()
        leader = pacer.lane(lambda: LIMIT)
        follower = pacer.lane(lambda: LIMIT, leader)
        leader.wave = follower.wave = 0
        done: list[int] = []
        with leader.absent():
            task = asyncio.create_task(race(follower, WINDOW + 5, done))
            await settle()
            assert len(done) == WINDOW
        leader.leave()
        await task

    asyncio.run(run())


def test_after_its_absence_a_lane_is_waited_for_again() -> None:
    async def run() -> None:
        fast, slow = lanes(2)
        fast.wave = slow.wave = 0
        with slow.absent():
            await race(fast, WINDOW + 5, [])
        done: list[int] = []
        task = asyncio.create_task(race(fast, 1, done))
        await settle()
        assert done == []
        await race(slow, 6, [])
        await settle()
        assert done == [0]
        await task

    asyncio.run(run())


def test_a_wave_begins_when_no_living_lane_is_in_an_earlier_one() -> None:
    async def run() -> None:
        fast, slow, dead = lanes(3)
        dead.leave()
        entering = asyncio.create_task(fast.enter(0))
        await settle()
        assert not entering.done()
        await slow.enter(0)
        await entering
        entering = asyncio.create_task(fast.enter(1))
        await settle()
        assert not entering.done()
        slow.finish()  # its last wave, whatever the number
        await entering
        await race(fast, 5 * WINDOW, [])  # nobody is left in this wave

    asyncio.run(run())


def test_a_lane_in_an_earlier_wave_holds_back_by_a_window_even_after_an_absence() -> None:
    async def run() -> None:
        fast, slow = lanes(2)
        await asyncio.gather(fast.enter(0), slow.enter(0))
        with slow.absent():
            await fast.enter(1)
        done: list[int] = []
        task = asyncio.create_task(race(fast, 100, done))
        await settle()
        assert len(done) == WINDOW
        task.cancel()

    asyncio.run(run())


def test_a_halted_lane_waits_for_nobody() -> None:
    async def run() -> None:
        fast, slow = lanes(2)
        fast.wave = slow.wave = 0
        task = asyncio.create_task(race(fast, 3 * WINDOW, []))
        await settle()
        fast.leave()
        await task
        await fast.enter(1)
        assert slow.concluded == 0

    asyncio.run(run())


def test_works_of_an_earlier_part_of_the_run_keep_their_place() -> None:
    async def run() -> None:
        one, two = lanes(2)
        one.wave = two.wave = 0
        for _ in range(50):
            one.skip()
        for _ in range(48):
            two.skip()
        done: list[int] = []
        task = asyncio.create_task(race(one, 100, done))
        await settle()
        assert len(done) == WINDOW - 2
        task.cancel()

    asyncio.run(run())


def test_a_lane_that_does_not_reach_its_endpoint_is_waited_for_with_patience_and_then_catches_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvv.execution.scheduling.pacing.REACH_PATIENCE_S", 0.05)

    async def run() -> None:
        one, two, hangs = lanes(3)
        entering = [asyncio.create_task(one.enter(0)), asyncio.create_task(two.enter(0))]
        await settle()
        assert not any(task.done() for task in entering)
        await asyncio.gather(*entering)
        await asyncio.gather(race(one, 3 * WINDOW, []), race(two, 3 * WINDOW, []))
        await hangs.enter(0)
        done: list[int] = []
        task = asyncio.create_task(race(one, 1, done))
        await settle()
        assert done == []  # it lives after all
        await race(hangs, 2 * WINDOW + 1, [])
        await settle()
        assert done == [0]
        await task

    asyncio.run(run())


def test_the_endpoint_under_test_waits_for_its_reference_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvv.execution.scheduling.pacing.REACH_PATIENCE_S", 0.01)

    async def run() -> None:
        pacer = Pacer()
        leader = pacer.lane(lambda: LIMIT)
        follower = pacer.lane(lambda: LIMIT, leader)
        entering = asyncio.create_task(leader.enter(0))
        await asyncio.sleep(0.1)
        assert not entering.done()
        follower.leave()
        await entering

    asyncio.run(run())


def test_alone_nothing_waits() -> None:
    async def run() -> None:
        (lane,) = lanes(1)
        await lane.enter(0)
        await race(lane, 1000, [])

    asyncio.run(run())
