"""mini-swe-agent's own agent as a play: its messages and limits, our transport and our sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvv.cases.confirm_refusal import once_more
from kvv.core import Ask, Case, Command, Exec, Executed, Observation, Request
from kvv.sandbox.adapters import check_installed, mini
from kvv.sandbox.adapters.bridge import Perform, play_on_thread
from kvv.suites.swebench.agent import (
    COMMANDS,
    OUTPUT_LIMIT,
    REFUSED,
    Messages,
    Play,
    Trajectory,
    assistant,
    call_id,
    heard,
    unfit,
)
from kvv.suites.swebench.overflow import judge_refusal

#: how a result names it, before the version
NAME = "mini-swe-agent"

#: turns where the package's configuration sets no limit (tasks that end with a commit)
MOST_TURNS = 400

_EXITS: Mapping[str, str] = {
    "Submitted": "submitted",
    "TimeExceeded": "time-limit",
    "RepeatedFormatError": "format-errors",
}


def mini_agent(case: Case) -> Play:
    """Plays until the agent ends. AdapterError unless the version that the case names is installed."""
    inputs = case.inputs
    check_installed(inputs["agent"])
    went = Trajectory(agent=inputs["agent"])

    def work(perform: Perform) -> None:
        host = _Host(case, went, perform)
        try:
            ended = mini.run(
                inputs["task"], host, text=inputs["mode"] == "text", commits=inputs["commits"], most_steps=MOST_TURNS
            )
        except _Stopped as stopped:
            went.exit = stopped.exit
            return
        went.submission = ended.submission
        limit = "step-limit" if ended.steps_used_up else "cost-limit"
        went.exit = _EXITS.get(ended.status) or (limit if ended.status == "LimitsExceeded" else "agent-failed")
        if went.exit == "submitted" and host.elided:
            went.exit = "submission-too-long"

    yield from play_on_thread(work)
    return went


class _Stopped(Exception):
    """The endpoint or a bound of ours has ended the agent."""

    def __init__(self, exit_state: str) -> None:
        super().__init__(exit_state)
        self.exit = exit_state


class _Host:
    """Each call of the agent is a step."""

    def __init__(self, case: Case, went: Trajectory, perform: Perform) -> None:
        self._case = case
        self._went = went
        self._perform = perform
        self._heard = 0
        self._messages = Messages([])
        #: characters left out of the last output
        self.elided = 0

    def out_of_time(self) -> bool:
        limit = self._case.inputs["limits"]["agent_s"]
        return bool(limit) and self._went.model_s + self._went.command_s >= limit

    def ask(self, messages: list[dict[str, Any]], fields: Mapping[str, Any]) -> mini.Said:
        inputs, before = self._case.inputs, self._went.cost or 0.0
        # the agent's history only grows; what is its own of a message is not sent
        self._messages.add(
            *(
                {name: value for name, value in message.items() if name != "extra"}
                for message in messages[self._heard :]
            )
        )
        self._heard = len(messages)
        request = Request(
            body={**fields, **inputs["body"], "messages": self._messages.listed()}, stream=inputs["stream"]
        )
        reply = self._perform(Ask(requests=(request,)))
        assert isinstance(reply, tuple)
        exit_state = heard(self._case, self._went, reply[0])
        if exit_state == REFUSED:
            again = self._perform(once_more(request))
            assert isinstance(again, tuple)
            self._went.verdict = judge_refusal(self._case, reply[0], *again, short=self._went.short)
        if exit_state:
            raise _Stopped(exit_state)
        return self._said(reply[0].observation, (self._went.cost or 0.0) - before)

    def _said(self, said: Observation, cost: float) -> mini.Said:
        self._went.truncated = self._went.truncated or said.finish_reason == "length"
        return mini.Said(
            message=assistant(said, calls=self._case.inputs["mode"] == "tools"),
            text=said.answer,
            calls=tuple(
                (call_id(call, number), call.name or "", call.arguments) for number, call in enumerate(said.tool_calls)
            ),
            finish_reason=said.finish_reason,
            cost=cost,
        )

    def execute(self, command: object, *, interpreter: tuple[str, ...], timeout_s: float) -> mini.Ran:
        if why := unfit(command):
            return mini.Ran(output="", code=-1, wrong=f"An error occurred while executing the command: {why}")
        if self._went.commands >= COMMANDS:
            raise _Stopped("command-limit")
        if "image" not in self._case.inputs["sandbox"]:
            # it finds an image's own environment; elsewhere it would be a file of this machine
            interpreter = tuple(part for part in interpreter if not part.startswith("BASH_ENV="))
        step = Exec(command=Command(argv=(*interpreter, str(command)), timeout_s=timeout_s, output_limit=OUTPUT_LIMIT))
        reply = self._perform(step)
        assert isinstance(reply, Executed)
        self._count(reply)
        if reply.timed_out:
            wrong = f"An error occurred while executing the command: Command timed out after {timeout_s:g} seconds"
            return mini.Ran(output=reply.output, code=-1, wrong=wrong)
        return mini.Ran(output=reply.output, code=-1 if reply.exit_code is None else reply.exit_code)

    def _count(self, reply: Executed) -> None:
        went = self._went
        self.elided = reply.elided
        went.commands += 1
        went.command_s += reply.seconds
        went.timeouts += reply.timed_out
        went.emulated = went.emulated or reply.emulated
