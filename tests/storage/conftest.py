from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kvv.core import (
    Area,
    Case,
    Choice,
    Exchange,
    Fault,
    Finding,
    Frame,
    Identity,
    Level,
    Observation,
    Outcome,
    Request,
    Role,
    Shape,
    Timing,
    Upstream,
    UsageReport,
    Verdict,
)
from kvv.protocol.encode import encode
from kvv.protocol.reader import Received
from kvv.storage.store import Store


class Maker:
    """Makes plausible parts of a run and puts them."""

    def case(self, case_id: str = "suite/one", suite: str = "suite", inputs: Mapping[str, Any] | None = None) -> Case:
        inputs = inputs or {"question": "1+1"}
        return Case(
            id=case_id,
            suite=suite,
            area=Area.TOOLS,
            level=Level.MUST,
            requirement="Answers.",
            source="us",
            since="1",
            inputs=inputs,
        )

    def identity(
        self, case: str = "suite/one", sample: int = 0, step: int = 0, ask: int = 0, purpose: str = "probe"
    ) -> Identity:
        return Identity(case=case, sample=sample, step=step, ask=ask, purpose=purpose)

    def received(
        self,
        identity: Identity,
        *,
        answer: str = "42",
        attempt: int = 1,
        status: int | None = 200,
        role: Role = Role.TARGET,
        usage: Mapping[str, Any] | None = None,
        fault: Fault | None = None,
        timing: Timing | None = None,
        upstream: Upstream | None = None,
        findings: tuple[Finding, ...] = (),
        frames: tuple[Frame, ...] | None = None,
    ) -> Received:
        data = json.dumps({"choices": [{"message": {"content": answer}}]}).encode()
        exchange = Exchange(
            identity=identity,
            attempt=attempt,
            role=role,
            started="2026-01-01T00:00:00.000Z",
            status=status,
            headers=(("date", "now"),),
            content_type="application/json",
            frames=(Frame(1, 1.5, data, "body"),) if frames is None else frames,
            frame_count=1,
            bytes_received=len(data),
            fault=fault,
            upstream=upstream or Upstream(),
            timing=timing or Timing(),
        )
        answered = status == 200 and fault is None
        observation = Observation(
            shape=Shape.COMPLETION if answered else Shape.NONE,
            choices=(Choice(index=0, answer=answer, finish_reason="stop"),) if answered else (),
            usage=(UsageReport(place="body", frame=1, raw=usage),) if usage is not None else (),
        )
        return Received(exchange=exchange, observation=observation, findings=findings)

    def put(
        self,
        store: Store,
        identity: Identity,
        *,
        body: Any = None,
        cost: float | None = None,
        stream: bool = False,
        **fields: Any,
    ) -> Received:
        role = fields.get("role", Role.TARGET)
        request = Request(
            body=body if body is not None else {"model": "m"}, role=role, purpose=identity.purpose, stream=stream
        )
        received = self.received(identity, **fields)
        store.put_exchange(received, request, encode(request.body), cost=cost)
        return received

    def verdict(
        self, case: str = "suite/one", sample: int = 0, outcome: Outcome = Outcome.PASS, **fields: Any
    ) -> Verdict:
        return Verdict(case=case, sample=sample, outcome=outcome, **fields)


@pytest.fixture
def make() -> Maker:
    return Maker()


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(store_path: Path) -> Iterator[Store]:
    with Store.create(store_path, {"run": "test"}) as store:
        yield store
