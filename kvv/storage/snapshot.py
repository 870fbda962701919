"""From a stored run to what its reports show. Everything is recomputed from the store: rendering twice gives the same
bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import islice
from typing import Any

from kvv.cases.contract.crashes import CrashRate
from kvv.cases.suite import Suite, SuiteKind, load_suite
from kvv.core import Area, Case, FaultKind, FindingKind, Level, Outcome, ReferenceValue, Role, Stat, Verdict
from kvv.core.lazy import numpy as np
from kvv.decision import (
    Collector,
    CountedFindings,
    Decision,
    DecisionEvidence,
    FindingExample,
    LatencyTally,
    Lost,
    TimedAnswer,
    decide,
    exit_code,
    upstreams,
)
from kvv.decision.features import FeatureRate, failing_features
from kvv.decision.gateway_timeouts import SUSPECTED, suspected_timeouts
from kvv.decision.inputs import Workload
from kvv.decision.interleaved_reference import InterleavedReference
from kvv.decision.upstreams import AnsweredBy
from kvv.planning.interim_plan import read_interim_analyses, stopped_suites
from kvv.profiles.profile import Profile
from kvv.protocol.classify import Classification, is_probe
from kvv.storage.causes import find_causes, with_example
from kvv.storage.curl import curl_line
from kvv.storage.failures import Expected, read_feature_requests
from kvv.storage.run_metadata import RecordedSuite, official_rates, policy_of, profile_of, recorded_suites, suite_runs
from kvv.storage.store import Store, StoredExchange
from kvv.storage.view import (
    Asked,
    Cause,
    CheckRow,
    EndpointView,
    PolicyRef,
    RunEvent,
    RunFacts,
    RunView,
    TrafficView,
    Unlisted,
    timing_of,
)

#: how many failed samples are shown with request and answer, over all suites
SHOWN_WITH_BYTES = 60
#: samples of one benchmark that are listed
LISTED_SAMPLES = 200
TEXT_LIMIT = 20_000
#: `--case` patterns that the coverage names
CHOSEN = 3
#: a run in which nothing crashed
QUIET = CrashRate()
#: no connection was made, or a recording does not say what happened: the service may never have seen the request
UNEXPLAINED = frozenset({FaultKind.CONNECT, FaultKind.DNS, FaultKind.TLS, FaultKind.CANCELLED})
BUDGET_REASONS = frozenset({"deadline", "max-requests", "max-tokens-total", "max-cost"})


@dataclass(frozen=True, slots=True)
class PlannedVerdicts:
    """Every planned sample of one suite with its verdict, streamed from the store as often as it is read.

    Samples that were never concluded come as INCONCLUSIVE ``not-run``: nothing leaves a denominator silently.
    ``crashes`` weighs verdicts that name a crash. ``asked_only``: what has no verdict was never part of the sample (a
    look ended the suite).
    """

    store: Store
    suite: str
    blocked: bool
    why: str
    crashes: CrashRate = QUIET
    asked_only: bool = False

    def __iter__(self) -> Iterator[tuple[Case, Verdict]]:
        verdicts = self.store.verdicts(self.suite)
        known = next(verdicts, None)
        for case, samples in self.store.cases(self.suite):
            for sample in range(samples):
                if known is not None and known[0] == case.id and known[1] == sample:
                    yield replace(case, sample=sample), self.crashes.weighed(known[2])
                    known = next(verdicts, None)
                elif not self.asked_only:
                    yield replace(case, sample=sample), self._not_run(case, sample)

    def _not_run(self, case: Case, sample: int) -> Verdict:
        if self.blocked:
            return Verdict(
                case=case.id,
                sample=sample,
                outcome=Outcome.SKIP,
                reason="gate-failed",
                detail="the parameter gate failed",
            )
        return Verdict(case=case.id, sample=sample, outcome=Outcome.INCONCLUSIVE, reason="not-run", detail=self.why)


def stored_features(store: Store, meta: Mapping[str, Any]) -> tuple[FeatureRate, ...]:
    """The features whose requests failed beyond chance in this run; none of a recording, which keeps no failures."""
    if meta.get("imported"):
        return ()
    benchmarks = {entry["id"] for entry in meta["suites"] if entry["kind"] == SuiteKind.BENCHMARK}
    expected = Expected(policy_of(meta))
    for case, _ in store.cases():
        expected.add(case, benchmark=case.suite in benchmarks)
    return failing_features(read_feature_requests(store, expected))


class CountedOnce:
    """Pairs that are each handed to ``count`` when they are first read, however often they are read: reading is what
    costs.
    """

    def __init__(self, pairs: Iterable[tuple[Case, Verdict]], count: Callable[[Case, Verdict], None]) -> None:
        self._pairs = pairs
        self._count = count
        self._counted = 0
        self._whole = False

    def __iter__(self) -> Iterator[tuple[Case, Verdict]]:
        for number, (case, verdict) in enumerate(self._pairs):
            if number >= self._counted:
                self._counted = number + 1
                self._count(case, verdict)
            yield case, verdict
        self._whole = True

    def finish(self) -> None:
        """Count what nobody has read."""
        if not self._whole:
            for _ in self:
                pass


def crash_rate(store: Store, meta: Mapping[str, Any], features: Sequence[FeatureRate] | None = None) -> CrashRate:
    """Of the run's contract suites together, but for the cases that a failing feature explains: those crash by no
    chance, and say nothing of how often others do.
    """
    found = stored_features(store, meta) if features is None else features
    explained = {case for feature in found for case in feature.cases}
    suites = [entry["id"] for entry in meta["suites"] if entry["kind"] != SuiteKind.BENCHMARK]
    return CrashRate.of(
        verdict for suite in suites for case, _, verdict in store.verdicts(suite) if case not in explained
    )


def build_view(store: Store) -> RunView:
    """The view of a run that has ended (its meta holds ``finished``)."""
    meta = store.meta()
    policy, runs = policy_of(meta), suite_runs(meta)
    stop = meta.get("stop") or {}
    finished = meta.get("finished") or meta["started"]
    today = date.fromisoformat(finished[:10])
    collector = Collector(policy, runs, today)
    checks: list[CheckRow] = []
    beyond: dict[tuple[str, Outcome], int] = {}
    stats: list[Stat] = []
    invited: set[str] = set()
    n_open = 0
    every = recorded_suites(meta)
    features = stored_features(store, meta)
    crashes = crash_rate(store, meta, features)
    stopped = stopped_suites(meta)
    for recorded in every:
        suite = recorded.suite
        blocked = bool(meta.get("blocked")) and suite.kind is SuiteKind.BENCHMARK
        why = stop.get("sentence", "the run ended before it was asked")
        pairs = PlannedVerdicts(store, suite.id, blocked, why, crashes, asked_only=suite.id in stopped)
        rows: list[CheckRow] = []

        def count(
            case: Case, verdict: Verdict, suite: Suite | type[Suite] = suite, rows: list[CheckRow] = rows
        ) -> None:
            nonlocal n_open
            collector.add(case, verdict)
            n_open += verdict.reason == "not-run"
            if suite.kind is not SuiteKind.BENCHMARK and any(
                entry["expect"] != "answered" for entry in case.inputs.get("rounds", ())
            ):
                invited.add(case.id)
            if suite.kind is not SuiteKind.BENCHMARK or (
                verdict.outcome is not Outcome.PASS and len(rows) < LISTED_SAMPLES
            ):
                rows.append(CheckRow.under(policy, today, case, verdict))
            elif verdict.outcome is not Outcome.PASS:
                beyond[suite.id, verdict.outcome] = beyond.get((suite.id, verdict.outcome), 0) + 1

        counted = CountedOnce(pairs, count)
        if not blocked:
            stats += suite.metrics(counted, recorded.context)
        counted.finish()
        checks += rows
    if meta.get("imported"):
        stats = [replace(stat, comparability={**stat.comparability, "sampling": "as recorded"}) for stat in stats]
    latency = LatencyTally(policy)
    timing = timing_of(_answers(store, latency, invited))
    if policy.service_level:
        _lose(store, latency, invited)
    answered_by = store.answered_by()
    evidence = replace(
        _evidence(store, meta, every, stats, answered_by),
        features=features,
        unpromised=unpromised_areas(profile_of(meta)),
    )
    decision = decide(collector, evidence, np.random.default_rng(meta["seed"]), latency=latency)
    view = RunView(
        run=RunFacts(
            run_id=meta["run_id"],
            started=meta["started"],
            finished=finished,
            kvv_version=meta["kvv_version"],
            seed=meta["seed"],
            exit_code=_exit_code(decision, stop, meta),
            partial=n_open > 0,
            preset=meta["preset"],
            tier=meta["tier"],
        ),
        endpoint=EndpointView(
            base_url=meta["base_url"],
            model=meta["model"],
            vendor=meta["vendor"],
            upstreams=upstreams.count_providers(answered_by),
            fingerprints=upstreams.fingerprints(answered_by),
        ),
        profile=meta["profile"],
        surface=meta["surface"],
        # as it was hashed when the run began: a field that a later version adds must not change an old report
        policy=PolicyRef(name=policy.name, sha256=meta.get("policy_sha256") or policy.sha256, strict=policy.strict),
        suites=decision.suites,
        decision=decision,
        checks=tuple(_asked(store, checks)),
        traffic=_traffic(store),
        timing=timing,
        trouble=stop.get("sentence", ""),
        events=tuple(
            RunEvent(at=event.at, kind=event.kind, message=json.dumps(event.data)) for event in store.events()
        ),
        unlisted=tuple(Unlisted(suite=name, outcome=outcome, n=n) for (name, outcome), n in beyond.items()),
    )
    return _with_bytes(store, meta, view)


def _exit_code(decision: Decision, stop: Mapping[str, Any], meta: Mapping[str, Any]) -> int:
    reason = stop.get("reason", "")
    return exit_code(
        decision.outcome,
        usage=bool(meta.get("configuration")),
        interrupted=reason == "interrupted",
        budget=reason in BUDGET_REASONS,
    )


def _evidence(
    store: Store,
    meta: Mapping[str, Any],
    every: Sequence[RecordedSuite],
    stats: Sequence[Stat],
    answered_by: Sequence[AnsweredBy],
) -> DecisionEvidence:
    counts = (meta.get("server_counts") or {}).get("answers", {})
    suites = [recorded.suite for recorded in every]
    workload = _workloads(meta)
    beside = InterleavedReference.of(meta)
    return DecisionEvidence(
        stats=stats,
        findings=[
            *(_recorded_only(group) if meta.get("imported") else group for group in _findings(store, workload)),
            *_died(store),
            *_gateway(store),
        ],
        references={recorded.suite.id: recorded.context.references for recorded in every},
        interleaved=frozenset(beside.suites),
        unfinished=beside.unfinished(),
        published={suite: ReferenceValue(**mean) for suite, mean in (meta.get("published") or {}).items()},
        published_otherwise=meta.get("published_otherwise") or {},
        server_counts={
            f"{suite.id}/{suite.counted}": float(counts[suite.id]["right"])
            for suite in suites
            if suite.counted and suite.id in counts
        },
        mixed={**beside.mixed(), **mixed_suites(answered_by, meta)},
        part=_part(meta.get("shard")),
        looks=read_interim_analyses(meta),
        answers=_by_workload(store.answer_counts(), workload),
        official=official_rates(meta),
        chosen=_chosen(meta.get("chosen_cases") or ()),
    )


def _chosen(globs: Sequence[str]) -> str:
    more = f" and {len(globs) - CHOSEN} more" if len(globs) > CHOSEN else ""
    return f"only cases {', '.join(globs[:CHOSEN])}{more}" if globs else ""


def unpromised_areas(profile: Profile) -> frozenset[Area]:
    """Contract areas of which the profile promises nothing, or not what most of their cases are about."""
    claims = profile.claims
    promised = {
        Area.TOOLS: claims.tools,
        Area.TOOL_CHOICE: claims.tools,
        Area.DYNAMIC_TOOLS: claims.dynamic_tools,
        # most cases of these areas are about schemas, and about reasoning in a field of its own
        Area.RESPONSE_FORMAT: claims.json_schema,
        Area.REASONING: profile.thinking.supported and not profile.thinking.inline,
        Area.VISION: claims.vision,
    }
    return frozenset(area for area, made in promised.items() if not made)


def mixed_suites(answered_by: Sequence[AnsweredBy], meta: Mapping[str, Any]) -> dict[str, str]:
    """Benchmarks of the run that more than one upstream answered, and who."""
    found = upstreams.find_mixed(
        answered_by, [entry["id"] for entry in meta["suites"] if entry["kind"] == SuiteKind.BENCHMARK]
    )
    return {suite: f"{words}; pin one with --provider" for suite, words in found.items()}


def _part(shard: Mapping[str, Any] | None) -> str:
    return f"shard {shard['index']} of {shard['of']} alone (kvv merge joins them)" if shard else ""


def _workloads(meta: Mapping[str, Any]) -> Mapping[str, Workload]:
    """By suite; probes of no suite ask for the contract."""
    agentic = _agentic(meta)
    return {
        entry["id"]: Workload.AGENT
        if entry["id"] in agentic
        else Workload.BENCHMARK
        if entry["kind"] == SuiteKind.BENCHMARK
        else Workload.CONTRACT
        for entry in meta["suites"]
    }


def _by_workload(counts: Mapping[str, int], workload: Mapping[str, Workload]) -> dict[Workload, int]:
    found: dict[Workload, int] = {}
    for suite, count in counts.items():
        where = workload.get(suite, Workload.CONTRACT)
        found[where] = found.get(where, 0) + count
    return found


def _findings(store: Store, workload: Mapping[str, Workload]) -> Iterator[CountedFindings]:
    for group in store.finding_groups():
        yield CountedFindings(
            rule=group.rule,
            area=group.area,
            level=group.level,
            kind=group.kind,
            count=group.count,
            exchanges=group.exchanges,
            message=group.message,
            examples=tuple(
                FindingExample(exchange=example.exchange, frame=example.frame, excerpt=example.excerpt)
                for example in group.examples
            ),
            causes=group.causes,
            workloads=_by_workload(group.suites, workload),
            streamed=group.streamed,
        )


def _recorded_only(group: CountedFindings) -> CountedFindings:
    """A recording passed through somebody's client: what is odd about it is shown, and is no verdict on the endpoint's
    bytes.
    """
    return replace(group, level=Level.SHOULD) if group.level is Level.MUST else group


def _died(store: Store) -> Iterator[CountedFindings]:
    """The endpoint stopped answering after a request: shown, and never a verdict by itself."""
    for event in store.events():
        if event.kind == "endpoint-died":
            yield CountedFindings(
                rule="availability/endpoint-died",
                area=Area.AVAILABILITY,
                level=Level.SHOULD,
                kind=FindingKind.BREAKS_CLIENTS,
                count=1,
                exchanges=1,
                message=(
                    f"the endpoint stopped answering after {event.data.get('case', 'a request')}"
                    f" ({event.data.get('reason', '')})"
                ),
            )


def _gateway(store: Store) -> Iterator[CountedFindings]:
    """Answers that were all cut at the same age: shown, and never a verdict by itself."""
    for found in suspected_timeouts(store.endings()):
        yield CountedFindings(
            rule=f"availability/{SUSPECTED}",
            area=Area.AVAILABILITY,
            level=Level.SHOULD,
            kind=FindingKind.BREAKS_CLIENTS,
            count=found.cuts,
            exchanges=found.cuts,
            message=found.sentence,
            examples=tuple(FindingExample(exchange=key, frame=None, excerpt="") for key in found.examples),
            causes=("I11",),
        )


def _answers(store: Store, latency: LatencyTally, invited: Collection[str]) -> Iterator[TimedAnswer]:
    """The answers, each counted on its way: they are read from the store once. A service is measured by first attempts,
    and never by the cases that ``invited`` a refusal."""
    agentic = _agentic(store.meta())
    for sample in store.timing_samples():
        answer = TimedAnswer(
            prompt_tokens=sample.prompt_tokens or 0,
            workload=_workload(sample.case, agentic),
            ttft_ms=sample.first_token_ms if sample.stream else None,
            itl_ms=sample.itl_p50_ms,
            output_tps=sample.tokens_per_s,
            e2e_ms=sample.total_ms,
        )
        if sample.attempt == 1 and sample.case not in invited:
            latency.add(answer)
        yield answer


def _lose(store: Store, latency: LatencyTally, invited: Collection[str]) -> None:
    agentic = _agentic(store.meta())
    for lost in store.lost_requests():
        if lost.case not in invited:
            latency.lose(
                Lost(
                    prompt_tokens=lost.prompt_tokens,
                    workload=_workload(lost.case, agentic),
                    streamed=lost.stream,
                    unexplained=lost.standing is Classification.CONFIGURATION or lost.fault in UNEXPLAINED,
                )
            )


def _agentic(meta: Mapping[str, Any]) -> set[str]:
    return {entry["id"] for entry in meta["suites"] if "sandbox" in load_suite(entry["id"]).needs}


def _workload(case: str, agentic: Collection[str]) -> str:
    return "agentic" if case.split("/", 1)[0] in agentic else "chat"


def _traffic(store: Store) -> TrafficView:
    traffic = store.traffic()
    return TrafficView(
        requests=traffic["requests"],
        attempts=traffic["attempts"],
        retried=traffic["retried"],
        first_try_success=traffic["first_try_success"] / traffic["requests"] if traffic["requests"] else None,
        status=traffic["status"],
        prompt_tokens=traffic["prompt_tokens"],
        cached_tokens=traffic["cached_tokens"],
        completion_tokens=traffic["completion_tokens"],
        cost=traffic["cost"],
    )


# --- what is shown of failed cases -----------------------------------------------------------------


def _asked(store: Store, rows: Iterable[CheckRow]) -> Iterator[CheckRow]:
    """The rows with what their exchanges took."""
    traffic = store.sample_traffic()
    for row in rows:
        took = traffic.get((row.case.id, row.verdict.sample))
        yield (
            row
            if took is None
            else replace(
                row,
                asked=Asked(
                    seconds=took.total_ms / 1000.0,
                    ttft_ms=took.first_token_ms,
                    prompt_tokens=took.prompt_tokens,
                    completion_tokens=took.completion_tokens,
                    cost=took.cost,
                ),
            )
        )


def _with_bytes(store: Store, meta: Mapping[str, Any], view: RunView) -> RunView:
    """The causes, each with request, answer and curl line of one example; so have the first failed rows."""
    causes = find_causes(view)
    wanted = {cause.example for cause in causes if cause.example}
    failed = [row.id for row in view.rows(Outcome.FAIL, Outcome.ERROR) if row.id not in wanted]
    with_bytes = wanted | set(failed[: max(0, SHOWN_WITH_BYTES - len(wanted))])
    rows = {row.id: shown(store, meta, row) for row in view.checks if row.id in with_bytes}
    return replace(
        view,
        checks=tuple(rows.get(row.id, row) for row in view.checks),
        causes=tuple(
            with_example(cause, rows[cause.example])
            if cause.example in rows
            else _of_exchange(store, meta, cause)
            if cause.exchange
            else cause
            for cause in causes
        ),
    )


def _of_exchange(store: Store, meta: Mapping[str, Any], cause: Cause) -> Cause:
    """A wire rule's cause with the exchange that it objected to first."""
    stored = stored_exchange(store, cause.exchange)
    if stored is None:
        return cause
    return replace(
        cause,
        request=stored.body[:TEXT_LIMIT].decode("utf-8", "replace"),
        answer=raw_answer(stored)[:TEXT_LIMIT],
        curl=curl_line(meta, stored),
    )


def stored_exchange(store: Store, key: str) -> StoredExchange | None:
    """The last attempt of the exchange with this identity key; None for a key that names none."""
    case, _, rest = key.rpartition("#")
    sample = rest.partition("/")[0]
    if not sample.isdecimal() or len(sample) > 12:
        return None
    found = None
    for stored in islice(store.exchanges(case, int(sample)), 200):
        if stored.exchange.identity.key == key:
            found = stored
    return found


def shown(store: Store, meta: Mapping[str, Any], row: CheckRow, stored: StoredExchange | None = None) -> CheckRow:
    """The row with request, answer and curl line of ``stored``, else of the exchange that its verdict points at."""
    stored = stored or evidence_exchange(store, row.verdict)
    if stored is None:
        return row
    return replace(
        row,
        request=stored.body[:TEXT_LIMIT].decode("utf-8", "replace"),
        answer=raw_answer(stored)[:TEXT_LIMIT],
        expected=expected_text(row.case),
        curl=curl_line(meta, stored),
    )


def evidence_exchange(store: Store, verdict: Verdict) -> StoredExchange | None:
    """The last attempt of the exchange that the verdict points at first, where that is one of its own sample."""
    found = stored_exchange(store, verdict.evidence[0].exchange) if verdict.evidence else None
    own = (verdict.case, verdict.sample)
    return found if found and (found.exchange.identity.case, found.exchange.identity.sample) == own else None


def telling_exchange(store: Store, verdict: Verdict) -> StoredExchange | None:
    """The exchange that the verdict points at, else the last one of the sample that asked the case's own question."""
    stored = evidence_exchange(store, verdict)
    if stored is None:
        for one in store.exchanges(verdict.case, verdict.sample):
            if one.exchange.role is Role.TARGET and (stored is None or not is_probe(one.exchange.identity.purpose)):
                stored = one
    return stored


def raw_answer(stored: StoredExchange) -> str:
    """The answer's frames as they came, or, where only the message was kept, the message."""
    exchange, said = stored.exchange, stored.observation
    head = f"HTTP {exchange.status}" if exchange.status is not None else "no answer"
    fault = f" ({exchange.fault.kind}: {exchange.fault.detail})" if exchange.fault else ""
    if exchange.frames_kept and exchange.frames:
        body = "\n".join(frame.data.decode("utf-8", "replace") for frame in exchange.frames)
    else:
        calls = "".join(f"\n[call] {call.name} {call.arguments}" for call in said.tool_calls)
        body = f"[reasoning] {said.reasoning}\n[content] {said.answer}{calls}\n[finish_reason] {said.finish_reason}"
    return f"{head}{fault}\n{body}"


def expected_text(case: Case) -> str:
    """What would have been right, for people."""
    inputs = case.inputs
    if "expect" in inputs:
        checks = "".join(f"; {name} {value}" for name, value in inputs.get("checks", {}).items())
        return f"{inputs['expect']}{checks}"
    return str(inputs.get("answer", ""))
