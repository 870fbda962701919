"""How a JSON schema hangs together: its subschemas, its local references, and the depth that a value of it needs."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from kvv.mockserver.config import JsonObject

MAX_DEPTH = 120
Schema = JsonObject | bool

_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


class NoValue(Exception):
    """No finite value satisfies the schema, or a reference in it leads nowhere."""


def subschemas(node: JsonObject) -> Iterator[tuple[str, Any]]:
    """The direct subschemas of a node with their places, among them values that are no schemas."""
    for keyword in _MAPS:
        if isinstance(children := node.get(keyword), dict):
            for name, child in children.items():
                yield f"{keyword}/{name}", child
    for keyword in _LISTS:
        if isinstance(children := node.get(keyword), list):
            for at, child in enumerate(children):
                yield f"{keyword}/{at}", child
    for keyword in _SINGLE:
        if keyword in node:
            yield keyword, node[keyword]


def resolve(root: JsonObject, ref: str) -> Schema:
    """The schema that a local reference (a JSON pointer, or an ``$id``/``$anchor`` of the root) leads to."""
    if ref in ("#", root.get("$id")):
        return root
    if not ref.startswith("#/"):
        for node in root.get("$defs", {}).values():
            if isinstance(node, dict) and ref in (f"#{node.get('$anchor')}", node.get("$id")):
                return node
        raise NoValue(f"reference {ref} is not local")
    target: Any = root
    for step in unquote(ref[2:]).split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and key in target:
            target = target[key]
        elif isinstance(target, list) and key.isdigit() and int(key) < len(target):
            target = target[int(key)]
        else:
            raise NoValue(f"reference {ref} leads nowhere")
    if not isinstance(target, (dict, bool)):
        raise NoValue(f"reference {ref} does not lead to a schema")
    return target


class Depths:
    """Answers whether a schema of one document has a value within a depth budget; scalars need depth 0.

    Raises NoValue for a document whose root has no value within ``MAX_DEPTH``.
    """

    def __init__(self, root: JsonObject) -> None:
        self.root = root
        self._known: dict[tuple[int, int], bool] = {}
        # Schemas merged on the fly must outlive their entry, or another object could take over their id.
        self._held: list[JsonObject] = []

    def fits(self, schema: Any, budget: int) -> bool:
        """Whether some value of ``schema`` nests at most ``budget`` levels deep."""
        if isinstance(schema, bool):
            return schema
        if budget < 0 or not isinstance(schema, dict):
            return False
        key = (id(schema), budget)
        if key not in self._known:
            # References that lead back here without a level in between have no value.
            self._held.append(schema)
            self._known[key] = False
            self._known[key] = self._fits(schema, budget)
        return self._known[key]

    def _fits(self, node: JsonObject, budget: int) -> bool:
        if "const" in node or "enum" in node:
            return True
        if "$ref" in node and not self.fits(resolve(self.root, node["$ref"]), budget):
            return False
        for keyword in ("anyOf", "oneOf"):
            if keyword in node and not any(self.fits(branch, budget) for branch in node[keyword]):
                return False
        if not all(self.fits(part, budget) for part in node.get("allOf", ())):
            return False
        kinds = node.get("type")
        names = kinds if isinstance(kinds, list) else [kinds]
        return any(self.type_fits(node, name, budget) for name in names)

    def type_fits(self, node: JsonObject, name: str | None, budget: int) -> bool:
        """Whether a value of the named type fits, by the keywords that nest."""
        if name == "object" or (name is None and "properties" in node):
            properties = node.get("properties", {})
            return all(self.fits(properties.get(key, True), budget - 1) for key in node.get("required", ()))
        if name == "array" and node.get("minItems", 0) > 0 and "items" in node:
            return self.fits(node["items"], budget - 1)
        return True


def minimum_depth(root: JsonObject) -> int:
    """The least depth of a value of this schema; raises NoValue if there is none within ``MAX_DEPTH``."""
    depths = Depths(root)
    # Doubling first keeps the common case (depth below 8) at a few passes.
    high = 1
    while not depths.fits(root, high):
        if high >= MAX_DEPTH:
            raise NoValue("no finite value satisfies the schema")
        high = min(high * 2, MAX_DEPTH)
    return next(depth for depth in range(high + 1) if depths.fits(root, depth))
