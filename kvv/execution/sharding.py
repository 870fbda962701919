"""A job cut down to the shard that its configuration names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvv.planning.plan import Plan, only
from kvv.planning.run_plan import RunPlan
from kvv.planning.shard import Shard, parse_shard, plan_digest, split


def take_shard(job: RunPlan) -> tuple[RunPlan, dict[str, Any] | None]:
    """The job of this shard, and what the store remembers of the whole (None for a run that is not sharded)."""
    if not job.config.shard:
        return job, None
    shard: Shard = parse_shard(job.config.shard)
    whole = {case.id: item.samples[case.id] for item in job.plan.suites for case in item.cases}
    suites = [only(item, split(item.cases, shard)) for item in job.plan.suites]
    plan = Plan(suites=suites, skipped=job.plan.skipped, prices=job.plan.prices)
    return replace(job, plan=plan), {
        "index": shard.index,
        "of": shard.of,
        "plan": plan_digest(whole),
        "cases": len(whole),
    }
