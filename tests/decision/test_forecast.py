from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from kvv.cases.suite import ReferenceRun
from kvv.decision import expected_design, f1_resolves, forecast
from kvv.profiles.policy import Policy, load_policy
from kvv.stats import Design, binary_design, detectable, equal_looks
from kvv.stats.constrained import mean_p

DESIGNS = {
    "ocrbench": binary_design(1000, 0.89, 0.91),
    "mmmu_pro": binary_design(1730, 0.82, 0.8),
    "swebench": binary_design(500, 0.65, 0.8),
    "beam": Design(n=700, sigma2=0.4**2 * 0.2),
    "aime2025": Design(n=30, sigma2=0.0094**2 * 30 * 32, k_vendor=32, k_reference=32),
    "toolcall": binary_design(2000, 0.5, 0.5),
}


def test_an_identical_vendor_passes_the_whole_release_policy_in_nine_of_ten_runs() -> None:
    found = forecast(load_policy("release"), DESIGNS)
    assert len(found.gates) == 8
    assert found.pass_chance >= 0.9
    assert found.false_alarms < 0.5


def test_nightly_states_at_most_one_false_alarm_in_a_hundred_nights() -> None:
    designs = {**DESIGNS, "aime2025": Design(n=30, sigma2=0.0848, k_vendor=4, k_reference=4)}
    found = forecast(load_policy("nightly"), designs)
    assert 0 < found.false_alarms <= 1
    assert all(g.pass_chance > 0.96 for g in found.gates), "every stated loss can be seen at these sizes"


NIGHTLY_TIER = {
    "ocrbench": (200, 1, 200),
    "mmmu_pro": (60, 1, 60),
    "aime2025": (30, 4, 30),
    "swebench": (10, 1, 5),
    "beam": (160, 1, 8),
}


@pytest.mark.parametrize("suite", NIGHTLY_TIER)
def test_what_the_nightly_policy_wants_seen_the_nightly_tier_sees(suite: str) -> None:
    cases, samples, clusters = NIGHTLY_TIER[suite]
    design = expected_design(suite, cases=cases, samples=samples, clusters=clusters, references=[]).design
    (gate,) = forecast(load_policy("nightly"), {suite: design}).gates
    assert gate.pass_chance > 0.95
    half = replace(design, n=max(1, cases // 4), clusters=design.clusters // 4)
    assert forecast(load_policy("nightly"), {suite: half}).gates[0].pass_chance < 0.95, (
        "a run of a quarter of that size does not"
    )


def test_a_run_too_small_to_see_the_stated_loss_cannot_pass() -> None:
    found = forecast(load_policy("nightly"), {"ocrbench": binary_design(60, 0.89, 0.7)})
    assert found.pass_chance < 0.1


def test_six_gates_at_eighty_percent_pass_an_identical_vendor_one_time_in_four() -> None:
    design = binary_design(1000, 0.89, 0.7)
    margin = detectable(design.se)
    policy = Policy.model_validate({"name": "p", "benchmark": [{"suite": f"s{i}", "margin": margin} for i in range(6)]})
    found = forecast(policy, {f"s{i}": design for i in range(6)})
    # 77 each: the exact sum comes in steps, the normal distribution's 80 does not
    assert [round(gate.pass_chance, 2) for gate in found.gates] == [0.77] * 6
    assert found.pass_chance == pytest.approx(found.gates[0].pass_chance ** 6)
    assert found.gates[0].margin_needed == pytest.approx(margin)


def test_a_suite_that_is_not_planned_is_left_out() -> None:
    assert [
        g.suite
        for g in forecast(load_policy("release"), {"ocrbench": DESIGNS["ocrbench"], "other": DESIGNS["beam"]}).gates
    ] == ["ocrbench"]


def test_early_stopping_spares_an_identical_vendor_at_least_a_fifth_and_costs_it_little() -> None:
    fixed = forecast(load_policy("release"), {"ocrbench": DESIGNS["ocrbench"]})
    looked = forecast(load_policy("release"), {"ocrbench": DESIGNS["ocrbench"]}, {"ocrbench": equal_looks(5)})
    saved = looked.gates[0].saved
    assert saved is not None
    assert 0.2 < saved < 0.8
    assert fixed.gates[0].saved is None
    assert looked.pass_chance == pytest.approx(fixed.pass_chance, abs=0.02)
    assert looked.pass_chance < fixed.pass_chance, "the last bound is a little further away"


def test_a_regression_gate_is_spared_what_comes_after_the_look_that_sees_enough() -> None:
    """At alpha .0016 the bounds of looks 1 and 2 are 6.7 and 4.8: 8 points are not seen in 200 questions, and sometimes
    in 400.
    """
    found = forecast(load_policy("nightly"), {"ocrbench": DESIGNS["ocrbench"]}, {"ocrbench": equal_looks(5)}).gates[0]
    assert found.saved is not None
    assert 0.4 <= found.saved < 0.6
    assert found.pass_chance > 0.998
    blind = forecast(
        load_policy("nightly"), {"ocrbench": binary_design(60, 0.89, 0.7)}, {"ocrbench": equal_looks(5)}
    ).gates[0]
    assert blind.saved == pytest.approx(0.0, abs=0.02)
    assert blind.pass_chance < 0.1


def test_few_conversations_make_wide_intervals() -> None:
    """By a thousand draws of Student's t: the standard error is a draw, too."""
    design = Design(n=160, sigma2=0.032, clusters=8)
    release = load_policy("release")
    found = forecast(release, {"beam": design}).gates[0]
    totals = np.random.default_rng(1).normal(0, design.se * 8**0.5, (20_000, 8))
    low = totals.mean(axis=1) - scipy.stats.t.ppf(0.95, 7) * scipy.stats.sem(totals, axis=1)
    assert found.pass_chance == pytest.approx((low > -found.margin).mean(), abs=0.01)
    assert forecast(release, {"beam": replace(design, clusters=35)}).gates[0].pass_chance > found.pass_chance + 0.02


@pytest.mark.parametrize(
    ("suite", "design", "few"),
    [
        ("ocrbench", Design(n=28, sigma2=0.01), "28 questions cannot decide quality, 29 would do"),
        ("ocrbench", Design(n=29, sigma2=0.01), ""),
        (
            "ocrbench",
            Design(n=28, sigma2=0.01, k_reference=3),
            "28 questions cannot decide quality, 29 would do",
        ),
        (
            "beam",
            Design(n=80, sigma2=0.03, clusters=4),
            "4 groups of questions cannot decide quality, 5 would do",
        ),
        ("beam", Design(n=100, sigma2=0.03, clusters=5), ""),
    ],
)
def test_a_run_too_small_for_anybody_to_pass_is_offered_no_gate(suite: str, design: Design, few: str) -> None:
    found = forecast(load_policy("smoke"), {suite: design})
    assert found.gates[0].too_few == few
    assert (found.gates[0].pass_chance == 0) is bool(few)
    assert found.pass_chance == (1.0 if few else found.gates[0].pass_chance)


@pytest.mark.parametrize(("n", "references"), [(60, 1), (200, 1), (200, 3)])
def test_the_stated_chance_is_that_of_simulated_runs(n: int, references: int) -> None:
    """Two hundred OCRBench questions, a beta distribution, 4,000 runs of an identical vendor by the gate's own test."""
    rng = np.random.default_rng(2)
    margin = load_policy("smoke" if n < 200 else "release").benchmark_for("ocrbench", "", primary=True).margin
    design = Design(n=n, sigma2=0.89 * 0.11 * 0.09, k_reference=references)
    share = 0.09 / 0.91
    p = rng.beta(0.89 * share, 0.11 * share, (4000, n))
    gaps = references * (rng.random((4000, n)) < p) - rng.binomial(references, p)
    counts = np.stack([(gaps == step).sum(axis=1) for step in range(-references, references + 1)], axis=1)
    steps = np.arange(-references, references + 1, dtype=float)
    passed = float((mean_p(counts.astype(float), steps, references, -margin) <= 0.05).mean())
    policy = Policy.model_validate({"name": "p", "benchmark": [{"suite": "ocrbench", "margin": margin}]})
    assert forecast(policy, {"ocrbench": design}).pass_chance == pytest.approx(passed, abs=0.03)


@pytest.mark.parametrize(("samples", "passes"), [(32, 0.985), (4, 0.373)])
def test_repeats_are_foretold_with_the_larger_of_two_scatters(samples: int, passes: float) -> None:
    """30 problems; of 300 simulated runs of the gate itself, t and BCa, 37.3 in 100 pass with 4 samples."""
    design = expected_design("aime2025", cases=30, samples=samples, clusters=30, references=[]).design
    assert forecast(load_policy("release"), {"aime2025": design}).pass_chance == pytest.approx(passes, abs=0.03)


def test_a_baseline_with_too_little_to_lose_is_foretold() -> None:
    design = Design(n=10, sigma2=0.01)
    chance = {
        reached: forecast(load_policy("nightly"), {"swebench": replace(design, reached=reached)}).pass_chance
        for reached in (None, 0.8, 0.7)
    }
    assert chance[None] == chance[0.8] > 0.8
    assert chance[0.7] == 0


def test_an_f1_over_few_requests_is_decided_by_nobody() -> None:
    found = forecast(load_policy("smoke"), {"toolcall": binary_design(60, 0.5, 0.5)})
    assert found.pass_chance == 0.0
    assert not f1_resolves(60)
    assert f1_resolves(500)


def run(*scores: list[float], name: str = "official") -> ReferenceRun:
    return ReferenceRun(
        name=name, model="m", cases={f"q{i}": [{"score": value} for value in row] for i, row in enumerate(scores)}
    )


def test_the_scatter_of_official_runs_takes_the_place_of_the_assumption() -> None:
    """Of 100 questions 10 differ between two official runs: s^2 is .5 on each of them, so that one sample's variance is
    .05.
    """
    first = run(*[[1.0]] * 100)
    second = run(*[[0.0]] * 10, *[[1.0]] * 90)
    found = expected_design("ocrbench", cases=100, samples=1, clusters=100, references=[first, second])
    assert found.observed
    assert found.design.sigma2 == pytest.approx(0.05)
    assert found.ratio == pytest.approx((0.05 / (0.89 * 0.11 * 0.09)) ** 0.5), (
        "2.4 times what OCRBench is taken to have"
    )
    assert (found.design.k_reference, found.design.clusters, found.design.reached) == (2, 0, 0.95)
    alone = expected_design("ocrbench", cases=100, samples=1, clusters=100, references=[first])
    assert (alone.observed, alone.design.k_reference, alone.design.clusters) == (False, 1, 0), "one sample a side"
    same = expected_design("ocrbench", cases=100, samples=1, clusters=100, references=[first, first])
    assert same.design.sigma2 > 0, "two runs that agree in everything prove no certainty"
    assert expected_design("beam", cases=40, samples=1, clusters=2, references=[]).design.clusters == 2


def test_what_a_gate_on_tool_calls_sees_is_stated() -> None:
    found = forecast(load_policy("release"), {"toolcall": binary_design(2000, 0.5, 0.5)})
    f1, recall, match = found.gates
    assert f1.lost_calls == pytest.approx(0.10, abs=0.015)
    assert (recall.metric, match.metric) == ("call_recall", "call_match")
    assert recall.fails_below == pytest.approx(-0.093, abs=0.002)
    assert recall.pass_chance > 0.99
    few = forecast(load_policy("release"), {"toolcall": binary_design(60, 0.5, 0.5)})
    (open_gate,) = [gate for gate in few.gates if gate.metric == "refusals"]
    assert open_gate.pass_chance == 0, "60 requests cannot show that fewer than 1 % are refused"
