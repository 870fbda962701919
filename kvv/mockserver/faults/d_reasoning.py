"""Group d: reasoning and answer that end up in each other's place."""

from dataclasses import replace

from kvv.mockserver.content.completion import DraftChoice
from kvv.mockserver.content.tokens import tokenize
from kvv.mockserver.faults.edits import each, raw_section, with_content
from kvv.mockserver.faults.model import ServerFault, Turn


def _answer_as_reasoning(turn: Turn, choice: DraftChoice) -> DraftChoice:
    if turn.request is None or turn.request.thinking:
        return choice
    return replace(choice, reasoning=choice.content, content=())


def _inline_think(_turn: Turn, choice: DraftChoice) -> DraftChoice:
    if not choice.reasoning:
        return choice
    return with_content(replace(choice, reasoning=()), f"<think>{''.join(choice.reasoning)}</think>{choice.text}")


def _never_opened(_turn: Turn, choice: DraftChoice) -> DraftChoice:
    """The parser waits for an opening tag that stands in the prompt, so all text is content."""
    if not choice.reasoning:
        return choice
    return with_content(replace(choice, reasoning=()), f"{''.join(choice.reasoning)}</think>{choice.text}")


def _lost_close_tag(turn: Turn, choice: DraftChoice) -> DraftChoice:
    """Without the close tag everything after it, calls included, stays reasoning."""
    if turn.number < 2 or not choice.calls:
        return choice
    text = "".join(choice.reasoning) + choice.text + raw_section(choice.calls)
    return replace(choice, reasoning=tuple(tokenize(text)), content=(), calls=(), finish="stop")


FAULTS = (
    ServerFault(
        id="D04",
        group="d",
        summary="with thinking off the answer comes as reasoning",
        mode="both",
        areas=("reasoning",),
        on_choices=each(_answer_as_reasoning),
    ),
    ServerFault(
        id="D06",
        group="d",
        summary="a think block stands in content",
        mode="both",
        areas=("reasoning",),
        on_choices=each(_inline_think),
    ),
    ServerFault(
        id="D09",
        group="d",
        summary="reasoning is content, the close tag with it",
        mode="both",
        areas=("reasoning",),
        on_choices=each(_never_opened),
    ),
    ServerFault(
        id="D10",
        group="d",
        summary="as D09, with Kimi's parser",
        mode="both",
        areas=("reasoning",),
        on_choices=each(_never_opened),
    ),
    ServerFault(
        id="D14",
        group="d",
        summary="from the second turn on the think close tag is lost and calls stay reasoning",
        mode="stream",
        areas=("reasoning", "tools"),
        on_choices=each(_lost_close_tag),
    ),
)
