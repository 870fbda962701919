"""The official harness in our grader's place: what it says becomes our verdict, and what it does not say is
nobody's.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kvv.core import Case, Exec, Executed
from kvv.execution.scheduling.trees import Trees, slots
from kvv.sandbox.adapters.harness import WithHarness, missing
from kvv.sandbox.container import LABEL, Containers
from kvv.sandbox.engine import ContainerEngine, socket_path
from kvv.suites.swebench import official
from kvv.suites.swebench.grading import Graded
from kvv.suites.swebench.official import grade_officially

from .conftest import Instance, new_file
from .test_in_containers import case_of, in_image
from .test_swebench_runs import server

Run = Callable[..., Any]

F2P, P2P = ["test_a (t.T)"], ["test_b (t.T)"]


def harness_row(instances: dict[str, Instance], name: str = "kvv__tasks-1") -> dict[str, Any]:
    row = dict(instances[name].row)
    row.pop("bundle")
    return {**row, "image": "kvv-none:latest"}


def official_case(row: dict[str, Any]) -> Case:
    case = case_of(row)
    return replace(
        case,
        inputs={
            **case.inputs,
            "official": official.columns(row),
            "grader": "swebench 5.0.2",
            "unusable": official.unusable(row),
        },
    )


def judged(case: Case, told: object, patch: str = "diff --git a/x b/x\n", **fields: Any) -> Graded:
    play = grade_officially(case, patch)
    step = next(play)
    assert isinstance(step, Exec)
    assert step.tree == "harness"
    asked = json.loads(step.command.stdin)
    assert asked["prediction"]["model_patch"] == patch
    assert asked["row"]["instance_id"] == "kvv__tasks-1"
    with pytest.raises(StopIteration) as end:
        play.send(Executed(exit_code=0, output=told if isinstance(told, str) else json.dumps(told), **fields))
    found: Graded = end.value.value
    return found


def lists(f2p: bool, p2p: bool) -> dict[str, Any]:
    def group(tests: list[str], good: bool) -> dict[str, list[str]]:
        return {"success": tests if good else [], "failure": [] if good else tests}

    return {"FAIL_TO_PASS": group(F2P, f2p), "PASS_TO_PASS": group(P2P, p2p)}


@pytest.fixture
def case(instances: dict[str, Instance]) -> Case:
    return official_case(harness_row(instances))


def test_its_report_is_the_official_result(case: Case) -> None:
    solved = judged(case, {"report": {"resolved": True, "tests_status": lists(True, True)}, "applied": True})
    assert (solved.resolved, solved.official, solved.reason, solved.applied) == (True, True, "", "harness")
    missed = judged(case, {"report": {"resolved": False, "tests_status": lists(True, False)}, "applied": True})
    assert (missed.resolved, missed.official, missed.reason) == (False, False, "tests-fail")
    assert missed.detail == "1 tests, among them test_b (t.T)"


def test_a_touched_runner_is_officially_resolved_and_tampered_here(case: Case) -> None:
    patch = new_file("conftest.py", ["x = 1"])
    found = judged(case, {"report": {"resolved": True, "tests_status": lists(True, True)}, "applied": True}, patch)
    assert (found.official, found.resolved, found.reason, found.tampered) == (True, False, "tampered", ["conftest.py"])


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"report": None, "refused": True, "log": "x"}, "patch-apply-failed"),
        ({"report": None, "applied": True, "timed_out": True}, "test-timeout"),
        ({"report": None, "log": "Error creating container"}, "harness-failed"),
        (
            {
                "report": {"resolved": False, "infra_failure": True, "infra_failure_reason": "out_of_memory"},
                "applied": True,
            },
            "infra-failure",
        ),
        ({"report": {"resolved": False, "infra_failure": False}, "applied": True}, "tests-did-not-run"),
        ("no JSON", "harness-failed"),
        ("[1]", "harness-failed"),
        ({"report": {"resolved": False, "tests_status": {"FAIL_TO_PASS": []}}}, "tests-did-not-run"),
    ],
)
def test_an_instance_without_a_result_has_a_named_reason(case: Case, told: object, reason: str) -> None:
    found = judged(case, told)
    assert (found.resolved, found.reason) == (False, reason)
    assert (reason in official.OPEN_REASONS) == (reason in ("harness-failed", "infra-failure"))


def test_a_harness_that_was_killed_says_nothing_whatever_it_wrote(case: Case) -> None:
    told = {"report": {"resolved": True, "tests_status": lists(True, True)}, "applied": True}
    assert judged(case, told, killed="time").reason == "harness-failed"


def test_an_empty_patch_is_not_run(case: Case) -> None:
    with pytest.raises(StopIteration) as end:
        next(grade_officially(case, "\n"))
    assert end.value.value.reason == "empty-patch"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"eval_script": ""}, "no eval_script"),
        ({"image": ""}, "no image"),
        ({"instance_id": "../x"}, "this name"),
        ({"instance_id": ".."}, "this name"),
    ],
)
def test_a_row_that_it_cannot_grade_says_why(instances: dict[str, Instance], change: dict[str, str], why: str) -> None:
    assert official.unusable(harness_row(instances)) == ""
    assert why in official.unusable({**harness_row(instances), **change})


def test_without_a_container_engine_one_line_names_the_option(kvv_cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvv.sandbox.adapters.version", lambda _: "5.0.2")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    ran = kvv_cli("run", "swebench", "--grader", "swebench")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith("kvv run: --grader swebench: the container engine at /nonexistent does not answer")


# --- the real one ----------------------------------------------------------------------------------


@pytest.fixture
def real(instances: dict[str, Instance]) -> dict[str, Any]:
    """A row whose image is there; skips where the harness or an engine is not."""
    if find_spec("swebench") is None:
        pytest.skip("swebench is not installed (pip install 'swebench>=5,<6')")
    if why := missing():
        pytest.skip(why)
    row = dict(instances["kvv__tasks-1"].row)
    bundle = row.pop("bundle")
    return {**row, "image": in_image(bundle, "/testbed", "kvv-test-testbed")}


def test_the_real_harness_agrees_with_our_grader_on_the_control_patches(
    real: dict[str, Any], instances: dict[str, Instance]
) -> None:
    case = official_case(real)
    for patch, reason in (
        (real["patch"], ""),
        (new_file("NOTES.md", ["# nothing"]), "tests-fail"),
        (instances["kvv__shares-1"].row["patch"], "patch-apply-failed"),
    ):
        found: Graded = asyncio.run(_graded(case, patch))
        assert found.reason == reason, found.detail
    path = socket_path()
    assert path is not None
    assert [
        entry for entry in ContainerEngine(path).labelled(LABEL) if f"/{os.getpid()}/" in str(entry["labels"])
    ] == []


async def _graded(case: Case, patch: str) -> Graded:
    sandbox = WithHarness(Containers())
    trees, play = Trees(sandbox, case, slots()), grade_officially(case, patch)
    try:
        step = next(play)
        while True:
            assert isinstance(step, Exec)
            step = play.send(await trees.run(step))
    except StopIteration as end:
        found: Graded = end.value
        return found
    finally:
        await trees.close()
        await sandbox.close()


def test_without_the_docker_program_its_container_goes_all_the_same(
    real: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    removed: list[str] = []
    remove = ContainerEngine.remove

    def noted(self: ContainerEngine, container: str) -> None:
        removed.append(container)
        remove(self, container)

    monkeypatch.setattr(ContainerEngine, "remove", noted)
    assert asyncio.run(_graded(official_case(real), real["patch"])).resolved
    assert len(removed) == 1


def test_an_image_that_is_not_there_is_nobodys_verdict(real: dict[str, Any]) -> None:
    case = official_case({**real, "image": "localhost/kvv-no-such-image:latest"})
    found = asyncio.run(_graded(case, real["patch"]))
    assert found.reason == "harness-failed", found.detail


HOLD = """
import asyncio, json, sys
from kvv.sandbox.adapters.harness import COMMAND, TREE, WithHarness
from kvv.core import Command
from kvv.sandbox import Workspace
from kvv.sandbox.container import Containers
async def main():
    sandbox = WithHarness(Containers())
    asked = json.load(sys.stdin)
    session = await sandbox.open(Workspace(image=asked["row"]["image"]), TREE)
    print("open", flush=True)
    await session.run(Command(argv=COMMAND, stdin=json.dumps(asked), timeout_s=300))
asyncio.run(main())
"""


def test_after_kill_9_neither_the_harness_nor_its_container_is_left(real: dict[str, Any], tmp_path: Path) -> None:
    mark = f"sleep 98{os.getpid()}"
    row = {**official.columns(real), "eval_script": f"#!/bin/bash\n{mark}\n"}
    asked = {
        "row": row,
        "prediction": {"instance_id": row["instance_id"], "model_name_or_path": "kvv", "model_patch": real["patch"]},
    }
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.write(json.dumps(asked))
    holder.stdin.close()
    assert holder.stdout.readline() == "open\n"
    holder.stdout.close()
    assert soon(lambda: running(mark), 120)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert soon(lambda: not running(mark) and not running(str(tmp_path)), 60)
    path = socket_path()
    assert path is not None
    assert soon(
        lambda: (
            not [entry for entry in ContainerEngine(path).labelled(LABEL) if f"/{holder.pid}/" in str(entry["labels"])]
        ),
        60,
    )
    assert soon(lambda: not list(tmp_path.iterdir()), 60)


def running(mark: str) -> bool:
    found = (
        path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists()
    )
    return any(line.startswith(mark) or f" {mark}" in line for line in found)


def soon(fact: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if fact():
            return True
        time.sleep(0.1)
    return False


def test_a_whole_run_is_graded_by_it_and_replays_offline(real: dict[str, Any], kvv_cli: Run, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({name: value for name, value in real.items() if name != "bundle"}) + "\n")
    with server(1.0) as served:
        options = ("--base-url", served.base_url, "--model", "kimi-k3", "--data", f"swebench={data}", "--yes")
        ran = kvv_cli("run", "swebench", *options, "--sandbox", "docker", "--grader", "swebench")
    row = ran.row("swebench")
    assert (row["value"], row["n_concluded"]) == (1.0, 1), ran.said
    assert row["comparability"]["grader"].startswith("swebench 5.")
    report = json.loads((ran.folder / "swebench/logs/kimi-k3/kvv__tasks-1/report.json").read_text())
    assert report["kvv__tasks-1"]["tests_status"]["FAIL_TO_PASS"]["success"] == real["FAIL_TO_PASS"]
    again = kvv_cli("score", str(ran.folder))
    assert "1 samples judged again, 0 verdicts changed" in again.said
