"""The official parser of MMMU-Pro: branch by branch, and on the recorded answers with the verdicts that the official
script stored.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.suites.mmmu_pro.parsing import Branch, letters, parse
from kvv.suites.mmmu_pro.suite import read_options

SHARED = Path(os.environ.get("KVV_SHARED") or Path(__file__).resolve().parents[3].parent / "shared")
FOUR = ("Paris", "Rome", "Lisbon", "Vienna")

Recorded = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    found = {}
    for kind in ("cot", "direct"):
        path = SHARED / f"data/mmmu_pro/gpt-4o_standard10_{kind}.jsonl.gz"
        if not path.is_file():
            pytest.skip(f"no recorded answers in {SHARED} (KVV_SHARED)")
        with gzip.open(path) as lines:
            found[kind] = [json.loads(line) for line in lines]
    return found


def never(n: int) -> int:
    raise AssertionError("nothing should be guessed")


def score(rows: list[dict[str, Any]], change: Callable[[dict[str, Any]], str]) -> float:
    """Percent under the official parser; guesses count 0."""
    right = 0
    for row in rows:
        found = parse(change(row), read_options(row["options"]), lambda n: 0)
        right += not found.guessed and found.letter == row["answer"]
    return round(100 * right / len(rows), 2)


# --- recorded answers ------------------------------------------------------------------------------


def test_every_recorded_row_is_read_as_the_official_script_read_it(recorded: Recorded) -> None:
    branches: dict[str, Counter[Branch]] = {}
    for kind, rows in recorded.items():
        branches[kind] = Counter()
        for row in rows:
            found = parse(row["response"], read_options(row["options"]), lambda n: 0)
            branches[kind][found.branch] += 1
            if not found.guessed:
                assert (found.letter, found.letter == row["answer"]) == (row["pred_indexs"], row["if_right"]), row["id"]
    assert sum(branches["cot"].values()) == sum(branches["direct"].values()) == 1730
    assert branches["cot"][Branch.ANSWER_LINE] == 1715
    assert branches["cot"][Branch.GUESS] == 0
    assert branches["direct"][Branch.ANSWER_LINE] == 10
    assert branches["direct"][Branch.GUESS] == 7


def test_the_recorded_scores_come_out(recorded: Recorded) -> None:
    assert score(recorded["cot"], lambda row: row["response"]) == 55.03
    stored = [row["if_right"] for row in recorded["direct"]]
    assert round(100 * sum(stored) / 1730, 2) == 40.12
    # the seven guesses may each be wrong
    assert 40.12 - 100 * 7 / 1730 <= score(recorded["direct"], lambda row: row["response"]) <= 40.12


@pytest.mark.parametrize(
    ("change", "percent"),
    [
        # what decorates the letter costs nothing, another word for it something, a sentence behind it almost everything
        (lambda row: re.sub(r"Answer: *([A-L])", r"**Answer:** \1", row["response"]), 55.03),
        (lambda row: re.sub(r"Answer: *([A-L])", r"Answer: \\boxed{\1}", row["response"]), 55.03),
        (lambda row: row["response"].replace("Answer:", "ANSWER:"), 50.87),
        (lambda row: row["response"] + "\nI hope this helps.", 20.12),
        (lambda row: row["response"].rstrip().rpartition("\n")[0], 28.21),
        (lambda row: row["response"][:800], 30.17),
        (lambda row: row["response"][:500], 23.01),
        (lambda row: row["response"][:200], 14.91),
        (lambda row: "", 12.37),
    ],
)
def test_the_sensitivity_table_holds(
    recorded: Recorded, change: Callable[[dict[str, Any]], str], percent: float
) -> None:
    """Where the parser guesses, within three standard deviations of what guessing gives."""
    sure = chance = variance = 0.0
    for row in recorded["cot"]:
        options = read_options(row["options"])
        found = parse(change(row), options, lambda n: 0)
        if not found.guessed:
            sure += found.letter == row["answer"]
        elif row["answer"] in letters(len(options)):
            chance += 1 / len(options)
            variance += (1 - 1 / len(options)) / len(options)
    n = len(recorded["cot"])
    assert abs(100 * (sure + chance) / n - percent) <= 0.006 + 300 * math.sqrt(variance) / n


# --- branches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "letter", "branch"),
    [
        ("So it is Rome.\nAnswer: B", "B", Branch.ANSWER_LINE),
        ("Answer: A\n\nNo, wait.\nAnswer: C", "C", Branch.ANSWER_LINE),
        ("Answer:D", "D", Branch.ANSWER_LINE),
        ("Answer: the letter is B indeed", "B", Branch.ANSWER_LINE),
        # a capital inside a word counts: here the R of Rome is none of the four, the A of "Austria" is
        ("Answer: B. Rome", "B", Branch.ANSWER_LINE),
        ("Answer: D. Vienna in Austria", "D", Branch.LETTER_DOT),
        ("(A) is wrong, (C) is right", "C", Branch.PARENTHESES),
        ("I choose B , or so", "B", Branch.LETTER_SPACE),
        ("B.", "B", Branch.LETTER_SPACE),  # the dot is stripped, the padding makes a space
        ("It must be:\nC.\nSince the rest fails", "C", Branch.LETTER_DOT),
        ("the city in question must be lisbon, says the map", "C", Branch.OPTION_TEXT),
        ("either rome or paris, but paris is what the map says", "A", Branch.OPTION_TEXT),
    ],
)
def test_each_branch_finds_its_letter(response: str, letter: str, branch: Branch) -> None:
    found = parse(response, FOUR, never)
    assert (found.letter, found.branch) == (letter, branch)


def test_the_last_of_several_wins_and_ties_fall_to_the_first() -> None:
    assert parse("Between A and C I say A then", FOUR, never).letter == "A"
    # words that end in a capital are candidates without a place of their own: the first of them
    tied = parse("xB xC ", FOUR, never)
    assert (tied.letter, tied.branch, tied.candidates) == ("B", Branch.LETTER_SPACE, 2)


def test_an_ambiguous_answer_line_is_marked_and_falls_through() -> None:
    found = parse("(B) it seems.\nAnswer: A or C", FOUR, never)
    assert (found.letter, found.branch, found.ambiguous_line) == ("B", Branch.PARENTHESES, True)
    assert parse("Answer: none of them", FOUR, lambda n: 2).ambiguous_line


@pytest.mark.parametrize("response", ["", "no idea", "the map says nothing of these places at all", "a", "answer: b"])
def test_what_names_no_option_is_guessed(response: str) -> None:
    found = parse(response, FOUR, lambda n: n - 1)
    assert (found.letter, found.guessed) == ("D", True)


def test_few_words_are_not_searched_for_option_texts() -> None:
    assert parse("lisbon it is, I say", FOUR, lambda n: 0).guessed
    assert parse("lisbon it is, I say so", FOUR, never).branch is Branch.OPTION_TEXT


@pytest.mark.parametrize("n", [1, 2, 4, 10, 12, 26])
def test_lists_of_any_length_are_lettered(n: int) -> None:
    options = [f"option number {number}" for number in range(n)]
    last = letters(n)[-1]
    assert parse(f"Answer: {last}", options, never).letter == last
    assert parse("", options, lambda count: count - 1).letter == last


@pytest.mark.parametrize("n", [0, 27])
def test_lists_that_have_no_letters_are_refused(n: int) -> None:
    with pytest.raises(ValueError, match="cannot be lettered"):
        parse("x", ["o"] * n, never)


@given(st.text(), st.lists(st.text(), min_size=1, max_size=12), st.integers(0, 11))
def test_any_text_gives_a_letter_of_the_list(response: str, options: list[str], pick: int) -> None:
    found = parse(response, options, lambda n: pick % n)
    assert found.letter in letters(len(options))
    assert found.guessed is (found.candidates == 0)


# --- options ---------------------------------------------------------------------------------------


def test_options_are_read_from_a_python_literal_or_a_list() -> None:
    assert read_options("['a', \"it's\", 'c\\\\d']") == ("a", "it's", "c\\d")
    assert read_options(["a", 1]) == ("a", "1")
    # the one nested row of the public set
    assert read_options("[['A', 'B', 'Not enough information']]") == ("['A', 'B', 'Not enough information']",)


LONG = ["['x'" + ", 'x'" * 26 + "]", "'" + "x" * 200_000 + "'", "[" * 5_000]


@pytest.mark.parametrize(
    "text", ["__import__('os').system('x')", "[", "['a' * 9]", "'a'", "[]", "{}", "", "1e999", None, 5, *LONG]
)
def test_anything_else_is_refused_and_never_evaluated(text: object) -> None:
    with pytest.raises(ValueError, match=r"literal|should be a list|longer than"):
        read_options(text)


@given(st.text(max_size=200))
def test_any_text_is_options_or_refused(text: str) -> None:
    said = ""
    try:
        assert 1 <= len(read_options(text)) <= 26
    except ValueError as error:
        said = str(error)
    assert "\n" not in said
