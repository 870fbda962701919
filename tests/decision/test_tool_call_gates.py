"""Gates on tool calls: the F1 and what it does not see, beside several official runs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from kvv.cases.suite import ReferenceRun, SuiteKind
from kvv.core import Area, Outcome, Stat
from kvv.decision import SuiteRun

P, F, I, S = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.SKIP  # noqa: E741

TOOL_GATES = {
    "benchmark": [
        {"suite": "bench", "method": "f1", "key": "triggered", "margin": 0.01},
        {"suite": "bench", "metric": "call_recall", "method": "agreement", "key": "triggered", "margin": 0.06},
        {"suite": "bench", "metric": "call_match", "method": "agreement", "key": "call_digest", "margin": 0.06},
        {"suite": "bench", "metric": "refusals", "method": "refusals", "key": "triggered", "margin": 0.01},
    ]
}


class ToolCalls:
    """A model in two minds about 2,000 prompts and the arguments of its calls; every draw is a fresh run of it."""

    def __init__(self, bench: Any, seed: int = 9, n: int = 2000) -> None:
        self.bench, self.rng = bench, np.random.default_rng(seed)
        self.p, self.usual = self.rng.beta(0.5, 0.5, n), self.rng.beta(4, 1, n)

    def run(self, less: float = 0.0, wrong: float = 0.0) -> np.ndarray:
        n = len(self.p)
        arguments = np.where(self.rng.random(n) < self.usual * (1 - wrong), 1, self.rng.integers(2, 50, n))
        return np.where(self.rng.random(n) < self.p * (1 - less), arguments, 0).astype(float)

    def decide(self, vendor: np.ndarray, runs: list[np.ndarray], refused: int = 0, *, digests: bool = True) -> Any:
        def values(token: float) -> dict[str, float]:
            return {"triggered": float(token > 0)} | ({"call_digest": float(token)} if digests else {})

        bench = self.bench
        verdicts = [
            bench.case(f"bench/q{i}", "bench", area=Area.TOOLS, outcome=F, reason="valid-request-refused")
            if i < refused
            else bench.case(f"bench/q{i}", "bench", area=Area.TOOLS, values=values(token))
            for i, token in enumerate(vendor)
        ]
        stats = [tool_stat(metric, len(vendor)) for metric in ("trigger_f1", "call_recall", "call_match", "refusals")]
        references = [
            ReferenceRun(name=f"official {k}", model="m", cases={f"bench/q{i}": [values(t)] for i, t in enumerate(run)})
            for k, run in enumerate(runs)
        ]
        suites = [SuiteRun(id="bench", kind=SuiteKind.BENCHMARK)]
        decision = bench.decide(
            verdicts, TOOL_GATES, suites=suites, metrics=False, stats=stats, references={"bench": references}
        )
        return {gate.id.split("/")[1]: gate for gate in decision.gates}


def tool_stat(metric: str, n: int) -> Stat:
    return Stat(
        suite="bench",
        metric=metric,
        primary=metric == "trigger_f1",
        estimate=0.8,
        interval=None,
        n_planned=n,
        n_concluded=n,
        n_inconclusive=0,
        n_truncated=0,
        worst_case=0.8,
        best_case=0.8,
    )


def test_an_identical_vendor_passes_every_gate_on_tool_calls_and_the_f1_says_what_it_would_miss(bench: Any) -> None:
    calls = ToolCalls(bench)
    gates = calls.decide(calls.run(), [calls.run() for _ in range(3)])
    assert {gate.decision for gate in gates.values()} == {P}
    assert re.search(r"leaves out 1\d\.\d % of its calls fails with 80 % power", gates["trigger_f1"].reason)


def test_refusals_on_one_side_and_other_arguments_fail_gates_of_their_own(bench: Any) -> None:
    calls = ToolCalls(bench)
    runs = [calls.run() for _ in range(3)]
    refused = calls.decide(calls.run(), runs, refused=60)
    assert (refused["refusals"].decision, refused["trigger_f1"].decision) == (F, P)
    assert "60 of 2000 requests refused that an official run answered" in refused["refusals"].reason
    assert calls.decide(calls.run(), runs, refused=8)["refusals"].decision is P
    wrong = calls.decide(calls.run(wrong=0.25), runs)
    assert (wrong["call_match"].decision, wrong["call_recall"].decision) == (F, P)


@pytest.mark.parametrize("runs_less", [(0.15, 0, 0), (0, 0, 0)])
def test_one_bad_official_run_of_three_lowers_no_bar_and_is_named(bench: Any, runs_less: tuple[float, ...]) -> None:
    calls = ToolCalls(bench)
    runs = [calls.run(less) for less in runs_less]
    shy = calls.decide(calls.run(less=0.15), runs)
    assert (shy["trigger_f1"].decision, shy["call_recall"].decision) == (F, F)
    assert ("left out as unlike the others: official 0" in shy["trigger_f1"].reason) is bool(runs_less[0])
    assert calls.decide(calls.run(), runs)["trigger_f1"].decision is P


def test_a_vendor_passes_beside_no_series_of_official_runs_that_drifts(bench: Any) -> None:
    calls = ToolCalls(bench)
    drifting = [calls.run(less=0.03 * k) for k in range(5)]
    for less in (0.15, 0.0):
        gates = calls.decide(calls.run(less=less), drifting)
        assert gates["trigger_f1"].decision is I
        assert gates["trigger_f1"].reason.startswith("official-runs-disagree: they call on ")
        assert gates["call_recall"].decision is I
    # far below each of them it is worse whichever of them is right
    assert calls.decide(calls.run(less=0.4), drifting)["call_recall"].decision is F


def test_what_a_call_was_is_only_told_until_two_official_runs_hold_their_calls(bench: Any) -> None:
    calls = ToolCalls(bench, n=400)
    one = calls.decide(calls.run(), [calls.run()])
    assert (one["call_match"].decision, one["call_recall"].decision) == (S, S)
    assert "it needs two" in one["call_match"].reason
    old = calls.decide(calls.run(), [calls.run(), calls.run()], digests=False)
    assert old["call_match"].decision is S
    assert "hold no value call_digest" in old["call_match"].reason
    shy = calls.decide(calls.run(less=0.5), [calls.run()])
    assert shy["call_recall"].decision is F, "one run can show that calls are missing"
