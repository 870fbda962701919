"""`kvv vendors FILE`: the file and the options are read here; what a run needs is imported only when they are right."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kvv.cli.flags import flags_of
from kvv.planning.config import ConfigError, load_config


def vendors(arguments: argparse.Namespace) -> int:
    """A comparison is no gate: 0 whatever it shows, 5 or 130 where a budget or the user ended it, 3 where a side could
    not be asked whole.
    """
    flags = flags_of(arguments)
    file = Path(flags.pop("file"))
    config = load_config(flags)
    # sides that stopped at looks of their own have no sample of fixed size to be compared with each other
    for name, value in (
        ("--shard", config.shard),
        ("--as-reference", config.as_reference),
        ("--early-stop", config.early_stop),
    ):
        if value:
            raise ConfigError(f"{name}: not with `kvv vendors`")
    from kvv.planning.vendors_file import read_vendors, with_contract_pass

    asked = config
    config = with_contract_pass(config)
    if config is not asked and not config.quiet:
        added = ", ".join(config.suites[len(asked.suites) :])
        print(f"a comparison looks at the contract too, some 360 small requests a side: {added}", file=sys.stderr)
    sides = read_vendors(file, config)
    arguments.key_names = [
        name for side in sides for name in (side.config.api_key_env, *side.config.header_env.values())
    ]
    from kvv.cli.verbs.several_endpoints import start

    return start(file, sides, config)
