"""The shipped data set: complete, distinct, answerable, and its reference file made from it."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import as_file, files
from typing import Any

import jsonschema
import pytest

from kvv.cases.suite import Context, Settings
from kvv.data import load
from kvv.profiles.profile import load_profile
from kvv.storage.references import read_reference
from kvv.suites.toolcall.expected import expected_values, last_user_text
from kvv.suites.toolcall.k2vv import RowError, case_id, content
from kvv.suites.toolcall.suite import ToolcallSuite

SUITE = ToolcallSuite()
DATA = load("toolcall", fixture=True)


def context(**changes: Any) -> Context:
    return Context(model="kimi-k3", profile=load_profile("kimi-k3"), settings=Settings(), dataset=DATA, **changes)


def test_it_holds_calls_and_answers_fresh_requests_and_histories() -> None:
    assert 24 <= len(DATA.rows) <= 40
    kinds = [next(iter(row["expected"])) for row in DATA.rows]
    assert kinds.count("tool") >= 20
    assert kinds.count("text") >= 10
    ids = [call["id"] for row in DATA.rows for message in row["messages"] for call in message.get("tool_calls", ())]
    assert len(ids) >= 5
    assert all(name.startswith("functions.") and name.rsplit(":", 1)[1].isdecimal() for name in ids)


def test_every_request_is_a_case_of_its_own_and_its_question_is_in_no_other() -> None:
    cases = SUITE.cases(context())
    assert [case.inputs["occurrences"] for case in cases] == [1] * len(DATA.rows)
    prompts = [entry.prompt for entry in SUITE.answer_key(DATA)]
    assert len(prompts) == len(DATA.rows)
    assert not [a for a in prompts for b in prompts if a is not b and a in b]


def test_the_schemas_are_sound() -> None:
    for row in DATA.rows:
        for tool in row["tools"]:
            jsonschema.Draft202012Validator.check_schema(tool["function"].get("parameters", {}))


def test_the_answer_key_calls_the_expected_tool_and_errs_the_other_way() -> None:
    for row, entry in zip(DATA.rows, SUITE.answer_key(DATA), strict=True):
        assert entry.case == case_id(content(row))
        assert entry.prompt == last_user_text(row["messages"])
        assert entry.right_tool == row["expected"].get("tool")
        assert (entry.right_tool is None) != (entry.wrong_tool is None)
        assert (entry.wrong_text != "") == (entry.right_tool is not None)


@pytest.mark.parametrize("expected", [{"tool": "elsewhere"}, {}, {"tool": 1}, "add", {"tool": "add", "text": "x"}])
def test_a_broken_expected_column_is_refused(bench: Any, expected: Any) -> None:
    with pytest.raises(RowError):
        SUITE.answer_key(replace(DATA, rows=[bench.row("x", expected=expected)]))


def test_the_expected_column_is_never_sent() -> None:
    assert all("expected" not in SUITE.request(case).body for case in SUITE.cases(context()))


def test_the_shipped_reference_is_what_the_column_says() -> None:
    with as_file(files("kvv.fixtures").joinpath("references", "fixture", "toolcall.jsonl")) as path:
        found = read_reference(path)
    assert found.header.data_sha256 == {"toolcall": DATA.sha256}
    assert dict(found.runs["toolcall"].cases) == {case_id(content(row)): [expected_values(row)] for row in DATA.rows}
