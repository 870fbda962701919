"""One sum a case; an answer is right when it is the number and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from kvv.api import Answered, Case, Context, Dataset, KeyEntry, MeanTally, Metric, Outcome, SingleTurn, Stat, Verdict


class Sums(SingleTurn):
    id = "acme_sums"
    title = "Sums"
    requirement = "The answer to a sum is the number."
    source = "https://example.com/acme-sums"
    dataset = "acme_sums"
    counted = "accuracy"
    column_title = "Acme sums"

    def cases(self, context: Context) -> list[Case]:
        rows = context.dataset.rows if context.dataset else ()
        return [
            self.case(
                f"{self.id}/{row['id']}",
                context,
                context.body([{"role": "user", "content": row["question"]}]),
                answer=row["answer"],
            )
            for row in rows
        ]

    def judge(self, case: Case, answered: Answered) -> Verdict:
        right = answered.observation.answer.strip() == case.inputs["answer"]
        return Verdict(
            case=case.id,
            sample=case.sample,
            outcome=Outcome.PASS if right else Outcome.FAIL,
            reason="" if right else "wrong-answer",
            values={"correct": float(right)},
            scorer=self.version,
        )

    def metrics(self, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
        tally = MeanTally(self.id, Metric(metric="accuracy", key="correct", primary=True))
        for case, verdict in verdicts:
            tally.add(case, verdict)
        return [tally.stat()]

    def answer_key(self, dataset: Dataset) -> list[KeyEntry]:
        """What `kvv serve` answers; a suite that is never asked of it needs none."""
        return [
            KeyEntry(suite=self.id, case=row["id"], prompt=row["question"], right_text=row["answer"], wrong_text="none")
            for row in dataset.rows
        ]
