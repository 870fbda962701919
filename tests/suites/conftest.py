"""Contract suites played without a network: against the reference endpoint's own engine, or against a function that
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import replies

from kvv.cases.checks import CheckInput
from kvv.cases.contract import ContractSuite
from kvv.cases.suite import Context, Settings
from kvv.core import Answered, Ask, Case, Dataset, Done, Frame, Identity, Observation, Reply, Request, Surface, Verdict
from kvv.mockserver.config import MockConfig
from kvv.mockserver.engine import MockEngine
from kvv.profiles.profile import load_profile
from kvv.protocol.reader import ExchangeReader, ReadLimits

#: an answer to a request: the status and what it says
Endpoint = Callable[[Request], tuple[int, Observation]]
#: variant of the reference endpoint -> profile and surface that it must pass clean
CLEAN = {
    "kimi-k3": ("kimi-k3", Surface.VENDOR),
    "openai": ("openai", Surface.VENDOR),
    "vllm": ("kimi-k3", Surface.ENGINE),
}


@dataclass(frozen=True)
class Stage:
    """Plays cases of a contract suite to their verdict."""

    @staticmethod
    def context(
        profile: str = "kimi-k3", surface: Surface = Surface.VENDOR, tier: str = "smoke", dataset: Dataset | None = None
    ) -> Context:
        return Context(
            model="kimi-k3", profile=load_profile(profile, surface), settings=Settings(), tier=tier, dataset=dataset
        )

    def asked(self, suite: ContractSuite, **options: Any) -> list[Case]:
        """The cases that are not skipped."""
        return [case for case in suite.cases(self.context(**options)) if not case.inputs["skip"]]

    def play(self, suite: ContractSuite, case: Case, reply: Callable[[Request, Identity], Answered]) -> Verdict:
        history: list[Reply] = []
        for number in range(80):
            step = suite.step(case, history)
            if isinstance(step, Done):
                return step.verdict
            assert isinstance(step, Ask)
            identities = [
                Identity(case=case.id, sample=0, step=number, ask=at, purpose=one.purpose)
                for at, one in enumerate(step.requests)
            ]
            history.append(
                tuple(reply(request, identity) for request, identity in zip(step.requests, identities, strict=True))
            )
        raise AssertionError("no verdict in 80 steps")

    def against_reference(
        self, suite: ContractSuite, cases: Sequence[Case], *, variant: str = "kimi-k3", faults: tuple[str, ...] = ()
    ) -> list[Verdict]:
        """All cases, one after the other, against one engine: its caches and its memory last."""
        engine = MockEngine(MockConfig(model="kimi-k3", variant=variant, faults=faults))
        return [
            self.play(suite, case, lambda request, identity: _engine_reply(engine, request, identity)) for case in cases
        ]

    def against(self, suite: ContractSuite, case: Case, endpoint: Endpoint) -> Verdict:
        def reply(request: Request, identity: Identity) -> Answered:
            status, observation = endpoint(request)
            return Answered(request=request, exchange=replies.exchange(identity, status), observation=observation)

        return self.play(suite, case, reply)

    @staticmethod
    def says(text: str | None = "ready", **fields: Any) -> tuple[int, Observation]:
        """A completion; ``fields`` as in ``replies.completion``."""
        return 200, replies.completion(text, **fields)

    @staticmethod
    def counts(prompt: int, completion: int = 1) -> dict[str, int]:
        return replies.counts(prompt, completion)

    @staticmethod
    def refuses(status: int = 400) -> tuple[int, Observation]:
        return status, replies.refusal()

    @staticmethod
    def look(
        case: Case,
        answer: tuple[int, Observation],
        *,
        body: Mapping[str, Any] | None = None,
        siblings: Mapping[str, tuple[int, Observation]] | None = None,
        frames: Sequence[tuple[float, bytes]] = (),
        total_ms: float = 0.0,
    ) -> CheckInput:
        """One answer as a check sees it; ``frames`` are (milliseconds, data)."""
        request = Request(body=body or {})
        kept = tuple(Frame(number=at, offset_ms=offset, data=data) for at, (offset, data) in enumerate(frames))
        identity = Identity(case=case.id, sample=0, step=0, ask=0, purpose="probe")
        one = Answered(
            request=request,
            exchange=replies.exchange(identity, answer[0], frames=kept, total_ms=total_ms),
            observation=answer[1],
        )
        others = {
            name: Answered(request=request, exchange=replies.exchange(identity, status), observation=said)
            for name, (status, said) in (siblings or {}).items()
        }
        return CheckInput(answered=one, case=case, siblings=others or {"": one})


def _engine_reply(engine: MockEngine, request: Request, identity: Identity) -> Answered:
    assert isinstance(request.body, Mapping)
    outcome = engine.answer(request.body)
    reader = ExchangeReader(
        identity=identity,
        attempt=1,
        request=request,
        started="",
        rules=None,
        keep_frames=True,
        limits=ReadLimits(),
        redact=None,
    )
    reader.head(outcome.reply.status, outcome.reply.headers)
    for part in outcome.reply.parts:
        if isinstance(part, bytes):
            reader.feed(part, 1.0)
    engine.settle(outcome)
    received = reader.finish(fault=None, total_ms=2.0)
    return Answered(request=request, exchange=received.exchange, observation=received.observation)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture(params=sorted(CLEAN))
def clean(request: pytest.FixtureRequest) -> tuple[str, str, Surface]:
    """Variant, profile and surface that must pass together."""
    profile, surface = CLEAN[request.param]
    return request.param, profile, surface
