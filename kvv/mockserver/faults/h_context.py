"""Group h: long prompts that are cut silently, output budgets that are too small, and overflow answered wrongly."""

from dataclasses import replace

from kvv.mockserver.content.completion import DraftChoice
from kvv.mockserver.content.compose import Draft
from kvv.mockserver.content.prompt import render_prompt
from kvv.mockserver.content.tokens import tokenize
from kvv.mockserver.errors import ApiError
from kvv.mockserver.faults.edits import each
from kvv.mockserver.faults.model import ServerFault, Turn
from kvv.mockserver.validation.images import Image
from kvv.mockserver.validation.request import ChatRequest, Message

_NUM_CTX = 2048
_TOTAL = 4096
_DEFAULT_BUDGET = 16
_GARBAGE_FROM = 8192
_TRAINED_SHARE = 4  # the trained window is a quarter of the advertised one


def _keep_last(request: ChatRequest, limit: int) -> ChatRequest:
    """The request with only the last ``limit`` text tokens of its messages; messages that lie before them are gone."""
    left = limit
    kept: list[Message] = []
    for message in reversed(request.messages):
        parts: list[str | Image] = []
        for part in reversed(message.parts):
            if isinstance(part, Image):
                parts.insert(0, part)
                continue
            tokens = tokenize(part)
            parts.insert(0, part if len(tokens) <= left else "".join(tokens[len(tokens) - max(0, left) :]))
            left -= len(tokens)
        kept.insert(0, replace(message, parts=tuple(parts)))
        if left <= 0:
            break
    return replace(request, messages=tuple(kept))


def _last_2048(_turn: Turn, request: ChatRequest) -> ChatRequest:
    return _keep_last(request, _NUM_CTX)


def _half_window(turn: Turn, request: ChatRequest) -> ChatRequest:
    return _keep_last(request, turn.config.context_window // 2 + 2)


def _total_4096(turn: Turn, request: ChatRequest) -> ChatRequest:
    shortened = _keep_last(request, _TOTAL - 512)
    room = max(1, _TOTAL - render_prompt(shortened, turn.variant).tokens)
    return replace(shortened, max_tokens=min(room, request.max_tokens or room))


def _budget_16(_turn: Turn, request: ChatRequest) -> ChatRequest:
    return replace(request, max_tokens=_DEFAULT_BUDGET) if request.max_tokens is None else request


def _length_is_stop(_turn: Turn, choice: DraftChoice) -> DraftChoice:
    return replace(choice, finish="stop") if choice.finish == "length" else choice


def _overflow_500(_turn: Turn, error: ApiError) -> ApiError:
    return (
        ApiError(error.message, status=500, kind="server_error", reason="context")
        if error.reason == "context"
        else error
    )


def _garbage(turn: Turn, draft: Draft, _index: int) -> Draft:
    return (
        replace(draft, content="zx qv ## jjk 00 wx zx vq }} kk ;; qq zz 77 xv !! jq", calls=())
        if turn.prompt_tokens > _GARBAGE_FROM
        else draft
    )


def _wrong_when_long(turn: Turn, right: bool) -> bool:
    return right and turn.prompt_tokens <= _GARBAGE_FROM


def _trained_window(turn: Turn, request: ChatRequest) -> ChatRequest:
    limit = turn.config.context_window // _TRAINED_SHARE
    if render_prompt(request, turn.variant).tokens > limit:
        raise ApiError(f"the prompt exceeds the model token limit of {limit}", param="messages", reason="context")
    return request


FAULTS = (
    ServerFault(
        id="H01",
        group="h",
        summary="only the last 2048 prompt tokens are read",
        mode="both",
        areas=("long-context", "usage"),
        on_request=_last_2048,
    ),
    ServerFault(
        id="H02",
        group="h",
        summary="the prompt is cut at half of the window",
        mode="both",
        areas=("long-context", "usage"),
        on_request=_half_window,
    ),
    ServerFault(
        id="H03",
        group="h",
        summary="prompt and completion together are capped at 4096",
        mode="both",
        areas=("long-context", "usage"),
        on_request=_total_4096,
    ),
    ServerFault(
        id="H06",
        group="h",
        summary="the default output budget is 16 tokens",
        mode="both",
        areas=("long-context",),
        on_request=_budget_16,
    ),
    ServerFault(
        id="H07",
        group="h",
        summary="an answer cut at the cap says stop",
        mode="both",
        areas=("usage", "decoding"),
        on_choices=each(_length_is_stop),
    ),
    ServerFault(
        id="H08",
        group="h",
        summary="an over-long prompt gives 500",
        mode="both",
        areas=("errors", "long-context"),
        on_error=_overflow_500,
    ),
    ServerFault(
        id="H09",
        group="h",
        summary="garbage above 8192 prompt tokens",
        mode="both",
        areas=("long-context",),
        on_draft=_garbage,
        on_right=_wrong_when_long,
    ),
    ServerFault(
        id="H11",
        group="h",
        summary="prompts above a quarter of the window are refused",
        mode="both",
        areas=("long-context", "errors"),
        on_request=_trained_window,
    ),
)
