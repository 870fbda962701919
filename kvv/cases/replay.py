"""Feeding stored replies to a suite. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kvv.cases.suite import Suite
from kvv.core import Case, Done, Reply, Verdict


def replay(suite: Suite, case: Case, replies: Sequence[Reply]) -> Verdict | None:
    """Feed stored replies step by step until the suite is done; the rest of the replies, if any, is not needed."""
    for number in range(len(replies) + 1):
        step = suite.step(case, replies[:number])
        if isinstance(step, Done):
            return step.verdict
    return None
