"""Performs suites' steps: sends, retries transport faults only, stores, judges; stops in a reported state.

The scheduler never interprets an answer beyond the outcome table: what an answer is worth is the suite's
business, and a judged result is never asked again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from time import monotonic

from kvv.cases.contract import expected_of
from kvv.cases.suite import SuiteKind
from kvv.core import Answered, Ask, Case, Credential, Done, Exec, Executed, Identity, Outcome, Request, Role, Verdict
from kvv.data.pictures import pictures_of, with_pictures
from kvv.execution.scheduling.budget import Budget
from kvv.execution.scheduling.health import Health, repeated_by_the_case, sentence
from kvv.execution.scheduling.limits import Limiter
from kvv.execution.scheduling.pacing import PaceSetting
from kvv.execution.scheduling.queue import WorkQueue
from kvv.execution.scheduling.rate import Features, Rate
from kvv.execution.scheduling.risky import in_groups
from kvv.execution.scheduling.sending import Sender
from kvv.execution.scheduling.stages import Source
from kvv.execution.scheduling.stepping import next_step, unjudged_verdict
from kvv.execution.scheduling.trees import SharedResults, Trees, slots
from kvv.execution.scheduling.work import Control, Observer, Stop, Stopped, Work
from kvv.execution.workers import Workers
from kvv.profiles.profile import Profile
from kvv.protocol.classify import BESIDE, LIVENESS, RETRY_AFTER_CAP_S, Assessment, Classification, assess
from kvv.protocol.encode import EncodedBody, encode
from kvv.protocol.features import INVALID, features_of
from kvv.protocol.rate_headers import rate_limit_wait_s
from kvv.protocol.reader import Received
from kvv.sandbox.base import Sandbox, SandboxError
from kvv.storage.store import Store, StoreError
from kvv.transport import Transport

#: attempts at one request, the first included
ATTEMPTS = {Classification.UNAVAILABLE: 5, Classification.SERVER_ERROR: 3}
#: attempts at one request that may be refused for the endpoint's pace before each counts as failed
PACED_ATTEMPTS = 100
#: refusals for the pace in a row, of any requests, after each of which the plainest request is asked beside them
PACED_ALONE = 3
#: pause before the second attempt, seconds; doubles with each further one
BACKOFF_S = 0.5
#: account and route answers that make a control probe worth its while; a contract case may ask for a missing model on
#: purpose
GRAVE = frozenset({"auth", "no-credit", "route"})
GRAVE_TO_CONTRACT = GRAVE - {"route"}
#: reasons of attempts to which nothing was said in the time allowed
SILENCE = frozenset({"first-byte-timeout", "idle-timeout", "total-timeout"})
#: a step machine that runs away is our bug
MAX_STEPS = 2_000
#: a control is as good as new for this long (DESIGN: an accepting sibling in the same minute)
CONTROL_FRESH_S = 60.0
#: how often the breaker asks again before it gives the endpoint up, seconds between
BREAKER_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
#: plain requests beside refused ones that are refused in a row before the run stops
PLAIN_REFUSALS = 5
#: requests whose pictures are read and encoded at once: a large picture takes a hundred megabytes while it is decoded
PICTURES_AT_ONCE = 2
#: unwritten bytes above which no new request starts
BACKLOG_BYTES = 64 * 1024 * 1024


class Scheduler:
    def __init__(
        self,
        *,
        transport: Transport,
        store: Store,
        workers: Workers,
        limiters: Mapping[Role, Limiter],
        budget: Budget,
        profile: Profile,
        control: Request,
        observer: Observer,
        pace: PaceSetting,
        moonshot_stream: bool = False,
        seed: int = 0,
        sandbox: Sandbox | None = None,
        shared: SharedResults | None = None,
    ) -> None:
        self._sender = Sender(transport, store, budget, profile, moonshot_stream=moonshot_stream)
        self._store = store
        self._workers = workers
        self._limiters = limiters
        self._budget = budget
        self._control_request = control
        self._observer = observer
        self._pace = pace
        self._jitter = random.Random(seed)
        self._health = Health()
        self._controls: dict[bytes, Control] = {}
        self._control_locks: dict[bytes, asyncio.Lock] = {}
        self._open_road = asyncio.Event()
        self._open_road.set()
        self._halt = asyncio.Event()
        self._probes = count()
        self._refusals = 0
        self._refused_in_a_row = 0
        self._features: dict[Role, Features] = {role: Features() for role in limiters}
        self._answers: dict[Role, int] = dict.fromkeys(limiters, 0)
        self._pictures = asyncio.Semaphore(PICTURES_AT_ONCE)
        self._sandbox = sandbox
        self._trees = slots()
        self._shared = shared or SharedResults()
        self.stop = Stop()

    # --- waves ---------------------------------------------------------------------------------

    async def run(self, works: Iterable[Work] | Source) -> None:
        """Conclude every work of one wave, as many at once as the limiter allows, until done or stopped."""
        queue = WorkQueue(works)
        risky: list[Work] = []
        async with asyncio.TaskGroup() as group:
            for _ in range(2 * self._limiters[Role.TARGET].ceiling):
                group.create_task(self._take(queue, risky))
        for together in in_groups(risky):
            await self._risked(together)

    async def _risked(self, works: list[Work]) -> None:
        """Cases that have brought engines down, with nothing else beside them; then the endpoint is asked for a sign
        of life.
        """
        queue = WorkQueue(works)
        async with asyncio.TaskGroup() as group:
            for _ in works:
                group.create_task(self._take(queue, None))
        if not self.stop:
            found = await self._probe(BREAKER_PAUSES_S)
            if not found.spoken:
                self._died(found, " or ".join(work.case.key for work in works[:3]), _because(works[0].case))

    async def _take(self, queue: WorkQueue, risky: list[Work] | None) -> None:
        """Conclude works until none is left; risky ones are put aside where there is a list for them."""
        while (work := await queue.take()) is not None:
            more = False
            try:
                more = await self._took(work, queue, risky)
            finally:
                queue.over(work, concluded=more)
            if not more:
                return

    async def _took(self, work: Work, queue: WorkQueue, risky: list[Work] | None) -> bool:
        """False when no more works are to be taken."""
        if risky is not None and work.case.risk:
            risky.append(work)
            return True
        await self._store.drained(BACKLOG_BYTES)
        await self._pace.turn()
        try:
            self._check_budget()
            if self.stop:
                return False
            await self._conclude(work, queue)
        except Stopped:
            return False
        finally:
            self._pace.over()
        return True

    def halt(self, reason: str, sentence: str) -> None:
        """Start no more requests; what is in flight may finish. The first reason stays."""
        if not self.stop:
            self.stop = Stop(reason=reason, sentence=sentence)
            self._store.put_event("stop", {"reason": reason, "sentence": sentence})
        self._halt.set()
        self._open_road.set()
        self._pace.leave()

    def _check_budget(self) -> None:
        reason = self._budget.exceeded()
        if reason:
            self.halt(reason, f"the budget --{reason} is used up")

    # --- one case ------------------------------------------------------------------------------

    async def _conclude(self, work: Work, queue: WorkQueue) -> None:
        trees = Trees(self._sandbox, work.case, self._trees, self._shared)
        try:
            await self._play(work, queue, trees)
        finally:
            await trees.close()

    async def _play(self, work: Work, queue: WorkQueue, trees: Trees) -> None:
        history = work.history
        for number in range(len(history), MAX_STEPS):
            step = await next_step(self._workers, work.suite, work.case, history)
            match step:
                case Done(verdict=verdict):
                    self._put(work.case, verdict)
                    return
                case Ask(requests=requests):
                    try:
                        history.append(await self._ask(work, number, requests))
                        queue.answered(work)
                    except ExceptionGroup as group:
                        # a decoder or rule of ours raised: this case is ERROR, the run goes on; a store that cannot
                        # write ends it
                        if group.subgroup(StoreError):
                            raise
                        self._error(
                            work.case, "; ".join(f"{type(error).__name__}: {error}" for error in group.exceptions)
                        )
                        return
                case Exec():
                    executed = await self._exec(work, number, step, trees)
                    if executed is None:
                        return
                    history.append(executed)
        self._error(work.case, f"the suite {work.suite.id} took more than {MAX_STEPS} steps")

    def _error(self, case: Case, detail: str) -> None:
        self._put(case, unjudged_verdict(case, Outcome.ERROR, "harness-raised", detail, [], "1"))

    def _put(self, case: Case, verdict: Verdict) -> None:
        self._store.put_verdict(verdict)
        self._observer.concluded(case, verdict)

    async def _exec(self, work: Work, number: int, step: Exec, trees: Trees) -> Executed | None:
        """The command's result, stored; None when the sample was concluded because there is none."""
        try:
            executed = await trees.run(step)
        except SandboxError as error:
            self._put(
                work.case,
                unjudged_verdict(
                    work.case, Outcome.INCONCLUSIVE, "sandbox-failed", str(error), work.history, work.suite.version
                ),
            )
            return None
        except Exception as error:  # noqa: BLE001 - our bug in a sandbox must not end the run
            self._error(work.case, f"sandbox: {type(error).__name__}: {error}")
            return None
        self._store.put_executed(work.case.id, work.case.sample, number, executed)
        return executed

    async def _ask(self, work: Work, number: int, requests: tuple[Request, ...]) -> tuple[Answered, ...]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._answer(work, number, index, request)) for index, request in enumerate(requests)
            ]
        replies = [task.result() for task in tasks]
        if any(reply is None for reply in replies):
            raise Stopped
        return tuple(reply for reply in replies if reply is not None)

    async def _answer(self, work: Work, number: int, index: int, request: Request) -> Answered | None:
        """The last attempt at a request, or None when the run stopped first."""
        identity = Identity(case=work.case.id, sample=work.case.sample, step=number, ask=index, purpose=request.purpose)
        if pictures_of(request.body):
            request = await self._shown(request)
        body = encode(request.body)
        try:
            if request.purpose == "control":
                return await self._shared_control(work, identity, request, body)
            return await self._attempts(work, identity, request, body)
        except Stopped:
            return None

    async def _shown(self, request: Request) -> Request:
        """The request with its pictures' bytes, read and encoded off the event loop; it lives until its case is
        concluded.
        """
        assert not isinstance(request.body, bytes)
        async with self._pictures:
            return replace(request, body=await asyncio.to_thread(with_pictures, request.body))

    async def _shared_control(self, work: Work, identity: Identity, request: Request, body: EncodedBody) -> Answered:
        """An answered control of the last minute with the same bytes serves again."""
        key = b"".join(body.parts) + request.path.encode()
        async with self._control_locks.setdefault(key, asyncio.Lock()):
            known = self._controls.get(key)
            if known and monotonic() - known.at < CONTROL_FRESH_S:
                self._store.put_alias(identity, known.identity)
                return known.answered
            answered = await self._attempts(work, identity, request, body)
            if assess(answered.exchange, answered.observation).standing is Classification.ANSWERED:
                self._controls[key] = Control(identity, answered, monotonic())
            else:
                self._controls.pop(key, None)
            return answered

    # --- attempts ------------------------------------------------------------------------------

    async def _attempts(self, work: Work, identity: Identity, request: Request, body: EncodedBody) -> Answered:
        first = work.attempts.get(identity.key, 0)
        contract = work.suite.kind is not SuiteKind.BENCHMARK
        tried = paced = 0
        for attempt in count(first + 1):
            await self._open_road.wait()
            answers = self._answers[request.role]
            received, started = await self._send(identity, attempt, request, body, keep_frames=work.keep_frames)
            found = assess(received.exchange, received.observation)
            held = self._learn(found, received, request, work.case, started)
            # the endpoint's pace is no failed attempt while it answers others
            paced += held
            tried += not (held and self._answers[request.role] > answers and paced <= PACED_ATTEMPTS)
            if held and request.role is Role.TARGET:
                await self._ask_plainly()
            answered = Answered(
                request=request,
                exchange=received.exchange,
                observation=received.observation,
                findings=received.findings,
            )
            if request.purpose == BESIDE:
                self._plain_refused(found)
            if found.spoken or (found.pace and not held) or self._gives_up(found, tried, contract=contract):
                if request.role is Role.JUDGE:
                    return self._judged(found, answered)
                return await self._settled(work.case, found, answered, grave=GRAVE_TO_CONTRACT if contract else GRAVE)
            if not held or self._limiters[request.role].rate.regardless:
                await self._pause(self._wait_s(found, max(tried, 1)))
        raise AssertionError("unreachable")

    async def _send(
        self, identity: Identity, attempt: int, request: Request, body: EncodedBody, *, keep_frames: bool
    ) -> tuple[Received, float]:
        """What came back, and when the request started, in seconds of the monotonic clock."""
        limiter = self._limiters[request.role]
        async with limiter.slot(request.expect_prompt_tokens or body.size // 4):
            started = await limiter.turn(self._pause, lambda: bool(self.stop))
            self._check_budget()
            if self.stop:
                raise Stopped
            received = await self._sender.send(identity, attempt, request, body, keep_frames=keep_frames)
        self._observer.exchanged(received, limiter.limit)
        return received, started

    def _learn(self, found: Assessment, received: Received, request: Request, case: Case, started: float) -> bool:
        """Whether all requests to this endpoint are held now: it said that they come too fast."""
        role = request.role
        limiter = self._limiters[role]
        too_long = (found.retry_after_s or 0.0) > RETRY_AFTER_CAP_S
        if found.pace and not too_long:
            return self._paced(found, received, request, case, started)
        if found.standing is not Classification.UNAVAILABLE:
            limiter.rate.answered()
            self._answers[role] += 1
            self._refused_in_a_row = 0
            self._features[role].answered(_features_of(case, request))
        if role is Role.TARGET:
            self._pace.heard(silent=found.reason in SILENCE)
        if found.spoken:
            if limiter.answered(received.exchange.timing.first_token_ms):
                event = {"role": role.value, "limit": limiter.limit, "reason": "rising-first-token-time"}
                self._store.put_event("limit", {**event, "case": case.key})
        elif found.standing in (Classification.UNAVAILABLE, Classification.SERVER_ERROR) and limiter.pressed():
            self._store.put_event(
                "limit", {"role": role.value, "limit": limiter.limit, "reason": found.reason, "case": case.key}
            )
        return False

    def _paced(self, found: Assessment, received: Received, request: Request, case: Case, started: float) -> bool:
        """Hold all requests to this endpoint; False where it refuses one feature, and nothing without it."""
        limiter = self._limiters[request.role]
        if self._features[request.role].refused(_features_of(case, request)):
            limiter.rate = Rate()
            return False
        first = limiter.rate.limit is None
        asked = rate_limit_wait_s(received.exchange)
        wait = None if asked is None else min(asked, RETRY_AFTER_CAP_S)
        if limiter.rate.refused(started, monotonic(), wait):
            allowed = limiter.rate.limit
            event = {"role": request.role.value, "per_second": allowed, "reason": found.reason, "case": case.key}
            self._store.put_event("rate", event)
            if first:
                self._observer.note(f"the endpoint limits its rate ({found.reason}); requests are sent at its pace")
        return True

    async def _ask_plainly(self) -> None:
        """Requests that are all refused for the pace hold all others back: the plainest one tells whether the endpoint
        is busy, or refuses what they have in common.
        """
        self._refused_in_a_row += 1
        if self._refused_in_a_row % PACED_ALONE:
            return
        found = await self._probe(())
        if found.standing is Classification.ANSWERED:
            self._limiters[Role.TARGET].rate.answered()
            self._features[Role.TARGET].answered(features_of(self._control_request))

    def _plain_refused(self, found: Assessment) -> None:
        """An account that gave out may say so with a 400: then the plainest requests are refused, one after the
        other.
        """
        self._refusals = self._refusals + 1 if found.standing is Classification.REFUSED else 0
        if self._refusals >= PLAIN_REFUSALS:
            self.halt("refuses-everything", f"the endpoint refuses even the plainest request by now: {found.detail}")

    def _gives_up(self, found: Assessment, tried: int, *, contract: bool) -> bool:
        if not found.retry or self.stop:
            return True
        if found.retry_after_s is not None and found.retry_after_s > RETRY_AFTER_CAP_S:
            return True
        if contract and repeated_by_the_case(found):
            # a contract case repeats crashes itself, between controls: three of three is a verdict there
            return True
        return tried >= ATTEMPTS.get(found.standing, 2)

    def _wait_s(self, found: Assessment, tried: int) -> float:
        backoff = BACKOFF_S * 2.0 ** (tried - 1) * (0.75 + 0.5 * self._jitter.random())
        return max(backoff, found.retry_after_s or 0.0)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not beyond a stop; the caller's next send raises then."""
        remaining = self._budget.remaining_s()
        if remaining is not None:
            seconds = min(seconds, remaining)
        try:
            await asyncio.wait_for(self._halt.wait(), timeout=seconds)
        except TimeoutError:
            return

    def _judged(self, found: Assessment, answered: Answered) -> Answered:
        """Whether a judge answers says nothing about the endpoint's health."""
        if self.stop and not found.spoken:
            raise Stopped
        return answered

    async def _settled(self, case: Case, found: Assessment, answered: Answered, *, grave: frozenset[str]) -> Answered:
        """Feed the health breaker with a request's final standing, and find out what silence means."""
        if found.spoken:
            self._health.answered()
            return answered
        if answered.request.credential is not Credential.OWN and found.standing is Classification.CONFIGURATION:
            # somebody read the request and did not know its key: what was hoped for
            return answered
        self._health.unanswered(case.key, found.reason)
        alarming = found.standing is Classification.CONFIGURATION and found.reason in grave
        if (alarming or self._health.open) and self._open_road.is_set() and not self.stop:
            await self._break(case, found)
        if self.stop:
            # the endpoint is gone or the run is over: this case is not concluded, `kvv resume` asks it again
            raise Stopped
        return answered

    async def _break(self, case: Case, found: Assessment) -> None:
        """Hold all requests and ask the control; go on when it answers, end the run when it does not."""
        self._open_road.clear()
        self._store.put_event("breaker-open", {"reason": found.reason, "case": case.key, "detail": found.detail})
        self._observer.note(
            f"no answer from the endpoint ({found.reason}); asking the simplest request to see whether it lives"
        )
        with self._pace.absent():
            last = await self._probe(BREAKER_PAUSES_S)
        if last.spoken:
            self._health.answered()
            self._store.put_event("breaker-closed", {})
        elif not self.stop:
            self._died(last, next(iter(self._health.silent), case.key), _because(case))
        self._open_road.set()

    def _died(self, found: Assessment, after: str, because: str = "") -> None:
        """The endpoint answered before and does not answer any more."""
        died = found.standing in (Classification.UNAVAILABLE, Classification.SERVER_ERROR)
        if died:
            self._store.put_event("endpoint-died", {"case": after, "reason": found.reason})
        self.halt(
            "endpoint-died" if died else found.reason,
            sentence(found, started=True, after=after if died else "") + because,
        )

    async def reach(self) -> Assessment:
        """Is anybody there? The simplest valid request, before anything else is asked; stops the run if not."""
        found = await self._probe(_reach_pauses(), started=False)
        if found.standing is not Classification.ANSWERED and not self.stop:
            wrong = sentence(found, started=False)
            budget = self._budget.exceeded()
            if budget:
                self.halt(budget, f"{wrong}; the budget --{budget} ended the run")
            else:
                self.halt(
                    found.reason if found.standing is Classification.CONFIGURATION else f"unreachable-{found.reason}",
                    wrong,
                )
        return found

    async def reach_judge(self, request: Request) -> Assessment:
        """Is the judge there? Asked before the first question: a judge that is not would waste prompts of a million
        tokens.
        """
        found = await self._probe(_reach_pauses(), request, started=False)
        if found.standing is not Classification.ANSWERED and not self.stop:
            self.halt(
                f"judge-{found.reason}",
                sentence(found, started=False).replace("the endpoint", "the judge").replace("this is", "the judge is"),
            )
        return found

    async def _probe(
        self, pauses: tuple[float, ...], request: Request | None = None, *, started: bool = True
    ) -> Assessment:
        """Send the control until it is answered or the pauses are used up; past the limiter and the closed road."""
        request = request or self._control_request
        body = encode(request.body)
        probe = next(self._probes)
        for attempt, pause in enumerate((*pauses, None), start=1):
            identity = Identity(case="kvv/reachability", sample=probe, step=0, ask=0, purpose=LIVENESS)
            received = await self._sender.send(identity, attempt, request, body, keep_frames=True)
            found = assess(received.exchange, received.observation)
            if not started and attempt > 1 and "ECONNREFUSED" in found.detail:
                return found  # nobody listens: that is told at once
            too_long = (found.retry_after_s or 0.0) > RETRY_AFTER_CAP_S
            if not found.retry or pause is None or too_long or self.stop or self._budget.exceeded():
                return found
            await self._pause(max(pause, found.retry_after_s or 0.0))
        raise AssertionError("unreachable")


def _features_of(case: Case, request: Request) -> frozenset[str]:
    """What may decide how an endpoint treats a request, whether it is one to refuse included."""
    invalid = expected_of(case, request.purpose) == "refused"
    return features_of(request) | ({INVALID} if invalid else frozenset())


def _because(case: Case) -> str:
    """A request of ours that a service may take for an attack."""
    own = case.inputs.get("credential", Credential.OWN) == Credential.OWN
    return "" if own else f"; it began when {case.id} asked without the run's key"


def _reach_pauses() -> tuple[float, ...]:
    return tuple(BACKOFF_S * 2**n for n in range(ATTEMPTS[Classification.UNAVAILABLE] - 1))
