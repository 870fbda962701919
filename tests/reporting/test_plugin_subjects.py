"""What the pytest plugin makes of a run's cases and gates."""

from __future__ import annotations

from typing import Any

from kvv.cli.pytest_plugin import subjects
from kvv.core import Outcome


def test_outcomes_keep_their_meaning(views: Any) -> None:
    """Failed is the vendor's, error nobody's verdict, skipped not claimed, xfailed waived or shown only."""
    found = {subject.name: subject for subject in subjects(views.make())}
    kinds = {name: subject.kind for name, subject in found.items()}
    assert kinds["params/ok-0"] == "passed"
    assert kinds["params/too-hot"] == "failed"
    assert kinds["params/top-p"] == "failed" or kinds["params/top-p"] == "xfailed"
    assert kinds["params/pretty"] == "xfailed"
    assert kinds["params/ours"] == "error"
    assert kinds["params/off"] == "skipped"
    assert kinds["streaming/done"] == "error"
    assert kinds["verdict"] == "failed"
    assert not any(name.startswith("ocrbench/") for name in kinds)
    assert found["verdict"].message.startswith(Outcome.FAIL.value.upper())


def test_hostile_text_is_made_harmless(views: Any) -> None:
    for subject in subjects(views.make("\x1b[31m\u202e" + "x" * 20_000)):
        for text in (subject.name, subject.message, subject.text):
            assert "\x1b" not in text
            assert "\u202e" not in text
            assert len(text) < 6_000
