"""`kvv import mmmu-pro`: recorded answers become a run under the official parser; what is missing is said, what is
broken is named.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kvv.storage.importers import ImportFileError
from kvv.storage.importers.mmmu_pro import import_mmmu_pro

SHARED = Path(os.environ.get("KVV_SHARED") or Path(__file__).resolve().parents[3] / "shared")
QUESTION = {
    "id": "test_Art_1",
    "question": "<image 1> shows?",
    "options": "['a tree', 'a boat']",
    "answer": "B",
    "subject": "Art",
}
LINE = {**QUESTION, "response": "Answer: B"}


def write(folder: Path, *changes: dict[str, Any]) -> Path:
    path = folder / "answers.jsonl"
    lines = [{**LINE, "id": f"test_Art_{number}", **change} for number, change in enumerate(changes, 1)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def test_each_line_is_judged_and_what_the_file_says_itself_is_not_used(tmp_path: Path, kvv_cli: Any) -> None:
    path = write(
        tmp_path,
        {"pred_indexs": "A", "if_right": False},
        {"response": "Answer: A", "if_right": True},
        {"response": "no idea"},
    )
    ran = kvv_cli("import", "mmmu-pro", str(path), "--model", "gpt-4o")
    rows = {row["metric"]: row for row in ran.report["suites"]}
    assert rows["accuracy"]["n_planned"] == rows["accuracy"]["n_concluded"] == 3
    assert rows["accuracy_no_guess"]["value"] == pytest.approx(1 / 3)
    assert rows["accuracy"]["breakdown"]["guesses"] == 1
    assert rows["accuracy"]["breakdown"]["parse_branches"]["answer-line"] == 2
    assert rows["accuracy"]["comparability"]["prompt"].startswith("as recorded")
    assert rows["accuracy"]["comparability"]["images"] == "as recorded"
    rescored = kvv_cli("score", str(ran.folder))
    assert " 0 verdicts changed" in rescored.err


def test_failed_requests_are_inconclusive_where_the_official_script_guesses(tmp_path: Path, kvv_cli: Any) -> None:
    path = write(tmp_path, {}, {"response": {"error": "rate limit"}}, {"response": None})
    ran = kvv_cli("import", "mmmu-pro", str(path))
    row = ran.row("mmmu_pro")
    assert (row["n_planned"], row["n_concluded"], row["n_inconclusive"], row["value"]) == (3, 1, 2, 1.0)
    assert row["worst_case"] == pytest.approx(1 / 3)
    notes = import_mmmu_pro(path).notes
    assert any("recorded-failure" in note for note in notes)
    assert any("missing-result" in note for note in notes)


def test_the_guesses_come_from_the_runs_seed(tmp_path: Path, kvv_cli: Any) -> None:
    path = write(tmp_path, *[{"response": "no idea"}] * 40)
    values = {}
    for seed in ("1", "2", "1"):
        out = tmp_path / f"seed {seed} {len(list(tmp_path.iterdir()))}"
        value = kvv_cli("import", "mmmu-pro", str(path), "--seed", seed, out=out).row("mmmu_pro")["value"]
        assert values.setdefault(seed, value) == value
    cases = {seed: [case.inputs["guess_seed"] for case in import_mmmu_pro(path, seed=seed).cases] for seed in (1, 2)}
    assert cases[1] != cases[2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": None}, "line 2: column 'id' is missing or no text"),
        ({"answer": 3}, "line 2: column 'answer' is missing or no text"),
        ({"options": "['a', "}, "line 2: column 'options': "),
        ({"options": None}, "line 2: column 'options': should be a list"),
        ({"id": "test_Art_1"}, "line 2: id 'test_Art_1' stands in line 1 already"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = write(tmp_path, {}, change)
    with pytest.raises(ImportFileError) as caught:
        import_mmmu_pro(path)
    assert str(caught.value).startswith(f"{path}, {words}")
    assert "\n" not in str(caught.value)


def test_options_of_the_other_importer_are_refused(tmp_path: Path, kvv_cli: Any) -> None:
    path = str(write(tmp_path, {}))
    assert "--requests: is for k2vv" in kvv_cli("import", "mmmu-pro", path, "--requests", path).err
    assert "--requests: is needed" in kvv_cli("import", "k2vv", path).err
    assert "no such file" in kvv_cli("import", "mmmu-pro", path + "x").err.lower()


@pytest.mark.parametrize(("kind", "percent", "guesses"), [("cot", 55.03, 0), ("direct", 40.12, 7)])
def test_the_recorded_scores_come_out(kind: str, percent: float, guesses: int, tmp_path: Path, kvv_cli: Any) -> None:
    packed = SHARED / f"data/mmmu_pro/gpt-4o_standard10_{kind}.jsonl.gz"
    if not packed.is_file():
        pytest.skip(f"no recorded answers in {SHARED} (KVV_SHARED)")
    stored = [json.loads(line)["if_right"] for line in gzip.decompress(packed.read_bytes()).splitlines()]
    ran = kvv_cli("import", "mmmu-pro", str(packed))
    row = ran.row("mmmu_pro")
    assert row["n_concluded"] == 1730
    assert row["breakdown"]["guesses"] == guesses
    assert round(100 * sum(stored) / 1730, 2) == percent
    assert abs(100 * row["value"] - percent) <= 0.005 + 100 * guesses / 1730
