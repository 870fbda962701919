"""`kvv doctor`: this machine, this configuration and, where one is named, the endpoint."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kvv.cli.flags import flags_of
from kvv.execution.preparation import prepare
from kvv.execution.workers import Workers
from kvv.planning.config import ConfigError, load_config
from kvv.planning.run_plan import RunPlan
from kvv.protocol.classify import Classification
from kvv.rendering.escape import plain
from kvv.sandbox import BACKENDS, SandboxError, find_backend
from kvv.sandbox.adapters import AGENTS, GRADERS, AdapterError, identity

#: True: fine, None: absent but optional, False: broken; and what
Check = tuple[bool | None, str]


def doctor(arguments: argparse.Namespace) -> int:
    """One line a check; exit 2 when something a run needs is broken."""
    broken = False
    for good, text in _examine(flags_of(arguments)):
        broken |= good is False
        print(plain(f"{'ok     ' if good else 'missing' if good is None else 'BROKEN '} {text}"))
    return 2 if broken else 0


def _examine(flags: dict[str, Any]) -> Iterator[Check]:
    yield sys.version_info >= (3, 11), f"Python {platform.python_version()} on {platform.system()}"
    for package in ("aiohttp", "datasets", "jsonschema", "math-verify", "scipy", "zstandard"):
        try:
            yield True, f"{package} {version(package)}"
        except PackageNotFoundError:
            yield False, f"{package} is not installed"
    yield _workers_start(), "worker processes for scoring start"
    yield from _sandboxes()
    yield from _programs()
    try:
        config = load_config(flags)
    except ConfigError as error:
        yield False, str(error)
        return
    for name in (config.api_key_env, config.judge_api_key_env):
        yield (
            (True if os.environ.get(name) else None),
            f"environment variable {name}: {'set' if os.environ.get(name) else 'not set'}",
        )
    yield (
        (True if config.base_url else None),
        "an endpoint is named" if config.base_url else "no endpoint is named: runs ask our own reference endpoint",
    )
    try:
        job = prepare(config)
        if config.base_url or config.judge_base_url:
            from kvv.execution.executor import check_endpoints

            check_endpoints(job)
    except ConfigError as error:
        yield False, str(error)
        return
    yield True, f"profile {job.profile.id} ({job.profile_reason})"
    for item in job.plan.suites:
        yield True, f"suite {item.suite.id}: {len(item.cases)} cases"
    for skipped in job.plan.skipped:
        yield None, f"suite {skipped.suite}: skipped, {skipped.reason}"
    if config.base_url:
        yield from _endpoint(job, config.base_url)


def _programs() -> Iterator[Check]:
    """Those that can work or grade in our place."""
    for option, known in (("agent", AGENTS), ("grader", GRADERS)):
        for name in known:
            try:
                yield True, f"--{option} {name} (for swebench): {identity(known, name)}"
            except AdapterError as error:
                yield None, f"--{option} {name} (for swebench): {error}"


def _sandboxes() -> Iterator[Check]:
    """Each backend but none is tried."""
    for name in BACKENDS:
        if name == "none":
            continue
        try:
            why = find_backend(name).missing()
        except SandboxError as error:
            why = str(error)
        yield (None if why else True), f"sandbox {name} (for swebench): {why or 'works'}"


def _endpoint(job: RunPlan, base_url: str) -> Iterator[Check]:
    """The simplest request, the model, the key."""
    from kvv.execution.probe import look, model_hint
    from kvv.execution.scheduling.health import sentence

    seen = look(job, base_url)
    hint = f"; {seen.hint}" if seen.hint else ""
    if seen.found.standing is not Classification.ANSWERED:
        yield False, f"{sentence(seen.found, started=False)}{hint}"
        return
    yield True, f"the endpoint answers the simplest request (HTTP {seen.status}, {seen.total_ms:.0f} ms)"
    name = job.config.api_key_env
    yield True, f"the key in {name} is accepted" if os.environ.get(name) else "no key was asked for"
    if seen.models is None:
        yield None, "the endpoint lists no models (GET /models)"
    elif wrong := model_hint(job.model, seen.models):
        yield None, f"model {job.model}: answered, although {wrong}"
    else:
        yield True, f"model {job.model}: one of {len(seen.models)} listed"


def _workers_start() -> bool:
    async def probe() -> bool:
        async with Workers(count=1) as workers:
            return await workers.run("kvv.execution.scheduling.remote:alive", timeout_s=60.0) is True

    return asyncio.run(probe())
