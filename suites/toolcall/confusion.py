"""The decision to call, sample by sample, against runs of the official endpoint.

A sample is paired with the official sample of the same number of the same case (occurrence with occurrence); a run
with more samples than the official one starts over at its first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

from kvv.cases.suite import ReferenceRun
from kvv.core import Case, Outcome, Verdict
from kvv.core.lazy import numpy as np
from kvv.stats.f1 import Confusion
from kvv.stats.metrics import Unknown

Key = Literal["triggered", "called"]

BOOTSTRAP_DRAWS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """``values`` is None where nothing is known of the answer. A refused request is known: it called nothing, and that
    is wrong.
    """

    case: Case
    verdict: Verdict
    values: Mapping[str, float] | None
    refused: bool

    def is_true(self, key: str) -> bool:
        return self.values is not None and self.values.get(key, 0.0) > 0.0

    def count(self, key: str) -> int:
        return int(self.values.get(key, 0.0)) if self.values is not None else 0


def read_samples(verdicts: Iterable[tuple[Case, Verdict]]) -> list[Sample]:
    """Every planned sample; SKIPs were never planned. An answer that cannot be judged for its schema still tells
    whether it called.
    """
    found = []
    for case, verdict in verdicts:
        if verdict.outcome is Outcome.SKIP:
            continue
        values = verdict.values if "triggered" in verdict.values and verdict.outcome is not Outcome.ERROR else None
        found.append(
            Sample(
                case=case, verdict=verdict, values=values, refused=verdict.outcome is Outcome.FAIL and values is None
            )
        )
    return found


def official(reference: ReferenceRun, case: str, sample: int, key: str) -> bool | None:
    """What the official run did; None where it has no conclusion for the sample."""
    value = official_value(reference, case, sample, key)
    return None if value is None else value > 0.0


def official_value(reference: ReferenceRun, case: str, sample: int, key: str) -> float | None:
    """The official run's value; None where it has none for the sample."""
    runs = reference.cases.get(case)
    return runs[sample % len(runs)].get(key) if runs else None


@dataclass(slots=True)
class CallTally:
    """``answered`` is the confusion without refused requests, which K2VV leaves out like any failed request."""

    confusion: Confusion = field(default_factory=Confusion)
    answered: Confusion = field(default_factory=Confusion)
    positive: int = 0
    negative: int = 0

    def add(self, sample: Sample, reference: bool | None, key: Key) -> None:
        vendor = sample.is_true(key) if sample.values is not None else None
        if sample.refused and reference is not None:
            self.confusion = self.confusion.plus(fn=int(reference), fp=int(not reference))
        elif vendor is not None and reference is not None:
            self.confusion = self.confusion.add(reference=reference, vendor=vendor)
            self.answered = self.answered.add(reference=reference, vendor=vendor)
        elif reference or vendor or (reference is None and vendor is None and not sample.refused):
            # at best a true positive, at worst a disagreement, whose kind does not matter to F1
            self.positive += 1
        else:
            self.negative += 1

    def merge(self, other: CallTally) -> None:
        self.confusion = _sum(self.confusion, other.confusion)
        self.answered = _sum(self.answered, other.answered)
        self.positive += other.positive
        self.negative += other.negative

    @property
    def unknown(self) -> Unknown:
        return Unknown(positive=self.positive, negative=self.negative)


def _sum(one: Confusion, other: Confusion) -> Confusion:
    return one.plus(tp=other.tp, fp=other.fp, fn=other.fn, tn=other.tn)


def tally(samples: Sequence[Sample], reference: ReferenceRun, key: Key) -> CallTally:
    found = CallTally()
    for sample in samples:
        found.add(sample, official(reference, sample.case.id, sample.verdict.sample, key), key)
    return found


def by_case(samples: Sequence[Sample], references: Sequence[ReferenceRun], key: Key) -> list[Confusion]:
    """One confusion per case, over its samples and all references: the units of the bootstrap."""
    cases: dict[str, CallTally] = {}
    for reference in references:
        for sample in samples:
            found = cases.setdefault(sample.case.id, CallTally())
            found.add(sample, official(reference, sample.case.id, sample.verdict.sample, key), key)
    return [found.confusion for found in cases.values() if found.confusion.n]


def f1_interval(cases: Sequence[Confusion], rng: np.random.Generator) -> tuple[float, float] | None:
    """95 % percentile bootstrap of F1 by case (Efron 1979): whole cases are drawn, so that samples of one stay
    together.

    Cases alike are drawn as one count (multinomial). None where F1 is undefined; without any disagreement, where a
    bootstrap shows no spread, Wilson's interval by ``Confusion.f1_interval``.
    """
    patterns = Counter((c.tp, c.fp, c.fn) for c in cases)
    total = Confusion()
    for case in cases:
        total = _sum(total, case)
    if not total.tp or not (total.fp + total.fn):
        plain = total.f1_interval()
        return plain.pair if plain else None
    cells = np.array(list(patterns), dtype=np.float64)
    weights = np.array(list(patterns.values()), dtype=np.float64)
    drawn = rng.multinomial(len(cases), weights / weights.sum(), size=BOOTSTRAP_DRAWS) @ cells
    denominator = 2 * drawn[:, 0] + drawn[:, 1] + drawn[:, 2]
    scores = 2 * drawn[:, 0][denominator > 0] / denominator[denominator > 0]
    low, high = np.quantile(scores, (0.025, 0.975))
    return float(low), float(high)


def decisions(reference: ReferenceRun, key: Key, cases: Iterable[str]) -> dict[str, bool]:
    """Each concluded sample of an official run on ``cases``, by case and sample, and whether it called."""
    found = {}
    for case in dict.fromkeys(cases):
        for sample in range(len(reference.cases.get(case, ()))):
            called = official(reference, case, sample, key)
            if called is not None:
                found[f"{case}#{sample}"] = called
    return found


def official_pairs(runs: Mapping[str, Mapping[str, bool]]) -> list[dict[str, Any]]:
    """How well official runs (name -> decisions) agree with each other: one F1 per pair."""
    found = []
    for (name, one), (other_name, other) in combinations(runs.items(), 2):
        confusion = Confusion()
        for sample in one.keys() & other.keys():
            confusion = confusion.add(reference=one[sample], vendor=other[sample])
        found.append({"runs": [name, other_name], "n": confusion.n, "f1": confusion.f1})
    return found
