"""What degraded answers look like, and what answers to different questions must not share."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kvv.cases.checks import Check, CheckInput, CheckProblem
from kvv.cases.checks.base import cut, inconclusive, index_by_name, quote
from kvv.cases.checks.schema import read_json
from kvv.cases.contract.build import Answers, Builder
from kvv.core import Answered
from kvv.suites.streaming.checks import counts_up

#: the same sign so often in a row is no language
RUN = re.compile(r"([^\s\d.=*_#~-])\1{11,}")
#: so many words in a row, said again and again, are a loop
GRAM, AGAIN = 8, 4
#: texts shorter than this many characters are not judged as language
SHORT = 12
#: English prose is letters and spaces for the most part, and hardly any of them of another script
LETTERS, FOREIGN = 0.6, 0.05


def no_junk(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """English prose without runs of one sign, loops, control characters, a flood of signs, or words of another
    script.
    """
    text = look.observation.answer
    if not text.strip():
        return cut(look) or CheckProblem(reason="no-content", detail="no content where prose was asked for")
    found = junk(text)
    return None if found is None else CheckProblem(reason="junk", detail=f"{found}: {quote(text)}")


def junk(text: str) -> str | None:
    """Why a text is no English prose, or None."""
    if (run := RUN.search(text)) is not None:
        return f"{run[1]!r} stands {len(run[0])} times in a row"
    if any((unicodedata.category(sign) == "Cc" and sign not in "\n\r\t") or sign == "\ufffd" for sign in text):
        return "control or replacement characters"
    words = text.split()
    grams = Counter(tuple(words[at : at + GRAM]) for at in range(len(words) - GRAM + 1))
    if grams and (most := max(grams.values())) >= AGAIN:
        return f"the same {GRAM} words stand {most} times"
    if len(text) < SHORT:
        return None
    letters = [sign for sign in text if sign.isalpha()]
    if (len(letters) + text.count(" ")) / len(text) < LETTERS:
        return "most of it is neither letters nor spaces"
    foreign = sum("LATIN" not in unicodedata.name(sign, "") for sign in letters)
    if letters and foreign > FOREIGN * len(letters):
        return f"{foreign} of {len(letters)} letters are of another script"
    return None


def each_value(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ name = value }``: the content of each answer is its own JSON value; one that is another's was mixed up."""
    for name, value in wanted.items():
        try:
            found = read_json(look.siblings[name].observation.answer)
        except ValueError as error:
            return _cut(look.siblings[name]) or CheckProblem(reason="content-not-json", detail=f"{name}: {error}")
        if found != value:
            other = next((one for one, theirs in wanted.items() if theirs == found), None)
            reason = "answers-mixed-up" if other else "wrong-value"
            return CheckProblem(
                reason=reason, detail=f"{name} has {quote(str(found))}" + (f", the answer to {other}" if other else "")
            )
    return None


def each_says(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ name = text }``: the content of each answer holds its own text, and no other's."""
    for name, text in wanted.items():
        answer = look.siblings[name].observation.answer.casefold()
        if str(text).casefold() not in answer:
            return _cut(look.siblings[name]) or CheckProblem(
                reason="wrong-answer", detail=f"{name}: {quote(answer)}, want {text}"
            )
        stranger = next((other for other in wanted.values() if other != text and str(other).casefold() in answer), None)
        if stranger is not None:
            return CheckProblem(reason="answers-mixed-up", detail=f"{name}: {quote(answer)} holds {stranger}")
    return None


def _cut(answered: Answered) -> CheckProblem | None:
    return (
        inconclusive("cut-by-length", "an answer was cut by length")
        if answered.observation.finish_reason == "length"
        else None
    )


def sentences(argument: Any, answers: Answers) -> str:
    """``[n, topic]``: n plain sentences that differ: a prefix long enough for caches, whose blocks hold some hundred
    tokens.
    """
    count, topic = argument
    return " ".join(_sentence(at, str(topic)) for at in range(1, int(count) + 1))


def _sentence(at: int, topic: str) -> str:
    parts: Iterable[str] = ("north", "south", "east", "west", "river", "hill", "market")
    part = list(parts)[at % 7]
    return (
        f"Note {at} about the {topic}: its {part} side was painted in year {1700 + at * 13 % 300} by crew"
        f" {at * 7 % 50}."
    )


CHECKS: Mapping[str, Check] = index_by_name([no_junk, counts_up])
COMPARISONS: Mapping[str, Check] = index_by_name([each_value, each_says])
BUILDERS: Mapping[str, Builder] = {"sentences": sentences}
