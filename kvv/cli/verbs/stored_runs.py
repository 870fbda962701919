"""`kvv report`, `kvv score`, `kvv show`: a stored run, offline. What renders and judges is imported once the run is
found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvv.cli.verbs.opening import open_run
from kvv.core import Area, Case, Verdict
from kvv.core.exit_codes import ExitCode
from kvv.planning.config import ConfigError, RunConfig
from kvv.rendering.escape import plain, uncommanding_json
from kvv.sandbox.adapters import AdapterError, check_played
from kvv.storage.files import replace_file
from kvv.storage.run_folder import STORE
from kvv.storage.store import Store, StoredExchange, UnknownCaseError

if TYPE_CHECKING:
    from kvv.storage.view import CheckRow, RunView

#: lines of a question or an answer that are printed
SHOWN_LINES = 60
#: a format of files, not of text
PARQUET = "parquet"


def report(arguments: argparse.Namespace) -> int:
    """Prints one format, or writes several with --to; exit code 0 whatever the verdict: the reports say it."""
    from kvv.reporting.finalize import FORMATS
    from kvv.storage.snapshot import build_view

    names = [name for name in arguments.format.split(",") if name]
    unknown = [name for name in names if name not in (*FORMATS, PARQUET)]
    if unknown or not names:
        raise ConfigError(f"--format: no format {(unknown or [''])[0]!r}; known: {', '.join((*FORMATS, PARQUET))}")
    if len(names) > 1 and not arguments.to:
        raise ConfigError("--format: several formats need --to DIR")
    if PARQUET in names and not arguments.to:
        raise ConfigError("--format: parquet is binary and of several tables: it needs --to DIR")
    with open_run(arguments.run, arguments.out) as (store, _):
        view = build_view(store)
        asked = _samples(store, view.run.run_id) if PARQUET in names else []
    if not arguments.to:
        sys.stdout.write(FORMATS[names[0]][1](view))
        return 0
    target = Path(arguments.to)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            if name == PARQUET:
                _write_parquet(target, view, asked)
                continue
            file_name, render = FORMATS[name]
            replace_file(target / file_name, render(view))
    except OSError as error:
        raise ConfigError(f"--to: cannot write to {target}: {error.strerror or error}") from error
    return 0


def _samples(store: Store, run_id: str) -> list[dict[str, Any]]:
    """Every judged sample with what its exchanges took and what was answered."""
    from kvv.rendering.escape import jsonable
    from kvv.storage.run_summary_reader import answer_text

    traffic = store.sample_traffic()
    rows = []
    for _, case, verdict in store.judged():
        took = traffic.get((case.id, verdict.sample))
        row = {
            "run_id": run_id,
            "suite": case.suite,
            "case": case.id,
            "sample": verdict.sample,
            "verdict": verdict.outcome.value,
            "reason": verdict.reason,
            "truncated": verdict.truncated,
            "total_ms": took.total_ms if took else None,
            "ttft_ms": took.first_token_ms if took else None,
            "prompt_tokens": took.prompt_tokens if took else None,
            "completion_tokens": took.completion_tokens if took else None,
            "cost": took.cost if took else None,
            "answer": answer_text(store, case.id, verdict.sample),
        }
        rows.append(jsonable(row))
    return rows


def _write_parquet(target: Path, view: RunView, asked: Sequence[Mapping[str, Any]]) -> None:
    from kvv.reporting import parquet

    for name, content in (parquet.render(view) | {"samples.parquet": parquet.samples(asked)}).items():
        replace_file(target / name, content)


def score(arguments: argparse.Namespace) -> int:
    """Judges again, says what changed, writes the reports anew; the run's exit code under the new verdicts."""
    from kvv.execution.rescore import recheck_wire, rescore
    from kvv.reporting.finalize import write_reports

    with open_run(arguments.run, arguments.out, read_only=False) as (store, folder):
        _check_agents(store)
        judged, changes = asyncio.run(rescore(store))
        wire = recheck_wire(store)
        store.put_event("rescored", {"judged": judged, "changed": len(changes), "wire": asdict(wire)})
        store.flush()
        print(f"{judged} samples judged again, {len(changes)} verdicts changed", file=sys.stderr)
        left = f"; {wire.without_frames} exchanges kept no frames, their findings stay" if wire.without_frames else ""
        print(
            f"wire rules of {wire.judged} exchanges judged again, findings of {wire.changed} changed{left}",
            file=sys.stderr,
        )
        for change in changes[:50]:
            line = (
                f"{change.case}#{change.sample}: {change.before.outcome} {change.before.reason} ->"
                f" {change.after.outcome} {change.after.reason}"
            )
            print(plain(line), file=sys.stderr)
        if len(changes) > 50:
            print(f"... and {len(changes) - 50} more", file=sys.stderr)
        _score_lane(store, folder)
        # of the folder's own options nothing is followed: the store holds what was asked and how it is judged
        config = RunConfig(json_output=bool(arguments.json_output), quiet=bool(arguments.quiet))
        return write_reports(config, store, folder)


def _check_agents(store: Store) -> None:
    """What another program has played can be played again by that program alone, in the same version."""
    from kvv.storage.run_metadata import recorded_suites

    for recorded in recorded_suites(store.meta()):
        if "sandbox" in recorded.suite.needs:
            for named in sorted({str(case.inputs.get("agent", "")) for case, _ in store.cases(recorded.suite.id)}):
                try:
                    check_played(named)
                except AdapterError as error:
                    raise ConfigError(f"RUN: {error}") from error


def _score_lane(store: Store, folder: Path) -> None:
    """The reference that was asked beside the run is judged by the same scorers, or the two would not be comparable."""
    from kvv.execution.interleaved_official import adopt, lane_folder
    from kvv.execution.rescore import rescore
    from kvv.reporting.finalize import write_files
    from kvv.storage.run_metadata import check_meta

    lane = lane_folder(folder)
    if not store.meta().get("beside") or not (lane / STORE).is_file():
        return
    with Store.open(lane / STORE) as beside:
        check_meta(beside)
        judged, changes = asyncio.run(rescore(beside))
        beside.flush()
        write_files(beside, lane)
        adopt(store, beside)
    print(f"{judged} samples of the reference endpoint judged again, {len(changes)} verdicts changed", file=sys.stderr)


# --- show ----------------------------------------------------------------------------------------


def show(arguments: argparse.Namespace) -> int:
    from kvv.cli.verbs.conversation import conversation
    from kvv.storage.snapshot import crash_rate, shown, telling_exchange
    from kvv.storage.view import CheckRow

    if arguments.rule:
        from kvv.cli.verbs.findings import show_findings

        return show_findings(arguments)
    if not arguments.case:
        return _show_causes(arguments)
    case_id, _, number = arguments.case.partition("#")
    if number and not number.isdecimal():
        raise ConfigError(f"CASE: wants ID or ID#SAMPLE, got {arguments.case!r}")
    with open_run(arguments.run, arguments.out) as (store, folder):
        meta = store.meta()
        try:
            case = store.case(case_id)
        except UnknownCaseError as error:
            raise ConfigError(f"CASE: {error}{_suggestion(store, case_id)}") from error
        stored_verdict = store.verdict(case_id, int(number or 0))
        if stored_verdict is None:
            print(plain(f"{arguments.case} has no verdict in {folder}: it was not concluded"))
            return ExitCode.INCONCLUSIVE
        verdict = crash_rate(store, meta).weighed(stored_verdict)
        stored = telling_exchange(store, verdict)
        row = shown(store, meta, CheckRow(case=case, verdict=verdict, level=case.level), stored)
        # a contract case is told by the bytes of one exchange; a benchmark's sample by what was said
        told = [] if case.area is not Area.ACCURACY else list(conversation(store, case_id, verdict.sample))
    if arguments.json_output:
        facts = _facts(case, verdict, row, stored) | ({"conversation": told} if told else {})
        print(uncommanding_json(json.dumps(facts, indent=1, default=str)))
    else:
        print("\n".join(_lines(case, verdict, row, stored, told)))
    if arguments.export:
        if stored is None:
            raise ConfigError(f"--export: nothing was asked for {arguments.case}, so that there is nothing to export")
        _export(Path(arguments.export), case, verdict, stored, meta)
    return 0


def _show_causes(arguments: argparse.Namespace) -> int:
    """`kvv show` alone: what is wrong with the newest run, or the one of --run."""
    from kvv.reporting import json as report_json
    from kvv.reporting import text
    from kvv.storage.snapshot import build_view

    if arguments.export:
        raise ConfigError("--export: is for one case; say which")
    with open_run(arguments.run, arguments.out) as (store, folder):
        view = build_view(store)
    if arguments.json_output:
        told = report_json.report(view)
        print(uncommanding_json(json.dumps({name: told[name] for name in ("run_id", "explained", "causes")}, indent=1)))
        return 0
    sys.stdout.write(text.causes(view))
    sys.stdout.write("".join(f"  {command}\n      {why}\n" for command, why in text.next_commands(view, str(folder))))
    return 0


def _suggestion(store: Store, case_id: str) -> str:
    close = [case.id for case, _ in store.cases() if case_id in case.id][:3]
    return f"; did you mean {', '.join(close)}?" if close else ""


def _facts(case: Case, verdict: Verdict, row: CheckRow, stored: StoredExchange | None) -> dict[str, Any]:
    return {
        "case": case.id,
        "sample": verdict.sample,
        "level": case.level.value,
        "area": case.area.value,
        "requirement": case.requirement,
        "source": case.source,
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "detail": verdict.detail,
        "values": dict(verdict.values),
        "facts": dict(verdict.facts),
        "expected": row.expected,
        "request": row.request,
        "answer": row.answer,
        "curl": row.curl,
        "findings": (
            []
            if stored is None
            else [
                {"rule": finding.rule, "level": finding.level.value, "message": finding.message}
                for finding in stored.findings
            ]
        ),
    }


def _lines(
    case: Case, verdict: Verdict, row: CheckRow, stored: StoredExchange | None, told: Sequence[tuple[str, str]]
) -> Iterator[str]:
    yield plain(
        f"{verdict.outcome.value.upper()} {case.id}#{verdict.sample} ({case.level}, {case.area}) {verdict.reason}"
    )
    yield plain(f"  requirement: {case.requirement}")
    yield plain(f"  source: {case.source}")
    if verdict.detail:
        yield plain(f"  found: {verdict.detail}")
    if row.expected:
        yield plain(f"  expected: {row.expected}")
    for name, value in verdict.facts.items():
        yield plain(f"  {name}: {value}", 300)
    if stored is None:
        return
    for title, text in told or (("request", row.request), ("answer", row.answer)):
        yield plain(f"  {title}:")
        yield from (f"    {plain(line, 2000)}" for line in text.splitlines()[:SHOWN_LINES])
    for finding in stored.findings:
        yield plain(f"  finding ({finding.level}) {finding.rule}: {finding.message}")
    yield f"  {plain(row.curl, 8000)}"


def _needs(names: Sequence[str]) -> str:
    return f" (set {', '.join(names)} first)" if names else ""


def _export(target: Path, case: Case, verdict: Verdict, stored: StoredExchange, meta: dict[str, Any]) -> None:
    """A small folder readable alone: the body as sent, the answer as it came, how to repeat it, a text for an issue."""
    from kvv.cli.verbs.conversation import pictures
    from kvv.storage.curl import curl_line, variables
    from kvv.storage.snapshot import expected_text, raw_answer

    issue = [
        f"# {case.id}: {verdict.reason or verdict.outcome}",
        "",
        f"- requirement ({case.level}): {case.requirement}",
        f"- source: {case.source}",
        f"- model: {meta['model']}, profile {meta['profile']} ({meta['surface']}), kvv {meta['kvv_version']}",
        f"- asked at: {stored.exchange.started}, HTTP status: {stored.exchange.status}",
        *(f"- {name}: {value}" for name, value in stored.exchange.headers if "id" in name),
        f"- found: {verdict.detail}",
        f"- expected: {expected_text(case)}",
        *(
            f"- finding: {finding.rule}: {finding.message} (known causes: {', '.join(finding.causes) or 'none'})"
            for finding in stored.findings
        ),
        "",
        f"Repeat it with `sh curl.sh`{_needs(variables(meta))}; `response.txt` is what came back.",
    ]
    try:
        target.mkdir(parents=True, exist_ok=True)
        replace_file(target / "body.json", stored.body)
        for name, data in pictures(stored):
            replace_file(target / name, data)
        replace_file(target / "response.txt", raw_answer(stored), "surrogatepass")
        replace_file(target / "curl.sh", curl_line(meta, stored) + "\n", "replace")
        replace_file(target / "issue.md", "\n".join(plain(line, 2000) for line in issue) + "\n")
    except OSError as error:
        raise ConfigError(f"--export: cannot write to {target}: {error.strerror or error}") from error
