"""A crash that repeats is the request's doing only where other requests do not crash."""

from __future__ import annotations

from typing import Any

import pytest

from kvv.cases.contract.crashes import CrashRate
from kvv.core import FaultKind, Outcome, Verdict

CRASH = Verdict(
    case="errors/deep",
    sample=0,
    outcome=Outcome.FAIL,
    reason="reproducible-cut",
    detail="3 of 3",
    facts={"asked": 3, "crashed": 3},
)


def others(n: int, crashed: int) -> list[Verdict]:
    return [
        Verdict(case=f"c/{i}", sample=0, outcome=Outcome.PASS, facts={"asked": 1, "crashed": int(i < crashed)})
        for i in range(n)
    ]


def test_a_crash_in_an_otherwise_quiet_run_stands() -> None:
    rate = CrashRate.of([CRASH, *others(400, 2)])
    assert rate.weighed(CRASH) is CRASH


def test_a_crash_in_a_run_of_random_trouble_is_inconclusive_with_the_figures() -> None:
    weighed = CrashRate.of([CRASH, *others(400, 120)]).weighed(CRASH)
    assert (weighed.outcome, weighed.reason) == (Outcome.INCONCLUSIVE, "crash-by-chance-cut")
    assert "120 of 400 requests of other cases crashed too" in weighed.detail


def test_many_requests_that_crash_every_time_do_not_excuse_each_other() -> None:
    every = [*[CRASH] * 100, *others(300, 1)]
    assert CrashRate.of(every).weighed(CRASH) is CRASH


@pytest.mark.parametrize("reason", ["invalid-request-accepted", "valid-request-refused"])
def test_other_failures_are_not_weighed(reason: str) -> None:
    verdict = Verdict(case="a", sample=0, outcome=Outcome.FAIL, reason=reason, facts={"asked": 2})
    assert CrashRate.of(others(10, 9)).weighed(verdict) is verdict


def test_a_case_alone_keeps_its_verdict() -> None:
    assert CrashRate.of([CRASH]).weighed(CRASH) is CRASH


def test_verdicts_count_their_crashes(lab: Any) -> None:
    answers = iter([lab.fails(FaultKind.RESET), lab.says()])

    def endpoint(request: Any) -> Any:
        return lab.says() if request.purpose.startswith("between") else next(answers)

    verdict, _ = lab.drive(lab.case(), endpoint)
    assert (verdict.outcome, verdict.facts["asked"], verdict.facts["crashed"]) == (Outcome.PASS, 2, 1)
