"""`kvv compare`: two or more finished runs side by side."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from contextlib import ExitStack

from kvv.analysis import KINDS, UnlikeRuns, with_answers
from kvv.analysis import compare as compare_sides
from kvv.analysis.report import as_json, document
from kvv.cli.verbs.documents import put
from kvv.core.lazy import numpy as np
from kvv.planning.config import ConfigError
from kvv.storage.run_summary import RunSummary
from kvv.storage.run_summary_reader import ANSWER_TEXT, answer_text, open_finished
from kvv.storage.snapshot import expected_text
from kvv.storage.totals import summary_of

#: pairs grow with the square
RUNS_LIMIT = 20


def compare(arguments: argparse.Namespace) -> int:
    """Exit code 0 whatever it shows: a comparison is no gate."""
    names = list(arguments.runs)
    if len(names) < 2:
        raise ConfigError("RUN: wants at least two runs to compare")
    if len(names) > RUNS_LIMIT:
        raise ConfigError(f"RUN: at most {RUNS_LIMIT} runs at once, got {len(names)}")
    allowed = allowed_kinds(arguments.allow_different)
    with ExitStack() as stack:
        opened = [stack.enter_context(open_finished(name, arguments.out)) for name in names]
        stores = [store for store, _ in opened]
        sides: list[RunSummary] = []
        for store, folder in opened:
            side = summary_of(store, folder)
            if first := next(
                (where for one, (_, where) in zip(sides, opened, strict=False) if one.same_run(side)), None
            ):
                raise ConfigError(
                    f"RUN: {folder} holds the same run as {first}: a run differs from itself in nothing; name another"
                    " one"
                )
            sides.append(side)
        try:
            found = compare_sides(sides, np.random.default_rng(0), allowed=allowed)
        except UnlikeRuns as error:
            raise ConfigError(f"RUN: {error}") from error
        found = with_answers(
            found,
            lambda run, case, sample: answer_text(stores[run], case, sample),
            lambda run, case: expected_text(stores[run].case(case))[:ANSWER_TEXT],
        )
        put(arguments, document(found), lambda: as_json(found))
    return 0


def allowed_kinds(given: Collection[str] | None) -> frozenset[str]:
    """``--allow-different`` values, comma-separated and repeated."""
    found = frozenset(part.strip() for item in given or () for part in item.split(",") if part.strip())
    unknown = sorted(found - {*KINDS, "all"})
    if unknown:
        raise ConfigError(f"--allow-different: no kind {unknown[0]!r}; known: {', '.join(KINDS)}, all")
    return found
