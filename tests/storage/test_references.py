"""Reference files: what is written is read back, and whatever is wrong is named by file and line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvv.cases.suite import REFUSED, ReferenceRun
from kvv.core import Area, Case, Level, Outcome, Verdict
from kvv.decision.inputs import OfficialRates
from kvv.storage.references import (
    Header,
    ReferenceError,
    check_overlap,
    check_writable,
    read_reference,
    write_reference,
)

HEADER = Header(
    model="kimi-k3",
    run_id="run-1",
    created="2026-08-13T09:30:00Z",
    source="official",
    data_sha256={"toolcall": "ab"},
    rules=OfficialRates(answers=900, objected={"heuristic/repetition": 4}),
)


def pair(
    case_id: str, sample: int, values: dict[str, float], outcome: Outcome = Outcome.PASS, suite: str = "toolcall"
) -> tuple[Case, Verdict]:
    case = Case(
        id=case_id, suite=suite, area=Area.ACCURACY, level=Level.SHOULD, requirement="", source="", since="", inputs={}
    )
    return replace(case, sample=sample), Verdict(case=case_id, sample=sample, outcome=outcome, values=values)


def test_values_come_back_by_suite_case_and_sample(tmp_path: Path) -> None:
    path = tmp_path / "ref.jsonl"
    verdicts = [
        pair("a/2", 1, {"x": 0.5}),
        pair("a/2", 0, {"x": 1.0}, Outcome.FAIL),
        pair("b/1", 0, {"y": 0.0}, suite="aime2025"),
    ]
    written = write_reference(path, HEADER, verdicts)
    assert [(suite.suite, suite.cases, suite.samples, suite.usable) for suite in written] == [
        ("toolcall", 1, 2, 2),
        ("aime2025", 1, 1, 1),
    ]
    found = read_reference(path)
    assert found.header == HEADER
    assert found.runs["toolcall"].cases == {"a/2": [{"x": 1.0}, {"x": 0.5}]}
    assert read_reference(path).runs["aime2025"].cases == {"b/1": [{"y": 0.0}]}
    assert found.runs["toolcall"].name == "kimi-k3 (run-1)"


def test_a_sample_without_conclusion_keeps_its_place(tmp_path: Path) -> None:
    path = tmp_path / "ref.jsonl"
    refused = pair("a", 3, {}, Outcome.FAIL)
    write_reference(
        path,
        HEADER,
        [
            pair("a", 0, {}, Outcome.INCONCLUSIVE),
            pair("a", 2, {"x": 1.0}),
            refused,
            pair("b", 0, {"x": 1.0}, Outcome.ERROR),
        ],
    )
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()[1:]]
    assert lines[0]["samples"] == [None, None, {"x": 1.0}, None]
    assert lines[1]["samples"] == [None]
    assert read_reference(path).runs["toolcall"].cases["a"] == [{}, {}, {"x": 1.0}, {}]


def test_a_refused_request_is_told_from_a_failed_one(tmp_path: Path) -> None:
    path = tmp_path / "ref.jsonl"
    case, silent = pair("a", 0, {}, Outcome.FAIL)
    refused = replace(silent, reason="valid-request-refused")
    written = write_reference(path, HEADER, [(case, refused), pair("a", 1, {"x": 1.0}), pair("a", 2, {}, Outcome.FAIL)])
    assert read_reference(path).runs["toolcall"].cases["a"] == [{REFUSED: 1.0}, {"x": 1.0}, {}]
    assert (written[0].samples, written[0].usable) == (3, 1)
    with pytest.raises(ReferenceError, match="no benchmark sample was concluded"):
        write_reference(path, HEADER, [(case, refused)])


def test_a_reference_of_nothing_is_refused_and_leaves_an_older_one_alone(tmp_path: Path) -> None:
    path = tmp_path / "ref.jsonl"
    path.write_text("older", "utf-8")
    nothing = [
        pair("a", 0, {}, Outcome.INCONCLUSIVE),
        pair("b", 0, {"x": 1.0}, Outcome.ERROR),
        pair("c", 0, {}, Outcome.FAIL),
    ]
    for verdicts in (nothing, []):
        with pytest.raises(ReferenceError, match="no benchmark sample was concluded"):
            write_reference(path, HEADER, verdicts)
    assert [found.name for found in tmp_path.iterdir()] == ["ref.jsonl"]
    assert path.read_text("utf-8") == "older"


def test_whether_a_reference_could_be_written_is_told_without_writing_any(tmp_path: Path) -> None:
    path = tmp_path / "ref.jsonl"
    check_writable(path)
    path.write_text("older", "utf-8")
    check_writable(path)
    assert [(found.name, found.read_text("utf-8")) for found in tmp_path.iterdir()] == [("ref.jsonl", "older")]
    for wrong in (tmp_path, tmp_path / "no" / "folder", tmp_path / ("x" * 300), path / "below"):
        with pytest.raises(OSError, match=r"."):
            check_writable(wrong)


def test_the_order_of_verdicts_does_not_show_in_the_file(tmp_path: Path) -> None:
    verdicts = [pair(f"c/{number}", sample, {"x": 1.0}) for number in range(5) for sample in range(2)]
    write_reference(tmp_path / "one", HEADER, verdicts)
    write_reference(tmp_path / "two", HEADER, reversed(verdicts))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


HEAD = {"kvv_reference": 1, "model": "m", "run_id": "r", "created": "c"}
LINE = {"suite": "s", "case": "s/1", "samples": [{"x": 1}]}


@pytest.mark.parametrize(
    ("lines", "place", "words"),
    [
        ([], "", "is empty"),
        ([HEAD], "", "has no case"),
        ([LINE], "line 1", "no header"),
        ([{**HEAD, "kvv_reference": 2}, LINE], "line 1", "format 2 is unknown"),
        ([{**HEAD, "kvv_reference": True}, LINE], "line 1", "is unknown"),
        ([{**HEAD, "model": ""}, LINE], "line 1", '"model" is missing'),
        ([{**HEAD, "model": 5}, LINE], "line 1", '"model" is no text'),
        ([{**HEAD, "extra": 5}, LINE], "line 1", "unknown field 'extra'"),
        ([{**HEAD, "data_sha256": "ab"}, LINE], "line 1", "data_sha256"),
        ([{**HEAD, "rules": {"answers": "many"}}, LINE], "line 1", '"rules" is no table'),
        ([{**HEAD, "rules": {"answers": 5, "objected": {"a": -1}}}, LINE], "line 1", '"rules" is no table'),
        ([HEAD, LINE, LINE], "line 3", "stands twice"),
        ([HEAD, {**LINE, "samples": []}], "line 2", "samples"),
        ([HEAD, {**LINE, "samples": [1]}], "line 2", "samples[0]"),
        ([HEAD, {**LINE, "samples": [None, {"x": True}]}], "line 2", "samples[1].'x'"),
        ([HEAD, {**LINE, "samples": [{"x": float("nan")}]}], "line 2", "finite"),
        ([HEAD, {**LINE, "samples": [{"x": 10**400}]}], "line 2", "from 0 to 1"),
        ([HEAD, {**LINE, "case": ""}], "line 2", '"case"'),
        ([HEAD, [LINE]], "line 2", "no JSON object"),
        ([HEAD, "{"], "line 2", "no JSON object"),
    ],
)
def test_a_wrong_line_is_named_in_one_line(tmp_path: Path, lines: list[Any], place: str, words: str) -> None:
    path = tmp_path / "ref.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with pytest.raises(ReferenceError) as caught:
        read_reference(path)
    message = str(caught.value)
    assert str(path) in message
    assert place in message
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize("data", [b"\xff\xfe", b"{", b"[" * 100_000, b'{"a": ' + b"9" * 5_000 + b"}"])
def test_what_is_no_json_text_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "ref.jsonl"
    path.write_bytes(data)
    with pytest.raises(ReferenceError, match=r"ref\.jsonl"):
        read_reference(path)


def test_a_missing_file_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(ReferenceError, match=r"nowhere\.jsonl: "):
        read_reference(tmp_path / "nowhere.jsonl")


def run_of(*cases: str) -> ReferenceRun:
    return ReferenceRun(name="official", model="m", cases={case: [{"x": 1.0}] for case in cases})


def test_a_reference_that_knows_half_of_the_cases_will_do() -> None:
    check_overlap(run_of("a", "b", "z"), "toolcall", ["a", "b", "c", "d"])
    check_overlap(run_of("a", "b"), "toolcall", ["a"])
    check_overlap(run_of("a"), "toolcall", [])


def test_a_reference_of_other_data_is_refused_with_its_numbers() -> None:
    with pytest.raises(ReferenceError, match=r"ref\.jsonl: knows 1 of the 4 cases of toolcall"):
        check_overlap(run_of("a", "y", "z"), "toolcall", ["a", "b", "c", "d"], path=Path("ref.jsonl"))


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
VALUES = st.dictionaries(NAMES, st.floats(0, 1), min_size=1, max_size=3)


@given(st.dictionaries(st.tuples(NAMES, st.integers(0, 3)), VALUES, min_size=1, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
def test_whatever_is_written_is_read_back(tmp_path: Path, found: dict[tuple[str, int], dict[str, float]]) -> None:
    path = tmp_path / "ref.jsonl"
    write_reference(path, HEADER, [pair(case, sample, values) for (case, sample), values in found.items()])
    cases = read_reference(path).runs["toolcall"].cases
    assert {
        (case, k): dict(values) for case, samples in cases.items() for k, values in enumerate(samples) if values
    } == found


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_any_bytes_are_a_reference_or_a_reference_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "ref.jsonl"
    path.write_bytes(json.dumps(HEAD).encode() + b"\n" + data)
    said = ""
    try:
        read_reference(path)
    except ReferenceError as error:
        said = str(error)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [("calls", "2", ""), ("calls", "1.5", "whole"), ("calls", "-1", "whole"), ("triggered", "2", "0 to 1")],
)
def test_a_tool_call_answer_may_hold_several_calls(name: str, value: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "ref.jsonl"
    line = '{"suite": "toolcall", "case": "c", "samples": [{"' + name + '": ' + value + "}]}"
    path.write_text('{"kvv_reference": 1, "model": "m"}\n' + line + "\n", "utf-8")
    if problem:
        with pytest.raises(ReferenceError, match=problem):
            read_reference(path)
    else:
        read_reference(path)


@pytest.mark.parametrize("value", ["-1", "1.5", "1e308"])
def test_a_score_outside_0_to_1_is_refused_with_its_line(value: str, tmp_path: Path) -> None:
    path = tmp_path / "ref.jsonl"
    path.write_text(
        '{"kvv_reference": 1, "model": "m"}\n{"suite": "s", "case": "c", "samples": [{"x": ' + value + "}]}\n", "utf-8"
    )
    with pytest.raises(ReferenceError, match=r"line 2: .* lies from 0 to 1"):
        read_reference(path)
