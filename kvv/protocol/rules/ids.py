"""Section: the form of ids, where a model's contract fixes it."""

from __future__ import annotations

import re
from functools import partial

from kvv.core import Area, Level, Observation
from kvv.protocol.rules.base import DIFFERS, RuleInfo, Scope, stream_rule
from kvv.protocol.rules.track import RuleContext

_rule = partial(RuleInfo, area=Area.STREAMING, level=Level.SHOULD, kind=DIFFERS, section="ids")
RULES = (
    _rule(
        id="ids/chat",
        scope=Scope.CHAT_ID,
        causes=("C14",),
        source=stream_rule("P2"),
        requirement="The completion's id SHOULD have the form that the model's platform gives it.",
    ),
)


class Ids:
    __slots__ = ("_context",)

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def finish(self, observation: Observation, complete: bool) -> None:
        form = self._context.profile.wire.chat_id
        if form and observation.id and not re.fullmatch(form, observation.id):
            self._context.sink.hit(
                "ids/chat", self._context.first_frame, f"the id {observation.id!r:.80} is not of the form {form}"
            )
