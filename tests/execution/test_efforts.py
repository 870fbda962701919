"""`kvv run --effort low,high`: a run each, and a row each with what the effort brings and costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvv.analysis.efforts import traffic_means
from kvv.execution.answer_key import answer_entries, keyed_suites
from kvv.mockserver import MockConfig, MockServer
from kvv.storage.run_folder import runs_under
from kvv.storage.store import Store
from kvv.storage.store.rows import SampleTraffic

AIME = ("run", "aime2025", "--data", "aime2025=fixture", "--samples", "2", "--model", "kimi-k3", "--case", "aime2025/*")


def test_every_effort_gets_a_row_with_score_tokens_cost_time_and_cuts(kvv_cli: Any) -> None:
    with MockServer(MockConfig(answers=answer_entries(keyed_suites({})), accuracy=0.7, seed=3)) as server:
        prices = ("--price-in", "1", "--price-out", "2", "--max-cost", "5")
        ran = kvv_cli(*AIME, "--base-url", server.base_url, "--effort", "low,high", "--concurrency", "4", *prices)
    (folder,) = ran.root.glob("*-efforts-*")
    data = json.loads((folder / "comparison.json").read_text("utf-8"))
    assert [(row["effort"], row["suite"]) for row in data["efforts"]] == [("low", "aime2025"), ("high", "aime2025")]
    runs = {run.name.rpartition("-kimi-k3")[0].rpartition("-")[2]: run for run in runs_under(ran.root)}
    assert set(runs) == {"low", "high"}
    for row in data["efforts"]:
        report = json.loads((runs[row["effort"]] / "report.json").read_text("utf-8"))
        stat = next(stat for stat in report["suites"] if stat["primary"])
        assert (row["score"], row["n"], row["truncated"]) == (stat["value"], stat["n_concluded"], stat["n_truncated"])
        with Store.open(runs[row["effort"]] / "store.sqlite", read_only=True) as store:
            cases = {case.id for case, _ in store.cases("aime2025")}
            sent = [found for (case, _), found in store.sample_traffic().items() if case in cases]
            efforts = {
                json.loads(stored.body).get("reasoning_effort") or json.loads(stored.body)["thinking"]["effort"]
                for stored in store.exchanges(min(cases), 0)
            }
        assert efforts == {row["effort"]}
        assert row["completion_tokens"] == pytest.approx(sum(one.completion_tokens for one in sent) / len(sent))
        assert row["cost_usd"] > 0
        assert row["seconds"] > 0
    assert "cut at the limit" in ran.out


def test_a_mean_of_costs_of_which_one_is_unknown_is_unknown() -> None:
    def sample(cost: float | None) -> SampleTraffic:
        return SampleTraffic(total_ms=500, first_token_ms=None, prompt_tokens=1, completion_tokens=4, cost=cost)

    assert traffic_means([sample(1.0), sample(3.0)]) == {"completion_tokens": 4, "cost_usd": 2.0, "seconds": 0.5}
    assert traffic_means([sample(1.0), sample(None)])["cost_usd"] is None
    assert set(traffic_means([]).values()) == {None}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "--effort: several want an endpoint"),
        (("--base-url", "http://127.0.0.1:9/v1", "--early-stop"), "--early-stop: not with several efforts"),
        (("--base-url", "http://127.0.0.1:9/v1", "--concurrency", "1"), "--concurrency: 2 efforts"),
    ],
)
def test_what_several_efforts_cannot_be_is_a_usage_error(kvv_cli: Any, more: tuple[str, ...], message: str) -> None:
    ran = kvv_cli(*AIME, "--effort", "low,high", *more)
    assert (ran.code, message in ran.said) == (2, True), ran.said
    assert not list(Path(ran.root).glob("*"))


def test_the_plan_of_several_efforts_sums_them(kvv_cli: Any) -> None:
    asked = (*AIME[1:], "--base-url", "http://127.0.0.1:9/v1", "--json")
    both = json.loads(kvv_cli("plan", *asked, "--effort", "low,high").out)
    one = json.loads(kvv_cli("plan", *asked, "--effort", "low").out)
    assert list(both["efforts"]) == ["low", "high"]
    assert both["efforts"]["low"] == one
    assert both["total"]["requests"] == 2 * one["requests"]


def test_check_takes_one_effort(kvv_cli: Any) -> None:
    ran = kvv_cli("check", "--base-url", "http://127.0.0.1:9/v1", "--model", "kimi-k3", "--effort", "low,high")
    assert (ran.code, "several are for `kvv run`" in ran.said) == (2, True)
