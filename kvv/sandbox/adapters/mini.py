"""mini-swe-agent's own agent, with its published prompts, limits and parsing; model and environment are the host's.

Imported by name and only when it runs: the package is optional, and importing it reads settings and makes folders of
the user.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

#: configuration files of the package, by whether commands are fenced and whether the task ends with a commit
_FILES: Mapping[tuple[bool, bool], str] = {
    (False, False): "benchmarks/swebench.yaml",
    (True, False): "benchmarks/swebench_backticks.yaml",
    (False, True): "mini.yaml",
    (True, True): "mini_textbased.yaml",
}

#: the default of its model class for fenced commands; the class itself cannot be had without litellm
_FENCED = r"```mswea_bash_command\s*\n(.*?)\n```"
_OPENING = "```mswea_bash_command"
#: openings beyond this many are not read: the agent's regular expression looks from each of them to the answer's end
_OPENINGS = 64

#: what its environments say of the machine; constant, so that a run replays anywhere
_MACHINE: Mapping[str, str] = {"system": "Linux", "node": "sandbox", "release": "", "version": "", "machine": "x86_64"}

#: what its configuration files say of the agent itself; the rest is for its interactive one
_SETTINGS = frozenset({"system_template", "instance_template", "step_limit", "cost_limit"})
#: seconds a command where the configuration names none: the default of its environments
_COMMAND_S = 30.0

#: what its agent sends with each request beside messages and tools; ``drop_params`` is meant for litellm
_NOT_SENT = frozenset({"drop_params"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer: as a message for the history, with its tool calls (id, name, arguments as sent), and what it cost in
    US dollars.
    """

    message: Mapping[str, Any]
    text: str
    calls: tuple[tuple[str, str, str], ...]
    finish_reason: str | None
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One command's end, in the terms of its environments; ``wrong`` is an exception's text, "" where there was
    none.
    """

    output: str
    code: int
    wrong: str = ""


class Host(Protocol):
    """What the agent's model and environment are made of. Both block; what they raise ends the agent and comes out of
    ``run``.
    """

    def ask(self, messages: list[dict[str, Any]], fields: Mapping[str, Any]) -> Said:
        """``fields`` go into the request beside the messages."""

    def execute(self, command: object, *, interpreter: tuple[str, ...], timeout_s: float) -> Ran: ...

    def out_of_time(self) -> bool:
        """Asked before each request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEnd:
    """``status`` is the agent's own word: Submitted, LimitsExceeded, TimeExceeded, RepeatedFormatError..."""

    status: str
    submission: str
    steps_used_up: bool


def run(task: str, host: Host, *, text: bool, commits: bool, most_steps: int) -> AgentEnd:
    """The agent on one task until it ends. ``text``: fenced commands; ``commits``: the task ends with a commit, not
    with a printed patch.

    ``most_steps`` bounds a configuration that has no limit of its own.
    """
    config = configuration(text=text, commits=commits)
    settings = {name: value for name, value in config["agent"].items() if name in _SETTINGS}
    settings["step_limit"] = settings.get("step_limit") or most_steps
    if commits:
        settings["cost_limit"] = 0.0  # as the tasks' own board runs it
    model, environment = _Model(config["model"], host, text=text), _Environment(config["environment"], host)
    agent = _module("minisweagent.agents.default").DefaultAgent(model, environment, **settings)
    end = agent.run(task)
    used_up = agent.n_calls >= settings["step_limit"]
    return AgentEnd(
        status=str(end.get("exit_status") or ""), submission=str(end.get("submission") or ""), steps_used_up=used_up
    )


def configuration(*, text: bool, commits: bool) -> Mapping[str, Any]:
    """What the package's own file says."""
    return _configuration(_FILES[text, commits])


@cache
def _configuration(name: str) -> Mapping[str, Any]:
    module = _module("minisweagent.config")
    found: Mapping[str, Any] = module.get_config_from_spec(Path(module.builtin_config_dir) / name)
    return found


class _Model:
    """The agent's model: its messages go out through the host, its actions are found by the package's own parsers."""

    def __init__(self, config: Mapping[str, Any], host: Host, *, text: bool) -> None:
        self._config = config
        self._host = host
        self._text = text
        self._fields = {
            name: value for name, value in (config.get("model_kwargs") or {}).items() if name not in _NOT_SENT
        }
        if not text:
            self._fields["tools"] = [_toolcalls().BASH_TOOL]

    def query(self, messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        exceptions = _module("minisweagent.exceptions")
        if self._host.out_of_time():
            end = {
                "role": "exit",
                "content": "TimeExceeded",
                "extra": {"exit_status": "TimeExceeded", "submission": ""},
            }
            raise exceptions.TimeExceeded(end)
        said = self._host.ask(messages, self._fields)
        try:
            actions = self._actions(said)
        except exceptions.FormatError as error:
            error.messages[0].setdefault("extra", {})["cost"] = said.cost
            raise
        return {**said.message, "extra": {"actions": actions, "cost": said.cost}}

    def _actions(self, said: Said) -> list[dict[str, Any]]:
        told = {
            "format_error_template": self._config["format_error_template"],
            "template_kwargs": {"finish_reason": said.finish_reason},
        }
        if self._text:
            pattern = self._config.get("action_regex") or _FENCED
            found: list[dict[str, Any]] = _texts().parse_regex_actions(
                _readable(said.text), action_regex=pattern, **told
            )
            return found
        calls = [
            SimpleNamespace(id=id, function=SimpleNamespace(name=name, arguments=arguments))
            for id, name, arguments in said.calls
        ]
        found = _toolcalls().parse_toolcall_actions(calls, **told)
        return found

    def format_message(self, **fields: Any) -> dict[str, Any]:
        return fields

    def format_observation_messages(
        self, message: Mapping[str, Any], outputs: list[dict[str, Any]], template_vars: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        told = {
            "outputs": outputs,
            "observation_template": self._config["observation_template"],
            "template_vars": template_vars,
        }
        if self._text:
            found: list[dict[str, Any]] = _texts().format_observation_messages(**told)
            return found
        found = _toolcalls().format_toolcall_observation_messages(actions=message["extra"]["actions"], **told)
        return found

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {}


class _Environment:
    """The agent's environment: its commands go to the host's sandbox."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._timeout_s = float(config.get("timeout") or _COMMAND_S)
        variables = tuple(f"{name}={value}" for name, value in (config.get("env") or {}).items())
        self._interpreter = ("env", *variables, *(config.get("interpreter") or ("bash", "-c")))

    def execute(self, action: Mapping[str, Any], cwd: str = "") -> dict[str, Any]:
        ran = self._host.execute(action.get("command", ""), interpreter=self._interpreter, timeout_s=self._timeout_s)
        output = {"output": ran.output, "returncode": ran.code, "exception_info": ran.wrong}
        _submitted(output)
        return output

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        return dict(_MACHINE)

    def serialize(self) -> dict[str, Any]:
        return {}


def _submitted(output: dict[str, Any]) -> None:
    """The package's own rule for an output that submits, from its environment for this machine, which starts
    nothing.
    """
    environment = _module("minisweagent.environments.local").LocalEnvironment
    environment._check_finished(SimpleNamespace(), output)


def _readable(text: str) -> str:
    """As much of an answer as its regular expression can read in time; further openings could not make it one
    action.
    """
    end = -1
    for _ in range(_OPENINGS):
        end = text.find(_OPENING, end + 1)
        if end < 0:
            return text
    return text[:end]


def _toolcalls() -> Any:
    return _module("minisweagent.models.utils.actions_toolcall")


def _texts() -> Any:
    return _module("minisweagent.models.utils.actions_text")


@cache
def _module(name: str) -> Any:
    with _quiet():
        return import_module(name)


@contextmanager
def _quiet() -> Iterator[None]:
    """The package greets, makes a folder in the user's home, and loads variables from a file there into this process;
    here it must not.
    """
    names = ("MSWEA_SILENT_STARTUP", "MSWEA_GLOBAL_CONFIG_DIR")
    before = {name: os.environ.get(name) for name in names}
    with tempfile.TemporaryDirectory(prefix="kvv-mini-") as folder:
        os.environ.update({"MSWEA_SILENT_STARTUP": "1", "MSWEA_GLOBAL_CONFIG_DIR": folder})
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
            logging.getLogger("minisweagent").setLevel(logging.WARNING)
