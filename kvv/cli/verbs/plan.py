"""`kvv plan`: what would happen, before anything is sent."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from kvv.cli.verbs import forecast
from kvv.cli.verbs.forecast import detectable
from kvv.execution.preparation import prepare
from kvv.execution.sharding import take_shard
from kvv.planning.config import RunConfig, load_config
from kvv.planning.plan import PlannedSuite, cost_of
from kvv.planning.run_plan import LANE, RunPlan
from kvv.rendering.escape import plain


def plan(arguments: argparse.Namespace) -> int:
    from kvv.cli.flags import flags_of

    config = load_config(flags_of(arguments))
    if len(set(config.effort)) > 1:
        return _efforts(config)
    job, _ = take_shard(prepare(config))
    official = None
    if config.reference_base_url is not None:
        from kvv.execution.interleaved_official import reference_job

        official = reference_job(job)
    jobs = {"": job} if official is None else {"": job, LANE: official}
    announce_doubles(job)
    if config.json_output:
        facts = (
            plan_facts(job)
            if official is None
            else {**plan_facts(job), LANE: plan_facts(official), "total": total_facts(jobs)}
        )
        print(json.dumps(facts, indent=2))
    else:
        print(plan_tables(jobs))
    return 0


def _efforts(config: RunConfig) -> int:
    """The plan of each effort's run and of all together."""
    from kvv.cli.verbs.efforts import efforts_of, sides_of

    jobs = {name: prepare(side.config) for name, side in zip(efforts_of(config), sides_of(config), strict=True)}
    announce_doubles(*jobs.values())
    if config.json_output:
        efforts = {name: plan_facts(job) for name, job in jobs.items()}
        print(json.dumps({"efforts": efforts, "total": total_facts(jobs)}, indent=2))
    else:
        print(plan_tables(jobs))
    return 0


def announce_doubles(*jobs: RunPlan) -> None:
    """References that hold one run, named once however many endpoints they are for; even under -q, for the verdict
    rests on fewer runs.
    """
    for line in dict.fromkeys(line for job in jobs for line in job.counted_once):
        print(plain(f"kvv: {line}", 1_000), file=sys.stderr, flush=True)


def plan_tables(jobs: Mapping[str, RunPlan]) -> str:
    """The plans of all endpoints of a run by their name, "" for the one that it is about, and what they come to
    together.
    """
    if len(jobs) == 1:
        return plan_table(*jobs.values())
    total = total_facts(jobs)
    tokens = f"{_tokens(total['prompt_tokens'])} in and {_tokens(total['completion_tokens'])} out"
    lines = [f"{plain(name, 100)} {plan_table(job)}" if name else plan_table(job) for name, job in jobs.items()]
    unknown = [name or job.model for name, job in jobs.items() if job.plan.cost is None and not job.config.loopback]
    more = f", and no price is known of {', '.join(unknown)}" if unknown else ""
    return "\n".join(
        [
            *lines,
            plain(
                f"all {len(jobs)} together: {total['requests']:,} requests, about"
                f" {tokens}{_money(total['cost_usd'])}{more}",
                400,
            ),
        ]
    )


def total_facts(jobs: Mapping[str, RunPlan]) -> dict[str, Any]:
    """The sums; ``cost_usd`` is over the endpoints whose price is known, judges included, None where none is."""
    plans = [job.plan for job in jobs.values()]
    costs = [plan.cost + (plan.judge_cost or 0.0) for plan in plans if plan.cost is not None]
    return {
        "requests": sum(plan.requests for plan in plans),
        "prompt_tokens": sum(plan.prompt_tokens for plan in plans),
        "completion_tokens": sum(plan.completion_tokens for plan in plans),
        "cost_usd": sum(costs) if costs else None,
    }


def plan_facts(job: RunPlan) -> dict[str, Any]:
    """The plan as data: suites, requests, tokens, dollars without and with prefix caching, the judge's calls, what
    could be decided.
    """
    return {
        "profile": job.profile.id,
        "surface": job.profile.surface.value,
        "suites": [_suite_facts(job, item) for item in job.plan.suites],
        "skipped": [{"suite": item.suite, "reason": item.reason} for item in job.plan.skipped],
        "requests": job.plan.requests,
        "prompt_tokens": job.plan.prompt_tokens,
        "completion_tokens": job.plan.completion_tokens,
        "cached_tokens": job.plan.cached_tokens,
        "judge_calls": job.plan.judge_calls,
        "cost_usd": job.plan.cost,
        "judge_cost_usd": job.plan.judge_cost,
        "cost_cached_usd": job.plan.cost_cached,
        "outlook": forecast.facts(job),
    }


def _suite_facts(job: RunPlan, item: PlannedSuite) -> dict[str, Any]:
    prices = job.plan.prices
    return {
        "suite": item.suite.id,
        "cases": len(item.cases),
        "requests": item.requests,
        "prompt_tokens": item.prompt_tokens,
        "completion_tokens": item.completion_tokens,
        "cached_tokens": item.cached_tokens,
        "judge_calls": item.judge_calls,
        "cost_usd": None if prices is None else cost_of(prices, item.prompt_tokens, item.completion_tokens),
        "cost_cached_usd": (
            None if prices is None else cost_of(prices, item.prompt_tokens, item.completion_tokens, item.cached_tokens)
        ),
        "detectable": detectable(item, job),
        "data": None if item.context.dataset is None else item.context.dataset.origin,
    }


def plan_table(job: RunPlan) -> str:
    """The plan for people, one line a suite."""
    tokens = f"{_tokens(job.plan.prompt_tokens)} in and {_tokens(job.plan.completion_tokens)} out"
    lines = [f"plan: {job.plan.requests:,} requests, about {tokens}{_money(job.plan.cost)}"]
    for item in job.plan.suites:
        cost = None if job.plan.prices is None else cost_of(job.plan.prices, item.prompt_tokens, item.completion_tokens)
        seen = detectable(item, job)
        power = f", would see a loss of {100 * seen:.1f} points" if seen else ""
        tokens = _tokens(item.prompt_tokens + item.completion_tokens)
        lines.append(
            f"  {item.suite.id}: {len(item.cases)} cases, {item.requests} requests,"
            f" {tokens}{_money(cost)}{_cached(job, item)}{power}"
        )
    lines += [f"  {item.suite}: skipped, {item.reason}" for item in job.plan.skipped]
    lines += forecast.lines(job)
    return "\n".join(plain(line, 400) for line in lines)


def _cached(job: RunPlan, item: PlannedSuite) -> str:
    """What a perfect prefix cache would save, and what is asked of the judge."""
    found = ""
    if item.cached_tokens:
        found = f", {_tokens(item.cached_tokens)} of them repeat a prefix"
        if job.plan.prices is not None:
            cost = cost_of(job.plan.prices, item.prompt_tokens, item.completion_tokens, item.cached_tokens)
            found += f" (about ${cost:,.2f} with perfect prefix caching)"
    return found + _judge(job, item) if item.judge_calls else found


def _judge(job: RunPlan, item: PlannedSuite) -> str:
    calls, prices = f", about {item.judge_calls:,} calls of the judge", job.plan.judge_prices
    if prices is not None:
        return f"{calls}{_money(cost_of(prices, *item.judge_tokens))}"
    return calls if job.in_process else f"{calls} (price not known)"


def _tokens(n: int) -> str:
    return f"{n / 1e6:.1f}M tokens" if n >= 1_000_000 else f"{n / 1e3:.0f}k tokens"


def _money(cost: float | None) -> str:
    return "" if cost is None else f", about ${cost:,.2f}"
