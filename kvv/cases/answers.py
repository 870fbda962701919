"""One entry of an answer key: what the reference endpoint says to a prompt, right and wrong."""

from __future__ import annotations

from dataclasses import dataclass

from kvv.core import Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """``prompt`` is contained in the last user message; a reply is a text, or a call of the named declared tool.

    With ``pictures`` the message must show exactly these, in this order, encoded as their ``form`` says.
    ``right_turns`` and ``wrong_turns`` are an agent's: one shell command an answer, the last one ends it. ``ease``: how
    often the endpoint is right with this entry, as a share of its accuracy.
    """

    suite: str
    case: str
    prompt: str
    right_text: str = ""
    wrong_text: str = ""
    right_tool: str | None = None
    wrong_tool: str | None = None
    pictures: tuple[Picture, ...] = ()
    right_turns: tuple[str, ...] = ()
    wrong_turns: tuple[str, ...] = ()
    ease: float = 1.0
