"""From a configuration to a run's exit code: begin or reopen its folder, drive it, finish it."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from kvv import __version__
from kvv.config import ConfigError, RunConfig
from kvv.finish import finish
from kvv.job import Job, guard, prepare
from kvv.lanes import Lane, execute
from kvv.progress import LiveProgress, PlainProgress
from kvv.reach import WRONG_ADDRESS, advice
from kvv.record import check_meta, run_meta
from kvv.report.escape import plain
from kvv.run import Ending, ProgressFactory, check_endpoints, reference_target
from kvv.runfolder import STORE, create_folder, vendor_of, write_config
from kvv.sandbox import WARNING
from kvv.sharding import sharded
from kvv.store import Store, StoreError, WriteError
from kvv.verbs.plan import plan_table

#: budgets that a resumed run finds used up
SPENT_REASONS = frozenset({"max-requests", "max-tokens-total", "max-cost"})


def start(config: RunConfig, *, contract_only: bool) -> int:
    job, part = sharded(prepare(config, contract_only=contract_only))
    _say(config, f"profile {job.profile.id}, surface {job.profile.surface}: {job.profile_reason}")
    if part is not None:
        _say(config, f"shard {config.shard}: {sum(len(item.cases) for item in job.plan.suites)} of {part['cases']} cases")
    if not job.plan.suites:
        raise ConfigError("nothing to run: " + "; ".join(f"{item.suite}: {item.reason}" for item in job.plan.skipped))
    if job.prices is not None and not config.quiet:
        print(plan_table(job), file=sys.stderr)
    guard(job)
    if job.sandbox == "none":
        print(WARNING, file=sys.stderr)
    check_endpoints(job)
    store, folder = _begin(job, part)
    return _drive(job, store, folder, resumed=False)


def _begin(job: Job, part: Mapping[str, Any] | None) -> tuple[Store, Path]:
    """The run's folder with its store and plan, which becomes a run that can be found once all of it is there."""
    folder = create_folder(job.config.out, vendor_of(job.config.base_url), job.model)
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            store = Store.create(folder / STORE, {**run_meta(job, folder.name, __version__), "shard": part})
            undo.push(lambda *raised: _abandon(store))
            _put_plan(job, store)
        except StoreError as error:
            raise ConfigError(f"--out: {error}") from error
        write_config(folder, job.config)
        undo.pop_all()
    return store, folder


def _abandon(store: Store) -> None:
    """What could not be written before cannot be written now: the first error has said it."""
    with suppress(StoreError):
        store.close()


def go_on(folder: Path, config: RunConfig) -> int:
    """Continues a stored run. ConfigError for a store that is damaged, locked, or was made of other questions."""
    try:
        with ExitStack() as undo:
            store = undo.enter_context(Store.open(folder / STORE))
            meta = check_meta(store)
            job, _ = sharded(prepare(config, contract_only=bool(meta["contract_only"])))
            _same_plan(job, store)
            undo.pop_all()
        return _drive(job, store, folder, resumed=True)
    except WriteError:
        raise
    except StoreError as error:
        raise ConfigError(f"RUN: {error}") from error


def _put_plan(job: Job, store: Store) -> None:
    """The plan is durable before the first request."""
    for planned in job.plan.suites:
        store.put_cases(planned.cases, planned.samples)
    store.flush()


def _same_plan(job: Job, store: Store) -> None:
    """Resuming must ask the same questions: data, suites and cases have to match what the run began with."""
    known = {case.id for case, _ in store.cases()}
    planned = {case.id for item in job.plan.suites for case in item.cases}
    if known != planned:
        raise ConfigError(f"RUN: its {len(known)} cases are not the {len(planned)} that the same options give now: data, profile or version changed")


def _drive(job: Job, store: Store, folder: Path, *, resumed: bool) -> int:
    """Runs, finishes, and says how to go on where something was left open."""
    try:
        with store:
            ending = _executed(job, store, resumed=resumed)
            code = finish(job, store, folder, ending)
    except WriteError as error:
        raise WriteError(f"{error}; what was answered before is kept: free some space, then continue with: {continuation(folder)}") from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; continue with: {continuation(folder)}") from None
    if ending.stop:
        _tell(f"stopped ({ending.stop.reason}); continue with: {continuation(folder)}{_changed(ending.stop.reason)}")
    return code


def _changed(reason: str) -> str:
    """What must be given anew. A bound on requests, tokens or money counts the earlier part of the run too; a deadline begins anew."""
    return f" --{reason} MORE" if reason in SPENT_REASONS else " --base-url URL" if reason == "route" else ""


def _executed(job: Job, store: Store, *, resumed: bool) -> Ending:
    with reference_target(job) as (base_url, counts):
        try:
            (ending,) = execute([Lane(name="", job=job, store=store, base_url=base_url, resumed=resumed)], progress_for(job.config))
        except ExceptionGroup as group:
            # many tasks meet one broken store: one of their errors says it all
            if (broken := group.subgroup(StoreError)) is None:
                raise
            raise _first(broken) from group
        if ending.configuration or WRONG_ADDRESS.fullmatch(ending.stop.reason):
            hint = advice(job, base_url, ending.stop.reason.removeprefix("unreachable-"))
            ending.stop.sentence += f"; {hint}" if hint else ""
        if counts is not None:
            # a new server knows nothing of what an earlier one answered: a resumed run has no count to be equal to
            store.set_meta("server_counts", None if resumed else counts())
    return ending


def _first(group: BaseExceptionGroup[StoreError]) -> StoreError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def continuation(folder: Path) -> str:
    """The command that goes on with a run, as a shell takes it."""
    return f"kvv resume {shlex.quote(str(folder))}"


def _tell(text: str) -> None:
    """Said even under -q: without it the user does not know what to do next."""
    print(plain(f"kvv: {text}", 1_000), file=sys.stderr, flush=True)


def progress_for(config: RunConfig) -> ProgressFactory:
    console = Console(stderr=True)
    if console.is_terminal and not config.quiet and not config.json_output:
        return lambda planned, budget: LiveProgress(planned, budget, console=console)
    return lambda planned, budget: PlainProgress(planned, budget, quiet=bool(config.quiet))


def _say(config: RunConfig, text: str) -> None:
    if not config.quiet:
        print(plain(text), file=sys.stderr)
