"""The sans-IO steps of a suite: what it asks for next, and what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvv.core.exchange import Exchange, Observation
from kvv.core.request import Request
from kvv.core.verdict import Finding, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command for the sandbox. ``timeout_s`` in seconds, ``output_limit`` in characters, half from the output's
    beginning, half from its end.
    """

    argv: tuple[str, ...]
    stdin: str = ""
    timeout_s: float = 60.0
    output_limit: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Send these requests concurrently."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exec:
    """Run this command in the case's sandbox. ``tree`` names its work tree: another name than before ends that tree and
    makes a new one.

    ``shared``: what comes out is the same for every sample of the case's workspace, so that it is run once; ``keep``
    says beside it that all that was run in this tree may serve later runs too.
    """

    command: Command
    tree: str = "work"
    shared: bool = False
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The last attempt at one request, decoded, with what the passive rules said of it."""

    request: Request
    exchange: Exchange
    observation: Observation
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """How a command ended: ``exit_code`` is None after a time-out. Standard output and error are one text, ``elided``
    characters left out of its middle. ``killed`` names the bound that ended it (time, memory, disk); ``emulated``: on
    another processor's instructions."""

    exit_code: int | None
    output: str
    timed_out: bool = False
    seconds: float = 0.0
    elided: int = 0
    killed: str = ""
    emulated: bool = False


Step = Ask | Exec | Done
Reply = tuple[Answered, ...] | Executed
History = Sequence[Reply]
