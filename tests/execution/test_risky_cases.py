"""One at a time where a dead endpoint must be blamed on one request, together where it was survived before."""

from __future__ import annotations

from typing import Any

from kvv.core import Area, Case, Level
from kvv.execution.scheduling.risky import in_groups
from kvv.execution.scheduling.work import Work


def risky(case_id: str, **inputs: Any) -> Work:
    case = Case(
        id=case_id,
        suite="errors",
        area=Area.ERRORS,
        level=Level.MUST,
        requirement="An engine MUST survive",
        source="test",
        since="0.1.0",
        risk=True,
        inputs=inputs,
    )
    return Work(suite=None, case=case, keep_frames=True)  # type: ignore[arg-type]


def order(*works: Work) -> list[list[str]]:
    return [[work.case.id for work in together] for together in in_groups(works)]


def test_the_first_of_a_kind_is_alone_and_other_modes_of_it_follow_together() -> None:
    deep, flood = {"schema": "deep"}, {"schema": "flood"}
    assert order(
        risky("deep/stream", body={**deep, "stream": True, "thinking": {"type": "enabled"}}),
        risky("deep/whole", body=deep),
        risky("flood/stream", body={**flood, "stream": True, "stream_options": {"include_usage": True}}),
        risky("flood/whole", body={**flood, "chat_template_kwargs": {"thinking": True}}),
    ) == [["deep/stream"], ["flood/stream"], ["deep/whole", "flood/whole"]]


def test_what_is_asked_otherwise_is_another_kind() -> None:
    body = {"schema": "deep"}
    assert order(
        risky("a", body=body),
        risky("b", body={**body, "max_tokens": 9}),
        risky("c", body=body, credential="wrong"),
        risky("d", body={}),
        risky("e", body={}),
    ) == [["a"], ["b"], ["c"], ["d"], ["e"]]


def test_nothing_risky_is_no_group() -> None:
    assert order() == []
