"""`kvv run`, `kvv check`, `kvv resume`: what is asked for. What a run needs is imported only when the options are
right.
"""

from __future__ import annotations

import argparse

from kvv.cli.flags import flags_of
from kvv.planning.config import ConfigError, load_config, revise
from kvv.storage.run_folder import find_run


def run(arguments: argparse.Namespace) -> int:
    return _start(arguments, contract_only=False)


def check(arguments: argparse.Namespace) -> int:
    return _start(arguments, contract_only=True)


def _start(arguments: argparse.Namespace, *, contract_only: bool) -> int:
    config = load_config(flags_of(arguments))
    if len(set(config.effort)) > 1:
        if contract_only:
            raise ConfigError("--effort: `kvv check` asks at one; several are for `kvv run`")
        from kvv.cli.verbs import several_endpoints
        from kvv.cli.verbs.efforts import efforts_of, sides_of

        return several_endpoints.start("--effort", sides_of(config), config, efforts=efforts_of(config))
    from kvv.cli.verbs.session import start

    return start(config, contract_only=contract_only)


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
