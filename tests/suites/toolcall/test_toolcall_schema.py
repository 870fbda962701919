"""Single calls against their schemas: the class of each failure, and which schemas cannot be used."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvv.core import ToolCall
from kvv.execution.workers import Workers, WorkerTimeout
from kvv.suites.toolcall.schema import FailureClass, SchemaCheck, draft_of, strict_json, validate


def check(arguments: str, parameters: Any, name: str = "add") -> Any:
    functions = [{"name": "add", "parameters": parameters}]
    return SchemaCheck(functions).check(ToolCall(index=0, id="c", name=name, arguments=arguments))


INTEGER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def test_a_call_that_fits_has_no_failure() -> None:
    assert check('{"n": 3}', INTEGER).failure is None


@pytest.mark.parametrize(
    ("arguments", "path", "keyword"),
    [
        ('{"n": true}', "$.n", "type"),
        ('{"n": "3"}', "$.n", "type"),
        ("{}", "$", "required"),
        ('{"n": 3, "m": 1}', "$", "additionalProperties"),
        ("[]", "$", "type"),
    ],
)
def test_a_mismatch_names_json_path_and_keyword(arguments: str, path: str, keyword: str) -> None:
    failure = check(arguments, INTEGER).failure
    assert (failure.failure, failure.path, failure.keyword) == (FailureClass.SCHEMA_MISMATCH, path, keyword)


def test_a_whole_float_is_an_integer_and_a_boolean_is_none() -> None:
    assert check('{"n": 3.0}', INTEGER).failure is None
    assert check('{"n": false}', INTEGER).failure is not None


@pytest.mark.parametrize(
    "arguments", ["", "{", '{"n": 3} trailing', "{'n': 3}", '{"n": NaN}', '{"n": Infinity}', "[" * 100_000, "9" * 5_000]
)
def test_what_is_no_json_is_not_json(arguments: str) -> None:
    assert check(arguments, {}).failure.failure is FailureClass.ARGUMENTS_NOT_JSON


def test_nan_is_json_for_k2vv_only() -> None:
    found = check('{"n": NaN}', {"type": "object"})
    assert found.k2vv
    assert found.failure is not None


def test_a_tool_that_was_not_declared_is_unknown_and_says_its_name() -> None:
    failure = check("{}", {}, name="subtract").failure
    assert (failure.failure, failure.tool) == (FailureClass.UNKNOWN_TOOL, "subtract")


@pytest.mark.parametrize("parameters", [{}, None, True])
def test_empty_absent_and_true_parameters_are_valid_schemas(parameters: Any) -> None:
    assert check('{"anything": 1}', parameters).failure is None


def test_empty_parameters_are_no_schema_for_k2vv() -> None:
    assert not check("{}", {}).k2vv
    assert check("{}", {"type": "object"}).k2vv


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "objekt"},
        {"properties": []},
        {"pattern": "["},
        {"$ref": "#/nowhere"},
        {"$ref": "#"},
        {"$ref": 5},
        {"$schema": ["list"]},
        "text",
        7,
        {"$id": "http://[", "$ref": "other"},
    ],
)
def test_a_broken_schema_is_the_data_sets_fault(parameters: Any) -> None:
    failure = check('{"n": 1}', parameters).failure
    assert failure.failure is FailureClass.SCHEMA_UNUSABLE


@pytest.mark.parametrize("scheme", ["http://127.0.0.1:{port}/schema.json", "file:///etc/hostname"])
def test_a_remote_reference_is_refused_without_a_connection(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        failure = check("{}", {"$ref": scheme.format(port=server.getsockname()[1])}).failure
        assert failure.failure is FailureClass.SCHEMA_UNUSABLE
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_reference_inside_the_schema_is_followed() -> None:
    schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"n": {"$ref": "#/$defs/n"}}}
    assert check('{"n": 1}', schema).failure is None
    assert check('{"n": "1"}', schema).failure.path == "$.n"


@pytest.mark.parametrize(
    ("named", "draft"),
    [
        (None, "2020-12"),
        ("http://json-schema.org/draft-04/schema#", "draft-04"),
        ("http://json-schema.org/draft-07/schema", "draft-07"),
        ("https://json-schema.org/draft/2019-09/schema", "2019-09"),
        ("https://example.org/own-dialect", "2020-12"),
        (5, "2020-12"),
    ],
)
def test_the_draft_is_the_named_one_else_2020_12(named: object, draft: str) -> None:
    assert draft_of({} if named is None else {"$schema": named}) == draft


def test_the_named_draft_decides() -> None:
    # exclusiveMinimum is a boolean in draft 4 and a number from draft 6 on
    four = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "number",
        "minimum": 1,
        "exclusiveMinimum": True,
    }
    assert validate(2, four, "t") is None
    assert validate(1, four, "t") is not None
    without = {name: value for name, value in four.items() if name != "$schema"}
    unusable = validate(2, without, "t")
    assert unusable is not None
    assert unusable.failure is FailureClass.SCHEMA_UNUSABLE


def test_format_is_not_asserted() -> None:
    assert validate("no date", {"type": "string", "format": "date-time"}, "t") is None


def test_of_two_tools_with_one_name_the_last_counts_and_k2vv_takes_the_first() -> None:
    functions = [
        {"name": "add", "parameters": INTEGER},
        {"name": "add", "parameters": {"type": "object", "required": ["m"]}},
    ]
    found = SchemaCheck(functions).check(ToolCall(index=0, id="c", name="add", arguments='{"n": 1}'))
    assert found.ambiguous
    assert found.k2vv
    assert found.failure is not None
    assert "declared 2 times" in found.failure.message


def test_texts_of_the_model_are_bounded() -> None:
    failure = check(json.dumps({"n": "x" * 10_000}), INTEGER).failure
    assert len(failure.message) <= 200
    assert len(check("{}", {}, name="y" * 10_000).failure.tool) <= 200


def test_a_hostile_pattern_is_killed_by_the_worker() -> None:
    async def run() -> None:
        async with Workers(1) as pool:
            schema = {"type": "string", "pattern": "^(a+)+$"}
            with pytest.raises(WorkerTimeout):
                await pool.run("kvv.suites.toolcall.schema:validate", "a" * 60 + "b", schema, "t", timeout_s=0.3)

    asyncio.run(run())


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
@settings(deadline=None, max_examples=60)
def test_any_value_in_place_of_a_schema_gives_a_class_or_a_pass(schema: Any) -> None:
    found = validate({"n": 1}, schema, "t")
    assert found is None or found.failure in (FailureClass.SCHEMA_UNUSABLE, FailureClass.SCHEMA_MISMATCH)


KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "enum",
        "items",
        "anyOf",
        "allOf",
        "$ref",
        "pattern",
        "$schema",
        "$id",
        "minimum",
        "multipleOf",
        "const",
        "not",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["object", "string", "#", "#/a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYWORDS, JSON, max_size=4), JSON)
@settings(deadline=None, max_examples=60)
def test_schemas_of_odd_keywords_never_raise(schema: dict[str, Any], value: Any) -> None:
    found = validate(value, schema, "t")
    assert found is None or found.failure in (FailureClass.SCHEMA_UNUSABLE, FailureClass.SCHEMA_MISMATCH)


@given(st.text())
@settings(deadline=None, max_examples=60)
def test_strict_json_reads_or_raises_value_error(text: str) -> None:
    try:
        value = strict_json(text)
    except ValueError:
        return
    assert json.loads(text) == value
