"""One finished run as a comparison sees it: what it asked, under which settings, and what each sample came to. No
answers, no bytes.

It is also what an accepted baseline file holds (``kvv.storage.baselines``): plain values, readable back through
pydantic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvv.cases.suite import REFUSED, ReferenceRun, SuiteKind
from kvv.core import Area, Gate, Level, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleResult:
    outcome: Outcome
    reason: str = ""
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def concluded(self) -> bool:
        return self.outcome in (Outcome.PASS, Outcome.FAIL)


def _referred(sample: SampleResult) -> Mapping[str, float]:
    if not sample.values and sample.reason == "valid-request-refused":
        return {REFUSED: 1.0}
    return sample.values if sample.outcome is not Outcome.ERROR else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """``samples`` are in order; one never asked is INCONCLUSIVE ``not-run``.

    ``first_try``: a contract case that passed at its first answer, with no repeat to help it.
    ``breaks``: a contract case that fails its area's gate under the run's policy.
    """

    area: Area
    level: Level
    cluster: str
    samples: tuple[SampleResult, ...]
    first_try: bool = False
    breaks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """What one passive rule found in a run: ``count`` objections in ``exchanges`` answers, at the level of the run's
    policy.

    ``cases`` are a few of the cases whose answers it objected to. ``breaks``: it fails its area's gate under the run's
    policy.
    """

    rule: str
    area: Area
    level: Level
    count: int
    exchanges: int
    message: str = ""
    cases: tuple[str, ...] = ()
    breaks: bool = False

    @property
    def answers(self) -> str:
        return f"{self.exchanges} answer{'' if self.exchanges == 1 else 's'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseResult:
    """One cause of a run (``kvv.storage.causes``): the same ``id`` in another run is the same cause. ``size``: ``224
    cases, 638 answers``.
    """

    id: str
    title: str
    size: str
    counts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """A report row of the suite, as the run's own report has it; ``kvv`` is the value under the public verifier's
    failure rule.
    """

    metric: str
    primary: bool
    value: float | None
    low: float | None
    high: float | None
    n: int
    n_planned: int
    kvv: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """``facts`` is by kind (data, sampling, judge, agent, scorer): what has to be equal for two results to be
    comparable.

    ``ended_early``: a look ended the suite (``kvv run --early-stop``): its cases are the first of a seeded order, those
    not asked are not here.
    """

    id: str
    kind: SuiteKind
    title: str
    facts: Mapping[str, Any]
    fixture: bool = False
    ended_early: bool = False
    failures: str = ""
    rows: tuple[SummaryRow, ...] = ()
    cases: Mapping[str, CaseResult] = field(default_factory=dict)
    #: the public set, of a suite that has several: a size of BEAM, a config of MMMU Pro, DeepSWE
    edition: str = ""
    #: in what it was asked otherwise than published values were, beside the number of questions; "" also where an
    #: earlier version did not say
    asked_otherwise: str = ""

    @property
    def primary(self) -> SummaryRow | None:
        return next((row for row in self.rows if row.primary), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A quantity of one run with its 95 % interval and n; milliseconds, tokens/s, tokens or shares."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What stands beside quality. ``cost`` in US dollars over ``requests`` requests, None where no price was known."""

    requests: int = 0
    first_try: Measured = Measured(value=None)
    ttft_ms: Measured = Measured(value=None)
    itl_ms: Measured = Measured(value=None)
    output_tps: Measured = Measured(value=None)
    e2e_ms: Measured = Measured(value=None)
    completion_tokens: Measured = Measured(value=None)
    prompt_tokens: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """``date`` is the ISO 8601 UTC time the run ended; ``surface`` and ``profile`` decide which contract cases there
    are.

    ``causes`` is None where a version that did not group them accepted the baseline.

    ``verdict``, ``contract`` and ``gates`` are outcomes under the run's own policy. ``findings`` is None where nobody
    recorded them: a baseline accepted by an earlier version.
    ``results_sha256`` is ``Store.results_digest``: which measurement it is, "" in baselines of versions that did not
    keep it.
    """

    run_id: str
    date: str
    vendor: str
    model: str
    base_url: str
    kvv_version: str
    profile: str
    surface: str
    preset: str
    verdict: str
    contract: str = ""
    partial: bool = False
    upstreams: Mapping[str, int] = field(default_factory=dict)
    suites: Mapping[str, SuiteResult] = field(default_factory=dict)
    service: Service = Service()
    findings: tuple[RuleResult, ...] | None = None
    gates: tuple[Gate, ...] = ()
    results_sha256: str = ""
    causes: tuple[CauseResult, ...] | None = None

    def same_run(self, other: RunSummary) -> bool:
        """Whether both are of one run, by its id or by its results: a copy, an accepted baseline, a recording that was
        imported again.
        """
        marks = ("run_id", "results_sha256")
        return any(getattr(self, mark) and getattr(self, mark) == getattr(other, mark) for mark in marks)

    @property
    def name(self) -> str:
        return f"{self.vendor} {self.model} {self.date[:10]}"

    def reference(self, suite: str) -> ReferenceRun:
        """Its benchmark results as a reference of a later run, by the rule of reference files: a sample without a
        usable value is empty, a refused request has ``REFUSED`` alone.
        """
        found = self.suites[suite].cases
        cases: dict[str, list[Mapping[str, float]]] = {}
        for case_id, case in found.items():
            samples = [s for s in case.samples if s.outcome is not Outcome.SKIP]
            if samples:
                cases[case_id] = [_referred(s) for s in samples]
        return ReferenceRun(name=f"{self.model} ({self.run_id})", model=self.model, cases=cases)
