"""The harness against its own reference endpoint: faults are seen where they belong, the clean endpoint is accused of
nothing.
"""

from __future__ import annotations

import pytest

from kvv.cli.main import main
from kvv.selftest import State, load_table, run

#: fault -> what is known to see it
SEEN_BY = {
    "A06": "params/forced-token/",
    "B19": "tools/index-reused",
    "B42": "tools/arguments-escaped",
    "C19": "stream/json",
    "C27": "streaming/same/tokens/",
    "F01": "usage/published/36/",
    "F02": "vision/counted-evenly/",
    "F05": "usage/difference/tool-turn/",
    "I02": "errors/in-200",
    "I11": "availability/gateway-timeout-suspected",
}


def test_the_whole_matrix_holds() -> None:
    """Every fault of the catalogue, its variations, and the clean endpoint in each setting: about a minute of one core.

    One test, because it is one run: the answers are shared by all rows.
    """
    table = load_table()
    matrix = run(table)
    assert {clean.setting: list(clean.problems) for clean in matrix.clean if clean.problems} == {}
    assert {clean.setting for clean in matrix.clean} == set(table.settings)
    assert {row.fault: (row.state, list(row.elsewhere)) for row in matrix.rows if not row.good} == {}
    assert {row.fault for row in matrix.rows if row.state is State.GAP} == {
        name for name, spec in table.fault.items() if spec.gap
    }
    assert {row.fault for row in matrix.rows if row.state is State.LEGAL} == {
        name for name, spec in table.fault.items() if spec.legal
    }
    assert matrix.holds
    by = {row.fault: " ".join(mark.name for mark in row.marks) for row in matrix.rows}
    assert {name: words in by[name] for name, words in SEEN_BY.items()} == dict.fromkeys(SEEN_BY, True)
    assert (
        next(row for row in matrix.rows if row.fault == "E08")
        .seen_by[0]
        .startswith("the endpoint now answers HTTP 500")
    )


def test_the_verb_prints_the_matrix_and_ends_with_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "-q", "--fault", "C16"]) == 0
    out = capsys.readouterr().out.strip().splitlines()
    assert out[-1].startswith("selftest PASS: 1 of 1 faults seen in their areas only; clean endpoint: no problem")
    assert any(line.startswith("C16") and line.endswith("seen") for line in out)
    assert any("seen by chunk/object" in line for line in out)


def test_a_stated_gap_is_printed_with_its_reason_and_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "-q", "--fault", "G05"]) == 0
    out = capsys.readouterr().out.strip().splitlines()
    assert out[-1].startswith("selftest PASS: 0 of 1 faults seen in their areas only; 1 gap")
    assert any(line.startswith("G05") and "gap, stated: " in line for line in out)


def test_a_fault_that_nobody_may_object_to_is_asked_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "-q", "--fault", "C22"]) == 0
    out = capsys.readouterr().out.strip().splitlines()
    assert any(line.startswith("C22") and line.endswith("legal") for line in out)
    assert "1 legal" in out[-1]


@pytest.mark.parametrize(
    ("name", "words"), [("Z99", "no fault 'Z99'"), ("B19:sideways", "unknown variation 'sideways'")]
)
def test_a_fault_that_there_is_not_is_a_usage_error(name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "-q", "--fault", name]) == 2
    assert words in capsys.readouterr().err
