from __future__ import annotations

import pytest

from kvv.gate import forecast
from kvv.policy import Policy, load_policy
from kvv.stats import Design, binary_design, detectable

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
    assert len(found.gates) == 6
    assert found.pass_chance >= 0.9
    assert found.false_alarms < 0.5


def test_nightly_states_at_most_one_false_alarm_in_a_hundred_nights() -> None:
    designs = {**DESIGNS, "aime2025": Design(n=30, sigma2=0.0848, k_vendor=4, k_reference=4)}
    found = forecast(load_policy("nightly"), designs)
    assert 0 < found.false_alarms <= 1
    assert all(g.pass_chance > 0.99 for g in found.gates), "every stated loss can be seen at these sizes"


def test_a_run_too_small_to_see_the_stated_loss_cannot_pass() -> None:
    found = forecast(load_policy("nightly"), {"ocrbench": binary_design(60, 0.89, 0.7)})
    assert found.pass_chance == 0.0


def test_six_gates_at_eighty_percent_pass_an_identical_vendor_one_time_in_four() -> None:
    """statistics.md section 8."""
    design = binary_design(1000, 0.89, 0.7)
    margin = detectable(design.se)
    policy = Policy.model_validate({"name": "p", "benchmark": [{"suite": f"s{i}", "margin": margin} for i in range(6)]})
    found = forecast(policy, {f"s{i}": design for i in range(6)})
    assert found.pass_chance == pytest.approx(0.26, abs=0.003)
    assert found.gates[0].margin_needed == pytest.approx(margin)


def test_a_suite_that_is_not_planned_is_left_out() -> None:
    assert [g.suite for g in forecast(load_policy("release"), {"ocrbench": DESIGNS["ocrbench"], "other": DESIGNS["beam"]}).gates] == ["ocrbench"]
