"""The trees of a sample: made when first named, one at a time, given back whatever happens."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kvv.core import Area, Case, Command, Exec, Executed, Level
from kvv.execution.scheduling.trees import SharedResults, Trees
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


def shared(name: str, tree: str = "gold") -> Exec:
    return Exec(command=Command(argv=(name,)), tree=tree, shared=True)


KEEP = Exec(command=Command(argv=("true",)), tree="gold", shared=True, keep=True)


class _Image(_Recorded):
    def identity(self, workspace: Workspace) -> str:
        return "sha256:1"


def samples(sandbox: Sandbox, results: SharedResults, *plays: tuple[Exec, ...]) -> list[list[Executed]]:
    """Side by side, in one run."""
    free = asyncio.Semaphore(1)

    async def one(steps: tuple[Exec, ...]) -> list[Executed]:
        trees = Trees(sandbox, CASE, free, results)
        try:
            return [await trees.run(each) for each in steps]
        finally:
            await trees.close()

    async def whole() -> list[list[Executed]]:
        return list(await asyncio.gather(*map(one, plays)))

    return asyncio.run(whole())


def test_samples_side_by_side_run_what_they_share_once() -> None:
    sandbox = _Recorded()
    play_ = (shared("apply"), shared("test"), shared("test", "base"), step("a"))
    first, second = samples(sandbox, SharedResults(), play_, play_)
    assert first == second
    assert sandbox.log.count("apply") == 1
    assert sandbox.log.count("test") == 2  # of two trees
    assert sandbox.log.count("a") == 2
    assert sandbox.log.count("open") == sandbox.log.count("close") == 4


def test_a_shared_command_that_is_new_is_run_after_those_that_came_before_it() -> None:
    sandbox, results = _Recorded(), SharedResults()
    samples(sandbox, results, (shared("apply"), shared("test")))
    sandbox.log.clear()
    samples(sandbox, results, (shared("apply"), shared("other")))
    assert sandbox.log == ["open", "apply", "other", "close"]


def test_only_what_was_found_good_in_a_known_image_is_kept_for_later_runs(tmp_path: Path) -> None:
    for sandbox, end, runs in ((_Image(), KEEP, 1), (_Image(), shared("end"), 2), (_Recorded(), KEEP, 2)):
        folder = tmp_path / f"{sandbox.name}{runs}{end.keep}{type(sandbox).__name__}"
        for _ in range(2):
            samples(sandbox, SharedResults(folder), (shared("apply"), end))
        assert sandbox.log.count("apply") == runs


@pytest.mark.parametrize("content", ["", "[]", '{"a": {"exit_code": "0", "output": ""}}', '{"a": 1}', "[" * 100_000])
def test_a_kept_file_that_cannot_be_read_is_tried_again(tmp_path: Path, content: str) -> None:
    samples(_Image(), SharedResults(tmp_path), (shared("apply"), KEEP))
    (kept,) = tmp_path.iterdir()
    kept.write_text(content)
    sandbox = _Image()
    samples(sandbox, SharedResults(tmp_path), (shared("apply"), KEEP))
    assert sandbox.log == ["open", "apply", "close"]
