"""A small seeded part of bench/verdicts.py: the table's promises, in seconds instead of minutes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kvv.core import Outcome
from kvv.profiles.policy import load_policy

BENCH = Path(__file__).parents[2] / "bench" / "verdicts.py"


@pytest.fixture(scope="module")
def verdicts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_verdicts", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_verdicts"] = module
    spec.loader.exec_module(module)
    return module


def test_questions_are_calibrated_to_twenty_recorded_passes(verdicts: ModuleType) -> None:
    """lightseekorg/tokenspeed PR 299: mean .9076, sd .0027 over 20 passes of OCRBench."""
    rng = np.random.default_rng(1)
    p = verdicts.ocr_questions(rng)
    passes = [(rng.random(1000) < p).mean() for _ in range(400)]
    assert np.mean(passes) == pytest.approx(0.9076, abs=0.0015)
    assert np.std(passes) == pytest.approx(0.0027, abs=0.0003)
    assert ((p < 0.02) | (p > 0.98)).mean() > 0.8, "bimodal"


@pytest.mark.parametrize("lose", ["spread", "concentrated"])
def test_a_simulated_loss_is_as_large_as_it_says(verdicts: ModuleType, lose: str) -> None:
    rng = np.random.default_rng(2)
    p = verdicts.ocr_questions(rng)
    worse = getattr(verdicts, lose)(p, 0.04, rng)
    assert p.mean() - worse.mean() == pytest.approx(0.04, abs=1e-6)
    assert worse.min() >= 0


def test_one_sample_a_side_keeps_its_promises(verdicts: ModuleType) -> None:
    rows = verdicts.single(np.random.default_rng(3), 250)
    assert [row for row in rows if not row.ok] == []


def test_early_stopping_keeps_its_promises(verdicts: ModuleType) -> None:
    rows = verdicts.early(np.random.default_rng(4), 10)
    assert [row for row in rows if not row.ok] == []


def test_the_gate_itself_passes_an_identical_vendor_and_fails_a_worse_one(verdicts: ModuleType) -> None:
    rng = np.random.default_rng(5)
    release = load_policy("release")
    policy = release.model_copy(update={"required": type(release.required)()})
    (suite,) = [s for s in verdicts.release_suites(rng) if s.id == "ocrbench"]
    same = [verdicts.judge(policy, [suite], {}, rng).outcome for _ in range(12)]
    worse = {"ocrbench": verdicts.spread(suite.p, 0.05, rng)}
    bad = [verdicts.judge(policy, [suite], worse, rng).outcome for _ in range(12)]
    assert same.count(Outcome.PASS) >= 11
    assert bad.count(Outcome.FAIL) >= 11


def test_regression_gates_keep_their_promises(verdicts: ModuleType) -> None:
    rows = verdicts.regression(np.random.default_rng(6), 8)
    assert len(rows) == 5 * 5
    assert [row for row in rows if not row.ok] == []
