"""Looks, power, lists of differences, pass@k and F1 against published values and simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import NormalIndPower

from kvv.stats import (
    Confusion,
    Design,
    all_pass_probability,
    avg_at_k,
    benjamini_hochberg,
    binary_design,
    bound_confidence,
    crossing_probability,
    detectable,
    equal_looks,
    fail_probability,
    look_chances,
    mean_f1,
    more_samples,
    obrien_fleming,
    official_null,
    pass_at_k,
    pass_hat_k,
    pass_probability,
    required_n,
    tango_interval,
    tango_z,
)

# --- looks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("looks", "alpha", "constant"),
    # Jennison and Turnbull, Group Sequential Methods (2000), table 2.3: two-sided 0.05 and 0.10
    [
        (2, 0.025, 1.977),
        (3, 0.025, 2.004),
        (4, 0.025, 2.024),
        (5, 0.025, 2.040),
        (10, 0.025, 2.087),
        (2, 0.05, 1.678),
        (5, 0.05, 1.751),
        (1, 0.05, 1.645),
    ],
)
def test_constants_are_the_published_ones(looks: int, alpha: float, constant: float) -> None:
    bounds = obrien_fleming(alpha, equal_looks(looks))
    assert bounds[-1] == pytest.approx(constant, abs=1e-3)
    assert bounds == pytest.approx([bounds[-1] * (looks / k) ** 0.5 for k in range(1, looks + 1)])


def test_five_looks_with_the_fixed_bound_would_cross_too_often() -> None:
    """Five looks at the constant of one look spend more than alpha; those of O'Brien and Fleming spend exactly it."""
    assert crossing_probability(1.751, equal_looks(5)) == pytest.approx(0.05, abs=2e-4)
    assert crossing_probability(1.6449, equal_looks(5)) > 0.055


def test_unequal_looks_keep_alpha_by_simulation() -> None:
    fractions = (0.31, 0.34, 0.8, 1.0)
    bounds = np.array(obrien_fleming(0.05, fractions))
    rng = np.random.default_rng(1)
    steps = np.sqrt(np.diff([0.0, *fractions]))
    z = np.cumsum(rng.normal(size=(40_000, 4)) * steps, axis=1) / np.sqrt(fractions)
    assert float((z >= bounds).any(axis=1).mean()) == pytest.approx(0.05, abs=0.004)


@pytest.mark.parametrize("drift", [0.0, 2.5, -5.0])
@pytest.mark.parametrize("fractions", [equal_looks(5), (0.31, 0.34, 0.8, 1.0)])
def test_the_look_that_stops_is_as_likely_as_simulated(drift: float, fractions: tuple[float, ...]) -> None:
    found = look_chances(0.05, fractions, drift)
    rng = np.random.default_rng(3)
    steps = np.diff([0.0, *fractions])
    path = np.cumsum(rng.normal(size=(40_000, len(fractions))) * np.sqrt(steps) + drift * steps, axis=1)
    bound = obrien_fleming(0.05, fractions)[-1]
    crossed = np.abs(path) >= bound
    first = crossed.argmax(axis=1)
    up = path[np.arange(40_000), first] > 0
    for look, chance in enumerate(found):
        here = crossed.any(axis=1) & (first == look)
        assert (chance.above, chance.below) == pytest.approx(
            (float((here & up).mean()), float((here & ~up).mean())), abs=0.01
        )


@pytest.mark.parametrize("fractions", [(), (0.0, 1.0), (0.5, 0.5), (0.5, 1.2)])
def test_looks_must_rise_within_the_plan(fractions: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must rise"):
        obrien_fleming(0.05, fractions)


def test_a_bound_and_its_confidence_decide_alike() -> None:
    bound = obrien_fleming(0.05, equal_looks(5))[1]
    for b, c in ((10, 11), (20, 5), (5, 20), (24, 6)):
        excluded = tango_interval(b, c, 400, bound_confidence(bound)).low > -0.03
        assert excluded is bool(tango_z(b, c, 400, -0.03) > bound)


def test_early_stopping_on_tangos_z_keeps_alpha_and_saves_a_fifth() -> None:
    """OCRBench-like, rho .7, margin 3 points (type I .045, 39 % fewer questions)."""
    rng = np.random.default_rng(4)
    n, p, margin, runs = 1000, 0.89, 0.03, 4000
    bounds = obrien_fleming(0.05, equal_looks(5))

    def simulate(difference: float) -> tuple[float, float]:
        pv = p + difference
        both = p * pv + 0.7 * np.sqrt(p * (1 - p) * pv * (1 - pv))
        cells = [both, pv - both, p - both, 1 - p - pv + both]
        counts = np.cumsum(rng.multinomial(n // 5, cells, size=(runs, 5)), axis=1)
        asked = np.full(runs, n)
        passed = np.zeros(runs, bool)
        open_ = np.ones(runs, bool)
        for look, bound in enumerate(bounds):
            z = tango_z(counts[:, look, 1], counts[:, look, 2], (look + 1) * n // 5, -margin)
            stop = open_ & (np.abs(z) >= bound)
            passed |= stop & (z > 0)
            asked[stop] = (look + 1) * n // 5
            open_ &= ~stop
        return float(passed.mean()), 1 - float(asked.mean()) / n

    wrongly_passed, _ = simulate(-margin)
    power, saved = simulate(0.0)
    assert 0.035 < wrongly_passed < 0.062
    assert power > 0.95
    assert saved > 0.2


# --- power ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "p", "points"),
    # unpaired, rho .5, .7, .9
    [
        (1000, 0.89, (3.5, 2.5, 1.9, 1.1)),
        (1730, 0.82, (3.2, 2.3, 1.8, 1.0)),
        (700, 0.31, (6.1, 4.3, 3.4, 1.9)),
        (500, 0.65, (7.5, 5.3, 4.1, 2.4)),
        (113, 0.675, (15.5, 11.0, 8.5, 4.9)),
    ],
)
def test_the_table_of_detectable_differences(n: int, p: float, points: tuple[float, ...]) -> None:
    found = [100 * detectable(binary_design(n, p, rho).se) for rho in (0.0, 0.5, 0.7, 0.9)]
    assert found == pytest.approx(points, abs=0.051)


@pytest.mark.parametrize(("k", "points"), [(4, 8.1), (8, 6.6), (16, 4.6), (32, 3.3)])
def test_aime_repeats_buy_the_published_margins(k: int, points: float) -> None:
    """Run-to-run sd .0094 at 32 samples of 30 questions; its K = 8 figure has less spread than
    1/sqrt(K) gives, hence the room.
    """
    sigma2 = 0.0094**2 * 30 * 32
    assert 100 * detectable(Design(n=30, sigma2=sigma2, k_vendor=k, k_reference=k).se) == pytest.approx(
        points, rel=0.16
    )


def test_sample_size_agrees_with_statsmodels_and_inverts_the_margin() -> None:
    p, margin = 0.89, 0.03
    n = required_n(binary_design(1, p, 0.0), margin)
    effect = margin / np.sqrt(p * (1 - p))
    assert n == pytest.approx(
        NormalIndPower().solve_power(effect, alpha=0.05, power=0.8, alternative="larger"), rel=1e-3
    )
    assert detectable(binary_design(n, p, 0.0).se) <= margin < detectable(binary_design(n - 1, p, 0.0).se)


def test_an_identical_vendor_passes_with_the_stated_power_and_six_gates_a_quarter() -> None:
    se = binary_design(1000, 0.89, 0.7).se
    assert pass_probability(se, detectable(se, power=0.8)) == pytest.approx(0.8)
    assert pass_probability(se, 0.02, true_difference=-0.02) == pytest.approx(0.05)
    assert fail_probability(se, 0.02, true_difference=-0.02 - detectable(se)) == pytest.approx(0.8)
    assert all_pass_probability([0.8] * 6) == pytest.approx(0.26, abs=0.003)
    assert all_pass_probability([0.964] * 6) == pytest.approx(0.8, abs=0.003)


def test_a_bare_threshold_is_a_coin_toss() -> None:
    """ "Not more than 1 point below" fails an identical vendor in 25 % of OCRBench runs, 2 points in 8 %."""
    se = binary_design(1000, 0.89, 0.0).se
    assert pass_probability(se, 0.01, alpha=0.5) == pytest.approx(0.75, abs=0.02)
    assert pass_probability(se, 0.02, alpha=0.5) == pytest.approx(0.92, abs=0.02)


def test_more_samples_shrink_the_interval_to_the_gap() -> None:
    assert more_samples(0.0, 0.04, 0.02, 100) == 300
    assert more_samples(-0.02, 0.04, 0.02, 100) is None


# --- lists ------------------------------------------------------------------------------------------


def test_benjamini_and_hochbergs_own_example() -> None:
    """Their 1995 paper's fifteen p-values: four rejected at q = 0.05, three by Bonferroni."""
    p = [
        0.0001,
        0.0004,
        0.0019,
        0.0095,
        0.0201,
        0.0278,
        0.0298,
        0.0344,
        0.0459,
        0.3240,
        0.4262,
        0.5719,
        0.6528,
        0.7590,
        1.0,
    ]
    assert sum(q <= 0.05 for q in benjamini_hochberg(p)) == 4


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_adjusted_p_values_agree_with_statsmodels(p: list[float]) -> None:
    assert benjamini_hochberg(p) == pytest.approx(list(multipletests(p, method="fdr_bh")[1]))


def test_no_p_values_is_no_error_and_a_wrong_one_is() -> None:
    assert benjamini_hochberg([]) == []
    with pytest.raises(ValueError, match="outside"):
        benjamini_hochberg([0.5, 1.2])


# --- pass@k -----------------------------------------------------------------------------------------


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_and_pass_hat_k_are_shares_of_all_draws(counts: tuple[int, int, int]) -> None:
    n, c, k = counts
    draws = list(itertools.combinations([1] * c + [0] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws))
    assert pass_hat_k(n, c, 1) == pass_at_k(n, c, 1) == avg_at_k(n, c) == c / n


def test_pass_at_k_of_chens_definition_and_impossible_counts() -> None:
    assert pass_at_k(10, 3, 5) == pytest.approx(1 - 21 / 252)
    for n, c, k in ((4, 5, 1), (4, 1, 5), (4, 1, 0)):
        with pytest.raises(ValueError, match="need"):
            pass_at_k(n, c, k)


# --- F1 ---------------------------------------------------------------------------------------------


def test_f1_of_the_recorded_results() -> None:
    confusion = Confusion(tp=207, fp=11, fn=19, tn=19)
    assert confusion.f1 == pytest.approx(0.9324, abs=5e-5)
    interval = confusion.f1_interval()
    assert interval is not None
    assert interval.low < 0.9324 < interval.high
    assert Confusion(tn=4).f1 is None
    assert Confusion(tn=4).f1_interval() is None


def test_the_f1_interval_covers_by_simulation() -> None:
    rng = np.random.default_rng(3)
    truth = 2 * 0.4 / (2 * 0.4 + 0.05 + 0.08)
    counts = rng.multinomial(250, [0.4, 0.05, 0.08, 0.47], size=3000)
    found = [Confusion(tp=int(a), fp=int(b), fn=int(c), tn=int(d)).f1_interval() for a, b, c, d in counts]
    assert sum(i is not None and i.low <= truth <= i.high for i in found) / 3000 == pytest.approx(0.95, abs=0.015)


def calls(rng: np.random.Generator, p: np.ndarray) -> dict[str, bool]:
    return {f"q{i}": bool(x) for i, x in enumerate(rng.random(len(p)) < p)}


def test_an_identical_vendor_falls_evenly_into_the_official_distribution() -> None:
    """Self-against-self F1 has a ceiling below 1; an identical vendor is below its 1 % quantile about
    once in a hundred.
    """
    rng = np.random.default_rng(12)
    p = rng.beta(0.4, 0.4, 500)
    below = 0
    positions = []
    for _ in range(120):
        runs = [calls(rng, p) for _ in range(5)]
        null = official_null(runs, rng, draws=2000)
        vendor = mean_f1(calls(rng, p), runs)
        assert null is not None
        assert vendor is not None
        below += vendor < null.quantile(0.01)
        positions.append(null.position(vendor))
    assert below <= 6
    assert np.mean(positions) == pytest.approx(0.5, abs=0.1)
    assert 0.7 < null.quantile(0.5) < 0.9


def test_the_null_needs_two_runs_that_call_and_compares_shared_prompts_only() -> None:
    rng = np.random.default_rng(0)
    run = {"a": True, "b": False}
    assert official_null([run], rng) is None
    assert official_null([{"a": False}, {"a": False}], rng) is None
    null = official_null([run, {"a": True, "z": True}], rng, draws=50)
    assert null is not None
    # one shared prompt, on which both call
    assert (null.pairs, set(null.values)) == (1, {0.0, 1.0})


def test_the_null_of_two_runs_that_agree_on_everything_scatters_with_the_number_of_prompts() -> None:
    floors = []
    for n in (5, 50, 500):
        run = {str(i): True for i in range(n)}
        null = official_null([run, dict(run)], np.random.default_rng(0))
        assert null is not None
        floors.append(null.quantile(0.01))
    assert floors[0] < 0.9 < floors[1] < 0.985 < floors[2] < 1.0


def test_an_f1_against_a_run_that_calls_where_the_vendor_does_not_is_undefined() -> None:
    assert mean_f1({"a": False}, [{"a": False}]) is None
