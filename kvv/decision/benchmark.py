"""The decision on one benchmark row.

PASS: the lower limit of D = vendor - reference lies above -margin although every open sample is counted as wrong.
FAIL: the upper limit lies below -margin although every open sample is counted as right. Else INCONCLUSIVE.
DEGRADED: a loss is shown, and it is within the margin.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kvv.cases.suite import REFUSED, ReferenceRun
from kvv.core import Area, Gate, InterimResult, Level, Outcome, ReferenceValue, Stat
from kvv.core.lazy import numpy as np
from kvv.decision.f1 import by_f1
from kvv.decision.inputs import CaseScore, Collector, DecisionEvidence, InterimAnalysis
from kvv.decision.official_calls import by_agreement, by_refusals
from kvv.decision.ruling import Ruling, interim_sentence, points, size
from kvv.profiles.policy import Benchmark, BenchmarkMode, Policy
from kvv.stats.constrained import mean_z
from kvv.stats.interval import normal_quantile
from kvv.stats.paired import Difference, PairedCase, normal_score, paired_difference
from kvv.stats.power import more_samples
from kvv.stats.rerun import QuestionSamples, Samples, loss_p, rerun_difference, visible_in
from kvv.stats.sequential import bound_confidence, obrien_fleming

#: methods that set tool calls beside those of official runs
BY_OFFICIAL_CALLS = {"agreement": by_agreement, "refusals": by_refusals}


def judge_row(
    stat: Stat, collector: Collector, evidence: DecisionEvidence, rng: np.random.Generator
) -> tuple[Stat, Gate | None]:
    """The row with reference, margin and verdict filled in, and its gate; None for a row that nothing gates or asks to
    gate.
    """
    policy, suite = collector.policy, stat.suite
    entry = policy.benchmark_for(suite, stat.metric, primary=stat.primary)
    count = evidence.server_counts.get(
        f"{suite}/{stat.metric}", evidence.server_counts.get(suite) if stat.primary else None
    )
    if (
        entry is not None
        and (entry.given or entry.method in BY_OFFICIAL_CALLS)
        and any(name.partition("/")[0] == suite for name in evidence.server_counts)
    ):
        entry = None  # shipped data are judged by what the server counted
    if entry is None and count is None and not stat.primary:
        return stat, None
    ruling = _errors_first(_ruling(stat, entry, count, collector, evidence, rng), collector.errors.get(suite, 0))
    margin = (
        entry.margin if entry and ruling.reference is not None and ruling.reference.kind != "server-count" else None
    )
    gate = Gate(
        id=f"{suite}/{stat.metric}",
        area=collector.benchmark_area.get(suite, Area.ACCURACY),
        level=Level.MUST,
        decision=ruling.decision,
        reason=ruling.reason,
        method=ruling.method,
        margin=margin,
        degraded=ruling.degraded,
    )
    return (
        replace(
            stat, reference=ruling.reference or stat.reference, margin=margin, verdict=ruling.decision, look=ruling.look
        ),
        gate,
    )


def row_generators(rng: np.random.Generator) -> Callable[[Stat], np.random.Generator]:
    """Each row draws from a stream of its own: at a look of one suite and at the end of the run the same data are
    decided alike.
    """
    base = int(rng.integers(2**62))
    return lambda stat: np.random.default_rng([base, zlib.crc32(f"{stat.suite}/{stat.metric}".encode())])


def _errors_first(ruling: Ruling, errors: int) -> Ruling:
    """An exception of ours leaves nothing decided but a failure, which stood with it counted as right."""
    if not errors or ruling.decision is Outcome.FAIL:
        return ruling
    return replace(
        ruling,
        decision=Outcome.ERROR,
        reason=f"harness-error: {errors} samples could not be judged ({ruling.reason})",
        degraded=False,
    )


def _ruling(
    stat: Stat,
    entry: Benchmark | None,
    count: float | None,
    collector: Collector,
    evidence: DecisionEvidence,
    rng: np.random.Generator,
) -> Ruling:
    suite = stat.suite
    if count is not None:
        return _by_server_count(stat, count)
    references = [run for run in evidence.references.get(suite, ()) if run.cases]
    published = evidence.published.get(
        f"{suite}/{stat.metric}", evidence.published.get(suite) if stat.primary else None
    )
    if stat.n_planned == 0:
        return Ruling(decision=Outcome.INCONCLUSIVE if entry else Outcome.SKIP, reason="nothing-planned: no samples")
    if entry is None:
        return Ruling(decision=Outcome.SKIP, reason="not-gated: the policy names no margin for it", reference=published)
    if suite in evidence.unfinished:
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=f"reference-stopped: {evidence.unfinished[suite]}")
    if not references and published is None:
        unlike = evidence.published_otherwise.get(suite, "") if stat.primary else ""
        why = "not-gated: no reference, gate with --reference FILE" + (f"; {unlike}" if unlike else "")
        return Ruling(decision=Outcome.SKIP, reason=why)
    if suite in evidence.mixed:
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=f"mixed-upstream: {evidence.mixed[suite]}")
    if stat.n_concluded == 0:
        return Ruling(
            decision=Outcome.INCONCLUSIVE, reason=f"nothing-concluded: none of {stat.n_planned} samples was answered"
        )
    if references and entry.given:
        return _where_both(stat, entry, references, collector, evidence, rng)
    if references and entry.method == "f1":
        return by_f1(stat, entry, references, collector, rng)
    if references and entry.method in BY_OFFICIAL_CALLS:
        return BY_OFFICIAL_CALLS[entry.method](stat, entry, references, collector, rng)
    if published is not None and not references:
        return _by_published_mean(stat, entry, published, collector.policy)
    return _by_cases(stat, entry, references, collector, evidence, rng)


# --- our own endpoint's count ----------------------------------------------------------------------


def _by_server_count(stat: Stat, count: float) -> Ruling:
    reference = ReferenceValue(
        value=count / stat.n_planned if stat.n_planned else 0.0,
        n=stat.n_planned,
        kind="server-count",
        source="reference endpoint",
    )
    method = "equality with the reference endpoint's own count"
    if stat.n_planned == 0 or stat.n_inconclusive:
        reason = f"not-complete: {stat.n_inconclusive} of {stat.n_planned} samples without a conclusion"
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=method, reference=reference)
    # an F1 is no share: its row says how many decisions agree
    hits = float(stat.breakdown.get("agreeing", (stat.estimate or 0.0) * stat.n_concluded))
    same = abs(hits - count) < 1e-6 * max(1.0, count)
    reason = (
        f"server-count-{'equal' if same else 'differs'}: {hits:g} right here, {count:g} counted by the server, n"
        f" {stat.n_planned}"
    )
    return Ruling(decision=Outcome.PASS if same else Outcome.FAIL, reason=reason, method=method, reference=reference)


# --- a published mean: shows a loss, never parity ----------------------------------------------------


def _by_published_mean(stat: Stat, entry: Benchmark, published: ReferenceValue, policy: Policy) -> Ruling:
    """Two independent samples; the row's own 95 % interval gives its standard error, p(1-p)/n the mean's."""
    alpha = entry.alpha or policy.alpha
    method = "difference from a published mean, unpaired"
    if stat.estimate is None or stat.interval is None or stat.best_case is None:
        return Ruling(decision=Outcome.SKIP, reason="not-gated: no interval for this row", reference=published)
    own = (stat.interval[1] - stat.interval[0]) / (2 * normal_quantile(0.975))
    se = (own**2 + published.value * (1 - published.value) / max(1, published.n)) ** 0.5
    upper = stat.best_case - published.value + normal_quantile(1 - alpha) * se
    gap = stat.estimate - published.value
    against = f"{points(gap)} against the published {published.value:g} (n {published.n})"
    if upper < -entry.margin:
        return Ruling(
            decision=Outcome.FAIL,
            reason=f"loss-shown: {against}, at most {points(upper)}, margin {size(entry.margin)}",
            method=method,
            reference=published,
        )
    reason = f"not-gated: no loss shown, {against}; a published mean cannot prove parity, use --reference FILE"
    return Ruling(decision=Outcome.SKIP, reason=reason, method=method, reference=published)


# --- case by case ------------------------------------------------------------------------------------


def reference_scores(
    references: Sequence[ReferenceRun], key: str, among: Container[str] | None = None, *, given: str = ""
) -> dict[str, CaseScore]:
    """By case (of those in ``among``), all runs' samples together. A sample without the value is ``open``, or refused,
    which counts nothing yet. A case of which there is neither value nor refusal is left out.

    ``given``: only samples with that value above 0; no others are open.
    """
    found: dict[str, CaseScore] = {}
    for run in references:
        for case, samples in run.cases.items():
            if among is not None and case not in among:
                continue
            score = found.setdefault(case, CaseScore())
            for values in samples:
                if key in values and (not given or values.get(given, 0.0) > 0):
                    score.count(values[key])
                elif not given:
                    score.refused += REFUSED in values
                    score.open += REFUSED not in values
    return {case: score for case, score in found.items() if score.n or score.refused}


def _beside(reference: CaseScore, vendor: CaseScore) -> CaseScore:
    """The reference's side of a case: what both sides refuse counts as wrong on both, what it alone refuses or did not
    answer is open."""
    planned = reference.n + reference.open + reference.refused
    shared = min(reference.refused, round(planned * vendor.refused / (vendor.n + vendor.open)))
    return replace(reference, n=reference.n + shared, open=reference.open + reference.refused - shared, refused=0)


def _by_cases(
    stat: Stat,
    entry: Benchmark,
    references: Sequence[ReferenceRun],
    collector: Collector,
    evidence: DecisionEvidence,
    rng: np.random.Generator,
) -> Ruling:
    suite, policy = stat.suite, collector.policy
    key = _key(entry, stat, collector.keys(suite))
    if key is None:
        names = ", ".join(collector.keys(suite))
        if not names:
            return Ruling(
                decision=Outcome.INCONCLUSIVE,
                reason=f"all-refused: none of {stat.n_planned} requests got an answer to judge",
            )
        return Ruling(
            decision=Outcome.INCONCLUSIVE,
            reason=f"no-such-value: the policy's key for {suite}/{stat.metric} is none of {names}",
        )
    look = evidence.looks.get(suite)
    vendor = collector.case_scores(suite, key, stopped_early=look is not None and look.stopped)
    known = reference_scores(references, key, vendor)
    shared = {case: score for case, score in vendor.items() if case in known}
    answered = [known[case] for case in shared if known[case].n]
    if not answered or len(shared) < policy.min_paired * len(vendor):
        return Ruling(
            decision=Outcome.INCONCLUSIVE, reason=f"reference-too-small: it knows {len(shared)} of {len(vendor)} cases"
        )
    reference = _reference_value(references, answered, interleaved=suite in evidence.interleaved)
    compare = _Comparison(
        vendor=vendor,
        reference={
            case: _beside(known[case], score) if case in known else CaseScore(open=1) for case, score in vendor.items()
        },
        confidence=_confidence(entry, policy, look),
        mode=entry.mode,
        rng=rng,
    )
    if not compare.in_common:
        return Ruling(
            decision=Outcome.INCONCLUSIVE,
            reason="nothing-in-common: no case was answered on both sides",
            reference=reference,
        )
    ruling = replace(_three_way(entry, compare, policy, look), reference=reference)
    gaps = [score for score in compare.reference.values() if score.open]
    if gaps:
        none = sum(not score.n for score in gaps)
        missing = sum(score.open for score in gaps if score.n)
        parts = [f"no answer to {none} of {len(vendor)} cases"] if none else []
        parts += [f"{missing} samples of others without an answer"] if missing else []
        words = f"the reference has {' and '.join(parts)}, counted against and for the vendor"
        ruling = replace(ruling, reason=f"{ruling.reason}; {words}")
    return ruling if look is None else _at_look(ruling, look, collector.asked(suite), entry, compare, policy)


def _where_both(
    stat: Stat,
    entry: Benchmark,
    references: Sequence[ReferenceRun],
    collector: Collector,
    evidence: DecisionEvidence,
    rng: np.random.Generator,
) -> Ruling:
    """On the cases where both sides fulfil ``given``: a vendor that does so less often is another gate's matter (the
    F1's).
    """
    vendor = collector.given_scores(stat.suite)
    known = reference_scores(references, entry.key, vendor, given=entry.given)
    shared = {case: score for case, score in vendor.items() if case in known}
    if not any(score.n for score in shared.values()):
        return Ruling(
            decision=Outcome.INCONCLUSIVE, reason=f"nothing-in-common: no case with {entry.given} on both sides"
        )
    reference = _reference_value(
        references, [known[case] for case in shared], interleaved=stat.suite in evidence.interleaved
    )
    confidence = _confidence(entry, collector.policy, None)
    compare = _Comparison(vendor=shared, reference=known, confidence=confidence, mode=entry.mode, rng=rng)
    if not compare.in_common:
        return Ruling(
            decision=Outcome.INCONCLUSIVE, reason=f"nothing-in-common: no case with {entry.given} on both sides"
        )
    return replace(_three_way(entry, compare, collector.policy, None), reference=reference)


def _reference_value(
    references: Sequence[ReferenceRun], cases: Sequence[CaseScore], *, interleaved: bool
) -> ReferenceValue:
    """The reference's own value over the cases compared, for the row."""
    value = sum(case.mean for case in cases) / len(cases)
    source = ", ".join(dict.fromkeys(run.name for run in references))[:200]
    return ReferenceValue(
        value=value, n=sum(case.n for case in cases), kind="interleaved" if interleaved else "per-case", source=source
    )


#: what suites call the value of a right answer
USUAL_KEYS = ("correct", "score")


def _key(entry: Benchmark, stat: Stat, keys: Sequence[str]) -> str | None:
    """The policy's key; without one the metric's name, a usual one, or the only value there is."""
    if entry.key:
        return entry.key if entry.key in keys else None
    wanted = (stat.metric, *USUAL_KEYS, *(keys if len(keys) == 1 else ()))
    return next((key for key in wanted if key in keys), None)


def _bound(entry: Benchmark, policy: Policy, look: InterimAnalysis) -> float:
    return obrien_fleming(entry.alpha or policy.alpha, look.fractions)[look.number - 1]


def _confidence(entry: Benchmark, policy: Policy, look: InterimAnalysis | None) -> float:
    """Two-sided confidence of the interval: 1 - 2 alpha at a fixed size, wider at a look."""
    return 1 - 2 * (entry.alpha or policy.alpha) if look is None else bound_confidence(_bound(entry, policy, look))


def _at_look(
    ruling: Ruling, look: InterimAnalysis, asked: int, entry: Benchmark, compare: _Comparison, policy: Policy
) -> Ruling:
    """The ruling with what the look showed, and a sentence on it."""
    taken = InterimResult(
        number=look.number,
        of=len(look.fractions),
        asked=asked,
        planned=max(look.planned, asked),
        stopped=look.stopped,
        bound=_bound(entry, policy, look),
        z=compare.z(entry.margin),
        confidence=compare.confidence,
        interval=(compare.limit("worst"), compare.limit("best")),
    )
    return replace(ruling, look=taken, reason=f"{ruling.reason}; {interim_sentence(taken, ruling.decision)}")


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    vendor: Mapping[str, CaseScore]
    #: of the same cases; open samples may have been right there, or wrong
    reference: Mapping[str, CaseScore]
    confidence: float
    mode: BenchmarkMode
    rng: np.random.Generator

    @cached_property
    def binary(self) -> bool:
        """Answers are right or wrong on both sides."""
        return all(score.binary for side in (self.vendor, self.reference) for score in side.values())

    @property
    def exact(self) -> bool:
        """The exact sum is compared: cases have one right-or-wrong sample of the vendor."""
        return any(case.single for case in self._paired("")[0])

    @cached_property
    def single(self) -> bool:
        """One right-or-wrong sample a side."""
        sides = (self.vendor, self.reference)
        return self.binary and all(score.n + score.open == 1 for side in sides for score in side.values())

    def all_lost(self) -> _Comparison:
        """With a vendor that was answered as often and solves nothing."""
        none = {case: replace(score, total=0.0, squares=0.0) for case, score in self.vendor.items()}
        return replace(self, vendor=none)

    @cached_property
    def in_common(self) -> bool:
        return any(score.n and self.reference[case].n for case, score in self.vendor.items())

    @cached_property
    def opens(self) -> bool:
        return any(score.open for side in (self.vendor, self.reference) for score in side.values())

    @property
    def lacking(self) -> str:
        """What the open samples wait for."""
        parts = ["answers to the open samples"] if any(score.open for score in self.vendor.values()) else []
        if any(score.open for score in self.reference.values()):
            parts.append("a reference that answered every sample")
        return " and ".join(parts)

    @cached_property
    def _found(self) -> dict[str, tuple[list[PairedCase], Difference]]:
        return {}

    def difference(self, open_as: str) -> Difference:
        """With the open samples left out (""), counted as wrong ("worst") or as right ("best")."""
        return self._paired(open_as)[1]

    def _paired(self, open_as: str) -> tuple[list[PairedCase], Difference]:
        if open_as not in self._found:
            cases = self._cases(open_as)
            self._found[open_as] = cases, self._difference(cases, open_as, self.confidence)
        return self._found[open_as]

    def limit(self, open_as: str) -> float:
        """The lower limit with the open samples counted as wrong, the upper one with them as right."""
        found = self.difference(open_as if self.opens else "").interval
        return found.low if open_as == "worst" else found.high

    def z(self, margin: float) -> float | None:
        """The distance from -``margin`` on the scale of a standard normal, the open samples counted against it; None
        without a standard error.
        """
        towards = "worst" if self.difference("").estimate > -margin else "best"
        if self.mode is BenchmarkMode.REGRESSION and not margin:
            return normal_quantile(min(max(self.loss_p(towards), 1e-300), 1 - 1e-16))
        cases, found = self._paired(towards if self.opens else "")
        if any(case.single for case in cases):
            return mean_z([case.difference for case in cases], -margin)
        return None if not found.se else normal_score((found.estimate + margin) / found.se, found.clusters - 1)

    @property
    def alpha(self) -> float:
        """One-sided: what each end of the interval leaves out."""
        return (1 - self.confidence) / 2

    def loss_p(self, open_as: str) -> float:
        """The exact test of a regression gate: one-sided p-value of "nothing got worse"."""
        return loss_p(self.questions(open_as if self.opens else ""))

    def excluded(self, confidence: float) -> float:
        """The least difference that this confidence leaves possible, the open samples counted as wrong."""
        return self._difference(
            self._paired("worst" if self.opens else "")[0], "worst" if self.opens else "", confidence
        ).interval.low

    def _sides(self, open_as: str) -> Iterator[tuple[CaseScore, Samples, Samples]]:
        """By case both sides' samples. What the reference left open stands against what the vendor did."""
        other = {"": "", "worst": "best", "best": "worst"}[open_as]
        for case, score in self.vendor.items():
            reference = self.reference[case]
            if open_as or (score.n and reference.n):
                yield score, score.samples(open_as), reference.samples(other)

    def questions(self, open_as: str) -> list[QuestionSamples]:
        return [QuestionSamples(vendor=mine, reference=theirs) for _, mine, theirs in self._sides(open_as)]

    def _cases(self, open_as: str) -> list[PairedCase]:
        clustered = len({s.cluster for s in self.vendor.values() if s.cluster}) < sum(
            bool(s.cluster) for s in self.vendor.values()
        )
        return [
            PairedCase(
                vendor=mine.mean,
                reference=theirs.mean,
                cluster=score.cluster if clustered else "",
                # one sample shows no variance; a side without repeats leaves it unknown
                variance=mine.variance + theirs.variance if mine.n > 1 and theirs.n > 1 else 0.0,
                single=self.binary and mine.n == 1,
            )
            for score, mine, theirs in self._sides(open_as)
        ]

    def _difference(self, cases: Sequence[PairedCase], open_as: str, confidence: float) -> Difference:
        if self.mode is BenchmarkMode.REGRESSION and not self.single:
            return rerun_difference(self.questions(open_as), confidence)
        found = paired_difference(cases, self.rng, confidence)
        if not self.single:
            return found
        gained, lost = _discordant(cases)
        return replace(found, method=f"{found.method}, {gained} gained, {lost} lost")


def _discordant(cases: Sequence[PairedCase]) -> tuple[int, int]:
    return sum(c.vendor > c.reference for c in cases), sum(c.vendor < c.reference for c in cases)


def _three_way(entry: Benchmark, compare: _Comparison, policy: Policy, look: InterimAnalysis | None) -> Ruling:
    plain = compare.difference("")
    low, high = compare.limit("worst"), compare.limit("best")
    interval = f"{100 * compare.confidence:.3g} % interval {points(low)} to {points(high)}"
    if entry.mode is BenchmarkMode.REGRESSION:
        return _regression(entry, compare, f"{points(plain.estimate)} ({interval})", policy, look)
    measured = f"{points(plain.estimate)} ({interval}), margin {size(entry.margin)}, {plain.n} cases"
    if high < -entry.margin:
        return Ruling(decision=Outcome.FAIL, reason=f"worse-than-reference: {measured}", method=plain.method)
    passes = low > -entry.margin
    few = too_few(plain.clusters, entry.margin, compare.alpha, single=compare.exact)
    if few and (passes or (not compare.opens and plain.estimate >= -entry.margin)):
        return Ruling(decision=Outcome.SKIP, reason=f"not-gated: {few}; {measured}", method=plain.method)
    if passes:
        degraded = high < 0
        code = "degraded-within-margin" if degraded else "no-worse"
        return Ruling(decision=Outcome.PASS, reason=f"{code}: {measured}", method=plain.method, degraded=degraded)
    return Ruling(
        decision=Outcome.INCONCLUSIVE,
        reason=f"cannot-tell: {measured}; {_what_would_settle(plain, entry.margin, compare.lacking)}",
        method=plain.method,
    )


#: the chance that a vendor which lost ``detect`` passes a regression gate
WRONG_PASS = 0.01


def _regression(
    entry: Benchmark, compare: _Comparison, interval: str, policy: Policy, look: InterimAnalysis | None
) -> Ruling:
    """FAIL: a loss is shown, by the exact test where no margin is given. PASS: none is shown, not even with the open
    samples as wrong, the stated loss would have been seen, and it is ruled out: what was measured lies too far above
    it."""
    wanted, alpha = entry.detect or 0.0, compare.alpha
    plain = compare.difference("")
    test = (
        f"margin {size(entry.margin)}"
        if entry.margin
        else f"p {compare.loss_p('best'):.2g}, a loss from {alpha:.2g} down"
    )
    measured = f"{interval}, {test}, {plain.n} cases"
    if _shown(entry, compare, "best" if compare.opens else ""):
        return Ruling(decision=Outcome.FAIL, reason=f"worse-than-reference: {measured}", method=plain.method)
    if compare.opens and _shown(entry, compare, "worst"):
        reason = (
            f"cannot-tell: {measured}; counted as wrong the open samples show a loss; {compare.lacking} would settle it"
        )
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=plain.method)
    visible = entry.margin + visible_in(compare.questions(""), alpha=alpha, power=policy.power)
    if visible > wanted:
        power = f"with {100 * policy.power:.0f} % power"
        if np.isinf(visible):
            seen = f"not even the loss of everything would have been seen {power}, wanted {size(wanted)}"
        else:
            need = int(np.ceil(plain.n * (visible / wanted) ** 2)) - plain.n
            seen = f"only a loss of {size(visible)} would have been seen {power}, wanted {size(wanted)}"
            seen += f"; about {need} more cases (or as many repeats) would do"
        return Ruling(
            decision=Outcome.INCONCLUSIVE, reason=f"too-small-to-see: {measured}; {seen}", method=plain.method
        )
    little = _too_little_to_lose(entry, compare, wanted)
    if little is not None:
        return Ruling(
            decision=Outcome.INCONCLUSIVE, reason=f"too-little-to-lose: {measured}; {little}", method=plain.method
        )
    bound = (
        normal_quantile(1 - WRONG_PASS) if look is None else obrien_fleming(WRONG_PASS, look.fractions)[look.number - 1]
    )
    least = compare.excluded(bound_confidence(bound))
    if least <= -wanted:
        settle = compare.lacking or "more cases or repeats"
        reason = (
            f"cannot-tell: {measured}; a loss of {size(wanted)} is not ruled out ({points(least)} at worst);"
            f" {settle} may settle it"
        )
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=plain.method)
    seen = f"a loss of {size(visible)} would have been seen with {100 * policy.power:.0f} % power"
    degraded = compare.loss_p("") <= alpha
    return Ruling(
        decision=Outcome.PASS, reason=f"no-loss-shown: {measured}; {seen}", method=plain.method, degraded=degraded
    )


def _shown(entry: Benchmark, compare: _Comparison, open_as: str) -> bool:
    """The test of a regression gate: by its margin, else exact."""
    if entry.margin:
        return compare.difference(open_as).interval.high < -entry.margin
    return compare.loss_p(open_as) <= compare.alpha


def _too_little_to_lose(entry: Benchmark, compare: _Comparison, wanted: float) -> str | None:
    """Why nobody may pass: a vendor that solves nothing would not FAIL, or would have lost less than must be seen."""
    lost = compare.all_lost()
    gone = -lost.difference("").estimate
    if gone < wanted - 1e-9:
        return f"the reference has {size(gone)} points in all, a loss of {size(wanted)} is not possible"
    return None if _shown(entry, lost, "") else f"the loss of all {size(gone)} points of the reference would be no FAIL"


#: groups of questions below which a t interval is too wide to be of use
LEAST_CLUSTERS = 5


def too_few(clusters: int, margin: float, alpha: float, *, single: bool) -> str:
    """Why a parity gate is none at this size, "" where it is one: a vendor that loses nothing could not pass it.

    ``single``: one right-or-wrong sample of the vendor for each of the ``clusters`` questions.
    """
    least = math.ceil(math.log(alpha) / math.log(1 - margin)) if single and 0 < margin < 1 else LEAST_CLUSTERS
    if clusters >= least:
        return ""
    what = "question" if single else "group"
    of = "" if single else " of questions"
    return f"{clusters} {what}{'s' if clusters != 1 else ''}{of} cannot decide quality, {least} would do"


def _what_would_settle(plain: Difference, margin: float, lacking: str) -> str:
    below = plain.estimate < -margin
    reach = plain.interval.high - plain.estimate if below else plain.estimate - plain.interval.low
    more = more_samples(plain.estimate, reach, margin, plain.n)
    if more is None:
        return "the estimate stands on the margin, no number of samples would settle it"
    if more <= 1 and lacking:
        return f"{lacking} would settle it"
    return f"about {more} more cases (or as many repeats) would settle it"
