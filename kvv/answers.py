"""One entry of an answer key: what the reference endpoint says to a prompt, right and wrong."""

from __future__ import annotations

from dataclasses import dataclass

from kvv.model import Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """``prompt`` is contained in the last user message; a reply is a text, or a call of the named declared tool.

    With ``pictures`` the message must show exactly these, in this order, encoded as their ``form`` says.
    """

    suite: str
    case: str
    prompt: str
    right_text: str = ""
    wrong_text: str = ""
    right_tool: str | None = None
    wrong_tool: str | None = None
    pictures: tuple[Picture, ...] = ()
