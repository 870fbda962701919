"""Answers are judged again in batches that workers read themselves; one that hangs its judge costs others nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import kvv.execution.rescore
from kvv.core import Outcome, Verdict
from kvv.execution.rescore import rescore
from kvv.execution.workers import Workers, WorkerTimeout
from kvv.storage.store import Store


@pytest.fixture
def finished(kvv_cli: Any) -> Path:
    ran = kvv_cli("run", "aime2025", "--data", "aime2025=fixture", "--samples", "3")
    assert ran.code == 0, ran.said
    folder: Path = ran.folder
    return folder


def test_batches_find_the_one_verdict_that_was_wrong_and_one_by_one_finds_the_same(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvv.execution.rescore, "processors", lambda: 1)
    asked: list[tuple[str, int]] = []
    hangs = False

    async def run(self: Workers, function: str, *args: Any, timeout_s: float, imports: Any = ()) -> Any:
        name = function.rpartition(":")[2]
        asked.append((name, len(args[2]) if name == "replay_stored" else 1))
        if hangs and name == "replay_stored":
            raise WorkerTimeout("an answer of the batch hangs its judge")
        return await original(self, function, *args, timeout_s=timeout_s, imports=imports)

    original = Workers.run
    monkeypatch.setattr(Workers, "run", run)
    for hangs in (False, True):
        asked.clear()
        with Store.open(finished / "store.sqlite") as store:
            case_id, sample, right = next(iter(store.verdicts("aime2025")))
            assert right.outcome is Outcome.PASS
            store.put_verdict(
                Verdict(case=case_id, sample=sample, outcome=Outcome.FAIL, reason="other", scorer=right.scorer)
            )
            store.flush()
            judged, changes = asyncio.run(rescore(store))
            store.flush()
            assert store.verdict(case_id, sample) == right
        assert judged == 36
        assert [(one.case, one.sample, one.before.reason) for one in changes] == [(case_id, sample, "other")]
        assert changes[0].after == right
        assert asked == [("replay_stored", 36), *([("replay", 1)] * 36 if hangs else [])]
