"""From a case's stored request to the body that is sent: directives, and parts of earlier answers.

A directive is a table with one key that begins with ``@``. It is replaced when the request is made, so that a case of
a million tokens is a line in the store, and a script can send back what the endpoint said.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvv.cases.case_file import directive_of
from kvv.core import Answered

#: earlier answers of the case, by their request's name
Answers = Mapping[str, Answered]
Builder = Callable[[Any, Answers], Any]


class Unbuildable(Exception):
    """The request needs something that an earlier answer does not have (a tool call, say). ``reason`` is a stable
    code.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Spliced:
    """Several items for the place in a list where the directive stands."""

    items: Sequence[Any]


def build(value: Any, answers: Answers, builders: Mapping[str, Builder]) -> Any:
    """``value`` with every directive replaced. Raises Unbuildable."""
    if isinstance(value, Mapping):
        name = directive_of(value)
        if name is not None:
            return builders[name](build(value[f"@{name}"], answers, builders), answers)
        return {key: build(item, answers, builders) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        built: list[Any] = []
        for item in value:
            one = build(item, answers, builders)
            built.extend(one.items if isinstance(one, Spliced) else [one])
        return built
    return value


def repeat(argument: Any, answers: Answers) -> str:
    """``[text, n]``: the text n times."""
    text, times = argument
    return str(text) * int(times)


def join_texts(argument: Any, answers: Answers) -> str:
    """A list of texts and numbers as one text."""
    return "".join(map(str, argument))


def json_text(argument: Any, answers: Answers) -> str:
    """The value as compact JSON text, as the arguments of a call in the history are written."""
    return json.dumps(argument, ensure_ascii=False, separators=(",", ":"))


def nest_schema(argument: Any, answers: Answers) -> Any:
    """``[schema, n]``: an object schema whose one property ``inner`` nests n times around ``schema``."""
    inner, depth = argument
    for _ in range(int(depth)):
        inner = {"type": "object", "properties": {"inner": inner}, "required": ["inner"]}
    return inner


def tools(argument: Any, answers: Answers) -> Spliced:
    """``[prefix, n]``: n tools without parameters, called prefix_0 to prefix_n-1."""
    prefix, count = argument
    empty = {"type": "object", "properties": {}}
    return Spliced(
        [{"type": "function", "function": {"name": f"{prefix}_{at}", "parameters": empty}} for at in range(int(count))]
    )


def answer(argument: Any, answers: Answers) -> dict[str, Any]:
    """The assistant message of an earlier answer as the endpoint sent it: name, or ``{ of, without = [...] , rename =
    {...} }``.

    ``without`` leaves fields out; the reasoning goes by the name the endpoint used (``reasoning`` in ``without`` means
    it, whatever its name). Fields never sent are absent, except that content is null beside tool calls.
    """
    table = argument if isinstance(argument, Mapping) else {"of": argument}
    choice = answers[table["of"]].observation.first
    without = set(table.get("without", ()))
    message: dict[str, Any] = {
        "role": "assistant",
        "content": choice.answer if choice.answer is not None or choice.tool_calls else "",
    }
    if choice.reasoning is not None and choice.reasoning_field is not None and "reasoning" not in without:
        message[choice.reasoning_field] = choice.reasoning
    if choice.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": call.type or "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in choice.tool_calls
        ]
    return {key: value for key, value in message.items() if key not in without}


def thought(argument: Any, answers: Answers) -> dict[str, Any]:
    """``{ like, content, reasoning }``: an assistant message whose reasoning stands in the field that the answer
    ``like`` used.
    """
    field = answers[argument["like"]].observation.first.reasoning_field
    if field is None:
        raise Unbuildable("no-reasoning-seen", "no answer showed in which field this endpoint puts reasoning")
    return {"role": "assistant", "content": argument["content"], field: argument["reasoning"]}


def results(argument: Any, answers: Answers) -> Spliced:
    """A tool message for every call of an earlier answer: name, or ``{ of, order, content, contents }``.

    ``order`` is ``sent`` or ``reversed``; ``contents`` gives texts by tool name, ``content`` one for all the others.
    """
    table = argument if isinstance(argument, Mapping) else {"of": argument}
    made = list(answers[table["of"]].observation.tool_calls)
    if not made:
        raise Unbuildable("no-call-to-answer", f"the answer {table['of']!r} made no tool call")
    contents = table.get("contents", {})
    messages = [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": contents.get(call.name, table.get("content", '{"ok":true}')),
        }
        for call in made
    ]
    return Spliced(messages[::-1] if table.get("order") == "reversed" else messages)


def splice(argument: Any, answers: Answers) -> Spliced:
    """A list put into the list where it stands."""
    return Spliced(argument)


BUILDERS: Mapping[str, Builder] = {
    "splice": splice,
    "repeat": repeat,
    "join": join_texts,
    "json": json_text,
    "nested": nest_schema,
    "tools": tools,
    "answer": answer,
    "thought": thought,
    "results": results,
}
