"""Drives a ladder of loads against one endpoint: so many requests at once, or so many arrivals a second.

Every answer is read under the wire rules, as in a run; nothing is retried. Starts are staggered, the first requests of
a step are not measured, and what is still under way at its end is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any

from kvv.core import Identity, Level
from kvv.core.lazy import numpy as np
from kvv.decision.load import LoadSample, LoadStep
from kvv.execution.load.mix import LoadRequest, Mix
from kvv.execution.scheduling.budget import Budget
from kvv.planning.config import MOST_AT_ONCE
from kvv.planning.load_config import LoadConfig
from kvv.profiles.policy import Policy
from kvv.profiles.profile import Profile
from kvv.protocol.classify import Assessment, Classification, assess, count_findings
from kvv.protocol.encode import encode
from kvv.protocol.reader import Received
from kvv.protocol.rules import rules_for
from kvv.storage.snapshot import UNEXPLAINED
from kvv.transport import Transport

#: seconds over which the first requests of a step are spread
STAGGER_S = 1.0
#: seconds that a worker waits after a request that got no answer, and the most that Retry-After is granted
PAUSE_S, MOST_PAUSE_S = 0.5, 10.0
#: failures in a row that end the ladder, and fewer where nothing was ever answered
DEAD_AFTER, NEVER_ALIVE = 40, 6
#: a step that loses more than this share is the last one: higher loads would only do harm
LOST_SHARE = 0.5
#: the load generator looks this often (seconds) how late it is
HEARTBEAT_S = 0.02
#: examples of each kind of wrong answer and of each broken rule that a step keeps
EXAMPLES, EXCERPT = 2, 400


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadExample:
    """One wrong answer or broken rule. ``load`` is the step's."""

    load: float
    what: str
    asked: str
    answered: str


@dataclass(slots=True)
class _Running:
    """A step under way. ``closing`` tells workers to begin nothing more."""

    load: float
    origin: float = field(default_factory=perf_counter)
    samples: list[LoadSample] = field(default_factory=list)
    spans: list[tuple[float, float, int]] = field(default_factory=list)
    began: int = 0
    first_measured: float | None = None
    last_begun: float = 0.0
    unsent: int = 0
    closing: bool = False

    def now(self) -> float:
        return perf_counter() - self.origin


class Ladder:
    """``steps`` and ``examples`` fill while it runs; ``stop`` says why it ended early, "" where it did not."""

    def __init__(
        self,
        transport: Transport,
        mix: Mix,
        load: LoadConfig,
        *,
        profile: Profile,
        policy: Policy,
        budget: Budget,
        seed: int,
        tell: Callable[[LoadStep], None],
    ) -> None:
        self._transport, self._mix, self._load = transport, mix, load
        self._profile, self._policy, self._budget = profile, policy, budget
        self._generator = np.random.default_rng([seed, 1])
        self._tell = tell
        self._silent = 0
        self._answered = False
        self._sent = 0
        self._shown: Counter[tuple[float, str]] = Counter()
        self.steps: list[LoadStep] = []
        self.examples: list[LoadExample] = []
        self.stop = ""

    async def run(self) -> None:
        warming = _Running(load=0.0)
        for request in self._mix.prefixes():
            await self._ask(request, warming, measured=False)
        for load in self._load.ladder:
            if self._ended():
                return
            step = await self._step(load)
            if step.samples:
                self.steps.append(step)
                self._tell(step)
            lost = sum(bool(sample.failure) for sample in step.samples)
            if not self.stop and lost > LOST_SHARE * len(step.samples):
                self.stop = "lost-requests"

    def _ended(self) -> bool:
        if not self.stop:
            self.stop = self._budget.exceeded() or ""
        return bool(self.stop)

    async def _step(self, load: float) -> LoadStep:
        running = _Running(load=load)
        cpu, lags = process_time(), list[float]()
        with _uncollected():
            async with _heartbeat(lags):
                await (self._open(running) if self._load.open_loop else self._closed(running))
                cpu = (process_time() - cpu) / max(1e-9, running.now())
        return LoadStep(
            load=load,
            window=self._window(running),
            samples=tuple(running.samples),
            spans=tuple(running.spans),
            unsent=running.unsent,
            client_cpu=cpu,
            client_lag_ms=float(np.quantile(lags, 0.99)) if lags else 0.0,
        )

    def _window(self, running: _Running) -> tuple[float, float]:
        begin = running.first_measured or 0.0
        end = running.last_begun
        if self._load.duration is not None:
            end = min(running.now(), self._warmup + self._load.duration)
        # so few requests that the last began with the first: the step ends with its last answer
        typical = float(np.median([sample.e2e_ms for sample in running.samples])) / 1000 if running.samples else 0.0
        return begin, end if end - begin > typical else max([end, *(span[1] for span in running.spans)])

    @property
    def _warmup(self) -> float:
        if self._load.warmup is not None:
            return self._load.warmup
        return 0.0 if self._load.duration is None else max(STAGGER_S, 0.1 * self._load.duration)

    # --- so many at once ---------------------------------------------------------------------------------

    async def _closed(self, running: _Running) -> None:
        workers = int(running.load)
        spread = min(STAGGER_S, 0.05 * workers)
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(self._worker(running, spread * number / workers, workers))

    async def _worker(self, running: _Running, delay: float, workers: int) -> None:
        await asyncio.sleep(delay)
        # a first request of each worker brings the step to its load, unless the warm-up is a time
        warming = self._load.duration is None and self._load.warmup is None
        while self._goes_on(running):
            measured = not warming and running.now() >= self._warmup
            warming = False
            pause = await self._ask(self._mix.next(), running, measured=measured)
            if pause:
                await asyncio.sleep(pause)

    def _goes_on(self, running: _Running) -> bool:
        if self._ended() or running.closing:
            return False
        if self._load.duration is not None:
            return running.now() < self._warmup + self._load.duration
        return running.began < self._load.count(running.load)

    # --- so many a second --------------------------------------------------------------------------------

    async def _open(self, running: _Running) -> None:
        under_way: set[asyncio.Task[float]] = set()
        due = 0.0
        async with asyncio.TaskGroup() as group:
            while self._goes_on(running):
                gap = 1 / running.load
                due += gap if self._load.arrivals == "constant" else float(self._generator.exponential(gap))
                await asyncio.sleep(max(0.0, due - running.now()))
                measured = due >= self._open_warmup(running)
                if len(under_way) >= MOST_AT_ONCE:
                    running.unsent += measured
                    running.began += measured
                    continue
                task = group.create_task(self._ask(self._mix.next(), running, measured=measured))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await asyncio.sleep(0)  # it counts itself when it begins

    def _open_warmup(self, running: _Running) -> float:
        if self._load.duration is None and self._load.warmup is None:
            return 2 * STAGGER_S
        return self._warmup

    # --- one request -------------------------------------------------------------------------------------

    async def _ask(self, wanted: LoadRequest, running: _Running, *, measured: bool) -> float:
        """Sends one request; the seconds that its sender should wait before the next."""
        self._sent += 1
        self._budget.count_request()
        identity = Identity(case=f"load/{running.load:g}", sample=self._sent, step=0, ask=0, purpose="load")
        body = encode(wanted.request.body)
        began = running.now()
        if measured:
            running.began += 1
            running.last_begun = began
            running.first_measured = began if running.first_measured is None else running.first_measured
        received = await self._transport.send(
            wanted.request,
            body,
            identity=identity,
            attempt=1,
            rules=rules_for(self._profile, wanted.request, moonshot_stream=self._policy.moonshot_stream),
            keep_frames=False,
            deadline=self._budget.remaining_s(),
        )
        self._budget.count_usage(received.observation)
        found = assess(received.exchange, received.observation)
        sample = self._sample(wanted, received, found, began, running.now())
        if not sample.failure:
            running.spans.append((sample.start_s, sample.end_s, sample.completion_tokens))
        if measured:
            running.samples.append(sample)
            self._keep(wanted, received, sample, running.load)
        return self._paused(found)

    def _sample(
        self, wanted: LoadRequest, received: Received, found: Assessment, began: float, ended: float
    ) -> LoadSample:
        exchange, seen = received.exchange, received.observation
        timing, fault = exchange.timing, exchange.fault
        answered = found.standing is Classification.ANSWERED
        tokens = seen.tokens("completion_tokens") or timing.increments
        first = timing.first_token_ms if wanted.request.stream else None
        findings = count_findings(wanted.request, exchange, seen, received.findings)
        return LoadSample(
            kind=wanted.kind,
            workload=wanted.workload,
            length=wanted.length,
            start_s=began,
            end_s=ended,
            e2e_ms=timing.total_ms,
            ttft_ms=first,
            # the mean over one answer: servers put several tokens into a packet, which a median does not survive
            itl_ms=(timing.total_ms - first) / (tokens - 1) if first is not None and tokens > 1 else None,
            prompt_tokens=max(0, seen.tokens("prompt_tokens") or 0),
            cached_tokens=max(0, seen.detail_tokens("prompt_tokens_details", "cached_tokens") or 0),
            completion_tokens=max(0, tokens),
            failure="" if answered else found.reason or found.standing.value,
            unexplained=not answered
            and (found.standing is Classification.CONFIGURATION or (fault is not None and fault.kind in UNEXPLAINED)),
            known=wanted.expect is not None,
            right=wanted.judge(seen) if answered else None,
            rules=tuple(sorted({one.rule for one in findings if one.level is Level.MUST})) if answered else (),
        )

    def _paused(self, found: Assessment) -> float:
        if found.spoken:
            self._silent, self._answered = 0, True
            return 0.0 if found.standing is Classification.ANSWERED else PAUSE_S
        self._silent += 1
        dead = self._silent >= (DEAD_AFTER if self._answered else NEVER_ALIVE)
        if found.standing is Classification.CONFIGURATION and (dead or not self._answered):
            self.stop = self.stop or found.reason
        elif dead and not found.pace:
            self.stop = self.stop or f"unreachable-{found.reason}"
        return min(MOST_PAUSE_S, max(PAUSE_S, found.retry_after_s or 0.0))

    def _keep(self, wanted: LoadRequest, received: Received, sample: LoadSample, load: float) -> None:
        """A few examples of what was wrong, bounded: the report's evidence."""
        asked = _last_message(wanted.request.body)[-EXCERPT:]
        if sample.right is False and self._first(load, wanted.kind):
            first = received.observation.first
            calls = " ".join(f"{call.name}({call.arguments})" for call in first.tool_calls)
            said = f"expected: {wanted.expect}\nanswered: {first.answer or ''} {calls}"
            self.examples.append(LoadExample(load=load, what=wanted.kind, asked=asked, answered=said[: 2 * EXCERPT]))
        for finding in received.findings:
            if finding.rule in sample.rules and self._first(load, finding.rule):
                said = f"{finding.message}\n{finding.excerpt}"[: 2 * EXCERPT]
                self.examples.append(LoadExample(load=load, what=finding.rule, asked=asked, answered=said))

    def _first(self, load: float, what: str) -> bool:
        self._shown[load, what] += 1
        return self._shown[load, what] <= EXAMPLES


def _last_message(body: Mapping[str, Any] | bytes) -> str:
    """What the last message says; "" where a user's own request is of another form."""
    messages = [] if isinstance(body, bytes) else body["messages"]
    last = messages[-1] if messages else None
    return str(last.get("content", "")) if isinstance(last, dict) else ""


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """What lives now outlives the step: the collector need not walk it while times are taken."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.asynccontextmanager
async def _heartbeat(lags: list[float]) -> AsyncIterator[None]:
    """Collects how late (ms) this event loop wakes up."""

    async def beat() -> None:
        while True:
            due = perf_counter() + HEARTBEAT_S
            await asyncio.sleep(HEARTBEAT_S)
            lags.append(max(0.0, 1000 * (perf_counter() - due)))

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
