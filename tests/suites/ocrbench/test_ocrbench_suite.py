"""The suite ocrbench: what is sent, how an answer is judged, which row comes out; the fixture and the script that drew
it.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

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
    PictureForm,
    Role,
    Shape,
    Verdict,
)
from kvv.data import load
from kvv.data.pictures import pictures_of
from kvv.profiles.profile import load_profile
from kvv.suites.ocrbench.rows import GROUPS
from kvv.suites.ocrbench.suite import OcrBenchSuite, questions

ROOT = Path(__file__).resolve().parents[3]
SUITE = OcrBenchSuite()
FIXTURE = load("ocrbench", fixture=True)


def context(dataset: Dataset | None = FIXTURE, preset: str = "", **fields: Any) -> Context:
    settings = Settings(**{"temperature": 1.0, "top_p": 0.95, "max_tokens": 16_384, **fields})
    return Context(model="m", profile=load_profile("openai"), settings=settings, dataset=dataset, preset=preset)


def rows(*changes: dict[str, Any]) -> Dataset:
    return replace(FIXTURE, rows=[{**FIXTURE.rows[0], **change} for change in changes], fixture=False, origin="x.jsonl")


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
    assert isinstance(load_suite("ocrbench"), OcrBenchSuite)
    assert SUITE.judge_timeout_s is None


def test_the_request_is_the_picture_then_the_question_verbatim() -> None:
    case = SUITE.cases(context())[0]
    request = SUITE.request(case)
    assert isinstance(request.body, dict)
    (message,) = request.body["messages"]
    assert [part["type"] for part in message["content"]] == ["image_url", "text"]
    assert message["content"][1]["text"] == "what is written in the image?"
    assert (request.body["temperature"], request.body["top_p"], request.body["max_tokens"]) == (1.0, 0.95, 16_384)
    picture = message["content"][0]["image_url"]["url"]
    assert request.expect_prompt_tokens == picture.tokens + len("what is written in the image?") // 4


@pytest.mark.parametrize(("preset", "form"), [("", PictureForm.AS_IS), ("kvv", PictureForm.KVV_JPEG)])
def test_pictures_go_as_they_are_or_as_kvv_sends_them_and_the_report_says_which(preset: str, form: PictureForm) -> None:
    where = context(preset=preset)
    cases = SUITE.cases(where)
    assert {picture.form for case in cases for picture in pictures_of(case.inputs["body"])} == {form}
    (row,) = SUITE.metrics([], where)
    assert ("JPEG with Pillow's defaults" in row.comparability["images"]) is (preset == "kvv")


def test_ids_come_from_the_content_whatever_the_order_and_the_picture() -> None:
    ids = [case.id for case in SUITE.cases(context())]
    assert len(set(ids)) == len(FIXTURE.rows)
    turned = replace(FIXTURE, rows=list(reversed(FIXTURE.rows)))
    assert [question.case for question in questions(turned)] == ids[::-1]
    twice = [
        question.case for question in questions(rows({}, {"image": FIXTURE.rows[1]["image"]}, {"answer": ["other"]}))
    ]
    assert twice[0] == ids[0]
    assert twice[1] == f"{ids[0]}-2"
    assert twice[2] != ids[0]


def test_a_row_without_an_answer_is_named() -> None:
    with pytest.raises(ValueError, match=r"x\.jsonl: row 2: column 'answer' holds no text"):
        SUITE.cases(context(rows({}, {"answer": ["", " "]})))


@pytest.mark.parametrize(
    ("text", "finish_reason", "outcome", "reason"),
    [
        ("It says Harbour.", "stop", Outcome.PASS, ""),
        ("It says Harbor.", "stop", Outcome.FAIL, "wrong-answer"),
        (None, "stop", Outcome.FAIL, "no-answer"),
        ("<think>harbour? no</think> Port", "stop", Outcome.FAIL, "wrong-answer"),
        ("harbour", "length", Outcome.PASS, ""),
    ],
)
def test_the_visible_completion_is_judged(text: str | None, finish_reason: str, outcome: Outcome, reason: str) -> None:
    case = SUITE.cases(context())[0]
    verdict = SUITE.judge(case, answered(case, text, finish_reason))
    assert (verdict.outcome, verdict.reason, verdict.truncated) == (outcome, reason, finish_reason == "length")
    right = float(outcome is Outcome.PASS)
    assert verdict.values == {"correct": right, "moonshot": right}


def test_the_row_holds_the_official_score_and_a_table_per_type() -> None:
    cases = SUITE.cases(context())
    texts = [f"It reads: {case.inputs['answers'][0]}" if place % 2 else "-" for place, case in enumerate(cases)]
    verdicts = [(case, SUITE.judge(case, answered(case, text))) for case, text in zip(cases, texts, strict=True)]
    lost = Verdict(case=cases[0].id, sample=0, outcome=Outcome.INCONCLUSIVE, reason="reset")
    verdicts[0] = (cases[0], lost)
    (row,) = SUITE.metrics(verdicts, context())
    hits = sum(verdict.outcome is Outcome.PASS for _, verdict in verdicts)
    assert row.primary
    assert (row.n_planned, row.n_concluded, row.n_inconclusive) == (22, 21, 1)
    assert row.estimate == pytest.approx(hits / 21)
    assert row.breakdown["final_score"] == hits == 11
    assert row.breakdown["final_score_of"] == 22
    assert set(row.breakdown["question_types"]) == set(GROUPS)
    assert row.breakdown["question_types"]["Regular Text Recognition"] == {
        "value": 1.0,
        "n_concluded": 1,
        "n_planned": 2,
    }
    assert row.breakdown["groups"]["Text Recognition"]["n_planned"] == 12
    assert "no score out of 1000" in row.comparability["final_score"]


def test_the_key_answers_rightly_and_wrongly_for_both_ways_of_sending() -> None:
    cases = {case.id: case for case in SUITE.cases(context())}
    entries = SUITE.answer_key(FIXTURE)
    assert {(entry.case, entry.pictures[0].form) for entry in entries} == {
        (case, form) for case in cases for form in PictureForm
    }
    for entry in entries:
        case = cases[entry.case]
        assert SUITE.judge(case, answered(case, entry.right_text)).outcome is Outcome.PASS
        assert SUITE.judge(case, answered(case, entry.wrong_text)).outcome is Outcome.FAIL
    assert {entry.pictures[0].form for entry in SUITE.answer_key(rows({}))} == {PictureForm.AS_IS}


# --- the fixture -----------------------------------------------------------------------------------


def test_the_fixture_covers_all_ten_types_in_several_formats_and_stays_small() -> None:
    kinds = [row["question_type"] for row in FIXTURE.rows]
    assert len(kinds) >= 20
    assert set(kinds) == set(GROUPS)
    assert {row["image"].media for row in FIXTURE.rows} == {"image/png", "image/jpeg", "image/webp", "image/gif"}
    total = sum(
        path.stat().st_size
        for name in ("ocrbench", "mmmu_pro")
        for path in (ROOT / "fixtures" / name).rglob("*")
        if path.is_file()
    )
    assert total < 400_000


def test_the_kept_script_draws_the_fixtures(tmp_path: Path) -> None:
    """Row for row; picture for picture up to what another version of Pillow or FreeType draws differently."""
    place = importlib.util.spec_from_file_location("kvv_make_images", ROOT / "fixtures/make_images.py")
    assert place is not None
    assert place.loader is not None
    script = importlib.util.module_from_spec(place)
    place.loader.exec_module(script)
    script.write_all(tmp_path)
    for name in (
        "ocrbench/test.jsonl",
        "mmmu_pro/standard10.jsonl",
        "mmmu_pro/standard4.jsonl",
        "mmmu_pro/vision.jsonl",
    ):
        assert [json.loads(line) for line in (tmp_path / name).read_text("utf-8").splitlines()] == [
            json.loads(line) for line in (ROOT / "fixtures" / name).read_text("utf-8").splitlines()
        ]
    shipped = sorted(path.relative_to(ROOT / "fixtures") for path in ROOT.glob("fixtures/*/images/*"))
    assert shipped == sorted(path.relative_to(tmp_path) for path in tmp_path.glob("*/images/*"))
    for path in shipped:
        with Image.open(ROOT / "fixtures" / path) as ours, Image.open(tmp_path / path) as drawn:
            assert abs(ours.width - drawn.width) <= 4
            assert abs(ours.height - drawn.height) <= 4


def test_a_refused_request_is_wrong_and_a_lost_one_is_neither() -> None:
    case = SUITE.cases(context())[0]
    lost = replace(
        answered(case, None),
        exchange=replace(answered(case, None).exchange, status=None, fault=Fault(kind=FaultKind.RESET, detail="x")),
        observation=Observation(shape=Shape.NONE),
    )
    done = SUITE.step(case, [(lost,)])
    assert done.verdict.outcome is Outcome.INCONCLUSIVE  # type: ignore[union-attr]
