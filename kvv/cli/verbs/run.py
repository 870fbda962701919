"""`kvv run`, `kvv check`, `kvv resume`: what is asked for. What a run needs is imported only when the options are
right.
"""

from __future__ import annotations

import argparse
import glob
from typing import Any

from kvv.cli.flags import flags_of
from kvv.planning.config import ConfigError, RunConfig, load_config, revise
from kvv.storage.run_folder import find_run


def run(arguments: argparse.Namespace) -> int:
    return _start(arguments, contract_only=False)


def check(arguments: argparse.Namespace) -> int:
    return _start(arguments, contract_only=True)


def _start(arguments: argparse.Namespace, *, contract_only: bool) -> int:
    flags = flags_of(arguments)
    last = flags.pop("last_failed", None)
    config = load_config(flags) if last is None else _last_failed(last, flags)
    if len(set(config.effort)) > 1:
        if contract_only:
            raise ConfigError("--effort: `kvv check` asks at one; several are for `kvv run`")
        from kvv.cli.verbs import several_endpoints
        from kvv.cli.verbs.efforts import efforts_of, sides_of

        return several_endpoints.start("--effort", sides_of(config), config, efforts=efforts_of(config))
    from kvv.cli.verbs.session import start

    return start(config, contract_only=contract_only)


def _last_failed(run: str, flags: dict[str, Any]) -> RunConfig:
    """The run's own configuration, as far as this user started it, cut down to the cases that failed."""
    folder = find_run(run, flags.get("out") or "reports")
    from kvv.cli.verbs.failed import failed_cases
    from kvv.storage.seal import trusted_config

    failed = failed_cases(folder)
    suites = tuple(dict.fromkeys(case.split("/", 1)[0] for case in failed))
    # what asked a part of the plan, or wrote beside the run, was that run's
    own = {"suites": suites, "case": tuple(map(glob.escape, failed)), "force": True, "shard": None}
    own |= {"as_reference": None, "json_output": False, "quiet": False, "early_stop": False}
    known = trusted_config(folder, flags, unused=("as_reference",))
    return revise(known.model_copy(update=own), flags)


def resume(arguments: argparse.Namespace) -> int:
    """Continues with the run's own configuration, as far as this user started the run; bounds and what is sent where
    may be replaced.
    """
    folder = find_run(arguments.run, arguments.out or "reports")
    given = {name: value for name, value in flags_of(arguments).items() if name != "out"}
    from kvv.storage.seal import trusted_config

    config = revise(trusted_config(folder, given), given)
    from kvv.cli.verbs.session import go_on

    return go_on(folder, config)
