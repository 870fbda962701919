"""The official parser of MMMU-Pro (MMMU-Benchmark/MMMU, mmmu-pro/evaluate.py), with the branch that decided.

Its quirks are kept, for they are the benchmark: letters are searched as capitals anywhere behind the last "Answer:",
also inside words; where nothing is found it guesses. The one difference is that the guess is drawn by the caller's
generator. Options are texts; the official branch that compares their texts raises on the one nested list of the public
set, KVV's casts it first, as the suite does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

MARK = "Answer:"
_STRIPPED = (",", ".", "!", "?", ";", ":", "'")
#: a response of more words than this is searched for the options' own texts
FEW_WORDS = 5


class Branch(StrEnum):
    """What decided. ``ANSWER_LINE``: exactly one letter behind the last "Answer:"; the others come after it, in this
    order.
    """

    ANSWER_LINE = "answer-line"
    PARENTHESES = "(X)"
    LETTER_SPACE = "X-space"
    LETTER_DOT = "X-dot"
    OPTION_TEXT = "option-text"
    GUESS = "guess"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """``ambiguous_line``: there was an "Answer:", and not exactly one letter behind it. The last of ``candidates`` was
    taken.
    """

    letter: str
    branch: Branch
    ambiguous_line: bool = False
    candidates: int = 1

    @property
    def guessed(self) -> bool:
        return self.branch is Branch.GUESS


def letters(n: int) -> str:
    """The first n option letters; ValueError beyond Z."""
    if not 1 <= n <= 26:
        raise ValueError(f"{n} options cannot be lettered")
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:n]


def parse(response: str, options: Sequence[str], guess: Callable[[int], int]) -> Parsed:
    """The chosen letter; ``guess(n)`` gives an index below n where nothing in the response names an option."""
    choices = letters(len(options))
    mark = response.rfind(MARK)
    if mark >= 0:
        line = response[mark + len(MARK) :]
        named = [choice for choice in choices if choice in line]
        if len(named) == 1:
            return Parsed(letter=named[0], branch=Branch.ANSWER_LINE)
    for character in _STRIPPED:
        response = response.strip(character)
    text = f" {response} "
    found = _candidates(text, choices, options)
    if found is None:
        return Parsed(letter=choices[guess(len(choices))], branch=Branch.GUESS, ambiguous_line=mark >= 0, candidates=0)
    # the last one in the text; of equal places (a letter at a word's end is nowhere between spaces: -1) the first
    places = [(text.lower() if found.fold else text).rfind(needle) for needle in found.needles]
    best = places.index(max(places))
    return Parsed(letter=found.choices[best], branch=found.branch, ambiguous_line=mark >= 0, candidates=len(places))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """``needles[i]`` is searched from the end for ``choices[i]``."""

    branch: Branch
    choices: Sequence[str]
    needles: Sequence[str]
    fold: bool = False


def _candidates(text: str, choices: str, options: Sequence[str]) -> _Found | None:
    """The first rule that finds anything. Both letter rules look up the places of " X " afterwards, as the official
    code does.
    """
    for branch, form, place in (
        (Branch.PARENTHESES, "({})", "({})"),
        (Branch.LETTER_SPACE, "{} ", " {} "),
        (Branch.LETTER_DOT, "{}.", " {} "),
    ):
        named = [choice for choice in choices if form.format(choice) in text]
        if named:
            return _Found(branch=branch, choices=named, needles=[place.format(choice) for choice in named])
    if len(text.split()) <= FEW_WORDS:
        return None
    lowered = text.lower()
    quoted = [
        (choice, option.lower()) for choice, option in zip(choices, options, strict=True) if option.lower() in lowered
    ]
    if not quoted:
        return None
    return _Found(
        branch=Branch.OPTION_TEXT,
        choices=[choice for choice, _ in quoted],
        needles=[option for _, option in quoted],
        fold=True,
    )
