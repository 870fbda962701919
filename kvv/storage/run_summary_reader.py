"""From a finished run's store to a ``RunSummary``, and to the text of one of its answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvv.cases.suite import ReferenceRun, SuiteKind, declared
from kvv.core import Case, Outcome, Role, Verdict
from kvv.decision.decide import binding_levels
from kvv.planning.config import ConfigError
from kvv.planning.interim_plan import stopped_suites
from kvv.planning.published_means import differences
from kvv.rendering.escape import bound_text
from kvv.storage.run_folder import STORE, find_run, vendor_stored
from kvv.storage.run_metadata import RecordedSuite, check_meta, recorded_suites
from kvv.storage.run_summary import (
    CaseResult,
    CauseResult,
    RuleResult,
    RunSummary,
    SampleResult,
    Service,
    SuiteResult,
    SummaryRow,
)
from kvv.storage.service import mean, median, share
from kvv.storage.snapshot import PlannedVerdicts, build_view, crash_rate, raw_answer, telling_exchange
from kvv.storage.store import Store, StoredExchange, StoreError, TimingSample
from kvv.storage.view import RunView

#: settings that say how much or whom we asked, not how the model was asked
NOT_SAMPLING = frozenset({"expect_completion_tokens"})
#: a field of --extra-body that only names the provider behind a gateway
PROVIDER = "provider"
ANSWER_TEXT = 1_500
#: characters kept of what a rule says
MESSAGE = 300


@contextmanager
def open_finished(
    name: str, out: str | None, option: str = "RUN", *, whole: bool = True
) -> Iterator[tuple[Store, Path]]:
    """The store of a run that has ended and, unless ``whole`` is False, is no shard; ConfigError in one line for
    anything else.
    """
    try:
        folder = find_run(name, out or "reports")
    except ConfigError as error:
        raise ConfigError(str(error).replace("RUN:", f"{option}:", 1)) from None
    try:
        store = Store.open(folder / STORE, read_only=True)
    except StoreError as error:
        raise ConfigError(f"{option}: {error}") from error
    try:
        if not check_meta(store).get("finished"):
            raise ConfigError(f"{option}: {folder} has not ended; `kvv resume {folder}` completes it")
        if whole and store.meta().get("shard"):
            raise ConfigError(f"{option}: {folder} is one shard of a run; `kvv merge` joins them")
        yield store, folder
    except StoreError as error:
        raise ConfigError(f"{option}: {error}") from error
    finally:
        store.close()


def side_of(store: Store, view: RunView | None = None) -> RunSummary:
    """Everything a comparison needs of one run; ``view`` where the caller has built it already."""
    view = view or build_view(store)
    meta = store.meta()
    stop = meta.get("stop") or {}
    suites = {}
    crashes, stopped, breaking = crash_rate(store, meta), stopped_suites(meta), _breaking_cases(view)
    for recorded, entry in zip(recorded_suites(meta), meta["suites"], strict=True):
        suite = recorded.suite
        if bool(meta.get("blocked")) and suite.kind is SuiteKind.BENCHMARK:
            continue
        pairs = PlannedVerdicts(
            store, suite.id, False, stop.get("sentence", ""), crashes, asked_only=suite.id in stopped
        )
        suites[suite.id] = SuiteResult(
            id=suite.id,
            kind=suite.kind,
            title=suite.title,
            facts=_facts(entry, view, suite.id),
            fixture=bool(entry["dataset"] and entry["dataset"]["fixture"]),
            ended_early=suite.id in stopped,
            failures=_failures(view, suite.id),
            rows=_rows(view, suite.id),
            cases=_cases(pairs, recorded.context.references, breaking),
            edition=_edition(view, suite.id),
            asked_otherwise=_asked_otherwise(entry, recorded, view, suite.id),
        )
    return RunSummary(
        run_id=view.run.run_id,
        date=view.run.finished,
        vendor=vendor_stored(view.endpoint.vendor, view.endpoint.base_url),
        model=view.endpoint.model,
        base_url=view.endpoint.base_url,
        kvv_version=view.run.kvv_version,
        profile=view.profile,
        surface=view.surface,
        preset=view.run.preset,
        verdict=view.decision.outcome.value,
        contract=view.decision.contract.value,
        partial=view.run.partial,
        upstreams=dict(view.endpoint.upstreams),
        suites=suites,
        service=service_of(store),
        findings=_findings(view),
        gates=view.decision.gates,
        results_sha256=store.results_digest(),
        causes=tuple(
            CauseResult(
                id=cause.id,
                title=bound_text(cause.title + (f" ({cause.detail})" if cause.detail else ""), MESSAGE),
                size=cause.size,
                counts=cause.counts,
            )
            for cause in view.causes
        ),
    )


def _breaking_cases(view: RunView) -> frozenset[str]:
    """Contract cases that fail their area's gate."""
    binding = binding_levels(strict=view.policy.strict)
    failed = view.rows(Outcome.FAIL)
    return frozenset(
        row.case.id
        for row in failed
        if row.level in binding and not row.waived and row.case.suite not in view.benchmarks
    )


def _findings(view: RunView) -> tuple[RuleResult, ...]:
    return tuple(
        RuleResult(
            rule=group.rule,
            area=group.area,
            level=group.level,
            count=group.count,
            exchanges=group.exchanges,
            message=group.message[:MESSAGE],
            cases=tuple(dict.fromkeys(example.exchange.rsplit("#", 1)[0] for example in group.examples)),
            breaks=group in view.decision.breaking,
        )
        for group in view.decision.findings
    )


def _facts(entry: Mapping[str, Any], view: RunView, suite: str) -> dict[str, Any]:
    dataset, settings = entry["dataset"], dict(entry["settings"])
    extra = {key: value for key, value in (settings.get("extra_body") or {}).items() if key != PROVIDER}
    said = _comparability(view, suite)
    sampling = {key: value for key, value in settings.items() if key not in NOT_SAMPLING} | {
        "extra_body": extra,
        "preset": view.run.preset,
    }
    return {
        "data": None if dataset is None else dataset["sha256"] or dataset["revision"],
        "sampling": sampling,
        "judge": said.get("judge"),
        "agent": "; grader ".join(str(part) for part in (said.get("agent"), said.get("grader")) if part) or None,
        "scorer": entry["version"],
    }


def _asked_otherwise(entry: Mapping[str, Any], recorded: RecordedSuite, view: RunView, suite: str) -> str:
    """Of suites with a public column; fixture data are said apart."""
    dataset = entry["dataset"]
    if not recorded.suite.columns or (dataset or {}).get("fixture"):
        return ""
    facts = _facts(entry, view, suite)
    judge = facts["judge"]
    said = _comparability(view, suite)
    found = differences(
        recorded.suite,
        view.profile,
        entry["settings"],
        dataset,
        judge=str(judge.get("model") or "") if isinstance(judge, Mapping) else str(judge or ""),
        agent=str(facts["agent"] or ""),
        prompts=said.get("judge_prompts_given"),
    )
    return ", ".join(found)


def _comparability(view: RunView, suite: str) -> Mapping[str, Any]:
    """What the primary row says of its comparability."""
    return next((stat.comparability for stat in view.decision.stats if stat.suite == suite and stat.primary), {})


def _failures(view: RunView, suite: str) -> str:
    said = _comparability(view, suite)
    return str(said.get("failures_in_denominator") or "")


def _edition(view: RunView, suite: str) -> str:
    said = _comparability(view, suite)
    return str(said.get(declared(suite).edition) or "")


def _rows(view: RunView, suite: str) -> tuple[SummaryRow, ...]:
    return tuple(
        SummaryRow(
            metric=stat.metric,
            primary=stat.primary,
            value=stat.estimate,
            low=stat.interval[0] if stat.interval else None,
            high=stat.interval[1] if stat.interval else None,
            n=stat.n_concluded,
            n_planned=stat.n_planned,
            kvv=stat.kvv_value,
        )
        for stat in view.decision.stats
        if stat.suite == suite
    )


def _cases(pairs: PlannedVerdicts, references: Sequence[ReferenceRun], breaking: Set[str]) -> dict[str, CaseResult]:
    samples: dict[str, list[SampleResult]] = {}
    heads: dict[str, Case] = {}
    first: dict[str, bool] = {}
    for case, verdict in pairs:
        if heads.setdefault(case.id, case) is case:
            first[case.id] = _first_try(verdict)
        found = SampleResult(outcome=verdict.outcome, reason=verdict.reason, values=_values(verdict, references))
        samples.setdefault(case.id, []).append(found)
    return {
        case_id: CaseResult(
            area=case.area,
            level=case.level,
            cluster=case.cluster,
            samples=tuple(samples[case_id]),
            first_try=first[case_id],
            breaks=case_id in breaking,
        )
        for case_id, case in heads.items()
    }


def _first_try(verdict: Verdict) -> bool:
    """A rate keeps its samples, any other case says whether its first answer would have done."""
    samples = verdict.facts.get("samples")
    if isinstance(samples, (list, tuple)) and samples:
        return bool(samples[0] == 1)
    return verdict.outcome is Outcome.PASS and verdict.facts.get("first_try", True) is True


def _values(verdict: Verdict, references: Sequence[ReferenceRun]) -> dict[str, float]:
    """With ``agreeing``, where official runs say whether a tool should have been called: the share of them that did the
    same.
    """
    values = dict(verdict.values)
    if "triggered" not in values:
        return values
    official = [
        runs[verdict.sample % len(runs)].get("triggered")
        for reference in references
        if (runs := reference.cases.get(verdict.case))
    ]
    votes = [float((vote > 0) == (values["triggered"] > 0)) for vote in official if vote is not None]
    return values | ({"agreeing": sum(votes) / len(votes)} if votes else {})


def service_of(store: Store) -> Service:
    """What stands beside quality, from the target's own traffic."""
    samples = list(store.timing_samples())
    target = store.traffic()["roles"].get(Role.TARGET.value)
    requests = target["requests"] if target else 0
    return Service(
        requests=requests,
        first_try=share(target["first_try_success"], requests) if target else share(0, 0),
        ttft_ms=median(_known(samples, "first_token_ms", streamed=True)),
        itl_ms=median(_known(samples, "itl_p50_ms")),
        output_tps=median(_known(samples, "tokens_per_s")),
        e2e_ms=median(_known(samples, "total_ms")),
        completion_tokens=mean(
            (s.case, float(s.completion_tokens)) for s in samples if s.completion_tokens is not None
        ),
        prompt_tokens=target["prompt_tokens"] if target else 0,
        cost=target["cost"] if target else None,
    )


def _known(samples: Sequence[TimingSample], name: str, *, streamed: bool = False) -> list[float]:
    return [float(value) for s in samples if (value := getattr(s, name)) is not None and (s.stream or not streamed)]


def answer_text(store: Store, case: str, sample: int) -> str:
    """The answer that the verdict points at, else the last one to the case's own question; "" where nothing is
    stored.
    """
    verdict = store.verdict(case, sample)
    stored = telling_exchange(store, verdict) if verdict is not None else None
    return "" if stored is None else _said(stored)[:ANSWER_TEXT]


def _said(stored: StoredExchange) -> str:
    """The message with its calls; what was no completion as it came."""
    said = stored.observation
    if not said.choices:
        return raw_answer(stored)
    calls = "".join(f"\n[call] {call.name} {call.arguments}" for call in said.tool_calls)
    return f"{said.answer}{calls}\n[finish_reason] {said.finish_reason}"
