"""The health breaker: an endpoint that stopped answering ends the run instead of failing every case."""

from __future__ import annotations

from dataclasses import dataclass, field

#: this many different cases in a row without an answer open the breaker
CASES_IN_A_ROW = 6


@dataclass(slots=True)
class Health:
    """Counts different cases whose last attempt met no answer; any answer resets it."""

    silent: dict[str, str] = field(default_factory=dict)

    def answered(self) -> None:
        self.silent.clear()

    def unanswered(self, case_key: str, reason: str) -> None:
        self.silent[case_key] = reason

    @property
    def open(self) -> bool:
        return len(self.silent) >= CASES_IN_A_ROW

    @property
    def reason(self) -> str:
        """The commonest reason among the silent cases."""
        reasons = list(self.silent.values())
        return max(sorted(set(reasons)), key=reasons.count) if reasons else ""
