from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kvv.cases.suite import Context, ReferenceRun, Settings
from kvv.core import (
    Answered,
    Case,
    Choice,
    Dataset,
    Exchange,
    Identity,
    Observation,
    Request,
    Role,
    Shape,
    ToolCall,
    Verdict,
)
from kvv.profiles.profile import Profile, load_profile
from kvv.suites.toolcall.suite import ToolcallSuite

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    },
}


class Bench:
    """Builds rows, contexts, answers and verdicts for the suite under test."""

    suite = ToolcallSuite()
    tool = TOOL

    def row(self, text: str, **fields: Any) -> dict[str, Any]:
        return {"model": "m", "messages": [{"role": "user", "content": text}], "tools": [TOOL], **fields}

    def context(
        self,
        rows: list[dict[str, Any]],
        *,
        profile: Profile | None = None,
        references: tuple[ReferenceRun, ...] = (),
        **settings: Any,
    ) -> Context:
        dataset = Dataset(rows=rows, origin="test", revision="r1")
        return Context(
            model="model-under-test",
            profile=profile or load_profile("openai"),
            settings=Settings(**settings),
            dataset=dataset,
            references=references,
        )

    def call(self, arguments: Any, name: str | None = "add") -> ToolCall:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return ToolCall(index=0, id="c0", name=name, arguments=text)

    def answered(
        self, case: Case, *calls: ToolCall, finish: str | None = None, text: str = "", reasoning: str | None = None
    ) -> Answered:
        request = self.suite.request(case)
        identity = Identity(case=case.id, sample=case.sample, step=0, ask=0, purpose="probe")
        choice = Choice(
            index=0,
            answer=text,
            reasoning=reasoning,
            tool_calls=calls,
            finish_reason=finish if finish is not None else "tool_calls" if calls else "stop",
        )
        exchange = Exchange(identity=identity, attempt=1, role=Role.TARGET, started="", status=200)
        return Answered(
            request=request,
            exchange=exchange,
            observation=Observation(shape=Shape.COMPLETION, choices=(choice,), done=True),
        )

    def judge(self, case: Case, *calls: ToolCall, **fields: Any) -> Verdict:
        return self.suite.judge(case, self.answered(case, *calls, **fields))

    def case_with(self, parameters: Any, *, request: Request | None = None) -> Case:
        row = {
            "messages": [{"role": "user", "content": "go"}],
            "tools": [{"type": "function", "function": {"name": "add", "parameters": parameters}}],
        }
        return self.suite.cases(self.context([row], profile=load_profile("kimi-k3")))[0]


@pytest.fixture
def bench() -> Bench:
    return Bench()


BenchFixture = Callable[[], Bench]
