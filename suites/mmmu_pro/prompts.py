"""Which questions are asked and how they are put: the parts of ``--variant`` that this suite knows, and the prompts'
texts.

A variant is a config and a prompt, in any order, joined by ``/``: ``vision``, ``official``, ``official/standard4``,
``official/direct``. Config: ``standard10`` (default; what KVV calls vision), ``standard4``, ``vision``. Prompt: ``kvv``
(default) or ``official``; and with ``official`` alone ``direct`` instead of thinking step by step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvv.core import Picture
from kvv.suites.mmmu_pro.parsing import letters

CONFIGS = ("standard10", "standard4", "vision")
PROMPTS = ("kvv", "official")
#: answers that somebody else recorded: how they were asked is not known
RECORDED = "recorded"
COLUMNS = tuple(f"image_{number}" for number in range(1, 8))
#: pictures of one question; one row of the public set names its pictures thirty-five times
MAX_PICTURES = 64

# the prompts' wording is the benchmark's own: VLMEvalKit's, which KVV sends, and mmmu-pro/prompts.yaml
_FORMAT = (
    "The last line of your response should be of the following format: 'Answer: $LETTER' (without quotes) where LETTER"
    " is one of "
)
_STEPS = " Think step by step before answering."
KVV_STANDARD = f"Answer the following multiple-choice question. {_FORMAT}the options.{_STEPS}"
OFFICIAL_STANDARD = f"Answer the preceding multiple choice question. {_FORMAT}options.{_STEPS}"
OFFICIAL_VISION = f"Write out the multiple-choice question in the image and then solve it. {_FORMAT}options.{_STEPS}"
DIRECT_STANDARD = "Answer with the option letter from the given choices directly."
DIRECT_VISION = f"{DIRECT_STANDARD} {_FORMAT}options."

_TOKEN = re.compile(r"<image\s+([0-9]{1,2})>")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptVariant:
    config: str = "standard10"
    prompt: str = "kvv"
    direct: bool = False

    @property
    def sentence(self) -> str:
        """For the report."""
        if self.prompt == RECORDED:
            return "as recorded; the file does not say how its answers were asked"
        if self.config == "vision":
            layout = "the picture" if self.prompt == "kvv" else "the instruction, then the picture"
            return f"{layout}; official {'direct' if self.direct else 'step-by-step'} instruction for the vision config"
        if self.prompt == "kvv":
            return "KVV: pictures in column order, then question, options and instruction, the tokens <image n> kept"
        return (
            f"official {'direct' if self.direct else 'step-by-step'}: text with <image> for each token, then the"
            " pictures in order of appearance"
        )


def parse_variant(text: str) -> PromptVariant:
    """ValueError for a part that is not known, or two of one kind."""
    parts = [part for part in re.split(r"[/+]", text.strip().lower()) if part]
    if RECORDED in parts and set(parts) <= {RECORDED, *CONFIGS}:
        return PromptVariant(config=next((part for part in parts if part != RECORDED), CONFIGS[0]), prompt=RECORDED)
    parts = ["standard10" if part == "standard" else part for part in parts]
    unknown = [part for part in parts if part not in (*CONFIGS, *PROMPTS, "direct", "cot")]
    if unknown:
        raise ValueError(
            f"mmmu_pro knows {', '.join((*CONFIGS, *PROMPTS, 'direct'))}, joined by /; not {unknown[0]!r:.40}"
        )
    configs, prompts = [part for part in parts if part in CONFIGS], [part for part in parts if part in PROMPTS]
    if len(set(configs)) > 1 or len(set(prompts)) > 1 or {"direct", "cot"} <= set(parts):
        raise ValueError(f"mmmu_pro: {text!r:.60} names two of one kind")
    found = PromptVariant(
        config=(configs or ["standard10"])[0], prompt=(prompts or ["kvv"])[0], direct="direct" in parts
    )
    if found.direct and found.prompt == "kvv":
        raise ValueError("mmmu_pro: KVV has no direct prompt; say official/direct")
    return found


def instruction(variant: PromptVariant) -> str:
    if variant.config == "vision":
        return DIRECT_VISION if variant.direct else OFFICIAL_VISION
    if variant.prompt == "kvv":
        return KVV_STANDARD
    return DIRECT_STANDARD if variant.direct else OFFICIAL_STANDARD


def question_text(row: Mapping[str, Any], options: Sequence[str]) -> str:
    """The question and its lettered options, one a line."""
    lines = [f"{letter}. {option}" for letter, option in zip(letters(len(options)), options, strict=True)]
    return "\n".join([str(row.get("question") or ""), *lines])


def content(row: Mapping[str, Any], options: Sequence[str], variant: PromptVariant) -> list[dict[str, Any]]:
    """The user message's parts; pictures stand as ``Picture`` in ``image_url.url``."""
    if variant.config == "vision" and variant.prompt != RECORDED:
        told = {"type": "text", "text": instruction(variant)}
        shown = [_part(picture) for picture in (row.get("image"),) if picture is not None]
        return [*shown, told] if variant.prompt == "kvv" else [told, *shown]
    text = question_text(row, options)
    if variant.prompt == RECORDED:
        return [{"type": "text", "text": text}]
    if variant.prompt == "kvv":
        return [*map(_part, in_columns(row)), {"type": "text", "text": f"{text}\n\n{instruction(variant)}"}]
    return [
        {"type": "text", "text": f"{_TOKEN.sub('<image>', text)}\n{instruction(variant)}"},
        *map(_part, as_they_appear(row, text)),
    ]


def _part(picture: Picture) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": picture}}


def in_columns(row: Mapping[str, Any]) -> list[Picture]:
    return [row[column] for column in COLUMNS if row.get(column) is not None]


def as_they_appear(row: Mapping[str, Any], text: str) -> list[Picture]:
    """A picture for each token of question and options, again where a token is repeated; all of them where the text
    names none.

    A token without a picture is passed over. ValueError above ``MAX_PICTURES``.
    """
    tokens = [f"image_{int(number)}" for number in _TOKEN.findall(text)]
    if not tokens:
        return in_columns(row)
    found = [row[column] for column in tokens if row.get(column) is not None]
    if len(found) > MAX_PICTURES:
        raise ValueError(f"shows {len(found)} pictures, more than {MAX_PICTURES}")
    return found


def pieces(text: str) -> list[str]:
    """The text between its tokens: what stays the same in every variant."""
    return [piece for piece in (part.strip() for part in _TOKEN.sub("\0", text).split("\0")) if piece]
