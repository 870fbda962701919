"""JSON Schemas as parameters of a forced tool: which are asked, how they are wrapped, and the cases they make.

Selection and wrapping are those of the public verifier (MoonshotAI/Kimi-Vendor-Verifier, tests/tool_call_json_schema):
each schema becomes the one required property ``value`` of a strict tool, its ``$defs`` and ``$id`` move to the root, a
reference to its own root is redirected to a definition of its own, and every ``default`` is taken out.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kvv.cases.contract import can_force, is_claimed, plain_case, thinking_off, thinks
from kvv.cases.suite import Context
from kvv.core import Area, Case, Level

TOOL = "submit_value"
MAX_TOKENS = 2048
PROMPT = (
    f"Call the tool {TOOL} once. Give it the smallest arguments that its parameter schema accepts: every required"
    " property, no text beside the call, and values of your own choice where the schema leaves one."
)
SOURCE = (
    "https://github.com/MoonshotAI/Kimi-Vendor-Verifier (tests/tool_call_json_schema),"
    " https://github.com/MoonshotAI/walle"
)
#: groups whose keyword goes beyond MFJS, and the claim that each wants
CLAIMS: Mapping[str, str] = {
    "extra-const": "schema:const",
    "extra-big-integer": "schema:big-integer",
    "extra-pattern": "schema:pattern",
    "extra-format": "schema:format",
}
#: the longest minLength that the public verifier asks for
_LONGEST = 1000
#: how a property's name may not look: the public verifier found that decoders mangle these
_ESCAPES = ("\\n", "\\t", "\\r", "\\b", "\\f")
_SIMPLE = frozenset({"string", "number", "integer", "boolean", "null"})
#: how often each keyword is asked in the small tier
_COVER = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """One line of ``fixtures/tools/<group>.jsonl``; lines are only ever appended, so ``number`` (from 1) keeps its
    meaning.
    """

    group: str
    number: int
    schema: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.group}/{self.number:02d}"


@cache
def load_shipped() -> tuple[Shipped, ...]:
    """Every schema of our own, by group and line."""
    folder = files("kvv.fixtures").joinpath("tools")
    found = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        group, _, suffix = entry.name.rpartition(".")
        if suffix == "jsonl":
            lines = entry.read_text("utf-8").split("\n")
            found += [
                Shipped(group=group, number=at, schema=json.loads(line)) for at, line in enumerate(lines, 1) if line
            ]
    return tuple(found)


# --- selection -------------------------------------------------------------------------------------


def unfit(schema: Any) -> str:
    """Why the public verifier leaves this schema out, or nothing."""
    if not _finite(schema):
        return "holds a number that JSON cannot say"
    if not isinstance(schema, Mapping):
        return ""
    if schema.get("type") == "string" and _number(schema.get("minLength")) > _LONGEST:
        return f"wants more than {_LONGEST} characters"
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and any(_mangled(name) for name in properties):
        return "names a property with outer white space, with a written escape, or with nothing"
    if _bottomless(schema):
        return "a definition requires itself"
    return ""


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return all(_finite(item) for item in _children(value))


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple)):
        yield from value


def _number(value: Any) -> float:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def _mangled(name: str) -> bool:
    return not name or name != name.strip() or any(escape in name for escape in _ESCAPES)


def _references(value: Any) -> Iterator[str]:
    """Every ``$ref`` below, those of properties that are called so included, as the public verifier reads them."""
    if isinstance(value, Mapping) and isinstance(value.get("$ref"), str):
        yield value["$ref"]
    for item in _children(value):
        yield from _references(item)


def _bottomless(schema: Mapping[str, Any]) -> bool:
    """Whether a definition holds itself in a required property and nothing in it could end the recursion."""
    definitions = schema.get("$defs")
    for name, definition in definitions.items() if isinstance(definitions, Mapping) else ():
        own = f"#/$defs/{name}"
        if not isinstance(definition, Mapping) or own not in set(_references(schema)) or _ends(definition):
            continue
        required = definition.get("required", ())
        properties = definition.get("properties", {})
        if any(own in set(_references(part)) for part_name, part in properties.items() if part_name in required):
            return True
    return False


def _ends(value: Any) -> bool:
    """Whether some part has a simple type or an enum; of alternatives one is enough, and nothing beside them counts."""
    if isinstance(value, Mapping):
        kinds = value.get("type")
        if any(kind in _SIMPLE for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)):
            return True
        for keyword in ("anyOf", "oneOf"):
            if keyword in value:
                return any(_ends(option) for option in value[keyword])
        if "enum" in value:
            return True
    return any(_ends(item) for item in _children(value))


# --- wrapping --------------------------------------------------------------------------------------


def wrap_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters whose one required property ``value`` has this schema."""
    definitions: dict[str, Any] = dict(schema.get("$defs", {}))
    inner: Any = {key: value for key, value in schema.items() if key not in ("$defs", "$id")}
    parameters: dict[str, Any] = {"type": "object", "required": ["value"], "additionalProperties": False}
    if "#" in set(_references(schema)):
        name = "__case_schema"
        while name in definitions:
            name = f"_{name}"
        definitions = _redirected({**definitions, name: inner}, f"#/$defs/{name}")
        inner = {"$ref": f"#/$defs/{name}"}
    else:
        # a path into the schema's own root (``#/properties/a``) goes on from where that root stands now
        definitions, inner = (
            _redirected(definitions, "#/properties/value", whole=False),
            _redirected(inner, "#/properties/value", whole=False),
        )
    parameters["properties"] = {"value": inner}
    if definitions or "$defs" in schema:
        parameters["$defs"] = definitions
    if "$id" in schema:
        parameters["$id"] = schema["$id"]
    result: dict[str, Any] = _without_defaults(parameters)
    return result


def _redirected(value: Any, root: str, *, whole: bool = True) -> Any:
    """Every reference to the old root, or to a path below it that is no definition, moved to ``root``."""
    if isinstance(value, Mapping):
        moved = {key: _redirected(item, root, whole=whole) for key, item in value.items()}
        return {**moved, "$ref": _moved(value["$ref"], root, whole)} if isinstance(value.get("$ref"), str) else moved
    if isinstance(value, list):
        return [_redirected(item, root, whole=whole) for item in value]
    return value


def _moved(reference: str, root: str, whole: bool) -> str:
    if reference == "#" and whole:
        return root
    if reference.startswith("#/") and not reference.startswith("#/$defs/"):
        return root + reference[1:]
    return reference


def _without_defaults(value: Any) -> Any:
    """Defaults make decoders leave required properties out, so the public verifier removes every key of that name."""
    if isinstance(value, Mapping):
        return {key: _without_defaults(item) for key, item in value.items() if key != "default"}
    if isinstance(value, list):
        return [_without_defaults(item) for item in value]
    return value


# --- the small tier ----------------------------------------------------------------------------------


def keywords(schema: Any) -> set[str]:
    """Keywords of a schema, each type as ``type:name``, wherever they stand; names of properties are none."""
    found: set[str] = set()
    if not isinstance(schema, Mapping):
        return found
    for key, value in schema.items():
        found.add(key)
        if key in ("properties", "$defs"):
            for part in value.values():
                found |= keywords(part)
        elif key in ("items", "additionalProperties"):
            found |= keywords(value)
        elif key == "anyOf":
            for part in value:
                found |= keywords(part)
        elif key == "type":
            found |= {f"type:{name}" for name in (value if isinstance(value, list) else [value])}
    return found


def covering(schemas: Sequence[Shipped]) -> list[Shipped]:
    """The first schemas, in order, with which every keyword, every type and every group comes twice (or as often as it
    does).
    """
    seen: Counter[str] = Counter()
    chosen = []
    for one in schemas:
        features = {f"group:{one.group}", *keywords(one.schema)}
        if any(seen[feature] < _COVER for feature in features):
            chosen.append(one)
            seen.update(features)
    return chosen


# --- cases -------------------------------------------------------------------------------------------


def shipped_cases(context: Context) -> list[Case]:
    """Each schema streamed and not; in the tier ``smoke`` only a covering part."""
    chosen = covering(load_shipped()) if context.tier == "smoke" else load_shipped()
    return [
        _case(f"schema/{one.name}", one.schema, context, stream=stream, skip=_skip(context, CLAIMS.get(one.group)))
        for one in chosen
        for stream in (True, False)
    ]


def data_cases(rows: Sequence[Mapping[str, Any]], context: Context) -> list[Case]:
    """One streamed and one whole case a row; rows that the public verifier leaves out are SKIP and say why."""
    cases = []
    for number, row in enumerate(rows, 1):
        reason = unfit(row)
        skip = f"left out as the public verifier does: {reason}" if reason else _skip(context, None)
        cases += [
            _case(f"data/{number:04d}", row, context, stream=stream, skip=skip, strict=True) for stream in (True, False)
        ]
    return cases


def _skip(context: Context, claim: str | None) -> str:
    missing = [name for name in ("tools", *([claim] if claim else [])) if not is_claimed(context, name)]
    return (
        f"the profile {context.profile.id} does not claim {', '.join(missing)} on the surface {context.profile.surface}"
        if missing
        else ""
    )


def _case(
    name: str, schema: Mapping[str, Any], context: Context, *, stream: bool, skip: str, strict: bool | None = None
) -> Case:
    # strict mode of other models takes another subset of JSON Schema: there the schema is declared without it
    kimi = "moonshot" in context.profile.claims.contracts
    function: dict[str, Any] = {
        "name": TOOL,
        "description": "Takes one value.",
        "parameters": {"@literal": _compact(wrap_schema(schema))},
    }
    if kimi if strict is None else strict:
        function["strict"] = True
    base, asked = _base(context, stream), not can_force(context, thinks=thinks(_switch(context), context))
    body = {
        **base,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "auto" if asked else "required",
        "max_tokens": MAX_TOKENS,
    }
    level, how = Level.MUST if kimi and not asked else Level.SHOULD, "an asked" if asked else "a forced"
    shown = ", ".join(sorted(key for key in keywords(schema) if ":" not in key)) or "no keyword"
    return plain_case(
        f"tools/{name}/{'stream' if stream else 'whole'}",
        suite="tools",
        area=Area.TOOLS,
        level=level,
        requirement=f"Arguments of {how} call {level.value.upper()} satisfy the declared schema ({shown})",
        source=SOURCE,
        since="0.2",
        body=body,
        control={**base, "messages": [{"role": "user", "content": "Reply with exactly: ready"}], "max_tokens": 256},
        checks={"calls": TOOL, "valid-arguments": True, "valid-formats": True},
        skip=skip,
        asked=asked,
    )


def _base(context: Context, stream: bool) -> dict[str, Any]:
    """The request without a tool, thinking at its lowest effort, as case files make it."""
    thinking, settings = context.profile.thinking, context.settings
    effort = settings.effort or (thinking.efforts[0] if thinking.efforts else None)
    body: dict[str, Any] = {"model": context.model, "messages": [{"role": "user", "content": PROMPT}]}
    body |= context.profile.thinking_body(on=_switch(context), effort=effort, mode=settings.think_mode)
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body | dict(settings.extra_body)


def _switch(context: Context) -> bool | None:
    """Thinking is on, unless the run says otherwise or the profile claims tools only without it."""
    if not context.profile.thinking.supported:
        return None
    idle = "tools" in context.profile.claims.not_thinking and thinking_off(context)
    return context.settings.thinking is not False and not idle


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
