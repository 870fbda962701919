"""Which JSON schemas are refused.

``check_schema`` refuses what is no schema at all, on every variant: wrong shapes, unknown types, references that lead
nowhere, schemas that no finite value can satisfy. ``check_mfjs`` adds the rules of Moonshot Flavored JSON Schema
(limits as in the published defaults) and is applied where the request says strict.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from kvv.mockserver.config import JsonObject
from kvv.mockserver.errors import ApiError
from kvv.mockserver.validation.schema_walk import NoValue, minimum_depth, resolve, subschemas

TYPES = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
_MAX_KEYS, _MAX_DEPTH, _MAX_ANY_OF, _MAX_ENUM, _MAX_CHARS = 3000, 30, 500, 1000, 120_000
_ANNOTATIONS = frozenset({"description", "title"})
_ROOT_ONLY = frozenset({"$defs", "$id"})
# The later published data call a property without a type valid; what may stand there is then anything.
_MAY_BE_EMPTY = frozenset({"properties", "additionalProperties"})
_RESERVED_PROPERTIES = frozenset({"$defs", "$ref", "anyOf", "required", "additionalProperties"})
# pattern is in the published list of unsupported keywords, yet later published test data accept it: it is let through.
_BY_TYPE = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
}
_ANY_TYPE = frozenset({"type", "enum", "anyOf", "$ref", "description", "title", "default", "$defs", "$id"})
_KEYWORDS = _ANY_TYPE.union(*_BY_TYPE.values())


def _bad(message: str, path: str, param: str) -> ApiError:
    return ApiError(f"invalid schema at {path or 'root'}: {message}", param=param, reason="schema")


def check_schema(schema: Any, *, param: str) -> None:
    """Refuse a value that is not a usable JSON schema; raises ApiError with reason ``schema``."""
    if not isinstance(schema, dict):
        raise _bad("must be an object", "", param)
    for path, node in walk(schema, param):
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            raise _bad("must be an object", path, param)
        _check_shapes(node, path, param)
        if (ref := node.get("$ref")) is not None:
            try:
                resolve(schema, ref)
            except NoValue as error:
                raise _bad(str(error), path, param) from None
    try:
        minimum_depth(schema)
    except NoValue as error:
        raise _bad(str(error), "", param) from None


def walk(schema: Any, param: str) -> Iterator[tuple[str, Any]]:
    """Every subschema with its path, without recursion; shapes that hide subschemas are refused on the way."""
    stack: list[tuple[str, Any]] = [("", schema)]
    while stack:
        path, node = stack.pop()
        yield path, node
        if isinstance(node, dict):
            stack.extend((f"{path}/{where}", child) for where, child in subschemas(node))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_pattern(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _is_type(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in TYPES for name in names)


_SHAPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "type": (_is_type, "type must name JSON types"),
    "properties": (lambda value: isinstance(value, dict), "properties must be an object"),
    "$defs": (lambda value: isinstance(value, dict), "$defs must be an object"),
    "definitions": (lambda value: isinstance(value, dict), "definitions must be an object"),
    "patternProperties": (lambda value: isinstance(value, dict), "patternProperties must be an object"),
    "required": (_is_names, "required must be a list of names"),
    "enum": (lambda value: isinstance(value, list) and bool(value), "enum must be a list that is not empty"),
    "items": (lambda value: isinstance(value, (dict, bool)), "items must be one schema"),
    "additionalProperties": (
        lambda value: isinstance(value, (dict, bool)),
        "additionalProperties must be a schema or a boolean",
    ),
    "$ref": (lambda value: isinstance(value, str), "$ref must be a string"),
    "$id": (lambda value: isinstance(value, str), "$id must be a string"),
    "pattern": (_is_pattern, "pattern must be a regular expression"),
    **{
        name: (lambda value: isinstance(value, list) and bool(value), f"{name} must be a list that is not empty")
        for name in ("anyOf", "oneOf", "allOf")
    },
    **{
        name: (_is_number, f"{name} must be a number")
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    },
    **{
        name: (_is_count, f"{name} must be an integer from 0")
        for name in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
    },
}
_RANGES = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)


def _check_shapes(node: JsonObject, path: str, param: str) -> None:
    for keyword, (fits, message) in _SHAPES.items():
        if keyword in node and not fits(node[keyword]):
            raise _bad(message, path, param)
    for low, high in _RANGES:
        if low in node and high in node and node[low] > node[high]:
            raise _bad(f"{low} is above {high}", path, param)


def check_mfjs(schema: JsonObject, *, param: str, size: int) -> None:
    """Refuse a schema outside MFJS. ``size`` is the length of its compact JSON in characters."""
    if size > _MAX_CHARS:
        raise _bad("schema is too long", "", param)
    keys = 0
    for path, node in walk(schema, param):
        if isinstance(node, bool):
            if not path.endswith("/additionalProperties"):
                raise _bad("a boolean is no schema here", path, param)
            continue
        keys += len(node.get("properties", ()))
        _check_node(node, path, param)
    if keys > _MAX_KEYS:
        raise _bad("too many properties", "", param)
    root_type = schema.get("type")
    if schema and root_type != "object" and not ("anyOf" in schema or "$ref" in schema):
        raise _bad("the root must be an object schema", "", param)


def _check_node(node: JsonObject, path: str, param: str) -> None:
    root = path == ""
    if misplaced := next(
        (where for where, child in subschemas(node) if child == {} and where.partition("/")[0] not in _MAY_BE_EMPTY),
        None,
    ):
        raise _bad(
            "an empty schema is only allowed at the root, as a property or as additionalProperties",
            f"{path}/{misplaced}",
            param,
        )
    if unknown := next((key for key in node if key not in _KEYWORDS), None):
        raise _bad(f"unsupported keyword {unknown}", path, param)
    if not root and (placed := _ROOT_ONLY & node.keys()):
        raise _bad(f"{sorted(placed)[0]} is only allowed at the root", path, param)
    if any("/" in name for name in node.get("$defs", ())):
        raise _bad("a definition's name holds a slash", path, param)
    if path.count("/properties/") + path.count("/items") > _MAX_DEPTH:
        raise _bad("schema is too deep", path, param)
    composed = {"anyOf", "$ref"} & node.keys()
    if composed:
        beside = node.keys() - composed - _ANNOTATIONS - (_ROOT_ONLY if root else set())
        if beside or len(composed) > 1:
            raise _bad("only description and title may stand beside anyOf or $ref", path, param)
        if len(node.get("anyOf", ())) > _MAX_ANY_OF:
            raise _bad("anyOf is too long", path, param)
        if not str(node.get("$ref", "#")).startswith("#"):
            raise _bad("only local references are supported", path, param)
    elif node and "type" not in node:
        raise _bad("type is missing", path, param)
    else:
        kinds = node.get("type", [])
        fitting = _ANY_TYPE.union(
            *(_BY_TYPE.get(kind, frozenset()) for kind in (kinds if isinstance(kinds, list) else [kinds]))
        )
        if strange := sorted(node.keys() - fitting):
            raise _bad(f"{strange[0]} does not go with this type", path, param)
    _check_object(node, path, param)
    _check_values(node, path, param)


def _check_object(node: JsonObject, path: str, param: str) -> None:
    properties = node.get("properties", {})
    if reserved := _RESERVED_PROPERTIES & properties.keys():
        raise _bad(f"a property must not be called {sorted(reserved)[0]}", path, param)
    required = node.get("required", [])
    if not set(required) <= properties.keys():
        raise _bad("required names an undeclared property", path, param)


def _check_values(node: JsonObject, path: str, param: str) -> None:
    kinds = node.get("type")
    enum = node.get("enum")
    if isinstance(kinds, list) and enum is not None and (len(kinds) > 2 or (len(kinds) == 2 and kinds[1] != "null")):
        raise _bad("enum with this list of types", path, param)
    names = kinds if isinstance(kinds, list) else [kinds]
    if enum is not None:
        if len(enum) > _MAX_ENUM:
            raise _bad("enum is too long", path, param)
        if not all(any(fits_type(value, name) for name in names) for value in enum):
            raise _bad("enum does not fit type", path, param)
    for bound in ("minimum", "maximum"):
        value = node.get(bound)
        if value is not None and "integer" in names and not fits_type(value, "integer"):
            raise _bad(f"{bound} is no integer", path, param)
    default = node.get("default")
    if default is not None and not any(fits_type(default, name) for name in names):
        raise _bad("default does not fit type", path, param)


def fits_type(value: Any, name: str | None) -> bool:
    """Whether a JSON value has the JSON type of this name; integral floats are integers, booleans are no numbers."""
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "number":
            return _is_number(value)
        case "integer":
            return _is_number(value) and (isinstance(value, int) or value.is_integer())
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    return False
