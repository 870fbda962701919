from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pytest
from means import mean_stat

from kvv.cases.suite import ReferenceRun, SuiteKind
from kvv.core import Area, Case, FindingKind, Level, Outcome, ReferenceValue, Verdict
from kvv.core import Evidence as Pointer
from kvv.decision import Collector, CountedFindings, DecisionEvidence, FindingExample, SuiteRun, decide, exit_code
from kvv.profiles.policy import Policy, Waiver
from kvv.stats.metrics import GroupTally
from kvv.storage.causes import find_causes, with_example
from kvv.storage.view import (
    CheckRow,
    EndpointView,
    PolicyRef,
    PromptTier,
    Quantiles,
    RunEvent,
    RunFacts,
    RunView,
    TimingView,
    TrafficView,
)

TODAY = date(2026, 3, 1)
Q = Quantiles(n=120, p50=210.5, p90=480.0, p99=900.25)


def judged(
    case_id: str,
    suite: str,
    outcome: Outcome,
    *,
    level: Level = Level.MUST,
    area: Area = Area.DECODING,
    text: str = "",
    sample: int = 0,
    **more: Any,
) -> tuple[Case, Verdict]:
    case = Case(
        id=case_id,
        suite=suite,
        area=area,
        level=level,
        requirement=text or "a value above the range is refused",
        source=text or "KVV",
        since="1",
        inputs={},
        sample=sample,
    )
    values = more.pop("values", {})
    evidence = (
        (Pointer(exchange=f"{case_id}#0/0.0.probe", frame=3, excerpt=text or "data: {}"),)
        if outcome is Outcome.FAIL
        else ()
    )
    verdict = Verdict(
        case=case_id,
        sample=sample,
        outcome=outcome,
        reason=text[:40] or "not-refused",
        detail=text or "answered 200",
        values=values,
        evidence=evidence,
        **more,
    )
    return case, verdict


class Views:
    """Makes run views; ``text`` stands wherever something from outside could."""

    judged = staticmethod(judged)

    @staticmethod
    def make(
        text: str = "", *, extra: Iterable[tuple[Case, Verdict]] = (), passing: int = 3, policy: Policy | None = None
    ) -> RunView:
        policy = policy or Policy.model_validate(
            {"name": "test", "benchmark": [{"suite": "ocrbench", "key": "score", "margin": 0.05}]}
        )
        digest = policy.sha256
        # not through validation: hostile text gets there from files as well
        waiver = Waiver.model_construct(
            case="params/top-p", reason=text or "by design", owner=text or "ops", issue=text, expires=TODAY
        )
        policy = policy.model_copy(update={"waiver": (waiver,)})
        suites = (
            SuiteRun(id="params", kind=SuiteKind.PRE_CHECK, title="Decoding parameters"),
            SuiteRun(id="streaming", kind=SuiteKind.CONTRACT),
            SuiteRun(id="ocrbench", kind=SuiteKind.BENCHMARK, title=text or "OCRBench"),
            SuiteRun(id="beam", kind=SuiteKind.BENCHMARK, skipped=text or "no judge"),
        )
        verdicts = [judged(f"params/ok-{i}", "params", Outcome.PASS) for i in range(passing)]
        verdicts += [
            judged("params/too-hot", "params", Outcome.FAIL, text=text),
            judged("params/top-p", "params", Outcome.FAIL, text=text),
            judged("params/pretty", "params", Outcome.FAIL, level=Level.SHOULD, text=text),
            judged("params/ours", "params", Outcome.ERROR, text=text),
            judged("params/off", "params", Outcome.SKIP, text=text),
            judged("streaming/done", "streaming", Outcome.INCONCLUSIVE, area=Area.STREAMING, text=text),
        ]
        answers = [
            judged(
                f"ocrbench/q{i}",
                "ocrbench",
                Outcome.PASS if i % 9 else Outcome.FAIL,
                area=Area.ACCURACY,
                text=text,
                values={"score": float(i % 9 > 0)},
            )
            for i in range(90)
        ]
        verdicts += [*answers, *extra]
        collector = Collector(policy, suites, TODAY)
        for case, verdict in verdicts:
            collector.add(case, verdict)
        groups = GroupTally()
        for i in range(90):
            groups.add(text or "vqa", float(i % 9 > 0))
        stats = [
            mean_stat(
                "ocrbench",
                "accuracy",
                answers,
                key="score",
                primary=True,
                breakdown=groups.table(),
                comparability={"sampling": text or "T=1"},
            )
        ]
        findings = [
            CountedFindings(
                rule=text or "stream/done",
                area=Area.STREAMING,
                level=Level.MUST,
                kind=FindingKind.BREAKS_CLIENTS,
                count=4,
                exchanges=2,
                message=text or "no [DONE]",
                examples=(FindingExample(exchange=text or "a#0/0.0.probe", frame=7, excerpt=text or "data: {}"),),
                causes=(text or "f1",),
            )
        ]
        reference = ReferenceRun(
            name=text or "official",
            model="m",
            cases={f"ocrbench/q{i}": [{"score": float(i % 8 > 0)}] for i in range(90)},
        )
        decision = decide(
            collector,
            DecisionEvidence(stats=stats, findings=findings, references={"ocrbench": [reference]}),
            np.random.default_rng(0),
        )
        view = RunView(
            run=RunFacts(
                run_id=text or "20260301T120000-v-m-abc",
                started="2026-03-01T12:00:00Z",
                finished="2026-03-01T12:03:00Z",
                kvv_version="0.1.0",
                seed=7,
                exit_code=exit_code(decision.outcome),
                preset="kvv",
            ),
            endpoint=EndpointView(
                base_url=text or "https://api.example.org/v1",
                model=text or "kimi-k3",
                vendor=text or "example",
                upstreams={text or "self": 200},
            ),
            profile="kimi-k3",
            surface="vendor",
            policy=PolicyRef(name="test", sha256=digest, strict=policy.strict),
            suites=suites,
            decision=decision,
            checks=tuple(
                CheckRow.under(
                    policy,
                    TODAY,
                    c,
                    v,
                    request=text or '{"temperature": 2}',
                    answer=text or "200",
                    expected=text or "400",
                    curl=text or "curl ...",
                )
                for c, v in verdicts
            ),
            traffic=TrafficView(
                requests=210,
                attempts=215,
                retried=5,
                first_try_success=0.98,
                status={"200": 205, text or "429": 5},
                prompt_tokens=9,
                cost=1.25,
            ),
            timing=TimingView(
                ttft_ms=Q, by_prompt_tokens=(PromptTier(low=0, high=1000, ttft_ms=Q),), itl_ms=Q, output_tps=Q, e2e_ms=Q
            ),
            trouble=text,
            events=(RunEvent(at="2026-03-01T12:01:00Z", kind=text or "pause", message=text or "429"),),
        )
        rows = {row.id: row for row in view.checks}
        causes = (with_example(c, rows[c.example]) if c.example else c for c in find_causes(view))
        return replace(view, causes=tuple(causes))

    @staticmethod
    def published() -> ReferenceValue:
        return ReferenceValue(value=0.89, n=1000, kind="published-mean", source="leaderboard")


@pytest.fixture(scope="session")
def views() -> Views:
    return Views()
