"""What a person sees while a run goes on: a live view on a terminal, a plain line every thirty seconds elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from kvv.core import Case, Outcome, Verdict
from kvv.execution.scheduling.budget import Budget
from kvv.protocol.reader import Received
from kvv.rendering.escape import plain

PLAIN_EVERY_S = 30.0


@dataclass(slots=True)
class _Count:
    planned: int
    outcomes: Counter[Outcome] = field(default_factory=Counter)

    @property
    def concluded(self) -> int:
        return self.outcomes.total()


class PlainProgress:
    """Counts, and a line every thirty seconds; ``quiet`` prints nothing."""

    def __init__(
        self, planned: Mapping[str, int], budget: Budget, *, out: TextIO | None = None, quiet: bool = False
    ) -> None:
        self._counts = {suite: _Count(n) for suite, n in planned.items() if n}
        self._budget = budget
        self._out = out or sys.stderr
        self._quiet = quiet
        self._last = monotonic()
        self._limit = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._quiet and self._counts:
            self._print_line()

    def resumed(self, suite: str, outcome: Outcome) -> None:
        """A verdict that an earlier part of the run reached."""
        if suite in self._counts:
            self._counts[suite].outcomes[outcome] += 1

    def concluded(self, case: Case, verdict: Verdict) -> None:
        if case.suite in self._counts:
            self._counts[case.suite].outcomes[verdict.outcome] += 1
        if not self._quiet and monotonic() - self._last >= PLAIN_EVERY_S:
            self._print_line()

    def exchanged(self, received: Received, limit: int) -> None:
        self._limit = limit

    def note(self, text: str) -> None:
        if not self._quiet:
            print(plain(text), file=self._out, flush=True)

    def _print_line(self) -> None:
        self._last = monotonic()
        print(plain(self.line(), 2_000), file=self._out, flush=True)

    def line(self) -> str:
        parts = [
            f"{suite} {count.concluded}/{count.planned} ({_outcomes(count)})" for suite, count in self._counts.items()
        ]
        return f"{'; '.join(parts)} · {self.spending()}"

    def spending(self) -> str:
        spent = self._budget.spent
        tokens = spent.prompt_tokens + spent.completion_tokens
        money = f" · ${spent.cost:.2f}" if self._budget.prices else ""
        return f"{spent.requests} requests · {tokens:,} tokens{money} · limit {self._limit}"


class LiveProgress(PlainProgress):
    """A bar per suite with pass, fail and inconclusive, the spending and the current limit."""

    def __init__(self, planned: Mapping[str, int], budget: Budget, *, console: Console) -> None:
        super().__init__(planned, budget, quiet=True)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[outcomes]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._tasks: dict[str, TaskID] = {
            suite: self._bars.add_task(suite, total=count.planned, outcomes="") for suite, count in self._counts.items()
        }
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=4, transient=True)
        self._console = console

    def _render(self) -> Group:
        for suite, task in self._tasks.items():
            count = self._counts[suite]
            self._bars.update(task, completed=count.concluded, outcomes=_outcomes(count))
        return Group(self._bars, Text(plain(self.spending())))

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def note(self, text: str) -> None:
        self._console.print(Text(plain(text)))


def _outcomes(count: _Count) -> str:
    words = {
        Outcome.PASS: "pass",
        Outcome.FAIL: "fail",
        Outcome.INCONCLUSIVE: "inconclusive",
        Outcome.SKIP: "skip",
        Outcome.ERROR: "error",
    }
    return (
        ", ".join(f"{count.outcomes[outcome]} {word}" for outcome, word in words.items() if count.outcomes[outcome])
        or "nothing yet"
    )
