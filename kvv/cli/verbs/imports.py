"""`kvv import`: recorded results of another tool become a run, judged under our rules, with the same reports."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from hashlib import file_digest
from pathlib import Path
from typing import Any

from kvv import __version__
from kvv.cases.confirm_refusal import is_refused, judge_recorded
from kvv.cases.suite import Suite
from kvv.cli.verbs.plan import announce_doubles
from kvv.core import Answered, Case, Verdict
from kvv.execution.executor import RunEnding
from kvv.execution.preparation import prepare_suite
from kvv.execution.scheduling.stepping import judge_replies
from kvv.execution.workers import Workers
from kvv.planning.config import ConfigError, RunConfig, load_config
from kvv.planning.plan import Plan, PlannedSuite
from kvv.planning.run_plan import RunPlan
from kvv.protocol.encode import encode
from kvv.protocol.reader import Received
from kvv.reporting.finalize import check_reference, record_ending, write_reports
from kvv.storage.importers import (
    Imported,
    ImportFileError,
    ImportOptions,
    RecordedSample,
    importer,
    importer_ids,
    recognise,
)
from kvv.storage.run_folder import STORE, create_folder, write_config
from kvv.storage.run_metadata import run_meta
from kvv.storage.store import Store

#: samples judged at once
AT_ONCE = 16
#: whose results these are, nobody asked
IMPORTED = "imported"
#: options of this verb that no run knows
OWN_OPTIONS = frozenset({"verb", "tool", "file", "scores", "requests"})


def import_results(arguments: argparse.Namespace) -> int:
    try:
        _name_tool(arguments)
        imported = _read(arguments)
    except ImportFileError as error:
        raise ConfigError(f"FILE: {error}") from error
    config = load_config(_flags(arguments), environ={})
    job = _job(config, imported, config.model or imported.model)
    announce_doubles(job)
    check_reference(config)
    folder = create_folder(config.out, IMPORTED, job.model, shared=config.shared)
    source = Path(arguments.file)
    meta = {
        **run_meta(job, folder.name, __version__),
        "base_url": f"recorded results: {source.name}",
        "vendor": IMPORTED,
        "imported": arguments.tool,
        "source_sha256": _digest(source),
    }
    store = Store.create(folder / STORE, meta)
    try:
        item = job.plan.suites[0]
        store.put_cases(item.cases, item.samples)
        for note in imported.notes:
            store.put_event("import-note", {"note": note})
        asyncio.run(_judge_all(store, item, imported))
        record_ending(store, RunEnding())
        write_config(folder, config)
        return write_reports(config, store, folder)
    finally:
        store.close()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _name_tool(arguments: argparse.Namespace) -> None:
    """``kvv import FILE [SCORES]``: the tool is told by the file's content. ConfigError where a file is missing."""
    if arguments.tool in importer_ids():
        if arguments.file is None:
            raise ConfigError(f"FILE: is missing: kvv import {arguments.tool} FILE")
        return
    if not Path(arguments.tool).exists():
        if arguments.file is not None:
            importer(arguments.tool)  # raises, naming the tools there are
        raise ConfigError(
            f"FILE: there is no {arguments.tool!r:.200}, nor a tool of that name: {', '.join(importer_ids())}"
        )
    if arguments.scores is not None:
        raise ConfigError(f"TOOL: {arguments.tool!r:.200} is a file; kvv import [TOOL] FILE [SCORES]")
    arguments.file, arguments.scores = arguments.tool, arguments.file
    arguments.tool = recognise(Path(arguments.file))


def _read(arguments: argparse.Namespace) -> Imported:
    """ConfigError for options that the tool needs or does not know, ImportFileError for files."""
    options = ImportOptions(
        requests=Path(arguments.requests) if arguments.requests else None,
        scores=Path(arguments.scores) if arguments.scores else None,
        model=arguments.model,
        seed=arguments.seed or 0,
    )
    return importer(arguments.tool)(Path(arguments.file), options)


def _flags(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        name: value for name, value in vars(arguments).items() if name not in OWN_OPTIONS and value not in (None, [])
    }


def _job(config: RunConfig, imported: Imported, model: str) -> RunPlan:
    """A job whose only suite is the imported one; nothing of it is ever sent."""
    config = config.model_copy(update={"variant": imported.variant})
    job = prepare_suite(config, imported.suite, model=model, dataset=imported.dataset)
    item = job.plan.suites[0]
    recorded = replace(item, cases=imported.cases, samples=imported.samples)
    return replace(job, plan=Plan(suites=[recorded], skipped=[], prices=None))


async def _judge_all(store: Store, item: PlannedSuite, imported: Imported) -> None:
    cases = {case.id: case for case in imported.cases}
    async with Workers() as workers:
        for start in range(0, len(imported.records), AT_ONCE):
            batch = imported.records[start : start + AT_ONCE]
            verdicts = await asyncio.gather(
                *(_judge(store, workers, item.suite, cases[record.case], record) for record in batch)
            )
            for verdict in verdicts:
                store.put_verdict(verdict)


async def _judge(store: Store, workers: Workers, suite: Suite, case: Case, record: RecordedSample) -> Verdict:
    received = Received(exchange=record.exchange, observation=record.observation, findings=record.findings)
    store.put_exchange(received, record.request, encode(record.request.body))
    answered = Answered(
        request=record.request, exchange=record.exchange, observation=record.observation, findings=record.findings
    )
    verdict = await judge_replies(workers, suite, replace(case, sample=record.sample), [(answered,)])
    if verdict is None and is_refused(answered):
        return judge_recorded(replace(case, sample=record.sample), answered)
    if verdict is None:
        raise RuntimeError(f"the suite {suite.id} wants more than one recorded answer")
    return verdict
