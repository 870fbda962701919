"""The environment before the endpoint: the reference patch must be resolved where the agent's will be graded, and the
repository without a patch must not be. Tried once an image or bundle, before any model is asked.

Where that does not hold, nothing that an agent hands in can be judged: INCONCLUSIVE, with the cause.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from kvv.core import Case, Command, Exec, Reply, Step
from kvv.suites.swebench.grading import Graded, Place, grade, grade_base
from kvv.suites.swebench.harbor import grade_task
from kvv.suites.swebench.official import TREE as HARNESS
from kvv.suites.swebench.official import grade_officially

GOLD, BASE = Place("gold", shared=True), Place("base", shared=True)
#: says that what was found in a tree holds for later runs too
_NOTHING = Command(argv=("true",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """``reason`` is a stable code, "" where both controls were as promised; ``proven``: a right patch is resolved
    here."""

    reason: str = ""
    detail: str = ""
    proven: bool = False

    def facts(self) -> dict[str, Any]:
        """JSON-like."""
        return {"environment": self.reason or ("proven" if self.proven else "untried")}


def try_environment(case: Case) -> Generator[Step, Reply, Environment]:
    """Without a reference patch only the base is tried."""
    gold, official = case.inputs["grade"]["reference"], bool(case.inputs.get("official"))
    proven = bool(gold.strip())
    if proven:
        found = yield from _graded(case, gold, GOLD, official=official)
        if not found.official:
            return Environment(reason=_broken(found), detail=f"the reference patch is not resolved: {_why(found)}")
        yield Exec(command=_NOTHING, tree=HARNESS if official else GOLD.tree, shared=True, keep=True)
    if official:
        return Environment(proven=proven)
    found = yield from _graded(case, "", BASE, official=False)
    if found.official:
        return Environment(reason="base-resolved", detail="the tests pass without any patch")
    if not proven and found.cause:
        return Environment(reason=found.cause, detail=f"the tests do not run without a patch: {_why(found)}")
    yield Exec(command=_NOTHING, tree=BASE.tree, shared=True, keep=True)
    return Environment(proven=proven)


def _graded(case: Case, patch: str, place: Place, *, official: bool) -> Generator[Step, Reply, Graded]:
    if case.inputs["commits"]:
        return (yield from grade_task(case, patch, place))
    if official:
        return (yield from grade_officially(case, patch, shared=True))
    return (yield from (grade(case, patch, place) if patch else grade_base(case, place)))


def _broken(found: Graded) -> str:
    return found.cause or "environment-broken"


def _why(found: Graded) -> str:
    return f"{found.reason}: {found.detail}" if found.detail else found.reason
