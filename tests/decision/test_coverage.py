"""An area is kept only where the policy's minimum of it was looked at, and every area says what was."""

from __future__ import annotations

from typing import Any

import pytest

from kvv.core import Area, Outcome

CLAIM = "the profile m does not claim required on the surface vendor"


def tools(bench: Any, passed: int, skipped: int, failed: int = 0, detail: str = CLAIM) -> list[Any]:
    outcomes = [Outcome.PASS] * passed + [Outcome.SKIP] * skipped + [Outcome.FAIL] * failed
    return [
        bench.case(
            f"tools/{number}",
            "tools",
            area=Area.TOOLS,
            outcome=outcome,
            **({"reason": "not-claimed", "detail": detail} if outcome is Outcome.SKIP else {}),
        )
        for number, outcome in enumerate(outcomes)
    ]


def test_an_area_says_what_was_asked_and_why_the_rest_was_not(bench: Any) -> None:
    decision = bench.decide(tools(bench, 38, 186), {"coverage": {"share": 0.1}})
    [gate] = decision.gates
    assert decision.outcome is Outcome.PASS
    assert gate.reason == f"contract-kept: 38 cases passed; 38 of 224 cases asked, skipped: 186 ({CLAIM})"
    found = decision.coverage_by_area[Area.TOOLS]
    assert (found.planned, found.asked, found.concluded, found.skipped) == (224, 38, 38, {CLAIM: 186})


@pytest.mark.parametrize(("passed", "outcome"), [(45, Outcome.PASS), (44, Outcome.INCONCLUSIVE)])
def test_below_the_minimum_nothing_is_kept(bench: Any, passed: int, outcome: Outcome) -> None:
    decision = bench.decide(tools(bench, passed, 225 - passed))
    assert decision.outcome is outcome
    assert decision.gates[0].reason.startswith(
        "too-little-asked: 44 of 225" if outcome is not Outcome.PASS else "contract"
    )


def test_what_the_model_does_not_promise_is_not_kept_and_decides_nothing(bench: Any) -> None:
    other = bench.case("params/a", "params")
    decision = bench.decide([*tools(bench, 2, 133), other], unpromised=frozenset([Area.TOOLS]))
    gate = next(gate for gate in decision.gates if gate.area is Area.TOOLS)
    assert (gate.decision, decision.outcome) == (Outcome.SKIP, Outcome.PASS)
    assert gate.reason.startswith("too-little-asked: 2 of 135")
    required = {"required": {"areas": ["tools"]}}
    decision = bench.decide([*tools(bench, 2, 133), other], required, unpromised=frozenset([Area.TOOLS]))
    assert decision.outcome is Outcome.INCONCLUSIVE


def test_a_failure_is_one_however_little_was_asked(bench: Any) -> None:
    assert bench.decide(tools(bench, 1, 133, failed=1)).outcome is Outcome.FAIL


def test_cases_of_another_kind_of_endpoint_are_no_part_of_an_area(bench: Any) -> None:
    decision = bench.decide(tools(bench, 2, 133, detail="not asked of the surface vendor"))
    assert decision.outcome is Outcome.PASS
    assert decision.coverage_by_area[Area.TOOLS].planned == 2


def test_a_single_area_may_be_asked_more_of(bench: Any) -> None:
    policy = {"coverage": {"areas": {"tools": 0.5}}}
    assert bench.decide(tools(bench, 60, 40), policy).outcome is Outcome.PASS
    assert bench.decide(tools(bench, 40, 60), policy).outcome is Outcome.INCONCLUSIVE
