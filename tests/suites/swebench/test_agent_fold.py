"""The agent without a model: what it asks, what it runs, and in which named state it ends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kvv.cases.suite import Result
from kvv.core import (
    Answered,
    Ask,
    Case,
    Choice,
    Done,
    ErrorBody,
    Exchange,
    Exec,
    Executed,
    Fault,
    FaultKind,
    Fragment,
    Identity,
    Observation,
    Outcome,
    Reply,
    Request,
    Role,
    Shape,
    Step,
    Timing,
    ToolCall,
    UsageReport,
)
from kvv.protocol.encode import encode
from kvv.suites.swebench.instance import variant_of
from kvv.suites.swebench.prompts import FENCE, MARK

from .conftest import SUITE, Instance, context


def answered(choice: Choice, *, status: int = 200, error: str = "", fault: Fault | None = None) -> tuple[Answered]:
    usage = UsageReport(place="summary", frame=1, raw={"prompt_tokens": 100, "completion_tokens": 10})
    exchange = Exchange(
        identity=Identity(case="c", sample=0, step=0, ask=0, purpose="probe"),
        attempt=1,
        role=Role.TARGET,
        started="",
        status=None if fault else status,
        fault=fault,
        timing=Timing(total_ms=2_000),
    )
    said = Observation(shape=Shape.COMPLETION, choices=(choice,), usage=(usage,))
    if error:
        said = Observation(shape=Shape.ERROR, error=ErrorBody(message=error, type="invalid_request_error"))
    elif fault:
        said = Observation(shape=Shape.NONE)
    return (Answered(request=Request(body={}), exchange=exchange, observation=said),)


def call(*commands: Any, name: str = "bash", finish: str = "tool_calls", **fields: Any) -> tuple[Answered]:
    calls = tuple(
        ToolCall(
            index=n, id=f"bash_{n}", name=name, arguments=command if isinstance(command, str) else json.dumps(command)
        )
        for n, command in enumerate(commands)
    )
    return answered(Choice(answer="", tool_calls=calls, finish_reason=finish, **fields))


def run(command: str) -> dict[str, str]:
    return {"command": command}


def output(text: str = "", code: int | None = 0, **fields: Any) -> Executed:
    return Executed(exit_code=code, output=text, timed_out=code is None, seconds=0.5, **fields)


def step(case: Case, *history: Reply) -> Step:
    return SUITE.step(case, history)


def asked(found: Step) -> list[dict[str, Any]]:
    assert isinstance(found, Ask)
    (request,) = found.requests
    assert isinstance(request.body, dict)
    messages: list[dict[str, Any]] = request.body["messages"]
    return messages


def executed(found: Step) -> str:
    assert isinstance(found, Exec)
    assert found.tree == "work"
    assert found.command.timeout_s == 60
    return found.command.argv[-1]


@pytest.fixture
def case(instances: dict[str, Instance]) -> Case:
    return instances["kvv__intervals-1"].case


def with_(case: Case, **inputs: Any) -> Case:
    return replace(case, inputs={**case.inputs, **inputs})


def test_it_begins_with_the_issue_and_one_bash_tool(case: Case) -> None:
    found = step(case)
    system, user = asked(found)
    assert (system["role"], user["role"]) == ("system", "user")
    assert "`union` leaves intervals apart" in user["content"]
    assert f"echo {MARK} && cat patch.txt" in user["content"]
    assert isinstance(found, Ask)
    body = found.requests[0].body
    assert isinstance(body, dict)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["bash"]


def test_calls_run_in_order_and_their_outputs_answer_their_ids(case: Case) -> None:
    one = call(run("ls"), run("pwd"), reasoning="let me look", reasoning_field="reasoning_content")
    assert executed(step(case, one)) == "ls"
    assert executed(step(case, one, output("a\n"))) == "pwd"
    messages = asked(step(case, one, output("a\n"), output("/testbed", code=1)))
    assert messages[2] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "let me look",
        "tool_calls": [
            {"id": "bash_0", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}},
            {"id": "bash_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "pwd"}'}},
        ],
    }
    assert messages[3:] == [
        {"role": "tool", "tool_call_id": "bash_0", "content": "a\n[exit code 0]"},
        {"role": "tool", "tool_call_id": "bash_1", "content": "/testbed\n[exit code 1]"},
    ]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_goes_back_under_the_endpoints_own_name(case: Case, field: str) -> None:
    messages = asked(step(case, call(run("ls"), reasoning="why", reasoning_field=field), output()))
    assert messages[2][field] == "why"
    assert not {"reasoning_content", "reasoning"} - {field} & set(messages[2])


def test_a_long_output_is_cut_in_the_middle_as_mini_swe_agent_does(case: Case) -> None:
    exactly = asked(step(case, call(run("x")), output("a" * 10_000)))[-1]["content"]
    assert exactly.startswith("a" * 10_000)
    longer = asked(step(case, call(run("x")), output("a" * 6_000 + "b" * 6_001)))[-1]["content"]
    assert "[2001 characters left out]" in longer
    assert longer.startswith("a" * 5_000 + "\n")
    assert "b" * 5_000 + "\n[exit code 0]" in longer


def test_a_time_out_is_told_and_the_agent_goes_on(case: Case) -> None:
    messages = asked(step(case, call(run("sleep 99")), output("so far", code=None)))
    assert "so far\n[killed after 60 s" in messages[-1]["content"]


def test_a_submission_is_all_after_the_mark_and_goes_to_a_fresh_tree(case: Case) -> None:
    found = step(case, call(run("submit")), output(f"\n{MARK}\ndiff --git a/x b/x\n"))
    assert isinstance(found, Exec)
    assert (found.tree, found.command.stdin) == ("grade", "diff --git a/x b/x\n")
    assert found.command.argv[:2] == ("git", "apply")


@pytest.mark.parametrize(
    "reply", [output(f"{MARK}\nx", code=1), output(f"done {MARK}\nx"), output(f"first\n{MARK}\nx")]
)
def test_a_mark_that_is_not_the_first_line_of_a_command_that_succeeded_submits_nothing(
    case: Case, reply: Executed
) -> None:
    assert isinstance(step(case, call(run("submit")), reply), Ask)


def verdict(found: Step) -> Any:
    assert isinstance(found, Done)
    return found.verdict


def test_an_empty_submission_is_unresolved_as_empty(case: Case) -> None:
    found = verdict(step(case, call(run("submit")), output(f"{MARK}\n\n")))
    assert (found.outcome, found.reason, found.facts["exit"], found.values["resolved"]) == (
        Outcome.FAIL,
        "empty-patch",
        "submitted",
        0.0,
    )


BAD = {
    "no call": answered(Choice(answer="I am done", finish_reason="stop")),
    "other tool": call(run("ls"), name="python"),
    "no JSON": call('{"command": "ls"'),
    "no command": call({"cmd": "ls"}),
    "no text": call({"command": 3}),
    "blank": call({"command": "  "}),
    "NUL": call({"command": "a\0b"}),
    "surrogate": call('{"command": "echo \\ud800"}'),
    "too long": call({"command": "x" * 130_000}),
    "list": call("[1]"),
    "deep": call("[" * 100_000),
}


@pytest.mark.parametrize("name", BAD)
def test_an_answer_without_a_command_that_can_run_is_told_so_in_a_valid_history(case: Case, name: str) -> None:
    messages = asked(step(case, BAD[name]))
    assert [message["role"] for message in messages[2:]] == ["assistant", "user"]
    assert messages[-1]["content"].startswith("No command was run: ")
    assert messages[2]["content"]
    assert "tool_calls" not in messages[2]


def test_three_such_answers_in_a_row_end_it(case: Case) -> None:
    bad, good = BAD["no call"], call(run("ls"))
    found = verdict(step(case, bad, bad, bad))
    assert (found.outcome, found.reason) == (Outcome.FAIL, "format-errors")
    assert isinstance(step(case, bad, bad, good, output(), bad, bad), Ask)


def test_answers_cut_by_the_output_limit_end_as_that(case: Case) -> None:
    cut = answered(Choice(answer="thinking", finish_reason="length"))
    found = verdict(step(case, cut, cut, cut))
    assert (found.reason, found.truncated) == ("length-cut", True)


def test_the_step_limit_counts_answers(case: Case) -> None:
    limited = with_(case, limits={**case.inputs["limits"], "steps": 2})
    assert isinstance(step(limited, call(run("a")), output("1")), Ask)
    found = verdict(step(limited, call(run("a")), output("1"), call(run("b")), output("2")))
    assert (found.reason, found.facts["steps"], found.outcome) == ("step-limit", 2, Outcome.FAIL)


def test_the_cost_limit_counts_what_the_usage_says(case: Case) -> None:
    prices = {"input": 10_000.0, "cached": 0.0, "output": 0.0}
    limited = with_(case, prices=prices, limits={**case.inputs["limits"], "cost": 1.5})
    assert isinstance(step(limited, call(run("a")), output("1")), Ask)  # 100 tokens at $10,000 a million: $1
    found = verdict(step(limited, call(run("a")), output("1"), call(run("b")), output("2")))
    assert (found.reason, found.facts["cost"]) == ("cost-limit", pytest.approx(2.0))
    unpriced = with_(limited, prices=None)
    assert isinstance(step(unpriced, call(run("a")), output("1"), call(run("b")), output("2")), Ask)


def test_the_time_limit_adds_the_models_time_and_the_commands(case: Case) -> None:
    limited = with_(case, limits={**case.inputs["limits"], "agent_s": 5})
    assert isinstance(step(limited, call(run("a")), output()), Ask)  # 2 s + 0.5 s
    assert verdict(step(limited, call(run("a")), output("1"), call(run("b")), output("2"))).reason == "time-limit"


def test_the_same_command_with_the_same_output_is_a_loop(case: Case) -> None:
    turn: list[Reply] = [call(run("ls")), output("same")]
    assert isinstance(step(case, *turn * 19), Ask)
    assert verdict(step(case, *turn * 20)).reason == "loop"
    varied = [reply for n in range(20) for reply in (call(run("ls")), output(str(n)))]
    assert isinstance(step(case, *varied), Ask)


def refused(message: str, *, prompt: str = "", code: str | None = None) -> tuple[Answered]:
    (found,) = answered(Choice(), status=400, error=message)
    said = replace(found.observation, error=ErrorBody(message=message, type="invalid_request_error", code=code))
    return (replace(found, request=Request(body={"messages": [prompt]}), observation=said),)


#: more bytes than the promised window has tokens
LONG = "x" * 1_100_000
STATED = "This model's maximum context length is 1,048,576 tokens. However, you requested 1,050,000 tokens."


@pytest.mark.parametrize(
    "full", [refused(STATED, prompt=LONG), refused("no", prompt=LONG, code="context_length_exceeded")]
)
def test_a_history_that_no_longer_fits_ends_the_agent_with_the_endpoints_words(
    case: Case, full: tuple[Answered]
) -> None:
    unmeasured = replace(call(run("ls"))[0], observation=replace(call(run("ls"))[0].observation, usage=()))
    late = verdict(step(case, (unmeasured,), output(), full))
    assert (late.outcome, late.reason) == (Outcome.FAIL, "context-overflow")
    said = full[0].observation.error
    assert said is not None
    assert late.facts["refusal"] == said.message
    assert late.detail.endswith(said.message)


@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [
        # claimed at some hundred of 1,048,576 tokens
        ("too long", "context_length_exceeded", "context-below-promise"),
        (STATED, None, "context-below-promise"),
        (
            "The input (41020 tokens) is longer than the model's context length (40960 tokens).",
            None,
            "context-below-promise",
        ),
        ("prompt is too long: 201000 tokens > 200000 maximum", None, "context-below-promise"),
        ("Input token length too long: 300000 > 262144", None, "context-below-promise"),
        ("Invalid request: Your request exceeded model token limit: 131072", None, "context-below-promise"),
        # words that an overflow has too
        ("the prompt exceeds the maximum context length", None, "valid-request-refused"),
        ("too many requests in this context", None, "valid-request-refused"),
        ("tool_call_id is unknown", None, "valid-request-refused"),
        ("token limit 100000 per minute reached", None, "valid-request-refused"),
        ("messages: at most 128 tools exceed the limit", None, "valid-request-refused"),
        (
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
            None,
            "reasoning-demanded",
        ),
    ],
)
def test_any_other_refusal_in_mid_work_is_confirmed_and_the_vendors(
    case: Case, message: str, code: str | None, reason: str
) -> None:
    no, answer = refused(message, code=code), call()[0]
    late = step(case, call(run("ls")), output(), no)
    assert isinstance(late, Ask)
    assert [request.purpose for request in late.requests] == ["confirm", "beside"]
    confirmed = verdict(step(case, call(run("ls")), output(), no, (*no, answer)))
    assert (confirmed.outcome, confirmed.reason) == (Outcome.FAIL, reason)
    assert message[:100] in confirmed.detail
    unstable = verdict(step(case, call(run("ls")), output(), no, (answer, answer)))
    assert (unstable.outcome, unstable.reason) == (Outcome.INCONCLUSIVE, "unstable-refusal")


def test_a_refused_first_request_is_the_vendors(case: Case) -> None:
    first = verdict(step(case, refused(STATED), (*refused(STATED), call()[0])))
    assert (first.outcome, first.reason) == (Outcome.FAIL, "valid-request-refused")


def test_a_window_that_nobody_promised_is_taken_as_it_is_told(case: Case) -> None:
    unknown = with_(case, window=None)
    late = verdict(step(unknown, call(run("ls")), output(), refused("maximum context length is 8192 tokens")))
    assert (late.outcome, late.reason) == (Outcome.FAIL, "context-overflow")


def test_a_request_that_is_refused_once_is_asked_again_beside_a_plain_one(case: Case) -> None:
    refused = answered(Choice(), status=400, error="tool_call_id is unknown")
    asked = step(case, call(run("ls")), output(), refused)
    assert isinstance(asked, Ask)
    assert [request.purpose for request in asked.requests] == ["confirm", "beside"]
    mended = verdict(step(case, call(run("ls")), output(), refused, (call()[0], call()[0])))
    assert (mended.outcome, mended.reason) == (Outcome.INCONCLUSIVE, "unstable-refusal")
    everything = verdict(step(case, call(run("ls")), output(), refused, (*refused, *refused)))
    assert (everything.outcome, everything.reason) == (Outcome.INCONCLUSIVE, "control-not-answered")


def test_silence_is_nobodys_failure(case: Case) -> None:
    found = verdict(
        step(case, call(run("ls")), output(), answered(Choice(), fault=Fault(kind=FaultKind.RESET, detail="reset")))
    )
    assert (found.outcome, found.reason, dict(found.values)) == (Outcome.INCONCLUSIVE, "reset", {})
    assert found.facts["steps"] == 2


def test_text_mode_takes_one_fenced_block_and_answers_as_the_user(case: Case) -> None:
    text = with_(case, mode="text")
    block = answered(Choice(answer=f"First I look.\n\n```{FENCE}\nls -l\n```\n", finish_reason="stop"))
    assert executed(step(text, block)) == "ls -l"
    messages = asked(step(text, block, output("a")))
    assert messages[2] == {"role": "assistant", "content": f"First I look.\n\n```{FENCE}\nls -l\n```\n"}
    assert messages[3] == {"role": "user", "content": "a\n[exit code 0]"}
    two = answered(Choice(answer=f"```{FENCE}\nls\n```\n```{FENCE}\npwd\n```", finish_reason="stop"))
    assert "there are 2 command blocks" in asked(step(text, two))[-1]["content"]


def test_a_time_out_of_the_tests_on_an_emulated_processor_says_nothing(case: Case) -> None:
    history: list[Reply] = [call(run("s")), output(f"{MARK}\ndiff --git a/x b/x\n"), output(), output(), output()]
    slow = verdict(step(case, *history, output("", code=None, emulated=True)))
    assert (slow.outcome, slow.reason) == (Outcome.INCONCLUSIVE, "emulated-timeout")
    native = verdict(step(case, *history, output("", code=None)))
    assert (native.outcome, native.reason) == (Outcome.FAIL, "test-timeout")


def test_the_page_of_a_trajectory_shows_every_step_and_lets_no_text_out_of_its_place(case: Case) -> None:
    evil = "<script>alert(1)</script>\x1b[2J\u202e"
    first = call(run(f"echo '{evil}'"), reasoning=evil, reasoning_field="reasoning")
    history: list[Reply] = [first, output(evil), call(run("s")), output(f"{MARK}\n\n")]
    found = verdict(step(case, *history))
    (name, text), *_ = SUITE.files([Result(case=case, verdict=found, replies=lambda: history)], context())
    assert name == "swebench/logs/kimi-k3/kvv__intervals-1/trajectory.html"
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3
    assert "empty-patch" in text


@pytest.mark.parametrize(
    ("variant", "data", "mode"),
    [
        ("", "", "tools"),
        ("lite", "lite", "tools"),
        ("text", "verified", "text"),
        ("lite-text", "lite", "text"),
        ("tools-full", "full", "tools"),
    ],
)
def test_a_variant_names_a_set_and_a_mode(variant: str, data: str, mode: str) -> None:
    assert SUITE.data_variant(variant) == data
    chosen = variant_of(variant)
    assert chosen is not None
    assert chosen[1] == mode


@pytest.mark.parametrize("variant", ["vision", "lite-full", "text-tools", "lite-", "-"])
def test_what_is_no_variant_of_ours_is_not_taken(variant: str) -> None:
    assert SUITE.data_variant(variant) == ""


def test_a_long_history_is_sent_in_parts_that_are_serialised_once_and_says_the_same(case: Case) -> None:
    history: list[Reply] = []
    for number in range(30):
        history += [call(run(f"cat part{number}")), output(f"{number} é \ud800 " + "x" * 3_000)]
    found, earlier = step(case, *history), step(case, *history[:-2])
    messages, before = asked(found), asked(earlier)
    sealed = [message for message in messages if isinstance(message, Fragment)]
    assert len(sealed) >= 2
    assert [fragment.digest for fragment in before if isinstance(fragment, Fragment)] == [
        fragment.digest for fragment in sealed
    ][: len(before)]
    assert isinstance(found, Ask)
    body = json.loads(b"".join(encode(found.requests[0].body).parts))
    assert len(body["messages"]) == 2 + 60
    assert body["messages"][3]["content"].startswith("0 é \ud800 xxx")
    assert [message["role"] for message in body["messages"][2:]] == ["assistant", "tool"] * 30


@pytest.mark.parametrize("answer", ["```bash\n" * 200_000, f"```{FENCE}\n" + "x\n" * 300_000, "```\n" * 200_000])
def test_an_answer_of_nothing_but_openings_is_read_in_one_pass(case: Case, answer: str) -> None:
    found = asked(step(with_(case, mode="text"), answered(Choice(answer=answer, finish_reason="stop"))))
    assert isinstance(found[-1], dict)
    assert "there are 0 command blocks" in found[-1]["content"]
