"""McNemar, Tango and the paired difference against published tables, scipy, statsmodels, and simulation within
Monte-Carlo bounds.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar

from kvv.stats import (
    ClusterSum,
    PairedCase,
    bca_interval,
    mcnemar_exact,
    mcnemar_midp,
    paired_difference,
    tango_interval,
    tango_limits,
    tango_p,
    tango_z,
)


def test_midp_reproduces_fagerlands_worked_table() -> None:
    """Fagerland, Lydersen and Laake (2013): 1 against 7 discordant pairs, mid-p 0.039, exact 0.070."""
    assert mcnemar_midp(1, 7) == pytest.approx(0.0391, abs=5e-5)
    assert mcnemar_exact(1, 7) == pytest.approx(0.0703, abs=5e-5)


def test_midp_reproduces_fagerlands_second_table() -> None:
    """The same paper's 161 patients: 6 against 16 discordant pairs, mid-p 0.035, exact 0.052."""
    assert mcnemar_midp(6, 16) == pytest.approx(0.0347, abs=5e-4)
    assert mcnemar_exact(6, 16) == pytest.approx(0.0525, abs=5e-4)


def test_equal_discordant_pairs_and_none() -> None:
    assert mcnemar_midp(3, 3) == pytest.approx(1 - 0.5 * scipy.stats.binom.pmf(3, 6, 0.5))
    assert mcnemar_midp(0, 0) == mcnemar_exact(0, 0) == 1.0


@given(st.integers(0, 60), st.integers(0, 60))
def test_exact_mcnemar_agrees_with_statsmodels(b: int, c: int) -> None:
    assume(b + c)
    assert mcnemar_exact(b, c) == pytest.approx(min(1.0, mcnemar([[5, b], [c, 5]], exact=True).pvalue), abs=1e-9)
    assert mcnemar_midp(b, c) == mcnemar_midp(c, b) < mcnemar_exact(b, c)


def test_tango_interval_reproduces_the_airway_table() -> None:
    """Fagerland, Lydersen and Laake (Statistics in Medicine 33, 2014): 1, 1, 7, 12 of 21, Tango's interval -0.517 to
    -0.026.
    """
    assert tango_interval(1, 7, 21).pair == (pytest.approx(-0.517, abs=5e-4), pytest.approx(-0.026, abs=5e-4))


def test_tango_interval_agrees_with_the_r_package_propcis() -> None:
    """scoreci.mp(25, 28, 618) at 90 %: -0.0148 to 0.0247 for (28 - 25)/618."""
    assert tango_interval(28, 25, 618, 0.9).pair == (pytest.approx(-0.0148, abs=5e-5), pytest.approx(0.0247, abs=5e-5))


def test_tango_without_discordant_pairs_is_wilsons_reach() -> None:
    """b = c = 0: Z^2 = n delta/(1 - delta), so that the limit is z^2/(n + z^2), no certainty."""
    z2 = scipy.stats.norm.ppf(0.975) ** 2
    assert tango_interval(0, 0, 50).pair == pytest.approx((-z2 / (50 + z2), z2 / (50 + z2)))


def test_tango_at_no_difference_is_mcnemars_chi() -> None:
    assert float(tango_z(30, 12, 500, 0.0)) == pytest.approx((30 - 12) / np.sqrt(42))
    assert float(tango_z(0, 0, 500, 0.0)) == 0.0


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.data())
def test_limits_solve_the_score_equation_and_hold_the_estimate(pair: tuple[int, int], data: st.DataObject) -> None:
    n, b = pair
    c = data.draw(st.integers(0, n - b))
    found = tango_interval(b, c, n, 0.9)
    assert -1 <= found.low <= (b - c) / n <= found.high <= 1
    for limit, target in ((found.low, 1.6449), (found.high, -1.6449)):
        if -0.999 < limit < 0.999:
            assert float(tango_z(b, c, n, limit)) == pytest.approx(target, abs=2e-3)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(0, 100), st.integers(0, 100))
def test_swapping_the_sides_mirrors_the_interval(concordant: int, b: int, c: int) -> None:
    n = concordant + b + c
    one, other = tango_interval(b, c, n), tango_interval(c, b, n)
    assert one.pair == pytest.approx((-other.high, -other.low), abs=1e-9)


def test_the_p_value_and_the_limit_say_the_same() -> None:
    for b, c, n, margin in ((30, 40, 1000, 0.02), (30, 45, 1000, 0.02), (3, 9, 113, 0.1)):
        assert (tango_p(b, c, n, margin) < 0.05) is (tango_interval(b, c, n, 0.9).low > -margin)


def test_impossible_tables_are_refused() -> None:
    for b, c, n in ((1, 1, 1), (-1, 0, 5), (0, 0, 0)):
        with pytest.raises(ValueError, match="no paired table"):
            tango_interval(b, c, n)


@pytest.mark.parametrize(
    ("n", "p", "margin", "rho"), [(113, 0.9, 0.10, 0.5), (500, 0.65, 0.05, 0.7), (1000, 0.89, 0.02, 0.9)]
)
def test_tangos_type_one_error_is_its_alpha(n: int, p: float, margin: float, rho: float) -> None:
    """At the boundary D = -margin the one-sided 5 % test passes a bad vendor in 4 to 6 of 100 (20,000 draws:
    Monte-Carlo sd .0015).
    """
    rng = np.random.default_rng(7)
    pv = p - margin
    both = min(p, pv, p * pv + rho * np.sqrt(p * (1 - p) * pv * (1 - pv)))
    cells = np.array([both, pv - both, p - both, 1 - p - pv + both])
    assert cells.min() >= -1e-12
    _, b, c, _ = rng.multinomial(n, np.maximum(cells, 0) / cells.sum(), size=20_000).T
    low, _ = tango_limits(b, c, n, scipy.stats.norm.ppf(0.95))
    assert 0.035 < float((low > -margin).mean()) < 0.06


def test_bca_agrees_with_scipy() -> None:
    rng = np.random.default_rng(3)
    values = rng.exponential(size=80) - 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = scipy.stats.bootstrap(
            (values,), np.mean, confidence_level=0.9, n_resamples=20_000, method="BCa", rng=np.random.default_rng(1)
        )
    sums = [ClusterSum(n=1, total=float(v)) for v in values]
    found = bca_interval(sums, np.random.default_rng(2), 0.9, draws=20_000)
    assert found.pair == pytest.approx(tuple(expected.confidence_interval), abs=0.015)


def test_the_same_generator_gives_the_same_interval() -> None:
    cases = [PairedCase(vendor=v, reference=0.5) for v in (0.1, 0.4, 0.9, 0.6, 0.5)]
    assert paired_difference(cases, np.random.default_rng(1)) == paired_difference(cases, np.random.default_rng(1))


@pytest.mark.parametrize("n", [199, 200, 300])
def test_no_number_of_questions_switches_the_method(n: int) -> None:
    """Three whole questions lost of many: t alone would come closer to 0 than a margin of 3 points from 200 on."""
    differences = [-1.0] * 3 + [0.0] * (n - 3)
    rng = np.random.default_rng(5)
    single = [PairedCase(vendor=1.0 + d, reference=1.0, single=True) for d in differences]
    found = paired_difference(single, rng, 0.9)
    assert found.method == "paired difference, exact sum"
    assert found.interval.low == pytest.approx(-scipy.stats.beta.ppf(0.95, 4, n - 3), abs=1e-5)
    clustered = paired_difference([replace(case, cluster="a") for case in single], rng, 0.9)
    assert clustered.interval == found.interval, "the very same questions: clusters add nothing"
    scores = paired_difference([PairedCase(vendor=0.5 + d / 2, reference=0.5) for d in differences], rng, 0.9)
    assert scores.method == "paired difference, t and BCa (10000 draws)"


def test_bca_may_widen_but_never_narrow_the_t_interval() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        values = np.where(rng.random(40) < 0.15, -rng.random(40), 0.0)
        if not values.any():
            continue
        found = paired_difference([PairedCase(vendor=float(v) + 1, reference=1.0) for v in values], rng, 0.9)
        low, high = scipy.stats.t.interval(0.9, 39, loc=values.mean(), scale=scipy.stats.sem(values))
        assert found.interval.low <= max(low, -1) + 1e-12
        assert found.interval.high >= min(high, 1) - 1e-12


def test_equal_differences_are_no_certainty() -> None:
    rng = np.random.default_rng(0)
    found = paired_difference([PairedCase(vendor=1.0, reference=1.0)] * 30, rng, 0.9)
    assert found.interval.pair == pytest.approx((-(1 - 0.05 ** (1 / 30)), 1 - 0.05 ** (1 / 30)), abs=1e-5)
    single = paired_difference([PairedCase(vendor=1.0, reference=0.5, cluster="a")] * 3, rng)
    assert single.interval.pair == (-1.0, 1.0)


def test_an_identical_vendor_is_covered_at_the_nominal_rate() -> None:
    """AIME-like, 30 bimodal questions x 16 samples a side, 300 runs: a nominal 90 % interval covers 0 within
    Monte-Carlo bounds.
    """
    rng = np.random.default_rng(8)
    ability = rng.beta(0.6, 0.15, 30)
    inside = 0
    for _ in range(300):
        vendor, reference = rng.binomial(16, ability) / 16, rng.binomial(16, ability) / 16
        found = paired_difference(
            [PairedCase(vendor=float(v), reference=float(r)) for v, r in zip(vendor, reference, strict=True)], rng, 0.9
        )
        inside += found.interval.low <= 0 <= found.interval.high
    assert 0.85 < inside / 300 <= 0.98
