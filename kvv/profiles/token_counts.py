"""How many tokens a prompt has under the K3 template: its constant overheads, and the model's own tokeniser for the
texts.

The overheads reproduce the published constants 36, 119, 99 and (with the empty
think block that the chat path renders) 545. Every element's tag is text of its own and is counted by the tokeniser; the
notes that the template adds are constants, because their texts are the model's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from kvv.profiles.profile import Tokens

#: the opening and closing marks of an element: open, sep, close, name, sep
_ELEMENT = 5
#: a message ends with one more mark
_MESSAGE = 6

_HAN = r"[\p{Han}]+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#: the K2 family's pre-tokeniser, in its published order
PATTERN = "|".join(
    [
        _HAN,
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

_KINDS: Mapping[type, str] = {
    bool: "boolean",
    type(None): "null",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


class Tokenizer(Protocol):
    def count(self, text: str) -> int:
        """The number of tokens of a text in which nothing is special."""
        ...


@runtime_checkable
class Vocabulary(Protocol):
    """A tokeniser that also knows its tokens' ids."""

    def ids(self, text: str) -> Sequence[int]:
        """The ids of the text's tokens, in order; nothing in it is special."""
        ...


class Uncountable(ValueError):
    """A request whose count nobody published how to compute: images, partial messages, a named tool_choice."""


class Bpe:
    """A byte-pair encoding from merge ranks (token bytes -> rank). Needs the package ``tiktoken``."""

    def __init__(self, ranks: Mapping[bytes, int]) -> None:
        import tiktoken  # an extra: only --tokenizer needs it

        self._encoding = tiktoken.Encoding(
            name="given", pat_str=PATTERN, mergeable_ranks=dict(ranks), special_tokens={}
        )

    def count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))

    def ids(self, text: str) -> Sequence[int]:
        return self._encoding.encode_ordinary(text)


def count_each(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """The counts of many texts, on all processors where the tokeniser's own library leaves the interpreter's lock."""
    if not isinstance(tokenizer, Bpe | HubTokenizer):
        return [tokenizer.count(text) for text in texts]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(tokenizer.count, texts))


class HubTokenizer:
    """A Hugging Face ``tokenizer.json``. Needs the package ``tokenizers``; ValueError for a file that is none."""

    def __init__(self, definition: str) -> None:
        import tokenizers  # as above

        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(definition)
        except Exception as error:  # the library raises plain Exception for whatever is wrong with the file
            raise ValueError(f"no tokenizer.json: {' '.join(str(error).split())[:160]}") from error

    def count(self, text: str) -> int:
        return len(self.ids(text))

    def ids(self, text: str) -> Sequence[int]:
        found: Sequence[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return found


def prompt_tokens(
    body: Mapping[str, Any], overheads: Tokens, tokenizer: Tokenizer, *, default_effort: str | None, thinking: bool
) -> int:
    """``usage.prompt_tokens`` of a chat-completions body: everything rendered but the generation stub.

    ``thinking`` and ``default_effort`` hold where the body does not say. Raises Uncountable, also where the profile
    lacks an overhead.
    """
    return _Template(body, overheads, tokenizer, default_effort, thinking).total()


class _Template:
    def __init__(
        self,
        body: Mapping[str, Any],
        overheads: Tokens,
        tokenizer: Tokenizer,
        default_effort: str | None,
        thinking: bool,
    ) -> None:
        self._body = body
        self._overheads = overheads
        self._count = tokenizer.count
        self.thinking, self.effort = _switches(body, default_effort, thinking)

    def total(self) -> int:
        body = self._body
        total = self._of("generation")
        if body.get("tools"):
            total += self._of("global_tools") + self._json(body["tools"])
        if self.thinking and self.effort:
            if self.effort not in self._overheads.effort:
                raise Uncountable(f"effort {self.effort!r}")
            total += self._overheads.effort[self.effort]
        messages = body.get("messages", [])
        total += sum(self._message(message, messages[:at]) for at, message in enumerate(messages))
        return total + self._choice() + self._format()

    def _of(self, name: str) -> int:
        found = getattr(self._overheads, name)
        if found is None:
            raise Uncountable(f"the profile has no overhead {name}")
        return int(found)

    def _json(self, value: Any) -> int:
        """Key-sorted, compact, not escaped, with a newline behind it."""
        return self._count(json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n")

    def _choice(self) -> int:
        match self._body.get("tool_choice"):
            case None | "auto":
                return 0
            case "required":
                return self._of("required_note")
            case "none":
                return self._of("none_note")
        raise Uncountable("a named tool_choice")

    def _format(self) -> int:
        match self._body.get("response_format"):
            case None | {"type": "text"}:
                return 0
            case {"type": "json_object"}:
                return self._of("json_object_note")
            case {"type": "json_schema", "json_schema": {"schema": schema}}:
                return self._of("json_schema_note") + self._json(schema)
        raise Uncountable("an unknown response_format")

    def _message(self, message: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> int:
        if message.get("partial") or message.get("name"):
            raise Uncountable("a partial or named message")
        if message.get("tools"):
            return self._of("dynamic_tools") + self._json(message["tools"])
        role = message["role"]
        if role == "assistant":
            return self._assistant(message)
        if role == "tool":
            return self._result(message, before)
        return self._of("message") + self._content(message)

    def _content(self, message: Mapping[str, Any]) -> int:
        content = message.get("content")
        if isinstance(content, str):
            return self._count(content)
        total = 0
        for part in content or ():
            match part:
                case {"type": "text", "text": str(text)}:
                    total += self._count(text)
                case _:
                    raise Uncountable("a content part that is no text")
        return total

    def _assistant(self, message: Mapping[str, Any]) -> int:
        total = self._of("assistant") + self._content(message)
        reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
        if self.thinking:
            total += self._of("think_block") + (self._count(reasoning) if reasoning.strip() else 0)
        calls = message.get("tool_calls") or []
        if calls:
            total += _ELEMENT + self._count("tools")
        return total + sum(self._call(call["function"], at) for at, call in enumerate(calls, 1))

    def _call(self, function: Mapping[str, Any], index: int) -> int:
        total = _ELEMENT + self._count(f'call tool="{_attribute(function["name"])}" index="{index}"')
        return total + sum(
            _ELEMENT + self._count(f'argument key="{_attribute(key)}" type="{kind}"') + self._count(text)
            for key, kind, text in _arguments(function["arguments"])
        )

    def _result(self, message: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> int:
        for earlier in reversed(before):
            for index, call in enumerate(earlier.get("tool_calls") or [], 1):
                if call.get("id") == message.get("tool_call_id"):
                    tag = f'message role="tool" tool="{_attribute(call["function"]["name"])}" index="{index}"'
                    return _MESSAGE + self._count(tag) + self._content(message)
        raise Uncountable("a tool result without its call")


def _switches(body: Mapping[str, Any], default_effort: str | None, default: bool) -> tuple[bool, str | None]:
    """Whether the model thinks and how hard: ``thinking.effort`` wins over ``reasoning_effort``."""
    switch, kwargs = body.get("thinking") or {}, body.get("chat_template_kwargs") or {}
    thinking = default
    if switch.get("type") is not None:
        thinking = switch["type"] == "enabled"
    elif kwargs.get("thinking") is not None:
        thinking = bool(kwargs["thinking"])
    effort = switch.get("effort") or body.get("reasoning_effort") or kwargs.get("thinking_effort") or default_effort
    return thinking, effort if thinking else None


def _arguments(text: str) -> Iterator[tuple[str, str, str]]:
    """Key, type and rendered text of each argument; text that is no JSON object is one element of its own kind."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise Uncountable("arguments that are no JSON object")
    for key, value in arguments.items():
        yield key, _KINDS[type(value)], value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")
