"""A completion within its limits: tokens of every part, finish reasons, ids and usage."""

from dataclasses import dataclass

from kvv.mockserver.content.compose import Draft
from kvv.mockserver.content.tokens import tokenize
from kvv.mockserver.validation.request import ChatRequest

Tokens = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call as it goes out. The name costs one token; ``arguments`` are the tokens of the JSON text."""

    id: str
    name: str
    arguments: Tokens

    @property
    def text(self) -> str:
        return "".join(self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftChoice:
    """One choice as it goes out; joined tokens are the texts."""

    index: int
    reasoning: Tokens = ()
    content: Tokens = ()
    calls: tuple[Call, ...] = ()
    finish: str = "stop"

    @property
    def text(self) -> str:
        return "".join(self.content)

    @property
    def tokens(self) -> int:
        return len(self.reasoning) + len(self.content) + sum(1 + len(call.arguments) for call in self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of a completion, over all its choices."""

    prompt: int
    cached: int
    completion: int
    reasoning: int

    @property
    def total(self) -> int:
        return self.prompt + self.completion


def apply_limits(
    draft: Draft, request: ChatRequest, *, index: int, ids: tuple[str, ...], cap: int | None, named_finish: str
) -> DraftChoice:
    """The draft with stop strings and the token cap applied, as the engine would have stopped.

    Stop strings are looked for in the content only and are not shown. An answer that reaches the cap ends with
    ``length``, also when nothing was left to say. ``named_finish`` is the reason after a named tool choice.
    """
    content, stopped = _until_stop(draft.content, request.stop)
    calls = () if stopped else draft.calls
    finish = "tool_calls" if calls else "stop"
    if calls and request.tool_choice == "named":
        finish = named_finish
    choice = DraftChoice(
        index=index,
        reasoning=tuple(tokenize(draft.reasoning)),
        content=tuple(tokenize(content)),
        calls=tuple(
            Call(id=ids[at], name=call.name, arguments=tuple(tokenize(call.arguments))) for at, call in enumerate(calls)
        ),
        finish=finish,
    )
    return choice if cap is None or choice.tokens < cap else cut(choice, cap)


def _until_stop(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    found = [at for at in (text.find(stop) for stop in stops) if at >= 0]
    return (text[: min(found)], True) if found else (text, False)


def cut(choice: DraftChoice, cap: int) -> DraftChoice:
    """The first ``cap`` tokens of a choice, with finish reason ``length``."""
    left = cap
    reasoning = choice.reasoning[:left]
    left -= len(reasoning)
    content = choice.content[:left]
    left -= len(content)
    calls: list[Call] = []
    for call in choice.calls:
        if left <= 0:
            break
        calls.append(Call(id=call.id, name=call.name, arguments=call.arguments[: left - 1]))
        left -= 1 + len(calls[-1].arguments)
    return DraftChoice(index=choice.index, reasoning=reasoning, content=content, calls=tuple(calls), finish="length")
