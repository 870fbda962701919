"""A think block that a server left in the content is no part of the answer, if it stands whole at the beginning."""

from __future__ import annotations

import pytest

from kvv.protocol.visible_text import visible


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        ("<think>A or B?</think>\nB", "\nB"),
        ("\n <THINK>x</Think>y", "y"),
        ("<thinking>x</thinking>y", "y"),
        ("<think></think>", ""),
        # neighbours that stay as they are
        ("<think>never ends, Answer: A", "<think>never ends, Answer: A"),
        ("Answer <think>x</think>", "Answer <think>x</think>"),
        ("x</think>y", "x</think>y"),
        ("<thinker>x</think>y", "<thinker>x</think>y"),
        ("", ""),
    ],
)
def test_only_a_whole_leading_block_is_taken_off(answer: str, seen: str) -> None:
    assert visible(answer) == seen


def test_a_long_answer_is_searched_once() -> None:
    assert visible("<think>" * 100_000) == "<think>" * 100_000
