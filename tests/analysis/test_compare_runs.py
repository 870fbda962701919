"""What a comparison refuses, lists and prints; real finished runs through the command line."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvv.analysis import UnlikeRuns, compare, with_answers
from kvv.analysis.report import as_json, document
from kvv.core import Area, Outcome
from kvv.rendering.document import Document, DocumentTable, Estimate, Excerpt, Section, csv_text, html, markdown

RNG = np.random.default_rng


@pytest.mark.parametrize("kind", ["data", "sampling", "judge", "agent", "scorer"])
def test_unlike_facts_refuse_a_comparison_until_they_are_allowed(sides: Any, kind: str) -> None:
    a, b = sides.side(sides.bench([1] * 8)), sides.side(sides.bench([1] * 8, **{kind: {"temperature": 0.6}}), name="b")
    with pytest.raises(UnlikeRuns, match=rf"{kind} differs.*--allow-different {kind}$"):
        compare([a, b], RNG(0))
    with pytest.raises(UnlikeRuns):
        compare([a, b], RNG(0), allowed={"suites", "cases"})
    found = compare([a, b], RNG(0), allowed={kind})
    assert [unlike.kind for unlike in found.unlike] == [kind]
    assert f"compared although they differ: bench: {kind} differs" in document(found).lead[0]


def test_what_is_not_in_all_runs_is_left_out_and_said(sides: Any) -> None:
    a = sides.side(sides.bench([1] * 10), sides.bench([1] * 4, suite="other"))
    b = sides.side(sides.bench([1] * 6), name="b")
    with pytest.raises(UnlikeRuns, match="run-b lacks other"):
        compare([a, b], RNG(0))
    found = compare([a, b], RNG(0), allowed={"all"})
    assert found.dropped == (
        "bench: 4 of 10 cases are not in all runs and are left out where they lack",
        "suite other: only in A, not compared",
    )


def test_contract_cases_of_another_profile_are_refused_and_new_cases_are_not(sides: Any) -> None:
    a = sides.side(sides.contract({"p/x": Outcome.PASS}))
    compare([a, sides.side(sides.contract({"p/x": Outcome.PASS, "p/new": Outcome.PASS}), name="b")], RNG(0))
    with pytest.raises(UnlikeRuns, match="profile"):
        compare([a, sides.side(sides.contract({"p/x": Outcome.PASS}), name="b", profile="openai")], RNG(0))


def test_contract_cases_are_counted_by_area_and_listed_where_they_differ(sides: Any) -> None:
    names = ["p/both", "p/only-a", "p/only-b", "p/open", "p/none"]
    a = sides.contract(
        dict(zip(names, [Outcome.PASS, Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.SKIP], strict=True))
    )
    b = sides.contract(
        dict(zip(names, [Outcome.PASS, Outcome.FAIL, Outcome.PASS, Outcome.PASS, Outcome.SKIP], strict=True))
    )
    found = compare([sides.side(a), sides.side(b, name="b")], RNG(0))
    (row,) = found.contract
    assert (row.area, row.both_pass, row.only_first, row.only_second, row.open, row.n) == (Area.DECODING, 1, 1, 1, 1, 4)
    notes = [(r.case, r.first_note, r.second_note) for r in found.discordant]
    assert notes == [
        ("p/only-a", "passes", "fails (not-refused)"),
        ("p/only-b", "fails (not-refused)", "passes"),
        ("p/open", "is inconclusive (not-refused)", "passes"),
    ]


def test_a_case_that_only_a_repeat_saved_is_counted(sides: Any) -> None:
    a = sides.contract({"p/x": Outcome.PASS, "p/y": Outcome.PASS, "p/z": Outcome.SKIP})
    a = replace(a, cases={name: replace(case, first_try=name == "p/x") for name, case in a.cases.items()})
    found = compare([sides.side(a), sides.side(a, name="b")], RNG(0))
    table = next(t for t in document(found).tables if t.name == "contract-runs")
    assert table.rows[0] == ("A", "vendor-a", "not run", 2, 1, 0, 0, 2, None)


def test_discordant_questions_come_with_both_answers_and_are_bounded(sides: Any) -> None:
    found = compare([sides.side(sides.bench([1] * 500)), sides.side(sides.bench([0] * 500), name="b")], RNG(0))
    assert (len(found.discordant), found.left_out) == (200, 300)
    asked: list[tuple[int, str, int]] = []

    def answers(run: int, case: str, sample: int) -> str:
        asked.append((run, case, sample))
        return f"answer of {run}"

    shown = with_answers(found, answers, lambda run, case: f"gold of {case}")
    assert len(asked) == 120
    first = shown.discordant[0]
    assert (first.first_answer, first.second_answer, first.expected) == (
        "answer of 0",
        "answer of 1",
        f"gold of {first.case}",
    )
    assert (len(shown.discordant), shown.discordant[-1].first_answer) == (200, "")
    assert "... and 300 more." in markdown(document(shown))


def test_the_sample_shown_is_one_on_which_they_differ(sides: Any) -> None:
    found = compare(
        [sides.side(sides.bench([[1, 1, 1, 0]] * 9)), sides.side(sides.bench([[1, 1, 0, 0]] * 9), name="b")], RNG(0)
    )
    assert {(r.sample, r.first_note, r.second_note) for r in found.discordant} == {
        (2, "right in 3 of 4", "right in 2 of 4")
    }


def test_json_has_n_and_interval_beside_every_difference(sides: Any) -> None:
    found = json.loads(
        as_json(
            compare([sides.side(sides.bench([1] * 30)), sides.side(sides.bench([1] * 20 + [0] * 10), name="b")], RNG(0))
        )
    )
    (pair,) = found["quality"][0]["pairs"]
    assert pair["n_samples"] == 30
    assert pair["ci95"][0] < pair["difference"] < pair["ci95"][1]
    assert found["quality"][0]["tie_groups"] == [["A"], ["B"]]


# --- documents ---------------------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>",
    "\x1b[31mred",
    "a\u202eb",
    "```\n| x |\n# h",
    '"><img src=x onerror=1>',
    "[red]markup[/red]",
    "=1+1",
]


def hostile_document(text: str) -> Document:
    table = DocumentTable(name="t", columns=("c", text), rows=((text, Estimate(value=0.5, low=0.4, high=0.6, n=9)),))
    excerpt = Excerpt(line=text, texts=((text, text),))
    return Document(
        title=text, lead=(text,), sections=(Section(title=text, notes=(text,), tables=(table,), excerpts=(excerpt,)),)
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text_in_every_format(text: str) -> None:
    from rich.console import Console

    from kvv.rendering.terminal import show

    page, marks, cells = (
        html(hostile_document(text)),
        markdown(hostile_document(text)),
        csv_text(hostile_document(text)),
    )
    out = io.StringIO()
    show(hostile_document(text), Console(file=out, width=120))
    for rendered in (page, marks, cells, out.getvalue()):
        assert "\x1b" not in rendered
        assert "\u202e" not in rendered
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert "<script>alert" not in marks.split("```")[0]
    assert "\n# h" not in marks.split("```")[0]
    assert not any(value.startswith("=") for row in csv.reader(io.StringIO(cells)) for value in row)
    if "markup" in text:
        assert "[red]markup[/red]" in out.getvalue()


def test_csv_spreads_an_estimate_over_four_columns() -> None:
    rows = list(csv.reader(io.StringIO(csv_text(hostile_document("x")))))
    assert rows == [["table", "c", "x", "x low", "x high", "x n"], ["t", "x", "0.5", "0.4", "0.6", "9"]]


# --- the verb ----------------------------------------------------------------------------------------


def test_two_real_runs_are_compared_case_by_case(runs: Any, call: Any) -> None:
    said = call("compare", runs.good, runs.bad, "--format", "json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert [run["vendor"] for run in found["runs"]] == ["local-8000", "local-8000"]
    (area,) = found["contract"]
    assert area["only_first"] > 0
    assert area["n"] == sum(area[kind] for kind in ("both_pass", "both_fail", "only_first", "only_second", "open"))
    (suite,) = found["quality"]
    assert suite["tie_groups"] == [["A"], ["B"]]
    assert found["contract_groups"] == [{"contract": "keeps", "runs": ["A"]}, {"contract": "breaks", "runs": ["B"]}]
    assert (found["runs"][0]["broken"], [name[:7] for name in found["runs"][1]["broken"]][:1]) == ([], ["params/"])
    case = next(row for row in found["cases"] if row["suite"] == "ocrbench")
    assert (case["first_note"], case["second_note"]) == ("right", "wrong")
    assert "It reads:" in case["first_answer"]
    assert case["second_answer"]
    assert case["second_answer"] != case["first_answer"]
    broken = next(row for row in found["cases"] if row["suite"] == "params")
    assert (broken["first_note"], broken["second_note"][:5], broken["expected"][:7]) == ("passes", "fails", "refused")
    assert ("HTTP 400" in broken["first_answer"], "HTTP 400" in broken["second_answer"]) == (True, False)
    assert found["runs"][0]["service"]["first_try"]["n"] > 20


def test_equal_runs_stand_in_one_tie_group(runs: Any, call: Any) -> None:
    said = call("compare", runs.good, runs.same, "--format", "md")
    assert said.code == 0
    assert "no difference in quality is shown in 1 pairs" in said.out
    assert "\\[A B\\]" in said.out


@pytest.mark.parametrize("name", ["text", "md", "html", "csv"])
def test_every_format_can_be_written_to_a_file(runs: Any, call: Any, name: str) -> None:
    said = call("compare", runs.good, runs.bad, "--format", name, "--to", "x.out")
    assert (said.code, said.out) == (0, "")
    assert "ocrbench" in Path("x.out").read_text("utf-8")


def test_bad_input_is_one_line_and_exit_code_2(runs: Any, call: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        ([runs.good], "at least two"),
        ([runs.good, tmp_path / "empty"], "no run folder"),
        ([runs.good, "nowhere"], "no run matches"),
        ([runs.good, runs.good], "the same run"),
        ([runs.good, shutil.copytree(runs.good, tmp_path / "copy")], "the same run"),
        ([runs.good, runs.bad, "--allow-different", "taste"], "no kind 'taste'"),
        ([runs.good, runs.bad, "--format", "html", "--to", "no/such/dir/x"], "cannot write"),
    ):
        said = call("compare", *arguments)
        assert said.code == 2, arguments
        assert words in said.err
        assert len(said.err.splitlines()) == 1


def test_results_that_were_stored_again_under_another_id_are_the_same_run(runs: Any, call: Any, tmp_path: Path) -> None:
    from kvv.storage.store import Store

    copy = shutil.copytree(runs.good, tmp_path / "again")
    with Store.open(copy / "store.sqlite") as store:
        store.set_meta("run_id", "imported-again")
    said = call("compare", runs.good, copy)
    assert (said.code, "the same run" in said.err) == (2, True)
    board = call("leaderboard", runs.good, copy, "--all", "--format", "json")
    assert len(json.loads(board.out)["rows"]) == 1
    assert "holds the same results as" in board.err
    assert call("compare", runs.good, runs.same).code == 0, "two runs with equal verdicts are two runs"


@pytest.mark.parametrize(
    ("equal", "differing", "words"),
    [
        # (1.96 + .84)^2/.1^2 = 785 by the share of discordant answers, one more than was seen
        (20, 0, "10 points would show in bench from about 40 answers a side on (20 now; $10.00 more for all sides)"),
        (40, 0, "10 points would have shown in bench (40 answers a side)"),
        (
            60,
            20,
            "10 points would show in bench from about 322 answers a side on (100 now; $111.00 more for all sides)",
        ),
        (392, 4, "10 points would have shown in bench (400 answers a side)"),
    ],
)
def test_the_title_says_how_many_answers_would_show_ten_points(
    sides: Any, equal: int, differing: int, words: str
) -> None:
    one = sides.side(sides.bench([1] * equal + [1, 0] * differing), name="a")
    two = sides.side(sides.bench([1] * equal + [0, 1] * differing), name="b")
    found = compare([one, two], RNG(0))
    assert words in document(found, prices={"bench": 0.5}).title
    assert "$" not in document(found).title


def test_a_run_that_has_not_ended_is_refused(runs: Any, call: Any, tmp_path: Path) -> None:
    from kvv.storage.store import Store

    open_run = tmp_path / "open"
    shutil.copytree(runs.good, open_run)
    with Store.open(open_run / "store.sqlite") as store:
        store.set_meta("finished", None)
    said = call("compare", runs.good, open_run)
    assert said.code == 2
    assert "has not ended" in said.err


def test_recorded_results_pair_as_the_golden_confusion_says(call: Any, shared: Path) -> None:
    """Real input: 256 answers a side, of which 207 call on both, 11 only there and 19 only here (SOURCES.md of the
    data).
    """
    import gzip

    for who in ("official", "vendor"):
        Path(f"{who}.jsonl").write_bytes(
            gzip.decompress((shared / f"data/tool_calls/results_{who}_256.jsonl.gz").read_bytes())
        )
        requests = shared / "data/tool_calls/requests_256.jsonl"
        call("import", "k2vv", f"{who}.jsonl", "--requests", requests, "--model", "kimi-k2", "--out", who, "-q")
    first, second = (next(Path(who).iterdir()) for who in ("official", "vendor"))
    found = json.loads(call("compare", first, second, "--format", "json").out)
    pairs = {pair["measure"]: pair for pair in found["quality"][0]["pairs"]}
    assert (pairs["triggered"]["gained"], pairs["triggered"]["lost"], pairs["triggered"]["n_samples"]) == (11, 19, 256)
    assert (pairs["schema_valid"]["n_samples"], pairs["schema_valid"]["primary"]) == (207, True)
    assert not any(pair["shown"] for pair in pairs.values())


@pytest.mark.parametrize("verb", ["compare", "gate", "leaderboard", "history"])
def test_a_damaged_store_is_one_line_and_exit_code_2(runs: Any, call: Any, verb: str) -> None:
    import shutil

    from kvv.storage.store import Store

    shutil.copytree(runs.good, "bad")
    with Store.open(Path("bad/store.sqlite")) as store:
        store.set_meta("suites", [{"id": 1}])
    shutil.copytree(runs.good, "cut")
    data = Path("cut/store.sqlite").read_bytes()
    Path("cut/store.sqlite").write_bytes(data[: len(data) // 3])
    for name in ("bad", "cut"):
        arguments = {
            "compare": [runs.same, name],
            "gate": [name, "--baseline", runs.same],
            "leaderboard": [name],
            "history": [name],
        }[verb]
        said = call(verb, *arguments)
        assert said.code == 2, (name, said.out[:300])
        assert len(said.err.splitlines()) == 1
        assert "Traceback" not in said.err


def test_a_suite_that_a_look_ended_is_compared_on_the_questions_it_asked(sides: Any) -> None:
    """The first part of the same random order is no other choice of questions; a part that is none of the whole is."""
    whole = sides.side(sides.bench([1, 0] * 50), name="a")
    part = replace(sides.bench([1, 0] * 20), ended_early=True)
    found = compare([whole, sides.side(part, name="b")], np.random.default_rng(0))
    assert found.unlike == ()
    assert found.quality[0].pairs[0].samples == 40
    assert any("60 of 100 cases are not in all runs" in text for text in found.dropped)
    for other in (
        replace(part, ended_early=False),
        replace(part, cases={**part.cases, "bench/else": part.cases["bench/q0"]}),
    ):
        with pytest.raises(UnlikeRuns, match="--allow-different cases"):
            compare([whole, sides.side(other, name="b")], np.random.default_rng(0))


def test_a_run_that_concluded_nothing_keeps_no_others_from_being_compared(sides: Any) -> None:
    good, bad, dead = sides.bench([1] * 30), sides.bench([0] * 30), sides.bench([None] * 30)
    found = compare([sides.side(good), sides.side(dead, name="dead"), sides.side(bad, name="bad")], RNG(0))
    pairs = {(pair.first, pair.second): pair for pair in found.quality[0].pairs if pair.measure.primary}
    assert pairs[0, 2].differs
    assert (pairs[0, 1].difference, pairs[0, 1].open_second, pairs[1, 2].open_first) == (None, 30, 30)
    assert found.quality[0].groups == ((0,), (2,))
    first_dead = compare([sides.side(dead, name="dead"), sides.side(good), sides.side(bad, name="bad")], RNG(0))
    assert first_dead.quality[0].groups == ((1,), (2,))
    assert "is better" in markdown(document(first_dead))
