"""The run as the public verifier would count it: passes at the first try and after its three reruns; then what we add.

The verifier is usually run with ``--reruns 3``: a test that passes once in four tries is green. Here nothing is rerun
until it passes; what a rerun would have changed is read from the samples that were asked anyway, so this count is a
lower bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvv.core import Outcome
from kvv.rendering.escape import plain
from kvv.reporting.moonshot_map import KvvMap, KvvTest
from kvv.storage.view import CheckRow, RunView

RERUNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Cases of one file. ``open``: neither passed nor failed, which the verifier would count as failed or, for
    refusals, passed.
    """

    asked: int = 0
    first: int = 0
    rerun: int = 0
    open: int = 0


def render(view: RunView, mapping: KvvMap) -> str:
    """Plain text, one line a file, then what is not covered and what goes beyond."""
    return "".join(f"{plain(line, 400)}\n" for line in _lines(view, mapping))


def count(rows: Sequence[CheckRow]) -> Count:
    asked = [row for row in rows if row.verdict.outcome is not Outcome.SKIP]
    return Count(
        asked=len(asked),
        first=sum(first_try(row) for row in asked),
        rerun=sum(after_reruns(row) for row in asked),
        open=sum(row.verdict.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR) for row in asked),
    )


def first_try(row: CheckRow) -> bool:
    """The first sample passed, whatever came of the others."""
    samples = _samples(row)
    if samples:
        return samples[0] == 1
    return row.verdict.outcome is Outcome.PASS and row.verdict.facts.get("first_try", True) is True


def after_reruns(row: CheckRow) -> bool:
    """One of at most four samples passed: of those a rate asked, or the confirming sample of a failure."""
    samples = _samples(row)
    if samples:
        return 1 in samples[: 1 + RERUNS]
    verdict = row.verdict
    return (
        verdict.outcome is Outcome.PASS or "(1 of 2 samples)" in verdict.detail or verdict.reason == "unstable-refusal"
    )


def _samples(row: CheckRow) -> list[object]:
    found = row.verdict.facts.get("samples")
    return list(found) if isinstance(found, (list, tuple)) else []


def _lines(view: RunView, mapping: KvvMap) -> Iterator[str]:
    rows = [row for row in view.checks if row.case.suite not in view.benchmarks]
    yield (
        f"{mapping.source} {mapping.revision}, as this run of {view.endpoint.model} ({view.profile}, {view.surface})"
        " would count there"
    )
    yield f"{'':<46}{'ids':>5}{'cases':>7}{'first try':>11}{f'{RERUNS} reruns':>10}{'open':>6}"
    for entry in mapping.file:
        tests = [test for test in mapping.test if test.file == entry.path]
        found = count([row for row in rows if any(test.covers(row.case.id) for test in tests)])
        ids = "-" if entry.ids is None else str(entry.ids)
        yield (
            f"{entry.path:<46}{ids:>5}{found.asked:>7}{_of(found.first, found.asked):>11}"
            f"{_of(found.rerun, found.asked):>10}{found.open:>6}"
        )
    yield "ids: test ids there; cases: ours that were asked; open: without an answer, hence no verdict here"
    yield from _rerun_only(rows, mapping)
    yield from _uncovered(mapping)
    yield from _beyond(view, rows, mapping)


def _of(part: int, whole: int) -> str:
    return f"{part}/{whole}" if whole else "-"


def _rerun_only(rows: Sequence[CheckRow], mapping: KvvMap) -> Iterator[str]:
    """What a rerun would have hidden."""
    hidden = [row for row in rows if _mapped(row, mapping.test) and after_reruns(row) and not first_try(row)]
    if hidden:
        yield ""
        yield "green there only after reruns:"
        yield from (f"  {row.id}: {row.verdict.outcome.value} {row.verdict.reason}" for row in hidden)


def _uncovered(mapping: KvvMap) -> Iterator[str]:
    yield ""
    yield "tests there without the same case here:"
    yield from (f"  {test.file}: {test.asserts}: {test.why}" for test in mapping.test if test.why)


def _beyond(view: RunView, rows: Sequence[CheckRow], mapping: KvvMap) -> Iterator[str]:
    more = [row for row in rows if not _mapped(row, mapping.test) and row.verdict.outcome is not Outcome.SKIP]
    by_suite = Counter(row.case.suite for row in more)
    failed = Counter(row.case.suite for row in more if row.verdict.outcome is Outcome.FAIL)
    yield ""
    yield f"beyond it: {len(more)} cases, and passive rules on each of {view.traffic.requests} answers"
    for suite, n in sorted(by_suite.items()):
        yield f"  {suite}: {n} cases, {failed[suite]} failed" if failed[suite] else f"  {suite}: {n} cases"
    found = [f"{finding.rule} ({finding.level.value}, {finding.count} times)" for finding in view.decision.findings]
    yield f"  rules: {', '.join(found) or 'no objection'}"


def _mapped(row: CheckRow, tests: Sequence[KvvTest]) -> bool:
    return any(test.covers(row.case.id) for test in tests)
