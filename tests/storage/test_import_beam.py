"""`kvv import beam ANSWERS [SCORES]`: KVV's files under our failure rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvv.storage.importers import ImportFileError
from kvv.storage.importers.beam import import_beam

RUBRIC = ["LLM response should state: a", "LLM response should state: b"]


def line(chat: str, ability: str, index: int = 0, **more: Any) -> dict[str, Any]:
    key = {"chat_id": chat, "question_type": ability, "question_index": index}
    return {**key, "question": "q", "rubric": RUBRIC, "response": "text", "model": "kimi-k3", **more}


def scored(chat: str, ability: str, score: Any, **more: Any) -> dict[str, Any]:
    return {"chat_id": chat, "question_type": ability, "question_index": 0, "score": score, **more}


def file(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


ANSWERS = [
    line("1", "summarization"),
    line("1", "abstention"),
    line("1", "temporal_reasoning", error="timed out", response=""),
    line("2", "summarization"),
    line("2", "event_ordering"),
    line("2", "knowledge_update"),
]
SCORES = [
    scored("2", "event_ordering", 1.0),
    scored("1", "summarization", 0.5, rubric_scores=[1, 0.5]),
    scored("1", "abstention", 1.0),
    scored("1", "temporal_reasoning", 0.0),
    scored("2", "summarization", 2),
]


def test_recorded_scores_become_a_run_whose_failures_are_no_zeros(kvv_cli: Any, tmp_path: Path) -> None:
    answers, scores = file(tmp_path / "a.jsonl", ANSWERS), file(tmp_path / "s.jsonl", SCORES)
    ran = kvv_cli("import", "beam", str(answers), str(scores))
    row = ran.row("beam")
    assert (row["metric"], row["n_planned"], row["n_concluded"], row["n_inconclusive"]) == ("kvv_score", 6, 3, 3)
    assert row["value"] == pytest.approx((0.5 + 1 + 1) / 3)
    assert row["kvv_value"] == pytest.approx(
        (0.5 + 1 + 1) / 6
    )  # a failure, a 2 that nobody clamped and a missing score count 0 there
    assert row["breakdown"]["reasons"] == {"judge-failed": 1, "no-score": 1, "recorded-failure": 1}
    assert row["comparability"]["judge"] == "as recorded"
    assert [found["metric"] for found in ran.report["suites"]] == ["kvv_score"]


def test_without_scores_nothing_is_concluded(kvv_cli: Any, tmp_path: Path) -> None:
    ran = kvv_cli("import", "beam", str(file(tmp_path / "a.jsonl", ANSWERS)))
    assert ran.code == 3
    assert ran.row("beam")["n_inconclusive"] == 6


def test_a_score_that_no_float_holds_gives_no_score_and_no_error(tmp_path: Path) -> None:
    found = import_beam(
        file(tmp_path / "a.jsonl", [line("1", "abstention")]),
        file(tmp_path / "s.jsonl", [scored("1", "abstention", 10**400)]),
    )
    assert [case.inputs["recorded"]["kvv_score"] for case in found.cases] == [None]


def test_the_order_of_either_file_changes_nothing(tmp_path: Path) -> None:
    one = import_beam(file(tmp_path / "a.jsonl", ANSWERS), file(tmp_path / "s.jsonl", SCORES))
    other = import_beam(file(tmp_path / "b.jsonl", ANSWERS[::-1]), file(tmp_path / "t.jsonl", SCORES[::-1]))

    def recorded(found: Any) -> dict[str, Any]:
        return {case.id: case.inputs["recorded"] for case in found.cases}

    assert recorded(one) == recorded(other)
    assert recorded(one)["beam/recorded/2/event_ordering-0"] == {"kvv_score": 1.0}


@pytest.mark.parametrize(
    ("answers", "scores", "words"),
    [
        ([line("1", "telepathy")], [], "line 1: names no question"),
        (
            [line("1", "abstention"), line("1", "abstention")],
            [],
            "line 2: chat '1', abstention 0 stands in line 1 already",
        ),
        ([line("1", "abstention")], [scored("9", "abstention", 1)], "line 1: chat '9', abstention 0 has no answer"),
        ([line("1", "abstention")], [scored("1", "abstention", "good")], "line 1: the score is 'good', no number"),
    ],
)
def test_bad_files_are_named_with_their_line(answers: list[Any], scores: list[Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match=words):
        import_beam(file(tmp_path / "a.jsonl", answers), file(tmp_path / "s.jsonl", scores) if scores else None)
