"""The suite ``ocrbench``: one picture and a question each, scored by the official substring rule.

Sources: Yuliang-Liu/MultimodalOCR (data, prompt, rule), MoonshotAI/Kimi-Vendor-Verifier (order of parts, re-encoding,
sampling). The question is sent verbatim behind its picture, without a system prompt. Pictures go as they are; under
``--preset moonshot`` as KVV re-encodes them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvv.cases.answers import KeyEntry
from kvv.cases.suite import Column, Context, SingleTurn
from kvv.core import Answered, Case, Dataset, Outcome, Picture, PictureForm, Stat, Verdict
from kvv.profiles.profile import Sampling
from kvv.protocol.visible_text import inspect_visible, visible
from kvv.suites.ocrbench import rows
from kvv.suites.ocrbench.scoring import is_formula, matching, normalise

#: characters of a text in facts
EXCERPT = 200
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OcrQuestion:
    """One row. ``case`` comes from the content, so that the same question has the same id whatever copy of the set it
    came from.
    """

    case: str
    dataset: str
    question_type: str
    text: str
    answers: tuple[str, ...]
    picture: Picture

    @property
    def formula(self) -> bool:
        return is_formula(self.dataset, self.question_type)


class OcrBenchSuite(SingleTurn):
    """One case per row."""

    id = "ocrbench"
    title = "OCRBench"
    requirement = "The text that a question about a picture asks for stands in the visible completion."
    source = "https://github.com/Yuliang-Liu/MultimodalOCR"
    version = "1"
    dataset = "ocrbench"
    counted = "accuracy"
    columns = (Column(suite="ocrbench", title="OCRBench", whole=1_000, key="ocrbench"),)
    column_rank = 10
    kvv_sampling = Sampling(
        temperature=1.0, temperature_off=0.6, top_p=0.95, max_tokens=16_384, expect_completion_tokens=1_500
    )
    spread = 0.89 * 0.11 * 0.09

    def cases(self, context: Context) -> list[Case]:
        """ValueError names a row without any answer."""
        if context.dataset is None:
            return []
        form = picture_form(context)
        return [
            self.case(
                question.case,
                context,
                context.body([{"role": "user", "content": _content(question, form)}]),
                answers=list(question.answers),
                formula=question.formula,
                dataset=question.dataset,
                question_type=question.question_type,
                stratum=question.question_type,
                prompt_tokens=question.picture.tokens + len(question.text) // CHARACTERS_PER_TOKEN,
            )
            for question in questions(context.dataset)
        ]

    def judge(self, case: Case, answered: Answered) -> Verdict:
        """PASS where a gold alternative is in the visible completion."""
        observation, inputs = answered.observation, case.inputs
        text = visible(observation.answer)
        found = matching(text, inputs["answers"], formula=inputs["formula"])
        inspected = inspect_visible(observation.answer, reasoned=bool(observation.reasoning))
        moonshot = found if inspected == text else matching(inspected, inputs["answers"], formula=inputs["formula"])
        truncated = observation.finish_reason == "length"
        reason = "" if found is not None else "wrong-answer" if text.strip() else "no-answer"
        return Verdict(
            case=case.id,
            sample=case.sample,
            outcome=Outcome.FAIL if found is None else Outcome.PASS,
            reason=reason,
            values={"correct": float(found is not None), "moonshot": float(moonshot is not None)},
            facts={
                "expected": [answer[:EXCERPT] for answer in inputs["answers"][:8]],
                "matched": None if found is None else found[:EXCERPT],
                "question_type": inputs["question_type"],
                "finish_reason": observation.finish_reason,
                "truncated": truncated,
                "think_block_in_answer": len(text) != len(observation.answer),
            },
            scorer=self.version,
            truncated=truncated,
        )

    def answer_key(self, dataset: Dataset) -> list[KeyEntry]:
        """Right: a sentence with the first answer; wrong: one that no answer of this row can be in.

        On the shipped fixtures for both ways of sending a picture; on other data for pictures as they are.
        """
        return [
            KeyEntry(
                suite=self.id,
                case=question.case,
                prompt=question.text,
                right_text=f"It reads: {question.answers[0]}",
                wrong_text=_wrong(question),
                pictures=(replace(question.picture, form=form),),
            )
            for question in questions(dataset)
            for form in (PictureForm if dataset.fixture else (PictureForm.AS_IS,))
        ]

    def metrics(self, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
        return rows.metrics(self.id, self.version, verdicts, context)


def picture_form(context: Context) -> PictureForm:
    return PictureForm.KVV_JPEG if context.preset == "kvv" else PictureForm.AS_IS


def _content(question: OcrQuestion, form: PictureForm) -> list[dict[str, Any]]:
    picture = replace(question.picture, form=form)
    return [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": question.text}]


def questions(dataset: Dataset) -> Iterator[OcrQuestion]:
    """The rows with their case ids; a question that stands several times gets the number of its occurrence."""
    seen: dict[str, int] = {}
    for number, row in enumerate(dataset.rows, 1):
        answers = tuple(row["answer"])
        formula = is_formula(row["dataset"], row["question_type"])
        if not any(normalise(answer, formula=formula) for answer in answers):
            raise ValueError(f"{dataset.origin}: row {number}: column 'answer' holds no text")
        base = f"ocrbench/{_slug(row['question_type'])}/{_digest(row)}"
        seen[base] = seen.get(base, 0) + 1
        yield OcrQuestion(
            case=base if seen[base] == 1 else f"{base}-{seen[base]}",
            dataset=row["dataset"],
            question_type=row["question_type"],
            text=row["question"],
            answers=answers,
            picture=row["image"],
        )


def _digest(row: Mapping[str, Any]) -> str:
    content = json.dumps([row["dataset"], row["question"], list(row["answer"])], ensure_ascii=True)
    return hashlib.sha256(content.encode()).hexdigest()[:10]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "none"


def _wrong(question: OcrQuestion) -> str:
    """A text without any character of the answers: no alternative can be in it."""
    for text in ("Nothing can be read there.", "0000", "QQQQ", "####"):
        if matching(text, question.answers, formula=question.formula) is None:
            return text
    return "?"
