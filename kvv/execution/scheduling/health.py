"""The health breaker: an endpoint that stopped answering ends the run instead of failing every case."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvv.protocol.classify import Assessment, Classification

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


def sentence(found: Assessment, *, started: bool, after: str = "") -> str:
    """One sentence that says what is wrong with an endpoint that gave no answer."""
    detail = f": {found.detail}" if found.detail and not found.detail.startswith("HTTP ") else ""
    when = f"stopped answering after {after}" if after else "does not answer"
    match found.standing:
        case Classification.UNAVAILABLE if found.reason == "connect":
            return f"the endpoint {when}: nothing accepts connections there{detail}"
        case Classification.UNAVAILABLE if found.reason in ("first-byte-timeout", "total-timeout"):
            return f"the endpoint {when}: it accepts requests but sends nothing back in the time allowed"
        case Classification.UNAVAILABLE | Classification.SERVER_ERROR if found.reason.startswith("http-"):
            verb = "now answers" if started else "answers"
            return f"the endpoint {verb} HTTP {found.reason[5:]} even to the simplest valid request{detail}"
        case Classification.UNAVAILABLE | Classification.SERVER_ERROR:
            return f"the endpoint {when} ({found.reason}){detail}"
        case Classification.CONFIGURATION:
            return f"the endpoint refuses to serve this account or route ({found.reason}){detail}"
        case Classification.REFUSED:
            return f"the endpoint refuses the simplest valid request{detail}"
        case _:
            return f"this is no chat-completions endpoint: it answers the simplest request with {found.reason}{detail}"


def repeated_by_the_case(found: Assessment) -> bool:
    """What a contract case asks again by itself, between controls."""
    return found.standing is Classification.SERVER_ERROR or found.reason in (
        "first-byte-timeout",
        "idle-timeout",
        "cut",
        "reset",
    )
