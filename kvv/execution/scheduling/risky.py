"""The order of cases that have brought engines down: the first of a kind alone, its repeats together.

A kind is what is asked, whatever the thinking mode and streamed or not. Nothing is beside the first of a kind and the
endpoint is asked for a sign of life behind it, so that a dead endpoint is blamed on one request. What was survived
once is asked again with its like at the same time, and one sign of life behind all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from kvv.core import Case
from kvv.execution.scheduling.work import Work

#: fields of a body in which the modes of one case differ
MODE_FIELDS = frozenset({"stream", "stream_options", "thinking", "chat_template_kwargs", "reasoning_effort"})


def kind_of(case: Case) -> str:
    """What makes the case risky: its request without the mode it is asked in; the case itself where it has no body."""
    body = case.inputs.get("body")
    if not isinstance(body, Mapping) or not body:
        return case.id
    asked = {name: value for name, value in body.items() if name not in MODE_FIELDS}
    own = [asked, case.inputs.get("credential"), len(case.inputs.get("rounds", ())), case.area.value]
    return json.dumps(own, sort_keys=True, default=repr)


def in_groups(works: Sequence[Work]) -> list[list[Work]]:
    """The works in the order in which they are concluded, those of a group at the same time."""
    first: dict[str, Work] = {}
    for work in works:
        first.setdefault(kind_of(work.case), work)
    alone = list(first.values())
    again = [work for work in works if first[kind_of(work.case)] is not work]
    return [*([work] for work in alone), *([again] if again else [])]
