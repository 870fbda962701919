"""Two or more runs side by side: quality by suite, contract by area and case, what stands beside quality, who cannot be
told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from kvv.analysis.comparability import Unlike, differences, find_refused, shared_suites
from kvv.analysis.pairs import PairMeasure, PairResult, align_cases, compare_pair, measures, outcome_of, tie_groups
from kvv.cases.suite import SuiteKind
from kvv.core import Area, Level, Outcome
from kvv.core.lazy import numpy as np
from kvv.stats import benjamini_hochberg
from kvv.storage.run_summary import RunSummary, SuiteResult

#: cases listed of one suite and pair, and of them how many come with their answers, over all
LISTED, WITH_ANSWERS = 200, 60

#: (run's number, case id, sample) -> what was answered
Answers = Callable[[int, str, int], str]
#: (run's number, case id) -> what would have been right
Expected = Callable[[int, str], str]


class UnlikeRuns(ValueError):
    """Runs that must not be compared; ``reasons`` has all, the message the first."""

    def __init__(self, reasons: Sequence[Unlike]) -> None:
        self.reasons = tuple(reasons)
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        super().__init__(
            f"{reasons[0].text}{more}; compare all the same with --allow-different"
            f" {','.join(dict.fromkeys(r.kind for r in reasons))}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordantCase:
    """One case on which two runs differ. ``first_note`` and ``second_note`` are an outcome with its reason, or k of n
    samples.
    """

    first: int
    second: int
    suite: str
    area: Area
    level: Level
    case: str
    sample: int
    first_note: str
    second_note: str
    first_answer: str = ""
    second_answer: str = ""
    expected: str = ""
    #: of a benchmark's case: the second run's mean less the first's
    change: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteComparison:
    """``groups`` are tie groups on the primary measure; empty where a measure has no better direction or no
    estimate.
    """

    suite: str
    title: str
    pairs: tuple[PairResult, ...]
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaPair:
    """Contract cases of one area in both runs: ``only_first`` pass there and fail in the second; ``open``: either side
    without a conclusion.
    """

    first: int
    second: int
    area: Area
    both_pass: int = 0
    both_fail: int = 0
    only_first: int = 0
    only_second: int = 0
    open: int = 0

    @property
    def n(self) -> int:
        return self.both_pass + self.both_fail + self.only_first + self.only_second + self.open


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """``unlike`` were allowed by the user; ``dropped`` are sentences on what is not compared for it."""

    sides: tuple[RunSummary, ...]
    unlike: tuple[Unlike, ...]
    dropped: tuple[str, ...]
    quality: tuple[SuiteComparison, ...]
    contract: tuple[AreaPair, ...]
    discordant: tuple[DiscordantCase, ...]
    left_out: int = 0

    def label(self, index: int) -> str:
        return label(index)


def label(index: int) -> str:
    """A, B, ... Z, A2, ..."""
    return chr(ord("A") + index % 26) + (str(index // 26 + 1) if index >= 26 else "")


def compare(sides: Sequence[RunSummary], rng: np.random.Generator, *, allowed: Collection[str] = ()) -> Comparison:
    """Raises UnlikeRuns; at least two sides or ValueError. Deterministic for a given ``rng`` state."""
    if len(sides) < 2:
        raise ValueError("a comparison needs two runs")
    unlike = differences(sides)
    if bad := find_refused(unlike, allowed):
        raise UnlikeRuns(bad)
    shared = shared_suites(sides)
    benchmarks = [suite.id for suite in shared if suite.kind is SuiteKind.BENCHMARK]
    contract = [suite.id for suite in shared if suite.kind is not SuiteKind.BENCHMARK]
    quality = _adjusted([_suite(sides, suite, rng) for suite in benchmarks])
    listed, left_out = _discordant(sides, benchmarks, contract)
    return Comparison(
        sides=tuple(sides),
        unlike=tuple(unlike),
        dropped=tuple(_dropped(sides, [suite.id for suite in shared])),
        quality=tuple(quality),
        contract=tuple(_areas(sides, contract)),
        discordant=tuple(listed),
        left_out=left_out,
    )


def with_answers(found: Comparison, answers: Answers, expected: Expected) -> Comparison:
    """The first discordant cases with both answers and what would have been right, fetched by the caller."""
    shown = [
        replace(
            row,
            first_answer=answers(row.first, row.case, row.sample),
            second_answer=answers(row.second, row.case, row.sample),
            expected=expected(row.first, row.case),
        )
        for row in found.discordant[:WITH_ANSWERS]
    ]
    return replace(found, discordant=(*shown, *found.discordant[WITH_ANSWERS:]))


# --- quality ---------------------------------------------------------------------------------------


def _suite(sides: Sequence[RunSummary], suite: str, rng: np.random.Generator) -> SuiteComparison:
    results = [side.suites[suite] for side in sides]
    pairs = [
        compare_pair(i, j, results[i], results[j], measure, rng)
        for measure in measures(results)
        for i, j in combinations(range(len(sides)), 2)
    ]
    return SuiteComparison(suite=suite, title=results[0].title, pairs=tuple(pairs), groups=())


def _adjusted(suites: Sequence[SuiteComparison]) -> list[SuiteComparison]:
    """Benjamini and Hochberg over all pairs of all suites, primary measures as one family and the others as another;
    then the tie groups.
    """
    for primary in (True, False):
        family = [
            pair
            for suite in suites
            for pair in suite.pairs
            if pair.measure.primary is primary and pair.difference is not None
        ]
        adjusted = dict(zip(map(id, family), benjamini_hochberg([min(1.0, pair.p) for pair in family]), strict=True))
        suites = [
            replace(
                suite,
                pairs=tuple(
                    replace(pair, adjusted=adjusted[id(pair)]) if id(pair) in adjusted else pair for pair in suite.pairs
                ),
            )
            for suite in suites
        ]
    return [replace(suite, groups=tuple(_groups(suite))) for suite in suites]


def _groups(suite: SuiteComparison) -> list[tuple[int, ...]]:
    return group_ties([pair for pair in suite.pairs if pair.measure.primary and pair.measure.better])


def group_ties(pairs: Sequence[PairResult]) -> list[tuple[int, ...]]:
    """Tie groups of one suite's pairs, p-values adjusted. Runs are ordered by their mean difference from all others,
    which is on shared questions, not by their own means."""
    pairs = [pair for pair in pairs if pair.difference is not None]
    if not pairs:
        return []
    scores: dict[int, list[float]] = {}
    for pair in pairs:
        assert pair.difference is not None
        scores.setdefault(pair.first, []).append(-pair.difference.estimate)
        scores.setdefault(pair.second, []).append(pair.difference.estimate)
    estimates = [sum(scores[i]) / len(scores[i]) if i in scores else None for i in range(max(scores) + 1)]
    return tie_groups(estimates, {frozenset((pair.first, pair.second)) for pair in pairs if pair.differs})


# --- contract --------------------------------------------------------------------------------------


def _areas(sides: Sequence[RunSummary], suites: Sequence[str]) -> list[AreaPair]:
    found: dict[tuple[int, int, Area], AreaPair] = {}
    for i, j in combinations(range(len(sides)), 2):
        for suite in suites:
            a, b = sides[i].suites[suite], sides[j].suites[suite]
            for case_id, case in a.cases.items():
                if case_id not in b.cases:
                    continue
                kind = _kind(outcome_of(case), outcome_of(b.cases[case_id]))
                if kind:
                    row = found.setdefault((i, j, case.area), AreaPair(first=i, second=j, area=case.area))
                    found[i, j, case.area] = replace(row, **{kind: getattr(row, kind) + 1})
    order = list(Area)
    return sorted(found.values(), key=lambda row: (row.first, row.second, order.index(row.area)))


def _kind(a: Outcome, b: Outcome) -> str:
    """Empty for cases that neither run claims."""
    match a, b:
        case Outcome.SKIP, Outcome.SKIP:
            return ""
        case Outcome.PASS, Outcome.PASS:
            return "both_pass"
        case Outcome.FAIL, Outcome.FAIL:
            return "both_fail"
        case Outcome.PASS, Outcome.FAIL:
            return "only_first"
        case Outcome.FAIL, Outcome.PASS:
            return "only_second"
        case _:
            return "open"


# --- case by case ----------------------------------------------------------------------------------


def _discordant(
    sides: Sequence[RunSummary], benchmarks: Sequence[str], contract: Sequence[str]
) -> tuple[list[DiscordantCase], int]:
    rows: list[DiscordantCase] = []
    left_out = 0
    for i, j in combinations(range(len(sides)), 2):
        for suite in (*contract, *benchmarks):
            a, b = sides[i].suites[suite], sides[j].suites[suite]
            found = (
                _contract_rows(i, j, a, b)
                if suite in contract
                else _benchmark_rows(i, j, a, b, measures([s.suites[suite] for s in sides]))
            )
            rows += found[:LISTED]
            left_out += max(0, len(found) - LISTED)
    return rows, left_out


def _contract_rows(i: int, j: int, a: SuiteResult, b: SuiteResult) -> list[DiscordantCase]:
    rows = []
    for case_id, case in a.cases.items():
        other = b.cases.get(case_id)
        if other is None or (mine := outcome_of(case)) is (theirs := outcome_of(other)):
            continue
        number = next(
            (
                k
                for k, (x, y) in enumerate(zip(case.samples, other.samples, strict=False))
                if x.outcome is not y.outcome
            ),
            0,
        )
        notes = [
            _note(outcome, side.samples[min(number, len(side.samples) - 1)].reason)
            for outcome, side in ((mine, case), (theirs, other))
        ]
        rows.append(_row(i, j, a, case_id, number, *notes))
    # what one side breaks and the other keeps first, then by level
    return sorted(rows, key=_rank)


def _rank(row: DiscordantCase) -> tuple[bool, int]:
    decided = all(note.startswith(("passes", "fails")) for note in (row.first_note, row.second_note))
    return not decided, list(Level).index(row.level)


def _note(outcome: Outcome, reason: str) -> str:
    word = {
        Outcome.PASS: "passes",
        Outcome.FAIL: "fails",
        Outcome.INCONCLUSIVE: "is inconclusive",
        Outcome.SKIP: "skips",
        Outcome.ERROR: "is our error",
    }
    return word[outcome] + (f" ({reason})" if reason and outcome is not Outcome.PASS else "")


def _benchmark_rows(
    i: int, j: int, a: SuiteResult, b: SuiteResult, known: Sequence[PairMeasure]
) -> list[DiscordantCase]:
    """Cases whose means differ on the primary measure, the largest difference first."""
    primary = next((measure for measure in known if measure.primary), None)
    if primary is None:
        return []
    found = []
    for row in align_cases(a, b, primary):
        closed = [
            (k, x, y) for k, (x, y) in zip(row.numbers, row.pairs, strict=True) if x is not None and y is not None
        ]
        gap = sum(y - x for _, x, y in closed) / len(closed) if closed else 0.0
        if gap:
            found.append((gap, row.case, closed))
    rows = []
    for gap, case_id, closed in sorted(found, key=lambda item: (-abs(item[0]), item[1])):
        number = max(closed, key=lambda item: abs(item[2] - item[1]))[0]
        row_of = _row(i, j, a, case_id, number, _score([x for _, x, _ in closed]), _score([y for _, _, y in closed]))
        rows.append(replace(row_of, change=gap))
    return rows


def _score(values: Sequence[float]) -> str:
    if len(values) == 1:
        return "right" if values[0] == 1 else "wrong" if values[0] == 0 else f"scores {values[0]:.3g}"
    if all(value in (0.0, 1.0) for value in values):
        return f"right in {sum(values):.0f} of {len(values)}"
    return f"scores {sum(values) / len(values):.3g} over {len(values)}"


def _row(i: int, j: int, suite: SuiteResult, case_id: str, sample: int, first: str, second: str) -> DiscordantCase:
    case = suite.cases[case_id]
    return DiscordantCase(
        first=i,
        second=j,
        suite=suite.id,
        area=case.area,
        level=case.level,
        case=case_id,
        sample=sample,
        first_note=first,
        second_note=second,
    )


# --- what is left out ------------------------------------------------------------------------------


def _dropped(sides: Sequence[RunSummary], shared: Sequence[str]) -> list[str]:
    found = []
    for name in dict.fromkeys(name for side in sides for name in side.suites):
        if name not in shared:
            having = [label(i) for i, side in enumerate(sides) if name in side.suites]
            found.append(f"suite {name}: only in {', '.join(having)}, not compared")
            continue
        known = [set(side.suites[name].cases) for side in sides]
        common, every = set.intersection(*known), set.union(*known)
        if common != every:
            found.append(
                f"{name}: {len(every) - len(common)} of {len(every)} cases are not in all runs and are left out where"
                " they lack"
            )
        found += _extra_samples(sides, name, common)
    return found


def _extra_samples(sides: Sequence[RunSummary], suite: str, common: Collection[str]) -> list[str]:
    counts: Mapping[int, int] = {
        i: sum(len(side.suites[suite].cases[case].samples) for case in common) for i, side in enumerate(sides)
    }
    paired = sum(min(len(side.suites[suite].cases[case].samples) for side in sides) for case in common)
    extra = {i: n - paired for i, n in counts.items() if n > paired}
    return [f"{suite}: {n} samples of {label(i)} have no counterpart and are left out" for i, n in extra.items()]
