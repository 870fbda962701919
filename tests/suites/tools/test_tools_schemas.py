"""The schemas of our own, and how schemas are selected and wrapped."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kvv import data
from kvv.core import Dataset, Level, Outcome
from kvv.mockserver.content.schema_values import value_for
from kvv.mockserver.validation.schema_check import check_mfjs, check_schema
from kvv.suites.tools.schemas import CLAIMS, TOOL, covering, data_cases, keywords, load_shipped, unfit, wrap_schema
from kvv.suites.tools.suite import ToolsSuite

#: MFJS as it is published
MFJS = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "enum",
    "anyOf",
    "$ref",
    "$defs",
    "$id",
    "description",
    "title",
    "default",
    *(f"type:{name}" for name in ("null", "boolean", "object", "array", "number", "integer", "string")),
}
OWN = [one for one in load_shipped() if one.group not in CLAIMS]
VALUES: list[Any] = [
    None,
    True,
    7,
    -3,
    0.5,
    "",
    "red",
    [],
    [1],
    ["red"],
    {},
    {"a": "x"},
    {"value": 1},
    {"label": "a", "child": None},
]


def valid(schema: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def named(*names: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": list(names),
        "additionalProperties": False,
    }


def named_reference(definition: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"next": {"$ref": f"#/$defs/{definition}"}}, "required": ["next"]}


def recursive(*, required: bool) -> dict[str, Any]:
    node = {**named_reference("X"), **({} if required else {"required": []})}
    return {"$defs": {"X": node}, "type": "object", "properties": {"node": {"$ref": "#/$defs/X"}}}


# --- our own -----------------------------------------------------------------------------------------


def test_there_are_at_least_two_hundred_distinct_schemas_of_mfjs() -> None:
    assert len(OWN) >= 200
    assert len({json.dumps(one.schema, sort_keys=True) for one in OWN}) == len(OWN)


def test_every_keyword_and_type_of_mfjs_is_asked() -> None:
    used = set().union(*(keywords(one.schema) for one in OWN))
    assert used == MFJS


def test_a_shipped_schema_is_sound_selected_and_has_a_value() -> None:
    for one in load_shipped():
        parameters = wrap_schema(one.schema)
        jsonschema.Draft202012Validator.check_schema(parameters)
        check_schema(parameters, param="parameters")
        if one.group not in CLAIMS:
            check_mfjs(parameters, param="parameters", size=len(json.dumps(parameters)))
        assert unfit(one.schema) == "", one.name
        value = value_for(parameters)
        assert valid(parameters, value), one.name
        assert len(json.dumps(value)) < 4000, f"{one.name} would not fit into 2048 tokens"


def test_wrapping_changes_nothing_about_the_value() -> None:
    """A value fits the schema exactly when it fits as ``value``; what is not wrapped fits never."""
    for one in load_shipped():
        parameters = wrap_schema(one.schema)
        made = value_for(parameters)["value"]
        for value in [*VALUES, made]:
            assert valid(parameters, {"value": value}) == valid(one.schema, value), one.name
        assert not valid(parameters, {"value": made, "more": 1}), one.name
        assert not valid(parameters, {}), one.name


def test_the_small_tier_covers_every_keyword_and_group_with_a_fifth_of_the_schemas() -> None:
    chosen = covering(load_shipped())
    counts = Counter(keyword for one in chosen for keyword in keywords(one.schema))
    everywhere = Counter(keyword for one in load_shipped() for keyword in keywords(one.schema))
    assert {keyword: min(2, count) for keyword, count in everywhere.items()}.items() <= {
        key: min(2, count) for key, count in counts.items()
    }.items()
    assert {one.group for one in chosen} == {one.group for one in load_shipped()}
    assert len(chosen) < len(load_shipped()) / 3


def test_a_tier_decides_how_many_schemas_are_asked_each_streamed_and_not(stage: Any) -> None:
    def schemas(tier: str) -> list[str]:
        return [case.id for case in ToolsSuite().cases(stage.context(tier=tier)) if case.id.startswith("tools/schema/")]

    assert len(schemas("full")) == 2 * len(load_shipped()) == len(set(schemas("full")))
    assert set(schemas("smoke")) < set(schemas("full"))
    assert Counter(name.rsplit("/", 1)[1] for name in schemas("smoke")).keys() == {"stream", "whole"}


def test_keywords_beyond_mfjs_are_asked_only_of_profiles_that_claim_them(stage: Any) -> None:
    cases = {case.id: case for case in ToolsSuite().cases(stage.context(tier="full"))}
    skipped = {
        name.split("/")[2] for name, case in cases.items() if name.startswith("tools/schema/") and case.inputs["skip"]
    }
    assert skipped == set(CLAIMS)


# --- selection -----------------------------------------------------------------------------------------

NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}


@pytest.mark.parametrize(
    ("schema", "left_out"),
    [
        ({"type": "string", "minLength": 1001}, True),
        ({"type": "string", "minLength": 1000}, False),
        ({"type": "array", "minLength": 5000}, False),
        ({"type": "object", "properties": {"": {"type": "string"}}}, True),
        ({"type": "object", "properties": {" a": {"type": "string"}}}, True),
        ({"type": "object", "properties": {"a\t": {"type": "string"}}}, True),
        ({"type": "object", "properties": {"a\\nb": {"type": "string"}}}, True),
        ({"type": "object", "properties": {"a\nb": {"type": "string"}}}, False),
        ({"type": "object", "properties": {"a b": {"type": "string"}}}, False),
        (
            {"type": "object", "properties": {"inner": {"type": "object", "properties": {" a": {"type": "string"}}}}},
            False,
        ),
        ({"$defs": {"node": NODE}, "$ref": "#/$defs/node"}, True),
        ({"$defs": {"node": {**NODE, "required": []}}, "$ref": "#/$defs/node"}, False),
        (
            {
                "$defs": {"node": {**NODE, "properties": {**NODE["properties"], "name": {"type": "string"}}}},
                "$ref": "#/$defs/node",
            },
            False,
        ),
        ({"$defs": {"node": {"anyOf": [{"type": "null"}, NODE]}}, "$ref": "#/$defs/node"}, False),
        ({"type": "number", "maximum": float("inf")}, True),
        ({}, False),
    ],
)
def test_selection_is_that_of_the_public_verifier(schema: Any, left_out: bool) -> None:
    assert bool(unfit(schema)) is left_out


PEOPLE = "\U0001f9d1\U0001f3fe\u200d\U0001f91d\u200d\U0001f9d1\U0001f3fe"


@pytest.mark.parametrize(
    ("line", "schema"),
    [
        ("TestEnforcerCases:3", named("\\uFACD", "\ufacd", "\\nx\\n\\t\\r\\/\\\\\\b\\f")),
        ("TestEnforcerCases:4", named("\\uFACD", "\ufacd", "\\nx\\n\\t\\r\\/\\\\\\b\\f")),
        ("TestEnforcerCases:24", named(" ")),
        ("TestEnforcerCases:25", named(" H")),
        ("TestEnforcerCases:27", named(f" 12\U0001f60ad{PEOPLE}abc\U0001f60a")),
        ("TestEnforcerCases:28", named(" \u3111\u3127\u3121\u02ca \u310b abc123@")),
        ("TestRangeConstraints:3", {"type": "string", "minLength": 999_999_999_999}),
        ("TestReferences:7", recursive(required=True)),
    ],
)
def test_the_eight_lines_that_the_public_verifier_leaves_out_of_its_212_are_left_out(line: str, schema: Any) -> None:
    """Which lines of walle's valid cases they are: ports of the verifier that pin its report of 204 (commit 3dad65a)
    list them.
    """
    assert unfit(schema), line


@pytest.mark.parametrize(
    ("line", "schema"),
    [
        ("TestEnforcerCases:5", named("first name", "extra key")),
        ("TestEnforcerCases:16", named("first/name/A")),
        ("TestEnforcerCases:26", named(PEOPLE)),
        ("TestEnforcerCases:38", {"type": "string", "enum": [" true", "\\ntrue", "\\r", " ", "\\"]}),
        ("TestRangeConstraints:2", {"type": "string", "minLength": 5, "maxLength": 5}),
        ("TestRangeConstraints:4", {"type": "string", "maxLength": 5_000_000}),
        ("TestReferences:6", recursive(required=False)),
        (
            "TestReferences:5",
            {"$defs": {"N": {"anyOf": [{"type": "string"}, named_reference("N")]}}, "$ref": "#/$defs/N"},
        ),
        ("TestDefs:2", {"$defs": {"db": {"type": "object", "additionalProperties": False}}, "$ref": "#/$defs/db"}),
    ],
)
def test_their_neighbours_are_asked(line: str, schema: Any) -> None:
    assert unfit(schema) == "", line


# --- wrapping ------------------------------------------------------------------------------------------


def test_definitions_and_id_move_to_the_root_and_defaults_go() -> None:
    schema = {
        "$id": "https://example.com/x",
        "$defs": {"n": {"type": "integer", "default": 1}},
        "type": "array",
        "items": {"$ref": "#/$defs/n"},
    }
    assert wrap_schema(schema) == {
        "type": "object",
        "required": ["value"],
        "additionalProperties": False,
        "properties": {"value": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
        "$defs": {"n": {"type": "integer"}},
        "$id": "https://example.com/x",
    }


def test_a_reference_to_the_root_goes_to_a_definition_whose_name_is_free() -> None:
    schema = {
        "$defs": {"__case_schema": {"type": "integer"}},
        "anyOf": [{"$ref": "#/$defs/__case_schema"}, {"type": "array", "items": {"$ref": "#"}}],
    }
    parameters = wrap_schema(schema)
    assert parameters["properties"]["value"] == {"$ref": "#/$defs/___case_schema"}
    assert valid(parameters, {"value": [1, [2]]})
    assert not valid(parameters, {"value": [1, ["x"]]})


def test_a_path_below_the_old_root_goes_on_from_the_new_one() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}}
    assert valid(wrap_schema(schema), {"value": {"b": "x"}})
    assert not valid(wrap_schema(schema), {"value": {"b": 1}})


def test_the_schema_itself_stays_as_it_was() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}, "b": {"$ref": "#"}}}
    before = json.dumps(schema)
    wrap_schema(schema)
    assert json.dumps(schema) == before


# --- data ----------------------------------------------------------------------------------------------


def rows(*schemas: Any) -> Dataset:
    return Dataset(rows=list(schemas), origin="here", revision="")


def test_data_makes_a_strict_required_call_of_2048_tokens_streamed_and_not(stage: Any) -> None:
    first, second = data_cases([{"type": "string"}], stage.context())
    assert (first.id, second.id) == ("tools/data/0001/stream", "tools/data/0001/whole")
    body = first.inputs["body"]
    function = body["tools"][0]["function"]
    assert (function["name"], function["strict"], body["tool_choice"], body["max_tokens"], body["stream"]) == (
        TOOL,
        True,
        "required",
        2048,
        True,
    )
    assert json.loads(function["parameters"]["@literal"])["required"] == ["value"]
    assert first.level is Level.MUST
    assert "stream" not in second.inputs["body"]


def test_a_row_that_the_public_verifier_leaves_out_is_skipped_with_the_reason(stage: Any) -> None:
    suite = ToolsSuite()
    cases = [
        case
        for case in suite.cases(stage.context(dataset=rows({"type": "string", "minLength": 9999})))
        if "/data/" in case.id
    ]
    verdicts = [stage.against(suite, case, lambda request: stage.says()) for case in cases]
    assert [verdict.outcome for verdict in verdicts] == [Outcome.SKIP, Outcome.SKIP]
    assert "1000 characters" in verdicts[0].detail


def test_a_folder_of_valid_and_invalid_lines_gives_the_valid_ones_by_folder(tmp_path: Path) -> None:
    for name, line in {"TestB": '{"type":"integer"}', "TestA": '{"type":"string"}\n\n{}'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "valid.jsonl").write_text(line + "\n", "utf-8")
        (tmp_path / name / "invalid.jsonl").write_text('["no schema"]\n', "utf-8")
    found = data.load("tools", path=tmp_path)
    assert list(found.rows) == [{"type": "string"}, {}, {"type": "integer"}]


def test_a_git_lfs_pointer_is_named_as_one(tmp_path: Path) -> None:
    path = tmp_path / "valid.jsonl"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "utf-8")
    with pytest.raises(data.DataError, match=r"valid\.jsonl: is a Git LFS pointer"):
        data.load("tools", path=path)


def test_a_property_that_looks_like_a_directive_is_sent_as_it_is(stage: Any) -> None:
    suite = ToolsSuite()
    schema = {"type": "object", "properties": {"@repeat": {"type": "string"}}, "required": ["@repeat"]}
    [case] = [case for case in suite.cases(stage.context(dataset=rows(schema))) if case.id == "tools/data/0001/whole"]
    [verdict] = stage.against_reference(suite, [case])
    assert verdict.outcome is Outcome.PASS
