"""Tools, tool_choice and response_format."""

import re
from collections.abc import Iterable
from typing import Any

from kvv.mockserver.canonical import compact
from kvv.mockserver.config import JsonObject
from kvv.mockserver.errors import ApiError
from kvv.mockserver.validation.request import ChoiceMode, ResponseFormat, Tool
from kvv.mockserver.validation.schema_check import check_mfjs, check_schema
from kvv.mockserver.variant import ModelVariant

# A dynamic tool's name has 1 to 256 characters and no leading digit (KVV). For top-level tools the platform's documents
# name the same alphabet; a leading digit and dots are let through there, since nothing public refuses them.
_DYNAMIC_NAME = re.compile(r"[A-Za-z_-][A-Za-z0-9_-]{0,255}")
_GLOBAL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")
MAX_TOOLS = 128


def read_tools(
    value: Any, *, param: str, variant: ModelVariant, taken: Iterable[str] = (), dynamic: bool = False
) -> tuple[Tool, ...]:
    """The declared tools of one place. ``taken`` are names declared elsewhere, which must not come again."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ApiError(f"{param} must be a list", param=param)
    if len(value) > MAX_TOOLS:
        raise ApiError(f"{param} holds more than {MAX_TOOLS} tools", param=param)
    names = set(taken)
    tools = []
    for entry in value:
        tool = _read_tool(entry, param, variant, dynamic)
        # Real requests declare a global tool twice and are answered; only dynamic tools must be unique.
        if dynamic and tool.name in names:
            raise ApiError(f"tool {tool.name} is declared twice", param=param)
        names.add(tool.name)
        tools.append(tool)
    return tuple(tools)


def _read_tool(entry: Any, param: str, variant: ModelVariant, dynamic: bool) -> Tool:
    if not isinstance(entry, dict):
        raise ApiError(f"a tool in {param} must be an object", param=param)
    if entry.get("type") != "function":
        raise ApiError(f"a tool in {param} must have the type function", param=param)
    function = entry.get("function")
    if not isinstance(function, dict):
        raise ApiError(f"a tool in {param} must have a function", param=param)
    name = function.get("name")
    allowed = _DYNAMIC_NAME if dynamic else _GLOBAL_NAME
    if not isinstance(name, str) or not allowed.fullmatch(name):
        raise ApiError(f"a tool's name in {param} is missing or invalid", param=param)
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise ApiError(f"the description of tool {name} must be a string", param=param)
    strict = _strict(function, f"tool {name}", param, default=False)
    parameters = function.get("parameters")
    if parameters is not None:
        check_schema(parameters, param=param)
        if parameters.get("type", "object") != "object":
            raise ApiError(f"the parameters of tool {name} must be an object schema", param=param, reason="schema")
        if strict and variant.strict_schemas:
            check_mfjs(parameters, param=param, size=len(compact(parameters)))
    return Tool(name=name, parameters=parameters or {}, raw=entry)


def _strict(holder: JsonObject, label: str, param: str, *, default: bool) -> bool:
    value = holder.get("strict")
    if value is not None and not isinstance(value, bool):
        raise ApiError(f"strict of {label} must be a boolean", param=param)
    return default if value is None else value


def read_tool_choice(value: Any, *, tools: tuple[Tool, ...], variant: ModelVariant) -> tuple[ChoiceMode, str | None]:
    """The mode and, for a named choice, the function. ``tools`` are all callable ones: dynamic tools count.

    Public sources disagree on a named choice with K3 (ignored, or refused while thinking); here it is honoured.
    """
    match value:
        case None | "auto":
            return "auto", None
        case "none":
            return "none", None
        case "required":
            if not tools:
                raise ApiError("tool_choice required needs tools", param="tool_choice")
            return "required", None
        case {"type": "function", "function": {"name": str(name)}}:
            if not any(tool.name == name for tool in tools):
                raise ApiError("tool_choice names a tool that is not declared", param="tool_choice")
            return "named", name
    raise ApiError("tool_choice must be auto, none, required or a function", param="tool_choice")


def read_response_format(value: Any, *, variant: ModelVariant) -> ResponseFormat:
    """The response format; for json_schema a name and an object schema are required and strict defaults to true."""
    if value is None:
        return ResponseFormat()
    if not isinstance(value, dict):
        raise ApiError("response_format must be an object", param="response_format")
    match value.get("type"):
        case "text":
            return ResponseFormat()
        case "json_object":
            return ResponseFormat(kind="json_object")
        case "json_schema":
            return _read_json_schema(value.get("json_schema"), variant)
    raise ApiError("response_format.type must be text, json_object or json_schema", param="response_format")


def _read_json_schema(value: Any, variant: ModelVariant) -> ResponseFormat:
    param = "response_format.json_schema"
    if not isinstance(value, dict):
        raise ApiError(f"{param} must be an object", param=param, reason="schema")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise ApiError(f"{param}.name is required", param=param, reason="schema")
    strict = _strict(value, param, param, default=True)
    schema = value.get("schema")
    if not isinstance(schema, dict):
        raise ApiError(f"{param}.schema must be an object", param=param, reason="schema")
    check_schema(schema, param=param)
    if strict and variant.strict_schemas:
        check_mfjs(schema, param=param, size=len(compact(schema)))
    return ResponseFormat(kind="json_schema", schema=schema, strict=strict)
