"""A run from the first request to the stored end: reachability, gate, contract, benchmarks, end wave."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType
from typing import Protocol, Self

from kvv.cases.suite import Judge, Suite, SuiteKind
from kvv.core import Answered, Ask, Case, Level, Outcome, Request, Role, Verdict
from kvv.execution.interim_analyses import EarlyStop
from kvv.execution.preparation import control_request, generator_for
from kvv.execution.scheduling.budget import Budget
from kvv.execution.scheduling.limits import AUTO_CEILING, Limiter
from kvv.execution.scheduling.pacing import PaceSetting
from kvv.execution.scheduling.scheduler import Scheduler
from kvv.execution.scheduling.stages import Source
from kvv.execution.scheduling.trees import SharedResults
from kvv.execution.scheduling.work import Stop, Work
from kvv.execution.workers import Workers
from kvv.planning.config import USUAL_KEYS, ConfigError, read_key
from kvv.planning.plan import PlannedSuite, in_order, interleaved
from kvv.planning.run_plan import RunPlan
from kvv.protocol.classify import LIVENESS, Classification, assess
from kvv.protocol.reader import ReadLimits, Received
from kvv.protocol.redaction.redactor import Redactor
from kvv.sandbox import Sandbox, find_backend
from kvv.sandbox.adapters import OWN
from kvv.sandbox.descriptors import allow_open_files
from kvv.storage.store import Store
from kvv.transport import Endpoint, EndpointError, Transport
from kvv.transport.endpoint import in_address

#: reasons that a second try at the end of the run may mend; the rest would only repeat themselves
NOT_TRIED_AGAIN = frozenset(
    {
        "policy",
        "body-limit",
        "scorer-timeout",
        "scorer-died",
        "emulated-timeout",
        "unstable-refusal",
        "control-not-answered",
        "cut-before-stop",
    }
)
#: how many inconclusive samples the end wave asks again at most
END_WAVE = 2_000
#: connections beside those of the limiter: signs of life go past it
PROBE_CONNECTIONS = 8
#: open files beside connections: the store and its logs, workers' pipes, data, libraries
OTHER_FILES = 256
#: why a reference lane stops with the lane that it stands beside
TARGET_ENDED = "target-ended"


class LaneProgress(Protocol):
    def resumed(self, suite: str, outcome: Outcome) -> None: ...
    def concluded(self, case: Case, verdict: Verdict) -> None: ...
    def exchanged(self, received: Received, limit: int) -> None: ...
    def note(self, text: str) -> None: ...


class Progress(LaneProgress, Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


ProgressFactory = Callable[[Mapping[str, int], Budget], Progress]


@dataclass(slots=True, kw_only=True)
class RunEnding:
    """How a run ended. ``blocked``: the parameter gate failed and kept the benchmarks from starting."""

    stop: Stop = field(default_factory=Stop)
    blocked: bool = False
    configuration: bool = False


def endpoints(job: RunPlan, base_url: str) -> dict[Role, Endpoint]:
    """Each role's URL, key and headers; a key is read from the environment and goes to its own role only."""
    config = job.config
    headers = {name: read_key(variable, required=True) or "" for name, variable in config.header_env.items()}
    key = _key(config.api_key_env)
    target = Endpoint(role=Role.TARGET, base_url=base_url, key=key, headers=headers, discreet=config.discreet)
    found = {Role.TARGET: target}
    if config.judge_base_url:
        key = _key(config.judge_api_key_env)
        found[Role.JUDGE] = Endpoint(role=Role.JUDGE, base_url=config.judge_base_url, key=key, headers={})
    elif job.in_process:
        found[Role.JUDGE] = Endpoint(role=Role.JUDGE, base_url=base_url, key=None, headers={})
    return found


def _key(name: str) -> str | None:
    """A usual variable may be unset, for an endpoint that wants no key; one that the user named must be there."""
    return read_key(name, required=name not in USUAL_KEYS)


def _own_words(job: RunPlan) -> list[tuple[str, str]]:
    """By option what of the user's goes into requests as it is."""
    config = job.config
    bodies = {"--extra-body": config.extra_body, "--judge-extra-body": config.judge_extra_body}
    prompts = [item.context.judge_prompts for item in job.plan.suites if item.context.judge_prompts is not None]
    return [
        *((option, json.dumps(body, ensure_ascii=False)) for option, body in bodies.items()),
        *(("--judge-prompts", "\n".join((found.item, found.order, found.question))) for found in prompts[:1]),
    ]


def check_endpoints(job: RunPlan, lane: str = "") -> None:
    """Everything a request's head is made of can be made; ConfigError naming the option, before anything is written.
    ``lane``: "reference".
    """
    all_roles = endpoints(job, job.config.base_url or "http://127.0.0.1")
    known = redactor_for(all_roles).plus(
        secret for found in all_roles.values() for secret in in_address(found.base_url)
    )
    for option, said in _own_words(job):
        if not known.suspects(said):
            continue
        raise ConfigError(
            f"{option}: holds a key of this run, which would be stored with every request; the key's variable is"
            " named by --api-key-env, a header's by --header-env"
        )
    for found in all_roles.values():
        try:
            Transport({found.role: found}, redactor=Redactor(), limits=ReadLimits())
        except EndpointError as error:
            raise ConfigError(
                f"--{'judge-' if found.role is Role.JUDGE else lane and f'{lane}-'}base-url or its key: {error}"
            ) from error


def check_connections(*jobs: RunPlan) -> None:
    """As many connections can be open at once as these runs may want together; ConfigError before anything is sent."""
    wanted = sum(
        (job.config.concurrency or AUTO_CEILING) * len(endpoints(job, "http://127.0.0.1")) * (1 + job.in_process)
        for job in jobs
    )
    allowed = allow_open_files(wanted + OTHER_FILES)
    if allowed < wanted + OTHER_FILES:
        raise ConfigError(
            f"--concurrency: up to {wanted:,} connections at once need {wanted + OTHER_FILES:,} open files, and this"
            f" system allows {allowed:,} (`ulimit -Hn`); raise that limit or lower --concurrency"
        )


def redactor_for(found: Mapping[Role, Endpoint]) -> Redactor:
    return Redactor(
        [secret for endpoint in found.values() for secret in (endpoint.key, *endpoint.headers.values()) if secret]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the lanes of a run have in common, and this lane's part of it."""

    workers: Workers
    budget: Budget
    pace: PaceSetting
    limiter: Limiter
    judge: Limiter
    progress: LaneProgress
    controls: SharedResults


class Executor:
    """One endpoint's way through the plan. ``followers`` have nothing to do without it: they end when its benchmarks do
    not start.
    """

    def __init__(self, job: RunPlan, store: Store, base_url: str, *, resumed: bool) -> None:
        self._job = job
        self._store = store
        self._resumed = resumed
        self._endpoints = endpoints(job, base_url)
        self._unsettled: dict[str, tuple[PlannedSuite, Case]] = {}
        self._gate_failed = False
        self._earlier = store.outcomes() if resumed else {}
        self._planned = {planned.suite.id: planned for planned in job.plan.suites}
        self._early = EarlyStop(job, store, self.note)
        self._scheduler: Scheduler | None = None
        self._halted: tuple[str, str] | None = None
        self.followers: list[Executor] = []
        #: whether the endpoint was there at the start
        self.reached = False

    async def run(self, shared: Shared) -> RunEnding:
        config = self._job.config
        self._progress = shared.progress
        self._pace = shared.pace
        transport = Transport(
            self._endpoints,
            redactor=redactor_for(self._endpoints),
            connect_timeout=config.connect_timeout,
            first_byte_timeout=config.first_byte_timeout,
            idle_timeout=config.idle_timeout,
            limits=ReadLimits(),
            max_connections=max(limiter.ceiling for limiter in (shared.limiter, shared.judge)) + PROBE_CONNECTIONS,
        )
        async with transport:
            sandbox = _sandbox(self._job)
            self._scheduler = scheduler = Scheduler(
                transport=transport,
                store=self._store,
                workers=shared.workers,
                limiters={Role.TARGET: shared.limiter, Role.JUDGE: shared.judge},
                budget=shared.budget,
                profile=self._job.profile,
                control=control_request(self._job),
                observer=self,
                pace=self._pace,
                moonshot_stream=self._job.policy.moonshot_stream,
                seed=config.seed,
                sandbox=sandbox,
                shared=shared.controls,
            )
            if self._halted:
                scheduler.halt(*self._halted)
            try:
                return await self._waves(scheduler)
            finally:
                self._pace.leave()
                if sandbox is not None:
                    await sandbox.close()

    def halt(self, reason: str, sentence: str) -> None:
        """As the scheduler's, also before there is one."""
        if self._scheduler is None:
            self._halted = self._halted or (reason, sentence)
        else:
            self._scheduler.halt(reason, sentence)

    @property
    def stop(self) -> Stop:
        return self._scheduler.stop if self._scheduler is not None else Stop()

    async def _waves(self, scheduler: Scheduler) -> RunEnding:
        found = await scheduler.reach()
        judge = self._judge_request()
        if judge is not None and not scheduler.stop:
            found = await scheduler.reach_judge(judge)
        ending = RunEnding(configuration=found.standing in (Classification.CONFIGURATION, Classification.REFUSED))
        self.reached = not scheduler.stop
        if not scheduler.stop:
            for wave, kind in enumerate((SuiteKind.PRE_CHECK, SuiteKind.CONTRACT, SuiteKind.BENCHMARK)):
                if kind is SuiteKind.BENCHMARK and self._gate_failed and not self._job.config.force:
                    ending.blocked = any(
                        planned.suite.kind is SuiteKind.BENCHMARK for planned in self._planned.values()
                    )
                    self._store.put_event("gate-failed", {})
                    for follower in self.followers:
                        follower.halt(
                            TARGET_ENDED,
                            "the parameter gate of the endpoint under test failed, its benchmarks did not start",
                        )
                    break
                await self._pace.enter(wave)
                await scheduler.run(self._works(kind))
            self._pace.finish()
            await self._end_wave(scheduler)
        ending.stop = scheduler.stop
        return ending

    def _judge_request(self) -> Request | None:
        """The simplest request to the judge, as it will be asked; None where no planned suite has one."""
        judge = next(
            (item.context.judge for item in self._planned.values() if item.context.judge is not None and item.cases),
            None,
        )
        if judge is None or Role.JUDGE not in self._endpoints:
            return None
        return Request(body=Judge.body(judge.fields(), "Reply with exactly: ready"), role=Role.JUDGE, purpose=LIVENESS)

    async def _end_wave(self, scheduler: Scheduler) -> None:
        again = [(item, case) for item, case in self._unsettled.values() if not self._early.ended(item.suite.id)][
            :END_WAVE
        ]
        if again and not scheduler.stop:
            await asyncio.to_thread(self._store.flush)
            self._progress.note(f"asking {len(again)} inconclusive samples once more")
            await scheduler.run([self._work(planned, case, judged=True) for planned, case in again])

    # --- works -----------------------------------------------------------------------------------

    def _works(self, kind: SuiteKind) -> Iterable[Work] | Source:
        planned = [item for item in self._planned.values() if item.suite.kind is kind]
        if kind is SuiteKind.BENCHMARK and self._early.on:
            return self._early.stages(planned, self._works_of)
        order = interleaved if self._job.config.discreet else in_order
        return self._works_of(order(planned, lambda suite: generator_for(self._job.config.seed, suite)))

    def _works_of(self, samples: Iterable[tuple[PlannedSuite, Case]]) -> Iterator[Work]:
        """Those of the samples that are still to be concluded."""
        for item, case in samples:
            outcome = self._earlier.get((case.id, case.sample))
            if outcome is not None and outcome not in (Outcome.INCONCLUSIVE, Outcome.ERROR):
                self._note_gate(item, case, outcome)
                self._progress.resumed(item.suite.id, outcome)
                self._pace.skip()
                continue
            yield self._work(item, case, judged=outcome is not None)

    def _work(self, item: PlannedSuite, case: Case, *, judged: bool) -> Work:
        """A sample without a verdict goes on from the steps an earlier process concluded; one judged INCONCLUSIVE
        begins anew, but for the leading steps that its suite lets stand."""
        keep = item.suite.kind is not SuiteKind.BENCHMARK or self._job.config.record == "full"
        work = Work(suite=item.suite, case=case, keep_frames=keep)
        verdict = self._store.verdict(case.id, case.sample) if judged else None
        kept = item.suite.kept_steps(verdict) if verdict is not None else 0
        # a sandbox's tree did not outlive its process: what was done to it is done again
        gone = (
            self._resumed
            and not judged
            and "sandbox" in item.suite.needs
            and bool(self._store.replies(case.id, case.sample))
        )
        if gone or (judged and not kept):
            self._store.put_restart(case.id, case.sample)
        elif judged or self._resumed:
            stored = _conclusive(item.suite, case, self._store.history(case.id, case.sample))
            work.history = list(islice(stored, kept) if judged else stored)
        if judged or self._resumed:
            work.attempts = self._store.attempts(case.id, case.sample)
        return work

    # --- what the scheduler tells ------------------------------------------------------------------

    def concluded(self, case: Case, verdict: Verdict) -> None:
        item = self._planned[case.suite]
        known = self._unsettled.pop(case.key, None)
        if (
            verdict.outcome is Outcome.INCONCLUSIVE
            and verdict.reason not in NOT_TRIED_AGAIN
            and known is None
            and len(self._unsettled) < END_WAVE
        ):
            self._unsettled[case.key] = (item, case)
        self._note_gate(item, case, verdict.outcome)
        if known is None:
            self._progress.concluded(case, verdict)

    def _note_gate(self, item: PlannedSuite, case: Case, outcome: Outcome) -> None:
        if item.suite.kind is SuiteKind.PRE_CHECK and outcome is Outcome.FAIL and case.level is Level.MUST:
            self._gate_failed = True

    def exchanged(self, received: Received, limit: int) -> None:
        self._progress.exchanged(received, limit)

    def note(self, text: str) -> None:
        self._progress.note(text)


def _sandbox(job: RunPlan) -> Sandbox | None:
    """Untried: the job has tried it. With another's grader, that too."""
    if not job.sandbox:
        return None
    if job.config.grader in (None, OWN):
        return find_backend(job.sandbox)
    from kvv.sandbox.adapters.harness import WithHarness

    return WithHarness(find_backend(job.sandbox))


def _conclusive(suite: Suite, case: Case, history: Sequence[tuple[Answered, ...]]) -> Iterator[tuple[Answered, ...]]:
    """The leading steps that are whole and whose every reply was an answer or a refusal; what broke off is asked
    again.
    """
    for number, replies in enumerate(history):
        step = suite.step(case, history[:number])
        whole = isinstance(step, Ask) and len(step.requests) == len(replies)
        if not whole or not all(assess(reply.exchange, reply.observation).spoken for reply in replies):
            return
        yield replies


def reference_target(job: RunPlan) -> AbstractContextManager[tuple[str, Callable[[], Mapping[str, object]] | None]]:
    """The URL to ask, and, where the target is our own endpoint, how to read its counts."""
    return _in_process(job) if job.in_process else contextlib.nullcontext((_base_url(job), None))


def _base_url(job: RunPlan) -> str:
    if job.config.base_url is None:
        raise ConfigError("--base-url: is needed")
    return job.config.base_url


@contextlib.contextmanager
def _in_process(job: RunPlan) -> Iterator[tuple[str, Callable[[], Mapping[str, object]] | None]]:
    from kvv.execution.answer_key import answer_entries
    from kvv.mockserver import MockConfig, MockServer  # only this kind of run pays for the server

    entries = [
        entry
        for planned in job.plan.suites
        if planned.context.dataset is not None
        for entry in planned.suite.answer_key(planned.context.dataset)
    ]
    with MockServer(MockConfig(model=job.model, answers=answer_entries(entries), seed=job.config.seed)) as server:
        yield server.base_url, server.stats
