"""`kvv load`: the options are read and the plan is said; then the ladder runs and its reports are written."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvv import __version__
from kvv.cli.flags import flags_of
from kvv.cli.options_measured import LOAD_OPTIONS
from kvv.cli.verbs.documents import put, write
from kvv.cli.verbs.session import announce
from kvv.core import Role
from kvv.core.exit_codes import ExitCode
from kvv.core.lazy import numpy as np
from kvv.decision.load import LoadStep, judge
from kvv.execution.executor import check_endpoints, endpoints, redactor_for, reference_target
from kvv.execution.load.ladder import Ladder
from kvv.execution.load.mix import Mix
from kvv.execution.preparation import guard_amount, prepare_measurement
from kvv.execution.scheduling.budget import Budget, RunBounds, price_of
from kvv.planning.config import MOST_AT_ONCE, ConfigError, load_config
from kvv.planning.load_config import LoadConfig, load_config_of
from kvv.planning.run_plan import RunPlan
from kvv.profiles.policy import Policy
from kvv.protocol.reader import ReadLimits
from kvv.protocol.redaction.redactor import redact_url
from kvv.rendering.document import html, markdown
from kvv.rendering.escape import plain
from kvv.reporting.load import LoadReport, as_json, document
from kvv.storage.run_folder import create_folder, vendor_of
from kvv.transport import Transport

#: the reports' names
NAME = "load"
#: reasons of an early end that are a budget of the user's
BOUNDS = frozenset({"deadline", "max-requests", "max-tokens-total", "max-cost"})


def load(arguments: argparse.Namespace) -> int:
    flags = flags_of(arguments)
    wanted = load_config_of({name: flags.pop(name) for name in LOAD_OPTIONS if name in flags})
    job = prepare_measurement(load_config(flags), "load")
    policy = _with_limits(job.policy, wanted)
    mix = Mix(job.config, wanted, job.profile, job.model)
    said = _plan(job, wanted, mix)
    if not job.config.quiet:
        print(plain(said, 1_000), file=sys.stderr)
    check_endpoints(job)
    owner = f"{NAME}-{vendor_of(job.config.base_url)}"
    folder = create_folder(job.config.out, owner, job.model, shared=job.config.shared)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    bounds = RunBounds(
        requests=job.config.max_requests,
        tokens=job.config.max_tokens_total,
        cost=job.config.max_cost,
        deadline_s=job.config.deadline,
    )
    budget = Budget(bounds, job.prices)
    interrupted = False
    with reference_target(job) as (base_url, _):
        holder: list[Ladder] = []
        try:
            asyncio.run(_climb(job, policy, wanted, mix, budget, base_url, holder))
        except KeyboardInterrupt:
            if not holder or not holder[0].steps:
                raise
            interrupted, holder[0].stop = True, "interrupted"
    ladder = holder[0]
    found = judge(ladder.steps, policy, np.random.default_rng(job.config.seed), wanted.need)
    report = LoadReport(
        title=f"{job.model} at {'our own endpoint' if job.in_process else _address(job)}, {started}",
        result=found,
        open_loop=wanted.open_loop,
        about=(*_about(job, wanted), said),
        facts=_facts(job, policy, wanted, folder.name, started, budget),
        examples=ladder.examples,
        stop=ladder.stop,
    )
    code = _code(report, interrupted=interrupted)
    _write(report, folder, code, quiet=job.config.quiet, as_data=job.config.json_output)
    return code


def _with_limits(policy: Policy, wanted: LoadConfig) -> Policy:
    known = [level.id for level in policy.service_level]
    if not known:
        raise ConfigError(f"--policy: {policy.name} has no [[service_level]], without which no load can be judged")
    if unknown := next((name for name in wanted.level if name not in known), None):
        raise ConfigError(f"--level: the policy has no {unknown!r:.60}; it has {', '.join(known)}")
    levels = tuple(
        level.model_copy(update={"limit": wanted.level.get(level.id, level.limit)}) for level in policy.service_level
    )
    return policy.model_copy(update={"service_level": levels})


def _plan(job: RunPlan, wanted: LoadConfig, mix: Mix) -> str:
    """What it may ask at most, in a line; ConfigError where that wants the user's word first."""
    requests = sum(wanted.planned(load) for load in wanted.ladder)
    if not wanted.open_loop and wanted.duration is None and wanted.warmup is None:
        requests += int(sum(wanted.ladder))
    prompt = round(requests * mix.mean_prompt_tokens)
    cached, completion = round(prompt * wanted.cached), round(requests * mix.mean_output_tokens)
    prices = job.prices
    cost = 0.0 if prices is None else price_of(prices, prompt=prompt - cached, cached=cached, completion=completion)
    guard_amount(job, tokens=prompt + completion, cost=cost)
    unit = "arrivals/s" if wanted.open_loop else "at once"
    steps = ", ".join(f"{load:g}" for load in wanted.ladder)
    return (
        f"steps of {steps} {unit}: about {requests:,} requests, {prompt:,} prompt tokens, at most {completion:,}"
        f" completion tokens{f', ${cost:,.2f}' if prices else ''}"
    )


async def _climb(
    job: RunPlan,
    policy: Policy,
    wanted: LoadConfig,
    mix: Mix,
    budget: Budget,
    base_url: str,
    holder: list[Ladder],
) -> None:
    target = {Role.TARGET: endpoints(job, base_url)[Role.TARGET]}
    config = job.config
    async with Transport(
        target,
        redactor=redactor_for(target),
        limits=ReadLimits(),
        connect_timeout=config.connect_timeout,
        first_byte_timeout=config.first_byte_timeout,
        idle_timeout=config.idle_timeout,
        max_connections=MOST_AT_ONCE,
    ) as transport:
        ladder = Ladder(
            transport,
            mix,
            wanted,
            profile=job.profile,
            policy=policy,
            budget=budget,
            seed=config.seed,
            tell=_progress(quiet=config.quiet or config.json_output),
        )
        holder.append(ladder)
        await ladder.run()


def _progress(*, quiet: bool) -> Callable[[LoadStep], None]:
    def tell(step: LoadStep) -> None:
        if not quiet:
            lost = sum(bool(sample.failure) for sample in step.samples)
            wrong = sum(sample.right is False for sample in step.samples)
            seconds = step.window[1] - step.window[0]
            print(
                f"{step.load:g}: {len(step.samples)} requests in {seconds:.1f} s, {lost} lost, {wrong} wrong",
                file=sys.stderr,
                flush=True,
            )

    return tell


def _address(job: RunPlan) -> str:
    return "an endpoint" if job.config.public else redact_url(job.config.base_url or "")


def _about(job: RunPlan, wanted: LoadConfig) -> list[str]:
    lengths = ", ".join(f"{length:,}" for length in wanted.prompt_tokens)
    how = f"for {wanted.duration:g} s a step" if wanted.duration else "for a number of requests a step"
    lines = [
        f"mix {wanted.mix if wanted.mix in ('chat', 'agent') else 'of your own requests'}, prompts of about {lengths}"
        f" tokens, {100 * wanted.cached:g} % of them a shared prefix, answers of at most {wanted.output_tokens} tokens,"
        f" {100 * wanted.known:g} % with a known answer, {how}",
        f"profile {job.profile.id}, surface {job.profile.surface}, policy {job.policy.name}, seed {job.config.seed}",
    ]
    if job.in_process:
        lines.append("the endpoint ran in this very process: the times show the tool at work, no service")
    return lines


def _facts(
    job: RunPlan, policy: Policy, wanted: LoadConfig, run_id: str, started: str, budget: Budget
) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "started": started,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "kvv_version": __version__,
        "seed": job.config.seed,
        "endpoint": {"base_url": _address(job) if job.config.base_url else None, "model": job.model},
        "profile": job.profile.id,
        "surface": job.profile.surface.value,
        "policy": {"name": policy.name, "sha256": policy.sha256},
        "load": {**wanted.model_dump(mode="json"), "mix": wanted.mix if not job.config.public else "own"},
        "traffic": {
            "requests": budget.spent.requests,
            "prompt_tokens": budget.spent.prompt_tokens,
            "cached_tokens": budget.spent.cached_tokens,
            "completion_tokens": budget.spent.completion_tokens,
            "cost": budget.spent.cost if job.prices else None,
        },
    }


def _code(report: LoadReport, *, interrupted: bool) -> int:
    outcome = report.result.outcome.value
    if interrupted:
        return ExitCode.INTERRUPTED
    if outcome == "fail":
        return ExitCode.FAIL
    if report.stop in BOUNDS:
        return ExitCode.BOUND
    return ExitCode.PASS if outcome == "pass" else ExitCode.INCONCLUSIVE


def _write(report: LoadReport, folder: Path, code: int, *, quiet: bool, as_data: bool) -> None:
    shown, data = document(report), as_json(report, code=code)
    for ending, text in (("md", markdown(shown)), ("html", html(shown)), ("json", data)):
        write(folder / f"{NAME}.{ending}", text, "--out")
    if as_data:
        sys.stdout.write(data)
    elif quiet:
        print(plain(report.headline, 1_000))
    else:
        put(argparse.Namespace(format="text", to=None), shown, lambda: data)
    if report.stop:
        announce(f"ended early: {report.stop}")
    print(plain(str(folder / f"{NAME}.html"), 1_000), file=sys.stderr if as_data else sys.stdout)
