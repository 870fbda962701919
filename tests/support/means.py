"""Rows of a mean over verdicts in one call, as suites make them through ``MeanTally``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvv.core import Case, Stat, Verdict
from kvv.stats.metrics import KvvFailures, MeanTally, Metric


def mean_stats(
    suite: str,
    metrics: Sequence[Metric],
    verdicts: Iterable[tuple[Case, Verdict]],
    *,
    breakdowns: Mapping[str, Mapping[str, Any]] | None = None,
    comparability: Mapping[str, Any] | None = None,
) -> list[Stat]:
    """Several metrics in one pass; ``breakdowns`` is by metric name."""
    tallies = [MeanTally(suite, metric) for metric in metrics]
    for case, verdict in verdicts:
        for tally in tallies:
            tally.add(case, verdict)
    return [
        tally.stat(breakdown=(breakdowns or {}).get(tally.metric.metric), comparability=comparability)
        for tally in tallies
    ]


def mean_stat(
    suite: str,
    metric: str,
    verdicts: Iterable[tuple[Case, Verdict]],
    *,
    key: str,
    primary: bool = False,
    kvv_failures: KvvFailures = "excluded",
    low: float = 0.0,
    high: float = 1.0,
    breakdown: Mapping[str, Any] | None = None,
    comparability: Mapping[str, Any] | None = None,
) -> Stat:
    """One row: the mean of ``verdict.values[key]`` over concluded (PASS or FAIL) samples.

    A FAIL without the key counts 0.0 (a refused request); a PASS without it is a KeyError. The 95 % interval is
    Wilson's where each cluster has one sample and values are 0 or 1, else clustered by ``case.cluster`` (its id where
    empty) with t; None with a single cluster of several samples.
    """
    spec = Metric(metric=metric, key=key, primary=primary, kvv_failures=kvv_failures, low=low, high=high)
    tally = MeanTally(suite, spec)
    for case, verdict in verdicts:
        tally.add(case, verdict)
    return tally.stat(breakdown=breakdown, comparability=comparability)
