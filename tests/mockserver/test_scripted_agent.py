"""An agent's turns by script: a conversation stays with the script it began, one draw decides it, and only its end is
counted.
"""

import json
from typing import Any

import httpx
import pytest

from kvv.mockserver import KeyedAnswer, MockConfig, MockServer, Reply

RIGHT, WRONG = ("look", "fix", "submit"), ("look", "break", "submit")
ENTRY = KeyedAnswer(
    suite="agent", case="c", prompt="Mend the frobnicator.", right=Reply(turns=RIGHT), wrong=Reply(turns=WRONG)
)
BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def episode(server: MockServer, turns: int, *, tools: bool = True) -> list[str]:
    """The commands of one conversation."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Please do this.\n\n{ENTRY.prompt}"}]
    commands = []
    for _ in range(turns):
        body: dict[str, Any] = {"model": "kimi-k3", "messages": messages}
        if tools:
            body["tools"] = [BASH]
        said = httpx.post(f"{server.base_url}/chat/completions", json=body, timeout=30).json()["choices"][0]["message"]
        messages.append({key: value for key, value in said.items() if value is not None})
        if tools:
            (call,) = said["tool_calls"]
            commands.append(json.loads(call["function"]["arguments"])["command"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"output of {commands[-1]}"})
        else:
            commands.append(said["content"].split("```mswea_bash_command\n")[1].split("\n```")[0])
            messages.append({"role": "user", "content": f"output of {commands[-1]}"})
    return commands


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize(("accuracy", "script"), [(1.0, RIGHT), (0.0, WRONG)])
def test_each_turn_gives_the_scripts_next_command(accuracy: float, script: tuple[str, ...], tools: bool) -> None:
    with MockServer(MockConfig(accuracy=accuracy, answers=(ENTRY,))) as server:
        assert episode(server, 4, tools=tools) == [*script, "submit"]
        assert server.stats()["answers"] == {"agent": {"asked": 1, "right": int(accuracy)}}


def test_a_conversation_keeps_to_its_script_and_the_count_equals_what_was_given() -> None:
    with MockServer(MockConfig(accuracy=0.5, seed=1, answers=(ENTRY,))) as server:
        given = [tuple(episode(server, 3)) for _ in range(12)]
        counted = server.stats()["answers"]["agent"]  # type: ignore[index, call-overload]
    assert set(given) == {RIGHT, WRONG}
    assert counted == {"asked": 12, "right": given.count(RIGHT)}


def test_a_conversation_that_ends_early_is_not_counted() -> None:
    with MockServer(MockConfig(answers=(ENTRY,))) as server:
        assert episode(server, 2) == ["look", "fix"]
        assert server.stats()["answers"] == {}


def test_an_entry_that_is_harder_than_the_others_is_missed_more_often() -> None:
    never = KeyedAnswer(
        suite="agent", case="c", prompt=ENTRY.prompt, right=Reply(turns=RIGHT), wrong=Reply(turns=WRONG), ease=0.0
    )
    with MockServer(MockConfig(accuracy=1.0, answers=(never,))) as server:
        assert tuple(episode(server, 3)) == WRONG
