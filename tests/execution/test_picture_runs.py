"""Whole runs with pictures: what was sent is what the data set holds, the store keeps it, and a bad picture is our
error alone.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from kvv.core import Picture
from kvv.data import load
from kvv.storage.store import Store


@pytest.mark.parametrize("arguments", [(), ("--preset", "kvv"), ("--variant", "mmmu_pro=official")])
def test_our_endpoint_counts_what_we_count(arguments: tuple[str, ...], kvv_cli: Any) -> None:
    """It answers rightly only to the right pictures in the right order."""
    ran = kvv_cli("run", "ocrbench", "mmmu_pro", *arguments)
    assert ran.code == 0, ran.said
    for suite, n in (("ocrbench", 22), ("mmmu_pro", 20)):
        row = ran.row(suite)
        assert (row["verdict"], row["value"], row["n_concluded"], row["reference"]["kind"]) == (
            "pass",
            1.0,
            n,
            "server-count",
        )


def test_the_store_holds_the_bytes_that_were_sent_and_the_case_a_reference(kvv_cli: Any) -> None:
    ran = kvv_cli("run", "ocrbench", "--case", "ocrbench/digit*")
    shown = {row["image"].digest: row["image"] for row in load("ocrbench", fixture=True).rows}
    with Store.open(ran.folder / "store.sqlite", read_only=True) as store:
        cases = [case for case, _ in store.cases()]
        assert len(cases) == 2
        for case in cases:
            kept = case.inputs["body"]["messages"][0]["content"][0]["image_url"]["url"]
            assert isinstance(kept, Picture)
            body = json.loads(next(iter(store.exchanges(case.id, 0))).body)
            url = body["messages"][0]["content"][0]["image_url"]["url"]
            assert url.startswith(f"data:{kept.media};base64,")
            assert hashlib.sha256(base64.b64decode(url.partition(",")[2])).hexdigest() == kept.digest
            assert kept.digest in shown


def test_a_picture_that_cannot_be_decoded_is_an_error_of_ours_and_the_run_goes_on(tmp_path: Path, kvv_cli: Any) -> None:
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 60).convert("RGB").save(buffer, "JPEG")
    (tmp_path / "good.jpg").write_bytes(buffer.getvalue())
    (tmp_path / "cut.jpg").write_bytes(buffer.getvalue()[: buffer.tell() // 2])
    row = {"dataset": "d", "question": "What?", "question_type": "Doc-oriented VQA", "answer": ["x"]}
    lines = [{**row, "question": f"What is {name}?", "image": {"path": name}} for name in ("good.jpg", "cut.jpg")]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ran = kvv_cli("run", "ocrbench", "--data", f"ocrbench={path}")
    found = ran.row("ocrbench")
    assert (found["n_planned"], found["n_concluded"], found["n_inconclusive"]) == (2, 1, 1)
    assert found["breakdown"]["errors"] == 1
    assert f"{path}: line 2: column 'image': cannot be decoded" in (ran.folder / "report.md").read_text(
        "utf-8"
    ) + json.dumps(ran.report)


def test_bad_data_is_a_usage_error_of_one_line(tmp_path: Path, kvv_cli: Any) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"dataset": "d", "question": "q", "question_type": "t", "answer": ["a"], "image": "none.png"}\n')
    ran = kvv_cli("run", "ocrbench", "--data", f"ocrbench={path}")
    assert ran.code == 2
    assert f"--data ocrbench: {path}: line 1: column 'image': there is no picture 'none.png'" in ran.err
