"""Bridges to imperative libraries that are installed apart: mini-swe-agent's agent, SWE-bench's own harness.

What they ask of a model or a sandbox becomes a step that the scheduler performs and stores, so that a run replays
offline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


class AdapterError(ValueError):
    """The library is not installed, or not the one that is needed; one line that says what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """``package`` is its name on the index, ``versions`` what our extra (pyproject.toml) takes."""

    package: str
    versions: str


#: by the value of ``--agent`` and ``--grader``; the value ``kvv`` is our own agent and grader, which need nothing
AGENTS: Mapping[str, Library] = {"mini": Library(package="mini-swe-agent", versions=">=2.4,<3")}
GRADERS: Mapping[str, Library] = {"swebench": Library(package="swebench", versions=">=5,<6")}
OWN = "kvv"


def identity(known: Mapping[str, Library], name: str | None) -> str:
    """``mini-swe-agent 2.4.6``: what a result carries; "" for our own. AdapterError where the library is not
    installed.
    """
    if name in (None, OWN):
        return ""
    library = known[str(name)]
    try:
        return f"{library.package} {version(library.package)}"
    except PackageNotFoundError:
        raise AdapterError(
            f"{library.package} is not installed (pip install '{library.package}{library.versions}')"
        ) from None


def check_played(named: str) -> None:
    """As ``check_installed``, for the name that a case carries: our own agents need nothing."""
    if named.partition(" ")[0] in {library.package for library in AGENTS.values()}:
        check_installed(named)


def check_installed(named: str) -> None:
    """AdapterError unless exactly this (``mini-swe-agent 2.4.6``) is installed: another version would not play the same
    again.
    """
    package, _, wanted = named.partition(" ")
    try:
        found = version(package)
    except PackageNotFoundError:
        found = "not installed"
    if found != wanted:
        raise AdapterError(f"{named} is needed, {package} is {found} (pip install '{package}=={wanted}')")
