"""What the runs showed, judged: each fault seen in its areas, nothing failing in others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kvv.core import Area, Case, Level, Outcome, Verdict
from kvv.selftest.drive import Observed
from kvv.selftest.table import FaultSpec, StatisticalFault

#: what a row names of the cases and rules that saw the fault
_SHOWN = 3


class State(StrEnum):
    SEEN = "seen"
    UNSEEN = "UNSEEN"
    ELSEWHERE = "ELSEWHERE"
    ERROR = "ERROR"
    #: the table says what is missing for it to be seen
    GAP = "gap"
    #: a stated gap that is none any more
    CLOSED = "CLOSED"
    LEGAL = "legal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """One objection: a failed case or a finding. ``must`` false: should-level."""

    area: Area
    name: str
    must: bool
    case: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """A statistical gate: ``hits`` of ``n`` samples; ``power`` to reach ``at_least`` when the fault acts."""

    hits: int
    n: int
    at_least: int
    power: float

    @property
    def holds(self) -> bool:
        return self.hits >= self.at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    fault: str
    state: State
    areas: tuple[Area, ...]
    marks: Sequence[Objection] = ()
    seen_by: Sequence[str] = ()
    elsewhere: Sequence[str] = ()
    note: str = ""
    gate: Gated | None = None
    requests: int = 0
    cases: int = 0

    @property
    def good(self) -> bool:
        return self.state in (State.SEEN, State.LEGAL, State.GAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """The endpoint without a fault, in one setting."""

    setting: str
    cases: int
    passed: int
    skipped: int
    requests: int
    problems: Sequence[str] = ()
    stated: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    clean: Sequence[Clean]
    rows: Sequence[MatrixRow]
    not_showable: Mapping[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return all(not one.problems for one in self.clean) and all(row.good for row in self.rows)


def marks_of(observed: Observed, *, without: Observed | None = None) -> list[Objection]:
    """Failed cases and findings from should upwards; not those that the clean endpoint shows too."""
    known_cases = {case.id for case, verdict in _failed(without)} if without else set()
    known_rules = set(without.findings) if without else set()
    found = [
        Objection(area=case.area, name=case.id, must=case.level is Level.MUST, case=True)
        for case, verdict in _failed(observed)
        if case.level is not Level.MAY and case.id not in known_cases
    ]
    found += [
        Objection(area=area, name=rule, must=level is Level.MUST, case=False)
        for rule, area, level in observed.findings
        if level is not Level.MAY and (rule, area, level) not in known_rules
    ]
    return sorted(found, key=lambda mark: (not mark.must, not mark.case, mark.name))


def judge(
    fault: str,
    spec: FaultSpec,
    areas: tuple[Area, ...],
    observed: Observed,
    clean: Observed,
    *,
    gate: StatisticalFault | None = None,
) -> MatrixRow:
    """The fault's row: seen at the level that is possible, and what failed outside its areas."""
    marks = marks_of(observed, without=clean)
    gated = gate_of(gate, observed) if gate else None
    home = [mark for mark in marks if mark.area in areas and (mark.must or spec.advisory)]
    # a should-level finding elsewhere is shown and fails nothing; a failed case does, whatever its level
    strangers = [
        mark for mark in marks if mark.area not in areas and mark.area not in spec.also and (mark.must or mark.case)
    ]
    errors = [case.id for case, verdict in observed.verdicts.values() if verdict.outcome is Outcome.ERROR]
    seen = gated.holds if gated else bool(observed.died) if spec.dies else bool(home)
    state = (
        State.ERROR
        if errors
        else _state(spec, seen=seen, accused=any(mark.must for mark in home), elsewhere=bool(strangers))
    )
    return MatrixRow(
        fault=fault,
        state=state,
        areas=areas,
        marks=marks,
        seen_by=[observed.died] if spec.dies and observed.died else _names(home),
        elsewhere=errors or _names(strangers),
        note=spec.legal or spec.gap or spec.advisory,
        gate=gated,
        requests=observed.requests,
        cases=len(observed.verdicts),
    )


def _state(spec: FaultSpec, *, seen: bool, accused: bool, elsewhere: bool) -> State:
    if spec.legal:
        return State.ELSEWHERE if accused or elsewhere else State.LEGAL
    if spec.gap:
        return State.CLOSED if seen else State.GAP
    return State.UNSEEN if not seen else State.ELSEWHERE if elsewhere else State.SEEN


def gate_of(gate: StatisticalFault, observed: Observed) -> Gated:
    """How many samples showed the fault, and how surely that many do when it acts on a share ``p`` of the answers."""
    if gate.rule:
        hits = observed.repeated[gate.rule]
    else:
        hits = sum(verdict.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE) for _, verdict in observed.repeats)
    n = gate.n * gate.answers
    from scipy.stats import binom  # here: its import takes a second, which a wrong fault name need not wait for

    return Gated(hits=hits, n=n, at_least=gate.at_least, power=float(binom.sf(gate.at_least - 1, n, gate.p)))


#: what a busy machine makes of a stream once: an answer that came in one piece, and did not the second time. No
#: verdict, hence no accusation
BUSY = (Outcome.INCONCLUSIVE, "held-back-once")


def clean_row(setting: str, observed: Observed, stated: Mapping[str, str], fits: Iterable[str]) -> Clean:
    """All pass, but for what the table states. ``fits``: the names (case ids, rules) that a stated entry covers."""
    covered = set(fits)
    outcomes = [verdict.outcome for _, verdict in observed.verdicts.values()]
    problems = [
        f"{case.id}: {verdict.outcome} {verdict.reason}"
        for case, verdict in _unpassed(observed)
        if case.id not in covered and (verdict.outcome, verdict.reason) != BUSY
    ]
    problems += [
        f"{rule} ({level})" for rule, _, level in observed.findings if level is not Level.MAY and rule not in covered
    ]
    problems += [
        f"{case.id}#{case.sample}: {verdict.reason}"
        for case, verdict in observed.repeats
        if verdict.outcome is not Outcome.PASS
    ]
    problems += [observed.stopped] if observed.stopped else []
    return Clean(
        setting=setting,
        cases=len(outcomes),
        passed=outcomes.count(Outcome.PASS),
        skipped=outcomes.count(Outcome.SKIP),
        requests=observed.requests,
        problems=problems,
        stated=[f"{name}: {why}" for name, why in stated.items()],
    )


def _failed(observed: Observed | None) -> Iterator[tuple[Case, Verdict]]:
    for case, verdict in observed.verdicts.values() if observed else ():
        if verdict.outcome is Outcome.FAIL:
            yield case, verdict


def _unpassed(observed: Observed) -> Iterator[tuple[Case, Verdict]]:
    for case, verdict in observed.verdicts.values():
        if verdict.outcome not in (Outcome.PASS, Outcome.SKIP):
            yield case, verdict


def _names(marks: Sequence[Objection]) -> list[str]:
    names = list(dict.fromkeys(mark.name for mark in marks))
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return [*names[:_SHOWN], *more]
