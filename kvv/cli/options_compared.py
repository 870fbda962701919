"""Options of the verbs that read finished runs. Names and help and nothing else, as in options.py."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvv.cli.options import Parser, add_again_options, add_output_options, add_shared_option

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[Parser]

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
    gate.add_argument(
        "--last",
        type=int,
        default=5,
        metavar="K",
        help="how many baselines are looked at, the older ones for drift (default: 5)",
    )
    gate.add_argument("--confirm", metavar="RUN", help="a second, fresh run: an alarm counts only where it repeats it")
    gate.add_argument(
        "--confirm-now",
        action="store_true",
        help="where it alarms, measure what alarmed once more, with the run's own settings",
    )
    for name, kind in (
        ("--deadline", float),
        ("--max-cost", float),
        ("--max-requests", int),
        ("--max-tokens-total", int),
    ):
        gate.add_argument(name, type=kind, help="--confirm-now: replaces the run's own bound")
    gate.add_argument(
        "--yes", action="store_true", default=None, help="--confirm-now: start although it may be expensive"
    )
    add_again_options(gate, "--confirm-now: ")
    gate.add_argument("--policy", metavar="NAME|FILE", help="default: nightly")
    gate.add_argument("--waivers", metavar="FILE", help="[[waiver]] tables: case, reason, owner, issue, expires")
    told = "fail: exit code 3; warn: 0, but 3 for an alarm that could not be confirmed (default: fail)"
    gate.add_argument("--on-inconclusive", choices=("fail", "warn"), default="fail", help=told)
    gate.add_argument(
        "--on-drift",
        choices=("fail", "warn"),
        default="warn",
        help="whether a shown drift fails the night (default: warn)",
    )
    _add_baselines(gate)
    _add_allow_different(gate)
    _add_formats(gate)
    baseline = verbs.add_parser("baseline", help="accept a run as the baseline of later ones; list what was accepted")
    baseline.add_argument("action", choices=("accept", "list"))
    baseline.add_argument("run", nargs="?", metavar="RUN")
    baseline.add_argument("--note", metavar="TEXT", help="why, for those who read the file")
    baseline.add_argument("--force", action="store_true", help="accept a run that failed or is partial")
    _add_baselines(baseline)
    _add_formats(baseline)
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


def _add_baselines(parser: argparse.ArgumentParser) -> None:
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


def _add_allow_different(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-different",
        action="append",
        metavar="KIND[,KIND...]",
        help=(
            "compare runs that differ in suites, data, cases, sampling, judge, agent, scorer, profile, or all; what is"
            " left out is said"
        ),
    )
