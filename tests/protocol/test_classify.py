"""The outcome table, row by row, each with a neighbour that must fall elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.core import (
    Answered,
    Area,
    Case,
    ErrorBody,
    Exchange,
    Fault,
    FaultKind,
    Finding,
    FindingKind,
    Identity,
    Level,
    Observation,
    Outcome,
    Request,
    Role,
    Shape,
)
from kvv.protocol.classify import Classification, assess, count_findings, judge_unanswered, retry_after_seconds

IDENTITY = Identity(case="c", sample=0, step=0, ask=0, purpose="probe")
COMPLETION = Observation(shape=Shape.COMPLETION)


def exchange(
    status: int | None = 200, *, fault: FaultKind | None = None, headers: dict[str, str] | None = None
) -> Exchange:
    return Exchange(
        identity=IDENTITY,
        attempt=1,
        role=Role.TARGET,
        started="2026-01-01T00:00:00Z",
        status=status,
        headers=tuple((headers or {}).items()),
        fault=Fault(kind=fault, detail="") if fault else None,
    )


def error(kind: str | None = None, code: str | int | None = None) -> Observation:
    return Observation(shape=Shape.ERROR, error=ErrorBody(message="no", type=kind, code=code))


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.CONNECT,
        FaultKind.DNS,
        FaultKind.FIRST_BYTE_TIMEOUT,
        FaultKind.IDLE_TIMEOUT,
        FaultKind.RESET,
        FaultKind.CUT,
    ],
)
def test_transport_faults_are_unavailable_and_retried(kind: FaultKind) -> None:
    found = assess(exchange(None, fault=kind), Observation(shape=Shape.NONE))
    assert (found.standing, found.reason, found.retry) == (Classification.UNAVAILABLE, kind.value, True)


@pytest.mark.parametrize("kind", [FaultKind.TOO_LARGE, FaultKind.BAD_ENCODING])
def test_bodies_that_cannot_be_read_are_not_asked_for_again(kind: FaultKind) -> None:
    assert not assess(exchange(200, fault=kind), Observation(shape=Shape.NONE)).retry


@pytest.mark.parametrize("status", [408, 409, 425, 429, 502, 503, 504, 520, 524, 529])
def test_not_now_statuses_are_retried(status: int) -> None:
    found = assess(exchange(status), error("engine_overloaded_error"))
    assert (found.standing, found.retry) == (Classification.UNAVAILABLE, True)


def test_500_is_a_server_error_and_retried() -> None:
    found = assess(exchange(500), error("server_error"))
    assert (found.standing, found.retry) == (Classification.SERVER_ERROR, True)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "auth"),
        (402, "no-credit"),
        (403, "auth"),
        (404, "route"),
        (413, "body-limit"),
        (451, "policy"),
        (302, "route"),
        (307, "route"),
    ],
)
def test_account_and_route_statuses_are_configuration_and_not_retried(status: int, reason: str) -> None:
    found = assess(exchange(status), error())
    assert (found.standing, found.reason, found.retry) == (Classification.CONFIGURATION, reason, False)


def test_402_is_retried_only_with_retry_after() -> None:
    assert assess(exchange(402, headers={"retry-after": "5"}), error()).retry
    assert not assess(exchange(402), error()).retry


def test_429_of_an_empty_account_is_no_credit_and_a_busy_server_is_not() -> None:
    assert assess(exchange(429), error("exceeded_current_quota_error")).reason == "no-credit"
    assert assess(exchange(429), error("rate_limit_reached_error")).standing is Classification.UNAVAILABLE


@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_needs_a_json_body(status: int) -> None:
    assert assess(exchange(status), error("invalid_request_error")).standing is Classification.REFUSED
    assert assess(exchange(status), Observation(shape=Shape.NOT_JSON)).standing is Classification.NOT_A_COMPLETION
    assert (
        assess(exchange(status, fault=FaultKind.CUT), error("invalid_request_error")).standing
        is Classification.UNAVAILABLE
    )


def test_a_content_filter_is_policy_and_no_refusal() -> None:
    assert assess(exchange(400), error("content_filter")).reason == "policy"


@pytest.mark.parametrize("shape", [Shape.NOT_JSON, Shape.EMPTY, Shape.OTHER_JSON])
def test_a_200_that_is_no_completion_is_not_retried(shape: Shape) -> None:
    found = assess(exchange(200), Observation(shape=shape))
    assert (found.standing, found.retry) == (Classification.NOT_A_COMPLETION, False)


@pytest.mark.parametrize(
    ("observation", "standing"),
    [
        (error("rate_limit_error"), Classification.UNAVAILABLE),
        (error("engine_overloaded"), Classification.UNAVAILABLE),
        (error("invalid_request_error"), Classification.REFUSED),
        (error("server_error"), Classification.SERVER_ERROR),
        (error(None, 400), Classification.REFUSED),
        (error(None, "503"), Classification.UNAVAILABLE),
        (error("insufficient_quota"), Classification.CONFIGURATION),
        (error("authentication_error"), Classification.CONFIGURATION),
    ],
)
def test_an_error_inside_a_200_counts_as_its_own_code(observation: Observation, standing: Classification) -> None:
    assert assess(exchange(200), observation).standing is standing


def test_an_error_after_content_is_still_classified_by_its_code() -> None:
    broken = Observation(shape=Shape.COMPLETION, error=ErrorBody(message="died", type="server_error"))
    assert assess(exchange(200), broken).standing is Classification.SERVER_ERROR


def test_a_completion_is_answered_even_without_finish_reason() -> None:
    assert assess(exchange(200), COMPLETION).standing is Classification.ANSWERED


def test_retry_after_reads_seconds_dates_and_nothing_else() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert retry_after_seconds(exchange(429, headers={"retry-after": "7"}), now) == 7
    assert retry_after_seconds(exchange(429, headers={"retry-after": "Thu, 01 Jan 2026 00:01:00 GMT"}), now) == 60
    assert retry_after_seconds(exchange(429, headers={"retry-after": "Thu, 01 Jan 2025 00:01:00 GMT"}), now) == 0
    assert retry_after_seconds(exchange(429, headers={"retry-after": "31536000"}), now) == 31536000
    assert retry_after_seconds(exchange(429, headers={"retry-after": "soon"}), now) is None
    assert retry_after_seconds(exchange(429), now) is None


@given(st.text(max_size=60))
def test_no_retry_after_value_raises_or_is_negative(value: str) -> None:
    found = retry_after_seconds(exchange(429, headers={"retry-after": value}))
    assert found is None or found >= 0


def test_unanswered_is_inconclusive_for_the_network_fail_for_a_refusal_and_nothing_for_an_answer() -> None:
    case = Case(
        id="c", suite="s", area=Area.ACCURACY, level=Level.MUST, requirement="r", source="", since="", inputs={}
    )

    def verdict(status: int | None, observation: Observation, fault: FaultKind | None = None) -> Outcome | None:
        found = judge_unanswered(
            case, Answered(request=Request(body={}), exchange=exchange(status, fault=fault), observation=observation)
        )
        return found.outcome if found else None

    assert verdict(None, Observation(shape=Shape.NONE), FaultKind.RESET) is Outcome.INCONCLUSIVE
    assert verdict(500, error()) is Outcome.INCONCLUSIVE
    assert verdict(401, error()) is Outcome.INCONCLUSIVE
    assert verdict(200, Observation(shape=Shape.NOT_JSON)) is Outcome.INCONCLUSIVE
    assert verdict(400, error("invalid_request_error")) is Outcome.FAIL
    assert verdict(200, COMPLETION) is None


@pytest.mark.parametrize(
    ("error", "standing", "reason"),
    [
        ({"type": "insufficient_quota"}, Classification.CONFIGURATION, "no-credit"),
        ({"type": "invalid_request_error", "code": "insufficient_quota"}, Classification.CONFIGURATION, "no-credit"),
        ({"type": "authentication_error"}, Classification.CONFIGURATION, "auth"),
        ({"code": "model_not_found"}, Classification.CONFIGURATION, "route"),
        ({"code": "rate_limit_exceeded"}, Classification.UNAVAILABLE, "error-in-400"),
        ({"type": "overloaded_error"}, Classification.UNAVAILABLE, "error-in-400"),
        ({"type": "content_filter"}, Classification.CONFIGURATION, "policy"),
        ({"type": "invalid_request_error"}, Classification.REFUSED, "refused"),
        ({}, Classification.REFUSED, "refused"),
    ],
)
def test_a_400_that_names_the_accounts_the_routes_or_the_loads_trouble_is_no_refusal(
    error: dict[str, str], standing: Classification, reason: str
) -> None:
    body = ErrorBody(message="no", **error)  # type: ignore[arg-type]
    found = assess(exchange(400), Observation(shape=Shape.ERROR, error=body))
    assert (found.standing, found.reason) == (standing, reason)


def must(rule: str) -> Finding:
    return Finding(rule=rule, area=Area.STREAMING, level=Level.MUST, kind=FindingKind.BREAKS_CLIENTS, message="m")


def test_findings_on_an_answer_that_is_none_fail_nothing_but_the_rules_of_chunks() -> None:
    request = Request(body={})
    both = (must("stream/not-streamed"), must("chunk/choices"))
    completion = Observation(shape=Shape.COMPLETION)
    busy = Observation(shape=Shape.ERROR, error=ErrorBody(message="m", type="overloaded_error"))
    levels = {
        name: [one.level for one in count_findings(request, exchange(200), observation, both)]
        for name, observation in (
            ("answer", completion),
            ("busy", busy),
            ("other", Observation(shape=Shape.OTHER_JSON)),
            ("done alone", Observation(shape=Shape.EMPTY, done=True)),
        )
    }
    assert levels == {
        "answer": [Level.MUST, Level.MUST],
        "busy": [Level.SHOULD, Level.SHOULD],
        "other": [Level.SHOULD, Level.MUST],
        "done alone": [Level.MUST, Level.MUST],
    }
    assert count_findings(Request(body={}, purpose="liveness"), exchange(200), busy, both) == ()
