"""Group j: answers that degrade with load, time, caches or several choices."""

import re
from dataclasses import replace

from kvv.mockserver.content.compose import Draft, PlannedCall
from kvv.mockserver.faults.model import ServerFault, Turn

_BUSY = 4
_FULL_DRIFT = 40  # requests until every call is damaged
_JUNK = "????//// ?? //// ????"


def _swapped_key(turn: Turn, draft: Draft, _index: int) -> Draft:
    if turn.active <= _BUSY or turn.request is None or turn.request.response_format.kind == "text":
        return draft
    return replace(draft, content=re.sub(r'"(\w)(\w*)":', r'"\2\1":', draft.content, count=1))


def _cache_changes_answer(turn: Turn, draft: Draft, _index: int) -> Draft:
    if turn.request is None or turn.request.temperature > 0 or turn.cached == 0 or not draft.content:
        return draft
    return replace(draft, content=f"{draft.content} (variant {turn.ordinal})")


def _looping(turn: Turn, draft: Draft, _index: int) -> Draft:
    if not draft.content or draft.calls or not turn.chance("J08", 0.5):
        return draft
    last = re.split(r"(?<=[.!?])\s+", draft.content.strip())[-1]
    return replace(draft, content=" ".join([draft.content, *[last] * 20]))


def _damaged(call: PlannedCall) -> PlannedCall:
    half = len(call.arguments) // 2
    return replace(call, arguments=f"{call.arguments[:half]}</parameter>{call.arguments[half:-1]}")


def _half_damaged(turn: Turn, draft: Draft, _index: int) -> Draft:
    return replace(draft, calls=tuple(map(_damaged, draft.calls))) if draft.calls and turn.chance("J10", 0.5) else draft


def _drifting(turn: Turn, draft: Draft, _index: int) -> Draft:
    return (
        replace(draft, calls=tuple(map(_damaged, draft.calls)))
        if turn.chance("J11", turn.ordinal / _FULL_DRIFT)
        else draft
    )


def _junk(_turn: Turn, draft: Draft, _index: int) -> Draft:
    return replace(draft, content=_JUNK, calls=())


def _never_right(_turn: Turn, _right: bool) -> bool:
    return False


def _junk_after_first(_turn: Turn, draft: Draft, index: int) -> Draft:
    return replace(draft, content="!" * 200, calls=()) if index else draft


FAULTS = (
    ServerFault(
        id="J04",
        group="j",
        summary="with more than four requests in flight a JSON key is damaged",
        mode="both",
        dwell_s=0.03,
        areas=("degradation", "response-format"),
        on_draft=_swapped_key,
    ),
    ServerFault(
        id="J06",
        group="j",
        summary="a greedy answer changes with each cache hit",
        mode="both",
        areas=("degradation",),
        on_draft=_cache_changes_answer,
    ),
    ServerFault(
        id="J08",
        group="j",
        summary="half of the answers loop their last sentence",
        mode="both",
        areas=("degradation",),
        on_draft=_looping,
    ),
    ServerFault(
        id="J10",
        group="j",
        summary="half of the calls are damaged",
        mode="both",
        areas=("degradation", "tools"),
        on_draft=_half_damaged,
    ),
    ServerFault(
        id="J11",
        group="j",
        summary="calls are damaged ever more often with the requests served",
        mode="both",
        areas=("degradation", "tools"),
        on_draft=_drifting,
    ),
    ServerFault(
        id="J12",
        group="j",
        summary="every answer is junk",
        mode="both",
        areas=("degradation", "accuracy"),
        on_draft=_junk,
        on_right=_never_right,
    ),
    ServerFault(
        id="J13",
        group="j",
        summary="choices after the first are repeated characters",
        mode="both",
        areas=("degradation", "decoding"),
        on_draft=_junk_after_first,
    ),
)
