"""The pre-check beyond its case file: tokens named by their text, with the run's own tokeniser."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kvv.cases.checks import CheckInput
from kvv.core import Case, Level, Outcome, Request, Surface
from kvv.profiles.profile import load_profile
from kvv.suites.params.checks import same_temperature
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
    assert {tuple(case.inputs["body"]["logit_bias"]) for case in cases if case.id.startswith("params/logit-bias")} == {
        ("1000",)
    }


# --- the default temperature -----------------------------------------------------------------------------

BASE = {" lion": -0.6, " tiger": -1.4, " bear": -2.2, " wolf": -3.0, " hen": -4.1}
ONE_OF = {"of": "omitted", "like": "explicit", "within": 0.2}


def drawn_at(temperature: float, base: dict[str, float] = BASE) -> dict[str, float]:
    """The softmax of the log probabilities at another temperature."""
    total = sum(math.exp(value / temperature) for value in base.values())
    return {token: value / temperature - math.log(total) for token, value in base.items()}


def look(stage: Any, *answers: Any) -> Any:
    """Answers ``omitted`` and ``explicit`` with these alternatives of their first token, one streamed."""
    case = forced(stage, Words("yes"))
    siblings = {}
    for name, shown in zip(("omitted", "explicit"), answers, strict=True):
        top = (
            [{"token": token, "logprob": value} for token, value in shown.items()] if isinstance(shown, dict) else shown
        )
        logprobs = {"content": [{"token": "x", "logprob": -0.1, "top_logprobs": top}]}
        chunk = {"choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": logprobs}]}
        frames = [(0.0, b"[DONE]" if name == "omitted" else b"{}"), (1.0, json.dumps(chunk).encode())]
        siblings[name] = stage.look(case, stage.says(), frames=frames).answered
    return CheckInput(answered=siblings["omitted"], case=case, siblings=siblings)


@pytest.mark.parametrize(
    ("temperature", "reason"),
    [
        (1.0, None),
        (0.95, None),
        (1.1, None),
        (0.7, "other-temperature"),
        (0.6, "other-temperature"),
        (1.5, "other-temperature"),
    ],
)
def test_the_spread_of_the_alternatives_tells_the_temperature(
    stage: Any, temperature: float, reason: str | None
) -> None:
    found = same_temperature(look(stage, drawn_at(temperature), drawn_at(1.0)), ONE_OF)
    assert (found and found.reason) == reason
    if found is not None:
        assert f"drawn at {temperature:.2f} times its temperature" in found.detail


@pytest.mark.parametrize(
    ("omitted", "reason"),
    [
        ({" lion": -0.6, " tiger": -1.4, " crow": -9.0}, "few-alternatives"),
        ({" lion": -0.1, " tiger": -0.2, " bear": -0.3}, "alternatives-alike"),
        ([], "few-alternatives"),
        (None, "few-alternatives"),
        (
            [{"token": 5, "logprob": -1.0}, {"token": " lion"}, "x", None, {"token": " lion", "logprob": "low"}],
            "few-alternatives",
        ),
    ],
)
def test_without_alternatives_in_common_nothing_can_be_told(stage: Any, omitted: Any, reason: str) -> None:
    found = same_temperature(look(stage, omitted, BASE), ONE_OF)
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, reason)


def test_a_sign_for_the_impossible_is_no_probability(stage: Any) -> None:
    assert same_temperature(look(stage, {**BASE, " x": -9999.0}, {**BASE, " x": -20.0}), ONE_OF) is None


def test_an_engine_that_takes_the_models_own_default_is_not_asked(stage: Any) -> None:
    def skips(profile: str, surface: Surface = Surface.VENDOR) -> set[str]:
        cases = SUITE.cases(stage.context(profile=profile, surface=surface))
        return {case.inputs["skip"] for case in cases if case.id.startswith("params/default-temperature")}

    assert skips("kimi-k3", Surface.ENGINE) == {
        "a bare engine takes its default from the model's own generation_config"
    }
    assert skips("qwen3") == {"the profile qwen3 does not claim default_temperature on the surface vendor"}
    assert skips("glm-4.6") == {
        "the profile glm-4.6 does not claim logprobs, default_temperature on the surface vendor"
    }


#: the public verifier's tests/params, thinking or not: what it sends, whether it must be refused
DEFAULTS = {"top_p": 0.95, "n": 1, "presence_penalty": 0, "frequency_penalty": 0}
GATE = ("omitted-switched", "accepted", "rejected", "thinking-disabled", "rejected-thinking-disabled")
REFUSED = [
    {"temperature": 1.1},
    {"temperature": 2.0},
    {"temperature": -0.1},
    {"top_p": 0.8},
    {"presence_penalty": 0.5},
    {"frequency_penalty": 0.5},
    {"n": 2},
]


@pytest.mark.parametrize("thinking", [True, False], ids=["thinking", "non-thinking"])
@pytest.mark.parametrize("profile", ["kimi-k3", "kimi-k2.6", "kimi-k2.7-code"])
def test_the_public_verifiers_parameters_are_asked_in_both_modes_and_decide_as_there(
    profile: str, thinking: bool, stage: Any
) -> None:
    """Its ids: no_param, default_param, and seven wrong ones, per mode. One must-level case says the same of each."""
    cases = [
        (case.inputs["body"], case.inputs["expect"] == "refused")
        for case in SUITE.cases(stage.context(profile=profile))
        if case.level is Level.MUST and not case.inputs["skip"] and not case.inputs["stream"]
        if case.id.split("/")[1] in GATE
    ]
    switch = {"type": "enabled" if thinking else "disabled"}
    of_mode = [(body, refused) for body, refused in cases if body.get("thinking", {}).get("type") == switch["type"]]
    sent = [
        ({name: body[name] for name in ("temperature", *DEFAULTS) if name in body}, refused)
        for body, refused in of_mode
    ]
    if profile == "kimi-k2.7-code" and not thinking:
        assert sent == []  # the hosted model itself refuses the switch
        return
    assert ({}, False) in sent
    assert [fields for fields, refused in sent if refused] == REFUSED
    accepted: dict[str, Any] = {}
    for fields, refused in sent:
        accepted |= {} if refused else fields
    assert accepted == {"temperature": 1.0 if thinking else 0.6, **DEFAULTS}


@pytest.mark.parametrize("profile", ["kimi-k2-thinking", "kimi-k2-instruct"])
def test_what_the_platform_documents_as_accepted_is_not_held_against_older_models(profile: str, stage: Any) -> None:
    refused = [c for c in SUITE.cases(stage.context(profile=profile)) if c.id.startswith("params/rejected/")]
    assert refused
    assert {case.level for case in refused} == {Level.SHOULD}
    assert not [case for case in refused if "n-2" in case.id or "penalty" in case.id]


def test_an_endpoint_whose_default_is_colder_fails_where_it_reports_what_it_draws_from(stage: Any) -> None:
    profile = load_profile("openai")
    claiming = profile.model_copy(update={"claims": profile.claims.model_copy(update={"logprobs": True})})
    cases = [
        case
        for case in SUITE.cases(replace(stage.context(profile="openai"), profile=claiming))
        if "default-temperature" in case.id
    ]
    assert [one.outcome for one in stage.against_reference(SUITE, cases, variant="openai")] == [Outcome.PASS] * 2
    assert [one.outcome for one in stage.against_reference(SUITE, cases, variant="openai", faults=("A02",))] == [
        Outcome.FAIL
    ] * 2
