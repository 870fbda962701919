"""What `--agent` and `--grader` ask for: tried before anything is sent, refused in one line that names the option."""

from __future__ import annotations

from collections.abc import Sequence

from kvv.core import Case
from kvv.planning.config import ConfigError, RunConfig
from kvv.sandbox.adapters import AGENTS, GRADERS, OWN, AdapterError, identity


def agent_of(config: RunConfig) -> str:
    """Name and version of the program that works in our agent's place, "" for our own. ConfigError where it is not installed."""
    try:
        return identity(AGENTS, config.agent)
    except AdapterError as error:
        raise ConfigError(f"--agent {config.agent}: {error}") from error


def grader_of(config: RunConfig) -> str:
    """The same for the grader."""
    try:
        return identity(GRADERS, config.grader)
    except AdapterError as error:
        raise ConfigError(f"--grader {config.grader}: {error}") from error


def check_grader(config: RunConfig, cases: Sequence[Case]) -> None:
    """The official harness needs a container engine, and rows that it can read; ConfigError where it lacks either."""
    if config.grader in (None, OWN):
        return
    from kvv.sandbox.adapters.harness import missing

    why = missing()
    reasons = [str(case.inputs["unusable"]) for case in cases]
    if why or all(reasons):
        raise ConfigError(f"--grader {config.grader}: {why or reasons[0]}")
