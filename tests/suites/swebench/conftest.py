"""The shipped instances as cases, and a grader that runs them in whatever sandbox this machine has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kvv.cases.suite import Context, Settings
from kvv.core import Case, Exec, Reply, Step
from kvv.data import load
from kvv.profiles.profile import load_profile
from kvv.sandbox import Sandbox, SandboxError, Session, Workspace, choose
from kvv.suites.swebench.grading import Graded, grade
from kvv.suites.swebench.suite import SwebenchSuite

SUITE = SwebenchSuite()


def context(**fields: Any) -> Context:
    return Context(model="kimi-k3", profile=load_profile("kimi-k3"), settings=Settings(), **fields)


def untried(case: Case) -> Case:
    """Without a trial of the environment before the agent."""
    return replace(case, inputs={**case.inputs, "controls": False})


@dataclass(frozen=True)
class Instance:
    row: dict[str, Any]
    case: Case


@pytest.fixture(scope="session")
def instances() -> dict[str, Instance]:
    dataset = load("swebench", fixture=True)
    # most tests look at the agent or at one patch: without trying the environment first
    cases = [untried(case) for case in SUITE.cases(context(dataset=dataset))]
    return {case.inputs["instance"]: Instance(dict(row), case) for row, case in zip(dataset.rows, cases, strict=True)}


def played(case: Case, play: Generator[Step, Reply, Any], sandbox: Sandbox) -> Any:
    """Runs a play of commands to its end, in one tree."""

    async def whole() -> Any:
        session: Session = await sandbox.open(Workspace.of(case.inputs["sandbox"]))
        try:
            step = next(play)
            while True:
                assert isinstance(step, Exec)
                step = play.send(await session.run(step.command))
        except StopIteration as end:
            return end.value
        finally:
            await session.close()
            await sandbox.close()

    return asyncio.run(whole())


@pytest.fixture
def sandbox() -> Sandbox:
    try:
        return choose(None, Workspace(bundle="aGk=", commit="x"))
    except SandboxError as error:
        pytest.skip(f"no sandbox: {error}")


@pytest.fixture
def graded(sandbox: Sandbox) -> Callable[[Case, str], Graded]:
    def run(case: Case, patch: str) -> Graded:
        found: Graded = played(case, grade(case, patch), sandbox)
        return found

    return run


def new_file(path: str, lines: Iterable[str]) -> str:
    """A patch that adds one file."""
    added = [f"+{line}" for line in lines]
    head = [f"diff --git a/{path} b/{path}", "new file mode 100644", "--- /dev/null", f"+++ b/{path}"]
    return "\n".join([*head, f"@@ -0,0 +1,{len(added)} @@", *added, ""])
