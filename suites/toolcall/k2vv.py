"""K2VV's request rows: what a row must hold, what identifies it, what is sent of it.

A row is a chat-completions body (MoonshotAI/K2-Vendor-Verifier, ``samples.jsonl``). Two rows are the same request
when their *content* is the same, whatever model or sampling stands beside it: results of other runs are joined by
content, never by line number.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvv.data.spec import DataError
from kvv.profiles.profile import Claims

#: what the answer's form depends on beside model and sampling; nothing else of a row is sent or identifies it
CONTENT_FIELDS = ("messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "stop")

#: a row's own sampling, used only where the run sets none
SAMPLING_FIELDS = ("temperature", "top_p", "max_tokens")

#: columns of ours and of other tools, no part of a request
FOREIGN_FIELDS = frozenset({"expected", "data_index"})

_K2_ID = re.compile(r"functions\.[^:]+:[0-9]+")


class RowError(DataError):
    """A row that is no chat-completions request; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class K2vvRequest:
    """One distinct request and how often it stands in the data set; ``rows`` are the positions, from 0, in order."""

    case: str
    content: Mapping[str, Any]
    rows: tuple[int, ...]


def check_row(row: Mapping[str, Any]) -> None:
    """RowError for a row without a non-empty list of message objects, or whose tools are no list of objects."""
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RowError("no list of messages")
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise RowError(f"messages[{number}] is no object with a role")
    tools = row.get("tools")
    if tools is not None and (not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools)):
        raise RowError("tools is no list of objects")


def content(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without model, sampling, streaming and bookkeeping; K2VV's role ``_input`` is ``system``; a null field is
    an absent one.
    """
    check_row(row)
    found = {name: row[name] for name in CONTENT_FIELDS if row.get(name) is not None}
    found["messages"] = [
        {**message, "role": "system"} if message["role"] == "_input" else message for message in row["messages"]
    ]
    return found


def canonical(value: Any) -> bytes:
    """Compact JSON with sorted keys, UTF-8. Lone surrogates, which UTF-8 cannot hold, stay escaped."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def case_id(found: Mapping[str, Any]) -> str:
    """``toolcall/`` and the first 16 hex digits of the SHA-256 of the content's canonical JSON."""
    return f"toolcall/{hashlib.sha256(canonical(found)).hexdigest()[:16]}"


def questions(rows: Sequence[Mapping[str, Any]]) -> list[K2vvRequest]:
    """The distinct requests in the order of their first row. RowError names the row, counted from 1."""
    positions: dict[str, list[int]] = {}
    contents: dict[str, Mapping[str, Any]] = {}
    for number, row in enumerate(rows):
        try:
            found = content(row)
        except RowError as error:
            raise RowError(f"row {number + 1}: {error}") from None
        case = case_id(found)
        contents.setdefault(case, found)
        positions.setdefault(case, []).append(number)
    return [K2vvRequest(case=case, content=contents[case], rows=tuple(numbers)) for case, numbers in positions.items()]


def unsent_fields(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Request fields that rows carry and the run does not send, sorted."""
    known = {*CONTENT_FIELDS, *SAMPLING_FIELDS, "model", "stream", *FOREIGN_FIELDS}
    return sorted({name for row in rows for name in row} - known)


def declared_tools(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The ``function`` objects on offer: the request's, then those that system messages add (Kimi K3's dynamic
    tools).
    """
    lists = [
        found.get("tools"),
        *(message.get("tools") for message in found.get("messages", ()) if message.get("role") == "system"),
    ]
    for tools in lists:
        for tool in tools if isinstance(tools, list) else ():
            function = tool.get("function") if isinstance(tool, Mapping) else None
            if isinstance(function, Mapping) and isinstance(function.get("name"), str):
                yield function


def needs_k2_ids(claims: Claims) -> bool:
    """Kimi K2 continues broken ids in its history with broken ids of its own (K2VV README); other models' ids are
    opaque.
    """
    return "k2-tool-ids" in claims.contracts


def with_k2_ids(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The history with tool ids in the form ``functions.name:index``, counted over the conversation, as Moonshot's API
    renames them.

    A history whose ids all have the form is returned as it is. An answer takes the new id of the latest call with its
    old one.
    """
    calls = [call for message in messages for call in _calls(message)]
    if all(isinstance(call.get("id"), str) and _K2_ID.fullmatch(call["id"]) for call in calls):
        return list(messages)
    renamed: dict[str, str] = {}
    number = 0
    out: list[Mapping[str, Any]] = []
    for message in messages:
        if _calls(message):
            fresh = []
            for call in _calls(message):
                new = f"functions.{_name(call)}:{number}"
                number += 1
                if isinstance(call.get("id"), str):
                    renamed[call["id"]] = new
                fresh.append({**call, "id": new})
            message = {**message, "tool_calls": fresh}
        elif message.get("role") == "tool" and message.get("tool_call_id") in renamed:
            message = {**message, "tool_call_id": renamed[message["tool_call_id"]]}
        out.append(message)
    return out


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []


def _name(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else "unknown"


def request_text(body: Mapping[str, Any]) -> str:
    """All text of a request, to tell whether a marker in the answer was quoted from it."""
    return canonical(body).decode("utf-8")
