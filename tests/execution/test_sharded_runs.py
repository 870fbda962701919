"""`kvv run --shard I/N` and `kvv merge`: the parts give what the whole gives, and nothing less can be joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ASK = ("run", "params", "ocrbench", "--case", "params/*/temperature*", "--case", "ocrbench/*", "-q")


@pytest.fixture
def shards(kvv_cli: Any) -> list[Path]:
    return [kvv_cli(*ASK, "--shard", f"{i}/2", out=Path(f"shard{i}")).folder for i in (1, 2)]


def test_merged_shards_give_the_whole_runs_rows(kvv_cli: Any, shards: list[Path]) -> None:
    one = kvv_cli(*ASK, out=Path("whole"))
    merged = kvv_cli("merge", str(shards[1]), str(shards[0]), "--out", "merged")
    assert merged.code == one.code == 0, merged.said
    assert merged.out.startswith("PASS, 2 of 2 suites")
    (folder,) = Path("merged").iterdir()
    assert {path.name for path in folder.iterdir()} == {path.name for path in one.folder.iterdir()}
    report = json.loads((folder / "report.json").read_text("utf-8"))
    row = next(row for row in report["suites"] if row["id"] == "ocrbench" and row["primary"])
    assert row == one.row("ocrbench")
    assert row["reference"]["kind"] == "server-count"
    ids = [sorted(check["id"] for check in found["checks"]) for found in (report, one.report)]
    assert ids[0] == ids[1]
    assert report["traffic"]["prompt_tokens"] > 0
    # the merged run is a run like any other; a shard alone passes nothing
    alone = kvv_cli("resume", str(shards[0]))
    assert (alone.code, alone.out.split(",")[0]) == (3, "INCONCLUSIVE")
    assert "shard 1 of 2 alone" in alone.out
    for arguments in (
        ("baseline", "accept", str(shards[0])),
        ("leaderboard", str(shards[0])),
        ("compare", str(shards[0]), str(folder)),
    ):
        refused = kvv_cli(*arguments)
        assert (refused.code, "is one shard of a run" in refused.err) == (2, True), refused
    assert kvv_cli("resume", str(folder)).code == 0
    assert kvv_cli("compare", str(folder), str(one.folder)).code == 0


def test_gaps_overlaps_and_strangers_are_refused_and_leave_nothing(kvv_cli: Any, shards: list[Path]) -> None:
    one = kvv_cli(*ASK, out=Path("whole")).folder
    other = kvv_cli("run", "ocrbench", "--limit", "4", "-q", "--shard", "2/2", out=Path("other")).folder
    for names, words in (
        ([shards[0]], "at least two"),
        ([shards[0], shards[0]], "shard 1/2 stands there twice"),
        ([shards[0], other], "shards of different plans"),
        ([shards[0], one], "is no shard"),
        ([shards[0], Path("nowhere")], "RUN"),
    ):
        said = kvv_cli("merge", *map(str, names), "--out", "merged")
        assert said.code == 2, names
        assert words in said.err
        assert len(said.err.splitlines()) == 1
    assert not Path("merged").exists()


def test_a_missing_shard_is_named() -> None:
    from kvv.cli.verbs.merge import check_shards
    from kvv.planning.config import ConfigError

    metas = [{"shard": {"index": i, "of": 4, "plan": "p", "cases": 9}} for i in (1, 3)]
    with pytest.raises(ConfigError, match=r"a gap, shard 2/4, 4/4 is missing"):
        check_shards(metas, ["a", "b"])
    with pytest.raises(ConfigError, match="differ in seed"):
        check_shards([{**metas[0], "seed": 1}, {**metas[1], "seed": 2}], ["a", "b"])


def test_a_plan_shows_the_shards_own_part(kvv_cli: Any) -> None:
    parts = [json.loads(kvv_cli("plan", "ocrbench", "aime2025", "--shard", f"{i}/3", "--json").out) for i in (1, 2, 3)]
    whole = json.loads(kvv_cli("plan", "ocrbench", "aime2025", "--json").out)
    for key in ("requests", "prompt_tokens", "completion_tokens"):
        assert sum(part[key] for part in parts) == pytest.approx(whole[key], rel=0.01)
    assert all(part["requests"] < whole["requests"] for part in parts)


@pytest.mark.parametrize("text", ["0/2", "3/2", "x"])
def test_a_wrong_shard_is_a_usage_error(kvv_cli: Any, text: str) -> None:
    said = kvv_cli("run", "ocrbench", "--shard", text)
    assert said.code == 2
    assert "--shard" in said.err
    assert len(said.err.splitlines()) == 1
