"""Published means are a reference only for a run that asked as the published one did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvv.cases.suite import load_suite
from kvv.core import Case, Dataset
from kvv.execution.preparation import prepare
from kvv.planning.config import load_config
from kvv.planning.plan import PlannedSuite
from kvv.planning.published_means import differences, published_means, published_otherwise
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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"effort": "low"}, "effort low, not max"),
        ({"thinking": False, "temperature": 0.6}, "thinking off"),
        ({"temperature": 0.7}, "temperature 0.7, not 1.0"),
        ({"top_p": None}, "top_p None, not 0.95"),
        ({"max_tokens": 8_192}, "max_tokens 8192, not 16384"),
        ({"extra_body": {"seed": 1}}, "extra_body seed"),
    ],
)
def test_a_published_mean_decides_nothing_that_was_asked_otherwise_and_the_row_says_in_what(
    planned: PlannedSuite, changes: dict[str, Any], words: str
) -> None:
    item = asked(planned, **changes)
    assert published_means("kimi-k3", "kvv", [item]) == {}
    assert published_otherwise("kimi-k3", "kvv", [item]) == {
        "ocrbench": f"the published 0.89 was asked otherwise: {words}"
    }
    alike = asked(planned, extra_body={"provider": {"order": ["x"]}}, samples=3)
    assert published_otherwise("kimi-k3", "kvv", [alike]) == {}
    assert published_otherwise("kimi-k3", "", [item]) == {}, "nobody asked to be set beside the leaderboard"


@pytest.mark.parametrize(
    ("revision", "same"),
    [
        ("0" * 40 + "; questions as in the official file", True),
        ("as pinned", True),
        ("local sha256:0123; questions as in the official file", True),
        ("local sha256:0123; questions other than in the official file", False),
        ("local sha256:0123", False),
    ],
)
def test_a_published_mean_holds_for_data_that_are_the_public_ones(
    planned: PlannedSuite, revision: str, same: bool
) -> None:
    item = replace(planned, context=replace(planned.context, dataset=Dataset(rows=(), origin="", revision=revision)))
    assert ("ocrbench" in published_means("kimi-k3", "kvv", [item])) is same


def test_a_value_of_an_unnamed_judge_or_of_another_agent_is_another_value() -> None:
    data = {"revision": "x", "fixture": False}
    beam, swe = load_suite("beam"), load_suite("swebench")
    sampling = beam.kvv_sampling
    assert sampling is not None
    settings = {"effort": "max", "temperature": 1.0, "top_p": 0.95, "max_tokens": sampling.max_tokens}
    judged = {"judge": "j", "prompts": ("item", "order")}
    assert differences(beam, "kimi-k3", settings, data, **judged) == ["judge j, not named by the publisher"]
    (_, order) = differences(beam, "kimi-k3", settings, data, judge="j", prompts=("item",))
    assert order.startswith("the judge's prompt 'order' in kvv's words")
    assert differences(swe, "kimi-k3", {"effort": "max"}, data) == ["agent our own, not kimi-code"]
    assert differences(swe, "kimi-k3", {"effort": "max"}, data, agent="kimi-code 0.23") == []


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
