"""An endpoint that is played against the steps of a contract case: a function from a request to what came back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import replies

from kvv.cases.case_file import Names, parse_case_file
from kvv.cases.checks import CheckInput
from kvv.cases.contract import COMMON, Toolbox, contract_step, names_of
from kvv.cases.contract.expand import expand
from kvv.cases.suite import Context, Settings
from kvv.core import (
    Answered,
    Area,
    Ask,
    Case,
    Done,
    FaultKind,
    Identity,
    Level,
    Observation,
    Reply,
    Request,
    Shape,
    Surface,
    Verdict,
)
from kvv.profiles.profile import load_profile

#: status, what the body says, transport fault, content type
Answer = tuple[int | None, Observation, FaultKind | None]
HEAD = (
    'area = "errors"\nsource = "s"\nsince = "0"\nprompt = "Reply with exactly: ready"\nstream = "off"\nthinking ='
    ' "default"\n'
)


class Lab:
    """Makes cases and answers, and plays them."""

    names: Names = names_of(COMMON)

    @staticmethod
    def says(text: str | None = "ready", **fields: Any) -> Answer:
        """A completion; ``fields`` as in ``replies.completion``."""
        return 200, replies.completion(text, **fields), None

    @staticmethod
    def counts(prompt: int, cached: int | None = None, text: str = "ready") -> Answer:
        return Lab.says(text, usage=replies.counts(prompt, cached=cached))

    @staticmethod
    def refuses(
        status: int = 400, message: str = "no", kind: str | None = "invalid_request_error", *, envelope: bool = True
    ) -> Answer:
        return status, replies.refusal(message, kind, envelope=envelope), None

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
        base = {
            "control": {"model": "m"},
            "expect": expect,
            "statuses": [400, 422],
            "checks": {},
            "skip": "",
            "stream": False,
            "rounds": [entry],
        }
        return Case(
            id="params/x",
            suite="params",
            area=Area.DECODING,
            level=Level.MUST,
            requirement="",
            source="",
            since="",
            inputs={**base, **inputs},
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
        context = Context(
            model="m",
            profile=load_profile(profile, surface),
            settings=Settings(thinking=thinking),
            other_model=other_model,
        )
        return list(expand("lab", parse_case_file(head + text, "lab.toml", names_of(toolbox)), context))

    def only(self, text: str, **options: Any) -> Case:
        [case] = self.cases(text, **options)
        return case

    @staticmethod
    def answered(
        request: Request, answer: Answer, number: int = 0, ask: int = 0, content_type: str = "application/json"
    ) -> Answered:
        status, observation, fault = answer
        identity = Identity(case="params/x", sample=0, step=number, ask=ask, purpose=request.purpose)
        exchange = replies.exchange(identity, status, fault=fault, content_type=content_type)
        return Answered(request=request, exchange=exchange, observation=observation)

    def drive(
        self, case: Case, endpoint: Callable[[Request], Answer], toolbox: Toolbox = COMMON
    ) -> tuple[Verdict, list[Request]]:
        """Play the endpoint against the steps: the verdict, and the requests in order."""
        history: list[Reply] = []
        asked: list[Request] = []
        for number in range(80):
            step = contract_step(case, history, "1", toolbox)
            if isinstance(step, Done):
                return step.verdict, asked
            assert isinstance(step, Ask)
            asked += step.requests
            history.append(
                tuple(self.answered(request, endpoint(request), number, at) for at, request in enumerate(step.requests))
            )
        raise AssertionError("no verdict in 80 steps")

    def look(
        self,
        answer: Answer,
        body: Mapping[str, Any] | None = None,
        siblings: Mapping[str, Answer] | None = None,
        **more: Any,
    ) -> CheckInput:
        """One answer for a check; ``siblings`` by name, the answer itself being the last of them where none are
        given.
        """
        request = Request(body=body or {})
        one = self.answered(request, answer, **more)
        others = {name: self.answered(request, other) for name, other in (siblings or {}).items()}
        return CheckInput(answered=one, case=self.case(), siblings=others or {"": one})


@pytest.fixture
def lab() -> Lab:
    return Lab()


def purposes(asked: Sequence[Request]) -> list[str]:
    return [request.purpose for request in asked]
