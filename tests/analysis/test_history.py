"""Change points against a textbook series and by simulation; `kvv history` over run folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from statsmodels.datasets import nile

from kvv.analysis import Measured
from kvv.analysis.history import Reading, Unread, as_json, document, history
from kvv.mockserver import MockServer
from kvv.rendering.document import Chart, ChartMark, Estimate, Unit, html, markdown, sparkline
from kvv.stats.changes import change_points, pettitt

RNG = np.random.default_rng


def test_the_nile_changed_once_after_1898() -> None:
    """Cobb (Biometrika 65, 1978): the annual flow fell by about 250 after its 28th year."""
    flow = nile.load_pandas().data["volume"].to_numpy()
    (change,) = change_points(list(flow), RNG(0))
    assert (change.index, change.n_before, change.n_after) == (28, 28, 72)
    assert change.difference == pytest.approx(-248, abs=1)
    assert change.low is not None
    assert change.high is not None
    assert change.low < change.difference < change.high < 0
    assert change.p <= 1 / 2000


def test_two_steps_are_found_and_one_wild_night_is_none() -> None:
    rng = RNG(1)
    noise = rng.normal(0, 0.003, 45)
    steps = np.repeat([0.90, 0.87, 0.90], 15) + noise
    assert [c.index for c in change_points(list(steps), RNG(0))] == [15, 30]
    wild = 0.90 + noise[:30]
    wild[12] = 0.0
    assert change_points(list(wild), RNG(0)) == []


def test_a_stable_series_shows_a_change_in_about_one_of_100() -> None:
    """Type I error at nominal 1 %, over 300 series; five standard errors of room."""
    rng = RNG(2)
    hits = sum(pettitt(rng.binomial(500, 0.9, 20) / 500, rng)[1] <= 0.01 for _ in range(300))
    assert hits <= 3 + 5 * 3**0.5


@pytest.mark.parametrize("values", [[], [0.9], [0.9] * 40, [0.9, 0.8, 0.9, 0.8, 0.9]])
def test_too_few_or_equal_values_show_no_change(values: list[float]) -> None:
    assert change_points(values, RNG(0)) == []


def reading(day: int, value: float | None, **more: Any) -> Reading:
    fields: dict[str, Any] = {"way": {"sampling": {"temperature": 1.0}}, **more}
    measured = Measured(
        value=value, low=None if value is None else value - 0.02, high=None if value is None else value + 0.02, n=500
    )
    return Reading(
        run_id=f"r{day}",
        date=f"2026-03-{day:02}T01:00:00Z",
        vendor="v",
        model="m",
        suite="ocrbench",
        metric="accuracy",
        value=measured,
        unit=Unit.SHARE,
        n_planned=500,
        **fields,
    )


def test_a_change_is_told_with_its_date_size_interval_and_n() -> None:
    # each side: s^2 = 2e-6, so se = sqrt(2 * 2e-6 / 6) = 0.000816; t(0.975; 10) = 2.228; half-width 0.00182
    values = [0.90, 0.901, 0.899, 0.902, 0.898, 0.9, 0.87, 0.871, 0.869, 0.872, 0.868, 0.87]
    found = history([reading(i + 1, v) for i, v in enumerate(values)][::-1], RNG(0))
    (series,) = found.series
    assert series.values == values
    sentence = document(found).sections[0].notes[0]
    assert (
        "from 2026-03-07 on (r7) 90.00 became 87.00, a difference of -3.00 [-3.18, -2.82] points, n 6 and 6 runs"
        in sentence
    )
    assert document(found).title == "12 runs, 1 series: 1 changed"


def test_values_measured_in_another_way_are_another_series() -> None:
    cold = {"way": {"sampling": {"temperature": 0.6}}}
    found = history(
        [*(reading(i, 0.9) for i in range(1, 7)), *(reading(i, 0.5, **cold) for i in range(7, 13)), reading(13, None)],
        RNG(0),
    )
    assert [(s.way, len(s.readings), len(s.changes)) for s in found.series] == [(1, 6, 0), (2, 6, 0)]
    assert found.series[1].note.startswith("measured otherwise than way 1: sampling changed")
    assert [(r.run_id, r.apart) for r in found.apart] == [("r13", "nothing was concluded")]


def test_a_cut_night_makes_no_change_point_and_is_listed_with_its_reason() -> None:
    """Six whole nights and six of which three questions were asked: as one series they would change."""
    cut = {"apart": "partial: not all that was planned was asked"}
    nights = [*(reading(i, 0.9) for i in range(1, 7)), *(reading(i, 0.3, **cut) for i in range(7, 13))]
    found = history(
        nights,
        RNG(0),
        unread=[Unread(run_id="dead", date="2026-03-20", vendor="v", model="m", reason="unreachable: refused")],
    )
    assert [(len(s.readings), s.changes) for s in found.series] == [(6, ())]
    assert [r.run_id for r in found.apart] == [f"r{i}" for i in range(7, 13)]
    assert len(history([replace(r, apart="") for r in nights], RNG(0)).series[0].changes) == 1
    text = markdown(document(found))
    assert "1 runs never reached the model" in text
    assert "unreachable: refused" in text
    assert text.count("partial: not all that was planned was asked") == 6
    rows = json.loads(as_json(found))["apart"]
    assert [(row["run_id"], row["metric"]) for row in rows][:2] == [("dead", None), ("r7", "ocrbench accuracy")]


def test_fixture_data_is_marked_in_the_name_of_its_series() -> None:
    found = history([reading(i, 0.9, way={"fixture": True}) for i in range(1, 4)], RNG(0))
    assert found.series[0].name == "ocrbench accuracy (fixture data)"


def test_a_sparkline_spans_its_scale_and_marks_changes() -> None:
    points = tuple((str(i), Estimate(value=v, n=9)) for i, v in enumerate([0.9, 0.9, 0.8, 0.8]))
    chart = Chart(title="x", unit=Unit.SHARE, points=points, marks=(ChartMark(index=2, text="t"),))
    assert sparkline(chart) == "x: ██|▁▁ 80.00 to 90.00 %, n 4 runs"
    page = html(document(history([reading(i, 0.9) for i in range(1, 9)], RNG(0))))
    assert page.count("<polyline") == 1
    assert "NaN" not in page
    assert "nan" not in page
    full = [reading(i, 1.0) for i in range(1, 9)]
    assert "100.50" not in html(
        document(history([replace(r, value=replace(r.value, low=0.9, high=1.0)) for r in full], RNG(0)))
    )
    nothing = [replace(r, value=Measured(value=0.0, low=0.0, high=0.0, n=9), unit=Unit.MS) for r in full]
    assert "-0.0" not in html(document(history(nothing, RNG(0))))


@pytest.fixture
def folder(runs: Any, tmp_path: Path) -> Path:
    """Two real runs, one that never ended and one whose report is damaged."""
    import shutil

    root = tmp_path / "nights"
    for run in (runs.good, runs.bad):
        shutil.copytree(run, root / run.name)
    shutil.copytree(runs.good, root / "killed")
    (root / "killed/report.json").unlink()
    shutil.copytree(runs.good, root / "damaged")
    (root / "damaged/report.json").write_text('{"run_id": 1}', "utf-8")
    (root / "notes.txt").write_text("x", "utf-8")
    return root


def test_real_runs_make_a_history_and_broken_folders_are_said(runs: Any, call: Any, folder: Path) -> None:
    said = call("history", folder, "--format", "json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["runs"] == 2
    assert len(found["notes"]) == 2
    assert all(note.startswith("left out: ") for note in found["notes"])
    quality = next(s for s in found["series"] if s["suite"] == "ocrbench")
    assert [v["run_id"] for v in quality["values"]] == sorted([runs.good.name, runs.bad.name])
    assert all(v["n"] == 22 and v["ci95"] for v in quality["values"])
    assert {s["metric"] for s in found["series"] if s["suite"] == "service"} >= {
        "first try answered",
        "time to first token, median",
    }


def test_a_night_that_never_reached_the_model_is_no_value_of_any_series(runs: Any, call: Any, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(runs.good, tmp_path / "nights" / runs.good.name)
    with MockServer() as server:
        wrong = server.base_url.replace("/v1", "/nowhere/v1")
        asked = call(
            "run",
            "ocrbench",
            "--data",
            "ocrbench=fixture",
            "--base-url",
            wrong,
            "--model",
            "kimi-k3",
            "--out",
            "nights",
            "-q",
        )
    assert asked.code == 2
    found = json.loads(call("history", "nights", "--format", "json").out)
    (unread,) = found["apart"]
    assert "no such path" in unread["reason"]
    assert found["runs"] == 2
    assert {value["run_id"] for series in found["series"] for value in series["values"]} == {runs.good.name}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"coverage": "1 of 1 suites, shard 2 of 8 alone (kvv merge joins them)"}, "shard 2 of 8 alone"),
        ({"partial": True, "reason": "not-run"}, "partial"),
        ({"reason": "early-stop"}, "stopped early"),
        ({"look": {"number": 2, "of": 5, "stopped": True}}, "stopped early, at look 2 of 5"),
    ],
)
def test_a_part_of_a_run_is_no_night_of_a_series(
    runs: Any, call: Any, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    folder = tmp_path / "nights" / "one"
    folder.mkdir(parents=True)
    report = json.loads((runs.good / "report.json").read_text("utf-8"))
    assert [check["suite"] for check in report["checks"]].count("ocrbench") == 0
    if "reason" in change:
        report["checks"].append(
            {**report["checks"][0], "suite": "ocrbench", "verdict": "inconclusive", "reason": change["reason"]}
        )
    if "look" in change:
        report["suites"] = [{**row, "look": change["look"]} for row in report["suites"]]
    report |= {name: value for name, value in change.items() if name not in ("reason", "look")}
    (folder / "report.json").write_text(json.dumps(report), "utf-8")
    found = json.loads(call("history", "nights", "--format", "json").out)
    assert [row["metric"] for row in found["apart"]] == ["ocrbench accuracy"]
    assert words in found["apart"][0]["reason"]
    assert found["series"] == []


def test_a_suite_whose_first_row_has_no_value_is_told_of_by_its_other_rows(
    runs: Any, call: Any, tmp_path: Path
) -> None:
    """An F1 without an official run."""
    report = json.loads((runs.good / "report.json").read_text("utf-8"))
    (row,) = [row for row in report["suites"] if row["primary"]]
    f1 = {**row, "metric": "trigger_f1", "value": None, "ci95": None}
    other = {**row, "metric": "schema_accuracy", "primary": False, "value": 0.97}
    for night in ("one", "two"):
        folder = tmp_path / "nights" / night
        folder.mkdir(parents=True)
        (folder / "report.json").write_text(json.dumps({**report, "run_id": night, "suites": [f1, other]}), "utf-8")
    found = json.loads(call("history", "nights", "--format", "json").out)
    assert [(series["metric"], [v["value"] for v in series["values"]]) for series in found["series"]] == [
        ("schema_accuracy", [0.97, 0.97])
    ]
    assert found["apart"] == []


@pytest.mark.parametrize("name", ["text", "md", "html", "csv"])
def test_every_format_shows_the_series(call: Any, folder: Path, name: str) -> None:
    said = call("history", folder, "--format", name)
    assert said.code == 0
    assert "ocrbench accuracy" in said.out


def test_bad_input_is_one_line_and_exit_code_2(call: Any, tmp_path: Path) -> None:
    Path("empty").mkdir()
    for name, words in (("nowhere", "is no folder"), ("empty", "no finished run")):
        said = call("history", name)
        assert said.code == 2
        assert words in said.err
        assert len(said.err.splitlines()) == 1
