"""Judging a stored run again, offline: stored replies go through the suites' steps; nothing is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from kvv.cases.suite import Suite
from kvv.core import Case, Finding, Outcome, Role, Verdict
from kvv.execution.scheduling.stepping import judge_replies
from kvv.execution.workers import WorkerDied, WorkerError, Workers, WorkerTimeout, processors
from kvv.protocol.classify import count_findings
from kvv.protocol.reader import read_again
from kvv.protocol.rules import rules_for
from kvv.storage.run_metadata import policy_of, profile_of, recorded_suites
from kvv.storage.store import Store

#: samples in one message to a worker: judging them takes far less than the time one of them may take
BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictChange:
    case: str
    sample: int
    before: Verdict
    after: Verdict


async def rescore(store: Store) -> tuple[int, list[VerdictChange]]:
    """Judge every concluded sample again, on all processors; (samples judged, those whose verdict changed). Changed
    verdicts replace the stored ones.
    """
    changes: list[VerdictChange] = []
    judged = 0
    count = processors()
    async with Workers(count=count, patience_s=0.0) as workers:
        work = _batches(store)
        while together := list(islice(work, 2 * count)):
            after = await asyncio.gather(*(_judged(workers, store, suite, batch) for suite, batch in together))
            for (case, before), verdict in zip(
                chain.from_iterable(batch for _, batch in together), chain.from_iterable(after), strict=True
            ):
                judged += verdict is not None
                if verdict is not None and _differs(before, verdict):
                    changes.append(VerdictChange(case=case.id, sample=case.sample, before=before, after=verdict))
                    store.put_verdict(verdict)
    return judged, changes


async def _judged(
    workers: Workers, store: Store, suite: Suite, batch: Sequence[tuple[Case, Verdict]]
) -> Sequence[Verdict | None]:
    """A batch in one message to a worker, which reads the answers itself; one by one where that fails, so that an
    answer that hangs its judge costs nobody else the verdict.
    """
    if suite.judge_timeout_s is not None:
        try:
            found: list[Verdict | None] = await workers.run(
                "kvv.execution.scheduling.remote:replay_stored",
                str(store.path),
                suite.id,
                [(case.id, case.sample) for case, _ in batch],
                timeout_s=suite.judge_timeout_s,
                imports=(type(suite).__module__, *suite.judge_imports),
            )
            return found
        except (WorkerTimeout, WorkerDied, WorkerError):
            pass
    # read first: a damaged record must not leave tasks behind that nobody waits for
    replies = [store.replies(case.id, case.sample) for case, _ in batch]
    return await asyncio.gather(
        *(judge_replies(workers, suite, case, found) for (case, _), found in zip(batch, replies, strict=True))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    """Exchanges whose wire rules were judged again, those of them whose findings changed, and those that kept no frames
    to judge.
    """

    judged: int
    changed: int
    without_frames: int


def recheck_wire(store: Store) -> Reread:
    """The passive rules once more over every stored exchange with the endpoint; changed findings replace the stored
    ones.
    """
    meta = store.meta()
    profile, moonshot_stream = profile_of(meta), policy_of(meta).moonshot_stream
    judged = without_frames = 0
    changed: dict[int, tuple[Finding, ...]] = {}
    for stored in store.exchanges():
        exchange = stored.exchange
        if exchange.role is Role.JUDGE:
            continue
        if not exchange.frames_kept:
            without_frames += 1
            continue
        judged += 1
        again = read_again(
            exchange, stored.request, rules_for(profile, stored.request, moonshot_stream=moonshot_stream)
        )
        findings = count_findings(stored.request, exchange, again.observation, again.findings)
        if findings != stored.findings:
            changed[exchange.id] = findings
    for exchange_id, findings in changed.items():
        store.put_findings(exchange_id, findings)
    return Reread(judged=judged, changed=len(changed), without_frames=without_frames)


def _batches(store: Store) -> Iterator[tuple[Suite, list[tuple[Case, Verdict]]]]:
    """The concluded samples, those of a batch of one suite."""
    for recorded in recorded_suites(store.meta()):
        samples = _concluded(store, recorded.suite.id)
        while batch := list(islice(samples, BATCH)):
            yield recorded.suite, batch


def _concluded(store: Store, suite: str) -> Iterator[tuple[Case, Verdict]]:
    case: Case | None = None
    for case_id, sample, verdict in store.verdicts(suite):
        if verdict.outcome not in (Outcome.SKIP, Outcome.INCONCLUSIVE) or verdict.reason.startswith("scorer-"):
            if case is None or case.id != case_id:
                case = store.case(case_id)
            yield replace(case, sample=sample), verdict


def _differs(before: Verdict, after: Verdict) -> bool:
    return (before.outcome, before.reason, dict(before.values)) != (after.outcome, after.reason, dict(after.values))
