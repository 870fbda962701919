"""What keeps tests from running although no patch is to blame, told from their output as the official harness (5.x)
tells it."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: exit codes of a shell that found no program, or one that cannot be run
NO_PROGRAM = (126, 127)
#: characters of the output's end that are read
END = 20_000

_CAUSES: Mapping[str, re.Pattern[str]] = {
    "out-of-memory": re.compile(
        r"out of memory|OutOfMemoryError|\bMemoryError\b|Cannot allocate memory|signal: killed|\bENOMEM\b", re.I
    ),
    "out-of-disk": re.compile(r"No space left on device|\bENOSPC\b", re.I),
    "no-network": re.compile(
        r"name resolution|Could not resolve host|Name or service not known|Network is unreachable|getaddrinfo|"
        r"\bENOTFOUND\b|UnknownHostException|dial tcp: lookup",
        re.I,
    ),
    "missing-runner": re.compile(
        r"command not found|No module named '?(?:pytest|tox|nose|unittest)\b|cannot find the command|"
        r"Cannot find module '(?:jest|mocha|vitest|karma)",
        re.I,
    ),
    "no-tests-collected": re.compile(
        r"collected 0 items|no tests ran|\bRan 0 tests\b|No tests found|\bno test files\b|0 passing\b", re.I
    ),
}


def cause_of(output: str, exit_code: int | None) -> str:
    """The first cause that the output's end names, "" where it names none. Evidence only beside a control: a patch can
    print anything."""
    said = output[-END:]
    for cause, pattern in _CAUSES.items():
        if pattern.search(said):
            return cause
    return "missing-runner" if exit_code in NO_PROGRAM else ""
