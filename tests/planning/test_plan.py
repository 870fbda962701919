"""What a run asks, in which order, with what sampling, and when it wants the user's word first."""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvv.cases.suite import load_suite
from kvv.core import Area, Case, Level, Outcome, Verdict
from kvv.data import load
from kvv.execution.preparation import _reference_files, control_request, guard, prepare, prepare_suite
from kvv.planning.config import ConfigError, load_config
from kvv.planning.plan import in_order, interleaved, permute, settings_for
from kvv.profiles.policy import Required, load_policy
from kvv.profiles.profile import load_profile
from kvv.storage.references import Header, write_reference


def a_case(number: int, stratum: str) -> Case:
    return Case(
        id=f"s/{number}",
        suite="s",
        area=Area.ACCURACY,
        level=Level.MUST,
        requirement="",
        source="",
        since="",
        inputs={"stratum": stratum, "body": {}},
    )


def configured(**flags: Any) -> Any:
    return load_config({"base_url": "https://api.example.com/v1", "model": "kimi-k3", **flags}, environ={})


def test_every_prefix_of_the_order_holds_each_stratum_in_proportion() -> None:
    cases = [a_case(n, "common" if n % 10 else "rare") for n in range(200)]
    order = permute(cases, np.random.default_rng(1))
    assert sorted(case.id for case in order) == sorted(case.id for case in cases)
    for size in (20, 50, 100, 150):
        rare = sum(case.inputs["stratum"] == "rare" for case in order[:size])
        assert abs(rare - size / 10) <= 1


def test_the_order_is_seeded_and_not_the_files() -> None:
    cases = [a_case(n, "") for n in range(50)]
    first, again, other = (permute(cases, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert [case.id for case in first] == [case.id for case in again] != [case.id for case in other]
    assert [case.id for case in first] != [case.id for case in cases]


def test_samples_go_round_by_round_so_that_a_cut_run_is_a_fair_sample() -> None:
    job = prepare(load_config({"suites": ["aime2025"]}, environ={}))
    order = [case for _, case in in_order(job.plan.suites, lambda _: np.random.default_rng(0))]
    n = len(job.plan.suites[0].cases)
    assert Counter(case.sample for case in islice(order, n)) == {0: n}
    assert len(order) == 32 * n
    assert len({case.key for case in order}) == 32 * n


def test_a_discreet_order_mixes_suites_and_keeps_what_their_own_order_promises() -> None:
    def generator_for(_: str) -> np.random.Generator:
        return np.random.default_rng(0)

    job = prepare(load_config({"suites": ["aime2025", "ocrbench", "degradation", "beam"]}, environ={}))
    mixed = [case for _, case in interleaved(job.plan.suites, generator_for)]
    usual = [case for _, case in in_order(job.plan.suites, generator_for)]
    risky = sum(case.risk for case in usual)
    assert risky
    assert [case.risk for case in mixed] == [False] * (len(mixed) - risky) + [True] * risky
    for suite in ("aime2025", "ocrbench", "degradation", "beam"):
        own = [case.key for case in usual if case.suite == suite and not case.risk]
        assert [case.key for case in mixed if case.suite == suite and not case.risk] == own
    changes = sum(one.suite != other.suite for one, other in pairwise(mixed))
    assert changes > 20
    blocks = [block for block, _ in groupby(case.inputs.get("block") for case in mixed) if block is not None]
    assert len(blocks) == len(set(blocks)) > 0


def test_a_discreet_run_asks_its_control_in_words_of_its_own() -> None:
    def asked(**options: Any) -> str:
        job = prepare(load_config({"suites": ["params"], **options}, environ={}))
        return str(control_request(job).body["messages"][0]["content"])  # type: ignore[index]

    assert asked() == "Reply with exactly: ready"
    told = {asked(discreet=True, seed=seed) for seed in range(12)}
    assert len(told) > 2
    assert "Reply with exactly: ready" not in told
    assert asked(discreet=True, seed=3) == asked(discreet=True, seed=3)


def test_the_profile_says_what_is_sent_and_flags_go_over_it() -> None:
    profile, suite = load_profile("kimi-k3"), load_suite("aime2025")
    plain = settings_for(configured(), profile, suite)
    assert (plain.temperature, plain.top_p, plain.max_tokens, plain.samples, plain.effort) == (
        1.0,
        0.95,
        98_304,
        1,
        "max",
    )
    assert settings_for(configured(tier="full"), profile, suite).samples == 32
    assert settings_for(configured(thinking="off"), profile, suite).temperature == 0.6
    given = settings_for(configured(temperature=0.3, max_tokens=["aime2025=7"], samples=5), profile, suite)
    assert (given.temperature, given.max_tokens, given.samples) == (0.3, 7, 5)
    assert settings_for(configured(max_tokens=["toolcall=7"]), profile, suite).max_tokens == 98_304


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"effort": ["extreme"]}, "--effort: the profile kimi-k3 does not list 'extreme'; it lists: low, high, max"),
        (
            {"think_mode": "sideways"},
            "--think-mode: the profile kimi-k3 does not list 'sideways'; it lists: none, kimi",
        ),
    ],
)
def test_an_effort_or_a_mode_that_the_profile_does_not_list_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        prepare(configured(suites=["params"], model="kimi-k3", **asked))
    assert str(error.value).startswith(words)
    prepare(configured(suites=["params"], model="kimi-k3", effort=["low"], think_mode="opensource"))


def test_the_preset_reproduces_kvvs_sampling_whatever_the_profile_says() -> None:
    found = settings_for(configured(preset="kvv", model="gpt-x"), load_profile("openai"), load_suite("aime2025"))
    assert (found.temperature, found.top_p, found.max_tokens, found.samples) == (1.0, 0.95, 98_304, 32)


def test_an_expensive_run_wants_the_users_word() -> None:
    asked = {"suites": ["aime2025"], "data": ["aime2025=fixture"], "tier": "full"}
    job = prepare(configured(**asked))
    assert job.plan.cost is not None
    assert job.plan.cost > 20
    with pytest.raises(ConfigError, match="--max-cost"):
        guard(job)
    guard(prepare(configured(**asked, yes=True)))
    guard(prepare(configured(**asked, max_cost=5.0)))
    guard(prepare(configured(**asked, limit=1, samples=1)))


def test_a_run_of_fifty_million_tokens_wants_it_too_even_unpaid() -> None:
    job = prepare(
        configured(
            suites=["aime2025"], data=["aime2025=fixture"], tier="full", samples=2_000, base_url="http://127.0.0.1:1/v1"
        )
    )
    assert job.plan.cost is None
    with pytest.raises(ConfigError, match="M tokens"):
        guard(job)


def test_prices_come_from_the_profile_for_a_paid_endpoint_and_from_flags_over_it() -> None:
    assert prepare(configured(suites=["params"])).prices == load_profile("kimi-k3").prices
    assert prepare(configured(suites=["params"], base_url="http://127.0.0.1:1/v1")).prices is None
    given = prepare(configured(suites=["params"], base_url="http://127.0.0.1:1/v1", price_out=7.0)).prices
    assert given is not None
    assert (given.input, given.output) == (3.0, 7.0)


def test_a_named_endpoint_is_asked_the_profiles_default_suites_and_says_what_it_skips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # no copy in the cache and no hub: what needs data is skipped
    for name, value in (("KVV_CACHE", str(tmp_path)), ("HF_HOME", str(tmp_path)), ("HF_HUB_OFFLINE", "1")):
        monkeypatch.setenv(name, value)
    job = prepare(configured())
    assert "aime2025" not in [item.suite.id for item in job.plan.suites]
    assert {item.suite for item in job.plan.skipped} >= {"ocrbench", "mmmu_pro", "toolcall"}
    with pytest.raises(ConfigError, match="--data toolcall"):
        prepare(configured(suites=["toolcall"]))


def test_a_limit_draws_questions_and_data_of_the_users_own_is_asked_whole() -> None:
    few = prepare(configured(suites=["toolcall"], data=["toolcall=fixture"], limit=5)).plan.suites[0]
    whole = prepare(configured(suites=["toolcall"], data=["toolcall=fixture"])).plan.suites[0]
    assert (len(few.cases), len(whole.cases)) == (5, 36)
    assert [case.id for case in few.cases] != [case.id for case in whole.cases][:5]


def test_the_plan_is_one_line_a_suite_and_then_what_the_policy_could_decide(kvv_cli: Any) -> None:
    ran = kvv_cli(
        "plan",
        "params",
        "aime2025",
        "--data",
        "aime2025=fixture",
        "--base-url",
        "https://api.example.com/v1",
        "--model",
        "kimi-k3",
    )
    assert [line.strip().split(":")[0] for line in ran.out.splitlines()] == [
        "plan",
        "params",
        "aime2025",
        "policy smoke",
        "aime2025",
    ]
    assert "about $" in ran.out
    assert "as asked, quality is not decided (aime2025: no --reference FILE)\n" in ran.out
    assert "aime2025: reported, not gated: 12 questions cannot decide quality, 19 would do" in ran.out
    assert (
        "policy" not in kvv_cli("plan", "params", "--base-url", "https://api.example.com/v1", "--model", "kimi-k3").out
    )


def official_runs(n: int, differ: int) -> list[str]:
    """Files of ``n`` official runs over 100 problems, and the data; every second run is wrong on ``differ`` of them."""
    rows = [{"id": f"p{i}", "problem": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(100)]
    Path("p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    for run in range(n):
        scores = [float(run % 2 == 0 or i >= differ) for i in range(100)]
        lines = [
            {"suite": "aime2025", "case": f"aime2025/p{i}", "samples": [{"correct": x}]} for i, x in enumerate(scores)
        ]
        head = {"kvv_reference": 1, "model": "kimi-k3", "run_id": f"official {run}"}
        Path(f"r{run}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [head, *lines]), "utf-8")
    return [word for run in range(n) for word in ("--reference", f"r{run}.jsonl")]


ASK = (
    "plan",
    "aime2025",
    "--data",
    "aime2025=p.jsonl",
    "--base-url",
    "https://api.example.com/v1",
    "--model",
    "kimi-k3",
    "--json",
)


def test_the_plans_chance_is_that_of_the_official_runs_own_scatter(kvv_cli: Any) -> None:
    """Two runs that differ on 10 of 100: variance .05 a sample, SE 2.74 points against two official samples. The margin
    of 5.5 lies 2.01 of them away, 1.64 are needed by the normal distribution (64 of 100), more by the exact sum. No
    difference at all is nearly certain, but for what 100 questions leave open."""
    quiet = json.loads(kvv_cli(*ASK, *official_runs(2, 0), "--tier", "full", "--samples", "1").out)["outlook"]
    loud = json.loads(kvv_cli(*ASK, *official_runs(2, 10), "--tier", "full", "--samples", "1").out)["outlook"]
    assert (loud["policy"], loud["undecided"], loud["questions_saved"]) == ("release-in-part", {}, None)
    assert (loud["gates"][0]["scatter"], loud["gates"][0]["scatter_ratio"]) == (
        "observed",
        pytest.approx(0.768, abs=0.001),
    )
    assert loud["pass_chance"] == pytest.approx(0.553, abs=0.01)
    assert quiet["pass_chance"] > 0.97


def test_the_plan_says_what_early_stopping_would_spare(kvv_cli: Any) -> None:
    runs = official_runs(2, 2)
    found = json.loads(kvv_cli(*ASK, *runs, "--tier", "full", "--samples", "1", "--early-stop").out)["outlook"]
    assert 0.1 < found["questions_saved"] < 0.9
    said = kvv_cli(*ASK[:-1], *runs, "--tier", "full", "--samples", "1", "--early-stop").out
    assert (
        f"an identical vendor is spared about {100 * found['questions_saved']:.0f} % of the benchmarks' questions"
        in said
    )
    refused = kvv_cli(*ASK, "--early-stop")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert (
        "--early-stop: no suite of this run can be looked at before its end (aime2025: no per-case reference"
        " (--reference FILE))" in refused.err
    )


@pytest.mark.parametrize(
    ("tier", "policy"), [(None, "smoke"), ("smoke", "smoke"), ("nightly", "nightly"), ("full", "release")]
)
def test_each_tier_is_judged_by_its_own_policy(
    tier: str | None, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("KVV_CACHE", str(tmp_path)), ("HF_HOME", str(tmp_path)), ("HF_HUB_OFFLINE", "1")):
        monkeypatch.setenv(name, value)
    job = prepare(configured(tier=tier))
    assert job.policy.name == policy
    assert job.policy.required.quality == (policy != "smoke")


def test_named_suites_are_judged_by_the_tiers_margins_and_nothing_else_is_required() -> None:
    asked: dict[str, Any] = {"tier": "full", "suites": ["params"]}
    part = prepare(configured(**asked)).policy
    assert (part.name, part.required, part.benchmark) == (
        "release-in-part",
        Required(),
        load_policy("release").benchmark,
    )
    assert prepare(configured(**asked, policy="release")).policy == load_policy("release")
    assert prepare(configured(tier="full"), contract_only=True).policy.name == "release-in-part"


def test_a_bound_on_money_without_a_price_is_refused() -> None:
    asked: dict[str, Any] = {"model": "a-model-without-price", "profile": "openai", "suites": ["params"]}
    with pytest.raises(ConfigError, match="--max-cost: no price"):
        guard(prepare(configured(**asked, max_cost=5.0)))
    guard(prepare(configured(**asked, max_cost=5.0, price_in=1.0, price_out=2.0)))
    guard(prepare(load_config({"max_cost": 5.0, "suites": ["params"]}, environ={})))


def test_a_bound_on_money_holds_for_an_endpoint_on_this_machine_too() -> None:
    here: dict[str, Any] = {"suites": ["params"], "base_url": "http://127.0.0.1:1/v1", "max_cost": 5.0}
    job = prepare(configured(**here))
    assert job.prices == load_profile("kimi-k3").prices
    guard(job)
    unknown = {**here, "model": "a-model-without-price", "profile": "openai"}
    with pytest.raises(ConfigError, match="--max-cost: no price of a-model-without-price"):
        guard(prepare(configured(**unknown)))
    guard(prepare(configured(**unknown, price_in=0.0, price_out=0.0)))
    guard(prepare(configured(**{**unknown, "max_cost": None})))


def test_prices_that_are_named_are_those_by_which_an_agent_keeps_its_own_limit() -> None:
    asked: dict[str, Any] = {"suites": ["swebench"], "data": ["swebench=fixture"]}

    def prices(**named: float) -> dict[str, float]:
        (planned,) = prepare(configured(**asked, **named)).plan.suites
        found: dict[str, float] = planned.cases[0].inputs["prices"]
        return found

    published = load_profile("kimi-k3").prices
    assert published is not None
    assert prices() == {"input": published.input, "cached": published.cached, "output": published.output}
    assert prices(price_in=7.0, price_out=9.0) == {"input": 7.0, "cached": published.cached, "output": 9.0}


def test_suites_without_a_chosen_case_are_not_part_of_the_run() -> None:
    job = prepare(configured(case=["params/rejected/*"]))
    assert [item.suite.id for item in job.plan.suites] == ["params"]


def reference_file(folder: Path, name: str, **header: str) -> str:
    path = folder / name
    verdict = Verdict(case="toolcall/a", sample=0, outcome=Outcome.PASS, values={"triggered": 1.0})
    case = Case(
        id="toolcall/a",
        suite="toolcall",
        area=Area.ACCURACY,
        level=Level.SHOULD,
        requirement="",
        source="",
        since="",
        inputs={},
    )
    write_reference(
        path, Header(model="m", created="2026-01-01T00:00:00Z", **{"run_id": "", **header}), [(case, verdict)]
    )
    return str(path)


@pytest.mark.parametrize(
    "header", [{"run_id": "20260101-x"}, {"source_sha256": "ab" * 32}, {"results_sha256": "ef" * 32}, {}]
)
def test_one_official_run_given_twice_is_counted_once(tmp_path: Path, header: dict[str, str]) -> None:
    first, copy = reference_file(tmp_path, "a.jsonl", **header), reference_file(tmp_path, "b.jsonl", **header)
    for pair in ((first, first), (first, copy)):
        read, said = _reference_files(configured(reference=pair))
        assert (list(read), said) == (
            [first],
            (f"--reference: {first} and {pair[1]} hold the same run; it is counted once",),
        )
    # the same scores, and each mark of another run: two official runs may both be right throughout
    other = reference_file(tmp_path, "c.jsonl", run_id="20260102-y", source_sha256="cd" * 32, results_sha256="12" * 32)
    read, said = _reference_files(configured(reference=(first, other, copy)))
    assert (list(read), len(said)) == ([first, other], 1)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"model": "glm-4.6"}, "is of the model 'glm-4.6'"),
        ({"asked": {"toolcall": {"thinking": False}}}, "in another way: thinking False there and True here"),
        ({"asked": {"toolcall": {"effort": "low"}}}, "in another way: effort low there"),
        ({"asked": {"toolcall": {}}, "data_sha256": {"toolcall": "0" * 64}}, "was asked other data of toolcall"),
        ({}, ""),
        ({"data_sha256": {"toolcall": "0" * 64}}, ""),
    ],
)
def test_a_reference_that_was_asked_otherwise_is_refused(header: dict[str, Any], words: str, tmp_path: Path) -> None:
    data = prepare(configured(suites=["toolcall"], data=["toolcall=fixture"]))
    path = tmp_path / "reference.jsonl"
    values = [
        (case, Verdict(case=case.id, sample=0, outcome=Outcome.PASS, values={"triggered": 1.0}))
        for case in data.plan.suites[0].cases
    ]
    write_reference(path, Header(**{"model": "kimi-k3", "run_id": "r", "created": "", **header}), values)
    asked: dict[str, Any] = {"suites": ["toolcall"], "data": ["toolcall=fixture"], "reference": [str(path)]}
    if not words:
        prepare(configured(**asked))
        return
    with pytest.raises(ConfigError, match=f"--reference: .*{words}"):
        prepare(configured(**asked))


def test_official_runs_of_different_models_are_no_two_runs_of_one(tmp_path: Path) -> None:
    first, other = reference_file(tmp_path, "a.jsonl", run_id="1"), tmp_path / "b.jsonl"
    other.write_text(
        Path(first)
        .read_text("utf-8")
        .replace('"model": "m"', '"model": "n"')
        .replace('"run_id": "1"', '"run_id": "2"'),
        "utf-8",
    )
    with pytest.raises(ConfigError, match="of different models"):
        prepare(configured(suites=["params"], reference=[first, str(other)]))


def test_an_imported_recording_is_not_held_to_settings_that_nobody_sent(tmp_path: Path) -> None:
    data = load("toolcall", fixture=True)
    cases = prepare(configured(suites=["toolcall"], data=["toolcall=fixture"])).plan.suites[0].cases
    path = tmp_path / "reference.jsonl"
    values = [
        (case, Verdict(case=case.id, sample=0, outcome=Outcome.PASS, values={"triggered": 1.0})) for case in cases
    ]
    write_reference(
        path, Header(model="kimi-k3", run_id="r", created="", asked={"toolcall": {"thinking": False}}), values
    )
    job = prepare_suite(configured(reference=[str(path)]), "toolcall", model="kimi-k3", dataset=data)
    assert [run.model for run in job.plan.suites[0].context.references] == ["kimi-k3"]
