"""Comparisons of finished runs and change points, on simulated endpoints: how often is a difference shown that is none,
and how often one that is?

    python bench/comparing.py [--quick] [--seed N]

Questions have fixed success probabilities, most of them near 0 or 1 as real ones have; every run draws anew. Each row
prints what was asked of it; the exit code is 1 if a row falls short by more than three Monte-Carlo standard errors.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvv.analysis import CaseResult, RunSummary, SampleResult, SuiteResult, SummaryRow, compare
from kvv.cases.suite import SuiteKind
from kvv.core import Area, Level, Outcome
from kvv.stats.changes import change_points

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    name: str
    measured: float
    bound: float
    least: bool
    runs: int

    @property
    def ok(self) -> bool:
        room = 3 * float((self.bound * (1 - self.bound) / self.runs) ** 0.5)
        return bool(self.measured >= self.bound - room if self.least else self.measured <= self.bound + room)


def questions(n: int, rng: np.random.Generator) -> Floats:
    return np.asarray(rng.beta(0.35, 0.05, n), dtype=np.float64)


def side(name: str, p: Floats, samples: int, rng: np.random.Generator) -> RunSummary:
    drawn = (rng.random((len(p), samples)) < p[:, None]).astype(float)
    cases = {
        f"q{i}": CaseResult(
            area=Area.ACCURACY,
            level=Level.SHOULD,
            cluster="",
            samples=tuple(
                SampleResult(outcome=Outcome.PASS if x else Outcome.FAIL, values={"correct": float(x)}) for x in row
            ),
        )
        for i, row in enumerate(drawn)
    }
    row = SummaryRow(
        metric="accuracy",
        primary=True,
        value=float(drawn.mean()),
        low=None,
        high=None,
        n=drawn.size,
        n_planned=drawn.size,
    )
    suite = SuiteResult(id="s", kind=SuiteKind.BENCHMARK, title="s", facts={}, rows=(row,), cases=cases)
    return RunSummary(
        run_id=name,
        date="",
        vendor=name,
        model="m",
        base_url="",
        kvv_version="",
        profile="",
        surface="",
        preset="",
        verdict="",
        suites={"s": suite},
    )


def comparisons(rng: np.random.Generator, runs: int) -> list[Asked]:
    found = []
    for n, samples in ((500, 1), (30, 4)):
        loss = 0.05 if samples == 1 else 0.15
        alarms = covered = seen = eight = 0
        for _ in range(runs):
            p = questions(n, rng)
            worse = p.copy()
            worse[rng.random(n) < loss / p.mean()] = 0.0
            equal = compare([side("a", p, samples, rng), side("b", p, samples, rng)], rng).quality[0]
            alarms += equal.pairs[0].differs
            lower = compare([side("a", p, samples, rng), side("b", worse, samples, rng)], rng).quality[0].pairs[0]
            seen += lower.differs
            interval = lower.difference.interval if lower.difference else None
            covered += interval is not None and interval.low <= float((worse - p).mean()) <= interval.high
        few = max(20, runs // 8)
        for _ in range(few):
            p = questions(n, rng)
            eight += len(compare([side(str(i), p, samples, rng) for i in range(8)], rng).quality[0].groups) > 1
        what = f"{n} questions x {samples}"
        found += [
            Asked(
                name=f"{what}: two equal runs are told apart",
                measured=alarms / runs,
                bound=0.05,
                least=False,
                runs=runs,
            ),
            Asked(
                name=f"{what}: eight equal runs are not one tie group",
                measured=eight / few,
                bound=0.05,
                least=False,
                runs=few,
            ),
            Asked(
                name=f"{what}: the 95 % interval holds the true difference",
                measured=covered / runs,
                bound=0.95,
                least=True,
                runs=runs,
            ),
            Asked(
                name=f"{what}: a loss of {100 * loss:g} points is shown",
                measured=seen / runs,
                bound=0.8,
                least=True,
                runs=runs,
            ),
        ]
    return found


def changes(rng: np.random.Generator, runs: int) -> list[Asked]:
    def nights(n: int, p: float) -> Sequence[float]:
        return list(rng.binomial(500, p, n) / 500)

    false = sum(bool(change_points(nights(30, 0.9), rng)) for _ in range(runs))
    found = near = 0
    for _ in range(runs):
        places = [change.index for change in change_points([*nights(20, 0.9), *nights(10, 0.86)], rng)]
        found += bool(places)
        near += any(abs(place - 20) <= 2 for place in places)
    return [
        Asked(
            name="30 nights of 500 questions without a change show one",
            measured=false / runs,
            bound=0.01,
            least=False,
            runs=runs,
        ),
        Asked(
            name="a fall from 90 to 86 after 20 nights is shown ten nights later",
            measured=found / runs,
            bound=0.95,
            least=True,
            runs=runs,
        ),
        Asked(name="... and placed within two nights", measured=near / runs, bound=0.85, least=True, runs=runs),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="an eighth of the runs")
    parser.add_argument("--seed", type=int, default=6)
    arguments = parser.parse_args()
    scale = 8 if arguments.quick else 1
    measures: tuple[tuple[str, Callable[[np.random.Generator, int], list[Asked]], int], ...] = (
        ("comparing finished runs", comparisons, 400),
        ("change points", changes, 800),
    )
    short = False
    for title, measure, runs in measures:
        began = time.perf_counter()
        rows = measure(np.random.default_rng([arguments.seed, runs]), runs // scale)
        print(f"\n{title}: {runs // scale} runs, {time.perf_counter() - began:.0f} s")
        for row in rows:
            print(
                f"  {'ok   ' if row.ok else 'SHORT'} {row.measured:7.4f}  {'>=' if row.least else '<='} {row.bound:<6g}"
                f" {row.name}"
            )
            short = short or not row.ok
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
