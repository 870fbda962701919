"""Values made for schemas satisfy them, by the judgement of the jsonschema library; MFJS is told from what is outside
it.
"""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kvv.mockserver.canonical import compact
from kvv.mockserver.content.regex_text import text_matching
from kvv.mockserver.content.schema_values import value_for
from kvv.mockserver.errors import ApiError
from kvv.mockserver.validation.schema_check import check_mfjs, check_schema
from kvv.mockserver.validation.schema_walk import NoValue

TREE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["value"],
}
BRANCHING = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}},
            "required": ["left", "right"],
        },
        {"type": "string"},
    ]
}
# Each is the schema of one required property, as KVV wraps its cases; definitions are lifted to the root.
MFJS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "minLength": {"type": "string", "minLength": 40, "maxLength": 41},
    "maxLength 0": {"type": "string", "maxLength": 0},
    "maxLength": {"type": "string", "maxLength": 3},
    "20 kB": {"type": "string", "minLength": 20_000},
    "integer": {"type": "integer"},
    "largest safe": {"type": "integer", "minimum": 2**53 - 1, "maximum": 2**53 - 1},
    "smallest safe": {"type": "integer", "minimum": -(2**53) + 1, "maximum": -(2**53) + 1},
    "negative": {"type": "integer", "maximum": -7},
    "float": {"type": "number", "minimum": 0.25, "maximum": 0.26},
    "negative float": {"type": "number", "maximum": -0.5},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "type list": {"type": ["string", "null"]},
    "all types": {"type": ["null", "string", "integer", "boolean", "array", "object", "number"]},
    "enum of strings": {"type": "string", "enum": ["", " ", "\n", "special\\chars"]},
    "enum of numbers": {"type": "number", "enum": [1, 2.5, -3.7], "minimum": -10},
    "enum within bounds": {"type": "integer", "enum": [1, 50, 99], "minimum": 10},
    "enum with null": {"type": ["string", "null"], "enum": ["value", None]},
    "array": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3},
    "empty array": {"type": "array", "items": {"type": "string"}, "maxItems": 0},
    "untyped array": {"type": "array"},
    "array of arrays": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
        "minItems": 1,
    },
    "empty object": {"type": "object"},
    "closed object": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "any map": {"type": "object", "additionalProperties": {}},
    "nested": {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}},
        "required": ["a"],
    },
    "odd names": {
        "type": "object",
        "properties": {
            "": {"type": "string"},
            "a/b": {"type": "string"},
            "名字": {"type": "string"},
            "a.b c": {"type": "null"},
        },
        "required": ["", "名字"],
    },
    "anyOf": {
        "anyOf": [{"type": "null"}, {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}]
    },
    "reference": {"$ref": "#/$defs/node", "description": "beside it"},
    "pattern": {"type": "string", "pattern": "^[a-z]{3}-\\d{2,4}$"},
    "default": {"type": "number", "default": 1.5, "description": "x", "title": "y"},
}
BEYOND: dict[str, dict[str, Any]] = {
    "const": {"const": {"a": [1]}},
    "beyond safe": {"type": "integer", "minimum": 2**53 + 1, "maximum": 2**53 + 1},
    "largest 64 bit": {"type": "integer", "const": 2**63 - 1},
    "exclusive": {"type": "integer", "exclusiveMinimum": 4, "exclusiveMaximum": 6},
    "exclusive float": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
    "multipleOf": {"type": "integer", "multipleOf": 7, "minimum": 15},
    "multipleOf below": {"type": "integer", "multipleOf": 7, "maximum": -1},
    "oneOf": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
    "allOf": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ]
    },
    "uniqueItems": {
        "type": "array",
        "items": {"type": "string", "enum": ["a", "b", "c"]},
        "minItems": 3,
        "uniqueItems": True,
    },
    "unique integers": {"type": "array", "items": {"type": "integer"}, "minItems": 4, "uniqueItems": True},
    "prefixItems": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
    "minProperties": {"type": "object", "minProperties": 3},
    "format": {"type": "string", "format": "date-time"},
    "no type": {"properties": {"a": {"type": "string"}}, "required": ["a"]},
    "bare bounds": {"minimum": 5},
}


def wrapped(schema: dict[str, Any], definition: dict[str, Any] | None = None) -> dict[str, Any]:
    root = {"type": "object", "properties": {"value": schema}, "required": ["value"], "additionalProperties": False}
    return {**root, "$defs": {"node": definition}} if definition is not None else root


CASES = {
    **{name: wrapped(schema, TREE if "$ref" in schema else None) for name, schema in MFJS.items()},
    "tree": wrapped({"$ref": "#/$defs/node"}, TREE),
    "branching recursion": wrapped({"$ref": "#/$defs/node"}, BRANCHING),
    "recursion through the root": {
        "type": "object",
        "properties": {"value": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
        "required": ["value"],
    },
    "reference into properties": {
        "type": "object",
        "properties": {"value": {"type": "string", "minLength": 2}, "other": {"$ref": "#/properties/value"}},
        "required": ["other"],
    },
    "reference into a definition's properties": wrapped(
        {"$ref": "#/$defs/node/properties/id"},
        {"type": "object", "properties": {"id": {"type": "integer", "minimum": 40}}},
    ),
    "reference into items": {
        "type": "object",
        "properties": {
            "value": {"$ref": "#/properties/list/items"},
            "list": {"type": "array", "items": {"type": "boolean"}},
        },
        "required": ["value"],
    },
    "empty root": {},
    "empty property": wrapped({}),
    "empty property called items": {"type": "object", "properties": {"items": {}}, "required": ["items"]},
}


def refused(check: Any, schema: Any) -> bool:
    try:
        check(schema)
    except ApiError as error:
        return error.status == 400 and error.reason == "schema"
    return False


def has_value(schema: Any) -> bool:
    try:
        value_for(schema)
    except NoValue:
        return False
    return True


def is_mfjs(schema: Any) -> None:
    check_schema(schema, param="tools")
    check_mfjs(schema, param="tools", size=len(compact(schema)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stream", [True, False])
def test_forced_calls_satisfy_a_strict_schema(kimi, name, stream):
    schema = CASES[name]
    tool = {"type": "function", "function": {"name": "kvv_case", "parameters": schema, "strict": True}}
    got = kimi.ask("Call the tool.", tools=[tool], tool_choice="required", stream=stream, reasoning_effort="low")
    assert got.status == 200, got.raw
    ((_, called, arguments),) = got.message["calls"]
    assert called == "kvv_case"
    Draft202012Validator(schema).validate(json.loads(arguments))


@pytest.mark.parametrize("name", CASES)
def test_formatted_answers_satisfy_the_schema_compactly(kimi, name):
    schema = CASES[name]
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    text = kimi.ask("Give data.", response_format=wanted, reasoning_effort="low").message["content"]
    Draft202012Validator(schema).validate(json.loads(text))
    assert "\n" not in text
    assert "\t" not in text


@pytest.mark.parametrize("name", BEYOND)
def test_keywords_beyond_mfjs_are_honoured_when_not_strict(kimi, name):
    schema = wrapped(BEYOND[name])
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    got = kimi.ask("Go.", tools=[tool], tool_choice="required", reasoning_effort="low")
    Draft202012Validator(schema).validate(json.loads(got.message["calls"][0][2]))


MODEST = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
names = st.text(alphabet="abcxyzéß名_-. ", min_size=1, max_size=6).filter(
    lambda name: name not in ("anyOf", "required")
)


@st.composite
def bounded(
    draw: st.DrawFn, low: str, high: str, values: st.SearchStrategy[Any], base: dict[str, Any]
) -> dict[str, Any]:
    pair = sorted([draw(values), draw(values)])
    chosen = draw(st.sampled_from([(), (low,), (high,), (low, high)]))
    return {**base, **{key: pair[key == high] for key in chosen}}


@st.composite
def enums(draw: st.DrawFn) -> dict[str, Any]:
    kind, values = draw(
        st.sampled_from([("string", st.text(max_size=5)), ("integer", st.integers(-9, 9)), ("boolean", st.booleans())])
    )
    return {"type": kind, "enum": draw(st.lists(values, min_size=1, max_size=4))}


@st.composite
def objects(draw: st.DrawFn, children: st.SearchStrategy[Any]) -> dict[str, Any]:
    properties = draw(st.dictionaries(names, children, max_size=4))
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema["required"] = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.one_of(st.booleans(), children))
    return schema


scalars = st.one_of(
    st.sampled_from(
        [{"type": "null"}, {"type": "boolean"}, {"type": ["string", "null"]}, {"$ref": "#/$defs/tree"}, {"$ref": "#"}]
    ),
    bounded("minLength", "maxLength", st.integers(0, 60), {"type": "string"}),
    bounded("minimum", "maximum", st.integers(-(2**53) + 1, 2**53 - 1), {"type": "integer"}),
    bounded("minimum", "maximum", st.floats(-1e6, 1e6).map(lambda value: round(value, 6)), {"type": "number"}),
    enums(),
)
schemas = st.recursive(
    scalars,
    lambda children: st.one_of(
        objects(children),
        st.builds(
            lambda items, least, more: {"type": "array", "items": items, "minItems": least, "maxItems": least + more},
            children,
            st.integers(0, 3),
            st.integers(0, 2),
        ),
        st.builds(lambda branches: {"anyOf": branches}, st.lists(children, min_size=1, max_size=3)),
    ),
    max_leaves=12,
)


@MODEST
@given(st.dictionaries(names, schemas, min_size=1, max_size=3), st.data())
def test_any_mfjs_schema_gets_a_valid_value_or_is_refused(properties, data):
    required = data.draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
    root = {"type": "object", "properties": properties, "required": required, "$defs": {"tree": TREE_DEF}}
    if refused(is_mfjs, root):
        assert not has_value(root)
        return
    value = value_for(root)
    Draft202012Validator(root).validate(value)
    assert json.loads(json.dumps(value)) == value


TREE_DEF = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "c": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "minItems": 0}},
    "required": ["v", "c"],
}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {}}}},
        {"type": "object", "properties": {"properties": {"type": "array", "items": {}}}},
        {"type": "object", "properties": {"a": {"anyOf": [{}, {"type": "string"}]}}},
        {"type": "object", "$defs": {"a": {}}},
        {"type": "object", "properties": {"a": {"description": "no type"}}},
        {"type": "object", "properties": {"a": {"type": "string", "anyOf": [{"type": "string"}]}}},
        {"type": "object", "properties": {"a": {"$ref": "#", "type": "object"}}},
        {"type": "object", "properties": {"a": {"type": "string", "minItems": 1}}},
        {"type": "object", "properties": {"a": {"type": "object", "$defs": {}}}},
        {"type": "object", "$defs": {"a/b": {"type": "string"}}},
        {"type": "object", "properties": {"anyOf": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
        {"type": "object", "properties": {"a": {"type": "string", "enum": [1]}}},
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1.5}}},
        {"type": "object", "properties": {"a": {"type": "string", "default": 5}}},
        *(
            {"type": "object", "properties": {"a": {"type": "string", key: value}}}
            for key, value in (("const", "x"), ("format", "date"), ("$comment", "x"), ("examples", []))
        ),
        *(
            {"type": "object", key: value}
            for key, value in (
                ("$schema", "x"),
                ("patternProperties", {}),
                ("minProperties", 1),
                ("not", {"type": "null"}),
            )
        ),
    ],
)
def test_what_lies_outside_mfjs(schema):
    assert refused(is_mfjs, schema)


REFERRING = {
    "type": "object",
    "properties": {"short": {"type": "string", "maxLength": 5}, "value": {"$ref": "#/properties/short"}, "free": {}},
    "required": ["value"],
}


@pytest.mark.parametrize(
    ("literals", "made"),
    [
        ({"value": "fjord"}, {"short": "sampl", "value": "fjord", "free": "sample text"}),
        ({"value": "too long"}, {"short": "sampl", "value": "sampl", "free": "sample text"}),
        ({"free": [1]}, {"short": "sampl", "value": "sampl", "free": [1]}),
    ],
)
def test_a_literal_is_used_where_the_referenced_schema_allows_it(literals, made):
    assert value_for(REFERRING, literals) == made


@pytest.mark.parametrize("ref", ["#/properties/absent", "#/$defs/node/properties/id", "#/properties/short/type"])
def test_a_reference_that_leads_to_no_schema_is_refused(ref):
    assert refused(is_mfjs, {**REFERRING, "properties": {**REFERRING["properties"], "value": {"$ref": ref}}})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"p": {"anyOf": [{"$ref": "#/properties/p"}, {"type": "string"}]}}},
        {
            "type": "object",
            "properties": {"p": {"allOf": [{"$id": "x:y", "$ref": "#/$defs/b"}]}},
            "$defs": {"b": {"type": "string"}},
        },
    ],
)
def test_a_literal_that_cannot_be_checked_is_not_used(schema):
    assert value_for(schema, {"p": "stated"}) == {"p": "sample text"}


def test_an_id_that_is_no_text_is_refused():
    assert refused(lambda schema: check_schema(schema, param="tools"), {"type": "object", "$id": 5})


def test_a_schema_without_a_finite_value_is_refused():
    endless = wrapped(
        {"$ref": "#/$defs/node"},
        {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]},
    )
    assert refused(lambda schema: check_schema(schema, param="tools"), endless)
    with pytest.raises(NoValue):
        value_for(endless)
    optional = {**endless, "required": []}
    assert value_for(optional) == {}


@pytest.mark.parametrize(
    "pattern",
    [
        "^a+$",
        "^[A-Z]{2}\\d{3}$",
        "(foo|bar)baz?",
        "^\\w+@\\w+\\.com$",
        "^[^a-z]$",
        "^(?:ab)*c$",
        "\\S",
        "^x{2,}y{0,3}$|z",
    ],
)
def test_texts_for_patterns(pattern):
    import re

    assert re.search(pattern, text_matching(pattern))


def test_a_pattern_beyond_the_generator_is_said_to_have_no_text():
    with pytest.raises(NoValue):
        text_matching("^(?=a)b$")
