"""The suite aime2025: what is sent, how a completion is judged, which rows come out."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Sequence
from math import comb
from pathlib import Path
from typing import Any

import pytest

from kvv.cases.suite import Context, Settings, load_suite
from kvv.core import (
    Answered,
    Case,
    Choice,
    Dataset,
    Exchange,
    Fault,
    FaultKind,
    Identity,
    Observation,
    Outcome,
    Role,
    Shape,
    Stat,
    Verdict,
)
from kvv.data import load
from kvv.profiles.profile import load_profile
from kvv.suites.aime2025.suite import INSTRUCTION, Aime2025Suite

SUITE = Aime2025Suite()
FIXTURE = load("aime2025", fixture=True)


def context(dataset: Dataset | None = FIXTURE, **fields: Any) -> Context:
    settings = Settings(**{"temperature": 1.0, "top_p": 0.95, "max_tokens": 98_304, "samples": 4, **fields})
    return Context(model="kimi-k2.6", profile=load_profile("openai"), settings=settings, dataset=dataset)


def rows(ids: Sequence[str]) -> Dataset:
    return Dataset(
        rows=[{"problem": f"Problem {i}?", "answer": "70", "id": i} for i in ids],
        origin="test",
        revision="r1",
        sha256="s1",
    )


def answered(case: Case, text: str | None, finish_reason: str | None = "stop", fault: Fault | None = None) -> Answered:
    identity = Identity(case=case.id, sample=case.sample, step=0, ask=0, purpose="probe")
    status = None if fault else 200
    return Answered(
        request=SUITE.request(case),
        exchange=Exchange(identity=identity, attempt=0, role=Role.TARGET, started="", status=status, fault=fault),
        observation=Observation(
            shape=Shape.NONE if fault else Shape.COMPLETION,
            choices=(Choice(index=0, answer=text, finish_reason=finish_reason),),
        ),
    )


def judged(text: str | None, **fields: Any) -> Verdict:
    case = SUITE.cases(context(rows(["x"])))[0]
    return SUITE.judge(case, answered(case, text, **fields))


# --- cases and requests ------------------------------------------------------------------------------


def test_the_suite_is_registered() -> None:
    assert isinstance(load_suite("aime2025"), Aime2025Suite)


def test_the_complete_public_set_gets_the_competitions_numbers() -> None:
    ids = [case.id for case in SUITE.cases(context(rows([str(i) for i in range(30)])))]
    assert ids[0] == "aime2025/2025-I-01"
    assert ids[14:16] == ["aime2025/2025-I-15", "aime2025/2025-II-01"]
    assert ids[29] == "aime2025/2025-II-15"
    assert len(set(ids)) == 30


def test_other_sets_keep_their_own_ids_as_slugs() -> None:
    ids = [case.id for case in SUITE.cases(context(rows(["0", "a b/c", "own-01"])))]
    assert ids == ["aime2025/0", "aime2025/a%20b%2Fc", "aime2025/own-01"]


def test_the_request_is_kvvs_prompt_with_the_runs_sampling() -> None:
    case = SUITE.cases(context(rows(["x"])))[0]
    request = SUITE.request(case)
    assert request.body == {
        "model": "kimi-k2.6",
        "messages": [
            {
                "role": "user",
                "content": "Problem x?\n\n Please reason step by step, and put your final answer within \\boxed{}.",
            },
        ],
        "temperature": 1.0,
        "top_p": 0.95,
        "max_tokens": 98_304,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert request.stream
    assert case.cluster == case.id
    assert pickle.loads(pickle.dumps(case)) == case  # noqa: S301 our own bytes


def test_without_streaming_nothing_is_streamed() -> None:
    request = SUITE.request(SUITE.cases(context(rows(["x"]), stream=False))[0])
    assert not request.stream
    assert isinstance(request.body, dict)
    assert "stream" not in request.body


def test_without_data_there_are_no_cases() -> None:
    assert SUITE.cases(context(None)) == []


# --- judging -----------------------------------------------------------------------------------------


def test_a_right_box_passes_by_both_rules() -> None:
    verdict = judged(r"Hence \boxed{70}.")
    assert (verdict.outcome, verdict.reason) == (Outcome.PASS, "")
    assert verdict.values == {"correct": 1.0, "strict": 1.0, "moonshot": 1.0}
    assert verdict.facts["lenient_only"] is False
    assert verdict.scorer.startswith("1 math-verify-")


def test_a_truncated_text_that_ends_on_the_number_passes_leniently_and_says_so() -> None:
    verdict = judged("so far the count is 70", finish_reason="length")
    assert verdict.outcome is Outcome.PASS
    assert verdict.values == {"correct": 1.0, "strict": 0.0, "moonshot": 1.0}
    assert verdict.truncated
    assert verdict.facts["truncated"] is True
    assert verdict.facts["lenient_only"] is True


@pytest.mark.parametrize(
    ("text", "reason"),
    [(r"\boxed{71}", "wrong-answer"), ("no idea", "no-answer"), ("", "no-answer"), (None, "no-answer")],
)
def test_a_wrong_answer_and_none_at_all_are_told_apart(text: str | None, reason: str) -> None:
    verdict = judged(text)
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, reason)
    assert verdict.values == {"correct": 0.0, "strict": 0.0, "moonshot": 0.0}
    assert not verdict.truncated


def test_reasoning_is_not_read() -> None:
    case = SUITE.cases(context(rows(["x"])))[0]
    reply = answered(case, "I cannot say.")
    observation = Observation(
        shape=Shape.COMPLETION, choices=(Choice(index=0, answer="I cannot say.", reasoning=r"\boxed{70}"),)
    )
    verdict = SUITE.judge(case, Answered(request=reply.request, exchange=reply.exchange, observation=observation))
    assert verdict.outcome is Outcome.FAIL


def test_an_endpoint_that_gave_no_answer_is_neither_right_nor_wrong() -> None:
    case = SUITE.cases(context(rows(["x"])))[0]
    step = SUITE.step(case, [(answered(case, None, fault=Fault(kind=FaultKind.RESET, detail="reset")),)])
    assert step.verdict.outcome is Outcome.INCONCLUSIVE  # type: ignore[union-attr]


# --- the answer key ----------------------------------------------------------------------------------


def test_the_key_is_right_where_it_should_be_and_wrong_where_it_should_be() -> None:
    cases = {case.id: case for case in SUITE.cases(context())}
    entries = SUITE.answer_key(FIXTURE)
    assert [entry.case for entry in entries] == list(cases)
    for entry in entries:
        case = cases[entry.case]
        assert entry.prompt + INSTRUCTION == case.inputs["body"]["messages"][-1]["content"]
        right, wrong = (SUITE.judge(case, answered(case, text)) for text in (entry.right_text, entry.wrong_text))
        assert right.values == {"correct": 1.0, "strict": 1.0, "moonshot": 1.0}
        assert wrong.values == {"correct": 0.0, "strict": 0.0, "moonshot": 0.0}


def test_no_prompt_of_the_fixture_contains_another() -> None:
    prompts = [row["problem"] for row in FIXTURE.rows]
    assert not [(a, b) for a in prompts for b in prompts if a is not b and a in b]


# --- rows --------------------------------------------------------------------------------------------


def verdict(
    case: Case, correct: bool, strict: bool, *, outcome: Outcome | None = None, truncated: bool = False
) -> tuple[Case, Verdict]:
    values = {} if outcome else {"correct": float(correct), "strict": float(strict)}
    found = outcome or (Outcome.PASS if correct else Outcome.FAIL)
    reason = "scorer-timeout" if outcome else ""
    return case, Verdict(
        case=case.id,
        sample=case.sample,
        outcome=found,
        reason=reason,
        values=values,
        truncated=truncated,
        scorer="1 math-verify-0.9.0",
    )


def stats(results: list[tuple[Case, Verdict]], **fields: Any) -> dict[str, Stat]:
    found = SUITE.metrics(iter(results), context(rows(["a", "b"]), **fields))
    assert [stat.metric for stat in found] == ["avg@k", "strict_avg@k", "pass@k", "pass^k"]
    assert [stat.primary for stat in found] == [True, False, False, False]
    return {stat.metric: stat for stat in found}


def test_rows_of_a_complete_run() -> None:
    a, b = SUITE.cases(context(rows(["a", "b"])))
    samples = [
        *(
            verdict(a, True, True),
            verdict(a, True, False, truncated=True),
            verdict(a, False, False),
            verdict(a, False, True),
        ),
        *(verdict(b, True, True) for _ in range(4)),
    ]
    found = stats(samples)
    average = found["avg@k"]
    assert average.estimate == pytest.approx(6 / 8)
    assert (average.n_planned, average.n_concluded, average.n_inconclusive, average.n_truncated) == (8, 8, 0, 1)
    assert average.interval is not None
    assert average.breakdown["problems"]["aime2025/a"] == {
        **{"n": 4, "correct": 2, "strict": 2, "truncated": 1, "lenient_only": 1, "strict_only": 1, "inconclusive": 0}
    }
    assert (average.breakdown["lenient_only"], average.breakdown["truncated"], average.breakdown["k"]) == (1, 1, 4)
    assert found["strict_avg@k"].estimate == pytest.approx(6 / 8)
    # two of four right: one of any two is right but for 1 pair in 6; both in 1 of 6
    assert found["pass@k"].breakdown["by_k"]["2"] == pytest.approx((1 - 1 / 6 + 1) / 2)
    assert found["pass^k"].breakdown["by_k"]["2"] == pytest.approx((1 / 6 + 1) / 2)
    assert found["pass@k"].breakdown["k"] == 4
    assert (found["pass@k"].estimate, found["pass^k"].estimate) == (1.0, 0.5)
    assert found["pass^k"].breakdown["by_k"]["1"] == pytest.approx(average.estimate)


def test_inconclusive_samples_stay_in_the_bounds() -> None:
    a, b = SUITE.cases(context(rows(["a", "b"])))
    samples = [
        *(verdict(a, True, True), verdict(a, True, True, outcome=Outcome.INCONCLUSIVE)),
        *(verdict(b, False, False), verdict(b, True, True)),
    ]
    found = stats(samples, samples=2)
    average = found["avg@k"]
    assert average.estimate == pytest.approx(2 / 3)
    assert (average.worst_case, average.best_case) == (0.5, 0.75)
    assert average.breakdown["inconclusive"] == 1
    hat = found["pass^k"]
    assert (hat.n_planned, hat.n_concluded, hat.n_inconclusive) == (2, 1, 1)
    assert hat.estimate == 0.0
    assert (hat.worst_case, hat.best_case) == (0.0, 0.5)


def test_a_refused_request_counts_as_wrong_and_kvv_leaves_it_out() -> None:
    a, b = SUITE.cases(context(rows(["a", "b"])))
    refused = (b, Verdict(case=b.id, sample=0, outcome=Outcome.FAIL, reason="valid-request-refused"))
    found = stats([verdict(a, True, True), refused], samples=1)["avg@k"]
    assert (found.estimate, found.kvv_value) == (0.5, 1.0)


def test_no_verdict_at_all_gives_rows_without_a_value() -> None:
    found = stats([])
    assert all(stat.estimate is None and stat.n_planned == 0 for stat in found.values())


def test_thirty_two_samples_show_the_instability_at_eight() -> None:
    case = SUITE.cases(context(rows(["a"])))[0]
    found = stats([verdict(case, i < 24, i < 24) for i in range(32)], samples=32)
    assert found["pass^k"].breakdown["k"] == 8
    assert found["pass^k"].estimate == pytest.approx(comb(24, 8) / comb(32, 8))
    assert found["pass@k"].breakdown["by_k"]["32"] == 1.0


def test_comparability_says_what_was_sent_and_how_it_was_scored() -> None:
    case = SUITE.cases(context(rows(["a"])))[0]
    facts = stats([verdict(case, True, True)])["avg@k"].comparability
    assert facts["sampling"] == {"temperature": 1.0, "top_p": 0.95, "max_tokens": 98_304, "stream": True, "samples": 4}
    assert (facts["data_revision"], facts["data_sha256"]) == ("r1", "s1")
    assert facts["scorer_version"] == "1 math-verify-0.9.0"
    assert "counts as wrong" in facts["failures_in_denominator"]


def test_the_public_set_has_the_pinned_content() -> None:
    path = Path(os.environ.get("KVV_SHARED") or Path(__file__).parents[4] / "shared") / "data" / "aime25" / "test.jsonl"
    if not path.exists():
        pytest.skip("the shared data folder is absent")
    dataset = load("aime2025", path=path)
    assert dataset.revision == "as pinned"
    assert len(SUITE.answer_key(dataset)) == 30
    assert json.loads(json.dumps(SUITE.cases(context(dataset))[0].inputs))["answer"] == "70"
