"""What runs in a worker process: one suite's step or replay, given everything it needs."""

from __future__ import annotations

from kvv.cases.replay import replay as replayed
from kvv.cases.suite import load_suite
from kvv.core import Case, Reply, Step, Verdict


def step(suite_id: str, case: Case, history: tuple[Reply, ...]) -> Step:
    return load_suite(suite_id).step(case, history)


def replay(suite_id: str, case: Case, replies: tuple[Reply, ...]) -> Verdict | None:
    return replayed(load_suite(suite_id), case, replies)


def alive() -> bool:
    """For `kvv doctor`: a worker process starts and answers."""
    return True
