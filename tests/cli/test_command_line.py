"""The command line as other programs call it: the main job, its files, its exit codes, its refusals."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kvv.mockserver import MockConfig, MockServer
from kvv.storage.store import Store

FILES = {"run.toml", "store.sqlite", "report.json", "junit.xml", "report.md", "report.html", "leaderboard.json"}


def test_the_main_job_passes_on_the_shipped_fixtures_and_leaves_a_whole_folder(kvv_cli: Any) -> None:
    ran = kvv_cli("run")
    assert ran.code == 0, ran.said
    assert ran.out.startswith("PASS, ")
    assert str(ran.folder) in ran.out
    assert {path.name for path in ran.folder.iterdir()} - {
        "swebench"
    } == FILES  # its predictions, where there is a sandbox
    assert len(ran.folder.name) < 100
    assert not set(ran.folder.name) & set(":/\\ ")
    report = ran.report
    schema = json.loads((Path(sys.modules["kvv.reporting"].__path__[0]) / "report.schema.json").read_text("utf-8"))
    jsonschema.validate(report, schema)
    assert (report["schema_version"], report["verdict"], report["exit_code"]) == (1, "pass", 0)
    for suite in ("aime2025", "toolcall"):
        row = ran.row(suite)
        assert row["verdict"] == "pass"
        assert row["reference"]["kind"] == "server-count"
        assert row["n_concluded"] == row["n_planned"] > 0
    planned = json.loads(kvv_cli("plan", "--json").out)
    assert 0.9 < (planned["requests"] + planned["judge_calls"]) / report["traffic"]["requests"] < 1.1
    again = kvv_cli("report", str(ran.folder), "--format", "json")
    assert again.out == (ran.folder / "report.json").read_text("utf-8")
    rescored = kvv_cli("score", str(ran.folder))
    assert rescored.code == 0
    assert " 0 verdicts changed" in rescored.err
    assert {**ran.report, "events": []} == {**report, "events": []}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frob"], "VERB"),
        (["run", "nosuite"], "no suite 'nosuite'"),
        (["run", "--limit", "x"], "--limit"),
        (["run", "--limit", "0"], "--limit"),
        (["run", "--base-url", "example.com", "--model", "m"], "--base-url"),
        (["run", "--base-url", "http://127.0.0.1:1/v1"], "--model"),
        (["run", "--profile", "nobody"], "--profile"),
        (["run", "--policy", "nowhere.toml"], "--policy"),
        (["run", "--case", "nothing/*"], "--case"),
        (["run", "--data", "aime2025"], "--data"),
        (["run", "--data", "nosuite=x"], "--data"),
        (["run", "--reference", "nowhere.jsonl"], "--reference"),
        (["run", "--header-env", "X-Key=NOT_SET"], "NOT_SET"),
        (["run", "--extra-body", "{"], "--extra-body"),
        (["check", "aime2025"], "is a benchmark"),
        (
            ["run", "--variant", "aime2025=x"],
            "--variant: wants V or SUITE=V[,SUITE=V], SUITE one of mmmu_pro, swebench, beam",
        ),
        (["run", "--variant", "nosuite=x"], "SUITE one of mmmu_pro, swebench, beam"),
        (["run", "--variant", "beam="], "--variant"),
        (["run", "--variant", "beam=nope"], "beam has no variant 'nope'"),
        (["run", "--variant", "beam=1M,nope"], "--variant"),
        (["run", "mmmu_pro", "--variant", "mmmu_pro=nope"], "--variant"),
        (["run", "aime2025", "--variant", "official"], "suites with variants: mmmu_pro, swebench, beam"),
        (["run", "--model", ""], "--model: is empty"),
        (["run", "--base-url", ""], "--base-url: is empty"),
        (["run", "--effort", ","], "--effort"),
        (["run", "--max-tokens", "aime2025="], "--max-tokens"),
        (["run", "--case", ""], "--case: is empty"),
        (["run", ""], "SUITE: is empty"),
        (["run", "--header-env", "Host=HOME"], "--header-env"),
        (["run", "--extra-body", '{"a": NaN}'], "--extra-body"),
        (["resume", ""], "RUN: is empty"),
        (["report", "a\0b"], "RUN: holds a NUL"),
        (["report", "nowhere", "--to", "a\0b"], "--to: holds a NUL"),
        (["show", "a", "--export", ""], "--export: is empty"),
        (["show", "\udcff"], "CASE: is no valid UTF-8 text"),
        (["data", "pull", "aime2025", "--into", "a\0b"], "--into"),
        (["import", "k2vv", "a\0b"], "FILE: holds a NUL"),
        (["resume", "nowhere"], "RUN"),
        (["report", "nowhere"], "RUN"),
        (["report", "nowhere", "--format", "pdf"], "--format"),
        (["show", "a#b"], "CASE"),
        (["import", "k2vv", "nowhere.jsonl", "--requests", "nowhere2.jsonl"], "nowhere"),
        (["serve", "--fault", "Z99"], "--fault"),
        (["serve", "--accuracy", "2"], "--accuracy"),
        (["data", "pull"], "SUITE"),
        (["list", "cases", "--profile", "nobody"], "--profile"),
    ],
)
def test_bad_input_is_one_line_that_names_the_option_and_exit_code_2(
    arguments: list[str], words: str, kvv_cli: Any
) -> None:
    ran = kvv_cli(*arguments)
    assert ran.code == 2
    assert words in ran.err
    assert len([line for line in ran.err.splitlines() if line.startswith("kvv")]) == 1
    assert "Traceback" not in ran.said
    assert not list(Path("out").glob("*")) if Path("out").exists() else True


@pytest.mark.parametrize("what", ["suites", "cases", "rules", "faults", "profiles", "policies"])
def test_everything_can_be_listed_for_people_and_for_programs(what: str, kvv_cli: Any) -> None:
    people, programs = kvv_cli("list", what), kvv_cli("list", what, "--json")
    assert (people.code, programs.code) == (0, 0)
    rows = json.loads(programs.out)
    assert len(rows) == len(people.out.splitlines()) > 0
    assert all(row["id"] for row in rows)


def test_the_reported_hits_equal_the_servers_own_count(kvv_cli: Any, shared: Path) -> None:
    """30 problems x 4 samples at accuracy 0.8 (issue 2, real input)."""
    from kvv.cases.suite import load_suite
    from kvv.data import load
    from kvv.execution.answer_key import answer_entries

    data = shared / "data/aime25/test.jsonl"
    key = answer_entries(load_suite("aime2025").answer_key(load("aime2025", path=data)))
    with MockServer(MockConfig(answers=key, accuracy=0.8, seed=7)) as server:
        ran = kvv_cli(
            "run",
            "aime2025",
            "--data",
            f"aime2025={data}",
            "--samples",
            "4",
            "--base-url",
            server.base_url,
            "--model",
            "kimi-k3",
        )
        counted = server.stats()["answers"]["aime2025"]
    row = ran.row("aime2025")
    assert (counted["asked"], row["n_planned"], row["n_concluded"]) == (120, 120, 120)
    assert round(row["value"] * 120) == counted["right"]
    assert 0 < counted["right"] < 120


def test_recorded_results_give_the_golden_confusion_and_name_every_failure(kvv_cli: Any, shared: Path) -> None:
    for who in ("official", "vendor"):
        Path(f"{who}.jsonl").write_bytes(
            gzip.decompress((shared / f"data/tool_calls/results_{who}_256.jsonl.gz").read_bytes())
        )
    requests = str(shared / "data/tool_calls/requests_256.jsonl")
    first = kvv_cli(
        "import", "k2vv", "official.jsonl", "--requests", requests, "--as-reference", "ref.jsonl", out=Path("a")
    )
    second = kvv_cli(
        "import", "k2vv", "vendor.jsonl", "--requests", requests, "--reference", "ref.jsonl", out=Path("b")
    )
    assert "Traceback" not in first.said + second.said
    breakdown = second.row("toolcall", "trigger_f1")["breakdown"]
    assert [breakdown[name] for name in ("tp", "fp", "fn", "tn")] == [207, 11, 19, 19]
    assert round(second.row("toolcall", "trigger_f1")["value"], 4) == 0.9324
    for ran, valid, n, classes in (
        (first, 222, 226, {"arguments-not-json": 2, "schema-mismatch": 2}),
        (second, 217, 218, {"schema-mismatch": 1}),
    ):
        row = ran.row("toolcall", "schema_accuracy")
        assert (round(row["value"] * n), row["n_concluded"]) == (valid, n)
        assert {name: count for name, count in row["breakdown"]["failures"].items() if count} == classes


def test_a_run_becomes_a_reference_that_the_same_endpoint_passes_and_a_worse_one_fails(
    kvv_cli: Any, tmp_path: Path
) -> None:
    from kvv.execution.answer_key import answer_entries, keyed_suites

    key = answer_entries(keyed_suites({}))
    arguments = ("run", "aime2025", "--data", "aime2025=fixture", "--samples", "16", "--model", "kimi-k3")
    decided = {}
    for name, accuracy, more in (
        ("good", 0.9, ("--as-reference", "good.jsonl")),
        ("same", 0.9, ("--reference", "good.jsonl")),
        ("worse", 0.3, ("--reference", "good.jsonl")),
    ):
        with MockServer(MockConfig(answers=key, accuracy=accuracy, seed=len(name))) as server:
            decided[name] = kvv_cli(*arguments, "--base-url", server.base_url, *more, out=tmp_path / name)
    assert decided["good"].row("aime2025")["verdict"] in (None, "skip")
    assert decided["same"].row("aime2025")["verdict"] in ("pass", "inconclusive")
    assert decided["worse"].row("aime2025")["verdict"] == "fail"
    assert decided["worse"].code == 1
    assert decided["worse"].row("aime2025")["reference"]["kind"] == "per-case"


def test_what_one_case_was_asked_and_answered_can_be_shown_and_exported(kvv_cli: Any) -> None:
    with MockServer(MockConfig(faults=("A05",))) as server:
        ran = kvv_cli(
            "run", "params", "--case", "params/rejected/*", "--base-url", server.base_url, "--model", "kimi-k3"
        )
    assert ran.code == 1
    failed = next(check["id"] for check in ran.report["checks"] if check["verdict"] == "fail")
    shown = kvv_cli("show", failed, "--run", str(ran.folder), "--export", "exported")
    for words in ("FAIL", "requirement:", "expected: refused", "curl", "invalid-request-accepted"):
        assert words in shown.out
    assert "Authorization" not in shown.out  # no key was set, so none was sent
    assert {path.name for path in Path("exported").iterdir()} == {"body.json", "response.txt", "curl.sh", "issue.md"}
    assert json.loads(Path("exported/body.json").read_text())["model"] == "kimi-k3"
    with Store.open(ran.folder / "store.sqlite", read_only=True) as store:
        assert any(stored.exchange.frames_kept and stored.exchange.frames for stored in store.exchanges(failed, 0))


def test_a_fixture_run_that_was_cut_resumes_without_a_count_to_be_equal_to(kvv_cli: Any) -> None:
    cut = kvv_cli("run", "aime2025", "--samples", "2", "--max-requests", "10")
    assert cut.code == 5
    resumed = kvv_cli("resume", str(cut.folder), "--max-requests", "500")
    row = resumed.row("aime2025")
    assert (row["n_concluded"], row["value"]) == (24, 1.0)
    assert row["verdict"] != "fail"
    assert resumed.code == 3


def test_inside_github_actions_a_run_annotates_and_writes_the_step_summary(
    kvv_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    with MockServer(MockConfig(faults=("A01",))) as server:
        ran = kvv_cli("check", "params", "--base-url", server.base_url, "--model", "kimi-k3", "-q")
    assert ran.code == 1
    assert "::error title=kvv%3A sampling parameters have no effect" in ran.out
    assert summary.read_text("utf-8") == kvv_cli("report", str(ran.folder), "--format", "github").out
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert "::" not in kvv_cli("run", "params", "--case", "params/omitted/*", "-q").out


def test_score_judges_the_wire_rules_again_and_puts_back_what_was_lost(kvv_cli: Any) -> None:
    with MockServer(MockConfig(faults=("C12",))) as server:
        ran = kvv_cli("check", "streaming", "--base-url", server.base_url, "--model", "kimi-k3", "-q")
    assert ran.code == 1
    before = ran.report["findings"]
    with Store.open(ran.folder / "store.sqlite") as store:
        hit = [stored.exchange.id for stored in store.exchanges() if stored.findings]
        for number in hit:
            store.put_findings(number, [])
    assert hit
    again = kvv_cli("score", str(ran.folder), "-q")
    assert f"findings of {len(hit)} changed" in again.err
    assert ran.report["findings"] == before
    assert "findings of 0 changed" in kvv_cli("score", str(ran.folder), "-q").err


def test_a_report_shows_the_policys_hash_of_the_runs_own_day(kvv_cli: Any) -> None:
    ran = kvv_cli("run", "params", "--case", "params/omitted/*", "-q")
    with Store.open(ran.folder / "store.sqlite") as store:
        store.set_meta("policy_sha256", "ab" * 32)
    assert json.loads(kvv_cli("report", str(ran.folder), "--format", "json").out)["policy"]["sha256"] == "ab" * 32
