"""`kvv export inspect`: a log that inspect-ai itself reads, with the run's answers, scores and failures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kvv.storage.importers import ImportOptions, importer

OPTIONS = "['first thing', 'second thing', 'third thing']"


def recorded(path: Path) -> Path:
    line = {"options": OPTIONS, "answer": "B", "question": "Which?", "subject": "Art"}
    rows = [
        {**line, "id": "right", "response": "Answer: B"},
        {**line, "id": "wrong", "response": "Answer: A"},
        {**line, "id": "failed", "response": {"error": "timed out"}},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_a_run_becomes_a_log_that_inspect_reads(kvv_cli: Any, tmp_path: Path) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="the package inspect-ai is not installed")
    ran = kvv_cli("import", str(recorded(tmp_path / "a.jsonl")), "--model", "kimi-k3")
    told = kvv_cli("export", "inspect", str(ran.folder))
    assert told.code == 0, told.said
    read = log.read_eval_log(str(ran.folder / "mmmu_pro.eval"), resolve_attachments=True)
    assert (read.status, read.eval.task, read.eval.model) == ("success", "mmmu_pro", "openai/kimi-k3")
    assert (read.results.total_samples, read.results.completed_samples) == (3, 2)
    score = next(score for score in read.results.scores if score.name == "accuracy")
    assert (score.metrics["mean"].value, score.unscored_samples) == (ran.row("mmmu_pro")["value"], 1)
    samples = {sample.id.rpartition("/")[2]: sample for sample in read.samples}
    assert {name: sample.scores and sample.scores["correct"].value for name, sample in samples.items()} == {
        "right": 1.0,
        "wrong": 0.0,
        "failed": None,
    }
    assert samples["right"].output.completion == "Answer: B"
    assert samples["wrong"].scores["correct"].explanation == "wrong-answer"
    assert samples["right"].target == "B"
    assert samples["right"].messages[-1].role == "assistant"
    assert "timed out" in samples["failed"].error.message
    back = kvv_cli("import", str(ran.folder / "mmmu_pro.eval"), out=tmp_path / "back")
    assert back.row("mmmu_pro")["value"] == ran.row("mmmu_pro")["value"]
    assert back.row("mmmu_pro")["n_inconclusive"] == 1
    found = importer("inspect")(ran.folder / "mmmu_pro.eval", ImportOptions())
    assert [case.id for case in found.cases] == ["mmmu_pro/right", "mmmu_pro/wrong", "mmmu_pro/failed"]


def test_pictures_are_in_the_log(kvv_cli: Any, tmp_path: Path) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="the package inspect-ai is not installed")
    ran = kvv_cli("run", "ocrbench", "--limit", "1")
    assert kvv_cli("export", "inspect", str(ran.folder), "--to", str(tmp_path / "o.eval")).code == 0
    (sample,) = log.read_eval_log(str(tmp_path / "o.eval"), resolve_attachments=True).samples
    assert [part.type for part in sample.input[0].content] == ["image", "text"]
    assert sample.input[0].content[0].image.startswith("data:image/")
    assert sample.output.usage.total_tokens > 0


def test_what_cannot_be_exported_is_a_usage_error(
    kvv_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = kvv_cli("import", str(recorded(tmp_path / "a.jsonl")))
    for arguments, message in (
        (("--suite", "beam"), "--suite: name one of the run's benchmarks, for a log is of one: mmmu_pro"),
        (("--to", str(tmp_path / "a.json")), "--to: wants a name that ends in .eval"),
    ):
        told = kvv_cli("export", "inspect", str(ran.folder), *arguments)
        assert (told.code, message in told.said) == (2, True), told.said
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    told = kvv_cli("export", "inspect", str(ran.folder))
    assert (told.code, told.said.count("\n")) == (2, 1)
    assert "pip install 'kvv[inspect]'" in told.said
