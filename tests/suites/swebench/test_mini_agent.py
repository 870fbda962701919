"""mini-swe-agent's own agent, where the package is installed: its prompts and limits, our transport and sandbox, our
named states.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kvv.core import Ask, Case, Choice, Done, Exec, Fault, FaultKind, Outcome, Reply, Verdict
from kvv.sandbox import Sandbox
from kvv.sandbox.adapters import AGENTS, identity
from kvv.suites.swebench.agent import COMMANDS
from kvv.suites.swebench.prompts import FENCE, MARK

from .conftest import Instance
from .test_agent_fold import answered, asked, call, executed, output, run, step

Run = Callable[..., Any]

installed = pytest.mark.skipif(
    find_spec("minisweagent") is None, reason="mini-swe-agent is not installed (pip install 'mini-swe-agent>=2.4,<3')"
)

PATCH = "diff --git a/x b/x\n"


def test_where_it_is_not_installed_one_line_names_the_option_and_what_to_install(
    kvv_cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import PackageNotFoundError

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("kvv.sandbox.adapters.version", absent)
    ran = kvv_cli("run", "swebench", "--agent", "mini")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "kvv run: --agent mini: mini-swe-agent is not installed (pip install 'mini-swe-agent>=2.4,<3')\n"


@pytest.fixture
def case(instances: dict[str, Instance]) -> Case:
    found = instances["kvv__intervals-1"].case
    return replace(found, inputs={**found.inputs, "agent": identity(AGENTS, "mini")})


def text_mode(case: Case) -> Case:
    return replace(case, inputs={**case.inputs, "mode": "text"})


def verdict_of(found: object) -> Verdict:
    assert isinstance(found, Done)
    return found.verdict


def fenced(*commands: str) -> Any:
    return answered(
        Choice(answer="\n".join(f"```{FENCE}\n{command}\n```" for command in commands), finish_reason="stop")
    )


@installed
def test_its_own_prompt_and_tool_go_out_with_our_sampling_and_its_home_is_left_alone(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(os.environ)
    found = step(case)
    assert dict(os.environ) == before
    system, user = asked(found)
    assert system["content"].startswith("You are a helpful assistant that can interact with a computer shell")
    assert "`union` leaves intervals apart" in user["content"]
    assert "Step 1: Create the patch file" in user["content"]
    assert isinstance(found, Ask)
    body = found.requests[0].body
    assert isinstance(body, dict)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["bash"]
    assert body["model"] == "kimi-k3"
    assert "extra" not in system


@installed
def test_a_command_runs_with_its_environment_and_its_output_comes_back_in_its_form(case: Case) -> None:
    one = call(run("ls"), reasoning="let me look", reasoning_field="reasoning_content")
    ran = step(case, one)
    assert executed(ran) == "ls"
    assert isinstance(ran, Exec)
    assert "PAGER=cat" in ran.command.argv
    assert not any(part.startswith("BASH_ENV") for part in ran.command.argv)
    in_image = step(replace(case, inputs={**case.inputs, "sandbox": {"image": "x", "workdir": "/testbed"}}), one)
    assert isinstance(in_image, Exec)
    assert {"PAGER=cat", "BASH_ENV=/root/.bashrc"} < set(in_image.command.argv)
    *_, said, told = asked(step(case, one, output("a b\n", 3)))
    assert said["reasoning_content"] == "let me look"
    assert said["tool_calls"][0]["function"]["arguments"] == '{"command": "ls"}'
    assert (told["role"], told["tool_call_id"]) == ("tool", "bash_0")
    assert "<returncode>3</returncode>" in told["content"]
    assert "a b" in told["content"]


@installed
def test_what_it_submits_is_graded_and_a_failed_submission_is_not(case: Case) -> None:
    submit = call(run(f"echo {MARK} && cat patch.txt"))
    failed = step(case, submit, output(f"{MARK}\n{PATCH}", 1))
    assert isinstance(failed, Ask)
    found = step(case, submit, output(f"{MARK}\n{PATCH}"))
    assert isinstance(found, Exec)
    assert (found.tree, found.command.stdin) == ("grade", PATCH)
    empty = verdict_of(step(case, submit, output(f"{MARK}\n")))
    assert (empty.reason, empty.facts["exit"], empty.facts["agent"]) == (
        "empty-patch",
        "submitted",
        identity(AGENTS, "mini"),
    )


@installed
def test_three_answers_in_a_row_without_a_command_end_it_and_a_good_one_between_begins_anew(case: Case) -> None:
    bad = answered(Choice(answer="hm", finish_reason="stop"))
    ended = verdict_of(step(case, bad, bad, bad))
    assert (ended.outcome, ended.reason, ended.facts["steps"]) == (Outcome.FAIL, "format-errors", 3)
    good: list[Reply] = [call(run("ls")), output()]
    assert isinstance(step(case, bad, bad, *good, bad, bad), Ask)
    for odd in (call("{"), call(run("ls"), name="python"), call({"cmd": "ls"}), call("[" * 100_000)):
        assert isinstance(step(case, odd), Ask)


@installed
@pytest.mark.parametrize("command", [5, None, {"a": 1}, "", "a\0b", "\ud800", "x" * 130_000])
def test_a_command_that_no_shell_can_be_given_is_told_and_not_run(case: Case, command: object) -> None:
    *_, told = asked(step(case, call({"command": command})))
    assert "An error occurred while executing the command" in told["content"]


@installed
def test_a_command_that_takes_too_long_is_told_with_what_it_said(case: Case) -> None:
    *_, told = asked(step(case, call(run("sleep 100")), output("partly\n", None)))
    assert "timed out after 60 seconds" in told["content"]
    assert "partly" in told["content"]


@installed
def test_limits_end_it_in_named_states(case: Case) -> None:
    turn: list[Reply] = [call(run("ls")), output()]
    steps = verdict_of(step(case, *(turn * 250)))
    assert (steps.reason, steps.facts["steps"]) == ("step-limit", 250)
    priced = replace(case, inputs={**case.inputs, "prices": {"input": 20_000.0, "cached": 0.0, "output": 0.0}})
    cost = verdict_of(step(priced, *(turn * 2)))
    assert (cost.reason, cost.facts["cost"]) == ("cost-limit", 4.0)
    many = call(*[run("true")] * (COMMANDS + 1))
    assert verdict_of(step(case, many, *[output()] * COMMANDS)).reason == "command-limit"
    timed = replace(case, inputs={**case.inputs, "limits": {**case.inputs["limits"], "agent_s": 5}})
    assert verdict_of(step(timed, *(turn * 2))).reason == "time-limit"


@installed
def test_an_endpoint_that_fails_or_overflows_ends_it_as_it_ends_our_own_agent(case: Case) -> None:
    turn: list[Reply] = [call(run("ls")), output()]
    lost = verdict_of(step(case, *turn, answered(Choice(), fault=Fault(kind=FaultKind.RESET, detail="reset"))))
    assert (lost.outcome, lost.reason) == (Outcome.INCONCLUSIVE, "reset")
    full = answered(Choice(), status=400, error="maximum context length is 8192 tokens")
    short = verdict_of(step(case, *turn, full, (*full, call()[0])))
    assert (short.outcome, short.reason) == (Outcome.FAIL, "context-below-promise")
    unpromised = replace(case, inputs={**case.inputs, "window": None})
    over = verdict_of(step(unpromised, *turn, full))
    assert (over.outcome, over.reason) == (Outcome.FAIL, "context-overflow")


@installed
def test_fenced_commands_take_exactly_one_block_and_hostile_answers_take_no_time(case: Case) -> None:
    case = text_mode(case)
    found = step(case)
    assert isinstance(found, Ask)
    assert isinstance(found.requests[0].body, dict)
    assert "tools" not in found.requests[0].body
    assert executed(step(case, fenced("ls"))) == "ls"
    *_, told = asked(step(case, fenced("ls", "pwd")))
    assert "found 2 actions" in told["content"]
    began = time.process_time()
    assert isinstance(step(case, answered(Choice(answer=f"```{FENCE}\n" * 40_000, finish_reason="stop"))), Ask)
    assert time.process_time() - began < 20  # minutes, where each opening is looked at to the end


@installed
@pytest.mark.parametrize("mode", ["tools", "text"])
def test_a_task_that_ends_with_a_commit_has_the_packages_own_prompt_for_that(case: Case, mode: str) -> None:
    task = {"agent_s": 0, "collect_s": 300, "verifier_s": 300, "files": {"test.sh": ""}, "reports": [], "format": ""}
    case = replace(
        case,
        inputs={**case.inputs, "commits": True, "task_files": task, "mode": mode, "task": "Add a flag and commit it."},
    )
    _, user = asked(step(case))
    assert user["content"].startswith("Please solve this issue: Add a flag and commit it.")
    assert "git diff" not in user["content"]
    done = call(run(f"echo {MARK}")) if mode == "tools" else fenced(f"echo {MARK}")
    found = step(case, done, output(f"{MARK}\n"))
    assert isinstance(found, Exec)
    assert "diff --binary" in found.command.argv[-1]


@installed
def test_a_whole_run_equals_the_servers_count_and_replays_offline(
    kvv_cli: Run, sandbox: Sandbox, tmp_path: Path
) -> None:
    ran = kvv_cli("run", "swebench", "--agent", "mini")
    assert ran.code == 0, ran.said
    row = ran.row("swebench")
    assert row["value"] == pytest.approx(row["reference"]["value"])
    assert row["comparability"]["agent"] == f"{identity(AGENTS, 'mini')} (tools)"
    again = kvv_cli("score", str(ran.folder))
    assert "6 samples judged again, 0 verdicts changed" in again.said
    own = kvv_cli("run", "swebench", out=tmp_path / "own")
    refused = kvv_cli("compare", str(ran.folder), str(own.folder))
    assert refused.code == 2
    assert "agent differs" in refused.err


@installed
def test_a_run_of_another_version_is_not_judged_again(
    kvv_cli: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = kvv_cli("run", "swebench", "--agent", "mini", "--case", "swebench/kvv__tasks-1")
    monkeypatch.setattr("kvv.sandbox.adapters.version", lambda _: "9.9")
    again = kvv_cli("score", str(ran.folder))
    assert again.code == 2
    assert "is needed, mini-swe-agent is 9.9" in again.err
    resumed = kvv_cli("resume", str(ran.folder))
    assert resumed.code == 2
    assert "its agent was mini-swe-agent" in resumed.err
