"""Rows of a data set tried without a model: whether the tests of each fail at the base and pass with the reference."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvv.cases.suite import Context, Settings, Suite
from kvv.core import Ask, Case, Done, Exec, Reply
from kvv.data import load
from kvv.execution.scheduling.trees import Trees, slots
from kvv.profiles.profile import load_profile
from kvv.sandbox import Sandbox, SandboxError, Workspace, choose


def try_rows(suite: Suite, path: Path, sandbox: str | None) -> Iterator[tuple[str, str]]:
    """The id of each row's case and what is wrong with it, "" where nothing is. DataError for rows that cannot be read,
    SandboxError where there is no sandbox for them.
    """
    dataset = load(suite.id, path=path)
    # whatever model: none is asked
    context = Context(model="none", profile=load_profile("openai"), settings=Settings(), dataset=dataset)
    cases = suite.cases(context)
    usable = [case for case in cases if not case.inputs["unusable"]]
    found = {case.id: str(case.inputs["unusable"]) for case in cases}
    if usable:
        chosen = choose(sandbox, Workspace.of(usable[0].inputs["sandbox"]))
        found |= asyncio.run(_tried(suite, usable, chosen))
    yield from found.items()


async def _tried(suite: Suite, cases: Sequence[Case], sandbox: Sandbox) -> dict[str, str]:
    free = slots()

    async def one(case: Case) -> tuple[str, str]:
        trees = Trees(sandbox, case, free)
        try:
            return case.id, await _wrong(suite, case, trees)
        except SandboxError as error:
            return case.id, f"sandbox-failed: {error}"
        finally:
            await trees.close()

    try:
        return dict(await asyncio.gather(*map(one, cases)))
    finally:
        await sandbox.close()


async def _wrong(suite: Suite, case: Case, trees: Trees) -> str:
    """Nothing is wrong where the suite, having tried the environment, would ask the model."""
    history: list[Reply] = []
    while True:
        match suite.step(case, history):
            case Ask():
                return ""
            case Done(verdict=verdict):
                return f"{verdict.reason}: {verdict.detail}"
            case Exec() as step:
                history.append(await trees.run(step))
