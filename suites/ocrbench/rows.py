"""The report row of ``ocrbench``: accuracy, the official score and sub-scores, and the table per question type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvv.cases.suite import Context
from kvv.core import Case, Outcome, Stat, Verdict
from kvv.stats.metrics import GroupTally, MeanTally, Metric

#: the official sub-scores, by question type: text recognition of 300, VQA of 200 and 200, extraction of 200, formulas
#: of 100
GROUPS: Mapping[str, str] = {
    "Regular Text Recognition": "Text Recognition",
    "Irregular Text Recognition": "Text Recognition",
    "Artistic Text Recognition": "Text Recognition",
    "Handwriting Recognition": "Text Recognition",
    "Digit String Recognition": "Text Recognition",
    "Non-Semantic Text Recognition": "Text Recognition",
    "Scene Text-centric VQA": "Scene Text-centric VQA",
    "Doc-oriented VQA": "Doc-oriented VQA",
    "Key Information Extraction": "Key Information Extraction",
    "Handwritten Mathematical Expression Recognition": "Handwritten Mathematical Expression Recognition",
}
QUESTIONS = 1000

IMAGES = {
    "kvv": "re-encoded as KVV does: JPEG with Pillow's defaults (quality 75), transparency and palettes to RGB",
    "": "as they are where the API takes their format (png, jpeg, webp, gif), else as PNG",
}


def metrics(suite: str, version: str, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
    """One row, in one pass."""
    accuracy = MeanTally(suite, Metric(metric="accuracy", key="correct", primary=True, kvv_key="moonshot"))
    types, groups, sources = GroupTally(), GroupTally(), GroupTally()
    hits = planned = think_blocks = 0
    for case, verdict in verdicts:
        accuracy.add(case, verdict)
        if verdict.outcome is Outcome.SKIP:
            continue
        value = verdict.values.get("correct", 0.0) if verdict.outcome in (Outcome.PASS, Outcome.FAIL) else None
        kind = str(case.inputs.get("question_type", ""))
        types.add(kind, value)
        groups.add(GROUPS.get(kind, kind), value)
        sources.add(str(case.inputs.get("dataset", "")), value)
        planned += 1
        hits += bool(value)
        think_blocks += bool(verdict.facts.get("think_block_in_answer"))
    breakdown = {
        "final_score": hits,
        "final_score_of": planned,
        "groups": groups.table(),
        "question_types": types.table(),
        "sources": sources.table(),
        "think_blocks_in_answers": think_blocks,
    }
    return [accuracy.stat(breakdown=breakdown, comparability=comparability(version, planned, context))]


def comparability(version: str, planned: int, context: Context) -> dict[str, Any]:
    """What a reader needs to set this row beside another run's."""
    dataset, settings = context.dataset, context.settings
    whole = planned == QUESTIONS * settings.samples
    return {
        "data_revision": dataset.revision if dataset else None,
        "data_sha256": dataset.sha256 if dataset else None,
        "images": IMAGES.get(context.preset, IMAGES[""]),
        "prompt": "the picture, then the question verbatim; no system prompt",
        "sampling": context.sampling(),
        "preset": context.preset,
        "scorer": (
            "official: a gold alternative is a substring of the visible completion (a whole think block at its"
            " beginning taken off)"
        ),
        "scorer_version": version,
        "final_score": (
            "hits out of 1000, comparable with published scores"
            if whole
            else "hits of a part of the set, no score out of 1000"
        ),
        "failures_in_denominator": (
            "a failed request is in n_planned and in both bounds, not in the value, and no hit in final_score; "
            "a refused valid request counts as wrong; kvv_value leaves failed and refused requests out, as KVV does"
        ),
    }
