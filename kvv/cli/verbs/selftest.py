"""`kvv selftest`: the fault x case matrix against the in-process reference endpoint."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from time import monotonic

from kvv.core import Area
from kvv.planning.config import ConfigError
from kvv.rendering.escape import plain
from kvv.selftest import Matrix, MatrixRow, State, TableError, load_table, run
from kvv.selftest.matrix import Clean, Objection

#: columns of the matrix, in report order
_COLUMNS = {
    Area.DECODING: "dec",
    Area.TOOLS: "too",
    Area.TOOL_CHOICE: "cho",
    Area.DYNAMIC_TOOLS: "dyn",
    Area.STREAMING: "str",
    Area.REASONING: "rea",
    Area.RESPONSE_FORMAT: "fmt",
    Area.USAGE: "usg",
    Area.VISION: "vis",
    Area.LONG_CONTEXT: "lon",
    Area.ERRORS: "err",
    Area.DEGRADATION: "deg",
}
_LEGEND = (
    "F a must case fails, R a must rule objects, f a should case fails, r a should rule objects; [ ] the fault's own"
    " areas"
)


def selftest(arguments: argparse.Namespace) -> int:
    """Exit code 0 only when every fault is seen in its areas or its gap is stated, nothing fails in others, and the
    clean endpoint is clean.
    """
    started = monotonic()
    try:
        matrix = run(load_table(), arguments.fault, told=None if arguments.quiet else _told)
    except (TableError, ValueError) as error:
        raise ConfigError(f"--fault: {error}" if not isinstance(error, TableError) else str(error)) from error
    for line in _lines(matrix):
        print(plain(line, 400))
    print(_summary(matrix, monotonic() - started), flush=True)
    return 0 if matrix.holds else 1


def _told(done: Clean | MatrixRow) -> None:
    """One line of progress on standard error as each run ends."""
    if isinstance(done, Clean):
        text = (
            f"clean {done.setting}: {done.passed} of {done.cases} pass, {done.skipped} not claimed,"
            f" {len(done.problems)} problems"
        )
    else:
        text = f"{done.fault}: {done.state}"
    print(plain(text), file=sys.stderr, flush=True)


def _lines(matrix: Matrix) -> Iterator[str]:
    for one in matrix.clean:
        yield (
            f"clean {one.setting}: {one.cases} cases, {one.passed} pass, {one.skipped} not claimed, {one.requests}"
            " requests"
        )
        yield from (f"  PROBLEM {problem}" for problem in one.problems)
        yield from (f"  stated {entry}" for entry in one.stated)
    yield ""
    width = max((len(row.fault) for row in matrix.rows), default=4) + 1
    yield f"{'fault':<{width}}{' '.join(f'{name:^5}' for name in _COLUMNS.values())}  result"
    for row in matrix.rows:
        cells = " ".join(_cell(row, area) for area in _COLUMNS)
        yield f"{row.fault:<{width}}{cells}  {row.state}"
    yield _LEGEND
    yield ""
    for row in matrix.rows:
        yield from _details(row, width)
    for name, reason in matrix.not_showable.items():
        yield f"{name:<{width}}not showable: {reason}"


def _cell(row: MatrixRow, area: Area) -> str:
    letters = "".join(_letters([mark for mark in row.marks if mark.area is area])) or "."
    return f"[{letters:^3}]" if area in row.areas else f" {letters:^3} "


def _letters(marks: Sequence[Objection]) -> Iterator[str]:
    for letter, must, case in (("F", True, True), ("R", True, False), ("f", False, True), ("r", False, False)):
        if any(mark.must is must and mark.case is case for mark in marks):
            yield letter


def _details(row: MatrixRow, width: int) -> Iterator[str]:
    name = f"{row.fault:<{width}}"
    if row.state is State.LEGAL:
        yield f"{name}legal: {row.note}"
        return
    if row.state is State.GAP:
        yield f"{name}gap, stated: {row.note}"
        return
    seen = ", ".join(row.seen_by) or "nothing"
    yield f"{name}seen by {seen}" + (f" (should: {row.note})" if row.note else "")
    if row.gate is not None:
        gate = row.gate
        yield f"{'':<{width}}gate: {gate.hits} of {gate.n} samples, wants {gate.at_least}; power {gate.power:.4f}"
    if row.elsewhere:
        yield f"{'':<{width}}ELSEWHERE {', '.join(row.elsewhere)}"


def _summary(matrix: Matrix, seconds: float) -> str:
    counts = {state: sum(row.state is state for row in matrix.rows) for state in State}
    problems = sum(len(one.problems) for one in matrix.clean)
    requests = sum(row.requests for row in matrix.rows) + sum(one.requests for one in matrix.clean)
    parts = [f"{counts[State.SEEN]} of {len(matrix.rows) - counts[State.LEGAL]} faults seen in their areas only"]
    others = (State.UNSEEN, State.ELSEWHERE, State.ERROR, State.CLOSED, State.GAP, State.LEGAL)
    parts += [f"{counts[state]} {state.value.lower()}" for state in others if counts[state]]
    parts += [f"{len(matrix.not_showable)} not showable"] if matrix.not_showable else []
    parts += [
        f"clean endpoint: {f'{problems} problems' if problems else 'no problem'}",
        f"{requests:,} requests",
        f"{seconds:.0f} s",
    ]
    return f"selftest {'PASS' if matrix.holds else 'FAIL'}: {'; '.join(parts)}"
