"""All a report needs, as values: the renderers read nothing else. Fields follow report.json.

Building one from a finished run:

    view = RunView(
        run=RunFacts(run_id=..., started=..., finished=..., kvv_version=..., seed=...,
        exit_code=exit_code(decision.outcome)), endpoint=Endpoint(base_url=redacted, model=..., vendor=...),
        profile="kimi-k3", surface="vendor", policy=PolicyRef(name=policy.name, sha256=policy.sha256,
        strict=policy.strict), suites=suites, decision=decision,
        checks=tuple(CheckRow.under(policy, today, case, verdict, request=..., answer=...) for ...),
        traffic=Traffic(...), timing=timing_of(answers),
    )

``checks`` has every contract case; of benchmarks only the samples worth showing (failed, open), or all of them:
renderers bound what they list and say how much they left out. Texts may be hostile and of any length; secrets must be
redacted before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum

from kvv.cases.suite import SuiteKind
from kvv.core import Case, Gate, Level, Outcome, Stat, Verdict
from kvv.core.lazy import numpy as np
from kvv.decision.decide import Decision
from kvv.decision.inputs import SuiteRun
from kvv.decision.service_levels import SERVICE, TimedAnswer
from kvv.profiles.known_faults import KnownFault
from kvv.profiles.policy import Policy

#: lower ends of the prompt-length tiers, in tokens
PROMPT_TIERS = (0, 1_000, 8_000, 32_000, 128_000, 512_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Times are ISO 8601 UTC. ``partial``: less than the policy's planned sample was asked."""

    run_id: str
    started: str
    finished: str
    kvv_version: str
    seed: int
    exit_code: int
    partial: bool = False
    preset: str = ""
    tier: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """``base_url`` without userinfo and query; ``upstreams``: who answered -> how many exchanges; ``fingerprints``
    likewise.
    """

    base_url: str
    model: str
    vendor: str
    upstreams: Mapping[str, int] = field(default_factory=dict)
    fingerprints: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRef:
    name: str
    sha256: str
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a sample's exchanges with the target took, all attempts together: seconds, tokens, US dollars. ``ttft_ms``
    is the first answer's."""

    seconds: float = 0.0
    ttft_ms: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """One judged sample. The texts are for people: request body, what came back, what would have been right, a curl
    line with $KVV_API_KEY.

    ``waived`` and ``level`` are as the policy has them; ``CheckRow.under`` fills them in.
    """

    case: Case
    verdict: Verdict
    level: Level
    waived: bool = False
    request: str = ""
    answer: str = ""
    expected: str = ""
    curl: str = ""
    asked: Asked = Asked()

    @classmethod
    def under(
        cls,
        policy: Policy,
        today: date,
        case: Case,
        verdict: Verdict,
        *,
        request: str = "",
        answer: str = "",
        expected: str = "",
        curl: str = "",
    ) -> CheckRow:
        """The row as this policy sees it on this day."""
        waived = verdict.outcome is Outcome.FAIL and any(w.holds(case.id, today) for w in policy.waiver)
        level = policy.level(case.id, case.level)
        return cls(
            case=case,
            verdict=verdict,
            level=level,
            waived=waived,
            request=request,
            answer=answer,
            expected=expected,
            curl=curl,
        )

    @property
    def id(self) -> str:
        """The case's id; repeats carry their number."""
        return self.case.id if self.verdict.sample == 0 else f"{self.case.id}#{self.verdict.sample}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficView:
    """Counts over the run. ``first_try_success``: share of requests whose first attempt was answered; ``cost`` in US
    dollars.
    """

    requests: int = 0
    attempts: int = 0
    retried: int = 0
    first_try_success: float | None = None
    status: Mapping[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    n: int
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTier:
    """Prompt tokens from ``low`` up to, not including, ``high`` (None: no end)."""

    low: int
    high: int | None
    ttft_ms: Quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingView:
    """None where nothing was measured. Milliseconds; tokens a second. ``itl_by_workload`` is by chat and agentic, those
    that were measured.
    """

    ttft_ms: Quantiles | None = None
    by_prompt_tokens: tuple[PromptTier, ...] = ()
    itl_ms: Quantiles | None = None
    itl_by_workload: tuple[tuple[str, Quantiles], ...] = ()
    output_tps: Quantiles | None = None
    e2e_ms: Quantiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something the run lived through: a pause, a breaker, a budget reached. ``at`` is ISO 8601 UTC."""

    at: str
    kind: str
    message: str


class CauseKind(StrEnum):
    """What a cause was made of."""

    CASES = "cases"
    RULE = "rule"
    GATE = "gate"
    ENDPOINT = "endpoint"
    OPEN = "open"
    OURS = "harness"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that is wrong, whatever number of cases and answers shows it (``kvv.storage.causes``).

    ``title`` says it and ``detail`` what differs; ``counts``: it keeps the run from a pass. ``answers`` counts the
    answers that wire rules objected to, or a benchmark's wrong ones. ``example`` is a case's id, ``exchange`` the key
    of an exchange where no case failed; ``expected`` is what would have been right.
    """

    id: str
    kind: CauseKind
    title: str
    detail: str = ""
    reason: str = ""
    rules: tuple[str, ...] = ()
    level: Level
    counts: bool
    areas: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    cases: int = 0
    answers: int = 0
    waived: int = 0
    levels: tuple[tuple[Level, int], ...] = ()
    modes: tuple[str, ...] = ()
    faults: tuple[KnownFault, ...] = ()
    case_ids: tuple[str, ...] = ()
    example: str = ""
    exchange: str = ""
    request: str = ""
    answer: str = ""
    expected: str = ""
    curl: str = ""

    @property
    def size(self) -> str:
        """``224 cases, 638 answers``."""
        counted = [
            f"{n:,} {word}{'' if n == 1 else 's'}" for n, word in ((self.cases, "case"), (self.answers, "answer")) if n
        ]
        return ", ".join(counted)

    @property
    def where(self) -> str:
        """Modes, else areas: ``streamed, whole``."""
        return ", ".join(self.modes or self.areas)

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """Title and text of each part of the example that there is."""
        parts = (("Request", self.request), ("Answer", self.answer), ("Expected", self.expected), ("curl", self.curl))
        return tuple((title, text) for title, text in parts if text)

    @property
    def sentence(self) -> str:
        """All of it in one plain sentence."""
        known = "; ".join(f"{fault.id}: {fault.where}" for fault in self.faults[:3] if fault.where)
        said = self.title + (f" ({self.detail})" if self.detail else "")
        facts = ", ".join(filter(None, (self.size, self.where)))
        return said + (f": {facts}" if facts else "") + (f". Known elsewhere: {known}" if known else "") + "."


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlisted:
    """``n`` samples of a benchmark with this outcome that are not among the view's checks: the store has them."""

    suite: str
    outcome: Outcome
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """``trouble`` is one sentence on what is wrong with the endpoint or the account, "" where nothing is."""

    run: RunFacts
    endpoint: EndpointView
    profile: str
    surface: str
    policy: PolicyRef
    suites: tuple[SuiteRun, ...]
    decision: Decision
    checks: tuple[CheckRow, ...] = ()
    traffic: TrafficView = TrafficView()
    timing: TimingView = TimingView()
    trouble: str = ""
    events: tuple[RunEvent, ...] = ()
    unlisted: tuple[Unlisted, ...] = ()
    causes: tuple[Cause, ...] = ()

    @property
    def explained(self) -> str:
        """``8 causes explain 287 failed cases of 1,026 (242 must, 43 should, 2 may).``, "" where nothing failed."""
        contract = [row for row in self.checks if row.case.suite not in self.benchmarks]
        return explained(self.causes, len(contract))

    def counts(self, row: CheckRow) -> bool:
        """Whether a failure of this row counts against the verdict: not waived, and must, or should under
        ``strict``.
        """
        return not row.waived and (row.level is Level.MUST or (row.level is Level.SHOULD and self.policy.strict))

    @property
    def service(self) -> tuple[Gate, ...]:
        """The gates of service levels."""
        return tuple(gate for gate in self.decision.gates if gate.id.startswith(SERVICE))

    @property
    def benchmarks(self) -> frozenset[str]:
        return frozenset(s.id for s in self.suites if s.kind is SuiteKind.BENCHMARK)

    def rows(self, *outcomes: Outcome) -> list[CheckRow]:
        return [row for row in self.checks if row.verdict.outcome in outcomes]

    def title(self, suite: str) -> str:
        return next((s.title for s in self.suites if s.id == suite and s.title), suite)


def explained(causes: Sequence[Cause], asked: int) -> str:
    """What the causes explain of ``asked`` contract cases, in one sentence; "" where there is none that counts."""
    counted = [cause for cause in causes if cause.counts]
    if not counted:
        return ""
    cases = sum(cause.cases for cause in counted)
    dead = any(cause.kind is CauseKind.ENDPOINT for cause in counted)
    levels = dict.fromkeys(Level, 0)
    for cause in counted:
        for level, n in cause.levels:
            levels[level] += n
    shares = ", ".join(f"{n:,} {level.value}" for level, n in levels.items() if n)
    what = f"{cases:,} {'' if dead else 'failed '}case{'' if cases == 1 else 's'}{' without a result' if dead else ''}"
    if not cases:
        answers = sum(cause.answers for cause in counted)
        what = (
            f"{answers:,} {'wrong ' if answers else ''}answer{'' if answers == 1 else 's'}"
            if answers
            else "the verdict"
        )
    elif asked > cases:
        what += f" of {asked:,}"
    verb = "explains" if len(counted) == 1 else "explain"
    return f"{len(counted)} cause{'' if len(counted) == 1 else 's'} {verb} {what}{f' ({shares})' if shares else ''}."


def early_end(stat: Stat) -> str:
    """``look 2 of 5, 1,000 planned`` for a row that a look ended, else ""."""
    look = stat.look
    return f"look {look.number} of {look.of}, {look.planned:,} planned" if look is not None and look.stopped else ""


def shown_metric(stat: Stat) -> str:
    """The row's metric for people: avg@k, pass@k and pass^k say their k."""
    k = stat.breakdown.get("k")
    return stat.metric.replace("@k", f"@{k}").replace("^k", f"^{k}") if isinstance(k, int) else stat.metric


def quantiles(values: Sequence[float]) -> Quantiles | None:
    if not len(values):
        return None
    p50, p90, p99 = (float(x) for x in np.quantile(np.asarray(values, dtype=np.float64), (0.5, 0.9, 0.99)))
    return Quantiles(n=len(values), p50=p50, p90=p90, p99=p99)


def timing_of(answers: Iterable[TimedAnswer]) -> TimingView:
    """One pass over the answered exchanges; eight bytes a value."""
    ttft, itl, tps, e2e = (array("d") for _ in range(4))
    tiers = [array("d") for _ in PROMPT_TIERS]
    workloads = {name: array("d") for name in ("chat", "agentic")}
    for answer in answers:
        for values, value in (
            (ttft, answer.ttft_ms),
            (itl, answer.itl_ms),
            (tps, answer.output_tps),
            (e2e, answer.e2e_ms),
        ):
            if value is not None:
                values.append(value)
        if answer.itl_ms is not None:
            workloads[answer.workload].append(answer.itl_ms)
        if answer.ttft_ms is not None:
            tiers[sum(answer.prompt_tokens >= low for low in PROMPT_TIERS[1:])].append(answer.ttft_ms)
    ends = (*PROMPT_TIERS[1:], None)
    found = [(low, high, quantiles(values)) for low, high, values in zip(PROMPT_TIERS, ends, tiers, strict=True)]
    return TimingView(
        ttft_ms=quantiles(ttft),
        by_prompt_tokens=tuple(PromptTier(low=low, high=high, ttft_ms=q) for low, high, q in found if q is not None),
        itl_ms=quantiles(itl),
        itl_by_workload=tuple((name, q) for name, values in workloads.items() if (q := quantiles(values)) is not None),
        output_tps=quantiles(tps),
        e2e_ms=quantiles(e2e),
    )
