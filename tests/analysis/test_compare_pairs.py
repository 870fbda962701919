"""Paired differences of two runs: methods, open samples, tie groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from statsmodels.stats.contingency_tables import StratifiedTable, mcnemar

from kvv.analysis import compare, compare_pair, measures, tie_groups
from kvv.analysis.pairs import PairResult, stratified_midp
from kvv.stats import mcnemar_midp, tango_interval
from kvv.storage.service import mean, median, share


def pair(sides: Any, first: Any, second: Any, **more: Any) -> PairResult:
    a, b = sides.bench(first, **more), sides.bench(second, **more)
    return compare_pair(0, 1, a, b, measures([a, b])[0], np.random.default_rng(0))


def test_one_binary_sample_a_side_gives_tangos_interval_and_mcnemars_p(sides: Any) -> None:
    first = [1] * 60 + [0] * 12 + [1] * 3 + [0] * 25
    second = [1] * 60 + [1] * 12 + [0] * 3 + [0] * 25
    found = pair(sides, first, second)
    assert found.difference is not None
    assert (found.gained, found.lost, found.samples) == (12, 3, 100)
    assert found.difference.estimate == pytest.approx(0.09)
    assert found.difference.interval == tango_interval(12, 3, 100, 0.95)
    # mid-p lies below the exact value by half the table's own probability
    exact = mcnemar([[60, 3], [12, 25]], exact=True).pvalue
    assert exact / 2 < found.p < exact


def test_the_sign_is_the_second_run_less_the_first(sides: Any) -> None:
    better, worse = pair(sides, [0] * 30, [1] * 30), pair(sides, [1] * 30, [0] * 30)
    assert better.difference is not None
    assert worse.difference is not None
    assert better.difference.estimate == 1.0
    assert worse.difference.estimate == -1.0
    assert better.p < 0.001


def test_open_samples_count_against_the_difference_that_is_seen(sides: Any) -> None:
    first, second = [0] * 8 + [1] * 32, [1] * 8 + [1] * 32
    closed = pair(sides, first, second)
    opened = pair(sides, first, [1] * 8 + [1] * 24 + [None] * 8)
    assert closed.p < 0.05 < opened.p
    assert (opened.open_second, opened.samples) == (8, 32)
    assert opened.worst == pytest.approx(0.0)
    assert opened.best == pytest.approx(0.2)


def test_a_sample_refused_counts_as_wrong_and_one_open_does_not(sides: Any) -> None:
    from dataclasses import replace

    from kvv.analysis import SampleResult
    from kvv.core import Outcome

    a, b = sides.bench([1] * 10), sides.bench([1] * 10)
    refused = replace(
        b.cases["bench/q0"], samples=(SampleResult(outcome=Outcome.FAIL, reason="valid-request-refused"),)
    )
    b = replace(b, cases={**b.cases, "bench/q0": refused})
    found = compare_pair(0, 1, a, b, measures([a, b])[0], np.random.default_rng(0))
    assert found.difference is not None
    assert found.difference.estimate == pytest.approx(-0.1)


def test_samples_are_aligned_by_number_and_the_longer_side_loses_its_surplus(sides: Any) -> None:
    found = pair(sides, [[1, 1, 0, 0]] * 12, [[1, 1]] * 12)
    assert found.samples == 24
    assert found.difference is not None
    assert found.difference.estimate == 0.0


def test_clusters_widen_the_interval(sides: Any) -> None:
    first = [0.5] * 40
    second = [0.9] * 20 + [0.3] * 20
    loose = pair(sides, first, second)
    tied = pair(sides, first, second, clusters=[f"c{i // 10}" for i in range(40)])
    assert loose.difference is not None
    assert tied.difference is not None
    assert (loose.difference.clusters, tied.difference.clusters) == (40, 4)
    assert tied.difference.interval.width > loose.difference.interval.width


def test_identical_runs_differ_in_few_of_many_simulated_pairs(sides: Any) -> None:
    """Type I error of the p-value: 300 pairs of equal vendors, nominal 5 %; five standard errors of room."""
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(300):
        p = np.where(rng.random(80) < 0.7, 0.95, 0.3)
        hits += pair(sides, (rng.random(80) < p).astype(int), (rng.random(80) < p).astype(int)).p <= 0.05
    assert hits <= 300 * 0.05 + 5 * (300 * 0.05 * 0.95) ** 0.5


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    # mid-p: each differing question's four samples split 2 to 2 in 6 ways, of which two are as seen, one for each side
    [(1, 0, 1 / 6), (2, 0, 1 / 36), (1, 1, 1.0)],
)
def test_repeats_are_tested_question_by_question(sides: Any, gained: int, lost: int, p: float) -> None:
    rest = 200 - gained - lost
    found = pair(
        sides,
        [[0, 0]] * gained + [[1, 1]] * lost + [[1, 1]] * rest,
        [[1, 1]] * gained + [[0, 0]] * lost + [[1, 1]] * rest,
    )
    assert (found.gained, found.lost) == (gained, lost)
    assert found.p == pytest.approx(p)


def test_the_stratified_test_is_mcnemars_with_one_sample_and_near_cochran_mantel_haenszels_with_many() -> None:
    assert stratified_midp([(1, 1, 1)] * 11 + [(1, 0, 1)] * 19 + [(1, 1, 2)] * 207) == pytest.approx(
        mcnemar_midp(11, 19)
    )
    rng = np.random.default_rng(3)
    tables = []
    for p in rng.uniform(0.2, 0.9, 40):
        tables.append(np.array([[b := rng.binomial(8, p), 8 - b], [a := rng.binomial(8, max(0.0, p - 0.12)), 8 - a]]))
    ours = stratified_midp([(8, int(t[0, 0]), int(t[:, 0].sum())) for t in tables])
    theirs = StratifiedTable(tables).test_null_odds(correction=False).pvalue
    assert 0.0001 < ours < 0.2
    assert ours == pytest.approx(theirs, rel=0.15)


def test_scores_of_few_differing_clusters_are_counted_out_over_sign_patterns(sides: Any) -> None:
    """t would call three of 100 clusters (p 0.08) rarer than the one pattern in four that they are."""
    clusters = [f"c{i // 2}" for i in range(200)]
    found = pair(sides, [0.5] * 200, [0.8] * 6 + [0.5] * 194, clusters=clusters)
    assert found.p == pytest.approx(2 / 8)


def test_one_cluster_proves_nothing(sides: Any) -> None:
    assert pair(sides, [0.2] * 30, [0.9] * 30, clusters=["c"] * 30).p == 1.0


@pytest.mark.parametrize("k", [1, 4])
def test_repeats_of_equal_vendors_differ_no_more_often_than_stated(sides: Any, k: int) -> None:
    """Type I error with repeats of 30 bimodal questions, as AIME has: nominal 5 % over 200 pairs, five standard errors
    of room.
    """
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(200):
        p = np.where(rng.random(30) < 0.8, 0.97, 0.4)
        first, second = ((rng.random((30, k)) < p[:, None]).astype(int).tolist() for _ in range(2))
        hits += pair(sides, first, second).p <= 0.05
    assert hits <= 200 * 0.05 + 5 * (200 * 0.05 * 0.95) ** 0.5


def test_a_value_that_is_no_share_is_no_measure(sides: Any) -> None:
    a, b = sides.bench([1, 0], key="calls"), sides.bench([3, 0], key="calls")
    assert measures([a, b]) == []


def test_tool_calls_are_compared_on_equal_denominators(sides: Any) -> None:
    from kvv.analysis import CaseResult, SampleResult, SuiteResult
    from kvv.cases.suite import SuiteKind
    from kvv.core import Area, Level, Outcome

    def suite(calls: list[tuple[int, int]]) -> SuiteResult:
        cases = {
            f"t/{i}": CaseResult(
                area=Area.ACCURACY,
                level=Level.SHOULD,
                cluster="",
                samples=(SampleResult(outcome=Outcome.PASS, values={"triggered": float(t), "schema_valid": float(v)}),),
            )
            for i, (t, v) in enumerate(calls)
        }
        return SuiteResult(id="toolcall", kind=SuiteKind.BENCHMARK, title="", facts={}, cases=cases)

    # the second calls half as often, and every call of its holds: it is not better where both call
    a, b = suite([(1, 1)] * 20 + [(1, 0)] * 20), suite([(1, 1)] * 20 + [(0, 0)] * 20)
    known = measures([a, b])
    assert [(m.key, m.primary, m.better) for m in known] == [("schema_valid", True, True), ("triggered", False, False)]
    valid = compare_pair(0, 1, a, b, known[0], np.random.default_rng(0))
    assert valid.difference is not None
    assert (valid.samples, valid.difference.estimate) == (20, 0.0)


def test_broken_calls_are_in_the_first_line_though_the_decision_to_call_is_the_same(sides: Any) -> None:
    from dataclasses import replace

    from kvv.analysis.report import document

    def side(valid: float, name: str) -> Any:
        suite = sides.bench([1.0] * 100, suite="toolcall", key="agreeing")
        values = {"agreeing": 1.0, "triggered": 1.0, "schema_valid": valid}
        cases = {
            key: replace(case, samples=tuple(replace(sample, values=values) for sample in case.samples))
            for key, case in suite.cases.items()
        }
        return sides.side(replace(suite, cases=cases), name=name)

    title = document(compare([side(1.0, "a"), side(0.0, "b")], np.random.default_rng(0))).title
    assert (
        "no difference in quality is shown in 1 pairs, but 1 in other measures: toolcall (schema valid where both call)"
        in title
    )


@pytest.mark.parametrize(
    ("estimates", "differing", "groups"),
    [
        ([0.9, 0.8, 0.7], [], [(0, 1, 2)]),
        ([0.9, 0.8, 0.7], [(0, 2)], [(0, 1), (1, 2)]),
        ([0.9, 0.8, 0.7], [(0, 1), (0, 2), (1, 2)], [(0,), (1,), (2,)]),
        ([0.7, 0.9, None], [(0, 1)], [(1,), (0,)]),
        ([], [], []),
    ],
)
def test_tie_groups_hold_what_no_shown_difference_separates(estimates: Any, differing: Any, groups: Any) -> None:
    assert tie_groups(estimates, {frozenset(p) for p in differing}) == groups


def test_three_runs_are_corrected_for_three_looks(sides: Any) -> None:
    first = [1] * 50 + [0] * 7 + [1] * 1 + [0] * 42
    second = [1] * 50 + [1] * 7 + [0] * 1 + [0] * 42
    two = compare([sides.side(sides.bench(first)), sides.side(sides.bench(second), name="b")], np.random.default_rng(0))
    same = sides.side(sides.bench(first), name="c")
    three = compare(
        [sides.side(sides.bench(first)), sides.side(sides.bench(second), name="b"), same], np.random.default_rng(0)
    )
    assert (
        two.quality[0].pairs[0].adjusted == pytest.approx(two.quality[0].pairs[0].p) == pytest.approx(0.039, abs=0.001)
    )
    assert three.quality[0].pairs[0].adjusted > two.quality[0].pairs[0].adjusted
    assert two.quality[0].groups == ((1,), (0,))
    assert three.quality[0].groups == ((1, 0, 2),)


# --- beside quality --------------------------------------------------------------------------------


def test_the_medians_interval_is_the_order_statistics_of_the_binomial() -> None:
    """n = 25: ranks 8 and 18 cover with 95.67 % (David and Nagaraja, table of order-statistic intervals)."""
    found = median([float(i) for i in range(1, 26)])
    assert (found.value, found.low, found.high, found.n) == (13.0, 8.0, 18.0, 25)
    assert median([1.0, 2.0, 3.0, 4.0, 5.0]).low is None
    assert (median([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).low, median([]).value) == (1.0, None)


def test_means_are_clustered_and_shares_have_wilsons_interval() -> None:
    one = mean([(str(i), float(i % 2)) for i in range(40)])
    tied = mean([(str(i % 2), float(i % 2)) for i in range(40)])
    assert one.value == tied.value == 0.5
    assert one.high is not None
    assert tied.high is not None
    assert tied.high > one.high
    assert share(0, 0).value is None
    assert share(407, 408).low == pytest.approx(0.986, abs=0.001)
