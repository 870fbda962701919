"""One run of some contract cases against a reference endpoint of its own, with its faults, over real HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from kvv.config import RunConfig
from kvv.job import control_request, prepare
from kvv.model import Area, Case, Level, Request, Role, Surface, Timeouts, Verdict
from kvv.profile import load_profile
from kvv.reading import Limits, Received
from kvv.redact import Redactor
from kvv.reference import ReferenceConfig, ReferenceServer
from kvv.schedule.budget import Bounds, Budget
from kvv.schedule.limits import Limiter
from kvv.schedule.scheduler import Scheduler, Work
from kvv.store import Store
from kvv.suite import Suite
from kvv.transport import Endpoint, Transport
from kvv.workers import Workers

#: the reference endpoint answers at once: silence of this length is a hang
PATIENCE_S = 5.0
#: longest pause between attempts; nobody else's server is spared here
PAUSE_S = 0.02
#: requests in flight at one endpoint: above the load at which some faults begin
IN_FLIGHT = 12
#: the gateway of fault I11 gives up after this long
GATEWAY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Who is asked as whom: the profile and surface that judge, the variant of the reference endpoint that answers."""

    profile: str
    surface: Surface = Surface.VENDOR
    variant: str
    model: str = "kimi-k3"


@dataclass(frozen=True, slots=True)
class Planned:
    suite: Suite
    case: Case


@dataclass(slots=True)
class Observed:
    """What one run showed. ``findings`` counts exchanges by (rule, area, level); ``repeats`` are the samples of a statistical gate;
    ``died``: the endpoint stopped answering in mid-run."""

    verdicts: dict[str, tuple[Case, Verdict]] = field(default_factory=dict)
    repeats: list[tuple[Case, Verdict]] = field(default_factory=list)
    findings: Counter[tuple[str, Area, Level]] = field(default_factory=Counter)
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
        self.findings.update({(finding.rule, finding.area, finding.level) for finding in received.findings})

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
    async def send(self, request: Request, *arguments: Any, **named: Any) -> Received:
        return await super().send(replace(request, timeouts=Timeouts(first_byte=PATIENCE_S, idle=PATIENCE_S)), *arguments, **named)


@cache
def every_case(setting: Setting) -> tuple[Planned, ...]:
    """All cases of all contract suites as this setting plans them."""
    config = RunConfig(base_url="http://127.0.0.1/v1", model=setting.model, profile=setting.profile, surface=setting.surface, quiet=True)
    job = prepare(config, contract_only=True)
    return tuple(Planned(planned.suite, case) for planned in job.plan.suites for case in planned.cases)


async def observe(setting: Setting, faults: Sequence[str], cases: Sequence[Planned], *, repeated: Sequence[Planned] = (), times: int = 0) -> Observed:
    """Ask the cases, risky ones last and alone, of a fresh endpoint with these faults; some of them so many times more, as samples from 1 on."""
    config = RunConfig(base_url="http://127.0.0.1/v1", model=setting.model, profile=setting.profile, surface=setting.surface, quiet=True)
    observed = Observed()
    server = ReferenceServer(
        ReferenceConfig(model=setting.model, variant=setting.variant, faults=tuple(faults), gateway_timeout_s=GATEWAY_S)
    )
    await asyncio.to_thread(server.__enter__)
    try:
        endpoint = Endpoint(role=Role.TARGET, base_url=server.base_url, key=None, headers={})
        transport = _Impatient({Role.TARGET: endpoint}, redactor=Redactor([]), limits=Limits())
        async with transport, Workers() as workers:
            scheduler = _Hurried(
                transport=transport,
                store=_NoStore(),
                workers=workers,
                limiters={Role.TARGET: Limiter(fixed=IN_FLIGHT, max_tokens=config.max_inflight_tokens)},
                budget=Budget(bounds=Bounds(), prices=None),
                profile=load_profile(setting.profile, setting.surface),
                control=control_request(prepare(config, contract_only=True)),
                observer=observed,
            )
            await scheduler.reach()
            if not scheduler.stop:
                again = [Planned(planned.suite, replace(planned.case, sample=number)) for planned in repeated for number in range(1, times + 1)]
                await scheduler.run([Work(suite=planned.suite, case=planned.case, keep_frames=False) for planned in (*cases, *again)])
            observed.stopped = scheduler.stop.sentence
            if scheduler.stop.reason == "endpoint-died":
                observed.died = scheduler.stop.sentence
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)
    return observed
