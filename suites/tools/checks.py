"""What the tools suite asks of calls beyond the common checks."""

from __future__ import annotations

import ipaddress
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from typing import Any

from kvv.cases.checks import Check, CheckInput, CheckProblem
from kvv.cases.checks.base import cut, index_by_name, quote
from kvv.cases.checks.schema import read_json
from kvv.cases.contract.build import Answers, Builder


def distinct_ids(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """Every call has an id, and no two calls of one answer share one."""
    ids = [call.id for call in look.observation.tool_calls]
    if any(not one for one in ids):
        return CheckProblem(reason="no-tool-id", detail=f"the ids of the calls are {ids!r:.200}")
    if len(set(ids)) < len(ids):
        return CheckProblem(reason="tool-id-repeats", detail=f"two calls of one answer share an id: {ids!r:.200}")
    return None


def declared_calls(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """Only tools that the request declares are called."""
    declared = {tool["function"]["name"] for tool in look.sent.get("tools", ())}
    stranger = next((call for call in look.observation.tool_calls if call.name not in declared), None)
    return (
        None
        if stranger is None
        else CheckProblem(reason="other-tool", detail=f"called {quote(stranger.name)}, which is not declared")
    )


def argument_values(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """``{ name, all }``: each of these texts is the argument ``name`` of some call (part of it, whatever its case)."""
    values = [str(arguments.get(wanted["name"], "")).casefold() for arguments in _arguments(look)]
    missing = [text for text in wanted["all"] if not any(text.casefold() in value for value in values)]
    if not missing:
        return None
    return cut(look) or CheckProblem(
        reason="argument-missing", detail=f"no call has {wanted['name']} {missing[0]!r}; they have {values!r:.150}"
    )


def says_all(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The content holds every one of these texts, whatever their case."""
    missing = [text for text in wanted if str(text).casefold() not in look.observation.answer.casefold()]
    if not missing:
        return None
    return cut(look) or CheckProblem(
        reason="wrong-answer", detail=f"{missing[0]!r} is not in the content {quote(look.observation.answer)}"
    )


def reports_results(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """A list: the content repeats each of these results of a prepared history. ``{ of, contents }``, as runs stored
    until version 0.2 have it: for each tool called in the answer ``of`` the text that this tool gave back.

    An answer that calls again has not spoken yet.
    """
    if look.observation.tool_calls:
        return None
    if not isinstance(wanted, Mapping):
        return says_all(look, wanted)
    made = {call.name for call in look.siblings[wanted["of"]].observation.tool_calls}
    return says_all(look, [text for name, text in wanted["contents"].items() if name in made])


def valid_formats(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """Strings whose schema names a ``format`` have it. JSON Schema itself only annotates; those who claim it promise
    more.
    """
    for tool in look.sent.get("tools", ()):
        schema = tool["function"].get("parameters", {}).get("properties", {}).get("value", {})
        form = _FORMATS.get(schema.get("format", "")) if isinstance(schema, Mapping) else None
        if form is None:
            continue
        for arguments in _arguments(look):
            value = arguments.get("value")
            if not isinstance(value, str) or not form(value):
                return CheckProblem(reason="format-mismatch", detail=f"{quote(str(value))} is no {schema['format']}")
    return None


def _arguments(look: CheckInput) -> Iterator[Mapping[str, Any]]:
    """The arguments of every call that are an object; the others are for ``valid-arguments`` to object to."""
    for call in look.observation.tool_calls:
        try:
            found = read_json(call.arguments)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def _parses(read: Callable[[str], object]) -> Callable[[str], bool]:
    def parses(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return parses


_FORMATS: Mapping[str, Callable[[str], bool]] = {
    "date": lambda text: re.fullmatch(r"\d{4}-\d\d-\d\d", text) is not None and _parses(date.fromisoformat)(text),
    "date-time": lambda text: (
        re.match(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d", text) is not None and _parses(datetime.fromisoformat)(text)
    ),
    "email": lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None,
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "uuid": lambda text: len(text) == 36 and _parses(uuid.UUID)(text),
}


def literal(argument: Any, answers: Answers) -> Any:
    """JSON text as the value it says: for schemas, in which anything may look like a directive."""
    return json.loads(argument)


CHECKS: Mapping[str, Check] = index_by_name(
    [distinct_ids, declared_calls, argument_values, says_all, reports_results, valid_formats]
)
BUILDERS: Mapping[str, Builder] = {"literal": literal}
