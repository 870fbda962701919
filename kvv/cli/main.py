"""The command line: verbs and their options; what a verb does is in kvv/cli/verbs."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from kvv import __version__
from kvv.cli.options import (
    Parser,
    add_again_options,
    add_bound_options,
    add_output_options,
    add_run_options,
    add_shared_option,
    add_trust_option,
    add_vendors_options,
)
from kvv.cli.options_compared import add_compared_verbs
from kvv.cli.options_measured import add_measured_verbs
from kvv.cli.stdio import outlets
from kvv.core.exit_codes import ExitCode
from kvv.core.plugins import IMPORTERS, PROFILES, SUITES, find_entry_points
from kvv.core.usage_error import ConfigError
from kvv.rendering.escape import uncommanding

REPORT_FORMATS = ("json", "junit", "md", "html", "github", "csv", "parquet", "leaderboard", "kvv", "text")

Verb = Callable[[argparse.Namespace], int]


def build_parser() -> Parser:
    parser = Parser(
        prog="kvv", description="Tells whether an endpoint that serves an open-weight model serves it correctly."
    )
    parser.add_argument("--version", action="version", version=f"kvv {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)

    run = verbs.add_parser("run", help="the whole job; without --base-url against our own reference endpoint")
    add_run_options(run)
    check = verbs.add_parser("check", help="contract suites only: minutes, exact, no data sets")
    add_run_options(check)
    for one in (run, check):
        one.add_argument(
            "--last-failed",
            nargs="?",
            const="last",
            metavar="RUN",
            help="(experimental) ask only what failed in that run (default: the newest), with its own settings",
        )
    plan = verbs.add_parser("plan", help="what a run would ask and cost; sends nothing")
    add_run_options(plan)

    calibrate = verbs.add_parser("calibrate", help="measure an official endpoint and write what it does as a profile")
    add_run_options(calibrate)
    calibrate.add_argument("--to", metavar="FILE", help="the profile file (default: MODEL-measured.toml)")
    calibrate.add_argument(
        "--merge",
        metavar="FILE",
        help="add to this measurement: what repeats on another day, 20 hours later at least, becomes a rule",
    )

    vendors = verbs.add_parser(
        "vendors", help="several endpoints, providers or layers side by side, at the same time and under one budget"
    )
    add_vendors_options(vendors)

    resume = verbs.add_parser("resume", help="continue a run")
    _add_run(resume)
    add_bound_options(resume, "replaces the run's own bound")
    add_again_options(resume)
    resume.add_argument("--reference-base-url", metavar="URL", help="the same official endpoint at another address")
    resume.add_argument("--reference-api-key-env", metavar="NAME", help="name of the variable that holds its key")
    resume.add_argument("--as-reference", metavar="FILE", help="write the run's per-case results there")
    resume.add_argument("--policy", metavar="NAME|FILE", help="what is required, the same")
    resume.add_argument("--reference", action="append", metavar="FILE", help="the same results of an official run")
    add_output_options(resume)
    score = verbs.add_parser("score", help="judge a stored run again, offline, and show what changed")
    _add_run(score)
    add_output_options(score)

    report = verbs.add_parser("report", help="views of a stored run")
    _add_run(report)
    report.add_argument(
        "--format", default="text", metavar="F[,F...]", help=f"{', '.join(REPORT_FORMATS)} (default: text)"
    )
    report.add_argument("--to", metavar="DIR", help="write files there instead of printing")
    add_output_options(report)
    show = verbs.add_parser(
        "show", help="one case: requirement, request, answer, expected value; or what a wire rule objected to"
    )
    show.add_argument(
        "case",
        nargs="?",
        metavar="CASE",
        help="a case id, with #SAMPLE for a repeat; with --rule, the run; without it, what is wrong with the run",
    )
    show.add_argument(
        "--rule",
        metavar="RULE",
        help="instead of a case: every finding of this wire rule (or pattern), with its frames' bytes",
    )
    show.add_argument("--run", default="last", metavar="RUN", help="the run's folder or name (default: the newest)")
    show.add_argument(
        "--export", metavar="DIR", help="write body.json, the raw response, a curl line and an issue text there"
    )
    add_output_options(show)

    view = verbs.add_parser("view", help="(experimental) runs in a browser: causes, cases, comparison, board")
    view.add_argument("folder", nargs="?", metavar="DIR", help="a folder of runs, a run, or `last` (default: --out)")
    view.add_argument("--port", type=int, default=0, metavar="N", help="default: any free one; 127.0.0.1 alone")
    view.add_argument("--export", metavar="OUT", help="write a static site there; its index is the board")
    view.add_argument("--out", metavar="DIR", help="where run folders lie (default: reports/)")
    view.add_argument("--public", action="store_true", help="--export: no addresses, no requests, no answers")
    listing = verbs.add_parser("list", help="runs, cases, suites, rules, faults, profiles, policies")
    listing.add_argument(
        "what",
        nargs="?",
        default="suites",
        choices=("suites", "cases", "rules", "faults", "profiles", "policies", "runs"),
    )
    listing.add_argument("--out", metavar="DIR", help="for runs: where their folders lie (default: reports/)")
    listing.add_argument("--profile", default="kimi-k3", help="for cases: the profile they are made for")
    listing.add_argument("--surface", default="vendor")
    listing.add_argument("--json", dest="json_output", action="store_true")
    doctor = verbs.add_parser("doctor", help="check this machine and configuration")
    add_run_options(doctor)

    data = verbs.add_parser("data", help="data sets: pull, verify, where")
    data.add_argument("action", choices=("pull", "verify", "where"))
    data.add_argument("suite", nargs="?", metavar="SUITE")
    data.add_argument("--path", metavar="PATH", help="verify: the copy to check (default: the cached one)")
    data.add_argument(
        "--data",
        metavar="FILE",
        help="verify: try each row of your own for swebench: its tests fail, and pass with its patch",
    )
    data.add_argument("--sandbox", metavar="NAME", help="verify --data: bwrap, docker or none")
    data.add_argument("--into", metavar="DIR", help="pull: write the offline copy there")
    data.add_argument(
        "--from", dest="mirror", metavar="URL|DIR", help="pull: a mirror of the hub; beam: a folder in any of its forms"
    )
    data.add_argument("--variant", metavar="V", help="a variant of the data set, such as a size of beam")
    data.add_argument("--revision", metavar="REV", help="pull: another revision than the pinned one")

    serve = verbs.add_parser("serve", help="the reference endpoint")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--model", default="kimi-k3")
    serve.add_argument("--variant", default="kimi-k3", choices=("kimi-k3", "openai", "vllm"))
    serve.add_argument("--accuracy", type=float, default=1.0, help="share of right answers to keyed prompts")
    serve.add_argument("--seed", type=int, default=0)
    serve.add_argument("--ttft-ms", type=float, default=0.0)
    serve.add_argument("--itl-ms", type=float, default=0.0)
    serve.add_argument("--stamp", action="store_true", help="keep the times of each answer for GET /kvv/times")
    serve.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="ID",
        help="switch on a fault of the catalogue (see `kvv list faults`)",
    )
    serve.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="SUITE=PATH",
        help="answer key from this data instead of the shipped fixtures",
    )
    serve.add_argument("--api-key-env", metavar="NAME", help="ask for the key in this environment variable")

    selftest = verbs.add_parser(
        "selftest", help="our own conformance test: every fault of the catalogue seen, nothing else"
    )
    selftest.add_argument(
        "--fault",
        nargs="+",
        action="extend",
        default=[],
        metavar="ID",
        help="these alone, with variations as in B19:stream+1in4",
    )
    selftest.add_argument("-q", "--quiet", action="store_true", help="no progress")

    add_compared_verbs(verbs)
    add_measured_verbs(verbs)

    exported = verbs.add_parser("export", help="a stored benchmark as another program's file")
    exported.add_argument("form", metavar="FORM", choices=("inspect",), help="inspect: a log for `inspect view`")
    _add_run(exported)
    exported.add_argument("--suite", metavar="SUITE", help="which benchmark, of a run that has several")
    exported.add_argument("--to", metavar="FILE", help="where (default: SUITE.eval in the run's folder)")
    exported.add_argument("--out", metavar="DIR", help="where run folders lie (default: reports/)")

    imported = verbs.add_parser(
        "import", help="recorded results of another tool become a run, re-scored under our rules"
    )
    imported.add_argument(
        "tool",
        metavar="TOOL",
        help="k2vv, mmmu-pro, beam, inspect, evalscope, lm-eval, or another package's importer; without it the file's"
        " content tells",
    )
    imported.add_argument("file", nargs="?", metavar="FILE")
    imported.add_argument("scores", nargs="?", metavar="SCORES", help="beam: the recorded judge's scores, JSONL")
    imported.add_argument("--requests", metavar="FILE", help="k2vv: the requests that were asked, JSONL")
    imported.add_argument("--model", help="the model's name, where the results do not say it")
    imported.add_argument("--profile")
    imported.add_argument("--surface")
    imported.add_argument("--policy")
    imported.add_argument("--reference", action="append", metavar="FILE")
    imported.add_argument("--as-reference", metavar="FILE")
    imported.add_argument("--seed", type=int)
    add_trust_option(imported)
    add_output_options(imported)
    add_shared_option(imported)
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's folder, its name under --out, or `last`")


def _verb(name: str) -> Verb:
    """Each verb's module is imported only when it is used: `kvv --help` must be quick."""
    match name:
        case "run" | "check" | "resume":
            from kvv.cli.verbs import run

            chosen: Verb = {"run": run.run, "check": run.check, "resume": run.resume}[name]
        case "calibrate":
            from kvv.cli.verbs import calibrate

            chosen = calibrate.calibrate
        case "plan":
            from kvv.cli.verbs import plan

            chosen = plan.plan
        case "doctor":
            from kvv.cli.verbs import doctor

            chosen = doctor.doctor
        case "report" | "score" | "show":
            from kvv.cli.verbs import stored_runs as stored

            chosen = {"report": stored.report, "score": stored.score, "show": stored.show}[name]
        case "view":
            from kvv.cli.verbs import view

            chosen = view.view
        case "selftest":
            from kvv.cli.verbs import selftest

            chosen = selftest.selftest
        case "compare":
            from kvv.cli.verbs import compare

            chosen = compare.compare
        case "vendors":
            from kvv.cli.verbs import vendors

            chosen = vendors.vendors
        case "gate":
            from kvv.cli.verbs import gate

            chosen = gate.gate
        case "baseline":
            from kvv.cli.verbs import baseline

            chosen = baseline.baseline
        case "nightly":
            from kvv.cli.verbs import nightly

            chosen = nightly.nightly
        case "prune":
            from kvv.cli.verbs import prune

            chosen = prune.prune
        case "load":
            from kvv.cli.verbs import load

            chosen = load.load
        case "identity":
            from kvv.cli.verbs import identity

            chosen = identity.identity
        case "leaderboard":
            from kvv.cli.verbs import leaderboard

            chosen = leaderboard.leaderboard
        case "history":
            from kvv.cli.verbs import history

            chosen = history.history
        case "merge":
            from kvv.cli.verbs import merge

            chosen = merge.merge
        case "export":
            from kvv.cli.verbs import export

            chosen = export.export
        case "import":
            from kvv.cli.verbs import imports

            chosen = imports.import_results
        case _:
            from kvv.cli.verbs import catalogue

            chosen = {"list": catalogue.list_things, "data": catalogue.data, "serve": catalogue.serve}[name]
    return chosen


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 pass, 1 a gate failed, 2 usage, 3 inconclusive, 4 harness error, 5 budget, 130 interrupted."""
    with outlets(), _termination_interrupts():
        try:
            _warn_of_plugins()
            return _main(argv)
        except KeyboardInterrupt as interruption:
            print(f"kvv: {str(interruption) or 'interrupted'}", file=sys.stderr)
            return ExitCode.INTERRUPTED


def _main(argv: Sequence[str] | None) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        return _verb(arguments.verb)(arguments)
    except ConfigError as error:
        print(uncommanding(f"kvv {arguments.verb}: {error}"), file=sys.stderr)
        return ExitCode.USAGE
    except Exception as error:  # noqa: BLE001 - the last guard: a bug of ours is one line and exit code 4, never a verdict
        from kvv.storage.store import WriteError

        if isinstance(error, WriteError):
            print(_without_secrets(f"kvv {arguments.verb}: {error}", arguments), file=sys.stderr)
            return ExitCode.ERROR
        text = (
            "".join(traceback.format_exception(error))
            if getattr(arguments, "verbose", None)
            else f"{type(error).__name__}: {error}"
        )
        print(
            uncommanding(_without_secrets(f"kvv {arguments.verb}: internal error: {text}", arguments)), file=sys.stderr
        )
        return ExitCode.ERROR


def _warn_of_plugins() -> None:
    """One line for each plug-in that no command can use. Imports no more than the groups that are registered need."""
    broken: list[str] = []
    if any(find_entry_points(SUITES)):
        from kvv.cases.suite import load_plugins

        broken += load_plugins()[1]
    if any(find_entry_points(PROFILES)):
        from kvv.profiles.profile import plugged_profiles

        broken += plugged_profiles()[1]
    if any(find_entry_points(IMPORTERS)):
        from kvv.storage.importers import plugged_importers

        broken += plugged_importers()[1]
    for line in broken:
        from kvv.rendering.escape import plain

        print(plain(f"warning: skipped {' '.join(line.split())[:300]}"), file=sys.stderr)


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """SIGTERM is taken like Ctrl-C, from the first moment on; a run puts its own handlers, which drain, in this one's
    place.
    """
    if threading.current_thread() is not threading.main_thread():  # only there can handlers be set
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _without_secrets(text: str, arguments: argparse.Namespace) -> str:
    """Our own error text, without the keys that this command line names and those in its addresses."""
    from kvv.planning.config import ENVIRONMENT
    from kvv.protocol.redaction.redactor import Redactor
    from kvv.transport.endpoint import in_address

    named = [
        getattr(arguments, option, None) for option in ("api_key_env", "judge_api_key_env", "reference_api_key_env")
    ]
    headers = [pair.partition("=")[2] for pair in getattr(arguments, "header_env", None) or []]
    names = [*(name for name in named if name), *headers, *getattr(arguments, "key_names", ())]
    names += ["KVV_API_KEY", "KVV_JUDGE_API_KEY", "KVV_REFERENCE_API_KEY"]
    urls = [getattr(arguments, option, None) for option in ("base_url", "judge_base_url", "reference_base_url")]
    inside = [secret for url in (*urls, os.environ.get(ENVIRONMENT["base_url"])) for secret in in_address(url or "")]
    return Redactor([*(os.environ.get(name) for name in names), *inside]).message(text)
