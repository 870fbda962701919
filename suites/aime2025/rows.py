"""Report rows of ``aime2025``: avg@k by KVV's rule and strictly, pass@k, pass^k, and the table per problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from kvv.cases.suite import Context
from kvv.core import Case, Outcome, Stat, Verdict
from kvv.stats.interval import ClusterSum, clustered_mean, wilson
from kvv.stats.metrics import MeanTally, Metric
from kvv.stats.passk import pass_at_k, pass_hat_k

#: k of the pass@k and pass^k rows is the largest of these that the samples allow; the others stand in the breakdown
KS = (1, 2, 4, 8, 16, 32)
ROW_K_LIMIT = 8

Estimator = Callable[[int, int, int], float]


@dataclass(slots=True)
class ProblemTally:
    """Counts over the samples of one problem; ``n`` are concluded."""

    n: int = 0
    correct: int = 0
    strict: int = 0
    truncated: int = 0
    lenient_only: int = 0
    strict_only: int = 0
    inconclusive: int = 0

    @property
    def planned(self) -> int:
        return self.n + self.inconclusive

    def add(self, verdict: Verdict) -> None:
        self.truncated += verdict.truncated
        if verdict.outcome not in (Outcome.PASS, Outcome.FAIL):
            self.inconclusive += 1
            return
        correct, strict = verdict.values.get("correct", 0.0) > 0, verdict.values.get("strict", 0.0) > 0
        self.n += 1
        self.correct += correct
        self.strict += strict
        self.lenient_only += correct and not strict
        self.strict_only += strict and not correct

    def table(self) -> dict[str, int]:
        return {
            "n": self.n,
            "correct": self.correct,
            "strict": self.strict,
            "truncated": self.truncated,
            "lenient_only": self.lenient_only,
            "strict_only": self.strict_only,
            "inconclusive": self.inconclusive,
        }


def metrics(suite: str, version: str, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
    """Four rows in one pass over the verdicts, the first primary."""
    average = MeanTally(suite, Metric(metric="avg@k", key="correct", primary=True, kvv_key="moonshot"))
    strict = MeanTally(suite, Metric(metric="strict_avg@k", key="strict"))
    problems: dict[str, ProblemTally] = {}
    scorers: set[str] = set()
    for case, verdict in verdicts:
        average.add(case, verdict)
        strict.add(case, verdict)
        if verdict.outcome is Outcome.SKIP:
            continue
        problems.setdefault(case.id, ProblemTally()).add(verdict)
        if verdict.outcome in (Outcome.PASS, Outcome.FAIL) and verdict.values:
            scorers.add(verdict.scorer)
    facts = comparability(version, sorted(scorers), context)
    return [
        average.stat(breakdown=_breakdown(problems, context), comparability=facts),
        strict.stat(
            breakdown={"k": context.settings.samples, "rule": "the last box after any think block holds the integer"},
            comparability=facts,
        ),
        _pass_row(suite, "pass@k", pass_at_k, problems, facts),
        _pass_row(suite, "pass^k", pass_hat_k, problems, facts),
    ]


def _breakdown(problems: Mapping[str, ProblemTally], context: Context) -> dict[str, Any]:
    return {
        "k": context.settings.samples,
        "truncated": sum(problem.truncated for problem in problems.values()),
        "lenient_only": sum(problem.lenient_only for problem in problems.values()),
        "strict_only": sum(problem.strict_only for problem in problems.values()),
        "inconclusive": sum(problem.inconclusive for problem in problems.values()),
        "problems": {name: problem.table() for name, problem in sorted(problems.items())},
    }


def _pass_row(
    suite: str, metric: str, estimator: Estimator, problems: Mapping[str, ProblemTally], facts: Mapping[str, Any]
) -> Stat:
    """One row whose unit is the problem. A problem with fewer than k concluded samples is inconclusive; the bounds
    count every inconclusive sample as wrong and as right."""
    planned = [problem for problem in problems.values() if problem.planned]
    most = min((problem.planned for problem in planned), default=0)
    k = max((k for k in KS if k <= min(most, ROW_K_LIMIT)), default=1)
    values = [estimator(problem.n, problem.correct, k) for problem in planned if problem.n >= k]
    return Stat(
        suite=suite,
        metric=metric,
        primary=False,
        estimate=fmean(values) if values else None,
        interval=_interval(values),
        n_planned=len(planned),
        n_concluded=len(values),
        n_inconclusive=len(planned) - len(values),
        n_truncated=sum(problem.truncated > 0 for problem in planned),
        worst_case=fmean(estimator(p.planned, p.correct, k) for p in planned) if planned else None,
        best_case=fmean(estimator(p.planned, p.correct + p.inconclusive, k) for p in planned) if planned else None,
        breakdown={"k": k, "unit": "problem", "by_k": _by_k(estimator, planned)},
        comparability=dict(facts),
    )


def _by_k(estimator: Estimator, problems: list[ProblemTally]) -> dict[str, float]:
    """For every k that all problems' concluded samples allow."""
    least = min((problem.n for problem in problems), default=0)
    return {str(k): fmean(estimator(p.n, p.correct, k) for p in problems) for k in KS if k <= least}


def _interval(values: list[float]) -> tuple[float, float] | None:
    """95 %, by t over problems; where all are equal, Wilson's, since no spread is no proof of certainty."""
    found = clustered_mean([ClusterSum(n=1, total=value) for value in values]).interval() if values else None
    if found is None:
        return None
    if found.width <= 1e-12:
        return wilson(min(len(values), sum(values)), len(values)).pair
    return max(0.0, found.low), min(1.0, found.high)


def comparability(version: str, scorers: list[str], context: Context) -> dict[str, Any]:
    """What a reader needs to set these rows beside another run's."""
    dataset = context.dataset
    return {
        "data_revision": dataset.revision if dataset else None,
        "data_sha256": dataset.sha256 if dataset else None,
        "prompt": "KVV: problem, empty line, instruction to put the final answer within \\boxed{}",
        "sampling": context.sampling(),
        "preset": context.preset,
        "scorer": "math-verify on the visible completion, first parsed object, verify(strict=False)",
        "scorer_version": ", ".join(scorers) or version,
        "failures_in_denominator": (
            "a failed request or an unscorable answer is in n_planned and in both bounds, not in the value; "
            "a refused valid request counts as wrong; kvv_value leaves failed and refused requests out, as KVV does"
        ),
    }
