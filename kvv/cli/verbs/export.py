"""`kvv export`: a stored run in another program's form."""

from __future__ import annotations

import argparse
from pathlib import Path

from kvv.cli.verbs.opening import open_run
from kvv.core.usage_error import ConfigError
from kvv.rendering.escape import plain


def export(arguments: argparse.Namespace) -> int:
    """``inspect``: one benchmark of a run as an ``.eval`` log."""
    from kvv.cases.suite import SuiteKind, load_suite
    from kvv.reporting.inspect_log import write_inspect_log
    from kvv.storage.snapshot import build_view

    with open_run(arguments.run, arguments.out) as (store, folder):
        view = build_view(store)
        suites = list(dict.fromkeys(stat.suite for stat in view.decision.stats))
        suites = [name for name in suites if load_suite(name).kind is SuiteKind.BENCHMARK]
        chosen = arguments.suite or (suites[0] if len(suites) == 1 else "")
        if chosen not in suites:
            known = ", ".join(suites) or "none"
            raise ConfigError(f"--suite: name one of the run's benchmarks, for a log is of one: {known}")
        path = Path(arguments.to) if arguments.to else folder / f"{chosen}.eval"
        if path.suffix != ".eval":
            raise ConfigError("--to: wants a name that ends in .eval, by which inspect knows its logs")
        count = write_inspect_log(store, view, chosen, path)
    print(plain(f"{path}: {count} samples of {chosen}"))
    return 0
