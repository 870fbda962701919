"""The shipped fixture's column ``expected``: what a right answer does. It is never sent.

``{"tool": name}`` wants one call of that tool, ``{"text": ...}`` wants this text and no call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvv.cases.answers import KeyEntry
from kvv.suites.toolcall.k2vv import RowError, case_id, content, declared_tools

#: what our reference endpoint says where it should have called a tool
NO_CALL_TEXT = "I would rather not look that up."


def key_entries(suite: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[KeyEntry]:
    """One entry per row with the column. A wrong answer decides the other way: text instead of a call, a call instead
    of text.
    """
    for row in rows:
        expected = row.get("expected")
        if expected is None:
            continue
        found = content(row)
        tool = expected_tool(row)
        names = [function["name"] for function in declared_tools(found)]
        if not names or (tool is not None and tool not in names):
            raise RowError(f"expected names a tool the request does not offer: {expected!r:.80}")
        yield KeyEntry(
            suite=suite,
            case=case_id(found),
            prompt=last_user_text(found["messages"]),
            right_text="" if tool is not None else expected["text"],
            wrong_text=NO_CALL_TEXT if tool is not None else "",
            right_tool=tool,
            wrong_tool=None if tool is not None else names[0],
        )


def expected_tool(row: Mapping[str, Any]) -> str | None:
    """The tool a right answer calls, None where it calls none. RowError for a column of another form."""
    expected = row["expected"]
    if isinstance(expected, Mapping) and len(expected) == 1:
        tool, text = expected.get("tool"), expected.get("text")
        if isinstance(tool, str) or isinstance(text, str):
            return tool
    raise RowError(f"expected is neither a tool nor a text: {expected!r:.80}")


def expected_values(row: Mapping[str, Any]) -> dict[str, float]:
    """The values of a right answer, as the judge gives them: what stands in the fixture's reference file."""
    calls = float(expected_tool(row) is not None)
    called = dict.fromkeys(("triggered", "called", "calls", "valid_calls", "schema_valid"), calls)
    return {**called, "schema_valid_k2vv": calls * _k2vv_accepts(row), "unusable_calls": 0.0, "ambiguous_calls": 0.0}


def _k2vv_accepts(row: Mapping[str, Any]) -> float:
    """K2VV takes empty parameters for no schema and fails every call of such a tool."""
    tool = expected_tool(row)
    return float(any(function["name"] == tool and bool(function.get("parameters")) for function in declared_tools(row)))


def last_user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of the last user message; empty where there is none."""
    for message in reversed(messages):
        if message.get("role") == "user":
            text = message.get("content")
            if isinstance(text, str):
                return text
            parts = text if isinstance(text, list) else []
            return "".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))
    return ""
