"""The report rows of ``mmmu_pro``: the official accuracy, the one without lucky guesses, subjects and parse
branches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from kvv.cases.suite import Context
from kvv.core import Case, Outcome, Stat, Verdict
from kvv.stats.metrics import GroupTally, MeanTally, Metric
from kvv.suites.mmmu_pro.parsing import Branch
from kvv.suites.mmmu_pro.prompts import RECORDED, parse_variant

IMAGES = {
    "kvv": (
        "re-encoded as KVV does: JPEG with Pillow's defaults (quality 75); modes that KVV cannot send (LA, CMYK, 16"
        " bits) as what they look like"
    ),
    "": "as they are where the API takes their format (png, jpeg, webp, gif), else as PNG",
}
CONFIGS = {"standard10": "standard (10 options)", "standard4": "standard (4 options)", "vision": "vision"}


def metrics(suite: str, version: str, verdicts: Iterable[tuple[Case, Verdict]], context: Context) -> list[Stat]:
    """Two rows in one pass, the first primary."""
    official = MeanTally(suite, Metric(metric="accuracy", key="correct", primary=True, kvv_key="moonshot"))
    strict = MeanTally(suite, Metric(metric="accuracy_no_guess", key="correct_no_guess"))
    subjects, strict_subjects, counts = GroupTally(), GroupTally(), GroupTally()
    branches: Counter[str] = Counter()
    ambiguous = lucky = think_blocks = 0
    for case, verdict in verdicts:
        official.add(case, verdict)
        strict.add(case, verdict)
        if verdict.outcome is Outcome.SKIP:
            continue
        concluded = verdict.outcome in (Outcome.PASS, Outcome.FAIL)
        subject = str(case.inputs.get("subject", ""))
        right, sure = verdict.values.get("correct", 0.0), verdict.values.get("correct_no_guess", 0.0)
        subjects.add(subject, right if concluded else None)
        strict_subjects.add(subject, sure if concluded else None)
        counts.add(f"{len(case.inputs.get('options', ())):2d} options", right if concluded else None)
        if branch := verdict.facts.get("branch"):
            branches[str(branch)] += 1
        ambiguous += bool(verdict.facts.get("ambiguous_answer_line"))
        think_blocks += bool(verdict.facts.get("think_block_in_answer"))
        lucky += right > sure
    facts = comparability(version, context)
    breakdown = {
        "subjects": subjects.table(),
        "parse_branches": {branch.value: branches[branch.value] for branch in Branch},
        "ambiguous_answer_lines": ambiguous,
        "guesses": branches[Branch.GUESS.value],
        "right_guesses": lucky,
        "options": counts.table(),
        "think_blocks_in_answers": think_blocks,
    }
    return [
        official.stat(breakdown=breakdown, comparability=facts),
        strict.stat(
            breakdown={"rule": "as accuracy, but a guess of the parser is wrong", "subjects": strict_subjects.table()},
            comparability=facts,
        ),
    ]


def comparability(version: str, context: Context) -> dict[str, Any]:
    """What a reader needs to set these rows beside another run's."""
    dataset, settings = context.dataset, context.settings
    variant = parse_variant(settings.variant)
    recorded = variant.prompt == RECORDED
    return {
        "data_revision": dataset.revision if dataset else None,
        "data_sha256": dataset.sha256 if dataset else None,
        "config": "as recorded" if recorded else CONFIGS[variant.config],
        "prompt": variant.sentence,
        "images": "as recorded" if recorded else IMAGES.get(context.preset, IMAGES[""]),
        "sampling": "as recorded" if recorded else context.sampling(),
        "preset": context.preset,
        "scorer": (
            "official parser on the visible completion (a whole think block at its beginning taken off); where it finds"
            " no option it guesses, here seeded by case and run"
        ),
        "scorer_version": version,
        "failures_in_denominator": (
            "a failed request is in n_planned and in both bounds, not in the value (the official script guesses for"
            " it); a refused valid request counts as wrong; kvv_value leaves failed and refused requests out, as KVV"
            " does"
        ),
        "note": "KVV's 'MMMU Pro Vision' is the config of ten options",
    }
