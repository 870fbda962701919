"""What was given on the command line, as the configuration takes it."""

from __future__ import annotations

import argparse
from typing import Any

#: options of the parser that are no option of a run
NOT_OPTIONS = frozenset({"verb", "run"})


def flags_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was given on the command line; an empty list of suites counts as not given."""
    return {
        name: value for name, value in vars(arguments).items() if name not in NOT_OPTIONS and value not in (None, [])
    }
