"""A package outside ours (docs/extension) has what a suite, a profile and an importer of ours have."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "extension"
POLICY = '[[benchmark]]\nsuite = "acme_sums"\nmargin = 0.3\n'
Kvv = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as pip leaves it: the package, and its entry points in a dist-info beside it."""
    place = tmp_path_factory.mktemp("outside")
    shutil.copytree(EXAMPLE / "acme_sums", place / "acme_sums")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    info = place / "acme_sums-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-sums\nVersion: 1.0\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in es.items()) for group, es in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (place / "policy.toml").write_text(POLICY)
    shutil.copy(EXAMPLE / "acme_sums" / "acme-1.toml", place / "acme-2.toml")
    rows = (EXAMPLE / "acme_sums" / "sums.jsonl").read_text("utf-8").splitlines()
    (place / "mine.jsonl").write_text("\n".join(row.replace('"s', '"m') for row in rows[:30]) + "\n")
    return place


def environment(place: Path) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("KVV_")} | {
        "PYTHONPATH": str(place)
    }


@pytest.fixture(scope="module")
def kvv(place: Path) -> Kvv:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "kvv", *arguments]
        return subprocess.run(
            argv, cwd=place, env=environment(place), capture_output=True, text=True, timeout=120, check=False
        )

    return run


@contextmanager
def serving(place: Path, accuracy: float) -> Iterator[str]:
    argv = [sys.executable, "-m", "kvv", "serve", "--port", "0", "--accuracy", str(accuracy)]
    argv += ["--ttft-ms", "0", "--itl-ms", "0", "--model", "acme-1", "--data", "acme_sums=mine.jsonl"]
    with subprocess.Popen(argv, cwd=place, env=environment(place), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+\S*", said)
            assert found, said
            yield found[0]
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def runs(place: Path, kvv: Kvv) -> dict[str, subprocess.CompletedProcess[str]]:
    """A reference, then a right and a wrong vendor that are held to it."""
    ask = ["run", "acme_sums", "--model", "acme-1", "--data", "acme_sums=mine.jsonl", "--policy", "policy.toml", "-q"]
    ask += ["--max-cost", "1", "--price-in", "1", "--price-out", "1"]
    with serving(place, 1.0) as url:
        found = {"official": kvv(*ask, "--base-url", url, "--out", "official", "--as-reference", "official.jsonl")}
        held = [*ask, "--reference", "official.jsonl"]
        found["right"] = kvv(*held, "--base-url", url, "--out", "right", "--profile", "acme-2.toml")
    with serving(place, 0.0) as url:
        found["wrong"] = kvv(*held, "--base-url", url, "--out", "wrong")
    return found


def folder(place: Path, out: str) -> Path:
    return next(path.parent for path in sorted((place / out).glob("*/report.json")))


def test_the_example_is_a_benchmark_in_under_fifty_lines() -> None:
    lines = (EXAMPLE / "acme_sums" / "suite.py").read_text("utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) < 50
    assert "from kvv" not in "\n".join(line for line in lines if "kvv.api" not in line)


def test_it_writes_and_reads_references_and_is_gated(
    place: Path, runs: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    assert (place / "official.jsonl").is_file(), runs["official"].stderr
    for name, code, value, decision in (("right", 0, 1.0, "pass"), ("wrong", 1, 0.0, "fail")):
        assert runs[name].returncode == code, runs[name].stdout + runs[name].stderr
        report = json.loads((folder(place, name) / "report.json").read_text("utf-8"))
        row = next(row for row in report["suites"] if row["id"] == "acme_sums")
        assert (row["value"], row["n_concluded"], row["verdict"]) == (value, 30, decision)
        assert row["reference"]["value"] == 1.0


def test_a_profile_is_picked_by_the_models_name_or_read_from_a_file(
    place: Path, kvv: Kvv, runs: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    report = json.loads((folder(place, "official") / "report.json").read_text("utf-8"))
    assert report["profile"] == "acme-1"
    kept = folder(place, "right")
    assert json.loads((kept / "report.json").read_text("utf-8"))["profile"] == "acme-2"
    shown = kvv("score", str(kept))
    assert shown.returncode == 0, shown.stderr
    plan = ("plan", "acme_sums", "--model", "acme-1", "--profile", "acme-2.toml")
    assert kvv(*plan, "--effort", "thorough", "--think-mode", "dial").returncode == 0
    refused = kvv(*plan, "--effort", "max")
    assert (refused.returncode, "brief, thorough" in refused.stderr) == (2, True)
    refused = kvv(*plan, "--think-mode", "kimi")
    assert (refused.returncode, "none, dial" in refused.stderr) == (2, True)


def test_its_fixture_runs_without_an_endpoint_and_its_data_is_found(place: Path, kvv: Kvv) -> None:
    done = kvv("run", "acme_sums", "--policy", "policy.toml", "--out", "own", "-q")
    report = json.loads((folder(place, "own") / "report.json").read_text("utf-8"))
    row = next(row for row in report["suites"] if row["id"] == "acme_sums")
    assert (row["value"], row["n_concluded"]) == (1.0, 40), done.stderr
    where = kvv("data", "where", "acme_sums")
    assert str(place / "acme_sums" / "sums.jsonl") in where.stdout, where.stderr


def test_it_has_its_column_on_the_leaderboard(
    place: Path, kvv: Kvv, runs: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    done = kvv("leaderboard", "right", "wrong", "--all")
    assert done.returncode == 0, done.stderr
    assert "Acme sums" in done.stdout


def test_its_importer_makes_a_run(place: Path, kvv: Kvv) -> None:
    said = {"role": "assistant", "content": "8"}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "acme-1",
        "choices": [{"index": 0, "message": said, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    rows = [{"id": f"r{right}", "question": "1 + 7?", "answer": right, "response": answer} for right in ("8", "9")]
    (place / "recorded.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    done = kvv("import", "acme", "recorded.jsonl", "--out", "imported")
    code = 'import sys; from kvv.api import read_run; print(read_run(sys.argv[1])["suites"]["value"].tolist())'
    argv = [sys.executable, "-c", code, str(folder(place, "imported"))]
    read = subprocess.run(argv, cwd=place, env=environment(place), capture_output=True, text=True, check=False)
    assert read.stdout == "[0.5]\n", done.stderr + read.stderr
    unknown = kvv("import", "nobody", "recorded.jsonl")
    assert (unknown.returncode, "acme" in unknown.stderr) == (2, True)
