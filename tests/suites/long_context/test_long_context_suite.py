"""The long-context suite: clean against correct endpoints, and able to say no."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kvv.core import Level, Outcome, Request
from kvv.mockserver.content.tokens import count
from kvv.suites.long_context.checks import counts_to, finds, no_plateau
from kvv.suites.long_context.haystack import CHARS_PER_TOKEN, haystack
from kvv.suites.long_context.suite import LongContextSuite

SUITE = LongContextSuite()


def test_the_reference_endpoint_passes_every_case_of_the_small_tier(stage: Any, clean: Any) -> None:
    variant, profile, surface = clean
    cases = [case for case in stage.asked(SUITE, profile=profile, surface=surface) if "overflow" not in case.id]
    verdicts = stage.against_reference(SUITE, cases, variant=variant)
    assert [(verdict.case, verdict.detail) for verdict in verdicts if verdict.outcome is not Outcome.PASS] == []


def test_every_case_can_fail(stage: Any) -> None:
    def blind(request: Request) -> Any:
        return stage.says("I cannot find it.", finish="length", usage=stage.counts(2048))

    def idle(request: Request) -> Any:
        return stage.says("I cannot find it.", usage=stage.counts(2048))

    for case in stage.asked(SUITE, tier="nightly"):
        outcomes = [stage.against(SUITE, case, endpoint).outcome for endpoint in (blind, idle)]
        assert Outcome.FAIL in outcomes, (case.id, outcomes)
        assert Outcome.PASS not in outcomes, (case.id, outcomes)


@pytest.mark.parametrize(
    ("fault", "case"),
    [
        ("H01", "long_context/count/thinking-on/stream"),
        ("H01", "long_context/needle/8k-front/thinking-on/stream"),
        ("H03", "long_context/count/thinking-on/stream"),
        ("H06", "long_context/default-budget/thinking-on/whole"),
        ("H09", "long_context/needle/32k-end/thinking-on/stream"),
    ],
)
def test_a_known_fault_fails_the_must_made_for_it(stage: Any, fault: str, case: str) -> None:
    [one] = [one for one in stage.asked(SUITE) if one.id == case]
    [verdict] = stage.against_reference(SUITE, [one], faults=(fault,))
    assert one.level is Level.MUST
    assert verdict.outcome is Outcome.FAIL, verdict


def test_a_tier_asks_its_lengths_and_none_beyond_the_window(stage: Any) -> None:
    def lengths(tier: str, profile: str = "kimi-k3") -> set[str]:
        cases = SUITE.cases(stage.context(tier=tier, profile=profile))
        return {
            word for case in cases for word in re.split("[/-]", case.id) if re.fullmatch(r"\d+k|window|overflow", word)
        }

    assert lengths("smoke") == {"8k", "32k"}
    assert lengths("nightly") == {"8k", "32k", "128k", "256k", "overflow"}
    assert lengths("full") == {"8k", "32k", "128k", "256k", "window", "overflow"}
    assert "256k" not in lengths("full", profile="openai")


def test_the_context_of_a_model_nobody_described_is_not_assumed(stage: Any) -> None:
    asked = stage.asked(SUITE, profile="openai", tier="full")
    assert {case.id.split("/")[1] for case in asked} == {"needle-or-refusal", "default-budget", "default-budget-large"}


# --- haystacks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1_000, 8_000, 32_000])
def test_a_haystack_has_about_the_tokens_it_should(tokens: int) -> None:
    """Our own tokeniser makes a word a token; English text has a few more under a real one."""
    assert 0.7 * tokens < count(haystack({"tokens": tokens}, {})) < 1.1 * tokens


def test_needles_stand_where_they_should_and_the_rest_is_the_same() -> None:
    needles = [{"at": 0.0, "text": "FRONT."}, {"at": 0.5, "text": "MIDDLE."}, {"at": 1.0, "text": "END."}]
    text = haystack({"tokens": 2_000, "needles": needles}, {})
    assert text.startswith("FRONT. ")
    assert text.endswith(" END.")
    assert 0.48 < text.index("MIDDLE.") / len(text) < 0.52
    plain = haystack({"tokens": 2_000}, {})
    assert re.sub(r"\b(FRONT|MIDDLE|END)\. ?", "", text).strip() == plain


def test_a_haystack_depends_on_its_argument_alone() -> None:
    one = haystack({"tokens": 500, "seed": 1}, {})
    assert haystack({"tokens": 1_000, "share": 0.5, "seed": 1}, {}) == one
    assert haystack({"tokens": 500, "seed": 2}, {}) != one
    assert abs(len(one) - 500 * CHARS_PER_TOKEN) < 200


def test_hay_holds_no_needle() -> None:
    assert not re.search("archive|access|code|granite|cobalt|willow", haystack({"tokens": 50_000, "seed": 3}, {}))


# --- checks ----------------------------------------------------------------------------------------------


@pytest.fixture
def case(stage: Any) -> Any:
    return stage.asked(SUITE)[0]


@pytest.mark.parametrize(
    ("text", "found"), [("7714903", True), ("It is 7,714,903.", True), ("7714904", False), ("", False)]
)
def test_a_needle_is_its_digits(stage: Any, case: Any, text: str, found: bool) -> None:
    problem = finds(stage.look(case, stage.says(text)), "7714903")
    assert (problem is None) is found


@pytest.mark.parametrize(
    ("counts", "flat"),
    [
        ((1_020, 2_010, 4_030, 8_040), False),
        ((1_400, 2_500, 4_700, 9_100), False),
        ((1_020, 2_010, 2_048, 2_048), True),
        ((1_020, 2_010, 4_000, 4_096), True),
        ((1_020, 2_010, 4_030, 5_900), True),
        ((500, 500, 500, 500), True),
    ],
)
def test_counts_that_stand_still_are_a_plateau(stage: Any, case: Any, counts: tuple[int, ...], flat: bool) -> None:
    sizes = {"a": 1_000, "b": 2_000, "c": 4_000, "d": 8_000}
    siblings = {name: stage.says("x", usage=stage.counts(tokens)) for name, tokens in zip(sizes, counts, strict=True)}
    problem = no_plateau(stage.look(case, stage.says("x"), siblings=siblings), sizes)
    assert (problem is not None) is flat


def test_a_count_that_is_missing_shows_nothing(stage: Any, case: Any) -> None:
    siblings = {"a": stage.says("x", usage=stage.counts(10)), "b": stage.says("x")}
    assert (
        no_plateau(stage.look(case, stage.says("x"), siblings=siblings), {"a": 1, "b": 2}).outcome
        is Outcome.INCONCLUSIVE
    )


def test_an_answer_that_was_cut_without_a_limit_had_too_small_a_default(stage: Any, case: Any) -> None:
    assert counts_to(stage.look(case, stage.says("1, 2, 100")), 100) is None
    assert counts_to(stage.look(case, stage.says("1, 2, 3", finish="length")), 100).reason == "small-default-budget"
    for tokens, reason in ((300, "small-default-budget"), (4_020, "did-not-count")):
        cut = stage.says("1, 1, 1", finish="length", usage=stage.counts(10, tokens))
        assert counts_to(stage.look(case, cut), 100).reason == reason
    assert counts_to(stage.look(case, stage.says("1, 2, 3")), 100).outcome is Outcome.INCONCLUSIVE
