"""Passive rules are shares of answers by workload: an accident in thousands fails nothing, a habit does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvv.core import Area, FindingKind, Level, Outcome
from kvv.decision import CountedFindings
from kvv.decision.inputs import OfficialRates, Workload
from kvv.decision.rule_rates import rates_of
from kvv.profiles.policy import Policy

P, F, I, S = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.SKIP  # noqa: E741
CONTRACT, BENCHMARK, AGENT = Workload.CONTRACT, Workload.BENCHMARK, Workload.AGENT


def finding(workload: Workload, objected: int, rule: str = "tools/arguments-json", level: Level = Level.MUST) -> Any:
    return CountedFindings(
        rule=rule,
        area=Area.TOOLS,
        level=level,
        kind=FindingKind.BREAKS_CLIENTS,
        count=objected,
        exchanges=objected,
        message="no JSON",
        workloads={workload: objected},
    )


def decided(bench: Any, group: CountedFindings, answers: int, policy: dict[str, Any] | None = None, **more: Any) -> Any:
    [workload] = group.workloads
    return bench.decide(
        [bench.case("params/a", "params"), bench.case("tools/a", "tools", area=Area.TOOLS)],
        policy,
        findings=[group],
        answers={workload: answers},
        **more,
    )


@pytest.mark.parametrize(
    ("workload", "objected", "answers", "outcome"),
    [
        (AGENT, 1, 22_500, P),  # one malformed call in a whole SWE-bench run
        (AGENT, 675, 22_500, F),  # 3 % invented tool names
        (AGENT, 67, 22_500, P),  # on the bound, from below
        (AGENT, 80, 22_500, I),
        (AGENT, 110, 22_500, F),
        (BENCHMARK, 10, 1_000, F),  # a 1 % fault from 1,000 answers
        (BENCHMARK, 1, 1_000, P),
        (BENCHMARK, 3, 60, F),  # a 5 % fault in a smoke run
        (BENCHMARK, 1, 60, P),
        (CONTRACT, 2, 1_585, F),  # asked for on purpose, and again
        (CONTRACT, 1, 1_585, I),  # did not repeat
    ],
)
def test_a_rule_fails_by_its_share_of_a_workload(
    bench: Any, workload: Workload, objected: int, answers: int, outcome: Outcome
) -> None:
    decision = decided(bench, finding(workload, objected), answers)
    assert decision.outcome is outcome
    gate = next(gate for gate in decision.gates if gate.area is Area.TOOLS)
    assert gate.decision is outcome
    if outcome is not P:
        assert f"tools/arguments-json in {objected:,} of {answers:,} {workload} answers" in gate.reason


@pytest.mark.parametrize(("rate", "answers"), [(0.05, 60), (0.01, 1_000)])
def test_a_fault_is_seen_in_four_of_five_runs_and_a_rare_accident_in_none_of_five_hundred(
    rate: float, answers: int
) -> None:
    policy = Policy(name="p")
    rng = np.random.default_rng(3)

    def failed(share: float) -> float:
        draws = rng.binomial(answers, share, 500)
        found = [
            rates_of(finding(BENCHMARK, int(k)), {BENCHMARK: answers}, policy, OfficialRates())[0].decision
            for k in draws
            if k
        ]
        return sum(one is F for one in found) / 500

    assert failed(rate) >= 0.78
    assert failed(0.0002) <= 0.002


def test_a_policy_bounds_a_rule_of_its_own(bench: Any) -> None:
    group = finding(AGENT, 40, rule="tools/unknown-name")
    assert decided(bench, group, 1_000).outcome is F
    assert decided(bench, group, 1_000, {"rules": {"limits": {"tools/unknown-*": 0.05}}}).outcome is P


def test_what_does_not_bind_is_shown_with_its_share(bench: Any) -> None:
    decision = decided(bench, finding(AGENT, 500, level=Level.SHOULD), 1_000)
    assert decision.outcome is P
    assert decision.weighed[0].share == "500 of 1,000 agent answers (46.9 to 53.1 %)"


@pytest.mark.parametrize(
    ("objected", "official", "outcome"),
    [
        (30, OfficialRates(), P),  # loops of the model itself: shown, without anything to compare with
        (30, OfficialRates(answers=50), P),
        (60, OfficialRates(answers=1_000, objected={"heuristic/repetition": 1}), F),
        (60, OfficialRates(answers=1_000, objected={"heuristic/repetition": 55}), P),
        (12, OfficialRates(answers=1_000, objected={"heuristic/repetition": 1}), P),  # within what the policy bears
    ],
)
def test_what_the_model_does_is_bounded_by_what_it_does_at_the_official_endpoint(
    bench: Any, objected: int, official: OfficialRates, outcome: Outcome
) -> None:
    group = finding(BENCHMARK, objected, rule="heuristic/repetition", level=Level.SHOULD)
    decision = decided(bench, group, 1_000, official=official)
    assert decision.outcome is outcome
    shown = decision.weighed[0].rates[0].decision
    assert shown is (S if official.answers < 100 else outcome)
