"""`kvv show` on a benchmark's sample: the question, pictures as files, the answer, and the judge's part."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from PIL import Image

from kvv.storage.store import Store


def test_a_sample_shows_question_answer_and_judge_and_exports_its_pictures(kvv_cli: Any, tmp_path: Path) -> None:
    ran = kvv_cli("run", "aime2025", "ocrbench", "beam", "--limit", "1", "--samples", "1")
    with Store.open(ran.folder / "store.sqlite", read_only=True) as store:
        cases = {case.suite: case for case, _ in store.cases()}

    shown = kvv_cli("show", cases["aime2025"].id, "--run", str(ran.folder))
    assert shown.code == 0
    question = cases["aime2025"].inputs["body"]["messages"][-1]["content"]
    assert str(question).splitlines()[0][:60] in shown.out
    assert "boxed" in shown.out
    assert f"expected: {cases['aime2025'].inputs['answer']}" in shown.out

    judged = kvv_cli("show", cases["beam"].id, "--run", str(ran.folder), "--json")
    roles = [title for title, _ in json.loads(judged.out)["conversation"]]
    assert any(title.startswith("user (judge") for title in roles), roles
    assert any(title.startswith("answer (finish_reason stop)") for title in roles)

    target = tmp_path / "exported"
    assert kvv_cli("show", cases["ocrbench"].id, "--run", str(ran.folder), "--export", str(target)).code == 0
    pictures = sorted(target.glob("image-*"))
    assert pictures
    assert Image.open(io.BytesIO(pictures[0].read_bytes())).size > (1, 1)
    assert (target / "body.json").stat().st_size > 0


def test_a_sample_that_was_never_asked_cannot_be_exported(kvv_cli: Any, tmp_path: Path) -> None:
    # without a key there is none to leave out
    ran = kvv_cli("check", "errors", "--case", "errors/key/*")
    with Store.open(ran.folder / "store.sqlite", read_only=True) as store:
        skipped = [case for case, _, verdict in store.verdicts() if verdict.outcome == "skip"]
    tried = kvv_cli("show", skipped[0], "--run", str(ran.folder), "--export", str(tmp_path / "x"))
    assert tried.code == 2
    assert "nothing to export" in tried.err
    assert not (tmp_path / "x").exists()
