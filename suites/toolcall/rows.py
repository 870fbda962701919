"""The report rows of the tool-call suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from kvv.cases.suite import Context
from kvv.core import Outcome, Stat
from kvv.core.lazy import numpy as np
from kvv.stats.f1 import official_null
from kvv.stats.interval import ClusterSum, clustered_mean, wilson
from kvv.stats.metrics import f1_stat, rate_stat
from kvv.suites.toolcall.confusion import (
    CallTally,
    Key,
    Sample,
    by_case,
    decisions,
    f1_interval,
    official,
    official_pairs,
    official_value,
    tally,
)
from kvv.suites.toolcall.schema import FailureClass

SUITE = "toolcall"

#: failed calls listed in a report; all are counted
LISTED_CALLS = 200

Facts = Mapping[str, Any]


def trigger_row(
    samples: Sequence[Sample], context: Context, comparability: Facts, *, metric: str, key: Key, primary: bool = False
) -> Stat:
    """F1 of the decision to call, pooled over the official runs; no estimate without one.

    K2VV counts by finish_reason and publishes F1 over requests answered by both sides: ``kvv_value``.
    """
    references = context.references
    truncated = sum(sample.verdict.truncated for sample in samples)
    breakdown = _decisions(samples, key)
    if not references:
        known = sum(sample.values is not None or sample.refused for sample in samples)
        return Stat(
            suite=SUITE,
            metric=metric,
            primary=primary,
            estimate=None,
            interval=None,
            n_planned=len(samples),
            n_concluded=known,
            n_inconclusive=len(samples) - known,
            n_truncated=truncated,
            worst_case=None,
            best_case=None,
            breakdown=breakdown,
            comparability={
                **comparability,
                "gating": "reported, not gated: no official run was given (--reference FILE)",
            },
        )
    tallies = [tally(samples, reference, key) for reference in references]
    pooled = CallTally()
    for found in tallies:
        pooled.merge(found)
    confusion = pooled.confusion
    breakdown |= {
        "precision": _share(confusion.tp, confusion.tp + confusion.fp),
        "recall": _share(confusion.tp, confusion.tp + confusion.fn),
        "agreeing": confusion.tp + confusion.tn,
    }
    if len(references) > 1:
        breakdown |= _among_officials(samples, context, tallies, key)
    row = f1_stat(
        SUITE,
        metric,
        confusion,
        unknown=pooled.unknown,
        truncated=truncated,
        primary=primary,
        kvv_value=pooled.answered.f1 if key == "triggered" else None,
        breakdown=breakdown,
        comparability=comparability,
    )
    interval = f1_interval(by_case(samples, references, key), np.random.default_rng(context.seed))
    concluded = sum(_concluded(sample, context, key) for sample in samples)
    return replace(
        row, interval=interval, n_planned=len(samples), n_concluded=concluded, n_inconclusive=len(samples) - concluded
    )


def _concluded(sample: Sample, context: Context, key: Key) -> bool:
    """Something is known of the answer, and some official run has something to compare it with."""
    known = sample.values is not None or sample.refused
    return known and any(
        official(reference, sample.case.id, sample.verdict.sample, key) is not None for reference in context.references
    )


def _decisions(samples: Sequence[Sample], key: Key) -> dict[str, Any]:
    reasons = Counter(str(sample.verdict.facts.get("finish_reason")) for sample in samples if sample.values is not None)
    return {
        "positive": sum(sample.is_true(key) for sample in samples),
        "refused": sum(sample.refused for sample in samples),
        "finish_reasons": dict(sorted(reasons.most_common(20))),
        "calls_without_the_finish_reason": sum(
            sample.is_true("called") and not sample.is_true("triggered") for sample in samples
        ),
    }


def _among_officials(
    samples: Sequence[Sample], context: Context, tallies: Sequence[CallTally], key: Key
) -> dict[str, Any]:
    """F1 against each official run, and the official runs against each other: a stochastic model never agrees fully
    with itself.

    ``position`` is the share of official-against-official draws (all pairs, bootstrapped by request) at or below the
    endpoint's mean F1.
    """
    names = [f"{number}: {reference.name}" for number, reference in enumerate(context.references, start=1)]
    cases = [sample.case.id for sample in samples]
    runs = {name: decisions(reference, key, cases) for name, reference in zip(names, context.references, strict=True)}
    pairs = official_pairs(runs)
    against = [{"run": name, **_cells(found)} for name, found in zip(names, tallies, strict=True)]
    own = [found.confusion.f1 for found in tallies if found.confusion.f1 is not None]
    null = official_null(list(runs.values()), np.random.default_rng(context.seed))
    where: dict[str, Any] = {}
    if own and null is not None:
        officials = [pair["f1"] for pair in pairs if pair["f1"] is not None]
        where = {
            "mean_f1": fmean(own),
            "official_mean_f1": fmean(officials),
            "official_lowest_f1": min(officials),
            "official_quantile_1_percent": null.quantile(0.01),
            "position": null.position(fmean(own)),
        }
    return {"against_each": against, "official_pairs": pairs, "among_officials": where}


def _cells(found: CallTally) -> dict[str, Any]:
    cells = found.confusion
    return {"tp": cells.tp, "fp": cells.fp, "fn": cells.fn, "tn": cells.tn, "f1": cells.f1}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def schema_row(samples: Sequence[Sample], comparability: Facts) -> Stat:
    """Responses whose every call holds, of those that finish with ``tool_calls``. A response that only a broken schema
    of the data set keeps from a judgement is inconclusive."""
    triggered = [sample for sample in samples if sample.is_true("triggered")]
    decided = [sample for sample in triggered if sample.verdict.outcome is not Outcome.INCONCLUSIVE]
    valid = sum(sample.is_true("schema_valid") for sample in decided)
    unknown = sum(sample.values is None and not sample.refused for sample in samples)
    breakdown = {
        "valid": valid,
        "triggered": len(triggered),
        "failures": failure_counts(samples),
        "failed_calls": failed_calls(samples),
        "samples": len(samples),
    }
    return rate_stat(
        SUITE,
        "schema_accuracy",
        successes=valid,
        concluded=len(decided),
        planned=len(triggered) + unknown,
        truncated=sum(sample.verdict.truncated for sample in samples),
        kvv_value=_share(sum(sample.is_true("schema_valid_k2vv") for sample in triggered), len(triggered)),
        breakdown=breakdown,
        comparability=comparability,
    )


def call_row(samples: Sequence[Sample], comparability: Facts) -> Stat:
    """Single calls that hold, of all calls, whatever the finish_reason. An answer nothing is known of counts as one
    unknown call.
    """
    calls = sum(sample.count("calls") for sample in samples)
    unusable = sum(sample.count("unusable_calls") for sample in samples)
    twice = sum(sample.count("ambiguous_calls") for sample in samples)
    unknown = sum(sample.values is None and not sample.refused for sample in samples)
    return rate_stat(
        SUITE,
        "call_schema_accuracy",
        successes=sum(sample.count("valid_calls") for sample in samples),
        concluded=calls - unusable,
        planned=calls + unknown,
        truncated=sum(sample.verdict.truncated for sample in samples),
        breakdown={"calls": calls, "failures": failure_counts(samples), "tool_declared_twice": twice},
        comparability=comparability,
    )


def unconditional_row(samples: Sequence[Sample], context: Context, comparability: Facts) -> Stat:
    """Responses with nothing but valid calls, of the samples in which the official run (at least half of several)
    called.

    Its denominator does not depend on the endpoint: one that calls less cannot look better by it. A sample without
    an official conclusion is inconclusive.
    """
    valid = concluded = unknown = 0
    for sample in samples:
        votes = [
            official(reference, sample.case.id, sample.verdict.sample, "triggered") for reference in context.references
        ]
        cast = [vote for vote in votes if vote is not None]
        if cast and 2 * sum(cast) < len(cast):
            continue
        undecided = sample.values is None and not sample.refused
        broken = sample.values is not None and sample.verdict.outcome is Outcome.INCONCLUSIVE
        if not cast or undecided or broken:
            unknown += 1
        else:
            concluded += 1
            valid += sample.is_true("schema_valid")
    row = rate_stat(
        SUITE,
        "schema_accuracy_unconditional",
        successes=valid,
        concluded=concluded,
        planned=concluded + unknown,
        truncated=sum(sample.verdict.truncated for sample in samples),
        breakdown={"valid": valid, "official_called": concluded},
        comparability=comparability,
    )
    return row if context.references else replace(row, worst_case=None, best_case=None)


def official_rows(samples: Sequence[Sample], context: Context, comparability: Facts) -> list[Stat]:
    """Beside official runs: how often their calls are made, with the same tools and arguments too, and how many
    requests that they answered are refused. None without an official run that holds what is compared.
    """
    rows = []
    for metric, key in (("call_recall", "triggered"), ("call_match", "call_digest")):
        row = _agreement_row(samples, context, comparability, metric=metric, key=key)
        rows += [] if row is None else [row]
    answered = [
        sample
        for sample in samples
        if any(
            official(run, sample.case.id, sample.verdict.sample, "triggered") is not None for run in context.references
        )
    ]
    if answered:
        known = [sample for sample in answered if sample.values is not None or sample.refused]
        row = rate_stat(
            SUITE,
            "refusals",
            successes=sum(sample.refused for sample in known),
            concluded=len(known),
            planned=len(answered),
            truncated=sum(sample.verdict.truncated for sample in answered),
            breakdown={"refused": sum(sample.refused for sample in known)},
            comparability=comparability,
        )
        rows.append(row)
    return rows


def _agreement_row(
    samples: Sequence[Sample], context: Context, comparability: Facts, *, metric: str, key: str
) -> Stat | None:
    """Of the calls that official runs make the share that the endpoint makes; a refused request makes none."""
    cases: dict[str, list[int]] = {}
    planned = concluded = 0
    own: list[tuple[int, int]] = []
    for sample in samples:
        tokens = [
            token
            for run in context.references
            if (token := official_value(run, sample.case.id, sample.verdict.sample, key)) is not None
        ]
        called = [token for token in tokens if token]
        own.append((sum(called.count(token) - 1 for token in called), (len(tokens) - 1) * len(called)))
        if not called:
            continue
        planned += 1
        if sample.values is None and not sample.refused:
            continue
        concluded += 1
        mine = (sample.values or {}).get(key, 0.0)
        counts = cases.setdefault(sample.case.id, [0, 0])
        counts[0] += len(called)
        counts[1] += called.count(mine) if mine else 0
    if not planned:
        return None
    sums = [ClusterSum(n=n, total=float(total)) for n, total in cases.values()]
    calls, made = sum(c.n for c in sums), sum(c.total for c in sums)
    estimate = made / calls if calls else None
    mean = clustered_mean(sums) if sums else None
    interval = None if mean is None else mean.interval()
    if interval is None or mean is None or not mean.se:
        interval = wilson(made * concluded / calls, concluded) if calls else None
    open_share = (planned - concluded) / planned
    return Stat(
        suite=SUITE,
        metric=metric,
        primary=False,
        estimate=estimate,
        interval=None if interval is None else (max(0.0, interval.low), min(1.0, interval.high)),
        n_planned=planned,
        n_concluded=concluded,
        n_inconclusive=planned - concluded,
        n_truncated=sum(sample.verdict.truncated for sample in samples),
        worst_case=(estimate or 0.0) * (1 - open_share),
        best_case=(estimate or 0.0) * (1 - open_share) + open_share,
        breakdown={"official_calls": calls, "official_agreement": _share(*map(sum, zip(*own, strict=True)))},
        comparability=dict(comparability),
    )


def failure_counts(samples: Sequence[Sample]) -> dict[str, int]:
    """Failed calls per class; every class is there, so that a zero is seen."""
    counts = dict.fromkeys((str(name) for name in FailureClass), 0)
    for sample in samples:
        for name, count in sample.verdict.facts.get("failures", {}).items():
            counts[name] = counts.get(name, 0) + count
    return counts


def failed_calls(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """The first failed calls: case, sample, class, tool, path, keyword, message."""
    found: list[dict[str, Any]] = []
    for sample in samples:
        for fact in sample.verdict.facts.get("failed_calls", ()):
            if len(found) == LISTED_CALLS:
                return found
            found.append({"case": sample.case.id, "sample": sample.verdict.sample, **fact})
    return found
