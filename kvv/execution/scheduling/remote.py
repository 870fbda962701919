"""What runs in a worker process: one suite's step or replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kvv.cases.replay import replay as replayed
from kvv.cases.suite import load_suite
from kvv.core import Case, Reply, Step, Verdict

if TYPE_CHECKING:
    from kvv.storage.store import Store


def step(suite_id: str, case: Case, history: tuple[Reply, ...]) -> Step:
    return load_suite(suite_id).step(case, history)


def replay(suite_id: str, case: Case, replies: tuple[Reply, ...]) -> Verdict | None:
    return replayed(load_suite(suite_id), case, replies)


def replay_stored(path: str, suite_id: str, samples: Sequence[tuple[str, int]]) -> list[Verdict | None]:
    """``replay`` of several samples, read here from the store: their answers cross no pipe."""
    suite, store = load_suite(suite_id), _store(path)
    return [
        replayed(suite, replace(_case(path, case_id), sample=sample), store.replies(case_id, sample))
        for case_id, sample in samples
    ]


@lru_cache(maxsize=1)
def _store(path: str) -> Store:
    from kvv.storage.store import Store  # a judge of one answer needs none

    return Store.open(Path(path), read_only=True)


@lru_cache(maxsize=64)
def _case(path: str, case_id: str) -> Case:
    return _store(path).case(case_id)


def alive() -> bool:
    """For `kvv doctor`: a worker process starts and answers."""
    return True
