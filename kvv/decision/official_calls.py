"""What an F1 does not see of tool calls: calls that are missing where official runs call, the wrong tool or arguments,
requests that are refused. Judged by what an official run reaches against the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kvv.cases.suite import ReferenceRun
from kvv.core import Outcome, ReferenceValue, Stat
from kvv.core.lazy import numpy as np
from kvv.decision.inputs import Collector
from kvv.decision.ruling import Ruling, points, size
from kvv.profiles.policy import Benchmark
from kvv.stats.interval import Interval, clopper_pearson, normal_quantile
from kvv.stats.official_runs import LikeRuns, like_runs, match_request
from kvv.stats.paired import PairedCase, paired_difference

#: a call's own key: whether there was one, which is no statement on what it was
TRIGGERED = "triggered"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialRuns:
    """The official runs that a tool-call gate rests on, as request -> token; ``found`` says which of those given they
    are."""

    runs: tuple[Mapping[str, float], ...]
    found: LikeRuns
    names: tuple[str, ...]

    @property
    def words(self) -> str:
        """What is to be said of runs that were left out, "" where none was."""
        return "".join(
            f"; left out as unlike the others: {self.names[run.number][:80]}, which calls on {_share(run.rate)} of the"
            f" requests and agrees with the others on {_share(run.agreement)} ({_share(run.others_rate)} and"
            f" {_share(run.others_agreement)} among these)"
            for run in self.found.odd
        )

    @property
    def disagreement(self) -> str:
        rates = ", ".join(map(_share, self.found.rates))
        return (
            f"official-runs-disagree: they call on {rates} of the same requests, which runs of one endpoint do not"
            f" (p {self.found.p:.2g})"
        )


def official_runs(
    references: Sequence[ReferenceRun], key: str, vendor: Mapping[str, float | None], *, requests: Sequence[str] = ()
) -> OfficialRuns:
    """On the requests that the vendor was asked (``requests`` too, of which nothing is known), sample by sample, and
    without a run that is unlike the others."""
    asked = {*vendor, *requests}
    holding = [run for run in references if any(key in values for case in run.cases.values() for values in case)]
    runs = [_tokens(run, key, asked) for run in holding]
    found = like_runs(runs)
    return OfficialRuns(runs=tuple(runs[i] for i in found.kept), found=found, names=tuple(run.name for run in holding))


def _tokens(run: ReferenceRun, key: str, asked: set[str]) -> dict[str, float]:
    return {
        request: values[key]
        for case, samples in run.cases.items()
        for number, values in enumerate(samples)
        if key in values and (request := f"{case}#{number}") in asked
    }


def by_agreement(
    stat: Stat, entry: Benchmark, references: Sequence[ReferenceRun], collector: Collector, rng: np.random.Generator
) -> Ruling:
    """No worse than an official run by the margin, a share of the calls that official runs make."""
    suite, policy = stat.suite, collector.policy
    if suite in collector.fixtures and len(references) == 1:
        return Ruling(decision=Outcome.SKIP, reason="not-gated: the shipped data has one official run, it needs two")
    vendor = collector.tokens.get(suite, {}).get(entry.key, {})
    requests = [f"{case}#{sample}" for case, sample in collector.asked_samples(suite)]
    mine = {f"{case}#{sample}": token for (case, sample), token in vendor.items()}
    official = official_runs(references, entry.key, mine, requests=requests)
    method = "agreement with the official runs, beside theirs with each other"
    if not official.runs and references:
        reason = f"not-gated: the official runs hold no value {entry.key}; record them with this version of kvv"
        return Ruling(decision=Outcome.SKIP, reason=reason, method=method)
    if len(official.runs) < 2 and not (official.runs and entry.key == TRIGGERED):
        reason = "not-gated: one official run says nothing of how official runs agree, it needs two"
        return Ruling(decision=Outcome.SKIP, reason=reason, method=method)
    if min(map(len, official.runs)) < policy.min_paired * len(requests):
        known = min(map(len, official.runs))
        reason = f"reference-too-small: a run knows {known} of {len(requests)} answers"
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=method)
    # two runs of other kinds, and nobody knows which is right: worse than each of them is worse all the same
    apart = len(official.runs) == 1 or not official.found.alike
    if apart and entry.key != TRIGGERED:
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=official.disagreement, method=method)
    groups = [[run] for run in official.runs] if apart else [list(official.runs)]
    alpha = entry.alpha or policy.alpha
    found = [_compared(group, mine, requests, alpha, rng) for group in groups]
    decided = [_three_way(one, entry, policy.power, alpha) for one in found if one is not None]
    if not decided:
        reason = "nothing-in-common: no official run called a tool on these requests"
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=method)
    if len(official.runs) == 1:
        return _beside_one(decided[0], method)
    outcomes = {ruling.decision for ruling in decided}
    if apart and outcomes != {Outcome.FAIL}:
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=official.disagreement, method=method)
    first = decided[0]
    value = sum(one.official for one in found if one is not None) / len(decided)
    source = ", ".join(dict.fromkeys(official.names[i] for i in official.found.kept))[:200]
    return replace(
        first,
        reason=first.reason + official.words + (", and so beside each of the others" if apart else ""),
        method=method,
        reference=ReferenceValue(value=value, n=sum(map(len, official.runs)), kind="per-case", source=source),
    )


def _beside_one(ruling: Ruling, method: str) -> Ruling:
    """A lower rate of calls shows beside one run; that none is shown proves nothing without a second."""
    if ruling.decision is Outcome.FAIL:
        return replace(ruling, method=method)
    reason = f"not-gated: one official run can show a loss and prove none, it needs two ({ruling.reason})"
    return Ruling(decision=Outcome.SKIP, reason=reason, method=method)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """Shares of the calls that official runs make; ``vendor``, ``difference`` and ``se`` leave the open samples out."""

    vendor: float
    official: float
    difference: float
    se: float
    low: float
    high: float
    n: int
    open: int


def _compared(
    runs: Sequence[Mapping[str, float]],
    mine: Mapping[str, float | None],
    requests: Sequence[str],
    alpha: float,
    rng: np.random.Generator,
) -> _Compared | None:
    """None where no official run called."""
    matches = []
    for request in requests:
        official = [run[request] for run in runs if request in run]
        if len(official) > 1 or (official and len(runs) == 1):
            # a refused request called nothing
            token = (mine[request] or 0.0) if request in mine else None
            single = len(runs) == 1
            # one run is set against the rate alone: every call is worth one, wherever it stands
            match = match_request([*official, *official] if single else official, token)
            if single and token is not None:
                match = replace(match, worst=float(token > 0), best=float(token > 0))
            elif single:
                match = replace(match, worst=0.0, best=1.0)
            matches.append((request.rpartition("#")[0], match))
    called = sum(match.called for _, match in matches) / len(matches) if matches else 0.0
    if not called:
        return None
    clusters = [case for case, _ in matches]
    repeated = len(set(clusters)) < len(clusters)

    def interval(side: str) -> tuple[float, float, Interval]:
        cases = [
            PairedCase(
                vendor=match.worst if side == "worst" else match.best,
                reference=match.official,
                cluster=case if repeated else "",
            )
            for case, match in matches
            if side != "" or match.worst == match.best
        ]
        if not cases:
            return 0.0, 0.0, Interval(low=-1.0, high=1.0)
        found = paired_difference(cases, rng, 1 - 2 * alpha)
        scaled = Interval(low=found.interval.low / called, high=found.interval.high / called)
        return found.estimate / called, (found.se or 0.0) / called, scaled

    missing = sum(match.worst != match.best for _, match in matches)
    difference, se, plain = interval("")
    low = interval("worst")[2].low if missing else plain.low
    high = interval("best")[2].high if missing else plain.high
    official_share = sum(match.official for _, match in matches) / len(matches) / called
    return _Compared(
        vendor=official_share + difference,
        official=official_share,
        difference=difference,
        se=se,
        low=low,
        high=high,
        n=len(matches),
        open=missing,
    )


def _three_way(found: _Compared, entry: Benchmark, power: float, alpha: float) -> Ruling:
    seen = entry.margin + (normal_quantile(1 - alpha) + normal_quantile(power)) * found.se
    measured = (
        f"{_share(found.vendor)} of official calls, an official run {_share(found.official)},"
        f" {points(found.difference)} ({100 * (1 - 2 * alpha):.3g} % interval {points(found.low)} to"
        f" {points(found.high)}), margin {size(entry.margin)}, {found.n} requests"
    )
    sees = f"a loss of {size(seen)} of 100 calls fails with {100 * power:.0f} % power"
    if found.high < -entry.margin:
        code, decision = "below-official-agreement", Outcome.FAIL
    elif found.low > -entry.margin:
        code, decision = "within-official-agreement", Outcome.PASS
    else:
        code, decision = "cannot-tell", Outcome.INCONCLUSIVE
    settle = ""
    if decision is Outcome.INCONCLUSIVE:
        settle = (
            "; answers to the open samples may settle it" if found.open else "; more requests or runs may settle it"
        )
    degraded = decision is Outcome.PASS and found.high < 0
    return Ruling(decision=decision, reason=f"{code}: {measured}; {sees}{settle}", degraded=degraded)


def by_refusals(
    stat: Stat, entry: Benchmark, references: Sequence[ReferenceRun], collector: Collector, rng: np.random.Generator
) -> Ruling:
    """Requests that an official run answered and the vendor refused: their share has an exact interval."""
    suite, policy = stat.suite, collector.policy
    if suite in collector.fixtures and len(references) == 1:
        return Ruling(decision=Outcome.SKIP, reason="not-gated: the shipped data is too small to bound a share")
    vendor = collector.tokens.get(suite, {}).get(entry.key, {})
    answered = {request for run in references for request in _tokens(run, entry.key, _requests(collector, suite))}
    refused = sum(token is None and f"{case}#{sample}" in answered for (case, sample), token in vendor.items())
    known = sum(f"{case}#{sample}" in answered for case, sample in vendor)
    n, alpha = len(answered), entry.alpha or policy.alpha
    method = "exact interval of the share (Clopper and Pearson)"
    if not n:
        reason = "nothing-in-common: no official run answered any of these requests"
        return Ruling(decision=Outcome.INCONCLUSIVE, reason=reason, method=method)
    missing = n - known
    confidence = 1 - 2 * alpha
    low = clopper_pearson(refused, n, confidence).low
    high = clopper_pearson(refused + missing, n, confidence).high
    measured = (
        f"{refused} of {n} requests refused that an official run answered, at least {_share(low)} and at most"
        f" {_share(high)}, margin {_share(entry.margin)}"
    )
    if low > entry.margin:
        return Ruling(decision=Outcome.FAIL, reason=f"refused-on-one-side: {measured}", method=method)
    if high < entry.margin:
        return Ruling(decision=Outcome.PASS, reason=f"answered-on-both-sides: {measured}", method=method)
    settle = "answers to the open samples may settle it" if missing else "more requests would settle it"
    return Ruling(decision=Outcome.INCONCLUSIVE, reason=f"cannot-tell: {measured}; {settle}", method=method)


def _requests(collector: Collector, suite: str) -> set[str]:
    return {f"{case}#{sample}" for case, sample in collector.asked_samples(suite)}


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"
