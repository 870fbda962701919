"""Several endpoints as lanes of one process: an ordinary run folder each, and one comparison beside them."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from kvv.analysis import compare, with_answers
from kvv.analysis.compare import Comparison
from kvv.analysis.efforts import EffortRow, traffic_means
from kvv.analysis.efforts import as_data as effort_data
from kvv.analysis.efforts import section as effort_section
from kvv.analysis.layers import VerdictLine, as_data, section, verdict_lines
from kvv.analysis.report import as_json, document
from kvv.cases.suite import SuiteKind
from kvv.cli.verbs.documents import put, write
from kvv.cli.verbs.plan import announce_doubles, plan_tables
from kvv.cli.verbs.session import announce, begin, continuation, progress_for, run_endpoints
from kvv.core import Outcome
from kvv.core.lazy import numpy as np
from kvv.data import load as load_data
from kvv.decision.decide import UNREFERENCED
from kvv.execution.endpoints import EndpointRun
from kvv.execution.executor import check_connections, check_endpoints
from kvv.execution.preparation import Loader, guard, prepare
from kvv.planning.config import ConfigError, RunConfig
from kvv.planning.plan import cost_of
from kvv.planning.run_plan import RunPlan
from kvv.planning.vendors_file import Vendor
from kvv.rendering.document import Document, html, markdown
from kvv.rendering.escape import jsonable, plain
from kvv.reporting.finalize import record_ending, write_files
from kvv.sandbox import WARNING
from kvv.storage.run_folder import create_folder, slug, write_config
from kvv.storage.run_summary_reader import ANSWER_TEXT, answer_text, side_of
from kvv.storage.snapshot import expected_text
from kvv.storage.store import Store, WriteError
from kvv.storage.view import RunView

#: exit codes, the first that applies to any side
PRECEDENCE = (2, 130, 1, 4, 5, 3, 0)
#: the comparison's files
NAME = "comparison"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    name: str
    job: RunPlan
    store: Store
    folder: Path


def start(file: Path | str, vendors: Sequence[Vendor], config: RunConfig, *, efforts: Sequence[str] = ()) -> int:
    """``file`` is where the sides are from, for messages; ``efforts``: what they differ in, where it is that."""
    read = cache(load_data)
    jobs = {vendor.name: _job(file, vendor, read) for vendor in vendors}
    if not config.quiet:
        for name, job in jobs.items():
            print(
                plain(f"{name}: profile {job.profile.id}, surface {job.profile.surface}: {job.profile_reason}"),
                file=sys.stderr,
            )
        if any(job.prices is not None for job in jobs.values()):
            print(plan_tables(jobs), file=sys.stderr)
    check_connections(*jobs.values())
    announce_doubles(*jobs.values())
    guard(*jobs.values(), prices="--price-in and --price-out" if efforts else f"prices in {file}")
    if any(job.sandbox == "none" for job in jobs.values()):
        print(WARNING, file=sys.stderr)
    sides: list[_Side] = []
    with ExitStack() as undo:
        for name, job in jobs.items():
            folder = create_folder(config.out, slug(name), job.model, shared=config.shared)
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            sides.append(_Side(name=name, job=job, folder=folder, store=begin(job, folder, undo=undo, vendor=name)))
        for side in sides:
            write_config(side.folder, side.job.config)
        undo.pop_all()
    return _drive(sides, config, efforts)


def _job(file: Path | str, vendor: Vendor, load: Loader) -> RunPlan:
    try:
        job = prepare(vendor.config, load=load)
        if not job.plan.suites:
            raise ConfigError(
                "nothing to run: " + "; ".join(f"{item.suite}: {item.reason}" for item in job.plan.skipped)
            )
        check_endpoints(job)
    except ConfigError as error:
        raise ConfigError(f"{file}: vendor {vendor.name}: {error}") from error
    return job


def _drive(sides: Sequence[_Side], config: RunConfig, efforts: Sequence[str] = ()) -> int:
    lanes = [
        EndpointRun(name=side.name, job=side.job, store=side.store, base_url=side.job.config.base_url or "")
        for side in sides
    ]
    try:
        with ExitStack() as stack:
            for side in sides:
                stack.enter_context(side.store)
            endings = run_endpoints(lanes, progress_for(config))
            for side, ending in zip(sides, endings, strict=True):
                record_ending(side.store, ending)
            views = [write_files(side.store, side.folder) for side in sides]
            found = _compared(sides, views, config, _effort_rows(sides, views, efforts))
    except WriteError as error:
        raise WriteError(
            f"{error}; what was answered before is kept; free some space, then continue with: {_continued(sides)}"
        ) from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; continue with: {_continued(sides)}") from None
    for side, ending in zip(sides, endings, strict=True):
        if ending.stop:
            announce(
                f"{side.name} stopped ({ending.stop.reason}: {ending.stop.sentence}); continue with:"
                f" {continuation(side.folder, side.job)}"
            )
    if any(ending.stop for ending in endings):
        announce(
            f"compare them again with: kvv compare {' '.join(shlex.quote(str(side.folder)) for side in sides)}"
            " --allow-different all"
        )
    return exit_code(views, found)


def _continued(sides: Sequence[_Side]) -> str:
    return "; ".join(continuation(side.folder, side.job) for side in sides)


def exit_code(views: Sequence[RunView], found: Comparison) -> int:
    """The first that applies to any side of 2 (its key or route was refused), 130, 1 (it fails its policy), 4, 5,
    3, 0.
    """
    codes = {0 if _by_comparison(number, view, found) else view.run.exit_code for number, view in enumerate(views)}
    return next(code for code in PRECEDENCE if code in codes)


def _by_comparison(number: int, view: RunView, found: Comparison) -> bool:
    """A side that ran to its end and left nothing open but quality without a reference: the other sides are what it is
    held to.
    """
    decision = view.decision
    settled = (
        decision.outcome is Outcome.INCONCLUSIVE
        and not view.trouble
        and all(why.startswith(UNREFERENCED) for why in decision.why)
    )
    pairs = (pair for suite in found.quality for pair in suite.pairs)
    return settled and any(number in (pair.first, pair.second) and pair.difference is not None for pair in pairs)


def _effort_rows(sides: Sequence[_Side], views: Sequence[RunView], efforts: Sequence[str]) -> list[EffortRow]:
    rows = []
    for effort, side, view in zip(efforts, sides, views, strict=False):
        traffic = side.store.sample_traffic()
        for stat in view.decision.stats:
            item = next((item for item in side.job.plan.suites if item.suite.id == stat.suite), None)
            if stat.primary and item is not None and item.suite.kind is SuiteKind.BENCHMARK:
                cases = {case.id for case in item.cases}
                means = traffic_means([found for (case, _), found in traffic.items() if case in cases])
                rows.append(
                    EffortRow(
                        effort=effort,
                        suite=stat.suite,
                        metric=stat.metric,
                        score=stat.estimate,
                        interval=stat.interval,
                        n=stat.n_concluded,
                        n_planned=stat.n_planned,
                        truncated=stat.n_truncated,
                        **means,
                    )
                )
    return rows


def _compared(
    sides: Sequence[_Side], views: Sequence[RunView], config: RunConfig, efforts: Sequence[EffortRow]
) -> Comparison:
    """Writes the comparison in a folder of its own and prints it. What the file says differently of the sides is
    allowed, and said.
    """
    stores, names = [side.store for side in sides], [side.name for side in sides]
    found = compare(
        [side_of(store, view) for store, view in zip(stores, views, strict=True)],
        np.random.default_rng(0),
        allowed={"all"},
    )
    found = with_answers(
        found,
        lambda run, case, sample: answer_text(stores[run], case, sample),
        lambda run, case: expected_text(stores[run].case(case))[:ANSWER_TEXT],
    )
    lines = verdict_lines(found.sides)
    shown, data = _document(found, lines, names, _prices([side.job for side in sides])), _json(found, lines, names)
    if efforts:
        shown = replace(shown, sections=(effort_section(efforts), *shown.sections))
        data = (
            json.dumps(jsonable(json.loads(data) | {"efforts": effort_data(efforts)}), allow_nan=False, indent=1) + "\n"
        )
    folder = create_folder(config.out, "efforts" if efforts else "vendors", sides[0].job.model, shared=config.shared)
    for ending, text in (("md", markdown(shown)), ("html", html(shown)), ("json", data)):
        write(folder / f"{NAME}.{ending}", text, "--out")
    if config.json_output:
        sys.stdout.write(data)
    else:
        lines_only = replace(shown, sections=()) if config.quiet else shown
        put(argparse.Namespace(format="text", to=None), lines_only, lambda: data)
    told = sys.stderr if config.json_output else sys.stdout
    for side, view in zip(sides, views, strict=True):
        print(plain(f"{side.name}: {view.decision.headline}; {side.folder}", 1_000), file=told)
    print(plain(str(folder / f"{NAME}.html"), 1_000), file=told)
    return found


def _prices(jobs: Sequence[RunPlan]) -> dict[str, float]:
    """Dollars of one more answer at every side, by suite; without those of which a side's price is not known."""
    every: dict[str, list[float]] = {}
    for job in jobs:
        for item in job.plan.suites:
            if job.plan.prices is not None and item.n:
                cost = cost_of(job.plan.prices, item.prompt_tokens, item.completion_tokens, item.cached_tokens)
                every.setdefault(item.suite.id, []).append(cost / item.n)
    return {suite: sum(costs) for suite, costs in every.items() if len(costs) == len(jobs)}


def _document(
    found: Comparison, lines: Sequence[VerdictLine], names: Sequence[str], prices: Mapping[str, float]
) -> Document:
    """The comparison of any runs, with the contract's lines after its table of areas, or at the end where there is
    none.
    """
    shown = document(found, names, prices)
    contract = any(suite.kind.value != "benchmark" for side in found.sides for suite in side.suites.values())
    if not contract and not lines:
        return shown
    at = next(
        (number for number, part in enumerate(shown.sections) if part.title == "Contract"), len(shown.sections) - 1
    )
    sections = (*shown.sections[: at + 1], section(lines, names), *shown.sections[at + 1 :])
    return replace(shown, sections=sections)


def _json(found: Comparison, lines: Sequence[VerdictLine], names: Sequence[str]) -> str:
    data = json.loads(as_json(found)) | {"sides": list(names), "verdict_lines": as_data(lines, names)}
    return json.dumps(jsonable(data), ensure_ascii=True, allow_nan=False, indent=1) + "\n"
