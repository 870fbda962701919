"""Checks of one answer: ``checks = { name = value }`` in a case file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvv.cases.checks.base import Check, CheckInput, CheckProblem, cut, inconclusive, index_by_name, quote
from kvv.cases.checks.schema import mismatch, read_json
from kvv.core import Outcome, Shape


def finish_reason(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The finish_reason is the given one, or one of the given list."""
    allowed = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    found = look.observation.finish_reason
    if found in allowed:
        return None
    return CheckProblem(
        reason="finish-reason", detail=f"finish_reason is {found!r}, want {' or '.join(map(repr, allowed))}"
    )


def completion_tokens_max(look: CheckInput, limit: Any) -> CheckProblem | None:
    """usage.completion_tokens does not exceed the limit; absent usage is another rule's business."""
    tokens = look.observation.tokens("completion_tokens")
    if tokens is None or tokens <= int(limit):
        return None
    return CheckProblem(reason="limit-exceeded", detail=f"{tokens} completion tokens where the limit is {limit}")


def stops_before(look: CheckInput, text: Any) -> CheckProblem | None:
    """The content ends before ``text``, which the prompt makes the model say; a cut by length cannot show it.

    Nothing of the stop sequence is shown either, not even its beginning: two signs of it at the end are a leak.
    """
    observation = look.observation
    begun = next((str(text)[:size] for size in range(len(str(text)) - 1, 1, -1) if _ends(look, str(text)[:size])), None)
    if str(text) in observation.answer:
        return CheckProblem(reason="stop-ignored", detail=f"the stop sequence {text!r} stands in the content")
    if observation.finish_reason == "length":
        return inconclusive("cut-before-stop", "the answer was cut by length before the stop sequence")
    if begun is not None:
        return CheckProblem(
            reason="stop-leaks", detail=f"the content ends with {begun!r}, the beginning of the stop sequence {text!r}"
        )
    if observation.finish_reason != "stop":
        return CheckProblem(
            reason="finish-reason",
            detail=f"finish_reason is {observation.finish_reason!r} after a stop sequence, want 'stop'",
        )
    return None


def _ends(look: CheckInput, part: str) -> bool:
    return look.observation.answer.endswith(part)


def error_envelope(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """A refusal's body is ``{"error": {"message": text, "type": text}}``; ``"message"`` asks for the message alone."""
    error = look.observation.error
    typed = error is not None and (bool(error.type) or wanted == "message")
    if look.observation.shape is Shape.ERROR and error is not None and error.envelope and error.message and typed:
        return None
    found = (
        "no error object"
        if error is None
        else "a flat error"
        if not error.envelope
        else "no message"
        if not error.message
        else "no type"
    )
    return CheckProblem(reason="error-envelope", detail=f"the refusal's body holds {found}")


def error_type(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The refusal's error.type is this one, or one of these."""
    error = look.observation.error
    allowed = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    if error is not None and error.type in allowed:
        return None
    found = quote(error.type) if error is not None else "no error object"
    return CheckProblem(reason="error-type", detail=f"error.type is {found}, want {' or '.join(map(repr, allowed))}")


def plain_error(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """A refusal is plain JSON: no event stream, even where a stream was asked for."""
    kind = look.answered.exchange.content_type.partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        return None
    return CheckProblem(reason="error-as-stream", detail="the refusal came as an event stream")


# --- tool calls ------------------------------------------------------------------------------------


def calls(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """At least one tool call, to the named tool or to tools of the list only, and finish_reason tool_calls.

    For requests that force a call. An answer cut inside the reasoning shows nothing; one that ran on without calling
    does.
    """
    observation = look.observation
    allowed = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    if not observation.tool_calls:
        if observation.finish_reason == "length" and not observation.answer and observation.reasoning:
            return inconclusive("cut-by-length", "cut by length inside the reasoning")
        detail = f"no tool call; finish_reason {observation.finish_reason!r}, content {quote(observation.first.answer)}"
        return CheckProblem(reason="no-call", detail=detail)
    for call in observation.tool_calls:
        if call.name not in allowed:
            return CheckProblem(
                reason="other-tool", detail=f"called {quote(call.name)}, want {' or '.join(map(repr, allowed))}"
            )
    if observation.finish_reason == "length":
        return inconclusive("cut-by-length", "the call was cut by length")
    return finish_reason(look, ["tool_calls"])


def called(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The named tool is among the calls; other calls beside it are allowed."""
    names = [call.name for call in look.observation.tool_calls]
    if wanted in names:
        return None
    return cut(look) or CheckProblem(
        reason="no-call", detail=f"called {quote(', '.join(map(str, names)) or None)}, want {wanted!r} among the calls"
    )


def no_calls(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """No tool call and no finish_reason tool_calls."""
    if look.observation.tool_calls:
        return CheckProblem(
            reason="unwanted-call",
            detail=f"called {quote(look.observation.tool_calls[0].name)} where no call is allowed",
        )
    return finish_reason(look, ["stop", "length"])


def call_count(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """Exactly, or with ``{ at-most = n }`` / ``{ at-least = n }`` at most or at least, this many calls."""
    count = len(look.observation.tool_calls)
    bounds = wanted if isinstance(wanted, Mapping) else {"at-least": wanted, "at-most": wanted}
    if bounds.get("at-least", 0) <= count <= bounds.get("at-most", count):
        return None
    return cut(look) or CheckProblem(reason="call-count", detail=f"{count} calls, want {wanted}")


def valid_arguments(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """Each call's arguments are a JSON object that satisfies the schema its tool was declared with, anywhere in the
    request.
    """
    declared = dict(_declared(look.sent))
    for call in look.observation.tool_calls:
        if look.observation.finish_reason == "length":
            return inconclusive("cut-by-length", "the call was cut by length")
        try:
            arguments = read_json(call.arguments)
        except ValueError as error:
            return CheckProblem(
                reason="arguments-not-json", detail=f"arguments of {quote(call.name)} are no JSON: {error}"
            )
        if not isinstance(arguments, dict):
            return CheckProblem(
                reason="arguments-no-object",
                detail=f"arguments of {quote(call.name)} are {type(arguments).__name__}, no object",
            )
        found = mismatch(arguments, declared.get(call.name or "", {}))
        if found:
            return CheckProblem(reason="schema-mismatch", detail=f"arguments of {quote(call.name)}: {found}")
    return None


def _declared(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and parameters of every well-formed tool of the request and of its messages."""
    messages = body.get("messages")
    holders = (
        [body, *(entry for entry in messages if isinstance(entry, Mapping))]
        if isinstance(messages, (list, tuple))
        else [body]
    )
    for holder in holders:
        tools = holder.get("tools")
        for tool in tools if isinstance(tools, (list, tuple)) else ():
            match tool:
                case {"function": {"name": str(name), "parameters": Mapping() as parameters}}:
                    yield name, parameters
                case {"function": {"name": str(name)}}:
                    yield name, {}


def arguments_equal(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The first call's arguments are exactly this JSON value; for schemas that leave no choice."""
    if not look.observation.tool_calls:
        return cut(look) or CheckProblem(reason="no-call", detail="no tool call")
    text = look.observation.tool_calls[0].arguments
    try:
        same = read_json(text) == wanted
    except ValueError as error:
        return CheckProblem(reason="arguments-not-json", detail=f"arguments are no JSON: {error}")
    return None if same else CheckProblem(reason="arguments-differ", detail=f"arguments are {quote(text)}")


def tool_id(look: CheckInput, pattern: Any) -> CheckProblem | None:
    """Every call's id matches the regular expression as a whole."""
    for call in look.observation.tool_calls:
        if re.fullmatch(str(pattern), (call.id or "")[:300]) is None:
            return CheckProblem(reason="tool-id", detail=f"the id of a call is {quote(call.id)}")
    return None


# --- text ------------------------------------------------------------------------------------------


def has_content(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """There is some content (or, with false, none)."""
    present = bool(look.observation.answer.strip())
    if present is bool(wanted):
        return None
    return cut(look) or CheckProblem(
        reason="no-content" if wanted else "content", detail=f"content is {quote(look.observation.first.answer)}"
    )


def says(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The content holds this text (one of these texts), whatever its case; for questions with one right answer."""
    texts = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    answer = look.observation.answer.casefold()
    if any(str(text).casefold() in answer for text in texts):
        return None
    return cut(look) or CheckProblem(
        reason="wrong-answer",
        detail=f"content is {quote(look.observation.answer)}, want {' or '.join(map(repr, texts))}",
    )


def recalls(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """As ``says``, but a model may forget once: two of two samples must."""
    problem = says(look, wanted)
    if problem is None or problem.outcome is not Outcome.FAIL:
        return problem
    return replace(problem)


def says_not(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The content holds none of these texts."""
    texts = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    found = next((str(text) for text in texts if str(text).casefold() in look.observation.answer.casefold()), None)
    return None if found is None else CheckProblem(reason="leaked", detail=f"the content holds {quote(found)}")


def content_equals(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The content is exactly this text, surrounding white space aside."""
    if look.observation.answer.strip() == str(wanted).strip():
        return None
    return cut(look) or CheckProblem(reason="wrong-answer", detail=f"content is {quote(look.observation.answer)}")


def content_json(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The content is JSON and nothing else; with ``"object"`` an object."""
    try:
        value = read_json(look.observation.answer)
    except ValueError as error:
        return cut(look) or CheckProblem(
            reason="content-not-json", detail=f"content {quote(look.observation.first.answer)} is no JSON: {error}"
        )
    if wanted == "object" and not isinstance(value, dict):
        return CheckProblem(reason="content-no-object", detail=f"content is {type(value).__name__}, no object")
    return None


def content_schema(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The content is JSON that satisfies the schema of the request's response_format (or the given schema)."""
    problem = content_json(look, True)
    if problem:
        return problem
    schema = wanted if isinstance(wanted, Mapping) else look.sent["response_format"]["json_schema"]["schema"]
    found = mismatch(read_json(look.observation.answer), schema)
    return CheckProblem(reason="schema-mismatch", detail=f"content: {found}") if found else None


def content_value(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The content is exactly this JSON value; for schemas that leave no choice."""
    problem = content_json(look, True)
    if problem:
        return problem
    if read_json(look.observation.answer) == wanted:
        return None
    return CheckProblem(reason="wrong-value", detail=f"content is {quote(look.observation.answer)}")


def compact(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """No line break and no tab in the content."""
    found = next((sign for sign in ("\n", "\r", "\t") if sign in look.observation.answer), None)
    return None if found is None else CheckProblem(reason="not-compact", detail=f"the JSON content holds {found!r}")


def key_order(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The content is a JSON object with these keys in this order."""
    problem = content_json(look, "object")
    if problem:
        return problem
    found = list(read_json(look.observation.answer))
    if found == list(wanted):
        return None
    return CheckProblem(reason="key-order", detail=f"the keys are {', '.join(map(str, found))[:200]}")


def text_equals(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The content is exactly this text, white space included."""
    if look.observation.answer == str(wanted):
        return None
    return cut(look) or CheckProblem(reason="text-differs", detail=f"content is {quote(look.observation.answer)}")


# --- reasoning and usage -----------------------------------------------------------------------------


def reasoning(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """There is reasoning in a field of its own (or, with false, none)."""
    if bool(look.observation.reasoning.strip()) is bool(wanted):
        return None
    if wanted:
        return CheckProblem(
            reason="no-reasoning",
            detail=f"no reasoning although thinking is on; content begins {quote(look.observation.first.answer)}",
        )
    return CheckProblem(
        reason="reasoning", detail=f"reasoning although thinking is off: {quote(look.observation.reasoning)}"
    )


def reasoning_field(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """The reasoning stands in this field, or one of these; no reasoning at all is another check's business."""
    found = look.observation.first.reasoning_field
    allowed = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    if found is None or found in allowed:
        return None
    return CheckProblem(
        reason="reasoning-field",
        detail=f"the reasoning stands in {quote(found)}, want {' or '.join(map(repr, allowed))}",
    )


def prompt_tokens(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """usage.prompt_tokens is this number; ``{ exact, stub, upto }``: exact + stub is the generation stub that some
    engines count and passes with a note, anything up to exact + upto passes with a note too."""
    tokens = look.observation.tokens("prompt_tokens")
    if tokens is None:
        return inconclusive("no-prompt-tokens", "the answer reports no usage.prompt_tokens")
    table = wanted if isinstance(wanted, Mapping) else {"exact": wanted}
    exact, stub, upto = int(table["exact"]), int(table.get("stub", 0)), int(table.get("upto", 0))
    if tokens == exact:
        return None
    if tokens - exact in (stub, 3) and tokens - exact in range(1, max(stub, upto) + 1):
        return CheckProblem(
            reason="known-stub",
            detail=f"{tokens}: the generation stub's {tokens - exact} are counted",
            outcome=Outcome.PASS,
        )
    if exact < tokens <= exact + upto:
        return CheckProblem(
            reason="within-tolerance",
            detail=f"{tokens}, want {exact}: inside the public tolerance",
            outcome=Outcome.PASS,
        )
    hint = ": one too many is what a doubled BOS looks like" if tokens == exact + 1 else ""
    return CheckProblem(reason="prompt-tokens", detail=f"prompt_tokens is {tokens}, want {exact}{hint}")


def usage_adds_up(look: CheckInput, wanted: Any) -> CheckProblem | None:
    """prompt_tokens + completion_tokens = total_tokens, all of them there, and completion_tokens not 0 for an answer
    with text.
    """
    prompt, completion, total = (
        look.observation.tokens(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    if prompt is None or completion is None or total is None:
        return CheckProblem(
            reason="usage-missing",
            detail=f"prompt_tokens {prompt}, completion_tokens {completion}, total_tokens {total}",
        )
    if prompt + completion != total:
        return CheckProblem(reason="usage-sum", detail=f"{prompt} + {completion} is not {total}")
    if prompt <= 0 or (completion <= 0 and (look.observation.answer or look.observation.tool_calls)):
        detail = f"prompt_tokens {prompt}, completion_tokens {completion} for an answer that is not empty"
        return CheckProblem(reason="usage-zero", detail=detail)
    return None


_FUNCTIONS: list[Check] = [
    finish_reason,
    completion_tokens_max,
    stops_before,
    error_envelope,
    error_type,
    plain_error,
    calls,
    called,
    no_calls,
    call_count,
    valid_arguments,
    arguments_equal,
    tool_id,
    has_content,
    says,
    recalls,
    says_not,
    content_equals,
    content_json,
    content_schema,
    content_value,
    compact,
    key_order,
    text_equals,
    reasoning,
    reasoning_field,
    prompt_tokens,
    usage_adds_up,
]
ANSWER_CHECKS: Mapping[str, Check] = index_by_name(_FUNCTIONS)
