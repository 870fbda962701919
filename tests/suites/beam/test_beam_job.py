"""What a run makes of the judge's and the tokeniser's options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvv.data import load
from kvv.execution.preparation import judge_of, prepare
from kvv.planning.config import load_config


def configured(**flags: Any) -> Any:
    return load_config({"base_url": "https://api.example.com/v1", "model": "kimi-k3", **flags}, environ={})


@pytest.mark.parametrize(
    ("model", "temperature"), [("gpt-oss-120b", 0.3), ("gpt-4.1-mini", 0.3), ("kimi-k2.6", 1.0), ("kimi-k3", 1.0)]
)
def test_the_judge_gets_kvvs_temperature_unless_it_refuses_all_but_its_own(model: str, temperature: float) -> None:
    judge = judge_of(configured(judge_base_url="https://j.example/v1", judge_model=model), "kimi-k3")
    assert judge is not None
    assert (judge.model, judge.temperature, judge.max_tokens) == (model, temperature, 16_384)


def test_somebody_elses_endpoint_never_judges_itself() -> None:
    assert judge_of(configured(), "kimi-k3") is None
    alone = judge_of(load_config({}, environ={}), "kimi-k3")
    assert alone is not None
    assert alone.model == "kimi-k3"  # without an endpoint ours judges too


def test_a_hugging_face_tokeniser_folder_counts_and_cuts(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    model = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
    definition = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "model": model,
    }
    (folder / "tokenizer.json").write_text(json.dumps(definition | {"post_processor": None, "decoder": None}), "utf-8")
    assert tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode("one two").ids == [0, 0]
    job = prepare(load_config({"suites": ["beam"], "tokenizer": str(folder), "max_tokens": ["1040000"]}, environ={}))
    (planned,) = job.plan.suites
    dropped = {case.cluster: case.inputs["history"]["dropped"] for case in planned.cases}
    assert set(dropped.values()) != {0}  # 1,048,576 - 1,040,000 - 5,000 words are fewer than a conversation has
    assert all(case.inputs["history"]["counted"] for case in planned.cases)
    assert all(number % 2 == 0 for number in dropped.values())


def test_the_smoke_tier_leaves_long_memory_out_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("KVV_CACHE", str(tmp_path)), ("HF_HOME", str(tmp_path)), ("HF_HUB_OFFLINE", "1")):
        monkeypatch.setenv(name, value)
    judge = {"judge_base_url": "https://j.example/v1", "judge_model": "j"}
    skipped = {item.suite: item.reason for item in prepare(configured(**judge)).plan.skipped}
    assert skipped["beam"] == "not in the tier smoke, only where it is named"
    nightly = {item.suite: item.reason for item in prepare(configured(**judge, tier="nightly")).plan.skipped}
    assert nightly["beam"].startswith("no data: ")
    named = prepare(configured(**judge, data=["beam=fixture"]))
    assert "beam" in [item.suite.id for item in named.plan.suites]


@pytest.mark.parametrize(
    ("more", "variant"),
    [({"tier": "nightly"}, "100K"), ({"tier": "full"}, "1M"), ({"tier": "nightly", "variant": "500K"}, "500K")],
)
def test_each_tier_has_its_own_size(more: dict[str, str], variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def loads(name: str, **options: Any) -> Any:
        asked.append(options["variant"])
        return load("beam", fixture=True)

    monkeypatch.setattr("kvv.execution.preparation.load_data", loads)
    prepare(configured(suites=["beam"], judge_base_url="https://j.example/v1", judge_model="j", **more))
    assert asked == [variant]
