"""The requests of a stored run, each with its features and how it ended, for ``kvv.decision.features``."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvv.cases.contract import expected_of
from kvv.core import Case, Credential, Level
from kvv.decision.features import LEAST, FeatureRequest
from kvv.decision.gateway_timeouts import AttemptEnding, suspected_timeouts
from kvv.profiles.policy import Policy
from kvv.protocol.classify import Classification, is_probe
from kvv.protocol.features import INVALID
from kvv.storage.store import AttemptHead, Store, StoredAttempt

#: given up after a time of our own choice
_OUR_TIMES = frozenset({"first-byte-timeout", "idle-timeout"})
#: no connection was made, the run ended, or the account or the route was refused: no feature's doing
_NO_FEATURE = frozenset({"connect", "dns", "tls", "cancelled", "total-timeout", "too-large"})


class Expected:
    """What each request of a run was to get; ``of`` gives None for one whose end tells nothing.

    Cases below must may be refused by a correct server, and risky ones bring an endpoint down for all.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._cases: dict[str, Case | None] = {}

    def add(self, case: Case, *, benchmark: bool) -> None:
        own = case.inputs.get("credential", Credential.OWN) == Credential.OWN
        binding = benchmark or self._policy.level(case.id, case.level) is Level.MUST
        self._cases[case.id] = case if own and binding and not case.risk else None

    def of(self, attempt: StoredAttempt) -> str | None:
        if attempt.case not in self._cases:
            return "answered" if is_probe(attempt.purpose) else None
        case = self._cases[attempt.case]
        expected = None if case is None else expected_of(case, attempt.purpose)
        return None if expected == "either" else expected


def read_feature_requests(store: Store, expected: Expected) -> Iterator[FeatureRequest]:
    """Each request once, in no order, judged by its first attempt that was not held back for the endpoint's pace;
    nothing where hardly any failed, which saves reading the records.
    """
    attempts = [(one, wanted) for one in store.stored_attempts() if (wanted := expected.of(one)) is not None]
    if sum(_may_fail(one, wanted) for one, wanted in attempts) < LEAST:
        return
    cut = {found.stream for found in suspected_timeouts(store.endings())}
    requests: dict[str, FeatureRequest] = {}
    for attempt, wanted in attempts:
        known = requests.get(attempt.request)
        if known is None or known.pace:
            found = _request(attempt, store.attempt_head(attempt), wanted, cut)
            if found is not None:
                requests[attempt.request] = found
    yield from requests.values()


def _may_fail(attempt: StoredAttempt, wanted: str) -> bool:
    """As far as its standing tells."""
    return attempt.standing is not Classification.ANSWERED and not (
        wanted == "refused" and attempt.standing is Classification.REFUSED
    )


def _request(attempt: StoredAttempt, head: AttemptHead, wanted: str, cut: Collection[bool]) -> FeatureRequest | None:
    """None where the end is no feature's doing. ``cut``: the stream modes that a gateway's time limit seems to cut."""
    found = head.assessment
    if found.reason in _NO_FEATURE:
        return None
    if found.standing is Classification.CONFIGURATION and found.reason != "route":
        return None
    spoken = found.spoken or found.standing in (Classification.NOT_A_COMPLETION, Classification.CONFIGURATION)
    kept = spoken if wanted == "refused" else found.standing is Classification.ANSWERED
    ending = AttemptEnding(
        exchange=attempt.request,
        stream=attempt.stream,
        total_ms=attempt.total_ms,
        answered=found.standing is Classification.ANSWERED,
        status=head.status,
        fault=head.fault,
    )
    return FeatureRequest(
        exchange=attempt.request.rsplit(".", 1)[0],
        case=attempt.case,
        started=head.started,
        features=head.features | ({INVALID} if wanted == "refused" else frozenset()),
        failure="" if kept else found.reason,
        pace=found.pace,
        slow=found.reason in _OUR_TIMES or (ending.cut and attempt.stream in cut),
    )
