"""The harness against its own reference endpoint: faults are seen where they belong, the clean endpoint is accused of nothing."""

from __future__ import annotations

import os

import pytest

from kvv.cli import main
from kvv.reference.faults import FAULTS
from kvv.selftest import Matrix, State, load_table, run

#: two of each group and some variations; `kvv selftest` runs them all
SAMPLE = (
    "A01",
    "A05",
    "A14",
    "B01",
    "B19",
    "B25",
    "B27",
    "B35",
    "C12",
    "C19",
    "C24",
    "D06",
    "D14",
    "E02",
    "E08",
    "F01",
    "F10",
    "G13",
    "H01",
    "I02",
    "J10",
    "B26:stream+1in4",
    "B35:turn2",
    "C12:tools",
    "F10:nonstream",
)


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return run(load_table(), SAMPLE)


def test_the_sample_has_faults_of_every_group() -> None:
    assert {FAULTS[name].group for name in SAMPLE if name in FAULTS} == set("abcdefghij")


def test_each_fault_is_seen_in_its_areas_and_nothing_fails_in_others(matrix: Matrix) -> None:
    assert [row.fault for row in matrix.rows] == list(SAMPLE)
    assert {row.fault: (row.state, list(row.elsewhere)) for row in matrix.rows if row.state is not State.SEEN} == {}


def test_the_clean_endpoint_passes_every_case_that_sees_a_fault(matrix: Matrix) -> None:
    assert {clean.setting: list(clean.problems) for clean in matrix.clean if clean.problems} == {}
    assert {clean.setting for clean in matrix.clean} == {"kimi", "engine"}


@pytest.mark.skipif(os.environ.get("KVV_SELFTEST") != "full", reason="set KVV_SELFTEST=full for all faults: about a minute of two cores")
def test_the_whole_matrix_holds_but_for_what_the_table_says_is_missing() -> None:
    table = load_table()
    whole = run(table)
    gaps = {name for name, spec in table.fault.items() if spec.gap}
    assert {clean.setting: list(clean.problems) for clean in whole.clean if clean.problems} == {}
    assert {row.fault: (row.state, list(row.elsewhere)) for row in whole.rows if not row.good and row.state is not State.GAP} == {}
    assert {row.fault for row in whole.rows if row.state is State.GAP} == gaps, "a gap that is closed leaves the table"
    assert whole.holds is not bool(gaps)


def test_a_fault_is_seen_by_what_the_catalogue_says(matrix: Matrix) -> None:
    by = {row.fault: " ".join(mark.name for mark in row.marks) for row in matrix.rows}
    assert "tools/index-reused" in by["B19"]
    assert "stream/json" in by["C19"]
    assert "usage/published/36/" in by["F01"]
    assert "errors/in-200" in by["I02"]
    assert next(row for row in matrix.rows if row.fault == "E08").seen_by[0].startswith("the endpoint now answers HTTP 500")


def test_the_verb_prints_the_matrix_and_ends_with_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "-q", "--fault", "C16"]) == 0
    out = capsys.readouterr().out.strip().splitlines()
    assert out[-1].startswith("selftest PASS: 1 of 1 faults seen in their areas only; clean endpoint: no problem")
    assert any(line.startswith("C16") and line.endswith("seen") for line in out)
    assert any("seen by chunk/object" in line for line in out)


def test_a_known_gap_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "-q", "--fault", "A02"]) == 1
    assert capsys.readouterr().out.strip().splitlines()[-1].startswith("selftest FAIL: 0 of 1 faults seen in their areas only; 1 gap")


@pytest.mark.parametrize(("name", "words"), [("Z99", "no fault 'Z99'"), ("B19:sideways", "unknown variation 'sideways'")])
def test_a_fault_that_there_is_not_is_a_usage_error(name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "-q", "--fault", name]) == 2
    assert words in capsys.readouterr().err
