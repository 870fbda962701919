"""What the model says: reasoning, text and calls for one choice, before any limit is applied."""

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from kvv.mockserver.canonical import compact, plain
from kvv.mockserver.config import JsonObject, Reply
from kvv.mockserver.content import directives, scripted, sight
from kvv.mockserver.content.schema_values import is_valid, value_for
from kvv.mockserver.content.tokens import tokenize
from kvv.mockserver.content.vocabulary import Sampler, prose, thoughts, words
from kvv.mockserver.validation.request import ChatRequest, Message, PastCall, Tool
from kvv.mockserver.validation.schema_walk import NoValue

_THOUGHTS = {"low": 1, "high": 4, "max": 9, None: 4}
_QUOTED_WORDS = {"low": 8, "high": 20, "max": 40, None: 20}
_CONTEXT_LIMIT = 8_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A call the model makes: the function and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One whole answer. Without reasoning there is no reasoning phase at all."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[PlannedCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSetting:
    """What an answer depends on besides the request: the seed, the draw, the choice, and the key's reply if any.

    ``misread``: a picture that is asked about is taken for another one. ``turn``: where in the reply's script this
    answer stands.
    """

    seed: int
    ask: int
    choice: int = 0
    reply: Reply | None = None
    misread: bool = False
    turn: int | None = None


def compose(request: ChatRequest, setting: AnswerSetting) -> Draft:
    """The answer of one choice; a function of its arguments alone."""
    text = request.last_user.text if request.last_user is not None else ""
    sampler = Sampler(_entropy(request, setting), request.temperature)
    if setting.reply is not None and setting.turn is not None:
        return _scripted(
            request, setting.reply, setting.turn, _reasoning(request, text, sampler) if request.thinking else ""
        )
    calls = _calls(request, setting.reply, text)
    if calls:
        content = _before_calls(request, setting.reply, text, calls)
    elif request.response_format.kind != "text":
        content = _json_text(request, setting.reply, text)
    elif setting.reply is not None:
        content = setting.reply.text
    else:
        content = sight.answer(request, misread=setting.misread) or _free_text(request, text, sampler)
    reasoning = _reasoning(request, text, sampler) if request.thinking else ""
    return Draft(reasoning=reasoning, content=_continued(request, content), calls=calls)


def _scripted(request: ChatRequest, reply: Reply, turn: int, reasoning: str) -> Draft:
    arguments = scripted.arguments(request, reply, turn)
    if arguments is None:
        return Draft(reasoning=reasoning, content=scripted.text(reply, turn))
    return Draft(
        reasoning=reasoning, content="Next command.", calls=(PlannedCall(name=scripted.TOOL, arguments=arguments),)
    )


def _entropy(request: ChatRequest, setting: AnswerSetting) -> str:
    drawn = f"seed {request.seed}" if request.seed is not None else f"draw {setting.ask}"
    return f"{setting.seed}\0{drawn}\0{setting.choice}"


def _continued(request: ChatRequest, content: str) -> str:
    """In partial mode the answer goes on where the last assistant message ends."""
    last = request.messages[-1]
    if last.partial and content.startswith(last.text):
        return content[len(last.text) :]
    return content


def _reasoning(request: ChatRequest, text: str, sampler: Sampler) -> str:
    quoted = " ".join(text[:2000].split()[: _QUOTED_WORDS[request.effort]])
    opening = f"The user writes: {quoted} ..." if quoted else "There is no question yet."
    return f"{opening} {thoughts(sampler, text[:200], _THOUGHTS[request.effort])}"


# --- calls ---------------------------------------------------------------------------------------------------------


def _calls(request: ChatRequest, reply: Reply | None, text: str) -> tuple[PlannedCall, ...]:
    tools = request.callable_tools
    if not tools or request.tool_choice == "none":
        return ()
    chosen = _chosen_tools(request, reply, text, tools)
    if not request.parallel:
        chosen = chosen[:1]
    parts = directives.stretches(text, chosen) if chosen else []
    return tuple(
        PlannedCall(name=tool.name, arguments=_arguments(tool, part, text))
        for tool, part in zip(chosen, parts, strict=True)
    )


def _chosen_tools(request: ChatRequest, reply: Reply | None, text: str, tools: tuple[Tool, ...]) -> list[Tool]:
    answered = request.messages[-1].role == "tool"
    if reply is not None and not answered:
        keyed = [tool for tool in tools if tool.name == reply.tool]
        if keyed or request.tool_choice == "auto":
            return keyed[:1]
    asked = directives.tools_asked_for(text, tools)
    match request.tool_choice:
        case "named":
            named = next(tool for tool in tools if tool.name == request.tool_name)
            return [tool for tool in asked if tool is named] or [named]
        case "required":
            return asked or [tools[0]]
    return [] if answered else asked


def _arguments(tool: Tool, part: str, text: str) -> str:
    return _cached_arguments(compact(tool.parameters), plain(tool.parameters), tool.name, part, text)


@lru_cache(maxsize=2048)
def _cached_arguments(_sorted: str, schema_text: str, name: str, part: str, text: str) -> str:
    schema = json.loads(schema_text)
    return plain(_value(schema, part if part != text else text.split(name, 1)[-1] or text, text))


def _value(schema: JsonObject, part: str, text: str) -> Any:
    """Arguments for a schema: a JSON object written out in the text, else stated literals, else made up."""
    names = _property_names(schema)
    written = directives.whole_arguments(part) if "{" in part else None
    if isinstance(written, dict) and written.keys() <= names and is_valid(schema, written, schema):
        return written
    stated = directives.literals(part, names) or directives.literals(text, names)
    if not stated and (bare := directives.bare_value(part)) is not None:
        first = next(iter(schema.get("required", ())), None)
        stated = {} if first is None else {first: bare}
    try:
        made = value_for(schema, stated)
    except NoValue:
        return {}
    # `{}` as parameters allows anything; the arguments of a call are an object all the same
    return made if isinstance(made, dict) else {}


def _property_names(schema: JsonObject) -> set[str]:
    names: set[str] = set()
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(properties := node.get("properties"), dict):
                names.update(properties)
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return names


def _before_calls(request: ChatRequest, reply: Reply | None, text: str, calls: tuple[PlannedCall, ...]) -> str:
    """Text before the calls: the key's, or words the user quoted, or a short announcement when the model was free to
    answer.
    """
    if reply is not None:
        return reply.text if reply.tool is not None else ""
    if request.tool_choice != "auto":
        return ""
    return (
        directives.preamble(text) or f"I will use {' and '.join(dict.fromkeys(call.name for call in calls))} for this."
    )


# --- text ----------------------------------------------------------------------------------------------------------


def _json_text(request: ChatRequest, reply: Reply | None, text: str) -> str:
    schema = request.response_format.schema
    if not request.response_format.strict and isinstance(written := directives.whole_arguments(text), dict):
        return plain(written)
    if reply is not None:
        try:
            given = json.loads(reply.text)
        except ValueError:
            given = None
        if isinstance(given, dict) and (schema is None or is_valid(schema, given, schema)):
            return plain(given)
        if schema is None:
            return plain({"answer": reply.text})
    if schema is not None:
        try:
            return plain(_value(schema, text, text))
        except NoValue:
            return "{}"
    keys = directives.json_keys(text) or ["answer"]
    stated = directives.literals(text, keys)
    return plain({key: stated.get(key, "sample text") for key in keys})


def _free_text(request: ChatRequest, text: str, sampler: Sampler) -> str:
    results = _tool_results(request)
    if results:
        return "The tools returned: " + " | ".join(results)
    if (said := directives.echo(text)) is not None:
        return said
    if (wanted := directives.wants_random(text)) is not None:
        alphabet, size = wanted
        return "".join(sampler.pick(alphabet, text) for _ in range(size))
    for rule in (directives.counting, directives.arithmetic):
        if (result := rule(text)) is not None:
            return result
    question = text.rstrip().rsplit("\n", 1)[-1]
    if "?" in question[-200:] and (found := _from_context(request, text, question)) is not None:
        return found
    if (size_in_words := directives.word_count(question)) is not None:
        return words(size_in_words, text[:500])
    return prose(sampler, text[:500])


def _tool_results(request: ChatRequest) -> list[str]:
    results = []
    for message in reversed(request.messages):
        if message.role != "tool":
            break
        results.append(message.text[:4000])
    return results[::-1]


def _from_context(request: ChatRequest, text: str, question: str) -> str | None:
    asked = _last_question(question)
    before = text[: text.rfind(asked)] if asked in text else text
    last = request.last_user
    made = {call.id: call for message in request.messages for call in message.calls}
    contexts = [
        _told(message, made.get(message.tool_call_id))
        for message in request.messages
        if message is not last and message.role in ("user", "system", "tool")
    ]
    contexts = [context for context in (*contexts, before) if context.strip()]
    if not contexts or sum(map(len, contexts)) > _CONTEXT_LIMIT:
        return None
    return directives.statement_for(asked, contexts)


def _told(message: Message, call: PastCall | None) -> str:
    """What a message says; a short result with the call that it answers, as the template shows them side by side."""
    if call is None or len(message.text) > 1000 or "\n" in message.text:
        return message.text
    return f"{call.name} {call.arguments} gave {message.text}"


def _last_question(line: str) -> str:
    """The last sentence of a line that ends with a question mark."""
    end = line.rfind("?") + 1
    start = max(line.rfind(mark, 0, end - 1) for mark in (". ", "? ", "! ", ": "))
    return line[start + 2 if start >= 0 else 0 : end].strip()


# --- forced tokens ---------------------------------------------------------------------------------------------------


def with_bias(draft: Draft, request: ChatRequest, texts: dict[int, str]) -> Draft:
    """The effect of logit_bias: a token at +100 is the only one generated, one at -100 never is (the OpenAI API's
    rule).

    ``texts`` maps the ids that this server has shown to their tokens.
    """
    bias = dict(request.logit_bias)
    forced = next((token for token, value in bias.items() if value >= 100), None)
    if forced is not None:
        size = min(request.max_tokens or 16, 256)
        return Draft(content=texts.get(forced, " token") * size)
    banned = {texts[token] for token, value in bias.items() if value <= -100 and token in texts}
    if not banned:
        return draft
    return replace(draft, content="".join(token for token in tokenize(draft.content) if token not in banned))


def with_minimum(draft: Draft, request: ChatRequest) -> Draft:
    """The effect of min_tokens: the text goes on until the answer has that many tokens."""
    have = len(tokenize(draft.reasoning)) + len(tokenize(draft.content))
    missing = request.min_tokens - have
    if missing <= 0 or draft.calls:
        return draft
    return replace(draft, content=f"{draft.content} {words(missing, draft.content[:100])}".strip())
