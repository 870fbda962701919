"""From verdicts, findings, rows and a policy to gates, areas, one outcome and one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from kvv.cases.suite import SuiteKind
from kvv.core import Area, Gate, Level, Outcome, Stat
from kvv.core.exit_codes import ExitCode
from kvv.core.lazy import numpy as np
from kvv.decision.benchmark import judge_row, row_generators
from kvv.decision.coverage import AreaCoverage, too_little
from kvv.decision.features import FeatureRate, feature_gates
from kvv.decision.inputs import EXAMPLES, AreaTally, Collector, CountedFindings, DecisionEvidence, SuiteRun
from kvv.decision.rule_rates import MODEL, WeighedFinding, rates_of
from kvv.decision.ruling import interim_sentence
from kvv.decision.service_levels import LatencyTally
from kvv.profiles.policy import Policy

#: beginnings of the reasons of gates that decide nothing
WAIVED, NOT_GATED = "waived: ", "not-gated: "
#: beginnings of what keeps a pass away where only quality was measured, and no reference gates it
UNREFERENCED = ("required-gate-missing: ", "nothing-decided: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiverState:
    """``state``: used, unneeded (its subjects ran and did not fail), not-seen (nothing ran that it names), expired."""

    case: str
    reason: str
    owner: str
    issue: str
    expires: str
    state: str
    subjects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``coverage`` is what the verdict covers ("4 of 6 suites, skipped: ..."); ``headline`` the first line of every
    report.

    ``suites`` are the selected ones, those of which nothing could be asked with the reason.
    ``contract`` and ``quality`` are the outcomes of the two halves, SKIP where a half was not there or only reported.
    ``findings`` are those given, at the level at which they count under the policy, ``weighed`` the same with their
    rates, ``breaking`` those of them that fail their area; ``features`` those of requests that fail beyond chance.
    ``coverage_by_area`` holds the contract areas of which a case was planned. ``why`` lists what kept a pass away, the
    worst first.
    """

    outcome: Outcome
    contract: Outcome
    quality: Outcome
    gates: tuple[Gate, ...]
    stats: tuple[Stat, ...]
    areas: Mapping[str, Outcome]
    findings: tuple[CountedFindings, ...]
    coverage: str
    headline: str
    why: tuple[str, ...]
    waivers: tuple[WaiverState, ...]
    suites: tuple[SuiteRun, ...] = ()
    breaking: tuple[CountedFindings, ...] = ()
    weighed: tuple[WeighedFinding, ...] = ()
    features: tuple[FeatureRate, ...] = ()
    coverage_by_area: Mapping[Area, AreaCoverage] = field(default_factory=dict)


def aggregate(outcomes: Iterable[Outcome]) -> Outcome:
    """Any FAIL -> fail; else any ERROR -> error; else any INCONCLUSIVE -> inconclusive; else any PASS -> pass; else
    nothing ran: SKIP.
    """
    found = set(outcomes)
    for outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.PASS):
        if outcome in found:
            return outcome
    return Outcome.SKIP


def exit_code(outcome: Outcome, *, usage: bool = False, interrupted: bool = False, budget: bool = False) -> ExitCode:
    """The first that applies of 2 (usage), 130 (interrupted), 1 (a gate failed), 4 (our error), 5 (budget or deadline),
    3 (inconclusive), 0.
    """
    if usage:
        return ExitCode.USAGE
    if interrupted:
        return ExitCode.INTERRUPTED
    if outcome is Outcome.FAIL:
        return ExitCode.FAIL
    if outcome is Outcome.ERROR:
        return ExitCode.ERROR
    if budget:
        return ExitCode.BOUND
    return ExitCode.PASS if outcome is Outcome.PASS else ExitCode.INCONCLUSIVE


def decide(
    collector: Collector, evidence: DecisionEvidence, rng: np.random.Generator, *, latency: LatencyTally | None = None
) -> Decision:
    """Everything after the last verdict. Deterministic for a given ``rng`` state."""
    findings = [replace(f, level=collector.policy.level(f.rule, f.level)) for f in evidence.findings]
    weighed = [
        WeighedFinding(finding=f, rates=rates_of(f, evidence.answers, collector.policy, evidence.official))
        for f in findings
    ]
    objected = _objected(collector, weighed)
    breaking = [one.finding for one in objected if one.decision is Outcome.FAIL]
    contract = _contract_gates(collector, objected, evidence.unpromised)
    rows, quality = _quality_gates(collector, evidence, rng)
    service = [_waive(gate, collector) for gate in (latency.gates() if latency else [])]
    failures = [_waive(gate, collector) for gate in feature_gates(evidence.features, collector.policy.feature_failures)]
    gates = [*contract, *failures, *quality, *service]
    suites = collector.covered()
    missing = _required(collector.policy, suites, gates)
    areas = {area.value: aggregate(g.decision for g in gates if g.area is area) for area in Area}
    if evidence.part:
        missing.append(f"part-of-a-run: {evidence.part}")
    outcome = aggregate([*(g.decision for g in gates), *(Outcome.INCONCLUSIVE for _ in missing)])
    if outcome is Outcome.SKIP:
        outcome = Outcome.INCONCLUSIVE
        missing = ["nothing-decided: nothing ran that a gate decides"]
    coverage = ", ".join(filter(None, (coverage_sentence(suites, collector.reached), evidence.part, evidence.chosen)))
    return Decision(
        outcome=outcome,
        contract=aggregate(g.decision for g in [*contract, *failures, *service]),
        quality=aggregate(g.decision for g in quality),
        gates=tuple(gates),
        stats=tuple(rows),
        areas=areas,
        findings=tuple(findings),
        coverage=coverage,
        headline=_headline(outcome, coverage, [*contract, *failures], quality, rows, collector, suites),
        why=_why(gates, missing),
        waivers=waiver_states(collector),
        suites=suites,
        breaking=tuple(breaking),
        weighed=tuple(weighed),
        features=tuple(evidence.features),
        coverage_by_area={area: _coverage(collector, area) for area in Area if area in collector.areas},
    )


# --- contract ----------------------------------------------------------------------------------------


def binding_levels(*, strict: bool) -> tuple[Level, ...]:
    """Levels whose failures fail the contract."""
    return (Level.MUST, Level.SHOULD) if strict else (Level.MUST,)


def _objected(collector: Collector, weighed: Sequence[WeighedFinding]) -> list[WeighedFinding]:
    """Those that keep their area from a pass: at a binding level, or more than the official model does, and not waived;
    by their rates they fail it or leave it open.
    """
    # an endpoint of which nothing was concluded gets no verdict from the wire either: its words came from whatever
    # stood in between
    binding = binding_levels(strict=collector.policy.strict) if collector.concluded else ()
    found = []
    for one in weighed:
        counts = one.finding.level in binding or (bool(binding) and one.finding.rule.startswith(MODEL))
        failed = counts and one.decision in (Outcome.FAIL, Outcome.INCONCLUSIVE)
        if not collector.waived(one.finding.rule, failed=failed) and failed:
            found.append(one)
    return found


def _contract_gates(collector: Collector, objected: Sequence[WeighedFinding], unpromised: Set[Area]) -> list[Gate]:
    """One gate per area that has contract cases or findings that fail it, in the order of the vocabulary."""
    gates = []
    for area in Area:
        tally = collector.areas.get(area)
        here = [one for one in objected if one.finding.area is area]
        if tally is not None or here:
            gate = _contract_gate(area, tally or AreaTally(), here, collector.policy.strict)
            gates.append(_waive(_covered(gate, _coverage(collector, area), area in unpromised), collector))
    return gates


def _coverage(collector: Collector, area: Area) -> AreaCoverage:
    return collector.areas.get(area, AreaTally()).coverage.against(collector.policy.coverage.of(area))


def _covered(gate: Gate, coverage: AreaCoverage, unpromised: bool) -> Gate:
    """The gate with how much was asked. What was looked at too little is not kept; where the model does not promise
    the feature at all, that is as good as not asked, and decides nothing.
    """
    if gate.decision is Outcome.PASS and not coverage.enough:
        decision = Outcome.SKIP if unpromised else Outcome.INCONCLUSIVE
        return replace(gate, decision=decision, reason=too_little(gate.area, coverage))
    if gate.decision is Outcome.SKIP or not coverage.sentence:
        return gate
    return replace(gate, reason=f"{gate.reason}; {coverage.sentence}")


def _contract_gate(area: Area, tally: AreaTally, objected: Sequence[WeighedFinding], strict: bool) -> Gate:
    broken = [one for one in objected if one.decision is Outcome.FAIL]
    unclear_rules = [one for one in objected if one.decision is not Outcome.FAIL]
    binding = binding_levels(strict=strict)
    observed = tally.count(Outcome.PASS) + tally.count(Outcome.FAIL)
    # an open should-level case keeps no pass away, unless the area has shown nothing else
    counted = binding if observed else (Level.MUST, Level.SHOULD)
    counts = {
        Outcome.FAIL: tally.count(Outcome.FAIL, *binding) + len(broken),
        Outcome.ERROR: tally.count(Outcome.ERROR),
        Outcome.INCONCLUSIVE: tally.count(Outcome.INCONCLUSIVE, *counted) + len(unclear_rules),
        # a failure that does not bind is an answer all the same: the case ran
        Outcome.PASS: (
            tally.count(Outcome.PASS) + tally.count(Outcome.FAIL, *(level for level in Level if level not in binding))
        ),
    }
    decision = aggregate(outcome for outcome, n in counts.items() if n)
    n = sum(n for (_, outcome), n in tally.counts.items() if outcome is not Outcome.SKIP)
    parts = []
    failing = tally.count(Outcome.FAIL, *binding)
    if failing:
        parts.append(f"{failing} of {n} cases failed ({_some(tally.names(Outcome.FAIL, *binding), failing)})")
    if broken:
        parts.append(f"rules broken: {_some([one.sentence for one in broken], len(broken))}")
    open_cases = {
        Outcome.ERROR: ("could not be judged", counts[Outcome.ERROR]),
        Outcome.INCONCLUSIVE: ("inconclusive", counts[Outcome.INCONCLUSIVE] - len(unclear_rules)),
    }
    for outcome, (word, count) in open_cases.items():
        if count:
            parts.append(f"{count} of {n} {word} ({_some(tally.names(outcome), count)})")
    if unclear_rules:
        shown = _some([one.sentence for one in unclear_rules], len(unclear_rules))
        parts.append(f"rules that may be broken: {shown}")
    should = 0 if strict else tally.count(Outcome.FAIL, Level.SHOULD)
    if should:
        parts.append(f"{should} should-level failed (shown only)")
    unclear = tally.count(Outcome.INCONCLUSIVE, Level.SHOULD) if Level.SHOULD not in counted else 0
    if unclear:
        parts.append(f"{unclear} should-level inconclusive (shown only)")
    if tally.waived:
        parts.append(f"{tally.waived} waived")
    code = {
        Outcome.FAIL: "contract-broken",
        Outcome.ERROR: "harness-error",
        Outcome.INCONCLUSIVE: "not-concluded",
        Outcome.PASS: "contract-kept",
    }
    held = tally.count(Outcome.PASS)
    if decision is Outcome.PASS and held:
        parts.insert(0, f"{held} cases passed")
    text = "; ".join(parts) or "no rule broken"
    reason = (
        f"{code.get(decision, 'not-run')}:"
        f" {text if decision is not Outcome.SKIP else 'no case of this area ran' + (f'; {text}' if parts else '')}"
    )
    level = Level.MUST if any(level is Level.MUST for level, _ in tally.counts) or objected else Level.SHOULD
    return Gate(
        id=f"contract/{area.value}", area=area, level=level, decision=decision, reason=reason, method="every case"
    )


def _some(names: Sequence[str], total: int) -> str:
    shown = list(names[:EXAMPLES])
    return ", ".join(shown) + (", ..." if total > len(shown) else "")


# --- quality -----------------------------------------------------------------------------------------


def _quality_gates(
    collector: Collector, evidence: DecisionEvidence, rng: np.random.Generator
) -> tuple[list[Stat], list[Gate]]:
    rows, gates = [], []
    benchmarks = {s.id for s in collector.suites if s.kind is SuiteKind.BENCHMARK}
    draws = row_generators(rng)
    for stat in evidence.stats:
        if stat.suite not in benchmarks:
            rows.append(stat)
            continue
        row, gate = judge_row(stat, collector, evidence, draws(stat))
        rows.append(row)
        if gate is not None:
            gates.append(_waive(gate, collector))
    return rows, gates


def _waive(gate: Gate, collector: Collector) -> Gate:
    """A waived gate is shown with its failure and decides nothing."""
    if not collector.waived(gate.id, failed=gate.decision is Outcome.FAIL):
        return gate
    return replace(gate, decision=Outcome.SKIP, reason=f"{WAIVED}{gate.reason}")


# --- what the policy requires ------------------------------------------------------------------------


def _required(policy: Policy, suites: Sequence[SuiteRun], gates: Sequence[Gate]) -> list[str]:
    required = policy.required
    ran = {s.id for s in suites if not s.skipped}
    why = {s.id: s.skipped for s in suites if s.skipped}
    missing = [
        f"required-suite-missing: {suite} ({why.get(suite, 'not selected')})"
        for suite in required.suites
        if suite not in ran
    ]
    decided = {g.area for g in gates if g.decision is not Outcome.SKIP}
    missing += [f"required-area-missing: {area.value}" for area in required.areas if area not in decided]
    missing += [
        f"required-suite-missing: {suite} ({why.get(suite, 'not selected')})"
        for suite in required.gated
        if suite not in ran | {*required.suites}
    ]
    benchmarks = [s.id for s in suites if s.kind is SuiteKind.BENCHMARK and s.id in ran]
    if required.quality and not benchmarks:
        missing.append("required-quality-missing: no benchmark ran")
    gated = {g.id.split("/", 1)[0] for g in gates if g.decision is not Outcome.SKIP or g.reason.startswith(WAIVED)}
    reported = {g.id.split("/", 1)[0]: g.reason for g in reversed(gates)}
    wanted = benchmarks if required.quality else required.gated
    missing += [
        f"required-gate-missing: {suite} was only reported ({reported.get(suite, 'no row').removeprefix(NOT_GATED)})"
        for suite in wanted
        if suite in ran and suite not in gated
    ]
    return missing


# --- sentences ---------------------------------------------------------------------------------------


def coverage_sentence(suites: Sequence[SuiteRun], reached: Set[str]) -> str:
    """``4 of 6 suites, skipped: beam (no judge), swebench (no sandbox)``; a suite of which nothing was asked any more
    counts as not reached.
    """
    asked = [s for s in suites if not s.skipped and s.id in reached]
    skipped = [f"{s.id} ({s.skipped})" for s in suites if s.skipped]
    unreached = [s.id for s in suites if not s.skipped and s.id not in reached]
    text = f"{len(asked)} of {len(suites)} suite{'' if len(suites) == 1 else 's'}"
    text += f", skipped: {', '.join(skipped)}" if skipped else ""
    return text + (f", not reached: {', '.join(unreached)}" if unreached else "")


def _headline(
    outcome: Outcome,
    coverage: str,
    contract: Sequence[Gate],
    quality: Sequence[Gate],
    rows: Sequence[Stat],
    collector: Collector,
    suites: Sequence[SuiteRun],
) -> str:
    parts = [f"{outcome.value.upper()}, {coverage}"]
    if contract:
        parts.append(f"contract {_word(aggregate(g.decision for g in contract))}")
    gated = [g for g in quality if g.decision is not Outcome.SKIP]
    if gated:
        degraded = " (degraded)" if any(g.degraded for g in gated) else ""
        parts.append(f"quality {_word(aggregate(g.decision for g in gated))}{degraded}")
    parts += [
        f"{row.suite} {interim_sentence(row.look, row.verdict or outcome)}"
        for row in rows
        if row.primary and row.look and row.look.stopped
    ]
    parts += _loose(quality, gated=bool(gated))
    parts += [
        f"{100 * share:.1f} % of {suite} answers truncated"
        for suite, share in _truncated(rows).items()
        if share > collector.policy.truncated_notice
    ]
    parts += [
        f"{count} {suite} requests were refused ({words[:120]})" for suite, (count, words) in collector.refused.items()
    ]
    fixtures = [s.id for s in suites if s.fixture and not s.skipped and s.kind is SuiteKind.BENCHMARK]
    if fixtures:
        parts.append(f"fixture data: {', '.join(fixtures)}")
    return "; ".join(parts)


def _loose(quality: Sequence[Gate], *, gated: bool) -> list[str]:
    """What was measured and decides nothing, by the reason; said loudly where no quality was decided at all."""
    by_reason: dict[str, list[str]] = {}
    for gate in quality:
        if gate.decision is Outcome.SKIP and gate.reason.startswith(NOT_GATED):
            suites = by_reason.setdefault(gate.reason.removeprefix(NOT_GATED).split(";")[0], [])
            suites += [] if gate.id.split("/", 1)[0] in suites else [gate.id.split("/", 1)[0]]
    said = "reported, not gated" if gated else "quality NOT DECIDED, only reported"
    return [f"{said}: {', '.join(suites)} ({reason})" for reason, suites in by_reason.items()]


def _truncated(rows: Sequence[Stat]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for row in rows:
        if row.n_planned:
            shares[row.suite] = max(shares.get(row.suite, 0.0), row.n_truncated / row.n_planned)
    return shares


def _word(outcome: Outcome) -> str:
    return {Outcome.SKIP: "not run"}.get(outcome, outcome.value)


def _why(gates: Sequence[Gate], missing: Sequence[str]) -> tuple[str, ...]:
    found = [
        f"{g.id}: {g.reason}"
        for outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE)
        for g in gates
        if g.decision is outcome
    ]
    return (*found, *missing)


def waiver_states(collector: Collector) -> tuple[WaiverState, ...]:
    states = []
    for waiver, use in zip(collector.policy.waiver, collector.waivers, strict=True):
        if collector.today > waiver.expires:
            state = "expired"
        elif use.failed:
            state = "used"
        else:
            state = "unneeded" if use.seen else "not-seen"
        states.append(
            WaiverState(
                case=waiver.case,
                reason=waiver.reason,
                owner=waiver.owner,
                issue=waiver.issue,
                expires=waiver.expires.isoformat(),
                state=state,
                subjects=tuple(use.failed),
            )
        )
    return tuple(states)
