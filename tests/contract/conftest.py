"""An endpoint that is played against the steps of a contract case: a function from a request to what came back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from kvv.casefile import Names, parse_case_file
from kvv.checks import Look
from kvv.contract import COMMON, Toolbox, contract_step, names_of
from kvv.contract.expand import expand
from kvv.model import (
    Answered,
    Area,
    Ask,
    Case,
    Choice,
    Done,
    ErrorBody,
    Exchange,
    Fault,
    FaultKind,
    Identity,
    Level,
    Observation,
    Reply,
    Request,
    Role,
    Shape,
    Surface,
    ToolCall,
    UsageReport,
    Verdict,
)
from kvv.profile import load_profile
from kvv.suite import Context, Settings

#: status, what the body says, transport fault, content type
Answer = tuple[int | None, Observation, FaultKind | None]
HEAD = 'area = "errors"\nsource = "s"\nsince = "0"\nprompt = "Reply with exactly: ready"\nstream = "off"\nthinking = "default"\n'


class Lab:
    """Makes cases and answers, and plays them."""

    names: Names = names_of(COMMON)

    @staticmethod
    def says(text: str | None = "ready", **fields: Any) -> Answer:
        """A completion: content, and ``calls`` (name, arguments, id), ``finish``, ``reasoning``, ``field``, ``usage``."""
        calls = tuple(
            ToolCall(index=at, id=call[2] if len(call) > 2 else f"{call[0]}_{at}", name=call[0], arguments=call[1], type="function")
            for at, call in enumerate(fields.get("calls", ()))
        )
        reasoning = fields.get("reasoning")
        choice = Choice(
            index=0,
            role="assistant",
            answer=text,
            reasoning=reasoning,
            reasoning_field=fields.get("field", "reasoning_content") if reasoning is not None else None,
            tool_calls=calls,
            finish_reason=fields.get("finish", "tool_calls" if calls else "stop"),
        )
        usage = (UsageReport(place="body", frame=0, raw=fields["usage"]),) if "usage" in fields else ()
        return 200, Observation(shape=Shape.COMPLETION, choices=(choice,), usage=usage), None

    @staticmethod
    def counts(prompt: int, cached: int | None = None, text: str = "ready") -> Answer:
        raw: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": 1, "total_tokens": prompt + 1}
        if cached is not None:
            raw["prompt_tokens_details"] = {"cached_tokens": cached}
        return Lab.says(text, usage=raw)

    @staticmethod
    def refuses(status: int = 400, message: str = "no", kind: str | None = "invalid_request_error", *, envelope: bool = True) -> Answer:
        return status, Observation(shape=Shape.ERROR, error=ErrorBody(message=message, type=kind, envelope=envelope)), None

    @staticmethod
    def fails(kind: FaultKind) -> Answer:
        return None, Observation(shape=Shape.NONE), kind

    @staticmethod
    def status(status: int) -> Answer:
        return status, Observation(shape=Shape.NOT_JSON), None

    @staticmethod
    def case(expect: str = "answered", **inputs: Any) -> Case:
        """One request without a name; ``checks`` go into its round."""
        entry = {
            "requests": {"": {"body": {"model": "m", "stop": 1}, "stream": False}},
            "expect": expect,
            "checks": inputs.get("checks", {}),
            "compare": {},
            "rate": {},
        }
        base = {"control": {"model": "m"}, "expect": expect, "statuses": [400, 422], "checks": {}, "skip": "", "stream": False, "rounds": [entry]}
        return Case(
            id="params/x", suite="params", area=Area.DECODING, level=Level.MUST, requirement="", source="", since="", inputs={**base, **inputs}
        )

    def cases(
        self,
        text: str,
        *,
        profile: str = "kimi-k3",
        surface: Surface = Surface.VENDOR,
        head: str = HEAD,
        toolbox: Toolbox = COMMON,
        other_model: str = "",
        thinking: bool | None = None,
    ) -> list[Case]:
        """The cases of a case file, for a profile."""
        context = Context(model="m", profile=load_profile(profile, surface), settings=Settings(thinking=thinking), other_model=other_model)
        return list(expand("lab", parse_case_file(head + text, "lab.toml", names_of(toolbox)), context))

    def only(self, text: str, **options: Any) -> Case:
        [case] = self.cases(text, **options)
        return case

    @staticmethod
    def answered(request: Request, answer: Answer, number: int = 0, ask: int = 0, content_type: str = "application/json") -> Answered:
        status, observation, fault = answer
        identity = Identity(case="params/x", sample=0, step=number, ask=ask, purpose=request.purpose)
        exchange = Exchange(
            identity=identity,
            attempt=1,
            role=Role.TARGET,
            started="",
            status=status,
            content_type=content_type,
            fault=Fault(kind=fault, detail="") if fault else None,
        )
        return Answered(request=request, exchange=exchange, observation=observation)

    def drive(self, case: Case, endpoint: Callable[[Request], Answer], toolbox: Toolbox = COMMON) -> tuple[Verdict, list[Request]]:
        """Play the endpoint against the steps: the verdict, and the requests in order."""
        history: list[Reply] = []
        asked: list[Request] = []
        for number in range(80):
            step = contract_step(case, history, "1", toolbox)
            if isinstance(step, Done):
                return step.verdict, asked
            assert isinstance(step, Ask)
            asked += step.requests
            history.append(tuple(self.answered(request, endpoint(request), number, at) for at, request in enumerate(step.requests)))
        raise AssertionError("no verdict in 80 steps")

    def look(self, answer: Answer, body: Mapping[str, Any] | None = None, siblings: Mapping[str, Answer] | None = None, **more: Any) -> Look:
        """One answer for a check; ``siblings`` by name, the answer itself being the last of them where none are given."""
        request = Request(body=body or {})
        one = self.answered(request, answer, **more)
        others = {name: self.answered(request, other) for name, other in (siblings or {}).items()}
        return Look(answered=one, case=self.case(), siblings=others or {"": one})


@pytest.fixture
def lab() -> Lab:
    return Lab()


def purposes(asked: Sequence[Request]) -> list[str]:
    return [request.purpose for request in asked]
