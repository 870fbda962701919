"""A value for a JSON schema, right by construction for the keywords of MFJS and for the common ones beyond it.

The value is a function of the schema and of the literals that the prompt states; there is no randomness. Recursive
schemas end because every level has a depth budget and only branches that fit it are taken (``Depths``).
"""

from collections.abc import Mapping
from math import ceil, floor
from typing import Any

from jsonschema import Draft202012Validator
from referencing.exceptions import Unresolvable

from kvv.mockserver.config import JsonObject
from kvv.mockserver.content.regex_text import text_matching
from kvv.mockserver.validation.schema_check import fits_type
from kvv.mockserver.validation.schema_walk import Depths, NoValue, minimum_depth, resolve

_SPARE_DEPTH = 2
_MAX_NODES = 400
_WORDS = [
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "harbor",
    "island",
    "juniper",
    "kelp",
    "lagoon",
    "meadow",
    "north",
    "orchard",
    "prairie",
    "quartz",
    "river",
    "summit",
    "tundra",
]
_FORMATS = {
    "date": "2026-08-13",
    "date-time": "2026-08-13T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "P3DT4H",
    "email": "ada@example.org",
    "hostname": "host.example.org",
    "ipv4": "192.0.2.10",
    "ipv6": "2001:db8::10",
    "uri": "https://example.org/a",
    "uri-reference": "/a/b",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "json-pointer": "/a/0",
    "regex": "^a+$",
}


def value_for(schema: JsonObject, literals: Mapping[str, Any] | None = None) -> Any:
    """A value that satisfies ``schema``. ``literals`` maps property names to values to use where they are valid.

    Raises NoValue if the schema has no value that this generator finds.
    """
    return _Generator(schema, literals or {}).run()


def is_valid(schema: Any, value: Any, root: JsonObject) -> bool:
    """Whether a value satisfies a subschema of ``root``, by the jsonschema library; False if that cannot be told."""
    if isinstance(schema, bool):
        return schema
    try:
        # evolve keeps the root as the document that references lead into
        return bool(Draft202012Validator(root).evolve(schema=schema).is_valid(value))
    except (RecursionError, Unresolvable):  # a branch that leads back to itself, an $id that moves references elsewhere
        return False


class _Generator:
    def __init__(self, root: JsonObject, literals: Mapping[str, Any]) -> None:
        self.root = root
        self.literals = literals
        self.depths = Depths(root)
        self.nodes = 0

    def run(self) -> Any:
        return self.value(self.root, minimum_depth(self.root) + _SPARE_DEPTH)

    def value(self, schema: Any, budget: int) -> Any:
        self.nodes += 1
        if isinstance(schema, bool):
            if not schema:
                raise NoValue("the schema false has no value")
            return "any"
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._enum(schema)
        node = self._flattened(schema, budget)
        if node is not schema:
            return self.value(node, budget)
        match self._type(schema, budget):
            case "object":
                return self._object(schema, budget)
            case "array":
                return self._array(schema, budget)
            case "string":
                return _string(schema)
            case "integer":
                return _integer(schema)
            case "number":
                return _number(schema)
            case "boolean":
                return True
        return None

    def _flattened(self, node: JsonObject, budget: int) -> Any:
        """The node without $ref, anyOf, oneOf and allOf; the node itself if it has none of them."""
        if "$ref" in node:
            return _merged(
                {key: value for key, value in node.items() if key != "$ref"}, resolve(self.root, node["$ref"])
            )
        if "allOf" in node:
            merged: Any = {key: value for key, value in node.items() if key != "allOf"}
            for part in node["allOf"]:
                merged = _merged(merged, part)
            return merged
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                branch = self._branch(node[keyword], budget, exclusive=keyword == "oneOf")
                return _merged({key: value for key, value in node.items() if key != keyword}, branch)
        return node

    def _branch(self, branches: list[Any], budget: int, *, exclusive: bool) -> Any:
        fitting = [branch for branch in branches if self.depths.fits(branch, budget)]
        if exclusive:
            for branch in fitting:
                candidate = self.value(branch, budget)
                if sum(is_valid(other, candidate, self.root) for other in branches) == 1:
                    return branch
        if not fitting:
            raise NoValue("no branch has a value")
        return fitting[0]

    def _type(self, node: JsonObject, budget: int) -> str:
        kinds = node.get("type")
        if isinstance(kinds, list):
            # Null last: a nullable property is better shown with a value, if one fits.
            names = sorted(kinds, key=lambda name: name == "null")
            fitting = (str(name) for name in names if self.depths.type_fits(node, name, budget))
            return next(fitting, str(names[0]))
        if isinstance(kinds, str):
            return kinds
        if node.keys() & {"properties", "required", "minProperties", "additionalProperties", "patternProperties"}:
            return "object"
        if node.keys() & {"items", "minItems", "prefixItems", "contains"}:
            return "array"
        if node.keys() & {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}:
            return "number"
        return "string"

    def _enum(self, node: JsonObject) -> Any:
        kinds = node.get("type")
        names = kinds if isinstance(kinds, list) else [kinds]
        for value in node["enum"]:
            if kinds is None or any(fits_type(value, name) for name in names):
                rest = {key: bound for key, bound in node.items() if key in _SCALAR_BOUNDS}
                if not rest or is_valid(rest, value, self.root):
                    return value
        raise NoValue("no entry of the enum fits")

    def _object(self, node: JsonObject, budget: int) -> JsonObject:
        properties: JsonObject = node.get("properties", {})
        required = list(node.get("required", ()))
        names = [name for name in properties if name in required or self._affordable(properties[name], budget)]
        names += [name for name in required if name not in properties]
        most = node.get("maxProperties", len(names))
        names = [name for name in names if name in required][:most] if len(names) > most else names
        result = {name: self._property(node, name, budget) for name in names}
        least = node.get("minProperties", 0)
        for at in range(least - len(result)):
            name = f"extra_{at + 1}"
            result[name] = self._property(node, name, budget)
        if (
            not properties
            and not required
            and not least
            and isinstance(extra := node.get("additionalProperties"), dict)
            and self._affordable(extra, budget)
        ):
            result["key"] = self._property(node, "key", budget)
        return result

    def _affordable(self, schema: Any, budget: int) -> bool:
        """An optional part is included while the value stays small and shallow enough."""
        return self.nodes < _MAX_NODES and self.depths.fits(schema, budget - 1)

    def _property(self, node: JsonObject, name: str, budget: int) -> Any:
        schema = node.get("properties", {}).get(name)
        if schema is None:
            extra = node.get("additionalProperties", True)
            matching = list(node.get("patternProperties", {}).values())
            schema = matching[0] if matching and extra is False else extra
            if schema is False:
                raise NoValue(f"property {name} is required and forbidden")
        if name in self.literals and is_valid(schema, self.literals[name], self.root):
            return self.literals[name]
        return self.value(schema, budget - 1)

    def _array(self, node: JsonObject, budget: int) -> list[Any]:
        prefix = list(node.get("prefixItems", ()))
        items = node.get("items", True)
        least = max(node.get("minItems", 0), 1 if "contains" in node else 0)
        most = node.get("maxItems")
        wanted = max(
            least,
            len(prefix),
            1 if self.depths.fits(items, budget - 1) and self.nodes < _MAX_NODES and items is not False else 0,
        )
        size = wanted if most is None else min(wanted, most)
        result = [self.value(prefix[at] if at < len(prefix) else items, budget - 1) for at in range(size)]
        if result and "contains" in node:
            result[-1] = self.value(node["contains"], budget - 1)
        return _distinct(result, items) if node.get("uniqueItems") else result


_SCALAR_BOUNDS = frozenset(
    {"minimum", "maximum", "minLength", "maxLength", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern"}
)


def _merged(one: Any, other: Any) -> Any:
    """Both schemas in one: properties and required are united, the tighter bound wins, for the rest the first."""
    if isinstance(other, bool):
        return one if other else False
    if isinstance(one, bool):
        return other if one else False
    merged = {**other, **one}
    for key in ("properties", "$defs", "patternProperties"):
        if key in one and key in other:
            both = {name: _merged(one[key][name], other[key][name]) for name in one[key].keys() & other[key].keys()}
            merged[key] = {**other[key], **one[key], **both}
    if "required" in one and "required" in other:
        merged["required"] = list(dict.fromkeys([*other["required"], *one["required"]]))
    for key in ("minimum", "minLength", "minItems", "exclusiveMinimum"):
        if key in one and key in other:
            merged[key] = max(one[key], other[key])
    for key in ("maximum", "maxLength", "maxItems", "exclusiveMaximum"):
        if key in one and key in other:
            merged[key] = min(one[key], other[key])
    for key in ("anyOf", "oneOf", "$ref"):
        if key in one and key in other:
            merged[key] = other[key]
            merged["allOf"] = [*merged.get("allOf", ()), {key: one[key]}]
    return merged


def _string(node: JsonObject) -> str:
    least, most = node.get("minLength", 0), node.get("maxLength")
    if "pattern" in node:
        return text_matching(node["pattern"], least, most)
    if (text := _FORMATS.get(node.get("format", ""))) is not None:
        return text
    text = "sample text"
    if len(text) < least:
        words: list[str] = []
        size = -1
        while size < least:
            words.append(_WORDS[(len(words) * 7 + len(words) // 20) % 20])
            size += len(words[-1]) + 1
        text = " ".join(words)[: max(least, 1)]
        text = text[:-1] + "e" if text.endswith(" ") else text
    return text if most is None else text[:most].rstrip() + "e" * max(0, least - len(text[:most].rstrip()))


def _bounds(node: JsonObject) -> tuple[Any, Any]:
    lows = [node[key] for key in ("minimum", "exclusiveMinimum") if key in node]
    highs = [node[key] for key in ("maximum", "exclusiveMaximum") if key in node]
    return (max(lows) if lows else None), (min(highs) if highs else None)


def _integer(node: JsonObject) -> int:
    low, high = _bounds(node)
    least = None if low is None else (floor(low) + 1 if low == node.get("exclusiveMinimum") else ceil(low))
    most = None if high is None else (ceil(high) - 1 if high == node.get("exclusiveMaximum") else floor(high))
    step = node.get("multipleOf")
    value = 1 if step is None else 0
    if least is not None:
        value = max(value, least)
    if most is not None:
        value = min(value, most)
    if step:
        start = ceil(value / step) if least is not None else floor(value / step)
        multiples = (start + at for at in range(10_000))
        value = next((int(at * step) for at in multiples if float(at * step).is_integer()), 0)
    if (least is not None and value < least) or (most is not None and value > most):
        raise NoValue("no integer lies within the bounds")
    return value


def _number(node: JsonObject) -> int | float:
    low, high = _bounds(node)
    if step := node.get("multipleOf"):
        start = (
            1
            if low is None
            else floor(low / step) + (1 if low == node.get("exclusiveMinimum") or floor(low / step) * step < low else 0)
        )
        value: int | float = start * step
        value = value if high is None or value <= high else floor(high / step) * step
        return value
    open_low, open_high = (
        low is not None and low == node.get("exclusiveMinimum"),
        high is not None and high == node.get("exclusiveMaximum"),
    )
    for value in (1.5, 0.5, low, high):
        if value is None or (low is not None and (value < low or (open_low and value == low))):
            continue
        if high is None or value < high or (value == high and not open_high):
            return value
    if low is None or high is None:
        return float(low) + 1 if low is not None else float(high) - 1
    if not low < (low + high) / 2 < high:
        raise NoValue("no number lies within the bounds")
    return float((low + high) / 2)


def _distinct(values: list[Any], items: Any) -> list[Any]:
    """The values with repeated ones varied, where their schema leaves room for it."""
    enum = items.get("enum") if isinstance(items, dict) else None
    result: list[Any] = []
    for at, value in enumerate(values):
        match value:
            case _ if value not in result:
                result.append(value)
            case _ if enum is not None:
                result.append(next((entry for entry in enum if entry not in result), value))
            case bool():
                result.append(not value)
            case int() | float():
                result.append(value + at)
            case str():
                result.append(f"{value}{at}")
            case dict() if value:
                first = next(iter(value))
                varied = value[first]
                result.append(
                    {
                        **value,
                        first: f"{varied}{at}"
                        if isinstance(varied, str)
                        else varied + at
                        if isinstance(varied, int)
                        else at,
                    }
                )
            case _:
                result.append(value)
    return result
