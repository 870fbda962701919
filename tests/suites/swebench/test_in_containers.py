"""Instances that come as images, through a Docker-compatible socket: a classic row with an official script, and a DeepSWE / Harbor task."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
import rootfs

from kvv.data.spec import load_spec
from kvv.data.swebench import read_swebench
from kvv.model import Ask, Case, Done, Exec, Outcome, Reply, Verdict
from kvv.sandbox import SandboxError
from kvv.sandbox.container import Containers
from kvv.sandbox.engine import Engine, EngineError, socket_path
from kvv.schedule.trees import Trees, slots
from kvv.suite import Dataset
from kvv.suites.swebench.prompts import MARK

from .conftest import SUITE, Instance, context
from .test_agent_fold import call, run

TASK = """schema_version = "1.3"
[metadata]
repository_url = "https://github.com/kvv/tasks"
[agent]
timeout_sec = 600.0
[verifier]
timeout_sec = 300.0
[environment]
docker_image = "{image}"
"""

VERIFIER = """#!/bin/bash
mkdir -p /logs/verifier; echo -1 > /logs/verifier/reward.txt
cd /app
if [ -s /logs/artifacts/model.patch ] && ! git apply /logs/artifacts/model.patch; then
  echo '{"reward": 0, "apply_failed": true}' > /logs/verifier/reward.json; exit 0
fi
git apply /tests/test.patch
if python3 -m unittest -q tests.test_order; then reward=1; else reward=0; fi
echo "{\\"reward\\": $reward}" > /logs/verifier/reward.json
"""


def in_image(bundle: str, workdir: str, name: str) -> str:
    """An image with the bundle's tree; skips where containers cannot run."""
    path = socket_path()
    if path is None:
        pytest.skip("no Docker-compatible socket")
    engine = Engine(path)
    try:
        base = rootfs.image(engine)
        if not base:
            pytest.skip("no image can be made of this machine's programs")
        return rootfs.with_tree(engine, base, workdir, base64.b64decode(bundle), name)
    except (EngineError, SandboxError, OSError) as error:
        pytest.skip(f"containers do not run here: {error}")


def case_of(row: dict[str, Any]) -> Case:
    (case,) = SUITE.cases(context(dataset=Dataset(rows=[row], origin="x", revision="x")))
    return case


def worked(case: Case, commands: list[str]) -> Verdict:
    """The verdict of an agent that gives these commands, one an answer, in real containers."""

    async def whole() -> Verdict:
        sandbox, answers = Containers(), iter(commands)
        trees = Trees(sandbox, case, slots())
        history: list[Reply] = []
        try:
            while True:
                match SUITE.step(case, history):
                    case Done(verdict=verdict):
                        return verdict
                    case Ask():
                        history.append(call(run(next(answers))))
                    case Exec() as step:
                        history.append(await trees.run(step))
        finally:
            await trees.close()
            await sandbox.close()

    return asyncio.run(whole())


def test_an_instance_that_is_an_image_is_worked_on_and_graded_in_containers(instances: dict[str, Instance]) -> None:
    row = dict(instances["kvv__tasks-1"].row)
    image = in_image(row.pop("bundle"), "/testbed", "kvv-test-testbed")
    case = case_of({**row, "image": image})
    solved = worked(case, row["right"])
    assert (solved.outcome, solved.reason, solved.facts["applied"]) == (Outcome.PASS, "", "git apply")
    assert solved.facts["tests_status"]["FAIL_TO_PASS"]["success"] == row["FAIL_TO_PASS"]
    missed = worked(case, row["wrong"])
    assert (missed.outcome, missed.reason) == (Outcome.FAIL, "tests-fail")


def test_a_harbor_task_takes_commits_only_and_is_graded_by_its_own_verifier(instances: dict[str, Instance], tmp_path: Path) -> None:
    row = instances["kvv__tasks-1"].row
    image = in_image(row["bundle"], "/app", "kvv-test-app")
    folder = tmp_path / "tasks" / "cycle"
    (folder / "tests").mkdir(parents=True)
    (folder / "task.toml").write_text(TASK.format(image=image))
    (folder / "instruction.md").write_text(row["problem_statement"])
    (folder / "tests" / "test.sh").write_text(VERIFIER)
    (folder / "tests" / "test.patch").write_text(row["test_patch"])
    (folder / "tests" / "config.json").write_text(f'{{"base_commit": "{row["base_commit"]}", "f2p_node_ids": ["x"], "p2p_node_ids": []}}')
    (task,) = read_swebench(tmp_path, load_spec("swebench"))
    case = case_of(task)
    edit, done = row["right"][1], f"echo {MARK}"
    commit = "git -c user.name=a -c user.email=a@localhost commit -qam done"
    solved = worked(case, [edit, f"git checkout -q -b work && {commit}", done])
    assert (solved.outcome, solved.reason, solved.facts["official_resolved"]) == (Outcome.PASS, "", True)
    assert solved.facts["patch"].startswith("diff --git a/tasks/order.py")
    forgot = worked(case, [edit, done])
    assert (forgot.outcome, forgot.reason) == (Outcome.FAIL, "empty-patch")
    wrong = worked(case, [row["wrong"][1], commit, done])
    assert (wrong.outcome, wrong.reason) == (Outcome.FAIL, "tests-fail")
