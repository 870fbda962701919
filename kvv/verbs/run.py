"""`kvv run`, `kvv check`, `kvv resume`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from kvv import __version__
from kvv.config import ConfigError, RunConfig, load_config
from kvv.finish import finish
from kvv.job import Job, guard, prepare
from kvv.progress import LiveProgress, PlainProgress
from kvv.record import run_meta
from kvv.report.text import plain
from kvv.run import Ending, ProgressFactory, check_endpoints, execute, reference_target
from kvv.runfolder import STORE, create_folder, find_run, read_config, write_config
from kvv.sharding import sharded
from kvv.store import Store, StoreError
from kvv.verbs.plan import plan_table

#: options of the parser that are no option of a run
NOT_OPTIONS = frozenset({"verb", "run"})


def flags_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was given on the command line; an empty list of suites counts as not given."""
    return {name: value for name, value in vars(arguments).items() if name not in NOT_OPTIONS and value not in (None, [])}


def run(arguments: argparse.Namespace) -> int:
    return _start(load_config(flags_of(arguments)), contract_only=False)


def check(arguments: argparse.Namespace) -> int:
    return _start(load_config(flags_of(arguments)), contract_only=True)


def _start(config: RunConfig, *, contract_only: bool) -> int:
    job, part = sharded(prepare(config, contract_only=contract_only))
    _say(config, f"profile {job.profile.id}, surface {job.profile.surface}: {job.profile_reason}")
    if part is not None:
        _say(config, f"shard {config.shard}: {sum(len(item.cases) for item in job.plan.suites)} of {part['cases']} cases")
    if not job.plan.suites:
        raise ConfigError("nothing to run: " + "; ".join(f"{item.suite}: {item.reason}" for item in job.plan.skipped))
    if job.prices is not None and not config.quiet:
        print(plan_table(job), file=sys.stderr)
    guard(job)
    check_endpoints(job)
    folder = create_folder(config.out, config.base_url, job.model)
    write_config(folder, config)
    store = Store.create(folder / STORE, {**run_meta(job, folder.name, __version__), "shard": part})
    _put_plan(job, store)
    return _drive(job, store, folder, resumed=False)


def resume(arguments: argparse.Namespace) -> int:
    """Continues with the run's own configuration; only bounds and the address may be replaced."""
    folder = find_run(arguments.run, arguments.out or "reports")
    stored = read_config(folder)
    given = {name: value for name, value in flags_of(arguments).items() if name != "out"}
    config = stored.model_copy(update=given)
    try:
        store = Store.open(folder / STORE)
    except StoreError as error:
        raise ConfigError(f"RUN: {error}") from error
    try:
        job, _ = sharded(prepare(config, contract_only=bool(store.meta().get("contract_only"))))
        _same_plan(job, store)
    except ConfigError:
        store.close()
        raise
    return _drive(job, store, folder, resumed=True)


def _put_plan(job: Job, store: Store) -> None:
    """The plan is durable before the first request."""
    for planned in job.plan.suites:
        store.put_cases(planned.cases, planned.samples)
    store.flush()


def _same_plan(job: Job, store: Store) -> None:
    """Resuming must ask the same questions: data, suites and cases have to match what the run began with."""
    known = {case.id for case, _ in store.cases()}
    if not known:  # killed before the plan was written
        _put_plan(job, store)
        return
    planned = {case.id for item in job.plan.suites for case in item.cases}
    if known != planned:
        raise ConfigError(f"RUN: its {len(known)} cases are not the {len(planned)} that the same options give now: data, profile or version changed")


def _drive(job: Job, store: Store, folder: Path, *, resumed: bool) -> int:
    ending = Ending()
    try:
        with reference_target(job) as (base_url, counts):
            ending = execute(job, store, base_url, progress_for(job.config), resumed=resumed)
            if counts is not None:
                # a new server knows nothing of what an earlier one answered: a resumed run has no count to be equal to
                store.set_meta("server_counts", None if resumed else counts())
        return finish(job, store, folder, ending)
    finally:
        store.close()


def progress_for(config: RunConfig) -> ProgressFactory:
    console = Console(stderr=True)
    if console.is_terminal and not config.quiet and not config.json_output:
        return lambda planned, budget: LiveProgress(planned, budget, console=console)
    return lambda planned, budget: PlainProgress(planned, budget, quiet=bool(config.quiet))


def _say(config: RunConfig, text: str) -> None:
    if not config.quiet:
        print(plain(text), file=sys.stderr)
