"""Policy -> decision. Feed a ``Collector`` every verdict, then ``decide``.

collector = Collector(policy, suites, today)
for case, verdict in verdicts:
    collector.add(case, verdict)
decision = decide(collector, Evidence(stats=..., findings=group_findings(...), references=...),
np.random.default_rng(seed)) code = exit_code(decision.outcome, interrupted=..., budget=...)
"""

from __future__ import annotations

from kvv.decision.decide import Decision, WaiverState, aggregate, coverage_sentence, decide, exit_code
from kvv.decision.forecast import Expected, Forecast, GateForecast, expected_design, f1_resolves, forecast
from kvv.decision.inputs import (
    Collector,
    CountedFindings,
    DecisionEvidence,
    FindingExample,
    InterimAnalysis,
    SuiteRun,
    group_findings,
)
from kvv.decision.interim_analysis import InterimDecision, decide_look
from kvv.decision.service_levels import LatencyTally, Lost, TimedAnswer

__all__ = [
    "Collector",
    "CountedFindings",
    "Decision",
    "DecisionEvidence",
    "Expected",
    "FindingExample",
    "Forecast",
    "GateForecast",
    "InterimAnalysis",
    "InterimDecision",
    "LatencyTally",
    "Lost",
    "SuiteRun",
    "TimedAnswer",
    "WaiverState",
    "aggregate",
    "coverage_sentence",
    "decide",
    "decide_look",
    "exit_code",
    "expected_design",
    "f1_resolves",
    "forecast",
    "group_findings",
]
