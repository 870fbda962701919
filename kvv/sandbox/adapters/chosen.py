"""What `--agent` and `--grader` ask for: tried before anything is sent, refused in one line that names the option."""

from __future__ import annotations

from collections.abc import Sequence

from kvv.core import Case
from kvv.core.usage_error import ConfigError
from kvv.sandbox.adapters import AGENTS, GRADERS, OWN, AdapterError, identity


def agent_of(agent: str | None) -> str:
    """Name and version of the program that works in our agent's place, "" for our own. ConfigError where it is not
    installed.
    """
    try:
        return identity(AGENTS, agent)
    except AdapterError as error:
        raise ConfigError(f"--agent {agent}: {error}") from error


def grader_of(grader: str | None) -> str:
    """The same for the grader."""
    try:
        return identity(GRADERS, grader)
    except AdapterError as error:
        raise ConfigError(f"--grader {grader}: {error}") from error


def check_grader(grader: str | None, cases: Sequence[Case]) -> None:
    """The official harness needs a container engine, and rows that it can read; ConfigError where it lacks either."""
    if grader in (None, OWN):
        return
    from kvv.sandbox.adapters.harness import missing

    why = missing()
    reasons = [str(case.inputs["unusable"]) for case in cases]
    if why or all(reasons):
        raise ConfigError(f"--grader {grader}: {why or reasons[0]}")
