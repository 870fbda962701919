"""Report rows of ``beam``: KVV's score, the official one and half credit, each over all questions and by ability."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from kvv.cases.suite import Context
from kvv.core import Case, Outcome, Stat, Verdict
from kvv.stats.interval import wilson
from kvv.stats.metrics import GroupTally, MeanTally, Metric
from kvv.suites.beam.judging import PRESET, PROMPT_SHA256
from kvv.suites.beam.scoring import ORDERING, Scores

RULES: Mapping[str, str] = {
    "kvv_score": (
        "KVV: rubric items truncated to integers (0.5 counts 0), event ordering all or nothing, mean over questions"
    ),
    "official_score": (
        "official code: rubric items truncated to integers, event ordering by tau_norm; its paper averages the"
        " abilities"
    ),
    "half_credit": "as official_score with 0.5 kept",
}


@dataclass(slots=True)
class RubricTally:
    """What the rows say beside their means."""

    orderings: list[Mapping[str, Any]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    conversations: set[str] = field(default_factory=set)
    sizes: set[str] = field(default_factory=set)
    judges: list[Mapping[str, Any]] = field(default_factory=list)
    #: KVV's score by both judges, of the answers that both judged
    second: list[tuple[float, float]] = field(default_factory=list)
    second_failed: int = 0
    judge_calls: int = 0
    lenient: int = 0
    cut: set[str] = field(default_factory=set)
    uncounted: bool = False
    recorded: bool = False

    def add(self, case: Case, verdict: Verdict) -> None:
        inputs = case.inputs
        self.conversations.add(case.cluster)
        self.sizes.add(str(inputs.get("size", "")))
        self.recorded = self.recorded or "recorded" in inputs
        history = inputs.get("history", {})
        self.uncounted = self.uncounted or (not history.get("counted") and inputs.get("room") != "fits")
        if history.get("dropped"):
            self.cut.add(case.cluster)
        if inputs.get("judge") and inputs["judge"] not in self.judges:
            self.judges.append(inputs["judge"])
        self.judge_calls += int(verdict.facts.get("judge_calls", 0))
        self.lenient += int(verdict.facts.get("judge_lenient", 0))
        if inputs.get("second_judge") and inputs["second_judge"] not in self.judges:
            self.judges.append(inputs["second_judge"])
        if "second_judge" in verdict.facts:
            second = verdict.facts["second_judge"]
            self.second_failed += second is None
            if second is not None:
                self.second.append((verdict.values[Scores.NAMES[0]], second[Scores.NAMES[0]]))
        if verdict.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR) or verdict.reason == "empty-answer":
            self.reasons[verdict.reason] += 1
        if verdict.outcome in (Outcome.PASS, Outcome.FAIL) and "tau_norm" in verdict.facts:
            self.orderings.append(verdict.facts)

    def table(self) -> dict[str, Any]:
        table: dict[str, Any] = {
            "conversations": len(self.conversations),
            "conversations_cut": len(self.cut),
            "judge_calls": self.judge_calls,
            "judge_failures": sum(count for reason, count in self.reasons.items() if reason.startswith("judge-")),
            "reasons": dict(sorted(self.reasons.items())),
        }
        if self.lenient:  # replies whose JSON had to be mended, or a score in words
            table["judge_replies_mended"] = self.lenient
        if self.second or self.second_failed:
            table["judge_agreement"] = self._agreement()
        if self.orderings:
            names = ("tau_norm", "f1", "final_score")
            table["event_ordering"] = {name: fmean(facts[name] for facts in self.orderings) for name in names}
            table["event_ordering"]["tau_undefined"] = sum(
                not facts.get("tau_defined", True) for facts in self.orderings
            )
        return table

    def _agreement(self) -> dict[str, Any]:
        """Of the answers that both judges judged: the share with the same KVV score, its 95 % interval, and how much
        the second gives more.
        """
        n = len(self.second)
        same = sum(first == other for first, other in self.second)
        return {
            "n": n,
            "failed": self.second_failed,
            "same_score": same / n if n else None,
            "ci95": list(wilson(same, n).pair) if n else None,
            "mean_difference": fmean(other - first for first, other in self.second) if n else None,
        }


def metrics(suite: str, version: str, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
    """Three rows in one pass, the first primary; imported scores give the rows that they have."""
    means = {
        name: MeanTally(
            suite,
            Metric(
                metric=name,
                key=name,
                primary=name == Scores.NAMES[0],
                kvv_failures="zero",
                kvv_key="moonshot" if name == Scores.NAMES[0] else "",
            ),
        )
        for name in Scores.NAMES
    }
    groups = {name: GroupTally() for name in Scores.NAMES}
    tally = RubricTally()
    missing: set[str] = set()
    for case, verdict in verdicts:
        if verdict.outcome is not Outcome.SKIP:
            tally.add(case, verdict)
        concluded = verdict.outcome in (Outcome.PASS, Outcome.FAIL)
        for name in Scores.NAMES:
            if concluded and verdict.values and name not in verdict.values:
                missing.add(name)
                continue
            means[name].add(case, verdict)
            if verdict.outcome is not Outcome.SKIP:
                groups[name].add(case.inputs["ability"], verdict.values.get(name, 0.0) if concluded else None)
    facts = comparability(version, tally, context)
    return [_row(means[name], groups[name], name, tally, facts) for name in Scores.NAMES if name not in missing]


def _row(mean: MeanTally, group: GroupTally, name: str, tally: RubricTally, facts: Mapping[str, Any]) -> Stat:
    abilities = group.table()
    known = [row["value"] for row in abilities.values() if row["value"] is not None]
    breakdown = {
        "rule": RULES[name],
        "abilities": abilities,
        "mean_of_abilities": fmean(known) if known else None,
        **tally.table(),
    }
    stat = mean.stat(breakdown=breakdown, comparability=facts)
    return stat if name == "kvv_score" else replace(stat, kvv_value=None)


def comparability(version: str, tally: RubricTally, context: Context) -> dict[str, Any]:
    """What a reader needs to set these rows beside another run's."""
    dataset = context.dataset
    cut = (
        "none: no tokeniser, or all fits"
        if not tally.cut
        else f"whole messages from the front, {len(tally.cut)} conversations cut"
    )
    return {
        "data_revision": dataset.revision if dataset else None,
        "data_sha256": dataset.sha256 if dataset else None,
        "size": ", ".join(sorted(tally.sizes)),
        "prompt": f"the whole conversation as chat messages, markers left in, then the question {_put(context)}",
        "truncation": (
            cut + ("; conversations that may not fit were not counted (--tokenizer)" if tally.uncounted else "")
        ),
        "sampling": context.sampling(),
        "preset": context.preset,
        "judge": "as recorded" if tally.recorded else [dict(judge) for judge in tally.judges],
        **_judge_prompts(tally, context),
        ORDERING: (
            "kvv_score: one judgement of the whole order; official_score: one call a line names the events it is about,"
            " first unused one wins"
        ),
        "scorer_version": version,
        "failures_in_denominator": (
            "a failed request or judgement is in n_planned and in both bounds, not in the value; "
            "a refused valid request and an empty answer count 0; kvv_value counts every failure 0, as KVV does"
        ),
    }


def _put(context: Context) -> str:
    if context.judge_prompts and context.judge_prompts.question:
        return "as --judge-prompts puts it"
    if context.preset == PRESET:
        return "after a request for the bare answer, in our words for KVV's"
    return "as it is; the official code puts a note before it"


def _judge_prompts(tally: RubricTally, context: Context) -> dict[str, Any]:
    """Whose words the judge was given; a row under KVV's preset that lacks the official ones is not KVV's."""
    given = context.judge_prompts
    if tally.recorded:
        return {"judge_prompt": "as recorded", "judge_prompt_sha256": None}
    ours = "our own words on the official scale 0, 0.5, 1; not the official text"
    said = f"as given (--judge-prompts): {', '.join(given.given)}" if given else ours
    lacking = [name for name in ("item", "order") if not (given and getattr(given, name))]
    found: dict[str, Any] = {"judge_prompt": said + (f"; {' and '.join(lacking)}: {ours}" if given and lacking else "")}
    found["judge_prompt_sha256"] = given.sha256 if given else PROMPT_SHA256
    if given:
        found["judge_prompts_given"] = given.given
    if lacking and context.preset == PRESET:
        found["not_comparable"] = (
            f"with KVV's BEAM: the judge was not given the official words ({', '.join(lacking)}; --judge-prompts)"
        )
    return found
