"""The outcome table: what an exchange amounts to before anyone judges its content.

Three causes never mix: the network or the account failed (INCONCLUSIVE), the vendor is wrong (FAIL), our
code is wrong (ERROR). Only the first is decided here; an answered or refused request goes on to its judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from kvv.core import (
    Answered,
    Case,
    ErrorBody,
    Evidence,
    Exchange,
    FaultKind,
    Finding,
    Level,
    Observation,
    Outcome,
    Request,
    Shape,
    Verdict,
)

#: a server that asks for more patience than this is not asked again in this run's retries
RETRY_AFTER_CAP_S = 120.0

RETRIED_STATUS = frozenset({408, 409, 425, 429, 502, 503, 504, *range(520, 531)})

CONFIGURATION_REASON: Mapping[int, str] = {
    401: "auth",
    402: "no-credit",
    403: "auth",
    404: "route",
    405: "route",
    410: "route",
    413: "body-limit",
    451: "policy",
}

#: 429 with one of these types or codes means an empty account, not a busy server
QUOTA_TYPES = frozenset({"exceeded_current_quota_error", "insufficient_quota", "billing_hard_limit_reached"})

NOT_RETRIED_FAULTS = frozenset({FaultKind.TOO_LARGE, FaultKind.BAD_ENCODING, FaultKind.CANCELLED})


#: remarks of an importer on a sample without a recorded answer; they are the verdict's reason
MISSING_RESULT, RECORDED_FAILURE = "missing-result", "recorded-failure"


class Classification(StrEnum):
    ANSWERED = "answered"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    SERVER_ERROR = "server-error"
    CONFIGURATION = "configuration"
    NOT_A_COMPLETION = "not-a-completion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """``reason`` is a stable code; ``retry`` whether the scheduler may try again; ``retry_after_s`` what the server
    asked for, uncapped.
    """

    standing: Classification
    reason: str = ""
    retry: bool = False
    retry_after_s: float | None = None
    detail: str = ""

    @property
    def pace(self) -> bool:
        """429, and 503 with Retry-After: the endpoint's speed, no failed attempt."""
        return self.reason == "http-429" or (self.reason == "http-503" and self.retry_after_s is not None)

    @property
    def spoken(self) -> bool:
        """A completion or a refusal: whoever answered had read the request."""
        return self.standing in (Classification.ANSWERED, Classification.REFUSED)


def assess(exchange: Exchange, observation: Observation) -> Assessment:
    """Classify one attempt. The status decides where there is one; a transport fault decides otherwise."""
    status = exchange.status
    if status is not None and status >= 300:
        return _by_status(status, exchange, observation.error, observation.shape)
    if exchange.fault is not None:
        fault = exchange.fault
        return Assessment(
            standing=Classification.UNAVAILABLE,
            reason=fault.kind.value,
            retry=fault.kind not in NOT_RETRIED_FAULTS,
            detail=fault.detail,
        )
    if observation.error is not None:
        return _by_error_code(observation.error, exchange)
    if observation.shape is Shape.COMPLETION:
        return Assessment(standing=Classification.ANSWERED)
    return Assessment(
        standing=Classification.NOT_A_COMPLETION, reason=f"200-{observation.shape.value}", detail=exchange.content_type
    )


def _by_status(status: int, exchange: Exchange, error: ErrorBody | None, shape: Shape) -> Assessment:
    wait = retry_after_seconds(exchange)
    detail = error.message[:300] if error else f"HTTP {status}"
    if status == 429 and error is not None and (error.type in QUOTA_TYPES or error.code in QUOTA_TYPES):
        return Assessment(standing=Classification.CONFIGURATION, reason="no-credit", detail=detail)
    if status in RETRIED_STATUS:
        return Assessment(
            standing=Classification.UNAVAILABLE, reason=f"http-{status}", retry=True, retry_after_s=wait, detail=detail
        )
    if status >= 500:
        return Assessment(
            standing=Classification.SERVER_ERROR, reason=f"http-{status}", retry=True, retry_after_s=wait, detail=detail
        )
    if status in (400, 422):
        return _refusal(exchange, error, shape, detail)
    if status == 402:
        return Assessment(
            standing=Classification.CONFIGURATION,
            reason="no-credit",
            retry=wait is not None,
            retry_after_s=wait,
            detail=detail,
        )
    reason = "route" if status < 400 else CONFIGURATION_REASON.get(status, f"http-{status}")
    return Assessment(standing=Classification.CONFIGURATION, reason=reason, detail=detail)


def _refusal(exchange: Exchange, error: ErrorBody | None, shape: Shape, detail: str) -> Assessment:
    """A refusal is 400 or 422 with a JSON body, whole; anything else with that status proves nothing.

    Some gateways give every trouble this status: what the error object itself calls the account's, the route's or the
    load's is no refusal.
    """
    trouble = _by_words(error, "error-in-400", detail) if error is not None else None
    if trouble is not None:
        return trouble
    if exchange.fault is not None:
        return Assessment(
            standing=Classification.UNAVAILABLE,
            reason=exchange.fault.kind.value,
            retry=True,
            detail=exchange.fault.detail,
        )
    if shape in (Shape.ERROR, Shape.OTHER_JSON, Shape.COMPLETION):
        return Assessment(standing=Classification.REFUSED, reason="refused", detail=detail)
    return Assessment(standing=Classification.NOT_A_COMPLETION, reason="refusal-not-json", detail=detail)


def _by_error_code(error: ErrorBody, exchange: Exchange) -> Assessment:
    """An error object inside a 200 counts as what it says it is."""
    detail = error.message[:300]
    words = _words(error)
    number = (
        error.code
        if isinstance(error.code, int)
        else int(error.code)
        if isinstance(error.code, str) and error.code.isdecimal()
        else None
    )
    if number is not None and 300 <= number < 600:
        return _by_status(number, exchange, error, Shape.ERROR)
    trouble = _by_words(error, "error-in-200", detail)
    if trouble is not None:
        return trouble
    if "invalid_request" in words or "badrequest" in words:
        return Assessment(standing=Classification.REFUSED, reason="refused-in-200", detail=detail)
    return Assessment(standing=Classification.SERVER_ERROR, reason="error-in-200", retry=True, detail=detail)


def _words(error: ErrorBody) -> str:
    return f"{error.type or ''} {error.code if error.code is not None else ''}".lower()


def _by_words(error: ErrorBody, busy: str, detail: str) -> Assessment | None:
    """What an error's own type and code call the account's, the route's or the load's trouble; None where they call it
    none of these.
    """
    words = _words(error)
    if any(word in words for word in QUOTA_TYPES):
        return Assessment(standing=Classification.CONFIGURATION, reason="no-credit", detail=detail)
    if "auth" in words or "permission" in words or "api_key" in words:
        return Assessment(standing=Classification.CONFIGURATION, reason="auth", detail=detail)
    if "model_not_found" in words:
        return Assessment(standing=Classification.CONFIGURATION, reason="route", detail=detail)
    if "content_filter" in words:
        return Assessment(standing=Classification.CONFIGURATION, reason="policy", detail=detail)
    if any(word in words for word in ("rate_limit", "overload", "unavailable", "timeout")):
        return Assessment(standing=Classification.UNAVAILABLE, reason=busy, retry=True, detail=detail)
    return None


LIVENESS = "liveness"
#: the purpose of the plain request that is sent beside a refused one
BESIDE = "beside"
#: the purpose of the plainest request of all: not streamed, without the feature that its case asks for
PLAIN = "plain"
#: purposes of requests by which a run learns whether anybody is there: nobody's question, so no service is measured by
#: them
PROBES = frozenset({LIVENESS, BESIDE, PLAIN, "control", "between", "after"})


def is_probe(purpose: str) -> bool:
    """``between:NAME`` is a probe like ``between``."""
    return purpose.partition(":")[0] in PROBES


def count_findings(
    request: Request, exchange: Exchange, observation: Observation, findings: tuple[Finding, ...]
) -> tuple[Finding, ...]:
    """The findings at the level at which they count: an answer that is none says little about the wire of those that
    are.

    Nothing is said of a sign of life that failed. A busy server's error, and a 200 that is no completion, fail no rule;
    but what ends with [DONE] meant to be one, and so did whatever breaks a rule about chunks.
    """
    if not findings:
        return findings
    found = assess(exchange, observation)
    if request.purpose == LIVENESS and found.standing is not Classification.ANSWERED:
        return ()
    meant = found.standing is Classification.NOT_A_COMPLETION and observation.done
    if meant or found.standing not in (Classification.UNAVAILABLE, Classification.NOT_A_COMPLETION):
        return findings
    chunks = "" if found.standing is Classification.UNAVAILABLE else "chunk/"
    return tuple(
        replace(one, level=Level.SHOULD)
        if one.level is Level.MUST and not (chunks and one.rule.startswith(chunks))
        else one
        for one in findings
    )


def retry_after_seconds(exchange: Exchange, now: datetime | None = None) -> float | None:
    """The Retry-After header in seconds (a number or an HTTP date); None where absent or unreadable, never negative."""
    value = next((v for k, v in exchange.headers if k == "retry-after"), None)
    if value is None:
        return None
    text = value.strip()
    if text.isdecimal() and len(text) <= 12:
        return float(text)
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())


def judge_unanswered(case: Case, answered: Answered) -> Verdict | None:
    """The verdict of a sample whose request got no completion, None where it did.

    A refusal of a valid request is the vendor's and counts as wrong; all else is INCONCLUSIVE with its reason.
    """
    found = assess(answered.exchange, answered.observation)
    if found.standing is Classification.ANSWERED:
        return None
    refused = found.standing is Classification.REFUSED
    recorded = next(
        (reason for reason in (MISSING_RESULT, RECORDED_FAILURE) if reason in answered.observation.deviations),
        found.reason,
    )
    return Verdict(
        case=case.id,
        sample=case.sample,
        outcome=Outcome.FAIL if refused else Outcome.INCONCLUSIVE,
        reason="valid-request-refused" if refused else recorded,
        detail=found.detail,
        evidence=(Evidence(exchange=answered.exchange.identity.key, excerpt=found.detail),),
    )
