"""One request to one endpoint: counted, sent under the wire rules, priced and stored."""

from __future__ import annotations

from dataclasses import replace

from kvv.core import Identity, Request, Role
from kvv.execution.scheduling.budget import Budget
from kvv.profiles.profile import Profile
from kvv.protocol.classify import count_findings
from kvv.protocol.encode import EncodedBody
from kvv.protocol.reader import Received
from kvv.protocol.rules import Rules, rules_for
from kvv.storage.store import Store
from kvv.transport import Transport


class Sender:
    """Sends what it is told, at once; when, how often and how many at a time is the scheduler's business."""

    def __init__(
        self, transport: Transport, store: Store, budget: Budget, profile: Profile, *, moonshot_stream: bool
    ) -> None:
        self._transport = transport
        self._store = store
        self._budget = budget
        self._profile = profile
        self._moonshot_stream = moonshot_stream

    async def send(
        self, identity: Identity, attempt: int, request: Request, body: EncodedBody, *, keep_frames: bool
    ) -> Received:
        """One attempt, with the findings at the level at which they count."""
        self._budget.count_request()
        received = await self._transport.send(
            request,
            body,
            identity=identity,
            attempt=attempt,
            rules=self._rules(request),
            keep_frames=keep_frames,
            deadline=self._budget.remaining_s(),
        )
        findings = count_findings(request, received.exchange, received.observation, received.findings)
        if findings is not received.findings:
            received = replace(received, findings=findings)
        count = self._budget.count_judge if request.role is Role.JUDGE else self._budget.count_usage
        self._store.put_exchange(received, request, body, cost=count(received.observation))
        return received

    def _rules(self, request: Request) -> Rules | None:
        """The judge's wire is not what is verified."""
        return (
            None
            if request.role is Role.JUDGE
            else rules_for(self._profile, request, moonshot_stream=self._moonshot_stream)
        )
