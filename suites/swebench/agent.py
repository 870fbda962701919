"""The agent: asks the model, runs its commands, until it submits or a limit ends it in a named state. A fold over
replies; no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from kvv.cases.confirm_refusal import once_more
from kvv.core import (
    Answered,
    Ask,
    Case,
    Command,
    Exec,
    Executed,
    Fragment,
    Observation,
    Reply,
    Request,
    Step,
    ToolCall,
    Verdict,
)
from kvv.protocol.classify import Classification, assess, judge_unanswered
from kvv.suites.swebench.overflow import Sizes, below_promise, claimed, judge_refusal
from kvv.suites.swebench.prompts import FENCE, MARK, TOOL, format_error, observation, opening

#: what a result carries: results of different agents are never compared
AGENT, AGENT_VERSION = "kvv-mini", "2"

#: answers in a row without a command that can be run, as in mini-swe-agent
FORMAT_ERRORS = 3
#: answers in a row cut by the output limit
LENGTH_CUTS = 3
#: the same command with the same output so many times in a row
LOOP = 20
#: the exit state of a run whose request was refused
REFUSED = "refused"
#: commands of one instance: an answer may hold any number of calls
COMMANDS = 1_500
#: what a published image's shell reads to find the instance's environment, as mini-swe-agent names it
SHELL_START = "BASH_ENV=/root/.bashrc"
#: characters of one command's output that are kept at all; a patch must fit
OUTPUT_LIMIT = 400_000
#: characters of history that are sealed together
SEAL = 32_768
#: bytes of one command: systems take 128 KiB for one argument
COMMAND_LIMIT = 120_000

#: lines that open a block
_OPENINGS = (f"```{FENCE}", "```bash")

#: steps out, replies in
Play = Generator[Step, Reply, "Trajectory"]


@dataclass(slots=True, kw_only=True)
class Trajectory:
    """What the agent did. ``exit`` is its named end, ``submission`` what it handed in; ``verdict`` is set when the
    endpoint, not the agent, ended it.

    Times in seconds, ``cost`` in US dollars (None without prices). ``agent`` is name and version.
    """

    agent: str = f"{AGENT} {AGENT_VERSION}"
    exit: str = ""
    submission: str = ""
    verdict: Verdict | None = None
    turns: int = 0
    commands: int = 0
    timeouts: int = 0
    format_errors: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    model_s: float = 0.0
    command_s: float = 0.0
    truncated: bool = False
    emulated: bool = False
    last: str = ""
    #: of the history, of a window that is shorter than promised, and what the endpoint said of an overflow
    sizes: Sizes = field(default_factory=Sizes)
    short: str = ""
    refusal: str = ""

    def facts(self) -> dict[str, Any]:
        """JSON-like."""
        return {
            "agent": self.agent,
            "exit": self.exit,
            "steps": self.turns,
            "commands": self.commands,
            "command_timeouts": self.timeouts,
            "format_errors": self.format_errors,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "cost": self.cost,
            "model_s": round(self.model_s, 3),
            "command_s": round(self.command_s, 3),
        } | ({"refusal": self.refusal} if self.refusal else {})


@dataclass(slots=True)
class _Streak:
    """How often something came in a row."""

    value: Any = None
    length: int = 0

    def add(self, value: Any) -> int:
        self.length = self.length + 1 if value == self.value else 1
        self.value = value
        return self.length


class Messages:
    """The linear history. Once there is enough of it, its beginning is text that was serialised once: sent, hashed and
    stored as one part.
    """

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self._sealed: list[Fragment] = []
        self._open = messages
        self._size = sum(map(_size, messages))

    def add(self, *messages: dict[str, Any]) -> None:
        self._open += messages
        self._size += sum(map(_size, messages))

    def listed(self) -> list[Any]:
        """For a request. Seals what has gathered: between two requests, so that the same replies always give the same
        parts.
        """
        found = [*self._sealed, *self._open]
        if self._size >= SEAL:
            self._sealed.append(Fragment.of(b",".join(map(_dumped, self._open)), splice=True))
            self._open, self._size = [], 0
        return found


def _size(message: Mapping[str, Any]) -> int:
    calls = sum(len(call["function"]["arguments"]) for call in message.get("tool_calls", ()))
    return calls + sum(len(value) for value in message.values() if isinstance(value, str))


def _dumped(message: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(message)
    except orjson.JSONEncodeError:  # a lone surrogate: it goes out as it came in, as an escape
        return json.dumps(message).encode("ascii")


@dataclass(slots=True)
class _State:
    messages: Messages
    went: Trajectory = field(default_factory=Trajectory)
    errors: int = 0
    cuts: int = 0
    same: _Streak = field(default_factory=_Streak)


def agent(case: Case) -> Play:
    """Plays until an exit state is reached."""
    inputs = case.inputs
    first = opening(
        inputs["task"],
        mode=inputs["mode"],
        workdir=inputs["sandbox"].get("workdir", "/testbed"),
        commits=inputs["commits"],
    )
    state = _State(Messages(first))
    while not (exit_state := _limit_reached(state, inputs["limits"])):
        request = _request(case, state.messages.listed())
        reply = yield Ask(requests=(request,))
        assert isinstance(reply, tuple)
        exit_state = heard(case, state.went, reply[0])
        if exit_state == REFUSED:
            again = yield once_more(request)
            assert isinstance(again, tuple)
            state.went.verdict = judge_refusal(case, reply[0], *again, short=state.went.short)
        if exit_state:
            break
        exit_state = yield from _act(case, state, reply[0].observation)
        if exit_state:
            break
    state.went.exit = exit_state
    return state.went


def _limit_reached(state: _State, limits: Mapping[str, Any]) -> str:
    went = state.went
    if limits["steps"] and went.turns >= limits["steps"]:
        return "step-limit"
    if limits["cost"] and went.cost is not None and went.cost >= limits["cost"]:
        return "cost-limit"
    if limits["agent_s"] and went.model_s + went.command_s >= limits["agent_s"]:
        return "time-limit"
    return ""


def _request(case: Case, messages: list[Any]) -> Request:
    inputs = case.inputs
    body = {**inputs["body"], "messages": messages}
    if inputs["mode"] == "tools":
        body["tools"] = [TOOL]
    return Request(body=body, stream=inputs["stream"])


# --- what came back --------------------------------------------------------------------------------


def heard(case: Case, went: Trajectory, answered: Answered) -> str:
    """Counts a reply; the exit state where there was no completion."""
    said = answered.observation
    went.turns += 1
    went.last = answered.exchange.identity.key
    went.model_s += answered.exchange.timing.total_ms / 1000
    went.prompt_tokens += said.tokens("prompt_tokens") or 0
    went.cached_tokens += (
        said.tokens("cached_tokens") or said.detail_tokens("prompt_tokens_details", "cached_tokens") or 0
    )
    went.completion_tokens += said.tokens("completion_tokens") or 0
    went.cost = _cost(went, case.inputs["prices"])
    verdict = judge_unanswered(case, answered)
    if verdict is None:
        went.sizes.answered(answered)
        return ""
    refused = assess(answered.exchange, said).standing is Classification.REFUSED
    claim = claimed(said.error) if refused and went.turns > 1 else None
    if claim is not None:
        went.short = below_promise(claim, went.sizes.at_most(answered), case.inputs)
        if not went.short:
            went.refusal = verdict.detail
            return "context-overflow"
    went.verdict = verdict
    return REFUSED if refused else "no-answer"


def _cost(went: Trajectory, prices: Mapping[str, float] | None) -> float | None:
    """Prices are per million tokens."""
    if prices is None:
        return None
    cached = min(went.cached_tokens, went.prompt_tokens)
    paid = (
        (went.prompt_tokens - cached) * prices["input"]
        + cached * prices["cached"]
        + went.completion_tokens * prices["output"]
    )
    return paid / 1e6


def _act(case: Case, state: _State, said: Observation) -> Generator[Step, Reply, str]:
    """Runs what the answer asks for; the exit state it led to, "" to go on."""
    mode = case.inputs["mode"]
    cut = said.finish_reason == "length"
    state.went.truncated = state.went.truncated or cut
    state.cuts = state.cuts + 1 if cut else 0
    commands, why = _calls(said) if mode == "tools" else _block(said)
    if why:
        return _no_command(state, said, mode, f"{why}; the answer was cut by the output limit" if cut else why)
    state.errors = 0
    state.messages.add(assistant(said, calls=mode == "tools"))
    for number, command in enumerate(commands):
        if state.went.commands >= COMMANDS:
            return "command-limit"
        reply = yield execution(case, command, case.inputs["limits"]["command_s"])
        assert isinstance(reply, Executed)
        exit_state = _ran(state, command, reply)
        if exit_state:
            return exit_state
        text = observation(
            reply.output, reply.exit_code, elided=reply.elided, timeout_s=case.inputs["limits"]["command_s"]
        )
        if mode == "tools":
            state.messages.add(
                {"role": "tool", "tool_call_id": call_id(said.tool_calls[number], number), "content": text}
            )
        else:
            state.messages.add({"role": "user", "content": text})
    return ""


def execution(case: Case, command: str, timeout_s: float) -> Exec:
    start = ("env", SHELL_START) if "image" in case.inputs["sandbox"] else ()
    return Exec(command=Command(argv=(*start, "bash", "-c", command), timeout_s=timeout_s, output_limit=OUTPUT_LIMIT))


def _no_command(state: _State, said: Observation, mode: str, why: str) -> str:
    """The answer goes back as text: a call that cannot be read is no call that a history may hold."""
    state.went.format_errors += 1
    state.errors += 1
    if state.cuts >= LENGTH_CUTS:
        return "length-cut"
    if state.errors >= FORMAT_ERRORS:
        return "format-errors"
    message = assistant(said, calls=False)
    calls = "\n".join(f"{call.name or ''}({call.arguments})" for call in said.tool_calls)
    message["content"] = "\n".join(part for part in (said.answer, calls) if part) or "(no answer)"
    state.messages.add(message, {"role": "user", "content": format_error(mode, why)})
    return ""


def assistant(said: Observation, *, calls: bool) -> dict[str, Any]:
    """The answer as history: reasoning goes back under the name it came in."""
    choice = said.first
    message: dict[str, Any] = {"role": "assistant", "content": choice.answer or ""}
    if choice.reasoning and choice.reasoning_field:
        message[choice.reasoning_field] = choice.reasoning
    if calls and choice.tool_calls:
        message["tool_calls"] = [
            {
                "id": call_id(call, number),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(choice.tool_calls)
        ]
    return message


def call_id(call: ToolCall, number: int) -> str:
    return call.id or f"bash_{number}"


def _calls(said: Observation) -> tuple[list[str], str]:
    """The commands of the tool calls, or why there are none."""
    if not said.tool_calls:
        return [], "there is no tool call"
    commands = []
    for call in said.tool_calls:
        if call.name != "bash":
            return [], f"there is no tool {call.name!r:.60}"
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return [], "the arguments of the call are no JSON"
        command = arguments.get("command") if isinstance(arguments, dict) else None
        if why := unfit(command):
            return [], why
        commands.append(str(command))
    return commands, ""


def unfit(command: object) -> str:
    """Why a shell cannot be given this command, "" where it can."""
    if not isinstance(command, str) or not command.strip():
        return "there is no command"
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        return "the command is no valid Unicode"
    return (
        "the command holds a NUL"
        if "\0" in command
        else f"the command is longer than {COMMAND_LIMIT} bytes"
        if size > COMMAND_LIMIT
        else ""
    )


def _block(said: Observation) -> tuple[list[str], str]:
    """Exactly one closed block. Line by line: a regular expression would take for ever over an answer of nothing but
    openings.
    """
    found: list[str] = []
    inside: list[str] | None = None
    for line in said.answer.split("\n"):
        edge = line.rstrip()
        if inside is None:
            inside = [] if edge in _OPENINGS else None
        elif edge == "```":
            found.append("\n".join(inside).strip())
            inside = None
        else:
            inside.append(line)
    if len(found) != 1:
        return [], f"there are {len(found)} command blocks"
    why = unfit(found[0])
    return ([], why) if why else (found, "")


def _ran(state: _State, command: str, done: Executed) -> str:
    went = state.went
    went.commands += 1
    went.command_s += done.seconds
    went.timeouts += done.timed_out
    went.emulated = went.emulated or done.emulated
    first, _, rest = done.output.lstrip().partition("\n")
    if first.strip() == MARK and done.exit_code == 0:
        went.submission = rest
        return "submission-too-long" if done.elided else "submitted"
    return "loop" if state.same.add((command, done.output)) >= LOOP else ""
