"""The suite mmmu_pro: variants, prompts and picture placement, judging and guessing, the two rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvv.cases.suite import Context, Settings, load_suite
from kvv.core import (
    Answered,
    Case,
    Choice,
    Dataset,
    Exchange,
    Identity,
    Observation,
    Outcome,
    Picture,
    PictureForm,
    Role,
    Shape,
    Verdict,
)
from kvv.data import DataError, load, load_spec
from kvv.data.pictures import pictures_of
from kvv.planning.config import load_config
from kvv.planning.plan import settings_for, variant_for
from kvv.profiles.profile import load_profile
from kvv.suites.mmmu_pro.prompts import PromptVariant, as_they_appear, parse_variant
from kvv.suites.mmmu_pro.suite import MmmuProSuite, guess

SUITE = MmmuProSuite()
FIXTURES = {name: load("mmmu_pro", fixture=True, variant=name) for name in ("standard10", "standard4", "vision")}
STANDARD = FIXTURES["standard10"]
STEPS = "Think step by step before answering."


def context(
    variant: str = "", dataset: Dataset | None = None, preset: str = "", seed: int = 0, **fields: Any
) -> Context:
    rows = dataset or FIXTURES[parse_variant(variant).config]
    settings = Settings(**{"temperature": 1.0, "top_p": 0.95, "max_tokens": 98_304, "variant": variant, **fields})
    return Context(model="m", profile=load_profile("openai"), settings=settings, dataset=rows, preset=preset, seed=seed)


def row_of(name: str) -> dict[str, Any]:
    return dict(next(row for row in STANDARD.rows if row["id"] == f"fixture_{name}"))


def one(row: dict[str, Any], variant: str = "", **how: Any) -> Case:
    return SUITE.cases(context(variant, replace(STANDARD, rows=[row], origin="x.jsonl"), **how))[0]


def shape(case: Case) -> list[Any]:
    """Texts as they are, pictures by the number of their column."""
    numbers: dict[str, int] = {}
    for row in STANDARD.rows:
        if case.id.endswith(row["id"]):
            numbers = {row[f"image_{n}"].digest: n for n in range(1, 8) if row.get(f"image_{n}")}
    return [
        part["text"] if part["type"] == "text" else numbers[part["image_url"]["url"].digest]
        for part in case.inputs["body"]["messages"][0]["content"]
    ]


def answered(case: Case, text: str | None, finish_reason: str | None = "stop") -> Answered:
    identity = Identity(case=case.id, sample=case.sample, step=0, ask=0, purpose="probe")
    return Answered(
        request=SUITE.request(case),
        exchange=Exchange(identity=identity, attempt=0, role=Role.TARGET, started="", status=200),
        observation=Observation(
            shape=Shape.COMPLETION, choices=(Choice(index=0, answer=text, finish_reason=finish_reason),)
        ),
    )


def test_it_is_registered_and_judged_in_the_engines_own_process() -> None:
    assert isinstance(load_suite("mmmu_pro"), MmmuProSuite)
    assert SUITE.judge_timeout_s is None


# --- variants --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "variant"),
    [
        ("", PromptVariant()),
        ("standard", PromptVariant()),
        ("kvv", PromptVariant()),
        ("Vision", PromptVariant(config="vision")),
        ("official/vision", PromptVariant(config="vision", prompt="official")),
        ("standard4+official", PromptVariant(config="standard4", prompt="official")),
        ("official/direct", PromptVariant(prompt="official", direct=True)),
        ("recorded", PromptVariant(prompt="recorded")),
    ],
)
def test_a_variant_is_a_config_and_a_prompt_in_any_order(text: str, variant: PromptVariant) -> None:
    assert parse_variant(text) == variant
    assert SUITE.data_variant(text) == variant.config


@pytest.mark.parametrize(
    "text",
    [
        "nope",
        "vision/standard4",
        "kvv/execution/interleaved_official",
        "direct",
        "kvv/direct",
        "official/direct/cot",
        "recorded/kvv",
    ],
)
def test_a_variant_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="mmmu_pro"):
        parse_variant(text)


def test_the_default_is_the_config_of_ten_options_whatever_kvv_calls_it() -> None:
    assert load_spec("mmmu_pro").config == "standard (10 options)"
    assert load_spec("mmmu_pro", "vision").config == "vision"
    assert "image" in load_spec("mmmu_pro", "vision").columns
    assert load_spec("mmmu_pro", "standard4").config == "standard (4 options)"
    with pytest.raises(DataError, match="no variant"):
        load_spec("mmmu_pro", "nope")
    assert SUITE.metrics([], context())[0].comparability["config"] == "standard (10 options)"


def test_only_the_default_configs_ids_are_bare() -> None:
    assert SUITE.cases(context())[0].id == "mmmu_pro/fixture_Math_1"
    assert SUITE.cases(context("vision"))[0].id == "mmmu_pro/vision/fixture_Math_1"
    assert SUITE.cases(context("standard4"))[0].id == "mmmu_pro/standard4/fixture_Math_1"


# --- what is sent ----------------------------------------------------------------------------------


def test_kvvs_prompt_has_the_pictures_first_and_keeps_their_tokens() -> None:
    case = one(row_of("Math_3"))
    first, second, third, text = shape(case)
    assert (first, second, third) == (1, 2, 3)
    assert (
        text == "Which of these has the fewest sides?\nA. <image 1>\nB. <image 2>\nC. <image 3>\n\nAnswer the following"
        " multiple-choice question. The last line of your response should be of the following format: 'Answer:"
        f" $LETTER' (without quotes) where LETTER is one of the options. {STEPS}"
    )


def test_the_official_prompt_has_anonymous_tokens_and_the_pictures_behind_in_order_of_appearance() -> None:
    text, *pictures = shape(one(row_of("Art_2"), "official"))
    assert text.startswith(
        "Which one of <image>, <image> and <image> is green? Look at <image> again.\nA. <image>\nB. <image>\n"
    )
    assert text.endswith(f"\nAnswer the preceding multiple choice question. {FORMAT}options. {STEPS}")
    assert pictures == [3, 1, 2, 1, 1, 2, 3]
    assert shape(one(row_of("Art_2")))[:-1] == [1, 2, 3]


FORMAT = (
    "The last line of your response should be of the following format: 'Answer: $LETTER' (without quotes) where LETTER"
    " is one of "
)


def test_the_other_prompts_are_the_benchmarks_own() -> None:
    assert shape(one(row_of("Math_1"), "official/direct"))[0].endswith(
        "\nAnswer with the option letter from the given choices directly."
    )
    texts = {}
    for variant in ("vision", "official/vision", "official/direct/vision"):
        parts = SUITE.cases(context(variant))[0].inputs["body"]["messages"][0]["content"]
        texts[variant] = [part.get("text") for part in parts]
    asked = f"Write out the multiple-choice question in the image and then solve it. {FORMAT}options. {STEPS}"
    assert texts["vision"] == [None, asked]
    assert texts["official/vision"] == [asked, None]
    assert texts["official/direct/vision"] == [
        f"Answer with the option letter from the given choices directly. {FORMAT}options.",
        None,
    ]


@pytest.mark.parametrize(("preset", "form"), [("", PictureForm.AS_IS), ("kvv", PictureForm.KVV_JPEG)])
def test_pictures_go_as_they_are_or_as_kvv_sends_them_and_the_report_says_which(preset: str, form: PictureForm) -> None:
    cases = SUITE.cases(context(preset=preset))
    shown = [picture for case in cases for picture in pictures_of(case.inputs["body"])]
    assert {picture.form for picture in shown} == {form}
    assert max(case.inputs["pictures"] for case in cases) == 4
    assert ("quality 75" in SUITE.metrics([], context(preset=preset))[0].comparability["images"]) is (preset == "kvv")
    request = SUITE.request(cases[0])
    assert request.expect_prompt_tokens > sum(picture.tokens for picture in pictures_of(cases[0].inputs["body"]))


def test_tokens_without_a_picture_are_passed_over_and_a_row_without_tokens_shows_all() -> None:
    picture = row_of("Math_1")["image_1"]
    assert as_they_appear({"image_1": picture}, "<image 2> <image 1> <image 99>") == [picture]
    assert as_they_appear({"image_1": picture, "image_2": None, "image_3": picture}, "no token") == [picture, picture]
    with pytest.raises(ValueError, match="shows 65 pictures"):
        as_they_appear({"image_1": picture}, "<image 1>" * 65)


def test_rows_with_options_that_cannot_be_read_are_named() -> None:
    for bad in ("[]", "[1", "os.system('x')", None):
        with pytest.raises(ValueError, match=r"x\.jsonl: row 1: column 'options': "):
            one({**row_of("Math_1"), "options": bad})


@pytest.mark.parametrize("n", [1, 2, 7, 12])
def test_lists_of_1_to_12_options_make_a_prompt_and_a_verdict(n: int) -> None:
    case = one({**row_of("Math_1"), "options": repr([f"value {k}" for k in range(n)]), "answer": "ABCDEFGHIJKL"[n - 1]})
    assert f"\n{'ABCDEFGHIJKL'[n - 1]}. value {n - 1}\n\n" in case.inputs["body"]["messages"][0]["content"][-1]["text"]
    assert SUITE.judge(case, answered(case, f"Answer: {'ABCDEFGHIJKL'[n - 1]}")).outcome is Outcome.PASS


# --- judging ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "outcome", "reason", "branch"),
    [
        ("Six.\n\nAnswer: D", Outcome.PASS, "", "answer-line"),
        ("Six.\n\nAnswer: E", Outcome.FAIL, "wrong-answer", "answer-line"),
        ("<think>Answer: E</think>(D)", Outcome.PASS, "", "(X)"),
        ("<think>Answer: D</think>Answer: E", Outcome.FAIL, "wrong-answer", "answer-line"),
    ],
)
def test_the_visible_completion_is_judged_with_its_branch(
    text: str, outcome: Outcome, reason: str, branch: str
) -> None:
    case = one(row_of("Math_1"))
    verdict = SUITE.judge(case, answered(case, text, "length"))
    assert (verdict.outcome, verdict.reason, verdict.facts["branch"], verdict.truncated) == (
        outcome,
        reason,
        branch,
        True,
    )
    right = float(not reason)
    assert verdict.values == {"correct": right, "correct_no_guess": right, "moonshot": right}


def test_a_guess_is_the_same_each_time_differs_by_sample_and_seed_and_counts_apart() -> None:
    cases = [one(row_of("Math_1"), seed=seed) for seed in range(60)]
    verdicts = [SUITE.judge(case, answered(case, None)) for case in cases]
    assert verdicts == [SUITE.judge(case, answered(case, None)) for case in cases]
    assert {verdict.facts["guessed"] for verdict in verdicts} == {True}
    letters = {verdict.facts["predicted"] for verdict in verdicts}
    assert len(letters) > 5
    assert {verdict.reason for verdict in verdicts} == {"", "guessed"}
    assert {verdict.values["correct_no_guess"] for verdict in verdicts} == {0.0}
    assert any(verdict.values["correct"] for verdict in verdicts)
    assert len({guess([7, 0], sample, 10) for sample in range(40)}) > 5


def test_guesses_are_even() -> None:
    counts = [sum(guess([case, 0], 0, 10) == k for case in range(2_000)) for k in range(10)]
    assert min(counts) > 130
    assert max(counts) < 280


# --- rows ------------------------------------------------------------------------------------------


def test_the_rows_show_subjects_branches_and_the_score_without_guesses() -> None:
    cases = SUITE.cases(context())
    verdicts: list[tuple[Case, Verdict]] = []
    for place, case in enumerate(cases):
        text = "" if place < 12 else f"Answer: {case.inputs['answer']}"
        verdicts.append((case, SUITE.judge(case, answered(case, text))))
    verdicts[-1] = (cases[-1], Verdict(case=cases[-1].id, sample=0, outcome=Outcome.INCONCLUSIVE, reason="reset"))
    official, strict = SUITE.metrics(verdicts, context())
    assert (official.metric, official.primary, strict.metric, strict.primary) == (
        "accuracy",
        True,
        "accuracy_no_guess",
        False,
    )
    lucky = sum(verdict.values.get("correct", 0) for _, verdict in verdicts[:12])
    assert official.estimate == pytest.approx((7 + lucky) / 19)
    assert strict.estimate == pytest.approx(7 / 19)
    assert (official.n_planned, official.n_concluded, official.n_inconclusive) == (20, 19, 1)
    assert official.breakdown["parse_branches"]["answer-line"] == 7
    assert official.breakdown["guesses"] == 12
    assert official.breakdown["right_guesses"] == lucky
    assert official.breakdown["subjects"]["Math"]["n_planned"] == 3
    assert official.breakdown["subjects"]["Public_Health"] == {"value": None, "n_concluded": 0, "n_planned": 1}
    assert {"prompt", "images", "config", "preset", "scorer_version", "sampling", "data_revision"} <= set(
        official.comparability
    )


# --- the key and the fixture -----------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["standard10", "standard4", "vision"])
def test_the_key_answers_every_order_and_encoding_rightly_and_wrongly(variant: str) -> None:
    entries = SUITE.answer_key(FIXTURES[variant])
    for prompt in ("kvv", "official"):
        for preset, form in (("", PictureForm.AS_IS), ("kvv", PictureForm.KVV_JPEG)):
            for case in SUITE.cases(context(f"{prompt}/{variant}", preset=preset)):
                shown = tuple(pictures_of(case.inputs["body"]))
                text = "\n".join(
                    part["text"] for part in case.inputs["body"]["messages"][0]["content"] if "text" in part
                )
                (entry,) = [entry for entry in entries if entry.pictures == shown and entry.prompt in text]
                assert {picture.form for picture in shown} == {form}
                assert SUITE.judge(case, answered(case, entry.right_text)).outcome is Outcome.PASS
                assert SUITE.judge(case, answered(case, entry.wrong_text)).outcome is Outcome.FAIL


def test_the_fixture_has_many_subjects_up_to_four_pictures_and_pictures_in_options() -> None:
    assert len(STANDARD.rows) == 20
    assert len({row["subject"] for row in STANDARD.rows}) >= 8
    counts = {sum(isinstance(value, Picture) for value in row.values()) for row in STANDARD.rows}
    assert counts == {1, 2, 3, 4}
    assert any("<image" in row["options"] for row in STANDARD.rows)
    assert {len(case.inputs["options"]) for case in SUITE.cases(context())} >= {2, 3, 4, 5, 6, 7, 8, 9, 10, 12}


# --- sampling and --variant ------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "max_tokens"), [("kimi-k3", 98_304), ("kimi-k2.6", 65_536)])
@pytest.mark.parametrize("preset", [None, "kvv"])
def test_kvvs_token_limit_is_the_models_own(profile: str, max_tokens: int, preset: str | None) -> None:
    config = load_config({"preset": preset} if preset else {}, environ={})
    settings = settings_for(config, load_profile(profile), SUITE)
    assert (settings.max_tokens, settings.temperature, settings.top_p, settings.samples) == (max_tokens, 1.0, 0.95, 1)
    assert settings_for(config, load_profile(profile), load_suite("ocrbench")).max_tokens == 16_384


@pytest.mark.parametrize(
    ("text", "own", "other"),
    [
        ("vision", "vision", "vision"),
        ("mmmu_pro=official/vision", "official/vision", ""),
        ("beam=100K, mmmu_pro=vision", "vision", ""),
    ],
)
def test_a_variant_is_for_all_suites_or_for_those_it_names(text: str, own: str, other: str) -> None:
    config = load_config({"variant": text}, environ={})
    assert (variant_for(config, "mmmu_pro"), variant_for(config, "ocrbench")) == (own, other)
