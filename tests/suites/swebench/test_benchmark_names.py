"""Which public benchmark a run's rows are of: DeepSWE's tasks and SWE-bench's instances are different questions."""

from __future__ import annotations

from typing import Any

import pytest

from kvv.cases.suite import Context, Settings
from kvv.core import Area, Case, Level, Outcome, Verdict
from kvv.profiles.profile import load_profile
from kvv.suites.swebench.rows import InstanceTally, comparability


def tallied(*commits: bool) -> InstanceTally:
    tally = InstanceTally()
    for number, task in enumerate(commits):
        inputs: dict[str, Any] = {
            "instance": f"i{number}",
            "commits": task,
            "sandbox": {},
            "agent": "a 1",
            "mode": "tools",
            "known_bad": "",
        }
        case = Case(
            id=f"swebench/i{number}",
            suite="swebench",
            area=Area.ACCURACY,
            level=Level.SHOULD,
            requirement="",
            source="",
            since="1",
            inputs=inputs,
        )
        tally.add(case, Verdict(case=case.id, sample=0, outcome=Outcome.INCONCLUSIVE, reason="reset"))
    return tally


@pytest.mark.parametrize(
    ("commits", "name"),
    [((True, True), "DeepSWE"), ((False,), "SWE-bench"), ((True, False), "SWE-bench and DeepSWE"), ((), "SWE-bench")],
)
def test_a_row_says_of_which_benchmark_it_is(commits: tuple[bool, ...], name: str) -> None:
    context = Context(model="kimi-k3", profile=load_profile("kimi-k3"), settings=Settings())
    assert comparability("1", tallied(*commits), context)["benchmark"] == name
