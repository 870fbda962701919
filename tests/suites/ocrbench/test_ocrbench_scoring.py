"""The official rule of OCRBench, on the official questions where they are at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.suites.ocrbench.scoring import is_formula, matching, normalise

SHARED = Path(os.environ.get("KVV_SHARED") or Path(__file__).resolve().parents[3].parent / "shared")
OFFICIAL = SHARED / "data/ocrbench/OCRBench.json"


@pytest.fixture(scope="module")
def official() -> list[dict[str, Any]]:
    if not OFFICIAL.is_file():
        pytest.skip(f"no official questions in {SHARED} (KVV_SHARED)")
    rows: list[dict[str, Any]] = json.loads(OFFICIAL.read_text("utf-8"))
    return rows


def golds(row: dict[str, Any]) -> list[str]:
    return [row["answers"]] if isinstance(row["answers"], str) else row["answers"]


def hit(row: dict[str, Any], prediction: str) -> bool:
    return matching(prediction, golds(row), formula=is_formula(row["dataset_name"], row["type"])) is not None


def test_gold_scores_1000_empty_0_and_the_question_itself_10(official: list[dict[str, Any]]) -> None:
    assert sum(hit(row, answer) for row in official for answer in golds(row)[:1]) == 1000
    assert all(hit(row, answer) for row in official for answer in golds(row))
    assert sum(hit(row, "") for row in official) == 0
    assert sum(hit(row, row["question"]) for row in official) == 10


def test_formulas_are_the_same_rows_by_data_set_and_by_type(official: list[dict[str, Any]]) -> None:
    by_name = [row["id"] for row in official if is_formula(row["dataset_name"], "")]
    by_type = [row["id"] for row in official if is_formula("", row["type"])]
    assert by_name == by_type
    assert len(by_name) == 100


@pytest.mark.parametrize(
    ("prediction", "answer", "right"),
    [
        ("The word is CENTRE.", "centre", True),
        ("cen\ntre", "cen tre", True),
        ("  centre  ", "CENTRE", True),
        ("c e n t r e", "centre", False),
        ("CEN<|x|>TRE", "CENTRE", False),
        ("entre", "centre", False),
        ("ＣＥＮＴＲＥ", "centre", False),  # lmms-eval folds full-width letters, the official rule does not
    ],
)
def test_texts_are_compared_in_lower_case_with_their_spaces(prediction: str, answer: str, right: bool) -> None:
    assert (matching(prediction, [answer], formula=False) is not None) is right


@pytest.mark.parametrize(
    ("prediction", "answer", "right"),
    [
        ("$y_2 = -1$", "y _ { 2 } = - 1\n", False),
        ("y _ { 2 } = - 1", "y _ { 2 } = - 1\n", True),
        ("so y_{2}=-1 it is", "y _ { 2 } = - 1\n", True),
        ("Y_{2}=-1", "y _ { 2 } = - 1\n", False),
        ("\\dfrac{1}{2}", "\\frac { 1 } { 2 }", False),
        ("\\frac{1}\n{2}", "\\frac { 1 } { 2 }", True),
    ],
)
def test_formulas_keep_their_case_and_lose_their_spaces(prediction: str, answer: str, right: bool) -> None:
    assert (matching(prediction, [answer], formula=True) is not None) is right


def test_any_alternative_counts_and_an_empty_one_never() -> None:
    assert matching("line 42", ["43", "42", "line 42"], formula=False) == "42"
    assert matching("anything", ["", " \n"], formula=False) is None


@given(st.text(), st.text(min_size=1), st.text(), st.booleans())
def test_a_gold_answer_inside_a_sentence_is_always_found(before: str, answer: str, after: str, formula: bool) -> None:
    if normalise(answer, formula=formula) and (formula or answer.strip() == answer):
        found = matching(f"{before} {answer} {after}", [answer], formula=formula)
        # lower-casing is not the same in and out of a word (final sigma): those texts are not the rule's matter
        assert found == answer or "Σ" in answer + before + after
