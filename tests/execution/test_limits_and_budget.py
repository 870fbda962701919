"""How many requests fly at once, and when a budget is used up."""

from __future__ import annotations

import asyncio

import pytest

import kvv.execution.scheduling.limits as limits
from kvv.core import Observation, Shape, UsageReport
from kvv.execution.scheduling.budget import Budget, RunBounds
from kvv.execution.scheduling.limits import Limiter
from kvv.profiles.profile import Prices


async def peak(limiter: Limiter, sizes: list[int]) -> int:
    """The most requests that ran at once."""
    running = most = 0

    async def one(tokens: int) -> None:
        nonlocal running, most
        async with limiter.slot(tokens):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(one(size) for size in sizes))
    return most


def test_a_fixed_limit_is_kept() -> None:
    assert asyncio.run(peak(Limiter(fixed=3, max_tokens=10**9), [1] * 20)) == 3


def test_prompt_tokens_in_flight_are_bounded_and_a_giant_runs_alone() -> None:
    assert asyncio.run(peak(Limiter(fixed=10, max_tokens=100), [40] * 8)) == 2
    assert asyncio.run(peak(Limiter(fixed=10, max_tokens=100), [1000] * 3)) == 1


def test_a_cancelled_wait_gives_its_place_back() -> None:
    async def scenario() -> int:
        limiter = Limiter(fixed=1, max_tokens=100)
        async with limiter.slot(1):
            waiting = asyncio.ensure_future(peak(limiter, [1]))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        return await asyncio.wait_for(peak(limiter, [1, 1]), 1)

    assert asyncio.run(scenario()) == 1


def test_a_wait_that_is_cancelled_just_before_a_place_falls_free_ends_as_cancelled() -> None:
    async def scenario() -> list[object]:
        limiter = Limiter(fixed=1, max_tokens=100)
        async with limiter.slot(1):
            waiting = asyncio.ensure_future(peak(limiter, [1]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            waiting.cancel()
        return list(await asyncio.gather(waiting, return_exceptions=True))

    (found,) = asyncio.run(scenario())
    assert isinstance(found, asyncio.CancelledError)


def test_the_limit_grows_only_while_it_is_used_and_halves_under_pressure(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(limits, "monotonic", lambda: clock[0])

    async def scenario() -> tuple[int, int, int, int]:
        limiter = Limiter(fixed=None, max_tokens=10**9)
        start = limiter.limit
        for _ in range(50):
            limiter.answered()
        unused = limiter.limit
        slots = [limiter.slot(1) for _ in range(start)]
        for slot in slots:
            await slot.__aenter__()
        for _ in range(2 * start):
            limiter.answered()
        grown = limiter.limit
        assert limiter.pressed()
        assert not limiter.pressed()  # one burst of 429s counts once
        halved = limiter.limit
        clock[0] += 5
        assert limiter.pressed()
        return start, unused, grown, halved

    start, unused, grown, halved = asyncio.run(scenario())
    assert unused == start
    assert grown > start
    assert halved == grown // 2 or halved == int(grown / 2)


@pytest.mark.parametrize(("slow", "halved"), [(1, False), (8, True)])
def test_rising_first_token_times_halve_the_limit_and_one_long_request_does_not(slow: int, halved: bool) -> None:
    limiter = Limiter(fixed=None, max_tokens=10**9)
    times = [100.0] * 30 + [60_000.0] * slow + [100.0] * 3
    assert any(limiter.answered(ms) for ms in times) is halved


def usage(prompt: int, completion: int, cached: int = 0) -> Observation:
    raw = {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": {"cached_tokens": cached}}
    return Observation(shape=Shape.COMPLETION, usage=(UsageReport(place="body", frame=0, raw=raw),))


def test_cost_counts_cached_tokens_at_their_own_price() -> None:
    budget = Budget(bounds=RunBounds(), prices=Prices(input=3.0, cached=0.3, output=15.0))
    assert budget.count_usage(usage(1_000_000, 100_000, cached=600_000)) == pytest.approx(
        0.4 * 3 + 0.6 * 0.3 + 0.1 * 15
    )


def test_nonsense_usage_earns_no_money_back() -> None:
    budget = Budget(bounds=RunBounds(), prices=Prices(input=3.0, cached=0.3, output=15.0))
    assert budget.count_usage(usage(-5, -7, cached=-9)) == 0
    assert budget.count_usage(usage(10, 0, cached=10**9)) == pytest.approx(10 * 0.3 / 1e6)
    assert budget.count_usage(Observation(shape=Shape.COMPLETION)) is None


def test_each_budget_has_its_reason() -> None:
    def reason(bounds: RunBounds) -> str | None:
        budget = Budget(bounds=bounds, prices=Prices(input=1.0, cached=1.0, output=1.0))
        for _ in range(3):
            budget.count_request()
        budget.count_usage(usage(500, 500))
        return budget.exceeded()

    assert reason(RunBounds()) is None
    assert reason(RunBounds(requests=3)) == "max-requests"
    assert reason(RunBounds(requests=4)) is None
    assert reason(RunBounds(tokens=1000)) == "max-tokens-total"
    assert reason(RunBounds(cost=0.001)) == "max-cost"
    assert reason(RunBounds(cost=0.0011)) is None
    assert reason(RunBounds(deadline_s=0.0)) == "deadline"
