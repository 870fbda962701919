"""The suite ``aime2025``: 30 problems with integer answers, several samples each, scored KVV's way and strictly.

Prompt, sampling and scoring follow KVV's benchmark of the same name (MoonshotAI/Kimi-Vendor-Verifier): avg@32 at
temperature 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from kvv.cases.answers import KeyEntry
from kvv.cases.suite import Context, SingleTurn
from kvv.core import Answered, Case, Dataset, Outcome, Stat, Verdict
from kvv.profiles.profile import Sampling
from kvv.suites.aime2025 import rows
from kvv.suites.aime2025.scoring import gold_integer, score, scorer_name

#: KVV's prompt form; the space after the empty line is KVV's
INSTRUCTION = "\n\n Please reason step by step, and put your final answer within \\boxed{}."

#: ids of the public set in order: part I, then part II
CANONICAL = {str(row): f"2025-{'I' if row < 15 else 'II'}-{row % 15 + 1:02d}" for row in range(30)}


class Aime2025Suite(SingleTurn):
    """One case per problem."""

    id = "aime2025"
    title = "AIME 2025"
    requirement = "The answer to a competition problem, stated in the visible completion, is the right integer."
    source = "https://github.com/MoonshotAI/Kimi-Vendor-Verifier"
    version = "1"
    judge_timeout_s = 20.0
    judge_imports = ("math_verify",)
    dataset = "aime2025"
    counted = "avg@k"
    column_title, column_rank = "AIME 2025", 50
    kvv_sampling = Sampling(
        temperature=1.0,
        temperature_off=0.6,
        top_p=0.95,
        max_tokens=98_304,
        samples={"smoke": 32, "nightly": 32, "full": 32},
        expect_completion_tokens=25_000,
    )
    spread = 0.0094**2 * 30 * 32

    def cases(self, context: Context) -> list[Case]:
        if context.dataset is None:
            return []
        return [
            self.case(
                case_id,
                context,
                context.body([{"role": "user", "content": row["problem"] + INSTRUCTION}]),
                answer=row["answer"],
            )
            for case_id, row in _identified(context.dataset)
        ]

    def judge(self, case: Case, answered: Answered) -> Verdict:
        """PASS where KVV's rule gives the point; the strict reading and the difference stand beside it."""
        observation = answered.observation
        found = score(observation.answer, case.inputs["answer"], reasoned=bool(observation.reasoning))
        truncated = observation.finish_reason == "length"
        reason = "" if found.lenient else "wrong-answer" if found.lenient_answer else "no-answer"
        return Verdict(
            case=case.id,
            sample=case.sample,
            outcome=Outcome.PASS if found.lenient else Outcome.FAIL,
            reason=reason,
            values={
                "correct": float(found.lenient),
                "strict": float(found.strict),
                "moonshot": float(found.moonshot),
            },
            facts={
                "expected": case.inputs["answer"],
                "extracted": found.lenient_answer,
                "extracted_strict": found.strict_answer,
                "lenient_only": found.lenient and not found.strict,
                "finish_reason": observation.finish_reason,
                "truncated": truncated,
            },
            scorer=f"{self.version} {scorer_name()}",
            truncated=truncated,
        )

    def answer_key(self, dataset: Dataset) -> list[KeyEntry]:
        """Right: the answer in a box after a sentence of working; wrong: another integer of the same range."""
        entries = []
        for case_id, row in _identified(dataset):
            right = gold_integer(row["answer"])
            if right is None:
                continue
            wrong = (right + 1) % 1000
            entries.append(
                KeyEntry(
                    suite=self.id,
                    case=case_id,
                    prompt=row["problem"],
                    right_text=_worked(right),
                    wrong_text=_worked(wrong),
                )
            )
        return entries

    def metrics(self, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
        return rows.metrics(self.id, self.version, verdicts, context)


def _worked(answer: int) -> str:
    return (
        "Working through the conditions one after the other leaves a single possibility. The answer is"
        f" $\\boxed{{{answer}}}$."
    )


def _identified(dataset: Dataset) -> list[tuple[str, dict[str, Any]]]:
    """Rows with their case ids. Only the complete public set gets the competition's own numbers: other sets may use
    small ids too.
    """
    ids = [str(row["id"]) for row in dataset.rows]
    canonical = len(ids) == len(CANONICAL) and set(ids) == set(CANONICAL)
    return [
        (f"aime2025/{CANONICAL[row_id] if canonical else quote(row_id, safe='')}", dict(row))
        for row_id, row in zip(ids, dataset.rows, strict=True)
    ]
