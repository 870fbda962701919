"""`kvv leaderboard`: columns, tie groups, what is not comparable, and the submission."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvv.analysis.leaderboard import PublishedEntry, as_json, document, leaderboard
from kvv.rendering.document import html, markdown

RNG = np.random.default_rng


def vendors(sides: Any, *scores: Any, preset: str = "kvv", **facts: Any) -> list[Any]:
    return [
        sides.side(sides.bench(s, suite="ocrbench", **facts), name=str(i), preset=preset) for i, s in enumerate(scores)
    ]


def test_vendors_that_cannot_be_told_apart_stand_in_one_group(sides: Any) -> None:
    # 1 and 0 differ in 2 of 200 questions, 2 loses 30 against both
    found = leaderboard(vendors(sides, [1] * 190 + [0] * 10, [1] * 188 + [0] * 12, [1] * 160 + [0] * 40), RNG(0))
    (ties,) = found.ties
    assert (ties.classes, ties.groups) == (((0, 1, 2),), (((0, 1), (2,)),))


def test_a_row_that_was_asked_otherwise_than_published_values_says_in_what(sides: Any) -> None:
    (side,) = vendors(sides, [1] * 1000)
    low = replace(side.suites["ocrbench"], asked_otherwise="effort low, not max")
    (entry,) = leaderboard([replace(side, suites={"ocrbench": low})], RNG(0)).entries
    assert entry.why_not == "OCRBench: asked otherwise than the published values (effort low, not max)"


def test_rows_stand_in_alphabetical_order_not_by_value(sides: Any) -> None:
    found = leaderboard(vendors(sides, [0] * 20, [1] * 20), RNG(0))
    assert [entry.side.vendor for entry in found.entries] == ["vendor-0", "vendor-1"]


def test_only_runs_that_asked_alike_are_set_side_by_side(sides: Any) -> None:
    hot = vendors(sides, [1] * 50, sampling={"temperature": 0.6})[0]
    found = leaderboard([*vendors(sides, [1] * 50, [0] * 50), replace(hot, vendor="z", run_id="z")], RNG(0))
    (ties,) = found.ties
    assert ties.classes == ((0, 1), (2,))
    assert ties.groups == (((0,), (1,)), ((2,),))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"preset": ""}, "preset none, not kvv"),
        ({"partial": True}, "partial"),
        ({"upstreams": {"a": 5, "b": 7}}, "mixed-upstream: 2 answered"),
    ],
)
def test_a_row_says_why_it_is_not_comparable(sides: Any, change: dict[str, Any], words: str) -> None:
    found = leaderboard([replace(vendors(sides, [1] * 1000)[0], **change)], RNG(0))
    assert words in found.entries[0].why_not
    assert f"not comparable: {words[:10]}" in markdown(document(found))


def test_a_row_with_the_preset_on_public_data_is_comparable(sides: Any) -> None:
    (side,) = vendors(sides, [1] * 1000)
    assert leaderboard([side], RNG(0)).entries[0].why_not == ""
    (drawn,) = vendors(sides, [1] * 500)
    assert leaderboard([drawn], RNG(0)).entries[0].why_not == "OCRBench: 500 of 1000 questions"
    fixture = replace(side, suites={"ocrbench": replace(side.suites["ocrbench"], fixture=True)})
    assert leaderboard([fixture], RNG(0)).entries[0].why_not == "fixture data"
    early = replace(side, suites={"ocrbench": replace(side.suites["ocrbench"], ended_early=True)})
    assert leaderboard([early], RNG(0)).entries[0].why_not == "ended early: ocrbench"


def test_only_the_newest_run_of_an_endpoint_counts_unless_all_are_wanted(sides: Any) -> None:
    (old,) = vendors(sides, [1] * 9)
    new = replace(old, run_id="newer", date="2026-03-02T12:00:00Z")
    other = replace(old, run_id="other", upstreams={"p2": 9})
    found = leaderboard([new, old, other], RNG(0))
    assert {entry.side.run_id for entry in found.entries} == {"newer", "other"}
    assert found.notes == ("1 older runs of the same endpoints are left out (--all shows them)",)
    assert len(leaderboard([new, old], RNG(0), newest=False).entries) == 2


def edition(sides: Any, suite: str, name: str, n: int = 9) -> Any:
    return replace(sides.bench([1] * n, suite=suite), edition=name)


def test_the_public_columns_come_first_and_in_their_order(sides: Any) -> None:
    own = [sides.bench([1] * 9, suite=name) for name in ("toolcall", "zz", "ocrbench")]
    public = [
        edition(sides, "swebench", "DeepSWE"),
        edition(sides, "beam", "1M"),
        edition(sides, "mmmu_pro", "standard (10 options)"),
    ]
    found = leaderboard([sides.side(*own, *public)], RNG(0))
    assert [column.title for column in found.columns] == [
        "OCRBench",
        "MMMU Pro",
        "BEAM 1M",
        "DeepSWE",
        "Tool-call F1",
        "zz",
    ]
    table = document(found).sections[0].tables[0]
    assert table.columns[5:11] == ("OCRBench", "MMMU Pro", "BEAM 1M", "DeepSWE", "Tool-call F1", "zz")
    assert str(table.rows[0][5]) == "50.00 [40.00, 60.00] n 9"
    assert "<svg" in html(document(found))


@pytest.mark.parametrize(
    ("suite", "name", "public", "title"),
    [
        ("swebench", "SWE-bench", "DeepSWE", "SWE-bench"),
        ("swebench", "", "DeepSWE", "SWE"),
        ("beam", "128K", "BEAM 1M", "BEAM 128K"),
        ("mmmu_pro", "vision", "MMMU Pro", "MMMU Pro vision"),
    ],
)
def test_another_set_of_a_suite_does_not_fill_the_public_column(
    sides: Any, suite: str, name: str, public: str, title: str
) -> None:
    published = [PublishedEntry(vendor="Owner", model="K3", source="there", values={"ocrbench": 0.89})]
    found = leaderboard([sides.side(edition(sides, suite, name))], RNG(0), published={"kimi-k3": published})
    table = document(found).sections[0].tables[0]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row[public], str(row[title])) == (None, "50.00 [40.00, 60.00] n 9")


def test_published_rows_stand_beside_measured_ones_as_means_without_n_or_date(sides: Any) -> None:
    published = [
        PublishedEntry(vendor="Owner", model="K3", source="there", values={"ocrbench": 0.89, "swebench/DeepSWE": 0.675})
    ]
    found = leaderboard(vendors(sides, [1] * 9), RNG(0), published={"kimi-k3": published, "other": published})
    table = document(found).sections[0].tables[0]
    row = dict(zip(table.columns, table.rows[-1], strict=True))
    assert (row["vendor"], row["date"], row["comparable"]) == ("Owner", None, "published mean: no n, no date")
    assert (str(row["OCRBench"]), str(row["DeepSWE"]), str(row["BEAM 1M"])) == ("89.00", "67.50", "–")
    assert len(table.rows) == 2
    assert "can show a loss and never prove parity" in markdown(document(found))
    assert [row["vendor"] for row in json.loads(as_json(found))["published"]] == ["Owner"]
    # they are in no tie group: nobody knows their questions
    assert [ties.classes for ties in found.ties] == [((0,),)]


def test_the_owners_leaderboard_ships_for_kimi_k3(runs: Any, call: Any) -> None:
    found = json.loads(call("leaderboard", runs.good, "--format", "json").out)
    rows = {row["vendor"]: row["values"] for row in found["published"]}
    assert len(rows) == 8
    assert rows["Nebius"] == {
        "ocrbench": 0.878,
        "mmmu_pro/standard (10 options)": 0.814,
        "beam/1M": 0.2913,
        "swebench/DeepSWE": 0.673,
    }
    assert set(rows["DigitalOcean"]) == {"ocrbench", "mmmu_pro/standard (10 options)"}


def test_real_runs_make_a_table_with_n_interval_sampling_and_date(runs: Any, call: Any) -> None:
    said = call("leaderboard", runs.good.parent, runs.bad, runs.same, "--all", "--format", "json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert {row["run_id"] for row in found["rows"]} == {runs.good.name, runs.same.name, runs.bad.name}
    row = found["rows"][0]["suites"]["ocrbench"]
    assert (row["n"], row["n_planned"], row["facts"]["sampling"]["temperature"]) == (22, 22, 1.0)
    assert row["low"] < row["value"] <= row["high"]
    assert "n_planned and in both bounds" in row["failures_in_denominator"]
    assert not any(row["comparable"] for row in found["rows"])
    (ties,) = found["tie_groups"]
    names = [row["run_id"] for row in found["rows"]]
    assert [[names[i] for i in group] for group in ties["ways"][0]["groups"]][-1] == [runs.bad.name]
    rows = list(csv.DictReader(io.StringIO(call("leaderboard", runs.good, "--format", "csv").out.split("\ntable")[0])))
    assert (rows[0]["OCRBench"], rows[0]["OCRBench n"]) == ("1.0", "22")


def test_a_submission_is_complete_checkable_and_readable_again(runs: Any, call: Any) -> None:
    said = call("leaderboard", runs.good, "--submission", "send")
    assert said.code == 0, said.err
    files = {path.name for path in Path("send").iterdir()}
    assert files == {"SUBMISSION.md", "leaderboard.json", "report.json", "report.md", "results.json", "SHA256SUMS"}
    for line in Path("send/SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256(Path("send", name).read_bytes()).hexdigest() == digest
    assert Path("send/report.json").read_bytes() == (runs.good / "report.json").read_bytes()
    assert "not comparable" in Path("send/SUBMISSION.md").read_text()
    # the receiver pairs it with runs of his own, case by case
    found = json.loads(call("leaderboard", "send", runs.bad, "--all", "--format", "json").out)
    assert [len(way["rows"]) for way in found["tie_groups"][0]["ways"]] == [2]
    again = call("leaderboard", runs.good, "--submission", "send")
    assert (again.code, "no empty folder" in again.err) == (2, True)
    call("leaderboard", runs.good, "--submission", "send2")
    assert all(Path("send2", name).read_bytes() == Path("send", name).read_bytes() for name in files)


def test_bad_input_is_one_line_and_exit_code_2(runs: Any, call: Any, tmp_path: Path) -> None:
    Path("empty").mkdir()
    Path("broken").mkdir()
    Path("broken/results.json").write_text("{", "utf-8")
    for arguments, words in (
        (["nowhere"], "is no folder"),
        (["empty"], "holds no finished run"),
        (["broken"], "is no JSON"),
        ([runs.good, runs.bad, "--submission", "x"], "exactly one run"),
        (["empty", "--submission", "x"], "exactly one run"),
    ):
        said = call("leaderboard", *arguments)
        assert said.code == 2, arguments
        assert words in said.err
        assert len(said.err.splitlines()) == 1
