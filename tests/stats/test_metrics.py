from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import statsmodels.api as sm
from means import mean_stat, mean_stats

from kvv.core import Area, Case, Level, Outcome, Stat, Verdict
from kvv.stats.f1 import Confusion
from kvv.stats.interval import wilson
from kvv.stats.metrics import GroupTally, Metric, Unknown, f1_stat, rate_stat


def sample(
    number: int,
    outcome: Outcome,
    value: float | None = None,
    *,
    cluster: str = "",
    repeat: int = 0,
    reason: str = "",
    cut: bool = False,
) -> tuple[Case, Verdict]:
    case = Case(
        id=f"bench/q{number}",
        suite="bench",
        area=Area.ACCURACY,
        level=Level.MUST,
        requirement="answers right",
        source="test",
        since="1",
        inputs={},
        cluster=cluster,
        sample=repeat,
    )
    values = {} if value is None else {"score": value}
    return case, Verdict(case=case.id, sample=repeat, outcome=outcome, values=values, reason=reason, truncated=cut)


def binary(right: int, wrong: int, open_: int = 0) -> list[tuple[Case, Verdict]]:
    return [
        *(sample(i, Outcome.PASS, 1.0) for i in range(right)),
        *(sample(i + 1000, Outcome.FAIL, 0.0) for i in range(wrong)),
        *(sample(i + 2000, Outcome.INCONCLUSIVE, reason="http-503") for i in range(open_)),
    ]


def stat_of(samples: list[tuple[Case, Verdict]], **options: object) -> Stat:
    return mean_stat("bench", "accuracy", samples, key="score", **options)  # type: ignore[arg-type]


def test_inconclusive_samples_leave_the_estimate_but_not_the_bounds() -> None:
    stat = stat_of(binary(6, 2, 2))
    assert (stat.estimate, stat.worst_case, stat.best_case) == (0.75, 0.6, 0.8)
    assert (stat.n_planned, stat.n_concluded, stat.n_inconclusive) == (10, 8, 2)
    assert stat.interval == wilson(6, 8).pair


def test_bounds_use_the_metrics_own_range() -> None:
    stat = stat_of([sample(1, Outcome.PASS, 50.0), sample(2, Outcome.INCONCLUSIVE)], low=10.0, high=100.0)
    assert (stat.worst_case, stat.best_case) == (30.0, 75.0)


def test_a_run_that_concluded_nothing_has_no_estimate_and_open_bounds() -> None:
    stat = stat_of(binary(0, 0, 3))
    assert (stat.estimate, stat.interval, stat.worst_case, stat.best_case, stat.n_planned) == (None, None, 0.0, 1.0, 3)


def test_no_samples_at_all_has_no_bounds() -> None:
    stat = stat_of([])
    assert (stat.estimate, stat.worst_case, stat.best_case, stat.n_planned) == (None, None, None, 0)


def test_an_error_of_ours_is_open_and_named_and_a_skip_was_never_planned() -> None:
    stat = stat_of([*binary(1, 0), sample(7, Outcome.ERROR), sample(8, Outcome.SKIP)])
    assert (stat.n_planned, stat.n_inconclusive, stat.estimate, stat.best_case) == (2, 1, 1.0, 1.0)
    assert stat.breakdown == {"errors": 1, "skipped": 1}


def test_a_refused_request_is_wrong_for_us_and_absent_for_kvv() -> None:
    samples = [*binary(3, 1), sample(9, Outcome.FAIL, None, reason="valid-request-refused")]
    assert stat_of(samples).estimate == 0.6
    assert stat_of(samples).kvv_value == 0.75
    assert stat_of(samples, kvv_failures="zero").kvv_value == 0.6


def test_kvv_zero_policy_counts_unanswered_requests_but_not_those_never_sent() -> None:
    samples = [*binary(3, 1, 1), sample(9, Outcome.INCONCLUSIVE, reason="budget")]
    assert stat_of(samples, kvv_failures="zero").kvv_value == 0.6
    assert stat_of(samples).kvv_value == 0.75


def test_a_pass_without_the_value_is_our_bug() -> None:
    with pytest.raises(KeyError, match="bench/q1#0"):
        stat_of([sample(1, Outcome.PASS)])


@pytest.mark.parametrize("value", [1.5, -0.1, math.nan, math.inf])
def test_a_value_outside_the_metrics_range_is_our_bug(value: float) -> None:
    with pytest.raises(ValueError, match="outside"):
        stat_of([sample(1, Outcome.PASS, value)])


def clusters(per_problem: list[list[float]]) -> list[tuple[Case, Verdict]]:
    return [
        sample(p, Outcome.PASS if v else Outcome.FAIL, v, cluster=f"p{p}", repeat=r)
        for p, values in enumerate(per_problem)
        for r, v in enumerate(values)
    ]


def test_repeats_of_a_problem_are_clustered_as_statsmodels_does_it() -> None:
    rng = np.random.default_rng(5)
    ability = rng.beta(2, 1, size=12)
    values = [[float(rng.random() < p) for _ in range(4 + i % 3)] for i, p in enumerate(ability)]
    flat = np.array([v for row in values for v in row])
    groups = np.array([i for i, row in enumerate(values) for _ in row])
    fit = sm.OLS(flat, np.ones_like(flat)).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    low, high = fit.conf_int()[0]
    stat = stat_of(clusters(values))
    assert stat.interval == pytest.approx((low, min(1.0, high)))
    assert stat.interval != pytest.approx(wilson(flat.sum(), len(flat)).pair)


def test_no_spread_between_clusters_is_not_read_as_certainty() -> None:
    stat = stat_of(clusters([[1.0] * 32] * 30))
    assert stat.interval == wilson(30, 30).pair
    assert stat.interval[0] < 0.9


def test_a_single_cluster_has_no_interval() -> None:
    assert stat_of(clusters([[1.0, 0.0, 1.0]])).interval is None


def test_scores_between_0_and_1_get_a_t_interval_inside_the_range() -> None:
    stat = stat_of([sample(i, Outcome.PASS, v) for i, v in enumerate([0.9, 1.0, 0.95, 1.0])])
    assert stat.interval is not None
    assert stat.interval == (pytest.approx(0.8863, abs=5e-4), 1.0)


def test_truncated_samples_are_counted_whatever_they_scored() -> None:
    stat = stat_of(
        [sample(1, Outcome.PASS, 1.0, cut=True), sample(2, Outcome.FAIL, 0.0, cut=True), sample(3, Outcome.PASS, 1.0)]
    )
    assert stat.n_truncated == 2


def test_verdicts_are_read_once_so_that_a_generator_will_do() -> None:
    def stream() -> Iterator[tuple[Case, Verdict]]:
        yield from binary(2, 2)

    first, second = mean_stats(
        "bench",
        [Metric(metric="a", key="score", primary=True), Metric(metric="b", key="score")],
        stream(),
        breakdowns={"b": {"x": 1}},
    )
    assert (first.estimate, second.estimate, first.primary, second.breakdown) == (0.5, 0.5, True, {"x": 1})


def test_rate_of_direct_counts() -> None:
    stat = rate_stat("toolcall", "schema", successes=217, concluded=218, planned=220)
    assert (stat.estimate, stat.n_inconclusive) == (pytest.approx(217 / 218), 2)
    assert (stat.worst_case, stat.best_case) == (pytest.approx(217 / 220), pytest.approx(219 / 220))
    with pytest.raises(ValueError, match="no rate"):
        rate_stat("toolcall", "schema", successes=3, concluded=2)


def test_f1_of_the_recorded_tool_calls_and_its_bounds() -> None:
    """TP 207, FP 11, FN 19, TN 19 is the golden confusion of the recorded K2VV results: F1 .9324."""
    stat = f1_stat(
        "toolcall", "trigger_f1", Confusion(tp=207, fp=11, fn=19, tn=19), unknown=Unknown(positive=3, negative=1)
    )
    assert stat.estimate == pytest.approx(0.9324, abs=5e-5)
    assert stat.worst_case == pytest.approx(2 * 207 / (2 * 207 + 12 + 22))
    assert stat.best_case == pytest.approx(2 * 210 / (2 * 210 + 11 + 19))
    assert (stat.n_planned, stat.n_concluded, stat.breakdown["tn"]) == (260, 256, 19)


def test_f1_without_any_call_is_undefined() -> None:
    assert f1_stat("toolcall", "trigger_f1", Confusion(tn=5)).estimate is None


def test_group_table_keeps_the_planned_beside_the_concluded() -> None:
    groups = GroupTally()
    for name, value in (("vqa", 1.0), ("vqa", None), ("kie", 0.0)):
        groups.add(name, value)
    assert groups.table() == {
        "kie": {"value": 0.0, "n_concluded": 1, "n_planned": 1},
        "vqa": {"value": 1.0, "n_concluded": 1, "n_planned": 2},
    }
