"""Which suites can be looked at before their end, and after which cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvv.cases.suite import ReferenceRun
from kvv.core import Case
from kvv.execution.preparation import prepare
from kvv.planning.config import ConfigError, load_config
from kvv.planning.interim_plan import (
    begun,
    check_early_stop,
    obstacle,
    obstacles,
    plan_looks,
    read_interim_analyses,
    sentence,
    stopped_suites,
)
from kvv.planning.plan import PlannedSuite, only
from kvv.planning.run_plan import RunPlan
from kvv.profiles.policy import load_policy

RELEASE = load_policy("release")


@pytest.fixture(scope="module")
def job() -> RunPlan:
    return prepare(load_config({"suites": ["aime2025", "toolcall", "beam"]}, environ={}))


def item_of(job: RunPlan, suite: str, sizes: list[int] | None = None, samples: int = 1) -> PlannedSuite:
    """The suite with made-up cases: one block for each size, or 20 questions."""
    item = next(item for item in job.plan.suites if item.suite.id == suite)
    first = item.cases[0]
    plain = {key: value for key, value in first.inputs.items() if key not in ("block", "stratum")}
    if sizes is None:
        cases: list[Case] = [replace(first, id=f"{suite}/{n}", inputs=plain) for n in range(20)]
    else:
        cases = [
            replace(first, id=f"{suite}/{block}-{n}", inputs={**plain, "block": f"chat {block}"})
            for block, size in enumerate(sizes)
            for n in range(size)
        ]
    found = only(item, cases)
    return replace(found, samples=dict.fromkeys(found.samples, samples))


def referenced(item: PlannedSuite, share: float = 1.0) -> PlannedSuite:
    known = item.cases[: round(share * len(item.cases))]
    run = ReferenceRun(name="official", model="m", cases={case.id: [{"correct": 1.0}] for case in known})
    return replace(item, context=replace(item.context, references=(run,)))


def test_all_samples_of_a_problem_lie_before_the_same_look(job: RunPlan) -> None:
    plan = plan_looks(item_of(job, "aime2025", samples=32), 5, np.random.default_rng(1))
    assert plan.fractions == pytest.approx((0.2, 0.4, 0.6, 0.8, 1.0))
    assert [len(part) for part in plan.parts] == [4, 4, 4, 4, 4]
    assert [plan.covered(k) for k in range(1, 6)] == [128, 256, 384, 512, 640]
    order = list(plan.order(1))
    assert len(order) == 128
    assert {case.id for case in order} == {case.id for case in plan.parts[1]}
    assert [case.sample for case in order[:8]] == [0] * 4 + [1] * 4, (
        "a part that is cut short is a fair sample of itself"
    )


def test_looks_end_with_whole_conversations_at_unequal_shares(job: RunPlan) -> None:
    sizes = [20, 3, 20, 7, 20, 20, 10]
    plan = plan_looks(item_of(job, "beam", sizes), 5, np.random.default_rng(2))
    blocks = [{case.inputs["block"] for case in part} for part in plan.parts]
    assert all(not (a & b) for i, a in enumerate(blocks) for b in blocks[i + 1 :])
    assert plan.fractions[-1] == 1.0
    assert len(set(np.diff([0, *plan.fractions]).round(6))) > 1
    assert [plan.covered(k) / 100 for k in range(1, len(plan.parts) + 1)] == pytest.approx(plan.fractions)
    # the first conversations that make k fifths of the questions
    for k, share in enumerate(plan.fractions[:-1], start=1):
        assert share >= k / 5 - 1e-9


def test_few_units_make_few_looks_and_the_order_is_the_seeds(job: RunPlan) -> None:
    assert plan_looks(item_of(job, "beam", [5, 5]), 5, np.random.default_rng(0)).fractions == (0.5, 1.0)
    item = item_of(job, "aime2025")
    first, again, other = (plan_looks(item, 5, np.random.default_rng(seed)).parts for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(case.id for part in first for case in part) == sorted(case.id for case in item.cases)


def test_what_cannot_be_looked_at_says_why(job: RunPlan) -> None:
    aime = item_of(job, "aime2025")
    assert obstacle(referenced(aime), RELEASE) == ""
    assert "no per-case reference" in obstacle(replace(aime, context=replace(aime.context, references=())), RELEASE)
    assert obstacle(referenced(aime, 0.5), RELEASE) == "its reference knows 50 % of the cases, 90 % are needed"
    assert "one question or conversation" in obstacle(referenced(item_of(job, "beam", [20])), RELEASE)
    assert "tool calls are judged" in obstacle(referenced(item_of(job, "toolcall")), RELEASE)
    assert "names no margin" in obstacle(referenced(aime), load_policy("moonshot-stream"))


def test_the_option_says_what_it_will_do_and_is_refused_where_it_could_do_nothing(job: RunPlan) -> None:
    plan = replace(job.plan, suites=[referenced(item_of(job, "aime2025")), item_of(job, "toolcall")])
    assert sentence(plan, RELEASE).startswith(
        "early stop: aime2025 may end at one of 5 looks; in full: toolcall (tool calls"
    )
    assert obstacles(plan, RELEASE)["aime2025"] == ""

    def refused(plan: Any = plan, policy: Any = RELEASE, **flags: Any) -> str:
        config = load_config({"base_url": "http://127.0.0.1:9/v1", "model": "kimi-k3", **flags}, environ={})
        with pytest.raises(ConfigError) as error:
            check_early_stop(config, policy, plan)
        return str(error.value)

    assert "beside --shard" in refused(shard="1/2")
    assert "beside --reference-base-url" in refused(reference_base_url="http://127.0.0.1:8/v1")
    assert "plans no looks (looks = 5 in a policy file" in refused(policy=RELEASE.model_copy(update={"looks": 1}))
    nothing = replace(job.plan, suites=[item_of(job, "toolcall")])
    assert refused(plan=nothing).startswith(
        "--early-stop: no suite of this run can be looked at before its end (toolcall: tool calls"
    )
    with pytest.raises(ConfigError, match="needs --base-url"):
        check_early_stop(load_config({}, environ={}), RELEASE, plan)


def test_the_record_says_which_look_decides(job: RunPlan) -> None:
    plan = plan_looks(referenced(item_of(job, "aime2025")), 5, np.random.default_rng(1))
    record = begun([plan])
    look = read_interim_analyses({"looks": record})["aime2025"]
    assert (look.number, look.stopped, look.planned) == (5, False, 20)
    assert stopped_suites({"looks": record}) == frozenset()
    record["aime2025"]["stopped"] = 2
    look = read_interim_analyses({"looks": record})["aime2025"]
    assert (look.number, look.stopped, look.fractions) == (2, True, plan.fractions)
    assert stopped_suites({"looks": record}) == {"aime2025"}
    assert read_interim_analyses({}) == {}


@pytest.mark.parametrize("name", ["smoke", "nightly", "release", "kvv-parity"])
def test_the_shipped_policies_plan_five_looks(name: str) -> None:
    assert load_policy(name).looks == 5


def test_a_whole_run_without_reference_is_refused_before_anything_is_written(kvv_cli: Any, tmp_path: Path) -> None:
    said = kvv_cli("run", "aime2025", "--data", "aime2025=fixture", "--early-stop")
    assert (said.code, said.err.count("\n"), said.root.exists()) == (2, 1, False)
    assert "--early-stop: needs --base-url" in said.err


def test_a_contract_check_has_no_looks_and_is_not_refused_for_the_option() -> None:
    """It may stand in kvv.toml for all runs of a project."""
    config = load_config({"early_stop": True, "base_url": "http://127.0.0.1:9/v1", "model": "kimi-k3"}, environ={})
    assert prepare(config, contract_only=True).plan.suites
