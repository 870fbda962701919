"""An endpoint's rate limit is its pace: simulated token buckets on a clock of the test's own, then a real socket."""

from __future__ import annotations

import heapq
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kvv.execution.scheduling.rate import FEATURE_REFUSALS, Features, Rate

from .test_troubled_endpoints import completion, outcomes


@dataclass(frozen=True)
class Simulated:
    """Times at which requests reached the endpoint, seconds."""

    admitted: list[float]
    refused: list[float]

    def after(self, start: float, end: float, capacity: float) -> tuple[float, float]:
        """Share of ``capacity`` requests that was used between two times, and share of requests refused then."""
        used = sum(start < at <= end for at in self.admitted)
        lost = sum(start < at <= end for at in self.refused)
        return used / capacity, lost / max(1, used + lost)


def simulated(
    allowed: Callable[[float], float],
    *,
    burst: float,
    retry_after: float | None,
    seconds: float,
    runs: int = 1,
    sizes: Callable[[random.Random], float] = lambda _: 1.0,
    seed: int = 0,
) -> Simulated:
    """``runs`` clients with 64 requests in flight each share a token bucket of ``allowed(time)`` requests a second."""
    generator = random.Random(seed)
    rates = [Rate() for _ in range(runs)]
    flying = [0] * runs
    events: list[tuple[float, int, int, float, bool]] = []
    log = Simulated([], [])
    now, level, last, number = 0.0, burst, 0.0, 0
    while now < seconds:
        sends = [(now + rate.wait_s(now), 1, run) for run, rate in enumerate(rates) if flying[run] < 64]
        at, kind, run = min([*sends, *([(events[0][0], 0, 0)] if events else [])])
        now = max(now, at)
        if kind == 0:
            _, _, run, started, good = heapq.heappop(events)
            flying[run] -= 1
            if good:
                rates[run].answered()
            else:
                rates[run].refused(started, now, retry_after)
            continue
        if rates[run].wait_s(now) > 1e-9:
            now += 1e-6
            continue
        rates[run].take(now)
        flying[run] += 1
        level, last = min(burst, level + (now - last) * allowed(now)), now
        size = sizes(generator)
        good = level >= size
        level -= size if good else 0.0
        (log.admitted if good else log.refused).append(now)
        number += 1
        latency = generator.uniform(0.15, 0.25) if good else 0.04
        heapq.heappush(events, (now + latency, number, run, now, good))
    return log


@pytest.mark.parametrize("retry_after", [None, 1.0], ids=["bare", "retry-after"])
@pytest.mark.parametrize("rate", [5.0, 50.0])
def test_from_half_a_minute_on_a_limit_is_used_and_hardly_ever_hit(rate: float, retry_after: float | None) -> None:
    log = simulated(lambda _: rate, burst=rate, retry_after=retry_after, seconds=200)
    used, refused = log.after(30, 200, rate * 170)
    assert used >= 0.95
    assert refused <= 0.02


def test_one_request_a_second_is_kept_with_few_refusals() -> None:
    log = simulated(lambda _: 1.0, burst=5, retry_after=None, seconds=300)
    used, refused = log.after(30, 300, 270)
    assert used >= 0.95
    assert refused <= 0.02


@pytest.mark.parametrize(("before", "then"), [(5.0, 20.0), (50.0, 5.0), (20.0, 5.0), (10.0, 12.0)])
def test_half_a_minute_after_a_limit_has_changed_the_new_one_is_kept(before: float, then: float) -> None:
    log = simulated(lambda at: before if at < 100 else then, burst=max(before, then) / 2, retry_after=1.0, seconds=250)
    used, refused = log.after(130, 250, then * 120)
    assert used >= 0.95
    assert refused <= 0.02


def test_a_limit_by_tokens_is_kept_where_requests_differ_in_size() -> None:
    log = simulated(
        lambda _: 5.0, burst=5, retry_after=1.0, seconds=250, sizes=lambda generator: generator.uniform(0.5, 1.5)
    )
    used, refused = log.after(30, 250, 5 * 220)
    assert used >= 0.95
    assert refused <= 0.02


def test_two_runs_share_one_limit() -> None:
    log = simulated(lambda _: 10.0, burst=10, retry_after=1.0, seconds=250, runs=2)
    used, refused = log.after(30, 250, 10 * 220)
    assert used >= 0.95
    assert refused <= 0.03


def test_refusals_that_no_slower_pace_avoids_are_no_limit() -> None:
    """A gateway that refuses one request in five, however fast they come."""
    rate, now, sent = Rate(), 0.0, 0
    while sent < 400 and now < 600:
        now += max(rate.wait_s(now), 0.01)
        rate.take(now)
        sent += 1
        if sent % 5:
            rate.answered()
        else:
            rate.refused(now, now + 0.02, None)
    assert rate.regardless
    assert rate.limit is None
    assert now < 60


def test_retry_after_holds_every_request_and_no_longer() -> None:
    rate = Rate()
    for start in (0.0, 0.1, 0.2):
        assert rate.wait_s(start) == 0.0
        rate.take(start)
    assert rate.refused(0.2, 0.3, 7.0)
    assert rate.wait_s(0.3) == pytest.approx(7.0)
    assert rate.wait_s(7.3) == 0.0


def test_refusals_of_requests_that_were_on_their_way_are_no_news() -> None:
    rate = Rate()
    for _ in range(8):
        rate.take(0.0)
    assert rate.refused(0.0, 0.1, None)
    limit = rate.limit
    assert not rate.refused(0.0, 0.2, None)
    assert rate.limit == limit


def test_without_an_answer_the_holds_grow() -> None:
    rate, now, waits = Rate(), 0.0, []
    for _ in range(5):
        rate.take(now)
        rate.refused(now, now + 0.01, None)
        waits.append(rate.wait_s(now + 0.01))
        now += 0.01 + waits[-1]
    assert waits == sorted(waits)
    assert waits[-1] > 4 * waits[0]


def test_a_feature_that_alone_is_refused_is_told_from_a_limit() -> None:
    alone, limit = Features(), Features()
    told = []
    for number in range(FEATURE_REFUSALS + 1):
        told.append(alone.refused({"model", "top_p", f"other-{number}"}))
        alone.answered({"model", "tools"})
        limit.refused({"model", "top_p"})
        limit.refused({"model", "tools"})
        limit.answered({"model", "seed"})
    assert told == [False] * FEATURE_REFUSALS + [True]
    assert not limit.refused({"model", "top_p"})
    alone.answered({"model", "top_p"})
    assert not alone.refused({"model", "top_p"})


def test_a_rate_limited_endpoint_loses_no_question(kvv_cli: Any, serve: Any) -> None:
    """30 requests a second, 429 with Retry-After beyond them: each question is answered, hardly any is refused late."""
    lock = threading.Lock()
    state = {"level": 10.0, "last": time.monotonic(), "refused": 0}

    def answer(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        with lock:
            now = time.monotonic()
            state["level"] = min(10.0, state["level"] + 30.0 * (now - state["last"]))
            state["last"] = now
            if state["level"] >= 1.0:
                state["level"] -= 1.0
                return completion()
            state["refused"] += 1
        error = json.dumps({"error": {"message": "slow down", "type": "rate_limit_error"}}).encode()
        return {"status": 429, "body": error, "headers": {"Retry-After": "1"}}

    with serve(answer) as server:
        ran = kvv_cli(
            *("run", "aime2025", "--data", "aime2025=fixture", "--samples", "25", "--no-stream"),
            *("--model", "any-model", "--concurrency", "32", "--base-url", server.url),
        )
    row = ran.row("aime2025")
    assert row["n_concluded"] == row["n_planned"] > 100
    assert not [key for key, outcome in outcomes(ran.folder).items() if outcome.startswith("inconclusive")]
    assert 0 < state["refused"] < row["n_planned"]
    assert "requests are sent at its pace" in ran.said


def test_a_poisoned_parameter_neither_holds_the_run_nor_repeats_for_ever(kvv_cli: Any, serve: Any) -> None:
    """Every request with top_p is answered 429, all others at once."""

    def answer(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        if b'"top_p"' in body:
            return {"status": 429, "body": b'{"error": {"message": "no", "type": "x"}}'}
        return completion("ready")

    began = time.monotonic()
    with serve(answer) as server:
        ran = kvv_cli(
            *("check", "params", "--model", "any-model", "--no-stream", "--base-url", server.url),
            *("--profile", "openai", "--deadline", "60"),
        )
    assert ran.report["exit_code"] in (1, 3)
    poisoned = {key: found for key, found in outcomes(ran.folder).items() if "top-p" in key}
    assert poisoned
    assert all(found.startswith(("inconclusive", "skip")) for found in poisoned.values()), poisoned
    assert time.monotonic() - began < 50, "it ended by itself, not by its deadline"
