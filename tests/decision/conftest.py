from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import pytest
from means import mean_stats

from kvv.cases.suite import ReferenceRun, SuiteKind
from kvv.core import Area, Case, Level, Outcome, Verdict
from kvv.decision import Collector, Decision, DecisionEvidence, SuiteRun, decide
from kvv.profiles.policy import Policy
from kvv.stats.metrics import Metric

TODAY = date(2026, 3, 1)


def make_case(
    case_id: str,
    suite: str,
    *,
    area: Area = Area.DECODING,
    level: Level = Level.MUST,
    outcome: Outcome = Outcome.PASS,
    sample: int = 0,
    **more: Any,
) -> tuple[Case, Verdict]:
    cluster = more.pop("cluster", "")
    case = Case(
        id=case_id,
        suite=suite,
        area=area,
        level=level,
        requirement="r",
        source="s",
        since="1",
        inputs={},
        sample=sample,
        cluster=cluster,
    )
    return case, Verdict(case=case_id, sample=sample, outcome=outcome, **more)


class Bench:
    """Builders shared by the gate tests; the methods say what they make."""

    today = TODAY
    case = staticmethod(make_case)

    @staticmethod
    def answers(
        scores: Sequence[float | None], *, suite: str = "bench", samples: int = 1, **more: Any
    ) -> list[tuple[Case, Verdict]]:
        """One sample per score (None: inconclusive); ``samples`` in a row belong to one case."""
        found = []
        for i, score in enumerate(scores):
            outcome = Outcome.INCONCLUSIVE if score is None else Outcome.PASS if score else Outcome.FAIL
            values = {} if score is None else {"score": score}
            found.append(
                make_case(
                    f"{suite}/q{i // samples}",
                    suite,
                    area=Area.ACCURACY,
                    outcome=outcome,
                    sample=i % samples,
                    values=values,
                    **more,
                )
            )
        return found

    @staticmethod
    def reference(
        scores: Mapping[str, Sequence[float]] | Sequence[float], *, suite: str = "bench", name: str = "official 1"
    ) -> ReferenceRun:
        if not isinstance(scores, Mapping):
            scores = {f"{suite}/q{i}": [score] for i, score in enumerate(scores)}
        return ReferenceRun(
            name=name, model="m", cases={case: [{"score": v} for v in values] for case, values in scores.items()}
        )

    @staticmethod
    def decide(
        verdicts: Iterable[tuple[Case, Verdict]],
        policy: Policy | Mapping[str, Any] | None = None,
        *,
        suites: Sequence[SuiteRun] | None = None,
        metrics: bool = True,
        **evidence: Any,
    ) -> Decision:
        """A decision over contract suite ``params`` and benchmark ``bench`` (value ``score``)."""
        every = list(verdicts)
        ids = {case.suite for case, _ in every}
        if suites is None:
            suites = [
                SuiteRun(id=i, kind=SuiteKind.BENCHMARK if i == "bench" else SuiteKind.CONTRACT) for i in sorted(ids)
            ]
        policy = policy if isinstance(policy, Policy) else Policy.model_validate({"name": "test", **(policy or {})})
        collector = Collector(policy, suites, TODAY)
        for case, verdict in every:
            collector.add(case, verdict)
        stats = evidence.pop("stats", [])
        if metrics and "bench" in ids:
            stats = mean_stats(
                "bench",
                [Metric(metric="accuracy", key="score", primary=True)],
                (v for v in every if v[0].suite == "bench"),
            )
        latency = evidence.pop("latency", None)
        return decide(collector, DecisionEvidence(stats=stats, **evidence), np.random.default_rng(0), latency=latency)


@pytest.fixture
def bench() -> Bench:
    return Bench()
