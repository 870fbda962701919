"""The trees of a sample: made when first named, one at a time, given back whatever happens."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kvv.core import Area, Case, Command, Exec, Executed, Level
from kvv.execution.scheduling.trees import Trees
from kvv.sandbox import Sandbox, SandboxError, Session, Workspace

CASE = Case(
    id="s/c",
    suite="s",
    area=Area.ACCURACY,
    level=Level.SHOULD,
    requirement="",
    source="",
    since="",
    inputs={"sandbox": {"image": "an image"}},
)


class _Recorded(Sandbox):
    name = "recorded"

    def __init__(self, *, fails: bool = False, emulated: bool = False) -> None:
        self.log: list[str] = []
        self.fails = fails
        self.emulated = emulated

    def missing(self) -> str:
        return ""

    async def begin(self, workspace: Workspace) -> Session:
        if self.fails:
            raise SandboxError("no room")
        session = _Session(self.log)
        session.emulated = self.emulated
        return session


class _Session(Session):
    def __init__(self, log: list[str]) -> None:
        self.log = log
        log.append("open")

    async def run(self, command: Command) -> Executed:
        self.log.append(command.argv[0])
        return Executed(exit_code=0, output="")

    async def close(self) -> None:
        self.log.append("close")


def step(name: str, tree: str = "work") -> Exec:
    return Exec(command=Command(argv=(name,)), tree=tree)


def play(sandbox: Sandbox | None, *steps: Exec, case: Case = CASE) -> tuple[list[Executed], asyncio.Semaphore]:
    free = asyncio.Semaphore(1)

    async def whole() -> list[Executed]:
        trees = Trees(sandbox, case, free)
        try:
            return [await trees.run(each) for each in steps]
        finally:
            await trees.close()
            await trees.close()

    return asyncio.run(whole()), free


def test_commands_of_one_tree_share_a_session_and_another_name_ends_it() -> None:
    sandbox = _Recorded()
    _, free = play(sandbox, step("a"), step("b"), step("c", "grade"), step("d", "grade"))
    assert sandbox.log == ["open", "a", "b", "close", "open", "c", "d", "close"]
    assert not free.locked()


def test_nothing_is_opened_for_a_sample_that_runs_nothing() -> None:
    sandbox = _Recorded()
    play(sandbox)
    assert sandbox.log == []


@pytest.mark.parametrize("sandbox", [None, _Recorded(fails=True)])
def test_a_sandbox_that_fails_gives_its_slot_back(sandbox: Sandbox | None) -> None:
    with pytest.raises(SandboxError):
        play(sandbox, step("a"))
    free = asyncio.Semaphore(1)

    async def whole() -> None:
        trees = Trees(_Recorded(fails=True), CASE, free)
        with pytest.raises(SandboxError):
            await trees.run(step("a"))
        await trees.close()

    asyncio.run(whole())
    assert not free.locked()


def test_a_case_without_a_workspace_is_the_sandboxs_failure() -> None:
    with pytest.raises(SandboxError, match="neither a bundle nor an image"):
        play(_Recorded(), step("a"), case=replace(CASE, inputs={"sandbox": {}}))


@pytest.mark.parametrize("emulated", [True, False])
def test_results_of_an_emulated_processor_say_so(emulated: bool) -> None:
    (done,), _ = play(_Recorded(emulated=emulated), step("a"))
    assert done.emulated is emulated
