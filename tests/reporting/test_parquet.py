"""The tables of a run as Parquet: what pandas reads back is what the report says, whatever the texts hold."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kvv.cli.main import main
from kvv.reporting import csv as csv_report
from kvv.reporting import parquet

EXAMPLE = Path(__file__).resolve().parents[2] / "reports" / "example"


def read(files: dict[str, bytes], name: str) -> pd.DataFrame:
    return pd.read_parquet(io.BytesIO(files[f"{name}.parquet"]))


def test_what_is_read_back_is_what_the_report_says(tmp_path: Path) -> None:
    assert main(["report", str(EXAMPLE), "--format", "parquet,json", "--to", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert {path.name for path in tmp_path.glob("*.parquet")} == {
        "suites.parquet",
        "gates.parquet",
        "checks.parquet",
        "findings.parquet",
        "samples.parquet",
    }
    samples = pd.read_parquet(tmp_path / "samples.parquet")
    listed = {f"{check['id'].partition('#')[0]}#{check['sample']}" for check in report["checks"]}
    assert listed < set(samples["case"] + "#" + samples["sample"].astype(str))  # right answers of benchmarks too
    answered = samples.sort_values("completion_tokens").iloc[-1]
    assert answered["total_ms"] > 0
    assert answered["completion_tokens"] > 0
    assert "[finish_reason]" in answered["answer"]
    suites = pd.read_parquet(tmp_path / "suites.parquet")
    (row,) = report["suites"]
    assert (suites["value"][0], suites["n_concluded"][0], suites["ci95_low"][0]) == (
        row["value"],
        row["n_concluded"],
        row["ci95"][0],
    )
    assert suites["value"].dtype == "float64"
    assert suites["comparability_scorer_version"][0] == "1"
    checks = pd.read_parquet(tmp_path / "checks.parquet")
    assert list(checks["id"]) == [check["id"] for check in report["checks"]]
    assert (checks["verdict"] == "fail").sum() == sum(check["verdict"] == "fail" for check in report["checks"])
    assert set(checks["run_id"]) == {report["run_id"]}


@pytest.mark.parametrize("payload", ["=1+1", "\x1b[31m\u202e\ud800\x00", 'a,b\n"c"', ""])
def test_hostile_texts_and_empty_tables_are_kept_as_they_are(views: Any, payload: str) -> None:
    view = views.make(payload)
    files = parquet.render(view)
    for name in csv_report.TABLES:
        rows = csv_report.tables(view)[name]
        frame = read(files, name)
        assert len(frame) == len(rows)
        assert list(frame["run_id"]) == [row["run_id"] for row in rows]
    assert list(read(files, "checks")["reason"]) == [row["reason"] for row in csv_report.tables(view)["checks"]]


def test_a_column_of_several_types_is_one_of_texts(views: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"run_id": "r", "x": 1, "y": 1, "z": True},
        {"run_id": "r", "x": "two", "y": 2.5, "z": None},
        {"run_id": "r", "x": None},
    ]
    monkeypatch.setattr(parquet, "tables", lambda view: dict.fromkeys(csv_report.TABLES, rows))
    frame = read(parquet.render(views.make()), "suites")
    assert list(frame["x"])[:2] == ["1", "two"]
    assert pd.isna(frame["x"][2])
    assert list(frame["y"])[:2] == [1.0, 2.5]
    assert frame["z"][0]


def test_without_a_folder_it_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(EXAMPLE), "--format", "parquet"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "needs --to DIR" in said.err
