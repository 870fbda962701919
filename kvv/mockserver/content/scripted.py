"""An agent's turns by script: one shell command an answer. Which script a conversation follows stands in the
conversation itself.
"""

import json
import re
from dataclasses import dataclass

from kvv.mockserver.canonical import plain
from kvv.mockserver.config import KeyedAnswer, Reply
from kvv.mockserver.validation.request import ChatRequest, Message

TOOL = "bash"
#: what opens a command in an answer of plain text, as mini-swe-agent's text mode has it
FENCE = "mswea_bash_command"
_BLOCK = re.compile(rf"^```{FENCE}\n(.*?)\n```$", re.S | re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptPosition:
    """Where in its script a conversation is. ``right``: which script its commands follow, None where both or neither
    fit.
    """

    turn: int
    right: bool | None

    def decides(self, answer: KeyedAnswer) -> bool:
        """Whether this answer shows which script it is."""
        return self.right is None and _at(answer.right, self.turn) != _at(answer.wrong, self.turn)

    def ends(self, answer: KeyedAnswer, *, right: bool) -> bool:
        """Whether the script's last command is given now."""
        return self.turn + 1 == len((answer.right if right else answer.wrong).turns)


def place(answer: KeyedAnswer, request: ChatRequest) -> ScriptPosition:
    said = [command for message in request.messages if message.role == "assistant" for command in _commands(message)]
    fits = {
        right: list(reply.turns[: len(said)]) == said for right, reply in ((True, answer.right), (False, answer.wrong))
    }
    return ScriptPosition(turn=len(said), right=None if fits[True] == fits[False] else fits[True])


def _commands(message: Message) -> list[str]:
    found = []
    for call in message.calls:
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            continue
        if isinstance(arguments, dict):
            found.append(str(arguments.get("command", "")))
    return found or _BLOCK.findall(message.text)


def _at(reply: Reply, turn: int) -> str:
    """The last command again when the script is over."""
    return reply.turns[min(turn, len(reply.turns) - 1)]


def arguments(request: ChatRequest, reply: Reply, turn: int) -> str | None:
    """The arguments of the call to make, None where the request declares no such tool."""
    if request.tool_choice == "none" or all(tool.name != TOOL for tool in request.callable_tools):
        return None
    return plain({"command": _at(reply, turn)})


def text(reply: Reply, turn: int) -> str:
    return f"Next command.\n\n```{FENCE}\n{_at(reply, turn)}\n```"
