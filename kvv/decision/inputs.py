"""What a decision is made from. ``Collector`` is fed every verdict once and keeps memory in the number of cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from kvv.cases.suite import ReferenceRun, SuiteKind
from kvv.core import Area, Case, Finding, FindingKind, Level, Outcome, ReferenceValue, Stat, Verdict
from kvv.decision.coverage import CoverageTally
from kvv.decision.features import FeatureRate
from kvv.profiles.policy import Policy
from kvv.stats.metrics import NEVER_ASKED
from kvv.stats.rerun import Samples

#: examples kept per finding group and ids named per gate
EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """One selected suite. ``skipped`` is the reason it did not run ("no judge"), "" where it did; ``fixture``: on
    shipped data.
    """

    id: str
    kind: SuiteKind
    title: str = ""
    skipped: str = ""
    fixture: bool = False


class Workload(StrEnum):
    """What an answer was for. Service levels tell agents from all others alike."""

    CONTRACT = "contract"
    BENCHMARK = "benchmark"
    AGENT = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialRates:
    """Of ``answers`` of the official endpoint to benchmark questions, how many each rule objected to."""

    answers: Annotated[int, Field(ge=0, strict=True)] = 0
    objected: Mapping[str, Annotated[int, Field(ge=0, strict=True)]] = field(default_factory=dict)

    def plus(self, other: OfficialRates) -> OfficialRates:
        rules = {*self.objected, *other.objected}
        return OfficialRates(
            answers=self.answers + other.answers,
            objected={rule: self.objected.get(rule, 0) + other.objected.get(rule, 0) for rule in sorted(rules)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingExample:
    """Where a rule objected: the exchange's identity key, the frame's number (None: the whole answer), an excerpt."""

    exchange: str
    frame: int | None = None
    excerpt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedFindings:
    """All objections of one rule: ``count`` of them in ``exchanges`` exchanges, ``streamed`` of which were streams
    (None: not counted), the first few as examples. ``workloads``: how many of the exchanges were of each workload.
    """

    rule: str
    area: Area
    level: Level
    kind: FindingKind
    count: int
    exchanges: int
    message: str
    examples: tuple[FindingExample, ...] = ()
    causes: tuple[str, ...] = ()
    workloads: Mapping[Workload, int] = field(default_factory=dict)
    streamed: int | None = None


def group_findings(found: Iterable[tuple[str, Finding]]) -> list[CountedFindings]:
    """Group (exchange key, finding) pairs by rule, area and level, in order of first appearance; a group keeps its
    first message.

    Memory is in the number of rules: exchanges are counted where the key changes, so feed them exchange by exchange.
    """
    groups: dict[tuple[str, Area, Level], CountedFindings] = {}
    last: dict[tuple[str, Area, Level], str] = {}
    for exchange, finding in found:
        key = (finding.rule, finding.area, finding.level)
        group = groups.get(key) or CountedFindings(
            rule=finding.rule,
            area=finding.area,
            level=finding.level,
            kind=finding.kind,
            count=0,
            exchanges=0,
            message=finding.message[:1000],
        )
        example = FindingExample(exchange=exchange, frame=finding.frame, excerpt=finding.excerpt[:400])
        groups[key] = replace(
            group,
            count=group.count + 1,
            exchanges=group.exchanges + (last.get(key) != exchange),
            examples=(*group.examples, example) if len(group.examples) < EXAMPLES else group.examples,
            causes=group.causes + tuple(cause for cause in finding.causes if cause not in group.causes),
        )
        last[key] = exchange
    return list(groups.values())


@dataclass(slots=True)
class CaseScore:
    """One value of one case: ``n`` concluded samples with sum ``total`` and sum of squares ``squares``; ``open``
    samples are not concluded, ``unasked`` were never sent. ``refused``: requests that were refused; a vendor's are
    among its ``n``, where they count as wrong."""

    cluster: str = ""
    n: int = 0
    total: float = 0.0
    squares: float = 0.0
    open: int = 0
    unasked: int = 0
    refused: int = 0
    binary: bool = True

    def count(self, value: float) -> None:
        self.n += 1
        self.total += value
        self.squares += value * value
        self.binary = self.binary and value in (0.0, 1.0)

    @property
    def mean(self) -> float:
        return self.total / self.n

    @property
    def variance(self) -> float:
        """Of the mean, estimated from repeats: s^2/n; 0 with fewer than two samples."""
        return max(0.0, self.squares - self.total**2 / self.n) / (self.n - 1) / self.n if self.n > 1 else 0.0

    def samples(self, open_as: str) -> Samples:
        """With the open samples left out (""), counted as wrong ("worst") or as right ("best")."""
        n = self.n + (self.open if open_as else 0)
        right = self.open if open_as == "best" else 0
        return Samples(n=n, total=self.total + right, squares=self.squares + right)


@dataclass(slots=True)
class AreaTally:
    """Contract cases of one area by level and outcome; a few ids of each kind that is not a pass."""

    counts: dict[tuple[Level, Outcome], int] = field(default_factory=dict)
    examples: dict[tuple[Level, Outcome], list[str]] = field(default_factory=dict)
    waived: int = 0
    coverage: CoverageTally = field(default_factory=CoverageTally)

    def add(self, case: Case, level: Level, outcome: Outcome) -> None:
        key = (level, outcome)
        self.counts[key] = self.counts.get(key, 0) + 1
        if outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE):
            kept = self.examples.setdefault(key, [])
            if len(kept) < EXAMPLES and case.id not in kept:
                kept.append(case.id)

    def count(self, outcome: Outcome, *levels: Level) -> int:
        return sum(n for (level, what), n in self.counts.items() if what is outcome and (not levels or level in levels))

    def names(self, outcome: Outcome, *levels: Level) -> list[str]:
        return [
            i
            for (level, what), ids in self.examples.items()
            if what is outcome and (not levels or level in levels)
            for i in ids
        ][:EXAMPLES]


@dataclass(slots=True)
class WaiverUse:
    failed: list[str] = field(default_factory=list)
    seen: bool = False


class Collector:
    """Takes every (case, verdict) of a run, once, in any order. ``today`` decides which waivers still hold."""

    def __init__(self, policy: Policy, suites: Sequence[SuiteRun], today: date) -> None:
        self.policy = policy
        self.suites = tuple(suites)
        self.today = today
        self.areas: dict[Area, AreaTally] = {}
        #: suite -> value name -> case id -> score
        self.scores: dict[str, dict[str, dict[str, CaseScore]]] = {}
        #: suite -> value -> (case id, sample) -> the value that a tool-call gate names; None for a refused request
        self.tokens: dict[str, dict[str, dict[tuple[str, int], float | None]]] = {}
        self._samples: dict[str, dict[tuple[str, int], None]] = {}
        self.errors: dict[str, int] = {}
        #: benchmark suite -> samples whose request was refused, and one refusal's words
        self.refused: dict[str, tuple[int, str]] = {}
        self.benchmark_area: dict[str, Area] = {}
        #: suites of which something was asked; samples that were answered and judged; suite -> why its first skipped
        #: case was skipped
        self.reached: set[str] = set()
        self.concluded = 0
        self._skips: dict[str, str] = {}
        self._to_ask: set[str] = set()
        self.waivers = [WaiverUse() for _ in policy.waiver]
        self.fixtures = {suite.id for suite in suites if suite.fixture}
        self._benchmarks = {suite.id for suite in suites if suite.kind is SuiteKind.BENCHMARK}
        self._given = {b.suite: (b.key, b.given) for b in policy.benchmark if b.given}
        self._call_keys: dict[str, set[str]] = {}
        for entry in policy.benchmark:
            if entry.method != "paired":
                self._call_keys.setdefault(entry.suite, set()).add(entry.key or entry.metric)
        self._all: dict[str, dict[str, CaseScore]] = {}
        #: as ``scores``, of the samples that fulfil a gate's ``given``; suite -> case id -> score
        self._conditional: dict[str, dict[str, CaseScore]] = {}

    def add(self, case: Case, verdict: Verdict) -> None:
        self.concluded += verdict.outcome in (Outcome.PASS, Outcome.FAIL)
        if verdict.outcome is Outcome.SKIP:
            self._skips.setdefault(case.suite, verdict.detail or verdict.reason)
        else:
            self._to_ask.add(case.suite)
            if verdict.reason not in NEVER_ASKED:
                self.reached.add(case.suite)
        if case.suite in self._benchmarks:
            self._add_benchmark(case, verdict)
            return
        outcome = verdict.outcome
        tally = self.areas.setdefault(case.area, AreaTally())
        tally.coverage.add(
            skipped=(verdict.detail or verdict.reason) if outcome is Outcome.SKIP else "",
            concluded=outcome in (Outcome.PASS, Outcome.FAIL),
        )
        if self.waived(case.id, failed=outcome is Outcome.FAIL):
            tally.waived += 1
            outcome = Outcome.SKIP
        tally.add(case, self.policy.level(case.id, case.level), outcome)

    def covered(self) -> tuple[SuiteRun, ...]:
        """The selected suites; one of which no case was there to be asked counts as skipped, with the reason."""
        return tuple(replace(suite, skipped=suite.skipped or self._nothing_to_ask(suite.id)) for suite in self.suites)

    def _nothing_to_ask(self, suite: str) -> str:
        return "" if suite in self._to_ask else self._skips.get(suite, "no case of it was chosen")

    def waived(self, subject: str, *, failed: bool) -> bool:
        """Whether a failure of ``subject`` is waived today; keeps count of which waivers were needed."""
        found = False
        for waiver, use in zip(self.policy.waiver, self.waivers, strict=True):
            if not waiver.matches(subject):
                continue
            use.seen = True
            if failed and waiver.holds(subject, self.today):
                found = True
                if len(use.failed) < EXAMPLES:
                    use.failed.append(subject)
        return found

    def _add_benchmark(self, case: Case, verdict: Verdict) -> None:
        suite = case.suite
        self.benchmark_area.setdefault(suite, case.area)
        if verdict.outcome is Outcome.SKIP:
            return
        if verdict.reason == "valid-request-refused":
            known, words = self.refused.get(suite, (0, verdict.detail))
            self.refused[suite] = known + 1, words
        if verdict.outcome is Outcome.ERROR:
            self.errors[suite] = self.errors.get(suite, 0) + 1
        concluded = verdict.outcome in (Outcome.PASS, Outcome.FAIL)
        every = self._all.setdefault(suite, {}).setdefault(case.id, CaseScore(cluster=case.cluster))
        every.n += concluded
        every.refused += verdict.reason == "valid-request-refused"
        unasked = not concluded and verdict.reason in NEVER_ASKED
        every.unasked += unasked
        every.open += not concluded and not unasked
        table = self.scores.setdefault(suite, {})
        if concluded:
            for key, value in verdict.values.items():
                table.setdefault(key, {}).setdefault(case.id, CaseScore(cluster=case.cluster)).count(value)
            key, given = self._given.get(suite, ("", ""))
            if given and key in verdict.values and verdict.values.get(given, 0.0) > 0:
                self._conditional.setdefault(suite, {}).setdefault(case.id, CaseScore(cluster=case.cluster)).count(
                    verdict.values[key]
                )
        for key in self._call_keys.get(suite, ()):
            self._samples.setdefault(suite, {})[case.id, case.sample] = None
            if verdict.outcome is Outcome.ERROR:
                continue
            tokens = self.tokens.setdefault(suite, {}).setdefault(key, {})
            if key in verdict.values:
                tokens[case.id, case.sample] = verdict.values[key]
            elif verdict.outcome is Outcome.FAIL:
                tokens[case.id, case.sample] = None

    def asked_samples(self, suite: str) -> Iterable[tuple[str, int]]:
        """Of a suite with a tool-call gate every planned sample, by case and number."""
        return self._samples.get(suite, {}).keys()

    def case_scores(self, suite: str, key: str, *, stopped_early: bool = False) -> dict[str, CaseScore]:
        """By case, for one value: concluded samples (one without the value, a refused request, counts 0) and open ones.

        What was never asked is open too, unless the run stopped early by plan: then those cases are left out.
        """
        found = self.scores.get(suite, {}).get(key, {})
        scores: dict[str, CaseScore] = {}
        for case, every in self._all.get(suite, {}).items():
            missing = every.open + (0 if stopped_early else every.unasked)
            if every.n + missing:
                score = found.get(case, CaseScore())
                scores[case] = replace(score, cluster=every.cluster, n=every.n, open=missing, refused=every.refused)
        return scores

    def asked(self, suite: str) -> int:
        """Samples that were sent, open ones included."""
        return sum(score.n + score.open for score in self._all.get(suite, {}).values())

    def given_scores(self, suite: str) -> dict[str, CaseScore]:
        """By case, for the value of the suite's gate with ``given``: samples that fulfil it, and open ones, which
        may.
        """
        found = self._conditional.get(suite, {})
        scores = {}
        for case, every in self._all.get(suite, {}).items():
            missing = every.open + every.unasked
            if case in found or missing:
                scores[case] = replace(found.get(case, CaseScore()), cluster=every.cluster, open=missing)
        return scores

    def keys(self, suite: str) -> list[str]:
        return sorted(self.scores.get(suite, {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimAnalysis:
    """The look by which a suite run with early stopping is judged: ``number``, from 1, of those after which
    ``fractions`` of its planned samples are in hand (rising to 1). ``planned`` samples are in its full plan;
    ``stopped``: nothing was asked after this look."""

    number: int
    fractions: tuple[float, ...]
    planned: int = 0
    stopped: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionEvidence:
    """Everything beside the verdicts. Mappings are by suite id; ``published`` and ``server_counts`` by ``suite`` or
    ``suite/metric``.

    ``references``: per-case results of official or earlier runs; ``interleaved`` names the suites whose reference ran
    in the same session, ``unfinished`` those of them whose reference stopped on the way, and why. ``published``: a bare
    mean with its n; ``published_otherwise``: why there is none for a suite that has one. ``server_counts``: right
    answers that our own reference endpoint counted.
    ``part`` says of which part of a run this is ("" for a whole one: a part alone passes nothing), ``chosen`` that the
    user chose cases. ``mixed``: suites answered by more than one upstream, and by whom. ``looks`` only for suites run
    with early stopping, one that ran to its end at its last look. ``features``: those whose requests fail beyond
    chance. ``unpromised``: areas of features that the profile does not claim.
    ``answers`` are those that rules looked at, ``official`` what they found at the official endpoint.
    """

    stats: Sequence[Stat] = ()
    findings: Sequence[CountedFindings] = ()
    references: Mapping[str, Sequence[ReferenceRun]] = field(default_factory=dict)
    interleaved: frozenset[str] = frozenset()
    unfinished: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, ReferenceValue] = field(default_factory=dict)
    published_otherwise: Mapping[str, str] = field(default_factory=dict)
    server_counts: Mapping[str, float] = field(default_factory=dict)
    mixed: Mapping[str, str] = field(default_factory=dict)
    part: str = ""
    chosen: str = ""
    looks: Mapping[str, InterimAnalysis] = field(default_factory=dict)
    features: Sequence[FeatureRate] = ()
    unpromised: frozenset[Area] = frozenset()
    answers: Mapping[Workload, int] = field(default_factory=dict)
    official: OfficialRates = OfficialRates()
