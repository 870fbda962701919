"""Group e: response formats that are not applied, misplaced, or that kill the engine."""

from dataclasses import replace

from kvv.mockserver.config import JsonObject
from kvv.mockserver.content.completion import DraftChoice
from kvv.mockserver.content.compose import Draft
from kvv.mockserver.content.tokens import count
from kvv.mockserver.errors import ApiError
from kvv.mockserver.faults.edits import each
from kvv.mockserver.faults.model import Respond, ServerFault, Turn
from kvv.mockserver.validation.request import ChatRequest, ResponseFormat
from kvv.mockserver.wire import Abort, HttpReply

# An answer that repeats itself without a limit of its own is cut here, so that a test does not carry 131,072 tokens.
_REPEATED_TOKENS = 4096


def _kind(turn: Turn) -> str:
    return turn.request.response_format.kind if turn.request is not None else "text"


def _no_grammar_while_thinking(turn: Turn, draft: Draft, _index: int) -> Draft:
    if _kind(turn) != "json_schema" or not draft.reasoning or not turn.chance("E01", 0.5):
        return draft
    return replace(draft, content=f"Sure, here is the JSON:\n```json\n{draft.content}\n```")


def _json_as_reasoning(turn: Turn, choice: DraftChoice) -> DraftChoice:
    return choice if _kind(turn) == "text" else replace(choice, reasoning=choice.content, content=())


def _no_thinking_with_format(_turn: Turn, request: ChatRequest) -> ChatRequest:
    return request if request.response_format.kind == "text" else replace(request, thinking=False, effort=None)


def _repeat_json(turn: Turn, draft: Draft, _index: int) -> Draft:
    if _kind(turn) == "text" or turn.request is None:
        return draft
    limit = min(turn.request.max_tokens or _REPEATED_TOKENS, _REPEATED_TOKENS)
    return Draft(content=draft.content * (2 * limit // max(1, count(draft.content)) + 2))


def _cut_at_limit(turn: Turn, choice: DraftChoice) -> DraftChoice:
    if _kind(turn) == "text":
        return choice
    return replace(choice, content=choice.content[:_REPEATED_TOKENS], finish="length")


def _other_schema(turn: Turn, draft: Draft, _index: int) -> Draft:
    return replace(draft, content='{"answer":"sample text"}') if _kind(turn) == "json_schema" else draft


def _empty_500(_turn: Turn, error: ApiError) -> ApiError:
    return ApiError("", status=500, kind="server_error", reason=error.reason) if error.reason == "schema" else error


def _dies(turn: Turn, error: ApiError) -> ApiError:
    if error.reason != "schema":
        return error
    turn.memory["E08"] = True
    return _DEAD


def _stays_dead(turn: Turn, body: JsonObject) -> JsonObject:
    if turn.memory.get("E08"):
        raise _DEAD
    return body


_DEAD = ApiError("EngineDeadError", status=500, kind="server_error", reason="fault")


def _format_ignored(_turn: Turn, request: ChatRequest) -> ChatRequest:
    return replace(request, response_format=ResponseFormat())


def _exit_on_json_object(turn: Turn, body: JsonObject) -> JsonObject:
    """The engine's exit ends this connection; afterwards no request is answered at all."""
    wanted = body.get("response_format")
    if isinstance(wanted, dict) and wanted.get("type") == "json_object" and not turn.streams:
        turn.memory["E10"] = True
    if turn.memory.get("E10"):
        gone = HttpReply(status=503, headers=(), parts=(Abort(reset=True),))
        raise Respond(gone)
    return body


FAULTS = (
    ServerFault(
        id="E01",
        group="e",
        summary="no grammar while thinking: half of the answers are no JSON",
        mode="both",
        areas=("response-format",),
        on_draft=_no_grammar_while_thinking,
    ),
    ServerFault(
        id="E02",
        group="e",
        summary="the JSON comes as reasoning, content is empty",
        mode="both",
        areas=("response-format", "reasoning"),
        on_choices=each(_json_as_reasoning),
    ),
    ServerFault(
        id="E03",
        group="e",
        summary="response_format switches thinking off",
        mode="both",
        areas=("response-format", "reasoning"),
        on_request=_no_thinking_with_format,
    ),
    ServerFault(
        id="E04",
        group="e",
        summary="no reasoning, and the JSON repeats to the token limit",
        mode="both",
        areas=("response-format",),
        on_draft=_repeat_json,
        on_choices=each(_cut_at_limit),
    ),
    ServerFault(
        id="E05",
        group="e",
        summary="the schema is not applied",
        mode="both",
        areas=("response-format",),
        on_draft=_other_schema,
    ),
    ServerFault(
        id="E06",
        group="e",
        summary="a malformed schema gives 500 with an empty message",
        mode="both",
        areas=("response-format", "errors"),
        on_error=_empty_500,
    ),
    ServerFault(
        id="E08",
        group="e",
        summary="a malformed schema gives 500, and so does every later request",
        mode="both",
        areas=("errors", "response-format"),
        on_error=_dies,
        on_body=_stays_dead,
    ),
    ServerFault(
        id="E09",
        group="e",
        summary="response_format is dropped",
        mode="both",
        areas=("response-format",),
        on_request=_format_ignored,
    ),
    ServerFault(
        id="E10",
        group="e",
        summary="json_object without streaming ends the engine",
        mode="both",
        areas=("response-format", "errors"),
        on_body=_exit_on_json_object,
    ),
)
