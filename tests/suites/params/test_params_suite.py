"""The pre-check beyond its case file: tokens named by their text, with the run's own tokeniser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kvv.model import Case, Outcome, Request
from kvv.suites.params.suite import ParamsSuite

SUITE = ParamsSuite()


class Words:
    """Every word is a token; its id is its length. ``whole`` words only: others are two tokens."""

    def __init__(self, *whole: str) -> None:
        self.whole = whole

    def count(self, text: str) -> int:
        return len(self.ids(text))

    def ids(self, text: str) -> Sequence[int]:
        return [len(text)] if text in self.whole else [1, 2]


class CountsOnly:
    def count(self, text: str) -> int:
        return 1


def forced(stage: Any, tokenizer: Any, profile: str = "openai") -> Case:
    cases = SUITE.cases(replace(stage.context(profile=profile), tokenizer=tokenizer))
    return next(case for case in cases if case.id.startswith("params/forced-token") and case.id.endswith("whole"))


def test_a_token_is_named_by_the_id_that_the_tokenizer_gives_it(stage: Any) -> None:
    case = forced(stage, Words("yes"))
    asked: list[Request] = []

    def endpoint(request: Request) -> Any:
        asked.append(request)
        return stage.says("yesyesyes")

    assert stage.against(SUITE, case, endpoint).outcome is Outcome.PASS
    assert [request.body["logit_bias"] for request in asked] == [{"3": 100}]
    assert case.inputs["body"]["logit_bias"] == {"3": 100}


@pytest.mark.parametrize("text", ["no", "yes and no", "ready"])
def test_an_answer_of_other_tokens_shows_that_the_bias_had_no_effect(stage: Any, text: str) -> None:
    assert stage.against(SUITE, forced(stage, Words("yes")), lambda request: stage.says(text)).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("tokenizer", "reason"),
    [
        (None, "no --tokenizer"),
        (Words(), "'yes' is no single token of the given tokenizer"),
        (CountsOnly(), "'yes' is no single token of the given tokenizer"),
    ],
)
def test_without_an_id_the_case_is_skipped_and_says_why(stage: Any, tokenizer: Any, reason: str) -> None:
    assert forced(stage, tokenizer).inputs["skip"] == reason


def test_a_model_that_only_thinks_is_not_asked(stage: Any) -> None:
    """The forced token would fill its reasoning."""
    cases = SUITE.cases(replace(stage.context(profile="kimi-k3"), tokenizer=Words("yes")))
    assert {case.inputs["skip"] for case in cases if case.id.startswith("params/forced-token")} == {
        "the profile kimi-k3 does not claim thinking-off on the surface vendor"
    }


def test_numeric_keys_stay_as_they_are(stage: Any) -> None:
    cases = SUITE.cases(replace(stage.context(profile="openai"), tokenizer=Words("1000")))
    assert {tuple(case.inputs["body"]["logit_bias"]) for case in cases if case.id.startswith("params/logit-bias")} == {("1000",)}
