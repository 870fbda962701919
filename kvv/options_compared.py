"""Options of the verbs that read finished runs: compare. Names and help and nothing else, as in options.py."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvv.options import Parser

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[Parser]

FORMATS = ("text", "md", "json", "html", "csv")


def add_compared_verbs(verbs: Verbs) -> None:
    compare = verbs.add_parser("compare", help="two or more finished runs side by side, case by case")
    compare.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or their names under --out")
    _add_allow_different(compare)
    _add_formats(compare)


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
        help="compare runs that differ in suites, data, cases, sampling, judge, agent, scorer, profile, or all; what is left out is said",
    )
