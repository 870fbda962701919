"""The end of a run: gates, reports, the terminal's verdict, the exit code."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kvv.cases.suite import Result, SuiteKind
from kvv.core.exit_codes import ExitCode
from kvv.decision.inputs import OfficialRates, Workload
from kvv.decision.rule_rates import MODEL
from kvv.execution.executor import RunEnding
from kvv.planning.config import ConfigError, RunConfig
from kvv.planning.interim_plan import stopped_suites
from kvv.planning.run_plan import RunPlan
from kvv.reporting import csv, github, html, junit, leaderboard, markdown, text
from kvv.reporting import json as report_json
from kvv.reporting import moonshot as report_kvv
from kvv.reporting.moonshot_map import load_map
from kvv.storage.files import replace_file
from kvv.storage.references import ASKED, Header, ReferenceError, Written, check_writable, programs, write_reference
from kvv.storage.run_metadata import now, recorded_suites
from kvv.storage.snapshot import PlannedVerdicts, build_view
from kvv.storage.store import Store, WriteError
from kvv.storage.view import RunView

#: is given a run that has ended, with its folder
Tell = Callable[[RunConfig, RunView, Path], None]
#: the disk is full, over quota, or failed: nothing the user wrote on the command line
DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

#: file name -> renderer: what every run folder holds
FILES = {
    "report.json": report_json.render,
    "junit.xml": junit.render,
    "report.md": markdown.render,
    "report.html": html.render,
    "leaderboard.json": leaderboard.render,
}
#: format name -> (file name, renderer): what `kvv report --format` knows
FORMATS = {
    "json": ("report.json", report_json.render),
    "junit": ("junit.xml", junit.render),
    "md": ("report.md", markdown.render),
    "html": ("report.html", html.render),
    "github": ("github.md", github.render),
    "csv": ("report.csv", csv.render),
    "leaderboard": ("leaderboard.json", leaderboard.render),
    "kvv": ("kvv.txt", lambda view: report_kvv.render(view, load_map())),
    "text": ("report.txt", text.render),
}


def finalize(job: RunPlan, store: Store, folder: Path, ending: RunEnding, tell: Tell | None = None) -> int:
    """Store the end, write the reports, print the verdict (or give it to ``tell`` instead); the run's exit code."""
    record_ending(store, ending)
    return write_reports(job.config, store, folder, tell)


def record_ending(store: Store, ending: RunEnding) -> None:
    store.set_meta("finished", now())
    store.set_meta("stop", {"reason": ending.stop.reason, "sentence": ending.stop.sentence} if ending.stop else None)
    store.set_meta("blocked", ending.blocked)
    store.set_meta("configuration", ending.configuration)
    store.flush()


def write_reports(config: RunConfig, store: Store, folder: Path, tell: Tell | None = None) -> int:
    view = write_files(store, folder)
    (tell or say)(config, view, folder)
    return _referenced(Path(config.as_reference), store, view, folder) if config.as_reference else view.run.exit_code


def write_files(store: Store, folder: Path) -> RunView:
    """What every run's folder holds, made from the store alone; prints nothing."""
    view = build_view(store)
    try:
        for name, render in FILES.items():
            replace_file(folder / name, render(view))
        write_suite_files(store, folder)
    except OSError as error:
        wrong = f"the reports cannot be written to {folder}: {error.strerror or error}"
        raise (WriteError(wrong) if error.errno in DISK_ERRORS else ConfigError(f"--out: {wrong}")) from error
    return view


def write_suite_files(store: Store, folder: Path) -> None:
    """What suites have beside the reports, such as predictions that another grader can read."""
    meta = store.meta()
    stopped = stopped_suites(meta)
    for recorded in recorded_suites(meta):
        pairs = PlannedVerdicts(
            store, recorded.suite.id, blocked=False, why="", asked_only=recorded.suite.id in stopped
        )
        results = (
            Result(case=case, verdict=verdict, replies=partial(store.replies, case.id, case.sample))
            for case, verdict in pairs
        )
        for name, content in recorded.suite.files(results, recorded.context):
            path = folder / name
            if not path.parent.resolve().is_relative_to(folder.resolve()):
                raise ConfigError(
                    f"RUN: {recorded.suite.id} has a file that would be written outside of the run's folder:"
                    f" {name!r:.100}"
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, content, "replace")


def say(config: RunConfig, view: RunView, folder: Path) -> None:
    """The verdict on standard output, or report.json there under --json."""
    if config.json_output:
        sys.stdout.write(report_json.render(view))
        sys.stdout.flush()
        return
    if os.environ.get("GITHUB_ACTIONS") == "true":
        tell_github(github.workflow_commands(view), github.render(view))
    sys.stdout.write(text.brief(view) if config.quiet else text.render(view))
    sys.stdout.write(f"{'' if config.quiet else chr(10)}{text.plain(str(folder))}\n")
    if not config.quiet:
        commands = text.next_commands(view, str(folder))
        sys.stdout.write("".join(f"  {command}\n      {why}\n" for command, why in commands))
    sys.stdout.flush()


def tell_github(commands: str, summary: str) -> None:
    """Annotations beside the job's log, and a text for the step's summary."""
    sys.stdout.write(commands)
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        try:
            with Path(path).open("a", encoding="utf-8", newline="\n") as out:
                out.write(summary)
        except OSError as error:
            print(f"the step summary cannot be written: {error.strerror or error}", file=sys.stderr)


def _asked(entry: Mapping[str, Any], store: Store) -> dict[str, Any]:
    """How a suite was asked: its settings, and which programs stood between the model and its score."""
    return {name: entry["settings"].get(name) for name in ASKED} | programs(
        case for case, _ in store.cases(entry["id"])
    )


def check_reference(config: RunConfig) -> None:
    """ConfigError, before anything is asked, where --as-reference names what cannot be written."""
    if config.as_reference:
        try:
            check_writable(Path(config.as_reference))
        except OSError as error:
            raise ConfigError(
                f"--as-reference: cannot write {config.as_reference}: {error.strerror or error}"
            ) from error


def _referenced(path: Path, store: Store, view: RunView, folder: Path) -> int:
    """Writes the reference and says so, last of all; the run's exit code, or 2 where no reference came of a run that
    passed.
    """
    code = view.run.exit_code
    try:
        written = write_as_reference(path, store, view)
    except ReferenceError as error:
        _tell(f"--as-reference: {error}")
        return code or ExitCode.USAGE
    except OSError as error:
        wrong = f"--as-reference: cannot write {path}: {error.strerror or error}"
        if error.errno in DISK_ERRORS:
            raise WriteError(wrong) from error
        _tell(f"{wrong}; the run is kept: `kvv resume {shlex.quote(str(folder))}` writes it again")
        return ExitCode.USAGE
    held = ", ".join(
        f"{suite.suite} ({suite.usable} of {suite.samples} samples, {suite.cases} cases)" for suite in written
    )
    about = (
        f"; exit code {code} is this run's own verdict ({view.decision.outcome.value}), which a reference does not need"
        if code
        else ""
    )
    _tell(f"wrote the reference {path}: {held}{about}")
    return code


def _tell(line: str) -> None:
    """On standard error, even under -q: what follows depends on it."""
    print(text.plain(f"kvv: {line}", 1_000), file=sys.stderr, flush=True)


def write_as_reference(path: Path, store: Store, view: RunView) -> list[Written]:
    """Per-case results of the run's benchmarks, for `--reference`. Raises ReferenceError and OSError."""
    meta = store.meta()
    stopped = stopped_suites(meta)
    pairs = (
        pair
        for recorded in recorded_suites(meta)
        if recorded.suite.kind is SuiteKind.BENCHMARK
        for pair in PlannedVerdicts(
            store, recorded.suite.id, blocked=False, why="", asked_only=recorded.suite.id in stopped
        )
    )
    digests = {entry["id"]: entry["dataset"]["sha256"] for entry in meta["suites"] if entry["dataset"]}
    header = Header(
        model=meta["model"],
        run_id=view.run.run_id,
        created=view.run.finished,
        source=meta["base_url"],
        source_sha256=meta.get("source_sha256", ""),
        results_sha256=store.results_digest(),
        data_sha256=digests,
        rules=_model_rules(store, view),
        asked={} if meta.get("imported") else {entry["id"]: _asked(entry, store) for entry in meta["suites"]},
    )
    return write_reference(path, header, pairs)


def _model_rules(store: Store, view: RunView) -> OfficialRates:
    """What the model itself did in its benchmark answers."""
    objected = {
        one.finding.rule: sum(rate.objected for rate in one.rates if rate.workload is not Workload.CONTRACT)
        for one in view.decision.weighed
        if one.finding.rule.startswith(MODEL)
    }
    counts = store.answer_counts()
    return OfficialRates(
        answers=sum(counts.get(suite, 0) for suite in view.benchmarks),
        objected={rule: count for rule, count in objected.items() if count},
    )
