"""What a run makes of the judge's and the tokeniser's options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvv.cases.judge_prompts import JudgePrompts, fill
from kvv.core.usage_error import ConfigError
from kvv.data import load
from kvv.execution.preparation import judge_of, prepare
from kvv.planning.config import load_config
from kvv.planning.judge_prompts import read_judge_prompts
from kvv.planning.published_means import published_means, published_otherwise
from kvv.profiles.profile import load_profile
from kvv.suites.beam.scoring import judge_prompts
from kvv.suites.beam.suite import BeamSuite


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


# --- the judge's effort, fields and words ---------------------------------------------------------------

ITEM, ORDER = "Q <question>\nR <rubric_item>\nA <llm_response>", '{question}|{reference}|{response}: {{"score": 1}}'


def judged(tmp_path: Path, files: dict[str, str], **flags: Any) -> Any:
    """The planned suite whose judge has these prompts."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    flags = {"suites": ["beam"], "data": ["beam=fixture"], "judge_base_url": "https://j.example/v1", **flags}
    given = {"judge_prompts": str(tmp_path)} if files else {}
    (planned,) = prepare(configured(judge_model="gpt-oss-120b", **given, **flags)).plan.suites
    return planned


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("gpt-oss-120b", {"reasoning_effort": "high"}),
        ("kimi-k3", load_profile("kimi-k3").thinking_body(on=True, effort="high")),
    ],
)
def test_the_judges_effort_and_fields_go_into_its_requests(model: str, sent: dict[str, Any]) -> None:
    config = configured(
        judge_base_url="https://j.example/v1", judge_model=model, judge_effort="high", judge_extra_body='{"seed": 7}'
    )
    judge = judge_of(config, "kimi-k3")
    assert judge is not None
    body = judge.body(judge.fields(), "p")
    assert sent
    assert "high" in json.dumps(sent)
    assert {name: body[name] for name in sent} == sent
    assert (body["seed"], judge.fields()["effort"]) == (7, "high")
    plain = judge_of(configured(judge_base_url="https://j.example/v1", judge_model=model), "kimi-k3")
    assert plain is not None
    assert set(plain.body(plain.fields(), "p")) == {"model", "messages", "temperature", "max_tokens"}
    assert set(plain.fields()) == {"model", "temperature", "max_tokens"}


@pytest.mark.parametrize(
    ("option", "value"), [("judge_effort", "high"), ("judge_extra_body", '{"a": 1}'), ("judge_prompts", "x.txt")]
)
def test_what_the_judge_is_sent_needs_a_judge(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match="--" + option.replace("_", "-") + ": .*--judge-base-url"):
        prepare(configured(suites=["beam"], data=["beam=fixture"], **{option: value}))


@pytest.mark.parametrize("option", ["--judge-extra-body", "--judge-prompts"])
def test_a_runs_own_key_in_what_the_judge_is_sent_is_refused(
    option: str, kvv_cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KVV_JUDGE_API_KEY", "plain-canary-41d09b77aa")
    (tmp_path / "item.txt").write_text("{rubric} {answer} plain-canary-41d09b77aa", "utf-8")
    value = {"--judge-extra-body": '{"note": "plain-canary-41d09b77aa"}', "--judge-prompts": str(tmp_path / "item.txt")}
    nowhere = "http://127.0.0.1:9/v1"
    judge = ("--judge-base-url", nowhere, "--judge-model", "j", option, value[option])
    ran = kvv_cli("run", "beam", "-q", "--data", "beam=fixture", "--base-url", nowhere, "--model", "kimi-k3", *judge)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert f"{option}: holds a key of this run" in ran.err
    assert "41d09b77aa" not in ran.said


def test_the_given_words_are_sent_as_they_are_and_named_in_the_row(tmp_path: Path) -> None:
    source = f"unified_llm_judge_base_prompt = {ITEM!r}\nraise SystemExit\n"
    planned = judged(tmp_path, {"src/prompts.py": source, "order.txt": ORDER}, preset="kvv")
    case = planned.cases[0]
    own = JudgePrompts(**case.inputs["judge_prompts"])
    hostile = "<rubric_item> {question}"
    assert judge_prompts("summarization", "q", ["r"], hostile, own) == [f"Q q\nR r\nA {hostile}"]
    assert judge_prompts("event_ordering", "q", ["r", "s"], "a", own)[0] == 'q|r\ns|a: {"score": 1}'
    said = planned.suite.metrics([], planned.context)[0].comparability
    assert (said["judge_prompt_sha256"], said["judge_prompts_given"]) == (own.sha256, ["item", "order"])
    assert "not_comparable" not in said
    (unlike,) = published_otherwise("kimi-k3", "kvv", [planned]).values()
    assert "judge-prompts" not in unlike


def test_without_the_official_words_a_row_under_the_preset_is_not_kvvs(tmp_path: Path) -> None:
    planned = judged(tmp_path, {}, preset="kvv")
    said = planned.suite.metrics([], planned.context)[0].comparability
    assert "item, order" in said["not_comparable"]
    assert published_means("kimi-k3", "kvv", [planned]) == {}
    (unlike,) = published_otherwise("kimi-k3", "kvv", [planned]).values()
    assert "prompt 'item' in kvv's words" in unlike
    half = judged(tmp_path, {"item.txt": ITEM}, preset="kvv")
    assert "(order;" in half.suite.metrics([], half.context)[0].comparability["not_comparable"]
    own = judged(tmp_path, {})
    assert "not_comparable" not in own.suite.metrics([], own.context)[0].comparability


def test_the_preset_asks_for_the_bare_answer(tmp_path: Path) -> None:
    def asked(planned: Any) -> tuple[str, str]:
        inputs = planned.cases[0].inputs
        return inputs["body"]["messages"][-1]["content"], inputs["question"]

    sent, question = asked(judged(tmp_path, {}, preset="kvv"))
    assert sent.endswith(f"\nQuestion: {question}")
    assert "only the answer" in sent
    sent, question = asked(judged(tmp_path, {}))
    assert sent == question
    sent, question = asked(judged(tmp_path, {"question.txt": "Be brief. {question}"}, preset="kvv"))
    assert sent == f"Be brief. {question}"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.txt", "grade {answer}", "no place for the rubric"),
        ("p.toml", "item = 3", "wants a table of texts"),
        ("p.toml", "items = 'x'", "no prompt 'items'"),
        ("p.json", "[", "wants a table of texts"),
        ("p.py", "def", "is no Python"),
        ("p.py", "x = 1", "holds no prompt"),
        ("p.toml", "= 3", "Invalid"),
    ],
)
def test_prompts_that_cannot_be_used_are_a_usage_error(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=f"--judge-prompts: .*{message}"):
        read_judge_prompts(str(tmp_path / name))


def test_prompts_that_are_not_there_are_a_usage_error(tmp_path: Path) -> None:
    for place in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(ConfigError, match="--judge-prompts: "):
            read_judge_prompts(str(place))


def test_braces_of_a_prompt_stay_unless_all_are_doubled() -> None:
    texts = {"rubric": "r", "answer": "{a}"}
    assert fill('{rubric} {answer} {{"score": 1}}', texts) == 'r {a} {"score": 1}'
    assert fill('{rubric} {answer} {"score": {}}', texts) == 'r {a} {"score": {}}'
    assert fill("<answer>{answer}</answer> {rubric}", texts) == "<answer>{a}</answer> r"


def test_128k_is_kvvs_name_for_the_smallest_size() -> None:
    suite = BeamSuite()
    assert [suite.data_variant(name) for name in ("128K", "128k", "100K", "1m")] == ["100K", "100K", "100K", "1M"]
    with pytest.raises(ValueError, match="127K"):
        suite.data_variant("127K")
