"""What the reference endpoint answers to a fixture's questions, and what it says as the judge of these answers.

A judge's entry gives one reply, whatever accuracy the endpoint was started with: the model errs, the judge does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kvv.cases.answers import KeyEntry
from kvv.suites.beam.ordering import lines_of
from kvv.suites.beam.scoring import ORDERING, judge_prompts

#: the judge's answers are counted apart from the model's
JUDGE = "beam-judge"


def key_entries(
    suite: str, rows: Sequence[Mapping[str, Any]], case_id: Callable[[Mapping[str, Any], Mapping[str, Any]], str]
) -> Iterator[KeyEntry]:
    """Rows whose questions have ``right`` and ``wrong`` answers; others have no entry."""
    for row in rows:
        for question in row["questions"]:
            if "right" not in question:
                continue
            case = case_id(row, question)
            yield KeyEntry(
                suite=suite,
                case=case,
                prompt=question["question"],
                right_text=question["right"],
                wrong_text=question["wrong"],
            )
            for answer, good in ((question["right"], True), (question["wrong"], False)):
                yield from _judgements(case, question, answer, good)


def _judgements(case: str, question: Mapping[str, Any], answer: str, good: bool) -> Iterator[KeyEntry]:
    ability, rubric = question["question_type"], question["rubric"]
    prompts = judge_prompts(ability, question["question"], rubric, answer)
    first = json.dumps({"reason": "as the fixture says", "score": int(good)})
    replies = [first] * len(prompts)
    if ability == ORDERING:
        lines = [line for line in lines_of(answer) if line.strip()]
        replies = [
            first,
            *(json.dumps({"events": [n for n, event in enumerate(rubric, 1) if event in line]}) for line in lines),
        ]
    for prompt, reply in zip(prompts, replies, strict=True):
        yield KeyEntry(suite=JUDGE, case=case, prompt=prompt, right_text=reply, wrong_text=reply)
