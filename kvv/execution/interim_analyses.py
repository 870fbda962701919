"""The looks of a run under way: decided over what the store holds, recorded in it before anything more is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from kvv.core import Case, Outcome, ReferenceValue, Stat
from kvv.core.lazy import numpy as np
from kvv.decision import Collector, DecisionEvidence, InterimAnalysis, InterimDecision, decide_look
from kvv.execution.preparation import generator_for
from kvv.execution.scheduling.stages import Stages, SuiteQueue
from kvv.execution.scheduling.work import Work
from kvv.planning.config import ConfigError
from kvv.planning.interim_plan import InterimPlan, begun, look_of, obstacles, plan_looks
from kvv.planning.plan import PlannedSuite, in_order, longest_first
from kvv.planning.run_plan import RunPlan
from kvv.storage.run_metadata import policy_of, recorded_suites, suite_runs
from kvv.storage.snapshot import PlannedVerdicts, mixed_suites
from kvv.storage.store import Store

#: makes works of those samples that are still to be concluded
MakeWorks = Callable[[Iterable[tuple[PlannedSuite, Case]]], Iterator[Work]]


class EarlyStop:
    """Nothing is looked at unless the run was asked to. A look that an earlier process took stands: it is not taken
    again.

    ConfigError where the store was made for other looks than the same options give now. ``tell`` gets a sentence for
    people.
    """

    def __init__(self, job: RunPlan, store: Store, tell: Callable[[str], None]) -> None:
        self._store, self._tell, self._seed = store, tell, job.config.seed
        self._plans: dict[str, InterimPlan] = {}
        self._record: dict[str, dict[str, Any]] = {}
        if job.config.early_stop:
            can = obstacles(job.plan, job.policy)
            plans = [
                plan_looks(item, job.policy.looks, generator_for(job.config.seed, item.suite.id))
                for item in job.plan.suites
                if can.get(item.suite.id) == ""
            ]
            self._plans = {plan.suite: plan for plan in plans}
            self._record = _agreed(store.meta().get("looks"), begun(plans))
            store.set_meta("looks", self._record)

    @property
    def on(self) -> bool:
        return bool(self._plans)

    def ended(self, suite: str) -> bool:
        """Whether a look ended it: nothing of it is asked any more, so that its decision stands."""
        return suite in self._record and bool(self._record[suite]["stopped"])

    def stages(self, items: Sequence[PlannedSuite], works: MakeWorks) -> Stages:
        """A lane for each suite."""
        return Stages(
            [self._lane(item, works) for item in longest_first(items) if not self.ended(item.suite.id)], self.look
        )

    def _lane(self, item: PlannedSuite, works: MakeWorks) -> SuiteQueue:
        suite = item.suite.id
        plan = self._plans.get(suite)
        if plan is None:
            return SuiteQueue(
                suite=suite, parts=(lambda: works(in_order([item], lambda name: generator_for(self._seed, name))),)
            )
        parts = [partial(_part, item, plan, number, works) for number in range(len(plan.parts))]
        return SuiteQueue(
            suite=suite, parts=parts, taken=max((look["number"] for look in self._record[suite]["taken"]), default=0)
        )

    async def look(self, suite: str, number: int) -> bool:
        """Take look ``number``, from 1; whether the suite ends with it."""
        entry, expected = self._record[suite], self._plans[suite].covered(number)
        await asyncio.to_thread(self._store.flush)
        found = await asyncio.to_thread(
            decide_stored, self._store.path, suite, look_of({**entry, "stopped": number}, number), expected
        )
        if found is None:
            return False
        stopped = found.decision is not Outcome.INCONCLUSIVE
        taken = {"number": number, "asked": expected, "decision": found.decision.value, "rows": _rows(found)}
        self._record[suite] = {**entry, "taken": [*entry["taken"], taken], "stopped": number if stopped else 0}
        self._store.set_meta("looks", self._record)
        self._store.put_event(
            "look", {"suite": suite, "of": len(entry["fractions"]), "planned": entry["planned"], **taken}
        )
        if stopped:
            reached = f"look {number} of {len(entry['fractions'])} for {found.decision.value}"
            self._tell(f"{suite} stopped at {reached}: {expected:,} of {entry['planned']:,} asked")
        return stopped


def _part(item: PlannedSuite, plan: InterimPlan, number: int, works: MakeWorks) -> Iterator[Work]:
    return works((item, case) for case in plan.order(number))


def _agreed(stored: dict[str, dict[str, Any]] | None, planned: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    if stored is None:
        return planned
    if {suite: (entry["fractions"], entry["planned"]) for suite, entry in stored.items()} != {
        suite: (entry["fractions"], entry["planned"]) for suite, entry in planned.items()
    }:
        raise ConfigError(
            "RUN: its looks were planned otherwise than the same options plan them now: data, references, policy or"
            " version changed"
        )
    return stored


def _rows(found: InterimDecision) -> list[dict[str, Any]]:
    return [
        {"metric": row.metric, "verdict": gate.decision.value, **_shown(row)}
        for row, gate in zip(found.rows, found.gates, strict=True)
    ]


def _shown(row: Stat) -> dict[str, Any]:
    look = row.look
    return (
        {}
        if look is None
        else {"bound": look.bound, "z": look.z, "confidence": look.confidence, "difference": list(look.interval)}
    )


def decide_stored(path: Path, suite_id: str, look: InterimAnalysis, expected: int) -> InterimDecision | None:
    """What the gates say of a suite's concluded samples, read and summed up as for the report; None unless there are
    ``expected`` of them.

    Opens the store for itself: it may be called from any thread.
    """
    with Store.open(path, read_only=True) as store:
        meta = store.meta()
        recorded = next(one for one in recorded_suites(meta) if one.suite.id == suite_id)
        pairs = PlannedVerdicts(store, suite_id, blocked=False, why="", asked_only=True)
        collector = Collector(policy_of(meta), suite_runs(meta), date.fromisoformat(meta["started"][:10]))
        asked = 0
        for case, verdict in pairs:
            collector.add(case, verdict)
            asked += 1
        if asked != expected:
            return None
        evidence = DecisionEvidence(
            references={suite_id: recorded.context.references},
            published={suite: ReferenceValue(**mean) for suite, mean in (meta.get("published") or {}).items()},
            mixed=mixed_suites(store.answered_by(), meta),
            looks={suite_id: look},
        )
        return decide_look(
            recorded.suite.metrics(pairs, recorded.context), collector, evidence, np.random.default_rng(meta["seed"])
        )
