"""Group b, second part: damaged arguments and refused tool schemas."""

import json
from dataclasses import replace
from typing import Any

from kvv.mockserver.config import JsonObject
from kvv.mockserver.content.completion import Call, DraftChoice
from kvv.mockserver.errors import ApiError
from kvv.mockserver.faults.edits import each, each_call, nodes, parsed_arguments, tool_schemas, with_arguments
from kvv.mockserver.faults.model import ServerFault, Turn

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def _twice_encoded(_turn: Turn, call: Call) -> Call:
    return with_arguments(call, json.dumps(call.text, ensure_ascii=False))


def _fold_value_into_key(turn: Turn, call: Call) -> Call:
    arguments = parsed_arguments(call)
    if not isinstance(arguments, dict) or not arguments or not turn.chance("B37", 0.5):
        return call
    first, *rest = arguments.items()
    folded = {f"{first[0]}={first[1]}": "", **dict(rest)}
    return with_arguments(call, json.dumps(folded, ensure_ascii=False, separators=(",", ":")))


def _through_float(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int():
            return int(float(value))
        case dict():
            return {key: _through_float(item) for key, item in value.items()}
        case list():
            return [_through_float(item) for item in value]
    return value


def _float_numbers(_turn: Turn, call: Call) -> Call:
    arguments = parsed_arguments(call)
    return (
        call
        if arguments is None
        else with_arguments(call, json.dumps(_through_float(arguments), ensure_ascii=False, separators=(",", ":")))
    )


def _escaped(_turn: Turn, call: Call) -> Call:
    arguments = parsed_arguments(call)
    return call if arguments is None else with_arguments(call, json.dumps(arguments, separators=(",", ":")))


def _backslashed(_turn: Turn, call: Call) -> Call:
    return with_arguments(call, "".join(char if char.isascii() else f"\\{char}" for char in call.text))


def _no_references(turn: Turn, choice: DraftChoice) -> DraftChoice:
    referring = {name for name, schema in tool_schemas(turn.body) if any("$ref" in node for node in nodes(schema))}
    return replace(
        choice, calls=tuple(with_arguments(call, "{}") if call.name in referring else call for call in choice.calls)
    )


def _refuse_keys(*names: str) -> Any:
    def hook(_turn: Turn, body: JsonObject) -> JsonObject:
        for tool, schema in tool_schemas(body):
            found = next((key for node in nodes(schema) for key in names if key in node), None)
            if found is not None:
                raise ApiError(f"unsupported_keyword {found} in the schema of {tool}", param="tools", reason="fault")
        return body

    return hook


def _fail_on_empty_object(_turn: Turn, body: JsonObject) -> JsonObject:
    for _, schema in tool_schemas(body):
        if any(
            (node.get("type") == "object" and not node.get("properties")) or node.get("maxLength", 0) > 2000
            for node in nodes(schema)
        ):
            raise ApiError("failed to parse grammar", status=500, kind="server_error", param="tools", reason="fault")
    return body


FAULTS = (
    ServerFault(
        id="B35",
        group="b",
        summary="arguments are encoded twice",
        mode="both",
        areas=("tools",),
        on_choices=each_call(_twice_encoded),
    ),
    ServerFault(
        id="B37",
        group="b",
        summary="a value is folded into its key in half of the answers",
        mode="both",
        areas=("tools",),
        on_choices=each_call(_fold_value_into_key),
    ),
    ServerFault(
        id="B40",
        group="b",
        summary="numbers go through a float",
        mode="both",
        areas=("tools",),
        on_choices=each_call(_float_numbers),
    ),
    ServerFault(
        id="B42",
        group="b",
        summary="non-ASCII text in arguments is escaped",
        mode="both",
        areas=("tools",),
        on_choices=each_call(_escaped),
    ),
    ServerFault(
        id="B44",
        group="b",
        summary="a backslash stands before each non-ASCII character",
        mode="both",
        areas=("tools",),
        on_choices=each_call(_backslashed),
    ),
    ServerFault(
        id="B45",
        group="b",
        summary="tools with $ref get empty arguments",
        mode="both",
        areas=("tools",),
        on_choices=each(_no_references),
    ),
    ServerFault(
        id="B47",
        group="b",
        summary="numeric bounds are refused with 400",
        mode="both",
        areas=("tools",),
        on_body=_refuse_keys(*_BOUNDS),
    ),
    ServerFault(
        id="B48",
        group="b",
        summary="$schema is refused with 400",
        mode="both",
        areas=("tools",),
        on_body=_refuse_keys("$schema"),
    ),
    ServerFault(
        id="B49",
        group="b",
        summary="an empty object schema gives 500",
        mode="both",
        areas=("tools",),
        on_body=_fail_on_empty_object,
    ),
)
