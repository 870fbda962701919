"""Single proportions and clustered means against published values, scipy, statsmodels, and a small simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from kvv.stats import ClusterSum, clopper_pearson, clustered_mean, exact_lower, exact_upper, wilson


def test_wilson_of_407_of_408() -> None:
    """Of 408 schema checks."""
    assert wilson(407, 408).pair == (pytest.approx(0.986, abs=5e-4), pytest.approx(0.9996, abs=5e-5))


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    # Newcombe, Statistics in Medicine 17 (1998) 857-872, table I: method 3 (score) and method 5 (Clopper-Pearson)
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_reproduces_newcombes_table(k: int, n: int, low: float, high: float) -> None:
    assert wilson(k, n).pair == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(81, 263, 0.2527, 0.3676), (15, 148, 0.0578, 0.1617), (0, 20, 0.0, 0.1684), (1, 29, 0.0009, 0.1776)],
)
def test_clopper_pearson_reproduces_newcombes_table(k: int, n: int, low: float, high: float) -> None:
    assert clopper_pearson(k, n).pair == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(
    st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.sampled_from([0.8, 0.9, 0.95, 0.99]),
)
def test_proportions_agree_with_statsmodels(counts: tuple[int, int], confidence: float) -> None:
    k, n = counts
    assert wilson(k, n, confidence).pair == pytest.approx(proportion_confint(k, n, 1 - confidence, "wilson"), abs=1e-9)
    assert clopper_pearson(k, n, confidence).pair == pytest.approx(
        proportion_confint(k, n, 1 - confidence, "beta"), abs=1e-9
    )


@pytest.mark.parametrize(("n", "rate"), [(55, 0.053), (408, 0.0073), (2000, 0.0015)])
def test_clean_cases_exclude_only_rates_above_three_over_n(n: int, rate: float) -> None:
    assert exact_upper(0, n) == pytest.approx(rate, rel=0.02)
    assert exact_upper(0, n) == pytest.approx(1 - 0.05 ** (1 / n))
    assert exact_lower(n, n) == pytest.approx(0.05 ** (1 / n))


def test_one_sided_limits_are_the_ends_of_the_wider_interval() -> None:
    assert (exact_lower(7, 20), exact_upper(7, 20)) == pytest.approx(clopper_pearson(7, 20, 0.9).pair)


@pytest.mark.parametrize(("k", "n"), [(1, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(k: int, n: int) -> None:
    for method in (wilson, clopper_pearson):
        with pytest.raises(ValueError, match="no proportion"):
            method(k, n)


def coverage(method: object, n: int, p: float) -> float:
    """Exact coverage, by summing the binomial."""
    k = np.arange(n + 1)
    inside = np.array([m.low <= p <= m.high for m in (method(int(i), n) for i in k)])  # type: ignore[operator]
    return float(scipy.stats.binom.pmf(k, n, p)[inside].sum())


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.89, 0.98])
def test_clopper_pearson_never_covers_less_than_it_says_and_wilson_does_so_on_average(p: float) -> None:
    sizes = range(20, 61, 4)
    assert all(coverage(clopper_pearson, n, p) >= 0.95 for n in sizes)
    assert np.mean([coverage(wilson, n, p) for n in sizes]) == pytest.approx(0.95, abs=0.02)


def test_singletons_have_the_ordinary_standard_error() -> None:
    values = np.array([0.2, 0.9, 0.5, 0.4, 1.0])
    mean = clustered_mean(ClusterSum(n=1, total=float(v)) for v in values)
    assert mean.se == pytest.approx(scipy.stats.sem(values))
    expected = scipy.stats.t.interval(0.95, 4, loc=values.mean(), scale=scipy.stats.sem(values))
    found = mean.interval()
    assert found is not None
    assert found.pair == pytest.approx(expected)


def test_clusters_add_millers_double_sum() -> None:
    """SE^2 = SE_iid^2 + n^-2 sum over pairs inside a cluster (Miller, equation 5), times G/(G-1) on the population
    form.
    """
    rng = np.random.default_rng(2)
    groups = [rng.normal(rng.normal(), 1, size=size) for size in (3, 5, 2, 7)]
    flat = np.concatenate(groups)
    n, mean = len(flat), flat.mean()
    pairs = sum(
        float((g - mean)[:, None] @ (g - mean)[None, :] @ np.ones(len(g)) @ np.ones(len(g)) - ((g - mean) ** 2).sum())
        for g in groups
    )
    square = (((flat - mean) ** 2).sum() + pairs) / n**2 * 4 / 3
    found = clustered_mean(ClusterSum(n=len(g), total=float(g.sum())) for g in groups)
    assert found.se == pytest.approx(math.sqrt(square))
    assert (found.n, found.clusters, found.mean) == (17, 4, pytest.approx(mean))


def test_one_cluster_says_nothing_about_clusters() -> None:
    found = clustered_mean([ClusterSum(n=20, total=15.0)])
    assert (found.se, found.interval()) == (None, None)
    with pytest.raises(ValueError, match="no samples"):
        clustered_mean([])


def test_clustered_t_covers_where_the_binomial_does_not() -> None:
    """AIME-like: 30 questions x 32 samples. The naive interval covers about 6 of 10, the clustered
    one 9 of 10 and more.
    """
    rng = np.random.default_rng(11)
    naive = clustered = 0
    runs = 400
    for _ in range(runs):
        ability = rng.beta(4.5, 0.5, 30)
        k = rng.binomial(32, ability)
        inside = clustered_mean(ClusterSum(n=32, total=float(x)) for x in k).interval()
        plain = wilson(float(k.sum()), 960)
        assert inside is not None
        clustered += inside.low <= 0.9 <= inside.high
        naive += plain.low <= 0.9 <= plain.high
    assert naive / runs < 0.75
    assert 0.88 < clustered / runs < 0.98
