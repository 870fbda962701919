"""The suite through the engine: known accuracy, a judge that fails, resuming without asking the model again, order and
plan.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvv.cases.suite import Context, Judge, Settings, load_suite
from kvv.core import Case, Fragment, Outcome, Role, Verdict
from kvv.data import load
from kvv.execution.answer_key import answer_entries
from kvv.execution.preparation import prepare
from kvv.mockserver import MockConfig, MockServer
from kvv.planning.config import load_config
from kvv.planning.plan import cost_of, in_order
from kvv.profiles.profile import Prices, load_profile
from kvv.protocol.encode import encode
from kvv.storage.store import Store
from kvv.suites.beam.suite import BeamSuite

KEY = answer_entries(BeamSuite().answer_key(load("beam", fixture=True)))


@pytest.fixture
def target() -> Iterator[MockServer]:
    with MockServer(MockConfig(answers=KEY, accuracy=0.6, seed=5)) as server:
        yield server


def asked(url: str, judge: str, *more: str) -> list[str]:
    endpoints = ["--base-url", url, "--model", "kimi-k3", "--judge-base-url", judge, "--judge-model", "kimi-k3"]
    return ["run", "beam", "--data", "beam=fixture", *endpoints, *more]


def the_cases(**settings: Any) -> list[Case]:
    context = Context(
        model="kimi-k3",
        profile=load_profile("kimi-k3"),
        settings=Settings(max_tokens=32_768, **settings),
        dataset=load("beam", fixture=True),
        judge=Judge(model="j", temperature=0.3, max_tokens=16_384),
    )
    return list(BeamSuite().cases(context))


# --- requests ----------------------------------------------------------------------------------------


def test_a_conversations_questions_share_one_object_and_only_the_question_differs() -> None:
    cases = the_cases()
    assert len({case.id for case in cases}) == 20
    first, second = cases[0].inputs["body"], cases[1].inputs["body"]
    assert isinstance(first["messages"][0], Fragment)
    assert first["messages"][0] is second["messages"][0]
    assert len({id(case.inputs["body"]["messages"][0]) for case in cases}) == 2
    row = load("beam", fixture=True).rows[0]
    body = json.loads(b"".join(encode(first).parts))
    assert body["messages"] == [*row["messages"], {"role": "user", "content": row["questions"][0]["question"]}]
    assert "->->" in body["messages"][0]["content"]  # the markers are a part of the task


def test_the_judge_gets_its_own_role_and_parameters_and_one_call_an_item(target: MockServer, kvv_cli: Any) -> None:
    ran = kvv_cli(*asked(target.base_url, target.base_url))
    with Store.open(ran.folder / "store.sqlite", read_only=True) as store:
        judged = [
            stored
            for stored in store.exchanges()
            if stored.exchange.role is Role.JUDGE and stored.exchange.identity.purpose == "judge"
        ]
        bodies = [json.loads(stored.body) for stored in judged]
    assert {(body["model"], body["temperature"], body["max_tokens"], len(body["messages"])) for body in bodies} == {
        ("kimi-k3", 1.0, 16_384, 1)
    }
    items = sum(
        len(q["rubric"])
        for row in load("beam", fixture=True).rows
        for q in row["questions"]
        if q["question_type"] != "event_ordering"
    )
    lines = 2 * 4  # both orderings have four lines, right or wrong
    assert len(judged) == items + 2 + lines


def test_the_score_equals_what_the_endpoint_counted_itself(target: MockServer, kvv_cli: Any) -> None:
    ran = kvv_cli(*asked(target.base_url, target.base_url))
    counts: Any = target.stats()
    row = ran.row("beam")
    assert row["metric"] == "kvv_score"
    assert counts["answers"]["beam"]["asked"] == 20
    assert row["value"] * 20 == pytest.approx(counts["answers"]["beam"]["right"])
    assert 0 < row["value"] < 1
    assert row["kvv_value"] == row["value"]
    assert row["comparability"]["judge"] == [{"model": "kimi-k3", "temperature": 1.0, "max_tokens": 16_384}]
    assert re.fullmatch("[0-9a-f]{64}", row["comparability"]["judge_prompt_sha256"])
    assert set(row["breakdown"]["abilities"]) == {
        q["question_type"] for q in load("beam", fixture=True).rows[0]["questions"]
    }
    for metric in ("official_score", "half_credit"):
        assert ran.row("beam", metric)["kvv_value"] is None
        assert ran.row("beam", metric)["value"] >= row["value"] - 1e-9


def test_without_a_judge_the_suite_is_skipped_and_says_so(target: MockServer, kvv_cli: Any) -> None:
    ran = kvv_cli("run", "beam", "--data", "beam=fixture", "--base-url", target.base_url, "--model", "kimi-k3")
    assert "beam (no judge)" in ran.said or "no judge" in ran.said
    assert "answers" not in target.stats() or "beam" not in target.stats()["answers"]  # type: ignore[operator]


def test_a_judge_without_a_model_is_a_usage_error(target: MockServer, kvv_cli: Any) -> None:
    ran = kvv_cli(
        "run",
        "beam",
        "--data",
        "beam=fixture",
        "--base-url",
        target.base_url,
        "--model",
        "kimi-k3",
        "--judge-base-url",
        target.base_url,
    )
    assert ran.code == 2
    assert "--judge-model" in ran.said


# --- a judge that fails ------------------------------------------------------------------------------


def completion(text: str, finish: str = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return json.dumps({"id": "x", "object": "chat.completion", "model": "j", "choices": [choice]}).encode()


@pytest.mark.parametrize(
    ("status", "reply", "reason"),
    [
        (401, b'{"error": {"message": "no", "type": "auth"}}', "judge-failed"),
        (200, completion('{"score": 1, "events": []}', "length"), "judge-unparsable"),
        (200, completion(f'{{"score": {"9" * 400}, "events": []}}'), "judge-off-scale"),
    ],
)
def test_a_judge_that_fails_leaves_inconclusive_samples_and_resume_asks_only_the_judge(
    status: int, reply: bytes, reason: str, target: MockServer, kvv_cli: Any, serve: Callable[..., Any]
) -> None:
    with serve(status, reply, first=completion("ready")) as judge:
        ran = kvv_cli(*asked(target.base_url, judge.url))
    row = ran.row("beam")
    assert ran.code == 3
    assert (row["value"], row["n_inconclusive"], row["kvv_value"]) == (None, 20, 0.0)  # KVV writes zeros
    assert row["breakdown"]["reasons"] == {reason: 20}
    before: Any = target.stats()
    assert before["answers"]["beam"]["asked"] == 20  # the end wave asked the judge again, not the model
    folder = ran.folder
    again = kvv_cli("resume", folder.name, "--judge-base-url", target.base_url)
    after: Any = target.stats()
    assert again.row("beam")["n_inconclusive"] == 0
    assert again.row("beam")["value"] * 20 == pytest.approx(after["answers"]["beam"]["right"])
    assert after["answers"]["beam"]["asked"] == 20


@pytest.mark.parametrize(
    ("status", "reply", "code"),
    [(401, b'{"error": {"message": "no", "type": "auth"}}', 2), (500, b"{}", 3), (200, b"<html>", 3)],
)
def test_a_judge_that_does_not_answer_ends_the_run_before_a_question_is_paid_for(
    status: int, reply: bytes, code: int, target: MockServer, kvv_cli: Any, serve: Callable[..., Any]
) -> None:
    with serve(status, reply) as judge:
        ran = kvv_cli(*asked(target.base_url, judge.url))
    assert ran.code == code
    assert "the judge" in ran.said
    assert ran.row("beam")["n_inconclusive"] == 20
    assert "beam" not in dict(target.stats().get("answers", {}))  # type: ignore[call-overload]


def test_a_second_judge_that_fails_leaves_the_firsts_verdicts_as_they_are(target: MockServer, kvv_cli: Any) -> None:
    # our endpoint knows no model of that name
    ran = kvv_cli(*asked(target.base_url, target.base_url, "--second-judge-model", "second"))
    agreement = ran.row("beam")["breakdown"]["judge_agreement"]
    assert (agreement["n"], agreement["failed"], agreement["same_score"]) == (0, 20, None)
    assert ran.row("beam")["n_concluded"] == 20


def test_a_second_judge_is_asked_the_same_and_their_agreement_is_reported(
    target: MockServer, kvv_cli: Any, serve: Callable[..., Any]
) -> None:
    with serve(200, completion('{"score": 1, "events": []}')) as judge:
        ran = kvv_cli(*asked(target.base_url, judge.url, "--second-judge-model", "second"))
        calls = judge.asked - 1
    row = ran.row("beam")
    agreement = row["breakdown"]["judge_agreement"]
    assert (agreement["n"], agreement["failed"], agreement["same_score"], agreement["mean_difference"]) == (
        20,
        0,
        1.0,
        0.0,
    )
    assert agreement["ci95"][0] < 1.0
    assert calls == row["breakdown"]["judge_calls"]
    assert [judge["model"] for judge in row["comparability"]["judge"]] == ["kimi-k3", "second"]
    planned = json.loads(
        kvv_cli(
            "plan", *asked(target.base_url, "http://127.0.0.1:9/v1", "--second-judge-model", "second")[1:], "--json"
        ).out
    )
    alone = json.loads(kvv_cli("plan", *asked(target.base_url, "http://127.0.0.1:9/v1")[1:], "--json").out)
    assert planned["judge_calls"] == 2 * alone["judge_calls"]


def test_judges_that_differ_agree_on_the_share_they_agree_on() -> None:
    case = the_cases()[0]
    values = dict.fromkeys(("kvv_score", "official_score", "half_credit"), 1.0)
    pairs = [
        (
            case,
            Verdict(
                case=case.id,
                sample=n,
                outcome=Outcome.PASS,
                values=values,
                facts={"judge_calls": 2, "second_judge": {"kvv_score": second}},
            ),
        )
        for n, second in enumerate((1.0, 1.0, 1.0, 0.5))
    ]
    context = Context(model="m", profile=load_profile("kimi-k3"), settings=Settings())
    agreement = BeamSuite().metrics(pairs, context)[0].breakdown["judge_agreement"]
    assert (agreement["n"], agreement["same_score"], agreement["mean_difference"]) == (4, 0.75, -0.125)


def test_a_second_judge_that_is_the_first_is_refused(target: MockServer, kvv_cli: Any) -> None:
    ran = kvv_cli(*asked(target.base_url, target.base_url, "--second-judge-model", "kimi-k3"))
    assert ran.code == 2
    assert "--second-judge-model" in ran.said


def test_the_plan_shows_what_a_judge_with_known_prices_costs() -> None:
    named = {"base_url": "https://a.example/v1", "model": "kimi-k3", "judge_base_url": "https://j.example/v1"}
    job = prepare(
        load_config({**named, "suites": ["beam"], "data": ["beam=fixture"], "judge_model": "kimi-k3"}, environ={})
    )
    assert job.plan.judge_cost is not None
    assert job.plan.judge_cost == pytest.approx(
        cost_of(load_profile("kimi-k3").prices, *job.plan.suites[0].judge_tokens)
    )  # type: ignore[arg-type]
    unknown = prepare(
        load_config({**named, "suites": ["beam"], "data": ["beam=fixture"], "judge_model": "some-judge"}, environ={})
    )
    assert unknown.plan.judge_cost is None


def test_a_rescored_run_has_the_same_verdicts(target: MockServer, kvv_cli: Any) -> None:
    ran = kvv_cli(*asked(target.base_url, target.base_url))
    asked_before: Any = target.stats()
    again = kvv_cli("score", ran.folder.name)
    assert "20 samples judged again, 0 verdicts changed" in again.said
    assert target.stats()["answers"] == asked_before["answers"]


# --- order and plan ----------------------------------------------------------------------------------


def test_a_conversations_questions_run_back_to_back_the_first_alone(kvv_cli: Any) -> None:
    """The endpoint's own prefix cache: nine of ten questions find their conversation in it, whatever the
    concurrency.
    """
    with MockServer(MockConfig(answers=KEY, ttft_ms=30.0)) as server:
        ran = kvv_cli(*asked(server.base_url, server.base_url, "--concurrency", "16"))
        with Store.open(ran.folder / "store.sqlite", read_only=True) as store:
            samples = [(s.prompt_tokens, s.cached_tokens or 0) for s in store.timing_samples("beam")]
            sent = [
                stored.exchange.identity.case for stored in store.exchanges() if stored.exchange.role is Role.TARGET
            ]
    order = [case.split("/")[2] for case in sent if case.startswith("beam/")]
    assert len(samples) == 20
    assert sum(cached > 0.9 * (prompt or 0) for prompt, cached in samples) == 18
    assert Counter(order[:10]) in (Counter({"1": 10}), Counter({"2": 10}))


def test_the_order_keeps_conversations_together_and_is_seeded() -> None:
    import numpy as np

    job = prepare(load_config({"suites": ["beam"]}, environ={}))
    orders = [
        [case.cluster for _, case in in_order(job.plan.suites, lambda _, s=seed: np.random.default_rng(s))]
        for seed in range(6)
    ]  # type: ignore[misc]
    assert all(order[:10] == [order[0]] * 10 and order[10:] == [order[10]] * 10 for order in orders)
    assert len({order[0] for order in orders}) == 2


def test_the_plan_says_what_a_million_tokens_cost_with_and_without_a_cache() -> None:
    """35 conversations of 893k tokens, 20 questions each, K3's prices: $1,900 and about $270, plus the answers."""
    prices = load_profile("kimi-k3").prices
    assert prices == Prices(input=3.0, cached=0.3, output=15.0)
    prompt, shared, answers = 700 * 893_000, 665 * 893_000, 700 * 2_000
    assert cost_of(prices, prompt, answers) == pytest.approx(1_900, rel=0.01)
    assert cost_of(prices, prompt, 0, shared) == pytest.approx(270, rel=0.02)


def test_the_plan_of_the_real_conversations_scales_to_it(kvv_cli: Any, shared: Path) -> None:
    """12 of 35 conversations are at hand: their share of 625M tokens, of 2,485 judge calls and of the cached price."""
    data = ["--data", f"beam={shared / 'data' / 'beam'}", "--variant", "1M", "--tier", "full"]
    flags = ["--base-url", "https://x.example/v1", "--model", "kimi-k3"]
    ran = kvv_cli(
        "plan",
        "beam",
        *data,
        *flags,
        "--judge-base-url",
        "https://j.example/v1",
        "--judge-model",
        "gpt-oss-120b",
        "--json",
    )
    assert ran.code == 0, ran.said
    (suite,) = json.loads(ran.out)["suites"]
    scale = 35 / 12
    assert suite["requests"] == 240
    assert suite["prompt_tokens"] * scale == pytest.approx(625e6, rel=0.05)
    assert suite["cached_tokens"] == pytest.approx(suite["prompt_tokens"] * 19 / 20, rel=0.001)
    assert suite["cost_usd"] * scale == pytest.approx(1_900, rel=0.05)
    assert suite["cost_cached_usd"] * scale == pytest.approx(270 + 21, rel=0.06)
    assert suite["judge_calls"] * scale == pytest.approx(2_485, rel=0.1)


def test_the_plan_for_people_names_the_cached_price_and_the_judge(kvv_cli: Any) -> None:
    flags = ["--data", "beam=fixture", "--base-url", "https://x.example/v1", "--model", "kimi-k3"]
    ran = kvv_cli("plan", "beam", *flags, "--judge-base-url", "https://j.example/v1", "--judge-model", "j")
    assert "with perfect prefix caching" in ran.out
    assert "calls of the judge" in ran.out


def test_an_unknown_size_is_a_usage_error_and_another_suites_variant_is_not() -> None:
    suite = load_suite("beam")
    assert (suite.data_variant("10m"), suite.data_variant("official"), suite.data_variant("")) == ("10M", "", "")
    with pytest.raises(ValueError, match="no size '2M'"):
        suite.data_variant("2M")
