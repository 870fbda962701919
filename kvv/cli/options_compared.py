"""Options of the verbs that read finished runs. Names and help and nothing else, as in options.py."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvv.cli.options import (
    Parser,
    add_again_options,
    add_bound_options,
    add_output_options,
    add_run_options,
    add_shared_option,
)

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[Parser]

WAIVERS = "[[waiver]] tables: case, reason, owner, issue, expires"
FORMATS = ("text", "md", "json", "html", "csv")


def add_compared_verbs(verbs: Verbs) -> None:
    compare = verbs.add_parser("compare", help="two or more finished runs side by side, case by case")
    compare.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or their names under --out")
    _add_allow_different(compare)
    _add_formats(compare)

    gate = verbs.add_parser("gate", help="did it get worse than the accepted baseline? for CI")
    gate.add_argument("run", metavar="RUN", help="the run's folder, its name under --out, or `last`")
    gate.add_argument(
        "--baseline",
        action="append",
        metavar="RUN|FILE",
        help="a run or an accepted baseline file (repeatable; the newest counts)",
    )
    gate.add_argument("--confirm", metavar="RUN", help="a second, fresh run: an alarm counts only where it repeats it")
    gate.add_argument(
        "--confirm-now",
        action="store_true",
        help="where it alarms, measure what alarmed once more, with the run's own settings",
    )
    add_bound_options(gate, "--confirm-now: replaces the run's own bound")
    gate.add_argument(
        "--yes", action="store_true", default=None, help="--confirm-now: start although it may be expensive"
    )
    add_again_options(gate, "--confirm-now: ")
    gate.add_argument("--policy", metavar="NAME|FILE", help="default: nightly")
    gate.add_argument("--waivers", metavar="FILE", help=WAIVERS)
    _add_night(gate)
    _add_allow_different(gate)
    _add_formats(gate)
    _add_baseline(verbs)
    _add_nightly(verbs)
    _add_prune(verbs)
    board = verbs.add_parser("leaderboard", help="many runs as one table, with intervals and tie groups")
    board.add_argument("folders", nargs="+", metavar="DIR", help="run folders, submissions, or folders that hold some")
    board.add_argument("--all", action="store_true", help="every run, not only the newest of each endpoint")
    board.add_argument("--submission", metavar="DIR", help="write what a vendor would send in, of the one run named")
    _add_formats(board)
    history = verbs.add_parser("history", help="each metric of the runs in a folder over time, with change points")
    history.add_argument("folder", metavar="DIR", help="a folder of run folders")
    history.add_argument(
        "--metrics",
        choices=("primary", "all"),
        default="primary",
        help="all: every row of every suite (default: primary)",
    )
    _add_formats(history)
    merge = verbs.add_parser("merge", help="join the shards of one run (--shard I/N)")
    merge.add_argument("runs", nargs="+", metavar="RUN", help="all of its shards")
    merge.add_argument(
        "--as-reference",
        metavar="FILE",
        help="write the merged run's per-case results; needed again for shards of other machines",
    )
    add_output_options(merge)
    add_shared_option(merge)


def _add_baseline(verbs: Verbs) -> None:
    baseline = verbs.add_parser("baseline", help="what later nights are held to: accept, measure, list")
    actions = baseline.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    accept = actions.add_parser("accept", help="accept a finished run")
    accept.add_argument("run", metavar="RUN")
    accept.add_argument("--force", action="store_true", help="accept a run that failed or is partial")
    accept.add_argument("--out", metavar="DIR", help="where runs are looked for by name (default: reports/)")
    init = actions.add_parser("init", help="measure an endpoint and accept what was measured (experimental)")
    add_run_options(init)
    init.add_argument("--count", type=int, default=2, metavar="N", help="how many runs (default: 2: an F1 wants two)")
    for parser in (accept, init):
        parser.add_argument("--note", metavar="TEXT", help="why, for those who read the file")
        parser.add_argument("--build", metavar="TEXT", help="what was served: a release, an image digest")
        parser.add_argument(
            "--expires", metavar="90d|DATE", help="the last day on which a night may pass by it (default: never)"
        )
        _add_baselines(parser)
    listing = actions.add_parser("list", help="what was accepted")
    _add_baselines(listing)
    _add_formats(listing)


def _add_nightly(verbs: Verbs) -> None:
    nightly = verbs.add_parser(
        "nightly",
        help="a night: run, gate against accepted baselines, confirm an alarm, one line (experimental)",
    )
    add_run_options(nightly)
    group = nightly.add_argument_group(
        "the night", "SUITE may also be a FLEET.toml with a [[vendor]] table for each of many endpoints."
    )
    group.add_argument(
        "--notify",
        metavar="URL|COMMAND|env:NAME",
        help="post an alarm's line there, or give it to a command's standard input; once for each alarm",
    )
    group.add_argument("--metrics", metavar="FILE", help="write the night as Prometheus text")
    group.add_argument("--waivers", metavar="FILE", help=WAIVERS)
    _add_night(group)
    _add_allow_different(group)


def _add_prune(verbs: Verbs) -> None:
    prune = verbs.add_parser(
        "prune", help="remove the stores of old runs; reports, unfinished runs and baselines stay (experimental)"
    )
    prune.add_argument("folder", nargs="?", default="reports", metavar="DIR", help="default: reports/")
    prune.add_argument("--keep", required=True, metavar="90d", help="runs that ended in so many days keep their stores")
    prune.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
    _add_baselines(prune)


def _add_night(parser: argparse._ActionsContainer) -> None:
    """What `gate` and `nightly` share."""
    parser.add_argument(
        "--last",
        type=int,
        default=5,
        metavar="K",
        help="how many baselines are looked at, the older ones for drift, the first one always (default: 5)",
    )
    told = "fail: exit code 3; warn: 0, but 3 for an alarm that could not be confirmed (default: fail)"
    parser.add_argument("--on-inconclusive", choices=("fail", "warn"), default="fail", help=told)
    parser.add_argument(
        "--on-drift",
        choices=("fail", "warn"),
        default="warn",
        help="whether a shown drift fails the night (default: warn)",
    )
    _add_baselines(parser)


def _add_baselines(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--baselines",
        default="baselines",
        metavar="DIR",
        help="where accepted baselines are kept (default: baselines/)",
    )


def _add_formats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", default="text", choices=FORMATS, help="default: text")
    parser.add_argument("--to", metavar="FILE", help="write it there instead of printing")
    parser.add_argument("--out", metavar="DIR", help="where runs are looked for by name (default: reports/)")
    parser.add_argument("-v", "--verbose", action="store_true", default=None, help="tracebacks")


def _add_allow_different(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--allow-different",
        action="append",
        metavar="KIND[,KIND...]",
        help=(
            "compare runs that differ in suites, data, cases, sampling, judge, agent, scorer, profile, or all; what is"
            " left out is said"
        ),
    )
