"""`kvv import`: logs of inspect-ai, reviews of evalscope and samples of lm-evaluation-harness, scored by our rules.

``recorded/inspect-aime25.eval`` was written by inspect-ai 0.3.285 (a mock model; three problems of our fixture, two
epochs, the third problem always failing), with tracebacks and events taken out.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvv.cases.suite import Context, Settings, load_suite
from kvv.core.usage_error import ConfigError
from kvv.data import load
from kvv.profiles.profile import load_profile
from kvv.storage.importers import ImportFileError, ImportOptions, importer, inspect_log, recognise

REAL = Path(__file__).parent / "recorded" / "inspect-aime25.eval"


def our_cases(suite: str, variant: str = "") -> list[Any]:
    context = Context(
        model="m",
        profile=load_profile("openai"),
        settings=Settings(variant=variant),
        dataset=load(suite, fixture=True, variant=load_suite(suite).data_variant(variant)),
    )
    return list(load_suite(suite).cases(context))


def sample(number: str, asked: str, target: Any, answer: str, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer}
    return {
        "id": number,
        "epoch": 1,
        "input": [{"role": "user", "content": [{"type": "image", "image": "x"}, {"type": "text", "text": asked}]}],
        "target": target,
        "output": {"model": "m", "choices": [{"message": message, "stop_reason": "stop"}]},
        **more,
    }


def log(path: Path, task: str, samples: list[dict[str, Any]], **header: Any) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        spec = {"task": task, "model": "kimi/opensource/kimi-k3", "dataset": {"name": "d"}, "created": "2026-01-01"}
        archive.writestr("header.json", json.dumps({"status": "success", "eval": spec, **header}))
        for one in samples:
            archive.writestr(f"samples/{one['id']}_epoch_{one['epoch']}.json", json.dumps(one))
    return path


def imported(path: Path, tool: str = "inspect", **options: Any) -> Any:
    return importer(tool)(path, ImportOptions(**options))


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


# --- inspect-ai --------------------------------------------------------------------------------------


def test_a_real_log_becomes_a_run_told_by_its_content(kvv_cli: Any, tmp_path: Path) -> None:
    ran = kvv_cli("import", str(REAL), "--as-reference", str(tmp_path / "ref.jsonl"))
    row = ran.row("aime2025")
    assert (row["n_planned"], row["n_concluded"], row["n_inconclusive"], row["value"]) == (6, 4, 2, 0.5)
    assert row["n_truncated"] == 2  # inspect's max_tokens
    assert ran.report["endpoint"]["model"] == "kimi-k3"
    written = [json.loads(line) for line in (tmp_path / "ref.jsonl").read_text("utf-8").splitlines()]
    ids = {case.id for case in our_cases("aime2025")}
    assert {line["case"] for line in written[1:]} <= ids
    found = imported(REAL)
    first = found.records[0].observation
    assert first.answer.startswith("The answer is $\\boxed{200}$.")
    assert first.reasoning.startswith("Let me think")  # reasoning is no answer: its box counts for nothing
    assert first.tokens("completion_tokens") == 40
    again = kvv_cli("import", "inspect", str(REAL), "--reference", str(tmp_path / "ref.jsonl"))
    assert again.row("aime2025")["value"] == 0.5


def test_ocrbench_and_mmmu_pro_get_the_cases_of_our_own_runs(tmp_path: Path) -> None:
    rows = load("ocrbench", fixture=True).rows
    samples = [
        sample(
            str(number),
            row["question"],
            list(row["answer"]),
            row["answer"][0],
            metadata={"question_type": row["question_type"], "dataset": row["dataset"]},
        )
        for number, row in enumerate(rows)
    ]
    found = imported(log(tmp_path / "a.eval", "ocrbench", samples))
    assert [case.id for case in found.cases] == [case.id for case in our_cases("ocrbench")]
    assert found.model == "kimi-k3"
    for config, shown in (("standard10", True), ("vision", False)):
        samples = []
        for row in load("mmmu_pro", fixture=True, variant=config).rows:
            options = (
                load_suite("mmmu_pro")
                .cases(
                    Context(
                        model="m",
                        profile=load_profile("openai"),
                        settings=Settings(variant=config),
                        dataset=load("mmmu_pro", fixture=True, variant=config),
                    )
                )[len(samples)]
                .inputs["options"]
            )
            named = {"ABCDEFGHIJKLMNOPQRSTUVWXYZ"[n]: option for n, option in enumerate(options)}
            asked = f"{row.get('question')}\n{options}" if shown else "Solve the question in the image."
            samples.append(sample(row["id"], asked, row["answer"], "Answer: A", metadata={"index2ans": named}))
        found = imported(log(tmp_path / "b.eval", "mmmu_pro_v", samples))
        assert [case.id for case in found.cases] == [case.id for case in our_cases("mmmu_pro", config)]


def test_a_log_of_ours_is_read_with_its_cases(tmp_path: Path) -> None:
    spec = {"task": "aime2025", "model": "openai/k", "metadata": {"kvv_run": "r"}}
    found = imported(log(tmp_path / "a.eval", "", [sample("aime2025/own-01", "p", "200", "200")], eval=spec))
    assert [case.id for case in found.cases] == ["aime2025/own-01"]


def test_an_attachment_is_put_back(tmp_path: Path) -> None:
    one = sample("1", "p", "7", "attachment://0123456789abcdef", attachments={"0123456789abcdef": "\\boxed{7}"})
    assert imported(log(tmp_path / "a.eval", "aime25", [one])).records[0].observation.answer == "\\boxed{7}"


GOOD = sample("1", "p", "7", "\\boxed{7}")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.write_bytes(b"PK\x03\x04rubbish"), "is no .eval log"),
        (lambda p: zipfile.ZipFile(p, "w").writestr("other.json", "{}"), "no header.json|is no .eval log"),
        (lambda p: log(p, "gsm8k", [GOOD]), "task 'gsm8k' is none"),
        (lambda p: log(p, "aime2024", [GOOD]), "task 'aime2024' is none"),
        (lambda p: log(p, "ocrbench_v2", [GOOD]), "task 'ocrbench_v2' is none"),
        (lambda p: log(p, "aime25", []), "holds no samples"),
        (lambda p: log(p, "aime25", [{**GOOD, "epoch": 2}]), "follows a gap"),
        (lambda p: log(p, "aime25", [{**GOOD, "epoch": True}]), "its epoch is True"),
        (lambda p: log(p, "aime25", [{**GOOD, "target": None}]), "has no target"),
        (lambda p: log(p, "mmmu_pro", [GOOD]), "names no options"),
        (lambda p: log(p, "aime25", [GOOD, {**GOOD, "id": "1", "epoch": 2, "input": "other"}]), "follows a gap"),
    ],
)
def test_a_log_that_cannot_be_used_is_one_line(tmp_path: Path, make: Callable[[Path], Any], message: str) -> None:
    made = make(tmp_path / "a.eval")
    del made
    with pytest.raises(ImportFileError, match=message) as caught:
        imported(tmp_path / "a.eval")
    assert "\n" not in str(caught.value)


def test_what_unpacks_to_more_than_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = log(tmp_path / "a.eval", "aime25", [{**GOOD, "store": "0" * 100_000}])
    monkeypatch.setattr(inspect_log, "MEMBER_LIMIT", 20_000)
    with pytest.raises(ImportFileError, match="encrypted or has more"):
        imported(path)
    lying = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("samples/1_epoch_1.json").file_size
    path.write_bytes(lying.replace(size.to_bytes(4, "little"), (100).to_bytes(4, "little")))
    with pytest.raises(ImportFileError):
        imported(path)
    monkeypatch.setattr(inspect_log, "MEMBER_LIMIT", 2_000)  # Zstandard, of which the real log is made
    with pytest.raises(ImportFileError, match=r"has more|too large"):
        imported(REAL)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, REAL.stat().st_size - 1), st.binary(min_size=1, max_size=6))
def test_no_damage_raises_anything_but_a_line(tmp_path_factory: Any, place: int, noise: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.eval"
    data = REAL.read_bytes()
    path.write_bytes(data[:place] + noise + data[place + len(noise) :])
    with suppress(ImportFileError):
        imported(path)


# --- lm-evaluation-harness and evalscope -------------------------------------------------------------


def lm_line(number: int, problem: str, answer: str, *resps: str, **more: Any) -> dict[str, Any]:
    return {
        "doc_id": number,
        "doc": {"problem": problem, "answer": answer, "id": f"own-0{number}"},
        "target": answer,
        "arguments": {"gen_args_0": {"arg_0": f"Question: {problem}\nAnswer:", "arg_1": {}}},
        "resps": [list(resps)],
        "filtered_resps": [resps[0]],
        "filter": "none",
        "exact_match": 0,
        **more,
    }


def test_lm_evals_samples_are_scored_anew(kvv_cli: Any, tmp_path: Path) -> None:
    rows = [lm_line(1, "p", "7", "\\boxed{7}", "\\boxed{8}"), lm_line(2, "q", "9", "\\boxed{9}", "\\boxed{9}")]
    rows.append({**rows[0], "filter": "strict"})  # one line a filter
    path = lines(tmp_path / "samples_aime25_2026-01-01.jsonl", rows)
    row = kvv_cli("import", str(path), "--model", "kimi-k3").row("aime2025")
    assert (row["value"], row["n_planned"]) == (0.75, 4)
    found = imported(path, "lm-eval")
    assert [case.id for case in found.cases] == ["aime2025/own-01", "aime2025/own-02"]
    assert found.cases[0].inputs["body"]["messages"][0]["content"] == "Question: p\nAnswer:"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([lm_line(1, "p", "7", "a"), lm_line(1, "p", "7", "a")], "line 2: doc_id 1 stands in line 1"),
        ([lm_line(1, "p", "7", "a"), lm_line(1, "p", "7", "b", filter="x")], "line 2: doc_id 1 stands in line 1"),
        ([{**lm_line(1, "p", "7", "a"), "resps": [[[-1.5, True]]]}], "only generated answers"),
        ([{**lm_line(1, "p", "7", "a"), "doc": {"answer": "7"}}], "no 'problem'"),
        ([{"doc": {}, "resps": []}], "no doc_id"),
    ],
)
def test_samples_that_cannot_be_used_are_one_line(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ImportFileError, match=message):
        imported(lines(tmp_path / "samples_aime25_x.jsonl", rows), "lm-eval")


def review(index: int, asked: str, target: str, answer: str, **metadata: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    scored = {"score": {"value": {"acc": 0}, "prediction": answer}, "group_id": index, "sample_metadata": metadata}
    return {"index": index, "target": [target], "messages": messages, "sample_score": scored}


def test_evalscopes_reviews_are_scored_anew(tmp_path: Path) -> None:
    prompt = "Solve the problem. Put your answer inside \\boxed{{}}.\n\n{}\n\nRemember \\boxed{{}}."
    rows = [review(0, prompt.format("p\n\nq"), "7", "\\boxed{7}"), review(1, prompt.format("r"), "8", "x")]
    path = lines(tmp_path / "kimi-k3" / "aime25_default.jsonl", [*rows, {**rows[0], "index": 2}])
    assert recognise(path) == "evalscope"
    found = imported(path, "evalscope")
    assert (found.model, list(found.samples.values())) == ("kimi-k3", [2, 1])
    assert found.dataset.rows[0]["problem"] == "p\n\nq"
    rows = [
        review(
            n,
            row["question"],
            json.dumps(list(row["answer"])),
            "x",
            dataset=row["dataset"],
            question_type=row["question_type"],
        )
        for n, row in enumerate(load("ocrbench", fixture=True).rows)
    ]
    found = imported(lines(tmp_path / "kimi-k3" / "ocr_bench_Regular.jsonl", rows), "evalscope")
    assert [case.id for case in found.cases] == [case.id for case in our_cases("ocrbench")]
    with pytest.raises(ImportFileError, match="do not hold the options"):
        imported(lines(tmp_path / "mmmu_pro_Art.jsonl", rows), "evalscope")
    with pytest.raises(ImportFileError, match="line 1: has no question"):
        imported(lines(tmp_path / "aime25_x.jsonl", [{"index": 1, "sample_score": {}}]), "evalscope")


# --- which tool --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "tool"),
    [
        ({"data_index": 1, "request": {}, "response": {}}, "k2vv"),
        ({"id": "test_Art_1", "options": "['a']", "answer": "A", "response": "A"}, "mmmu-pro"),
        ({"chat_id": "1", "question_type": "abstention", "question_index": 0, "response": ""}, "beam"),
        (lm_line(1, "p", "7", "a"), "lm-eval"),
    ],
)
def test_a_file_tells_its_tool_by_its_content(tmp_path: Path, line: dict[str, Any], tool: str) -> None:
    assert recognise(lines(tmp_path / "results.jsonl", [line])) == tool


def test_a_file_of_no_known_form_is_a_usage_error(kvv_cli: Any, tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", [{"a": 1}])
    for arguments, message in (
        ((str(path),), "name the tool"),
        (("nothing-there",), "there is no 'nothing-there'"),
        (("inspect",), "FILE: is missing"),
        (("foo", str(path)), "no importer 'foo'"),
        (("inspect", str(REAL), "--requests", str(path)), "--requests"),
    ):
        ran = kvv_cli("import", *arguments)
        assert (ran.code, message in ran.said) == (2, True), ran.said
    with pytest.raises(ConfigError):
        imported(REAL, scores=path)
