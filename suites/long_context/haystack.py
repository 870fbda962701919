"""Long texts with needles in them, from fixed arithmetic: the same argument always gives the same text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from kvv.cases.contract.build import Answers, Builder

#: characters of this text that make a token, near enough for English under the tokenisers of today
CHARS_PER_TOKEN = 4.6
_PLACES = ("eastern", "western", "northern", "southern", "upper", "lower", "inner", "outer")
_HOUSES = (
    "warehouse",
    "workshop",
    "quay",
    "depot",
    "mill",
    "station",
    "bakery",
    "foundry",
    "brewery",
    "tannery",
    "granary",
)
_VERBS = ("received", "sold", "stored", "returned", "repaired", "shipped", "weighed", "unloaded", "inspected")
_GOODS = (
    "copper wire",
    "oak planks",
    "linen rolls",
    "salted fish",
    "roof tiles",
    "lamp oil",
    "rye flour",
    "iron nails",
    "clay pots",
    "wool blankets",
)
_ENDS = (
    "before noon",
    "after the rain",
    "without delay",
    "as agreed",
    "at a fair price",
    "in good order",
    "for the winter",
)
#: a linear congruential sequence (Knuth's MMIX constants): not random, only varied
_STEP, _ADD, _MODULUS = 6364136223846793005, 1442695040888963407, 2**64


def haystack(argument: Any, answers: Answers) -> str:
    """``{ tokens, share, seed, needles = [{ at, text }] }``: about ``share`` of ``tokens`` tokens of plain sentences.

    A needle is put between two sentences, ``at`` saying where: 0 at the front, 1 at the end.
    """
    needles = tuple(sorted((float(needle["at"]), str(needle["text"])) for needle in argument.get("needles", ())))
    tokens = int(float(argument["tokens"]) * float(argument.get("share", 1.0)))
    return _text(tokens, int(argument.get("seed", 1)), needles)


@lru_cache(maxsize=8)
def _text(tokens: int, seed: int, needles: tuple[tuple[float, str], ...]) -> str:
    """Remembered, since a prompt of a million tokens is built once for each of its questions."""
    length = int(tokens * CHARS_PER_TOKEN)
    parts: list[str] = []
    waiting = list(needles)
    size = 0
    for sentence in _sentences(seed):
        while waiting and size >= waiting[0][0] * length:
            parts.append(waiting.pop(0)[1])
        if size >= length:
            break
        parts.append(sentence)
        size += len(sentence) + 1
    return " ".join([*parts, *(text for _, text in waiting)])


def _sentences(seed: int) -> Iterator[str]:
    state = (seed * 2 + 1) % _MODULUS
    while True:
        state = (state * _STEP + _ADD) % _MODULUS
        bits = state >> 20
        picked = []
        for words in (_PLACES, _HOUSES, _VERBS, _GOODS, _ENDS):
            bits, at = divmod(bits, len(words))
            picked.append(words[at])
        place, house, verb, goods, end = picked
        yield f"The {place} {house} {verb} {2 + bits % 97} loads of {goods} {end}."


BUILDERS: Mapping[str, Builder] = {"haystack": haystack}
