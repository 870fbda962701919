"""Instances that come as images, through a Docker-compatible socket: a classic row with an official script, and a
DeepSWE / Harbor task.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import shutil
import subprocess
import tarfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import rootfs

from kvv.core import Ask, Case, Dataset, Done, Exec, Outcome, Reply, Verdict
from kvv.data.spec import load_spec
from kvv.data.swebench import read_swebench
from kvv.execution.scheduling.trees import SharedResults, Trees, slots
from kvv.sandbox import SandboxError
from kvv.sandbox.container import Containers
from kvv.sandbox.engine import ContainerEngine, EngineError, socket_path
from kvv.suites.swebench.prompts import MARK

from .conftest import SUITE, Instance, context, new_file
from .test_agent_fold import call, run

pytestmark = pytest.mark.engines

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


def in_image(bundle: bytes, workdir: str, name: str, *, files: bytes | None = None, changes: str = "") -> str:
    """An image with the bundle's tree; skips where containers cannot run."""
    path = socket_path()
    if path is None:
        pytest.skip("no Docker-compatible socket")
    engine = ContainerEngine(path)
    try:
        base = rootfs.image(engine)
        if not base:
            pytest.skip("no image can be made of this machine's programs")
        return rootfs.with_tree(engine, base, workdir, bundle, name, files=files, changes=changes)
    except (EngineError, SandboxError, OSError) as error:
        pytest.skip(f"containers do not run here: {error}")


#: each image is tried once
CONTROLS = SharedResults()


def case_of(row: dict[str, Any]) -> Case:
    (case,) = SUITE.cases(context(dataset=Dataset(rows=[row], origin="x", revision="x")))
    return case


def worked(case: Case, commands: list[str]) -> Verdict:
    """The verdict of an agent that gives these commands, one an answer, in real containers."""

    async def whole() -> Verdict:
        sandbox, answers = Containers(), iter(commands)
        trees = Trees(sandbox, case, slots(), CONTROLS)
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
    image = in_image(base64.b64decode(row.pop("bundle")), "/testbed", "kvv-test-testbed")
    case = case_of({**row, "image": image})
    solved = worked(case, row["right"])
    assert (solved.outcome, solved.reason, solved.facts["applied"]) == (Outcome.PASS, "", "git apply")
    assert solved.facts["tests_status"]["FAIL_TO_PASS"]["success"] == row["FAIL_TO_PASS"]
    missed = worked(case, row["wrong"])
    assert (missed.outcome, missed.reason) == (Outcome.FAIL, "tests-fail")


def test_a_harbor_task_takes_commits_only_and_is_graded_by_its_own_verifier(
    instances: dict[str, Instance], tmp_path: Path
) -> None:
    row = instances["kvv__tasks-1"].row
    image = in_image(base64.b64decode(row["bundle"]), "/app", "kvv-test-app")
    folder = tmp_path / "tasks" / "cycle"
    (folder / "tests").mkdir(parents=True)
    (folder / "task.toml").write_text(TASK.format(image=image))
    (folder / "instruction.md").write_text(row["problem_statement"])
    (folder / "tests" / "test.sh").write_text(VERIFIER)
    (folder / "tests" / "test.patch").write_text(row["test_patch"])
    (folder / "tests" / "config.json").write_text(
        f'{{"base_commit": "{row["base_commit"]}", "f2p_node_ids": ["x"], "p2p_node_ids": []}}'
    )
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


# --- a whole task of DeepSWE -----------------------------------------------------------------------

DEEP_SWE = "cattrs-partial-structuring-recovery"
#: what the task's own tests import, taken from this environment
PACKAGES = (
    "attrs",
    "hypothesis",
    "iniconfig",
    "packaging",
    "pluggy",
    "pygments",
    "pytest",
    "sortedcontainers",
    "typing_extensions",
)
#: the repository asks for two more plug-ins of pytest by their options alone
OPTIONS = """
def pytest_addoption(parser):
    for name in ("sort", "warmup", "warmup-iterations", "group-by"):
        parser.addoption(f"--benchmark-{name}")
    parser.addoption("--timeout")
"""
ENTRY_POINT = "[pytest11]\noptions = options_taken\n"


def packages() -> bytes:
    """A tar file with what the task's image has beside its repository; skips where this environment cannot give it."""
    packed, compiled = io.BytesIO(), []
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in PACKAGES:
            try:
                found = distribution(name)
            except PackageNotFoundError:
                pytest.skip(f"{name} is not installed")
            for file in found.files or ():
                path = Path(str(found.locate_file(file)))
                if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
                    archive.add(path, f"opt/site/{file}")
                    compiled += [path] if path.suffix == ".so" else []
        for needed in rootfs.libraries(compiled) if compiled else ():
            archive.add(Path(needed).resolve(), needed.lstrip("/"))
        tee = shutil.which("tee", path=rootfs.SYSTEM_PATH)
        if tee is None:
            pytest.skip("tee is not installed")
        archive.add(Path(tee).resolve(), "usr/bin/tee")
        texts = {
            "opt/site/options_taken.py": OPTIONS,
            "opt/site/options_taken-1.dist-info/entry_points.txt": ENTRY_POINT,
            "opt/site/options_taken-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: options-taken\nVersion: 1\n",
            "usr/bin/pytest": '#!/bin/sh\nexec python3 -m pytest "$@"\n',
            "usr/bin/python": '#!/bin/sh\nexec python3 "$@"\n',
        }
        for name, text in texts.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode("ascii")))
    return packed.getvalue()


@pytest.fixture(scope="module")
def deep_swe(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The task's row in an image of this machine's programs; its base commit is the image's own, for a tree has no
    history.
    """
    data = shared / "data/deep_swe"
    trees = sorted(data.glob("cattrs-*.tar.gz"))
    if not trees:
        pytest.skip("the task of DeepSWE with its repository's tree is absent")
    if socket_path() is None:
        pytest.skip("no Docker-compatible socket")
    folder = tmp_path_factory.mktemp("deep-swe")
    tree = folder / "tree"
    with tarfile.open(trees[0]) as archive:
        archive.extractall(tree, filter="data")

    def git(*arguments: str) -> str:
        own = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *arguments]
        return subprocess.run(own, cwd=tree, env=env, check=True, capture_output=True, text=True).stdout.strip()

    # the same commit, and so the same image under one name, in every process that makes it
    env = {**os.environ, "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
    git("init", "-q", "-b", "main")
    git("add", "-A", "-f")
    git("commit", "-q", "-m", "base")
    git("bundle", "create", "-q", "x.bundle", "main")
    base = git("rev-parse", "HEAD")
    bundle = (tree / "x.bundle").read_bytes()
    image = in_image(bundle, "/app", "kvv-test-cattrs", files=packages(), changes="ENV PYTHONPATH=/opt/site:/app/src")
    task = folder / DEEP_SWE
    shutil.copytree(data / DEEP_SWE, task)
    config = task / "tests" / "config.json"
    (row,) = read_swebench(task, load_spec("swebench"))
    config.write_text(config.read_text("utf-8").replace(row["base_commit"], base), "utf-8")
    (row,) = read_swebench(task, load_spec("swebench"))
    assert row["base_commit"] == base
    return {**row, "image": image}


def commands(patch: str) -> list[str]:
    """An agent that applies the patch, commits as the task asks and hands in."""
    commit = "git -c user.name=a -c user.email=a@localhost commit -q --no-verify -m done"
    apply = (
        [f"git apply --whitespace=nowarn - <<'END_OF_PATCH'\n{patch}END_OF_PATCH", f"git add -A && {commit}"]
        if patch
        else []
    )
    return [*apply, f"echo {MARK}"]


def test_a_task_of_deep_swe_is_resolved_by_its_solution(deep_swe: dict[str, Any]) -> None:
    verdict = worked(case_of(deep_swe), commands(deep_swe["patch"]))
    assert (verdict.outcome, verdict.reason, verdict.detail) == (Outcome.PASS, "", "")
    assert (verdict.values["official_resolved"], verdict.facts["tampered"]) == (1.0, [])
    counts = {
        name: (len(group["success"]), len(group["failure"])) for name, group in verdict.facts["tests_status"].items()
    }
    assert counts == {"FAIL_TO_PASS": (69, 0), "PASS_TO_PASS": (7, 0)}


def test_a_task_of_deep_swe_is_not_resolved_by_less(deep_swe: dict[str, Any]) -> None:
    case = case_of(deep_swe)
    empty = worked(case, commands(""))
    assert (empty.outcome, empty.reason, empty.values["official_resolved"]) == (Outcome.FAIL, "empty-patch", 0.0)
    # the solution, but for one method that then does nothing
    apply, *rest = commands(deep_swe["patch"])
    wrong = worked(case, [apply, "sed -i 's/if self.is_complete:/if True:/' src/cattrs/partial.py", *rest])
    assert (wrong.outcome, wrong.reason, wrong.detail) == (Outcome.FAIL, "tests-fail", "the verifier's reward is 0")
    groups = wrong.facts["tests_status"]
    assert groups["FAIL_TO_PASS"]["failure"]
    assert groups["FAIL_TO_PASS"]["success"]
    assert groups["PASS_TO_PASS"]["failure"] == []


#: makes every test that pytest runs a passed one
PASSING = """import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    found = yield
    found.get_result().outcome = "passed"
"""
#: in place of the runner: writes reports in which everything passed
SHADOW = """import json, os, pathlib, re, sys

found = re.search(r"--junitxml=(\\S+)", os.environ["PYTEST_ADDOPTS"])
config = json.loads(pathlib.Path("/tests/config.json").read_text())
names = [name.rpartition(".") for name in config["f2p_node_ids"] + config["p2p_node_ids"]]
cases = "".join(f'<testcase classname="{place}" name="{name}"/>' for place, _, name in names)
pathlib.Path(found[1]).write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
sys.exit(0)
"""


def adding(**files: str) -> str:
    """A patch that adds files; two underscores of a name are a slash."""
    return "".join(new_file(name.replace("__", "/") + ".py", text.splitlines()) for name, text in files.items())


@pytest.mark.parametrize(
    ("patch", "reason", "official", "tampered"),
    [
        (adding(src__cattrs__notes="# nothing"), "tests-fail", 0.0, []),
        (adding(tests__test_partial="def test_nothing():\n    assert True"), "tests-fail", 0.0, []),
        (adding(conftest=PASSING), "tests-fail", 0.0, ["conftest.py"]),
        (adding(sitecustomize="raise SystemExit(0)"), "tests-fail", 0.0, ["sitecustomize.py"]),
        # the task's own verifier believes this one
        (adding(pytest=SHADOW), "tampered", 1.0, ["pytest.py"]),
    ],
    ids=["comment", "tests-only", "conftest", "sitecustomize", "shadow"],
)
def test_a_task_of_deep_swe_is_not_resolved_by_tricks(
    deep_swe: dict[str, Any], patch: str, reason: str, official: float, tampered: list[str]
) -> None:
    verdict = worked(case_of(deep_swe), commands(patch))
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, reason)
    assert dict(verdict.values) == {"resolved": 0.0, "official_resolved": official}
    assert (verdict.facts["tampered"], verdict.facts["environment"]) == (tampered, "proven")
