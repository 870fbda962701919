"""A summary beside a store is believed where this user wrote it for this very store, and nowhere else."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvv.core import Verdict
from kvv.storage import totals
from kvv.storage.run_summary import RunSummary
from kvv.storage.run_summary_reader import side_of
from kvv.storage.snapshot import CountedOnce
from kvv.storage.store import Store
from kvv.storage.totals import TOTALS, kept_summary, summary_of


@dataclass
class Kept:
    folder: Path
    read: list[Path]

    def summary(self) -> RunSummary:
        with Store.open(self.folder / "store.sqlite", read_only=True) as store:
            return summary_of(store, self.folder)


@pytest.fixture
def kept(runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """A run's folder with its totals; ``read`` grows whenever the store is read for them."""
    monkeypatch.setattr(totals, "SMALL", 0)
    found = Kept(folder=shutil.copytree(runs.bad, tmp_path / "run"), read=[])

    def reading(store: Store) -> RunSummary:
        found.read.append(store.path)
        return side_of(store)

    monkeypatch.setattr(totals, "side_of", reading)
    found.summary()
    assert len(found.read) == 1
    return found


def test_the_second_reader_takes_the_same_summary_from_the_totals(kept: Kept) -> None:
    with Store.open(kept.folder / "store.sqlite", read_only=True) as store:
        assert kept.summary() == side_of(store)
    assert len(kept.read) == 1


def test_another_verdict_in_the_store_is_seen(kept: Kept) -> None:
    before = kept.summary()
    with Store.open(kept.folder / "store.sqlite") as store:
        case_id, sample, verdict = next(found for found in store.verdicts("ocrbench") if found[2].outcome == "fail")
        store.put_verdict(
            Verdict(case=case_id, sample=sample, outcome=verdict.outcome, reason="other", scorer=verdict.scorer)
        )
    after = kept.summary()
    assert len(kept.read) == 2
    samples = (summary.suites["ocrbench"].cases[case_id].samples[sample].reason for summary in (before, after))
    assert [*samples] == [verdict.reason, "other"]
    assert kept.summary() == after
    assert len(kept.read) == 2


def _edited(folder: Path) -> None:
    path = folder / TOTALS
    text = path.read_text("utf-8")
    path.write_text(text.replace('"outcome":"fail"', '"outcome":"pass"'), "utf-8")
    assert path.read_text("utf-8") != text


def _unsealed(folder: Path) -> None:
    _, _, text = (folder / TOTALS).read_text("utf-8").partition("\n")
    (folder / TOTALS).write_text(json.dumps({"mac": None}) + "\n" + text, "utf-8")


def _cut(folder: Path) -> None:
    text = (folder / TOTALS).read_text("utf-8")
    (folder / TOTALS).write_text(text[: len(text) // 2], "utf-8")


def _linked(folder: Path) -> None:
    (folder / TOTALS).rename(folder / "elsewhere")
    (folder / TOTALS).symlink_to(folder / "elsewhere")


def _touched(folder: Path) -> None:
    os.utime(folder / "store.sqlite")


@pytest.mark.parametrize("spoil", [_edited, _unsealed, _cut, _linked, _touched])
def test_totals_that_do_not_fit_are_made_anew(kept: Kept, spoil: Any) -> None:
    whole = kept.summary()
    spoil(kept.folder)
    assert kept.summary() == whole
    assert len(kept.read) == 2


def test_another_users_totals_are_not_believed(kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    assert kept_summary(kept.folder) is None


def test_a_small_store_gets_no_second_file(runs: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(runs.good, tmp_path / "run")
    with Store.open(folder / "store.sqlite", read_only=True) as store:
        summary_of(store, folder)
    assert not (folder / TOTALS).exists()


def test_pairs_are_counted_once_however_often_they_are_read() -> None:
    counted: list[Any] = []
    pairs: Any = CountedOnce([(1, "a"), (2, "b"), (3, "c")], lambda *pair: counted.append(pair))  # type: ignore[list-item]
    assert next(iter(pairs)) == (1, "a")
    assert counted == [(1, "a")]
    assert [*pairs, *pairs] == 2 * [(1, "a"), (2, "b"), (3, "c")]
    assert counted == [(1, "a"), (2, "b"), (3, "c")]
    pairs.finish()
    assert len(counted) == 3
    unread: Any = CountedOnce([(1, "a")], lambda *pair: counted.append(pair))  # type: ignore[list-item]
    unread.finish()
    assert len(counted) == 4
