"""The exit codes of every command, in one place; README's table says the same to users."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """``BOUND``: a budget or deadline ended the run. ``ERROR``: our own mistake, nobody's verdict."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    INCONCLUSIVE = 3
    ERROR = 4
    BOUND = 5
    INTERRUPTED = 130
