"""Scoring of AIME answers: KVV's lenient rule as it was measured (math-verify 0.9.0), and the strict one beside it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvv.execution.workers import Workers, WorkerTimeout
from kvv.suites.aime2025.scoring import after_thinking, gold_integer, integer, last_box, score, scorer_name

LONG = (
    "We then look at the remaining case with care, and see that the first attempt had counted one configuration twice. "
    * 3
)

#: text, gold, KVV's rule, strict rule
READINGS = [
    # both rules give the point
    (r"So the sum is \boxed{70}.", "70", True, True),
    (r"\boxed{70} and once more: \boxed{70}", "70", True, True),
    (r"\boxed{070}", "70", True, True),
    (r"\boxed{70}", "070", True, True),
    (r"$\boxed{ 70 }$", "70", True, True),
    (r"\boxed{336}", r"336^\circ", True, True),
    (r"First I got \boxed{49}. Actually correct: \boxed{70}", "70", True, True),
    (rf"First \boxed{{49}}. {LONG} Hence \boxed{{70}}", "70", True, True),
    (r"\boxed{0}", "0", True, True),
    # the lenient rule alone: the value is right, the form is not the asked one
    (r"\boxed{21+49}", "70", True, False),
    (r"\boxed{21+49=70}", "70", True, False),
    (r"\boxed{m+n=70}", "70", True, False),
    (r"\boxed{x = 70}", "70", True, False),
    (r"\boxed{\frac{140}{2}}", "70", True, False),
    (r"\boxed{70.0}", "70", True, False),
    (r"\boxed{70\text{ units}}", "70", True, False),
    (r"\boxed{70\%}", "70", True, False),
    (r"\boxed{336^\circ}", "336", True, False),
    ("**Final Answer: 70**", "70", True, False),
    ("The answer is **70**.", "70", True, False),
    ("The answer is 70.", "70", True, False),
    # points that only the lenient rule gives and nobody should: cut, given up, leaked thinking
    ("Adding the cases 21 and 49 we get 70", "70", True, False),
    ("I ran out of 70", "70", True, False),
    # wrong by both
    (r"<think>maybe \boxed{70}</think> I can't solve it", "70", False, False),
    (r"First \boxed{70}. Then \boxed{49}", "70", False, False),
    (r"\boxed{70}, \boxed{49}", "70", False, False),
    (r"\boxed{21, 49}", "70", False, False),
    (r"{21, 49}", "70", False, False),
    (r"\boxed{seventy}", "70", False, False),
    (r"\boxed{}", "70", False, False),
    ("boxed{70}", "70", False, False),
    (r"\boxed{70.0000001}", "70", False, False),
    ("there is no number here", "70", False, False),
    ("", "70", False, False),
    (r"\boxed{71}", "70", False, False),
    (r"\boxed{-70}", "70", False, False),
    (r"\boxed{7}", "70", False, False),
    (r"\boxed{700}", "70", False, False),
    (rf"First \boxed{{70}}. {LONG} Hence \boxed{{49}}", "70", False, False),
    # wrong by the lenient rule alone, which joins boxes that stand close together
    (r"\boxed{49} and \boxed{70}", "70", False, True),
]


@pytest.mark.parametrize(
    ("text", "reasoned", "own", "moonshot"),
    [
        # a leading block goes in both readings, one in the middle only in KVV's, where no field held the reasoning
        (r"<think>\boxed{49}</think>\boxed{70}", False, True, True),
        (r"It is \boxed{49}<think>no</think>", False, False, False),
        (r"<think>a</think><think>\boxed{49}</think>\boxed{70}", False, False, False),
        (r"So: <think>\boxed{70}</think>", False, True, False),
        (r"So: <think>\boxed{70}</think>", True, True, True),
        # other spellings of the tag are no block to KVV
        (r"<THINK>\boxed{70}</THINK> no idea", False, False, True),
        (r"<thinking>\boxed{70}</thinking> no idea", False, False, True),
        (r"<think>\boxed{70}", False, True, True),
    ],
)
def test_think_blocks_are_taken_off_as_each_reading_has_it(
    text: str, reasoned: bool, own: bool, moonshot: bool
) -> None:
    found = score(text, "70", reasoned=reasoned)
    assert (found.lenient, found.moonshot) == (own, moonshot)


@pytest.mark.parametrize(("text", "gold", "lenient", "strict"), READINGS)
def test_readings_of_an_answer(text: str, gold: str, lenient: bool, strict: bool) -> None:
    found = score(text, gold)
    assert (found.lenient, found.strict) == (lenient, strict)


def test_what_was_extracted_is_shown() -> None:
    found = score(r"\boxed{m+n=71}", "70")
    assert (found.lenient_answer, found.strict_answer) == ("m+n=71", "m+n=71")
    assert score("nothing", "70").lenient_answer == ""
    assert len(score(rf"\boxed{{{'9' * 5_000}}}", "70").strict_answer) <= 120


def test_the_scorers_versions_are_named() -> None:
    assert scorer_name().startswith("math-verify-")
    assert "latex2sympy2_extended-" in scorer_name()


def test_scoring_works_outside_the_main_thread() -> None:
    """math-verify's own alarm raises there, and a blanket except then scores every answer 0."""

    async def main() -> bool:
        return (await asyncio.to_thread(score, r"\boxed{70}", "70")).lenient

    assert asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{1} \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {5}", "5"),
        (r"\boxed{a \} b}", r"a \} b"),
        (r"\boxed{1} \boxed{2", None),
        (r"\boxed{1} \boxed 7", "1"),
        (r"\boxedness{3}", None),
        (r"\boxed{\boxed{4}}", "4"),
        ("no box", None),
        ("\\boxed{1}\\boxed{2\\", None),
    ],
)
def test_the_last_box_is_found_with_balanced_braces(text: str, box: str | None) -> None:
    assert last_box(text) == box


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            ("70", 70),
            (" 070 ", 70),
            ("+70", 70),
            ("-3", -3),
            ("$70$", 70),
            (r"\,70\!", 70),
            ("0", 0),
            ("999999999999999999", 10**18 - 1),
        ),
        *(("", None), ("--7", None), ("7 0", None), ("70.0", None), ("7e1", None), ("٧٠", None), ("70\\%", None)),
        *(("1" * 19, None), ("x" * 10_000, None)),
    ],
)
def test_integers_are_digits_and_nothing_else(text: str, value: int | None) -> None:
    assert integer(text) == value


def test_a_golds_degree_sign_is_no_part_of_the_number() -> None:
    assert gold_integer(r"336^\circ") == 336
    assert integer(r"336^\circ") is None


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("<think>a</think>b<think>c", "b"),
        ("<THINK>a</Thinking>b", "b"),
        ("<think>never ends", ""),
        ("plain", "plain"),
    ],
)
def test_leaked_thinking_is_no_answer(text: str, rest: str) -> None:
    assert after_thinking(text) == rest


PIECES = st.sampled_from(
    [
        "\\boxed{",
        "}",
        "{",
        "70",
        " ",
        "\\",
        "$",
        "=",
        "+",
        "\\frac{1}{2}",
        "<think>",
        "</think>",
        "\n",
        "x",
        "**",
        ",",
        "The answer is ",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=10).map("".join)))
def test_no_text_makes_the_scorer_raise(text: str) -> None:
    found = score(text, "70")
    assert not (found.strict and not found.strict_answer)


@settings(max_examples=200)
@given(st.text(alphabet="\\{}boxed 7$<>/think", max_size=80))
def test_no_text_makes_the_strict_reading_raise(text: str) -> None:
    box = last_box(after_thinking(text))
    assert box is None or box in text


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 999), st.integers(0, 999))
def test_a_box_counts_exactly_when_it_holds_the_gold_integer(answer: int, gold: int) -> None:
    found = score(f"Therefore the value is $\\boxed{{{answer:03d}}}$.", str(gold))
    assert found.lenient == found.strict == (answer == gold)


def test_a_long_answer_is_scored_in_linear_time() -> None:
    def cpu_s(size: int) -> float:
        text = r"the value \boxed{12} + 3 = 15 so $x^{2}$ and { } \{ " * size + r"\boxed{70}"
        begin = time.process_time()
        last_box(after_thinking(text))
        last_box(text + r"\boxed{" * (6 * size))
        return time.process_time() - begin

    # of the CPU, at its best of three: eight times the text may not take the square of that
    short, long = (min(cpu_s(size) for _ in range(3)) for size in (1_000, 8_000))
    assert long < 32 * max(short, 0.001)


def test_a_tower_of_powers_is_killed_and_the_next_answer_is_scored() -> None:
    """SymPy would work on 9^(9^(9^9)) for ever, holding the interpreter lock."""

    async def main() -> bool:
        async with Workers(1) as workers:
            name = "kvv.suites.aime2025.scoring:score"
            await workers.run(name, r"\boxed{70}", "70", timeout_s=30)
            with pytest.raises(WorkerTimeout):
                await workers.run(name, r"\boxed{9^{9^{9^{9}}}}", "70", timeout_s=1)
            found = await workers.run(name, r"\boxed{70}", "70", timeout_s=30)
            return bool(found.lenient and found.strict)

    assert asyncio.run(main())


ANSWERS = [
    *("70", "588", "16", "117", "279", "504", "821", "77", "62", "81", "259", "510", "204", "60", "735"),
    *("468", "49", "82", "106", "336", "293", "237", "610", "149", "907", "113", "19", "248", "104", "240"),
]


def _shared() -> Path:
    return Path(os.environ.get("KVV_SHARED") or Path(__file__).parents[4] / "shared") / "data" / "aime25" / "test.jsonl"


def test_the_thirty_public_answers_score_against_themselves_and_not_against_their_neighbours() -> None:
    path = _shared()
    if not path.exists():
        pytest.skip("the shared data folder is absent")
    golds = [json.loads(line)["answer"] for line in path.read_text("utf-8").splitlines()]
    assert golds == ANSWERS
    for gold, other in zip(golds, golds[1:] + golds[:1], strict=True):
        right = score(rf"Hence the answer is $\boxed{{{gold}}}$.", gold)
        wrong = score(rf"Hence the answer is $\boxed{{{other}}}$.", gold)
        assert (right.lenient, right.strict, wrong.lenient, wrong.strict) == (True, True, False, False)
