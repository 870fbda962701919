"""Group f: prompts that are rendered or counted wrongly."""

from dataclasses import replace

from kvv.mockserver.content.completion import Usage
from kvv.mockserver.content.prompt import Rendering
from kvv.mockserver.faults.edits import body_images
from kvv.mockserver.faults.model import ServerFault, Turn


def _one_more(_turn: Turn, rendering: Rendering) -> Rendering:
    return replace(rendering, extra_tokens=rendering.extra_tokens + 1)


def _one_more_with_images(turn: Turn, rendering: Rendering) -> Rendering:
    return _one_more(turn, rendering) if body_images(turn.body) else rendering


def _empty_as_parts(_turn: Turn, rendering: Rendering) -> Rendering:
    return replace(rendering, empty_as_parts=True)


def _no_prompt_tokens(_turn: Turn, usage: Usage) -> Usage:
    return replace(usage, prompt=0, cached=0)


def _ids_rendered(_turn: Turn, rendering: Rendering) -> Rendering:
    return replace(rendering, history_ids=True)


FAULTS = (
    ServerFault(
        id="F01", group="f", summary="one prompt token too many", mode="both", areas=("usage",), on_rendering=_one_more
    ),
    ServerFault(
        id="F02",
        group="f",
        summary="one prompt token too many with images",
        mode="both",
        areas=("usage", "vision"),
        on_rendering=_one_more_with_images,
    ),
    ServerFault(
        id="F05",
        group="f",
        summary="empty text is rendered as a list of parts",
        mode="both",
        areas=("usage",),
        on_rendering=_empty_as_parts,
    ),
    ServerFault(
        id="F10", group="f", summary="prompt_tokens is 0", mode="both", areas=("usage",), on_usage=_no_prompt_tokens
    ),
    ServerFault(
        id="F12",
        group="f",
        summary="history call ids are rendered as sent",
        mode="both",
        areas=("usage",),
        on_rendering=_ids_rendered,
    ),
)
