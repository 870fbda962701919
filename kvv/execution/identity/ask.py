"""Asks one endpoint the prompts of `kvv identity`: sampled answers in two forms of head, and greedy ones.

Half of the sampled requests say that they come from kvv, half look like any client's: an endpoint that treats the two
differently is no endpoint that a benchmark measures. The order is drawn by seed, so that kinds and prompts mix.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kvv.core import Identity, Level, Request, Role
from kvv.execution.executor import redactor_for
from kvv.execution.identity.prompts import PROBES, PROMPTS
from kvv.execution.scheduling.budget import Budget
from kvv.planning.config import RunConfig
from kvv.planning.run_plan import RunPlan
from kvv.profiles.profile import Profile
from kvv.protocol.classify import Assessment, Classification, assess, count_findings
from kvv.protocol.encode import encode
from kvv.protocol.reader import ReadLimits, Received
from kvv.protocol.rules import rules_for
from kvv.storage.identity_reference import PromptAnswers
from kvv.transport import Transport
from kvv.transport.endpoint import Endpoint

#: tokens of an answer: a difference shows early or not at all
MAX_TOKENS = 40
#: and of an answer that is right or wrong, thinking included
PROBE_TOKENS = 512
#: alternatives that are asked for at each place of a greedy answer
TOP = 5
#: requests without an answer after which an endpoint that never gave one is left alone
NEVER_ALIVE = 8
AT_ONCE, ATTEMPTS, PAUSE_S, MOST_PAUSE_S = 8, 3, 1.0, 20.0


@dataclass(slots=True, kw_only=True)
class Asked:
    """``forms`` are the sampled texts by prompt and form: recognisable, then discreet. ``refused``: why greedy answers
    are missing, "" where they are not. ``probes``: whether each small task was solved, as harnesses put it and
    rewritten; None where no whole answer came. ``rules`` counts exchanges by wire rules of level must that objected.
    """

    forms: list[tuple[list[str], list[str]]] = field(default_factory=list)
    prompts: list[PromptAnswers] = field(default_factory=list)
    planned: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    refused: str = ""
    rules: Counter[str] = field(default_factory=Counter)
    probes: list[list[bool | None]] = field(default_factory=list)

    @property
    def answered(self) -> int:
        return sum(len(one.texts) for one in self.prompts)


def settings_of(config: RunConfig, profile: Profile) -> dict[str, Any]:
    """What decides whether answers can be compared, JSON-like."""
    on = None if config.thinking is None else config.thinking == "on"
    effort = config.effort[0] if config.effort else None
    return {
        "prompts_sha256": hashlib.sha256(json.dumps(PROMPTS).encode()).hexdigest()[:16],
        "max_tokens": MAX_TOKENS,
        "temperature": 1.0,
        "top_p": config.top_p,
        "thinking": profile.thinking_body(on=on, effort=effort, mode=config.think_mode),
        "extra_body": dict(config.extra_body),
    }


class Interview:
    """``samples`` answers to each prompt, and a greedy one."""

    def __init__(self, job: RunPlan, target: Endpoint, discreet: Endpoint, budget: Budget, samples: int) -> None:
        self._job, self._budget, self._samples = job, budget, samples
        self._targets = target, discreet
        self._settings = settings_of(job.config, job.profile)
        self._room = asyncio.Semaphore(job.config.concurrency or AT_ONCE)
        self._logprobs = job.profile.claims.logprobs
        self._sent = 0

    async def run(self) -> Asked:
        asked = Asked(
            forms=[([], []) for _ in PROMPTS],
            prompts=[PromptAnswers() for _ in PROMPTS],
            planned=len(PROMPTS) * self._samples,
            probes=[[None, None] for _ in PROBES],
        )
        config = self._job.config
        async with AsyncExitStack() as stack:
            transports = []
            for target in self._targets:
                transport = Transport(
                    {Role.TARGET: target},
                    redactor=redactor_for({Role.TARGET: target}),
                    limits=ReadLimits(),
                    connect_timeout=config.connect_timeout,
                    first_byte_timeout=config.first_byte_timeout,
                    idle_timeout=config.idle_timeout,
                )
                transports.append(await stack.enter_async_context(transport))
            work = [(number, sample) for number in range(len(PROMPTS)) for sample in range(-1, self._samples)]
            tasks = [self._one(asked, transports, number, sample) for number, sample in work]
            tasks += [self._probe(asked, transports, number, form) for number in range(len(PROBES)) for form in (0, 1)]
            Random(config.seed).shuffle(tasks)
            async with asyncio.TaskGroup() as group:
                for task in tasks:
                    group.create_task(task)
        for answers, (first, second) in zip(asked.prompts, asked.forms, strict=True):
            answers.texts = [*first, *second]
        return asked

    async def _one(self, asked: Asked, transports: list[Transport], number: int, sample: int) -> None:
        async with self._room:
            if self._dead(asked):
                return
            if spent := self._budget.exceeded():
                asked.lost[spent] += 1
                return
            form = 1 if self._job.config.discreet else max(0, sample) % 2
            if sample >= 0:
                received, found = await self._ask(transports[form], self._body(PROMPTS[number], temperature=1.0), asked)
                if found.standing is Classification.ANSWERED:
                    asked.forms[number][form].append(_text(received))
                else:
                    asked.lost[found.reason] += 1
                return
            fields: dict[str, Any] = {"temperature": 0}
            more = {"logprobs": True, "top_logprobs": TOP} if self._logprobs else {}
            received, found = await self._ask(transports[form], self._body(PROMPTS[number], **fields, **more), asked)
            if found.standing is Classification.REFUSED and more:
                received, found = await self._ask(transports[form], self._body(PROMPTS[number], **fields), asked)
            if found.standing is Classification.ANSWERED:
                asked.prompts[number].greedy = _text(received)
                asked.prompts[number].distributions = distributions(received)
            else:
                asked.refused = found.detail or found.reason

    async def _probe(self, asked: Asked, transports: list[Transport], number: int, form: int) -> None:
        async with self._room:
            if self._dead(asked) or self._budget.exceeded():
                return
            head = 1 if self._job.config.discreet else form
            body = self._body(PROBES[number][form], max_tokens=PROBE_TOKENS)
            received, found = await self._ask(transports[head], body, asked)
            if found.standing is Classification.ANSWERED and received.observation.finish_reason != "length":
                right = rf"(?<!\w)(?:{PROBES[number][2]})(?!\w)"
                said = received.observation.answer.lower()
                asked.probes[number][form] = re.search(right, said) is not None

    @staticmethod
    def _dead(asked: Asked) -> bool:
        """Nothing was ever answered: what is still planned would not be either."""
        return asked.lost.total() >= NEVER_ALIVE and not any(map(any, asked.forms))

    def _body(self, prompt: str, **fields: Any) -> dict[str, Any]:
        settings = self._settings
        body = {
            "model": self._job.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": MAX_TOKENS,
            **({"top_p": settings["top_p"]} if settings["top_p"] is not None else {}),
            **settings["thinking"],
        }
        return {**body, **fields, **settings["extra_body"]}

    async def _ask(self, transport: Transport, body: Mapping[str, Any], asked: Asked) -> tuple[Received, Assessment]:
        """The last of at most three attempts: only what no judge could read is asked again."""
        request = Request(body=body, purpose="identity")
        self._sent += 1
        identity = Identity(case="identity", sample=self._sent, step=0, ask=0, purpose="identity")
        attempt = 0
        while True:
            attempt += 1
            self._budget.count_request()
            received = await transport.send(
                request,
                encode(body),
                identity=identity,
                attempt=attempt,
                rules=rules_for(self._job.profile, request),
                keep_frames=True,
                deadline=self._budget.remaining_s(),
            )
            self._budget.count_usage(received.observation)
            found = assess(received.exchange, received.observation)
            if not found.retry or attempt == ATTEMPTS or self._budget.exceeded():
                break
            await asyncio.sleep(min(MOST_PAUSE_S, found.retry_after_s or PAUSE_S * attempt))
        findings = count_findings(request, received.exchange, received.observation, received.findings)
        asked.rules.update({one.rule for one in findings if one.level is Level.MUST})
        return received, found


def _text(received: Received) -> str:
    """All that the model wrote: with thinking on, so few tokens may all be thought."""
    choice = received.observation.first
    return "\n".join(filter(None, (choice.reasoning, choice.answer)))


def distributions(received: Received) -> list[dict[str, float]]:
    """The probabilities of the likeliest tokens at each place; [] where none are served. A body may hold anything."""
    try:
        body = json.loads(received.exchange.frames[0].data)
        places = body["choices"][0]["logprobs"]["content"]
        found = []
        for place in places[:MAX_TOKENS]:
            tokens = {
                str(one["token"])[:200]: math.exp(min(0.0, float(one["logprob"]))) for one in place["top_logprobs"]
            }
            if not tokens or any(math.isnan(value) for value in tokens.values()):
                return []
            found.append(tokens)
        return found
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, OverflowError):
        return []
