"""From verdicts to report rows: the arithmetic every suite's ``metrics`` shares.

Every planned sample comes with a verdict; those never run are INCONCLUSIVE. Nothing leaves a denominator silently:
planned, concluded, inconclusive and truncated stand beside each value, and ``worst_case`` and
``best_case`` count what was not concluded (ERRORs of ours included) as ``low`` and as ``high``. SKIPs were never
planned.

All of it is one pass over an iterable with memory in the number of clusters, not of samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kvv.core import Case, Outcome, Stat, Verdict
from kvv.stats.f1 import Confusion
from kvv.stats.interval import ClusterSum, Interval, clustered_mean, wilson

KvvFailures = Literal["excluded", "zero"]

#: reasons of an INCONCLUSIVE sample that was never asked; KVV's failure rule is about requests that were
NEVER_ASKED = frozenset({"not-run", "early-stop", "budget", "deadline", "interrupted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of a benchmark suite: the mean of ``verdict.values[key]`` over the concluded samples, which lies in [low,
    high].

    ``kvv_failures`` is what KVV does in this benchmark with a request that stays without an answer: it leaves the
    denominator (inspect-ai) or scores zero (BEAM). ``kvv_key`` names the value that KVV's own reading of the answer
    gives, where it may differ; a verdict may have it without being concluded.
    """

    metric: str
    key: str
    primary: bool = False
    kvv_failures: KvvFailures = "excluded"
    kvv_key: str = ""
    low: float = 0.0
    high: float = 1.0


class MeanTally:
    """Adds up one metric sample by sample; ``stat`` may be asked for at any time."""

    def __init__(self, suite: str, metric: Metric) -> None:
        self.suite = suite
        self.metric = metric
        self._clusters: dict[str, list[float]] = {}
        self._inconclusive = 0
        self._never_asked = 0
        self._errors = 0
        self._skipped = 0
        self._truncated = 0
        self._unkeyed = 0
        self._binary = True
        self._kvv_total = 0.0
        self._kvv_differs = 0
        self._kvv_example = ""

    def add(self, case: Case, verdict: Verdict) -> None:
        """Count one sample. KeyError for a PASS without the metric's value, ValueError for a value outside [low,
        high].
        """
        if verdict.outcome is Outcome.SKIP:
            self._skipped += 1
            return
        self._truncated += verdict.truncated
        self._add_kvv(case, verdict)
        if verdict.outcome not in (Outcome.PASS, Outcome.FAIL):
            self._inconclusive += 1
            self._errors += verdict.outcome is Outcome.ERROR
            self._never_asked += verdict.reason in NEVER_ASKED
            return
        value = self._value(case, verdict)
        self._binary = self._binary and value in (0.0, 1.0)
        total = self._clusters.setdefault(case.cluster or case.id, [0, 0.0])
        total[0] += 1
        total[1] += value

    def _add_kvv(self, case: Case, verdict: Verdict) -> None:
        ours = verdict.values.get(self.metric.key) if verdict.outcome in (Outcome.PASS, Outcome.FAIL) else None
        # a verdict that an earlier version made has one reading
        theirs = verdict.values.get(self.metric.kvv_key, ours)
        self._kvv_total += theirs or 0.0
        if theirs != ours:
            self._kvv_differs += 1
            self._kvv_example = self._kvv_example or case.key

    def _value(self, case: Case, verdict: Verdict) -> float:
        metric = self.metric
        value = verdict.values.get(metric.key)
        if value is None:
            if verdict.outcome is Outcome.PASS:
                raise KeyError(f"{case.key}: a pass without the value {metric.key!r}")
            self._unkeyed += 1
            return 0.0
        if not metric.low <= value <= metric.high:
            raise ValueError(f"{case.key}: {metric.key} is {value}, outside [{metric.low}, {metric.high}]")
        return float(value)

    def stat(
        self, *, breakdown: Mapping[str, Any] | None = None, comparability: Mapping[str, Any] | None = None
    ) -> Stat:
        metric = self.metric
        sums = [ClusterSum(n=int(n), total=total) for n, total in self._clusters.values()]
        concluded = sum(c.n for c in sums)
        total = math.fsum(c.total for c in sums)
        planned = concluded + self._inconclusive
        estimate = total / concluded if concluded else None
        interval = self._interval(sums)
        extra: dict[str, Any] = {
            name: count for name, count in (("errors", self._errors), ("skipped", self._skipped)) if count
        }
        if metric.kvv_key:
            extra["kvv_reads_otherwise"] = {"answers": self._kvv_differs, "example": self._kvv_example or None}
        return Stat(
            suite=self.suite,
            metric=metric.metric,
            primary=metric.primary,
            estimate=estimate,
            interval=interval.pair if interval else None,
            n_planned=planned,
            n_concluded=concluded,
            n_inconclusive=self._inconclusive,
            n_truncated=self._truncated,
            worst_case=(total + metric.low * self._inconclusive) / planned if planned else None,
            best_case=(total + metric.high * self._inconclusive) / planned if planned else None,
            kvv_value=self._kvv_value(concluded, planned),
            breakdown={**extra, **(breakdown or {})},
            comparability=dict(comparability or {}),
        )

    def _kvv_value(self, concluded: int, planned: int) -> float | None:
        """A refused request never got a score in KVV, so under ``excluded`` it is out although for us it is wrong."""
        n = concluded - self._unkeyed if self.metric.kvv_failures == "excluded" else planned - self._never_asked
        return self._kvv_total / n if n > 0 else None

    def _interval(self, sums: Sequence[ClusterSum]) -> Interval | None:
        if not sums:
            return None
        metric = self.metric
        if self._binary and all(c.n == 1 for c in sums):
            return wilson(math.fsum(c.total for c in sums), len(sums))
        mean = clustered_mean(sums)
        found = mean.interval()
        if found is None:
            return None
        span = metric.high - metric.low
        # no spread at all is no proof of certainty: the clusters count as that many draws of one proportion
        if found.width <= 1e-12 * span:
            share = wilson(min(len(sums), max(0.0, (mean.mean - metric.low) / span * len(sums))), len(sums))
            return Interval(low=metric.low + span * share.low, high=metric.low + span * share.high)
        return Interval(low=max(metric.low, found.low), high=min(metric.high, found.high))


def rate_stat(
    suite: str,
    metric: str,
    *,
    successes: int,
    concluded: int,
    planned: int | None = None,
    truncated: int = 0,
    primary: bool = False,
    kvv_value: float | None = None,
    breakdown: Mapping[str, Any] | None = None,
    comparability: Mapping[str, Any] | None = None,
) -> Stat:
    """One row for ``successes`` of ``concluded`` counted directly, with Wilson's 95 % interval.

    ``planned`` (default: ``concluded``) minus ``concluded`` is inconclusive; ValueError where the counts contradict
    each other.
    """
    planned = concluded if planned is None else planned
    if not 0 <= successes <= concluded <= planned:
        raise ValueError(f"{suite} {metric}: {successes} of {concluded} concluded of {planned} planned is no rate")
    missing = planned - concluded
    return Stat(
        suite=suite,
        metric=metric,
        primary=primary,
        estimate=successes / concluded if concluded else None,
        interval=wilson(successes, concluded).pair if concluded else None,
        n_planned=planned,
        n_concluded=concluded,
        n_inconclusive=missing,
        n_truncated=truncated,
        worst_case=successes / planned if planned else None,
        best_case=(successes + missing) / planned if planned else None,
        kvv_value=kvv_value,
        breakdown=dict(breakdown or {}),
        comparability=dict(comparability or {}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Samples without a conclusion, by what the reference did: ``positive`` where it called a tool."""

    positive: int = 0
    negative: int = 0


def f1_stat(
    suite: str,
    metric: str,
    confusion: Confusion,
    *,
    unknown: Unknown | None = None,
    truncated: int = 0,
    primary: bool = False,
    kvv_value: float | None = None,
    breakdown: Mapping[str, Any] | None = None,
    comparability: Mapping[str, Any] | None = None,
) -> Stat:
    """One row for an F1, its interval from Wilson's on TP/(TP+FP+FN), of which F1 is a monotone function.

    The worst case turns each unknown sample into FN or FP, the best into TP or TN. The confusion's four counts are in
    the breakdown.
    """
    unknown = unknown or Unknown()
    missing = unknown.positive + unknown.negative
    worst = confusion.plus(fn=unknown.positive, fp=unknown.negative)
    best = confusion.plus(tp=unknown.positive, tn=unknown.negative)
    interval = confusion.f1_interval()
    return Stat(
        suite=suite,
        metric=metric,
        primary=primary,
        estimate=confusion.f1,
        interval=interval.pair if interval else None,
        n_planned=confusion.n + missing,
        n_concluded=confusion.n,
        n_inconclusive=missing,
        n_truncated=truncated,
        worst_case=worst.f1,
        best_case=best.f1,
        kvv_value=kvv_value,
        breakdown={"tp": confusion.tp, "fp": confusion.fp, "fn": confusion.fn, "tn": confusion.tn, **(breakdown or {})},
        comparability=dict(comparability or {}),
    )


@dataclass(slots=True)
class GroupTally:
    """k of n by group, for a breakdown table; ``table`` is JSON-like."""

    groups: dict[str, list[float]] = field(default_factory=dict)

    def add(self, group: str, value: float | None) -> None:
        """``value`` None is a planned sample without a conclusion."""
        row = self.groups.setdefault(group, [0, 0, 0.0])
        row[0] += 1
        if value is not None:
            row[1] += 1
            row[2] += value

    def table(self) -> dict[str, dict[str, float | int | None]]:
        return {
            name: {"value": total / n if n else None, "n_concluded": int(n), "n_planned": int(planned)}
            for name, (planned, n, total) in sorted(self.groups.items())
        }
