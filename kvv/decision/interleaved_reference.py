"""What a run remembers of the official endpoint that was asked beside it (``--reference-base-url``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel


class Part(BaseModel):
    """One suite of the reference lane, in samples."""

    planned: int
    concluded: int
    mixed: str = ""


class InterleavedReference(BaseModel):
    """What a run remembers of the lane beside it; empty for a run without one. ``stop`` is why it ended early,
    ``objected`` by passive rule to how many of its ``answers``.
    """

    run_id: str = ""
    base_url: str = ""
    stop: str = ""
    suites: dict[str, Part] = {}
    answers: int = 0
    objected: dict[str, int] = {}

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Self:
        return cls.model_validate(meta.get("beside") or {})

    def unfinished(self) -> dict[str, str]:
        """Suites of which the stopped reference lacks samples: what it lacks may be what it would have got wrong."""
        return {
            suite: f"the reference endpoint concluded {part.concluded} of {part.planned} samples ({self.stop})"
            for suite, part in self.suites.items()
            if self.stop and part.concluded < part.planned
        }

    def mixed(self) -> dict[str, str]:
        return {suite: f"at the reference endpoint {part.mixed}" for suite, part in self.suites.items() if part.mixed}
