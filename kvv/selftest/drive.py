"""One run of some contract cases against a reference endpoint of its own, with its faults, over real HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from kvv.cases.suite import Context, Settings, Suite, SuiteKind, load_suite, suite_ids
from kvv.core import Area, Case, Level, Request, Role, Surface, Timeouts, Verdict
from kvv.decision.gateway_timeouts import SUSPECTED, AttemptEnding, suspected_timeouts
from kvv.execution.scheduling.budget import Budget, RunBounds
from kvv.execution.scheduling.limits import Limiter
from kvv.execution.scheduling.pacing import Pacer
from kvv.execution.scheduling.scheduler import Scheduler
from kvv.execution.scheduling.work import Work
from kvv.execution.workers import Workers
from kvv.mockserver import MockConfig, MockServer
from kvv.mockserver.content import tokens
from kvv.profiles.profile import Profile, load_profile
from kvv.protocol.classify import LIVENESS, Classification, assess
from kvv.protocol.reader import ReadLimits, Received
from kvv.protocol.redaction.redactor import Redactor
from kvv.storage.store import Store
from kvv.transport import Endpoint, Transport

#: the reference endpoint answers at once: silence of this length is a hang
PATIENCE_S = 5.0
#: longest pause between attempts; nobody else's server is spared here
PAUSE_S = 0.02
#: requests in flight at one endpoint: above the load at which some faults begin
IN_FLIGHT = 12
#: the scheduler's own sign of life, which numbers its probes as samples
_PROBE = "kvv/reachability"
#: prompt tokens in flight at one endpoint, and its context window, that of Kimi K3
MAX_TOKENS = 4_000_000
WINDOW = 1_048_576
#: the gateway of fault I11 gives up after this long
GATEWAY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestSetting:
    """Who is asked as whom: the profile and surface that judge, the variant of the reference endpoint that answers.

    ``claims`` are claims laid over the profile's, for faults in what no shipped profile promises. ``tokenizer``: the
    judge has the endpoint's own, as who passes ``--tokenizer`` has the model's.
    """

    profile: str
    surface: Surface = Surface.VENDOR
    variant: str
    model: str = "kimi-k3"
    claims: tuple[tuple[str, Any], ...] = ()
    tokenizer: bool = False

    def judged_by(self) -> Profile:
        profile = load_profile(self.profile, self.surface)
        return profile.model_copy(update={"claims": profile.claims.model_copy(update=dict(self.claims))})


@dataclass(frozen=True, slots=True)
class Planned:
    suite: Suite
    case: Case


@dataclass(slots=True)
class Observed:
    """What one run showed. ``findings`` counts exchanges by (rule, area, level); ``repeats`` are the samples of a
    statistical gate and ``repeated`` counts their exchanges by rule; ``died``: the endpoint stopped answering in
    mid-run."""

    verdicts: dict[str, tuple[Case, Verdict]] = field(default_factory=dict)
    repeats: list[tuple[Case, Verdict]] = field(default_factory=list)
    findings: Counter[tuple[str, Area, Level]] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    died: str = ""
    stopped: str = ""

    def concluded(self, case: Case, verdict: Verdict) -> None:
        if case.sample:
            self.repeats.append((case, verdict))
        else:
            self.verdicts[case.id] = (case, verdict)

    def exchanged(self, received: Received, limit: int) -> None:
        self.requests += 1
        found = {(finding.rule, finding.area, finding.level) for finding in received.findings}
        self.findings.update(found)
        if received.exchange.identity.sample and received.exchange.identity.case != _PROBE:
            self.repeated.update(rule for rule, _, _ in found)

    def note(self, text: str) -> None:
        """Progress is the matrix's business."""


class _NoStore(Store):
    """Everything a run stores, forgotten: the observer keeps what the matrix needs."""

    def __init__(self) -> None:
        super().__init__(Path(), lock=None, writer=None, connection=None)

    def _put(self, run: Callable[..., None], *arguments: Any, size: int = 0, exchanges: int = 0) -> None:
        return


class _Hurried(Scheduler):
    async def _pause(self, seconds: float) -> None:
        await super()._pause(min(seconds, PAUSE_S))


class _Impatient(Transport):
    """Waits no longer than the reference endpoint can need, and remembers how each attempt ended."""

    endings: list[AttemptEnding]

    async def send(self, request: Request, *arguments: Any, **named: Any) -> Received:
        received = await super().send(
            replace(request, timeouts=Timeouts(first_byte=PATIENCE_S, idle=PATIENCE_S)), *arguments, **named
        )
        answered = assess(received.exchange, received.observation).standing is Classification.ANSWERED
        self.endings.append(AttemptEnding.of(received.exchange, stream=request.stream, answered=answered))
        return received


class _ReferenceTokens:
    """The reference endpoint's tokeniser, in the judge's hands."""

    def count(self, text: str) -> int:
        return tokens.count(text)

    def ids(self, text: str) -> Sequence[int]:
        return [tokens.token_id(token) for token in tokens.tokenize(text)]


@cache
def every_case(setting: SelftestSetting) -> tuple[Planned, ...]:
    """All cases of all contract suites as this setting plans them."""
    tokenizer = _ReferenceTokens() if setting.tokenizer else None
    context = Context(model=setting.model, profile=setting.judged_by(), settings=Settings(), tokenizer=tokenizer)
    suites = [suite for suite in map(load_suite, suite_ids()) if suite.kind is not SuiteKind.BENCHMARK]
    return tuple(Planned(suite, case) for suite in suites for case in suite.cases(context))


async def observe(
    setting: SelftestSetting,
    faults: Sequence[str],
    cases: Sequence[Planned],
    *,
    window: int = WINDOW,
    itl_ms: float = 0.0,
) -> Observed:
    """Ask the cases, risky ones last and alone, of a fresh endpoint with these faults.

    Those with a sample number are a statistical gate's. ``window`` is the endpoint's context window in tokens,
    ``itl_ms`` its time for each token.
    """
    server = MockServer(
        MockConfig(
            model=setting.model,
            variant=setting.variant,
            faults=tuple(faults),
            gateway_timeout_s=GATEWAY_S,
            context_window=window,
            itl_ms=itl_ms,
        )
    )
    await asyncio.to_thread(server.__enter__)
    try:
        return await _asked(setting, server.base_url, cases)
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)


async def _asked(setting: SelftestSetting, base_url: str, cases: Sequence[Planned]) -> Observed:
    observed = Observed()
    endpoint = Endpoint(role=Role.TARGET, base_url=base_url, key=None, headers={})
    body = {
        "model": setting.model,
        "messages": [{"role": "user", "content": "Reply with exactly: ready"}],
        "max_tokens": 16,
    }
    transport = _Impatient({Role.TARGET: endpoint}, redactor=Redactor([]), limits=ReadLimits())
    transport.endings = []
    async with transport, Workers() as workers:
        scheduler = _Hurried(
            transport=transport,
            store=_NoStore(),
            workers=workers,
            limiters={Role.TARGET: Limiter(fixed=IN_FLIGHT, max_tokens=MAX_TOKENS)},
            budget=Budget(bounds=RunBounds(), prices=None),
            profile=setting.judged_by(),
            control=Request(body=body, purpose=LIVENESS),
            observer=observed,
            pace=Pacer().lane(lambda: IN_FLIGHT),
        )
        await scheduler.reach()
        if not scheduler.stop:
            await scheduler.run([Work(suite=planned.suite, case=planned.case, keep_frames=True) for planned in cases])
        observed.stopped = scheduler.stop.sentence
        if scheduler.stop.reason == "endpoint-died":
            observed.died = scheduler.stop.sentence
    if suspected_timeouts(transport.endings):
        observed.findings[f"availability/{SUSPECTED}", Area.AVAILABILITY, Level.SHOULD] += 1
    return observed
