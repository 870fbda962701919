"""Judging a stored run again, offline: stored replies go through the suites' steps; nothing is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvv.core import Case, Finding, Outcome, Role, Verdict
from kvv.execution.scheduling.stepping import judge_replies
from kvv.execution.workers import Workers
from kvv.protocol.classify import count_findings
from kvv.protocol.reader import read_again
from kvv.protocol.rules import rules_for
from kvv.storage.run_metadata import RecordedSuite, policy_of, profile_of, recorded_suites
from kvv.storage.store import Store

#: samples judged at once
AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictChange:
    case: str
    sample: int
    before: Verdict
    after: Verdict


async def rescore(store: Store) -> tuple[int, list[VerdictChange]]:
    """Judge every concluded sample again; (samples judged, those whose verdict changed). Changed verdicts replace the
    stored ones.
    """
    changes: list[VerdictChange] = []
    judged = 0
    async with Workers() as workers:
        work = _concluded(store)
        while batch := [item for _, item in zip(range(AT_ONCE), work, strict=False)]:
            # read first: a damaged record must not leave tasks behind that nobody waits for
            replies = [store.replies(case.id, case.sample) for _, case, _ in batch]
            tasks = (
                judge_replies(workers, recorded.suite, case, found)
                for (recorded, case, _), found in zip(batch, replies, strict=True)
            )
            after = await asyncio.gather(*tasks)
            for (_, case, before), verdict in zip(batch, after, strict=True):
                judged += verdict is not None
                if verdict is not None and _differs(before, verdict):
                    changes.append(VerdictChange(case=case.id, sample=case.sample, before=before, after=verdict))
                    store.put_verdict(verdict)
    return judged, changes


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


def _concluded(store: Store) -> Iterator[tuple[RecordedSuite, Case, Verdict]]:
    for recorded in recorded_suites(store.meta()):
        for case_id, sample, verdict in store.verdicts(recorded.suite.id):
            if verdict.outcome not in (Outcome.SKIP, Outcome.INCONCLUSIVE) or verdict.reason.startswith("scorer-"):
                yield recorded, replace(store.case(case_id), sample=sample), verdict


def _differs(before: Verdict, after: Verdict) -> bool:
    return (before.outcome, before.reason, dict(before.values)) != (after.outcome, after.reason, dict(after.values))
