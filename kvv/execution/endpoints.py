"""One or several endpoints, driven side by side in one event loop under one budget.

A lane is an ordinary run: a job, a store, an address, its own transport with its own key. What lanes share is the clock
(``Pacer``), the budget (each pays by its own prices into one sum), the worker processes and the judge's limits.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from types import FrameType
from typing import Any

from kvv.core import Case, Outcome, Verdict
from kvv.data import cache_folder
from kvv.execution.executor import TARGET_ENDED, Executor, Progress, ProgressFactory, RunEnding, Shared
from kvv.execution.scheduling.budget import Budget, RunBounds, Spent
from kvv.execution.scheduling.limits import Limiter
from kvv.execution.scheduling.pacing import Pacer
from kvv.execution.scheduling.trees import SharedResults
from kvv.execution.scheduling.work import Stop
from kvv.execution.workers import Workers
from kvv.planning.config import RunConfig
from kvv.planning.run_plan import RunPlan
from kvv.protocol.reader import Received
from kvv.storage.store import Store

#: seconds that what is under way has to end in after the first interruption; a stream that never ends must not keep
#: the user, and what is broken off is asked again by `kvv resume`
DRAIN_S = 8.0
#: reasons that stop every lane by itself
COMMON_REASONS = frozenset({"interrupted", TARGET_ENDED, "deadline", "max-requests", "max-tokens-total", "max-cost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRun:
    """``name`` tells lanes apart in what is shown, "" for the endpoint that a run is about.

    ``follows``: the official endpoint beside the first lane. It has no purpose of its own: it ends when the first lane
    stops, and where it is not there at the start, the first lane asks nothing.
    """

    name: str
    job: RunPlan
    store: Store
    base_url: str
    resumed: bool = False
    follows: bool = False

    def label(self, suite: str) -> str:
        return f"{self.name}/{suite}" if self.name else suite


def execute(lanes: Sequence[EndpointRun], progress: ProgressFactory) -> list[RunEnding]:
    """Run everything that has no verdict yet, lane beside lane; bounds are the first lane's. Blocks until all lanes are
    done, stopped or interrupted; the stores stay open."""
    runners = [Executor(lane.job, lane.store, lane.base_url, resumed=lane.resumed) for lane in lanes]
    try:
        return asyncio.run(_conduct(lanes, runners, progress))
    except (asyncio.CancelledError, KeyboardInterrupt):
        stop = Stop(reason="interrupted", sentence="interrupted: what was under way was broken off")
        for lane in lanes:
            lane.store.put_event("stop", {"reason": stop.reason, "sentence": stop.sentence})
        return [RunEnding(stop=replace(stop)) for _ in lanes]


async def _conduct(
    lanes: Sequence[EndpointRun], runners: Sequence[Executor], progress: ProgressFactory
) -> list[RunEnding]:
    budgets = _budgets(lanes)
    planned = {lane.label(item.suite.id): item.n for lane in lanes for item in lane.job.plan.suites}
    shown = next((budget for budget in budgets if budget.prices is not None), budgets[0])
    pacer, judge = Pacer(), _limiter(lanes[0].job.config)
    controls = SharedResults(cache_folder() / "controls")
    runners[0].followers = [runner for lane, runner in zip(lanes, runners, strict=True) if lane.follows]
    with progress(planned, shown) as display, _signals(runners):
        async with Workers() as workers:
            runs = []
            for lane, runner, budget in zip(lanes, runners, budgets, strict=True):
                limiter = _limiter(lane.job.config)
                leader = pacer.lanes[0] if lane.follows else None
                pace = pacer.lane(partial(getattr, limiter, "limit"), leader)
                labelled = _Labelled(lane, display)
                runs.append(
                    runner.run(
                        Shared(
                            workers=workers,
                            budget=budget,
                            pace=pace,
                            limiter=limiter,
                            judge=judge,
                            progress=labelled,
                            controls=controls,
                        )
                    )
                )
            if len(runs) == 1:
                return [await runs[0]]
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_one(lane, runner, runners[0], run))
                    for lane, runner, run in zip(lanes, runners, runs, strict=True)
                ]
    endings = [task.result() for task in tasks]
    endings[0].configuration |= any(
        lane.follows and ending.configuration for lane, ending in zip(lanes, endings, strict=True)
    )
    return endings


async def _one(lane: EndpointRun, runner: Executor, first: Executor, run: Coroutine[Any, Any, RunEnding]) -> RunEnding:
    """A lane to its end, and what that means for those that are nothing without it."""
    ending = await run
    if lane.follows and not runner.reached and ending.stop and ending.stop.reason not in COMMON_REASONS:
        words = ending.stop.sentence.replace("the endpoint", "the reference endpoint").replace(
            "this is no", "the reference is no"
        )
        first.halt(f"reference-{ending.stop.reason}", words)
    if runner is first and ending.stop:
        for follower in first.followers:
            follower.halt(TARGET_ENDED, f"the endpoint under test stopped first: {ending.stop.sentence}")
    return ending


def _limiter(config: RunConfig) -> Limiter:
    return Limiter(fixed=config.concurrency, max_tokens=config.max_inflight_tokens)


def _budgets(lanes: Sequence[EndpointRun]) -> list[Budget]:
    """One for each lane with its own prices; all count into one sum and from one moment. A resumed run's earlier part
    counts too.
    """
    config, spent, started = lanes[0].job.config, Spent(), monotonic()
    bounds = RunBounds(
        requests=config.max_requests, tokens=config.max_tokens_total, cost=config.max_cost, deadline_s=config.deadline
    )
    for lane in lanes:
        if lane.resumed:
            _count_earlier(spent, lane.store)
    return [
        Budget(
            bounds=bounds, prices=lane.job.prices, judge_prices=lane.job.plan.judge_prices, spent=spent, started=started
        )
        for lane in lanes
    ]


def _count_earlier(spent: Spent, store: Store) -> None:
    traffic = store.traffic()
    spent.requests += traffic["attempts"]
    spent.prompt_tokens += traffic["prompt_tokens"]
    spent.cached_tokens += traffic["cached_tokens"]
    spent.completion_tokens += traffic["completion_tokens"]
    spent.cost += traffic["cost"] or 0.0


class _Labelled:
    """One display for all lanes: suites and notes carry the lane's name."""

    def __init__(self, lane: EndpointRun, display: Progress) -> None:
        self._lane = lane
        self._display = display

    def resumed(self, suite: str, outcome: Outcome) -> None:
        self._display.resumed(self._lane.label(suite), outcome)

    def concluded(self, case: Case, verdict: Verdict) -> None:
        self._display.concluded(replace(case, suite=self._lane.label(case.suite)) if self._lane.name else case, verdict)

    def exchanged(self, received: Received, limit: int) -> None:
        self._display.exchanged(received, limit)

    def note(self, text: str) -> None:
        self._display.note(f"{self._lane.name}: {text}" if self._lane.name else text)


@contextmanager
def _signals(runners: Sequence[Executor]) -> Iterator[None]:
    """Ctrl-C or SIGTERM once: start nothing more and drain, for at most ``DRAIN_S``; twice: abort at once. Handlers
    exist on the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    patience: list[asyncio.TimerHandle] = []

    def halt() -> None:
        for runner in runners:
            runner.halt("interrupted", "interrupted: no more requests were started")
        if task is not None:
            patience.append(loop.call_later(DRAIN_S, task.cancel))

    def interrupted(number: int, frame: FrameType | None) -> None:
        if any(runner.stop.reason == "interrupted" for runner in runners) and task is not None:
            loop.call_soon_threadsafe(task.cancel)
        else:
            loop.call_soon_threadsafe(halt)

    names = [signal.SIGINT, signal.SIGTERM]
    before = {name: signal.signal(name, interrupted) for name in names}
    try:
        yield
    finally:
        for timer in patience:
            timer.cancel()
        for name, handler in before.items():
            signal.signal(name, handler)
