"""The suite ``mmmu_pro``: multiple-choice questions with one to several pictures, scored by the official parser.

Sources: MMMU-Benchmark/MMMU (mmmu-pro: data, prompts, evaluate.py) and MoonshotAI/Kimi-Vendor-Verifier (prompt,
placement, re-encoding, sampling). The official parser guesses where it finds no option: here with a generator seeded by
the case and the run, and beside the official score stands the one that counts guesses as wrong. ``prompts`` says which
variants there are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from urllib.parse import quote

from kvv.cases.answers import KeyEntry
from kvv.cases.suite import Column, Context, SingleTurn
from kvv.core import Answered, Case, Dataset, Outcome, Picture, PictureForm, Stat, Verdict
from kvv.core.lazy import numpy as np
from kvv.data.literals import parse_literal
from kvv.profiles.profile import Sampling
from kvv.protocol.visible_text import inspect_visible, visible
from kvv.suites.mmmu_pro import rows
from kvv.suites.mmmu_pro.parsing import Parsed, letters, parse
from kvv.suites.mmmu_pro.prompts import (
    PromptVariant,
    as_they_appear,
    content,
    in_columns,
    instruction,
    parse_variant,
    pieces,
    question_text,
)

CHARACTERS_PER_TOKEN = 4
#: characters of a list of options
MAX_OPTIONS_TEXT = 100_000
MAX_OPTIONS = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class MmmuQuestion:
    case: str
    row: Mapping[str, Any]
    options: tuple[str, ...]
    answer: str
    subject: str


class MmmuProSuite(SingleTurn):
    """One case per row."""

    id = "mmmu_pro"
    title = "MMMU Pro"
    requirement = "The visible completion names the letter of the right option."
    source = "https://github.com/MMMU-Benchmark/MMMU/tree/main/mmmu-pro"
    version = "1"
    dataset = "mmmu_pro"
    counted = "accuracy"
    # the public leaderboard's "MMMU Pro Vision" is the config of ten options
    columns = (
        Column(suite="mmmu_pro", title="MMMU Pro", edition="standard (10 options)", whole=1_730, key="mmmu_pro"),
    )
    column_title, column_rank, edition = "MMMU Pro", 20, "config"
    kvv_sampling = Sampling(
        temperature=1.0, temperature_off=0.6, top_p=0.95, max_tokens=65_536, expect_completion_tokens=8_000
    )
    kvv_max_tokens: ClassVar[Mapping[str, int]] = {"kimi-k3": 98_304}
    spread = 0.82 * 0.18 * 0.2

    def data_variant(self, variant: str) -> str:
        return parse_variant(variant).config

    def cases(self, context: Context) -> list[Case]:
        """ValueError names the row whose options cannot be read."""
        if context.dataset is None:
            return []
        variant = parse_variant(context.settings.variant)
        form = PictureForm.KVV_JPEG if context.preset == "kvv" else PictureForm.AS_IS
        return [self._case(question, variant, form, context) for question in questions(context.dataset, variant)]

    def _case(self, question: MmmuQuestion, variant: PromptVariant, form: PictureForm, context: Context) -> Case:
        parts = content(_in_form(question.row, form), question.options, variant)
        shown = [part["image_url"]["url"] for part in parts if "image_url" in part]
        text = sum(len(part.get("text", "")) for part in parts)
        return self.case(
            question.case,
            context,
            context.body([{"role": "user", "content": parts}]),
            options=list(question.options),
            answer=question.answer,
            subject=question.subject,
            stratum=question.subject,
            pictures=len(shown),
            guess_seed=[zlib.crc32(question.case.encode()), context.seed & 0xFFFFFFFF],
            prompt_tokens=sum(picture.tokens for picture in shown) + text // CHARACTERS_PER_TOKEN,
        )

    def judge(self, case: Case, answered: Answered) -> Verdict:
        """PASS where the official parser reads the right letter, a lucky guess included; ``correct_no_guess`` leaves
        that out.
        """
        observation, inputs = answered.observation, case.inputs
        text = visible(observation.answer)

        def read(answer: str) -> Parsed:
            return parse(answer, inputs["options"], lambda n: guess(inputs["guess_seed"], case.sample, n))

        found = read(text)
        inspected = inspect_visible(observation.answer, reasoned=bool(observation.reasoning))
        moonshot = found if inspected == text else read(inspected)
        right = found.letter == inputs["answer"]
        truncated = observation.finish_reason == "length"
        reason = "" if right else "guessed" if found.guessed else "wrong-answer"
        return Verdict(
            case=case.id,
            sample=case.sample,
            outcome=Outcome.PASS if right else Outcome.FAIL,
            reason=reason,
            values={
                "correct": float(right),
                "correct_no_guess": float(right and not found.guessed),
                "moonshot": float(moonshot.letter == inputs["answer"]),
            },
            facts={
                "expected": inputs["answer"],
                "predicted": found.letter,
                "branch": found.branch.value,
                "guessed": found.guessed,
                "ambiguous_answer_line": found.ambiguous_line,
                "candidates": found.candidates,
                "options": len(inputs["options"]),
                "subject": inputs["subject"],
                "finish_reason": observation.finish_reason,
                "truncated": truncated,
                "think_block_in_answer": len(text) != len(observation.answer),
            },
            scorer=self.version,
            truncated=truncated,
        )

    def answer_key(self, dataset: Dataset) -> list[KeyEntry]:
        """Right and wrong letters in the official form, for every order of the pictures; on the fixtures also for both
        encodings.
        """
        config = "vision" if any("image" in row for row in dataset.rows[:1]) else "standard10"
        variant = PromptVariant(config=config)
        forms = tuple(PictureForm) if dataset.fixture else (PictureForm.AS_IS,)
        return [
            entry
            for question in questions(dataset, variant)
            for form in forms
            for entry in _entries(question, variant, form)
        ]

    def metrics(self, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
        return rows.metrics(self.id, self.version, verdicts, context)


def guess(seed: list[int], sample: int, n: int) -> int:
    """An index below n; the same for the same case, sample and run seed."""
    return int(np.random.default_rng([*seed, sample]).integers(n))


def questions(dataset: Dataset, variant: PromptVariant) -> Iterator[MmmuQuestion]:
    """The rows with their case ids. The configs shuffle their options differently, so that only the default one's ids
    are bare.
    """
    prefix = "mmmu_pro" if variant.config == "standard10" else f"mmmu_pro/{variant.config}"
    for number, row in enumerate(dataset.rows, 1):
        try:
            options = read_options(row["options"])
        except ValueError as error:
            raise ValueError(f"{dataset.origin}: row {number}: column 'options': {error}") from error
        yield MmmuQuestion(
            case=f"{prefix}/{quote(str(row['id']), safe='')}",
            row=row,
            options=options,
            answer=str(row["answer"]).strip().upper(),
            subject=str(row.get("subject") or ""),
        )


def read_options(value: object) -> tuple[str, ...]:
    """The options as texts, from a Python literal as the hub has it, or from a list. ValueError for anything else.

    One row of the public set has a list as its only option: it becomes that list's text, as in KVV.
    """
    if isinstance(value, str):
        if len(value) > MAX_OPTIONS_TEXT:
            raise ValueError(f"longer than {MAX_OPTIONS_TEXT} characters")
        value = parse_literal(value)
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_OPTIONS:
        raise ValueError(f"should be a list of 1 to {MAX_OPTIONS} options")
    return tuple(str(option) for option in value)


def _in_form(row: Mapping[str, Any], form: PictureForm) -> dict[str, Any]:
    return {column: replace(value, form=form) if isinstance(value, Picture) else value for column, value in row.items()}


def _entries(question: MmmuQuestion, variant: PromptVariant, form: PictureForm) -> Iterator[KeyEntry]:
    choices = letters(len(question.options))
    if question.answer not in choices or len(choices) == 1:
        return  # nothing is right, or nothing wrong: neither can be played
    wrong = choices[(choices.index(question.answer) + 1) % len(choices)]
    row = _in_form(question.row, form)
    orders: list[tuple[Picture, ...]]
    if variant.config == "vision":
        prompt, orders = instruction(variant).partition(". ")[2][:100], [(row["image"],)]
    else:
        text = question_text(row, question.options)
        prompt, orders = max(pieces(text), key=len), [tuple(in_columns(row)), tuple(as_they_appear(row, text))]
    for pictures in dict.fromkeys(orders):
        yield KeyEntry(
            suite=MmmuProSuite.id,
            case=question.case,
            prompt=prompt,
            right_text=f"One option fits what is shown, the others do not.\n\nAnswer: {question.answer}",
            wrong_text=f"One option fits what is shown, the others do not.\n\nAnswer: {wrong}",
            pictures=pictures,
        )
