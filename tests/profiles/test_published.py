"""Published means are a reference only for a run that asked as the published one did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvv.core import Case, Dataset
from kvv.execution.preparation import prepare
from kvv.planning.config import load_config
from kvv.planning.plan import PlannedSuite
from kvv.planning.published_means import published_means
from kvv.profiles.published import load_published


@pytest.fixture
def planned() -> PlannedSuite:
    """OCRBench as KVV asks it, over as many questions as the public set has."""
    job = prepare(load_config({"suites": ["ocrbench"], "preset": "kvv"}, environ={}))
    (item,) = job.plan.suites
    cases: list[Case] = [replace(item.cases[0], id=f"ocrbench/{n}") for n in range(1_000)]
    return replace(
        item, cases=cases, context=replace(item.context, dataset=Dataset(rows=(), origin="hub", revision="x"))
    )


def asked(item: PlannedSuite, **changes: Any) -> PlannedSuite:
    return replace(item, context=replace(item.context, settings=replace(item.context.settings, **changes)))


def test_moonshots_own_figures_ship_for_k3() -> None:
    found = load_published("kimi-k3")
    assert found is not None
    assert {mean.suite: (mean.value, mean.n) for mean in found.mean} == {
        "ocrbench": (0.89, 1_000),
        "mmmu_pro": (0.82, 1_730),
        "beam": (0.31, 700),
    }
    assert load_published("openai") is None


def test_a_run_like_the_published_one_has_its_mean_as_reference(planned: PlannedSuite) -> None:
    found = published_means("kimi-k3", "kvv", [planned])["ocrbench"]
    assert (found.value, found.n, found.kind) == (0.89, 1_000, "published-mean")


def test_a_run_that_asked_otherwise_has_none(planned: PlannedSuite) -> None:
    fixture = replace(
        planned, context=replace(planned.context, dataset=Dataset(rows=(), origin="", revision="", fixture=True))
    )
    for profile, preset, item in (
        ("kimi-k3", "", planned),
        ("openai", "kvv", planned),
        ("kimi-k3", "kvv", replace(planned, cases=planned.cases[:500])),
        ("kimi-k3", "kvv", asked(planned, variant="other")),
        ("kimi-k3", "kvv", fixture),
    ):
        assert published_means(profile, preset, [item]) == {}
