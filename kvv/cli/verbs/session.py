"""From a configuration to a run's exit code: begin or reopen its folder, drive it, finish it."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from kvv import __version__
from kvv.cli.verbs.plan import announce_doubles, plan_tables
from kvv.execution.endpoints import EndpointRun, execute
from kvv.execution.executor import (
    TARGET_ENDED,
    ProgressFactory,
    RunEnding,
    check_connections,
    check_endpoints,
    reference_target,
)
from kvv.execution.interleaved_official import adopt, lane_folder, reference_job
from kvv.execution.preparation import check_bound, guard, prepare
from kvv.execution.probe import WRONG_ADDRESS, advice
from kvv.execution.progress import LiveProgress, PlainProgress
from kvv.execution.sharding import take_shard
from kvv.planning.config import ConfigError, RunConfig
from kvv.planning.interim_plan import sentence
from kvv.planning.run_plan import LANE, RunPlan
from kvv.rendering.escape import plain
from kvv.reporting.finalize import Tell, check_reference, finalize, record_ending, write_files
from kvv.sandbox import WARNING
from kvv.storage.files import is_private, make_folder
from kvv.storage.run_folder import STORE, create_folder, slug, vendor_of, write_config
from kvv.storage.run_metadata import check_meta, run_meta
from kvv.storage.store import Store, StoreError, WriteError

#: budgets that a resumed run finds used up
SPENT_REASONS = frozenset({"max-requests", "max-tokens-total", "max-cost"})


def start(config: RunConfig, *, contract_only: bool, tell: Tell | None = None, vendor: str = "") -> int:
    """A new run; its exit code. ``tell`` is given the ended run in place of standard output; ``vendor`` is another name
    than the host's.
    """
    job, part = take_shard(prepare(config, contract_only=contract_only))
    official = reference_job(job)
    _say(config, f"profile {job.profile.id}, surface {job.profile.surface}: {job.profile_reason}")
    announce_doubles(job)
    if part is not None:
        _say(
            config, f"shard {config.shard}: {sum(len(item.cases) for item in job.plan.suites)} of {part['cases']} cases"
        )
    if config.early_stop and not contract_only:
        _say(config, sentence(job.plan, job.policy))
    if not job.plan.suites:
        raise ConfigError("nothing to run: " + "; ".join(f"{item.suite}: {item.reason}" for item in job.plan.skipped))
    jobs = {"": job} if official is None else {"": job, LANE: official}
    if any(one.prices is not None for one in jobs.values()) and not config.quiet:
        print(plan_tables(jobs), file=sys.stderr)
    guard(
        *jobs.values(),
        prices="--price-in and --price-out" if job.prices is None else "--reference-price-in and --reference-price-out",
    )
    if job.sandbox == "none":
        print(WARNING, file=sys.stderr)
    for name, one in jobs.items():
        check_endpoints(one, name)
    check_connections(*jobs.values())
    check_reference(config)
    with ExitStack() as undo:
        owner = slug(vendor) if vendor else vendor_of(config.base_url)
        folder = create_folder(config.out, owner, job.model, shared=config.shared)
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        store = begin(job, folder, part=part, undo=undo, vendor=vendor)
        beside = None if official is None else begin(official, lane_folder(folder), lane_of=folder.name, undo=undo)
        write_config(folder, config)  # last: it makes the folder a run that can be found
        undo.pop_all()
    return _drive(job, store, folder, official=official, beside=beside, resumed=False, tell=tell)


def begin(
    job: RunPlan,
    folder: Path,
    *,
    undo: ExitStack,
    part: Mapping[str, Any] | None = None,
    lane_of: str = "",
    vendor: str = "",
) -> Store:
    """The store of a run with its plan, in a folder that is new or made here; ``undo`` closes it. ``vendor``: another
    name than the host's.

    ``lane_of`` names the run of which this is the reference lane: its folder is one already, for it lies below a new
    one.
    """
    try:
        if not folder.is_dir():
            make_folder(folder, shared=not is_private(folder.parent))
        meta = {**run_meta(job, folder.name if not lane_of else f"{lane_of}-{folder.name}", __version__), "shard": part}
        meta |= {"lane_of": lane_of} if lane_of else {}
        meta |= {"vendor": vendor} if vendor else {}
        store = Store.create(folder / STORE, meta)
        undo.push(lambda *raised: _abandon(store))
        _put_plan(job, store)
    except OSError as error:
        raise ConfigError(f"--out: cannot make {folder}: {error.strerror or error}") from error
    except StoreError as error:
        raise ConfigError(f"--out: {error}") from error
    if lane_of:
        write_config(folder, job.config)
    return store


def _abandon(store: Store) -> None:
    """What could not be written before cannot be written now: the first error has said it."""
    with suppress(StoreError):
        store.close()


def go_on(folder: Path, config: RunConfig) -> int:
    """Continues a stored run, and the reference lane beside it. ConfigError for a store that is damaged, locked, or was
    made of other questions."""
    check_reference(config)
    try:
        with ExitStack() as undo:
            store = undo.enter_context(Store.open(folder / STORE))
            meta = check_meta(store)
            if meta.get("lane_of"):
                raise ConfigError(
                    f"RUN: {folder} is the reference lane of {folder.parent}; resume that run, which continues both"
                )
            job, _ = take_shard(prepare(config, contract_only=bool(meta["contract_only"])))
            _same_plan(job, store)
            if job.sandbox == "none":
                print(WARNING, file=sys.stderr)
            official = reference_job(job)
            beside = None
            if official is not None:
                lane = lane_folder(folder)
                if not (lane / STORE).is_file():
                    raise ConfigError(f"RUN: {folder} has no reference lane to go on with ({lane.name}/ is missing)")
                beside = undo.enter_context(Store.open(lane / STORE))
                check_meta(beside)
                _same_plan(official, beside)
            check_bound(job, *filter(None, [official]))
            check_connections(job, *filter(None, [official]))
            undo.pop_all()
        return _drive(job, store, folder, official=official, beside=beside, resumed=True)
    except WriteError:
        raise
    except StoreError as error:
        raise ConfigError(f"RUN: {error}") from error


def _put_plan(job: RunPlan, store: Store) -> None:
    """The plan is durable before the first request."""
    for planned in job.plan.suites:
        store.put_cases(planned.cases, planned.samples)
    store.flush()


def _same_plan(job: RunPlan, store: Store) -> None:
    """Resuming must ask the same questions: data, suites and cases have to match what the run began with."""
    known = {case.id: case.inputs for case, _ in store.cases()}
    planned = {case.id: case.inputs for item in job.plan.suites for case in item.cases}
    if known.keys() != planned.keys():
        raise ConfigError(
            f"RUN: its {len(known)} cases are not the {len(planned)} that the same options give now: data, profile or"
            " version changed"
        )
    for name in ("agent", "grader"):
        before = {str(inputs[name]) for inputs in known.values() if name in inputs}
        after = {str(inputs[name]) for inputs in planned.values() if name in inputs}
        if before != after:
            raise ConfigError(
                f"RUN: its {name} was {', '.join(sorted(before))}, and would now be {', '.join(sorted(after))}"
            )


def _drive(
    job: RunPlan,
    store: Store,
    folder: Path,
    *,
    official: RunPlan | None,
    beside: Store | None,
    resumed: bool,
    tell: Tell | None = None,
) -> int:
    """Runs, finishes, and says how to go on where something was left open."""
    lanes = [EndpointRun(name="", job=job, store=store, base_url="", resumed=resumed)]
    again = continuation(folder, job)
    if official is not None and beside is not None:
        address = official.config.base_url or ""
        lanes.append(
            EndpointRun(name=LANE, job=official, store=beside, base_url=address, resumed=resumed, follows=True)
        )
    try:
        with ExitStack() as stack:
            for lane in lanes:
                stack.enter_context(lane.store)
            ending, *others = _executed(lanes)
            for lane, other in zip(lanes[1:], others, strict=True):
                record_ending(lane.store, other)
                write_files(lane.store, lane_folder(folder))
                adopt(store, lane.store)
            code = finalize(job, store, folder, ending, tell)
    except WriteError as error:
        raise WriteError(
            f"{error}; what was answered before is kept: free some space, then continue with: {again}"
        ) from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; continue with: {again}") from None
    if ending.stop:
        announce(f"stopped ({ending.stop.reason}); continue with: {again}{_changed(ending.stop.reason)}")
    elif stopped := next((other.stop for other in others if other.stop and other.stop.reason != TARGET_ENDED), None):
        announce(f"the reference endpoint stopped ({stopped.reason}: {stopped.sentence}); continue with: {again}")
    return code


def _changed(reason: str) -> str:
    """What must be given anew. A bound on requests, tokens or money counts the earlier part of the run too; a deadline
    begins anew.
    """
    return (
        f" --{reason} MORE"
        if reason in SPENT_REASONS
        else " --base-url URL (another --model wants a new run)"
        if reason == "route"
        else ""
    )


def _executed(lanes: Sequence[EndpointRun]) -> list[RunEnding]:
    first = lanes[0]
    with reference_target(first.job) as (base_url, counts):
        endings = run_endpoints([replace(first, base_url=base_url), *lanes[1:]], progress_for(first.job.config))
        if counts is not None:
            # a new server knows nothing of what an earlier one answered: a resumed run has no count to be equal to
            first.store.set_meta("server_counts", None if first.resumed else counts())
    return endings


def run_endpoints(lanes: Sequence[EndpointRun], progress: ProgressFactory) -> list[RunEnding]:
    """The lanes' endings, with a hint where an address or a key is wrong."""
    try:
        endings = execute(lanes, progress)
    except ExceptionGroup as group:
        # many tasks meet one broken store: one of their errors says it all
        if (broken := group.subgroup(StoreError)) is None:
            raise
        raise _first(broken) from group
    for lane, ending in zip(lanes, endings, strict=True):
        reason = ending.stop.reason
        if not reason.startswith("reference-") and (ending.configuration or WRONG_ADDRESS.fullmatch(reason)):
            hint = advice(lane.job, lane.base_url, reason.removeprefix("unreachable-"))
            told = endings[0] if lane.follows and endings[0].stop.reason.startswith("reference-") else ending
            told.stop.sentence += f"; {hint}" if hint else ""
    return endings


def _first(group: BaseExceptionGroup[StoreError]) -> StoreError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def continuation(folder: Path, job: RunPlan) -> str:
    """The command that goes on with a run, as a shell takes it; that there is no sandbox is said anew each time."""
    return f"kvv resume {shlex.quote(str(folder))}" + (" --sandbox none" if job.config.sandbox == "none" else "")


def announce(text: str) -> None:
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
