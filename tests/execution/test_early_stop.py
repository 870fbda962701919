"""``--early-stop`` over real sockets: looks, what they leave unasked, and that the stored run is decided alike by every
verb.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kvv.cases.suite import load_suite
from kvv.core import Role
from kvv.data import load
from kvv.execution.answer_key import answer_entries
from kvv.execution.preparation import prepare
from kvv.mockserver import MockConfig, MockServer
from kvv.planning.config import load_config
from kvv.storage.store import Store

PROBLEMS = 150
POLICY = """
name = "looked"
looks = 5
[[benchmark]]
suite = "aime2025"
key = "correct"
margin = 0.1
"""


@pytest.fixture
def ask(tmp_path: Path) -> list[str]:
    """Options of a run over generated problems: nine of ten are nearly always answered rightly by the official
    endpoint, the tenth never.
    """
    rows = [
        {"id": f"p{n}", "problem": f"What is {n} plus {n}? (number {n})", "answer": str(2 * n)}
        for n in range(1, PROBLEMS + 1)
    ]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    drawn = random.Random(5)
    lines: list[dict[str, Any]] = [{"kvv_reference": 1, "model": "kimi-k3", "run_id": "official"}]
    for n in range(1, PROBLEMS + 1):
        right = float(n % 10 != 0 and drawn.random() < 0.98)
        lines.append({"suite": "aime2025", "case": f"aime2025/p{n}", "samples": [{"correct": right, "strict": right}]})
    (tmp_path / "official.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    (tmp_path / "looked.toml").write_text(POLICY, "utf-8")
    options = [
        "--data",
        "aime2025=problems.jsonl",
        "--reference",
        "official.jsonl",
        "--policy",
        "looked.toml",
        "--model",
        "kimi-k3",
    ]
    return ["run", "aime2025", *options, "--samples", "1", "--early-stop"]


@contextmanager
def vendor(tmp_path: Path, accuracy: float, **more: Any) -> Iterator[MockServer]:
    entries = load_suite("aime2025").answer_key(load("aime2025", path=str(tmp_path / "problems.jsonl")))
    answers = tuple(
        type(a)(
            suite=a.suite,
            case=a.case,
            prompt=a.prompt,
            right=a.right,
            wrong=a.wrong,
            ease=0.0 if a.case.endswith("0") else 1.0,
        )
        for a in answer_entries(entries)
    )
    with MockServer(MockConfig(answers=answers, accuracy=accuracy, seed=11, **more)) as server:
        yield server


def looks(folder: Path) -> list[dict[str, Any]]:
    with Store.open(folder / "store.sqlite", read_only=True) as store:
        return [event.data for event in store.events() if event.kind == "look"]  # type: ignore[misc]


@pytest.mark.parametrize(("accuracy", "decision", "code"), [(0.98, "pass", 0), (0.55, "fail", 1)])
def test_a_vendor_is_decided_at_a_look_and_every_verb_says_the_same(
    kvv_cli: Any, ask: list[str], tmp_path: Path, accuracy: float, decision: str, code: int
) -> None:
    with vendor(tmp_path, accuracy) as server:
        ran = kvv_cli(*ask, "--base-url", server.base_url)
        requests = server.stats()["requests"]
    row, report = ran.row("aime2025"), ran.report
    assert (ran.code, report["verdict"], row["verdict"]) == (code, decision, decision), ran.said
    taken = looks(ran.folder)
    look = taken[-1]
    assert (look["decision"], look["planned"]) == (decision, PROBLEMS)
    assert [one["decision"] for one in taken[:-1]] == ["inconclusive"] * (len(taken) - 1)
    number, asked = look["number"], look["asked"]
    assert (number, asked) == (len(taken), PROBLEMS * len(taken) // 5)
    assert asked < PROBLEMS
    # the reachability probe beside what the look covers: nothing more was sent
    assert requests == 1 + asked
    assert (row["n_planned"], row["n_concluded"], row["n_inconclusive"], report["partial"]) == (asked, asked, 0, False)
    assert {key: row["look"][key] for key in ("number", "of", "stopped", "asked", "planned")} == {
        "number": number,
        "of": 5,
        "stopped": True,
        "asked": asked,
        "planned": PROBLEMS,
    }
    assert row["look"]["z"] == look["rows"][0]["z"]
    assert abs(row["look"]["z"]) > row["look"]["bound"] > 1.751
    said = f"stopped at look {number} of 5 for {decision}: {asked} of {PROBLEMS} asked"
    assert said in report["headline"]
    assert said in next(gate["reason"] for gate in report["gates"] if gate["id"].startswith("aime2025/"))
    assert f"aime2025 {said}" in ran.err
    before = (ran.folder / "report.json").read_text("utf-8")
    assert kvv_cli("report", str(ran.folder), "--format", "json").out == before
    jsonschema.validate(report, json.loads(files("kvv.reporting").joinpath("report.schema.json").read_text("utf-8")))
    assert kvv_cli("report", str(ran.folder), "--format", "html,md,text,csv", "--to", "views").code == 0
    for name in ("report.html", "report.md", "report.txt"):
        assert f"look {number} of 5, {PROBLEMS} planned" in (tmp_path / "views" / name).read_text("utf-8"), name
    assert "look_number" in (tmp_path / "views" / "report.csv").read_text("utf-8").splitlines()[0]
    scored = kvv_cli("score", str(ran.folder))
    assert (scored.code, scored.row("aime2025")) == (code, row)
    resumed = kvv_cli("resume", str(ran.folder))
    assert (resumed.code, resumed.row("aime2025")) == (code, row), (
        "nobody listens any more, and nothing is left to be asked"
    )


def test_a_run_that_never_crosses_is_judged_by_the_last_bound(kvv_cli: Any, ask: list[str], tmp_path: Path) -> None:
    """A vendor at the margin: no look decides, all is asked, and the interval is that of the fifth look (92 %), not of
    a fixed size (90 %).
    """
    with vendor(tmp_path, 0.87) as server:
        ran = kvv_cli(*ask, "--base-url", server.base_url)
    row = ran.row("aime2025")
    assert [look["decision"] for look in looks(ran.folder)] == ["inconclusive"] * 4
    assert row["n_planned"] == PROBLEMS
    assert (row["look"]["number"], row["look"]["stopped"]) == (5, False)
    assert row["look"]["bound"] == pytest.approx(1.751, abs=1e-3)
    assert row["look"]["confidence"] == pytest.approx(0.92, abs=1e-3)
    gate = next(gate for gate in ran.report["gates"] if gate["id"].startswith("aime2025/"))
    assert "92 % interval" in gate["reason"]
    assert "none of its 5 looks ended it early" in gate["reason"]


def test_a_run_cut_between_looks_goes_on_to_the_same_look(kvv_cli: Any, ask: list[str], tmp_path: Path) -> None:
    with vendor(tmp_path, 0.98) as server:
        whole = kvv_cli(*ask, "--base-url", server.base_url, out=Path("whole"))
    with vendor(tmp_path, 0.98) as server:
        cut = kvv_cli(*ask, "--base-url", server.base_url, "--max-requests", "40", "--concurrency", "4")
        assert cut.code == 5
        assert cut.report["partial"] is True
        assert cut.row("aime2025")["verdict"] == "inconclusive"
        assert len(looks(cut.folder)) == 1
        resumed = kvv_cli("resume", str(cut.folder), "--max-requests", "1000")
    assert (resumed.code, resumed.report["partial"]) == (whole.code, False)
    assert [look["number"] for look in looks(resumed.folder)] == [look["number"] for look in looks(whole.folder)]
    assert {key: resumed.row("aime2025")[key] for key in ("value", "look", "verdict", "n_planned")} == {
        key: whole.row("aime2025")[key] for key in ("value", "look", "verdict", "n_planned")
    }


def test_all_samples_of_a_problem_are_concluded_before_its_look(kvv_cli: Any, ask: list[str], tmp_path: Path) -> None:
    lines = (tmp_path / "official.jsonl").read_text("utf-8").splitlines()
    several = [json.loads(line) for line in lines]
    several[1:] = [{**line, "samples": line["samples"] * 3} for line in several[1:41]]
    (tmp_path / "official.jsonl").write_text("".join(json.dumps(line) + "\n" for line in several), "utf-8")
    problems = (tmp_path / "problems.jsonl").read_text("utf-8").splitlines()
    (tmp_path / "problems.jsonl").write_text("\n".join(problems[:40]), "utf-8")
    with vendor(tmp_path, 0.3) as server:
        ran = kvv_cli(*ask, "--samples", "3", "--base-url", server.base_url)
    assert ran.code == 1, ran.said
    with Store.open(ran.folder / "store.sqlite", read_only=True) as store:
        asked = [case for case, _, _ in store.verdicts()]
    assert len(asked) < 3 * 40
    assert all(asked.count(case) == 3 for case in asked)
    assert len(set(asked)) % 8 == 0


def test_unanswered_samples_are_bounds_at_a_look_and_keep_a_pass_away(
    kvv_cli: Any, ask: list[str], tmp_path: Path, serve: Any
) -> None:
    """Every sixth request ends in an error of the network's kind: 17 points of open samples let no look pass, however
    right the rest is.
    """
    with vendor(tmp_path, 0.98, faults=()) as server:
        import urllib.request

        def answer(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
            question = json.loads(body)["messages"][-1]["content"]
            if "(number" in question and int(question.split("(number ")[1].split(")")[0]) % 6 == 1:
                return {"status": 403, "body": b'{"error": {"message": "blocked", "type": "content_filter"}}'}
            request = urllib.request.Request(  # noqa: S310
                f"{server.base_url}/chat/completions", data=body, headers={"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as found:  # noqa: S310
                return {"body": found.read(), "content_type": found.headers["Content-Type"]}

        with serve(answer) as gateway:
            ran = kvv_cli(*ask, "--base-url", gateway.url, "--no-stream")
    row = ran.row("aime2025")
    assert row["n_planned"] == PROBLEMS, "no look could pass"
    assert row["n_inconclusive"] == PROBLEMS // 6
    assert row["verdict"] == "inconclusive"


def test_conversations_are_looked_at_whole_and_a_suite_without_looks_runs_on_in_full(
    kvv_cli: Any, tmp_path: Path
) -> None:
    suites = [load_suite(name) for name in ("beam", "toolcall")]
    answers = tuple(
        entry for suite in suites for entry in answer_entries(suite.answer_key(load(suite.dataset or "", fixture=True)))
    )
    planned = prepare(load_config({"suites": ["beam"]}, environ={})).plan.suites[0].cases
    lines: list[dict[str, Any]] = [{"kvv_reference": 1, "model": "kimi-k3", "run_id": "official"}]
    lines += [{"suite": "beam", "case": case.id, "samples": [{"kvv_score": 1.0}]} for case in planned]
    (tmp_path / "official.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with MockServer(MockConfig(answers=answers)) as server:
        judge = ["--judge-base-url", server.base_url, "--judge-model", "kimi-k3"]
        options = [
            "--data",
            "beam=fixture",
            "--data",
            "toolcall=fixture",
            "--reference",
            "official.jsonl",
            "--early-stop",
            "--model",
            "kimi-k3",
        ]
        ran = kvv_cli("run", "beam", "toolcall", *options, *judge, "--base-url", server.base_url)
    assert "beam may end at one of 5 looks; in full: toolcall (" in ran.err
    (look,) = looks(ran.folder)
    half = len(planned) // 2
    assert (look["suite"], look["number"], look["of"], look["asked"], look["planned"]) == (
        "beam",
        1,
        2,
        half,
        len(planned),
    )
    with Store.open(ran.folder / "store.sqlite", read_only=True) as store:
        sent = [one.exchange.identity.case for one in store.exchanges() if one.exchange.role is Role.TARGET]
    blocks = {case.id: case.inputs["block"] for case in planned}
    first = [blocks[case] for case in sent if case in blocks][:half]
    assert len(set(first)) == 1, "the look is after one of the two conversations"
    assert ran.row("beam")["n_concluded"] == len(planned), "one conversation says nothing of how conversations differ"
    assert ran.row("toolcall")["n_concluded"] == ran.row("toolcall")["n_planned"] > 0
