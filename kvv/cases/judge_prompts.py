"""A judge's prompts in somebody's own words, with places for what is to be judged.

A place is written ``{name}`` or, where the prompt has none of these, ``<name>`` as in the official repository. Texts
are put in all at once, so that no text can hold a place for another one.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

#: a place's spellings -> what is put there
PLACES: Mapping[str, str] = {
    "question": "question",
    "rubric_item": "rubric",
    "rubric_items": "rubric",
    "rubric": "rubric",
    "reference": "rubric",
    "llm_response": "answer",
    "response": "answer",
    "answer": "answer",
}
#: what each prompt must have a place for
NEEDED: Mapping[str, frozenset[str]] = {
    "item": frozenset({"rubric", "answer"}),
    "order": frozenset({"rubric", "answer"}),
    "question": frozenset({"question"}),
}
#: constants of the official repository's src/prompts.py, and the prompt that each is
OFFICIAL: Mapping[str, str] = {"unified_llm_judge_base_prompt": "item"}

_NAMES = "|".join(sorted(PLACES, key=len, reverse=True))
_BRACED, _TAGGED = re.compile(rf"\{{({_NAMES})\}}"), re.compile(rf"<({_NAMES})>")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePrompts:
    """``item`` grades one requirement, ``order`` a whole order; ``question`` is how the question is put to the model.
    "" for one that was not given.
    """

    item: str = ""
    order: str = ""
    question: str = ""

    @property
    def sha256(self) -> str:
        return hashlib.sha256("\0".join((self.item, self.order, self.question)).encode()).hexdigest()

    @property
    def given(self) -> list[str]:
        return [name for name in NEEDED if getattr(self, name)]


def checked(prompts: Mapping[str, str]) -> JudgePrompts:
    """ValueError for an unknown or empty prompt, for one that lacks a place, and for none at all."""
    for name, text in prompts.items():
        if name not in NEEDED:
            raise ValueError(f"no prompt {name!r:.40}; known: {', '.join(NEEDED)}")
        lacking = sorted(NEEDED[name] - {PLACES[found[1]] for found in _places(text).finditer(text)})
        if lacking:
            spelled = [place for place, meaning in PLACES.items() if meaning == lacking[0]]
            raise ValueError(
                f"the prompt {name!r} has no place for the {lacking[0]}: write one of "
                + ", ".join(f"{{{place}}}" for place in spelled)
            )
    if not prompts:
        raise ValueError(f"holds no prompt; known: {', '.join(NEEDED)}")
    return JudgePrompts(**prompts)


def fill(prompt: str, texts: Mapping[str, str]) -> str:
    """``texts`` is by meaning: question, rubric, answer. A place without a text stays as it is."""
    places = _places(prompt)
    # a template for str.format doubles its other braces
    doubled = places is _BRACED and "{{" in prompt and not re.search(r"[{}]", _BRACED.sub("", _twice(prompt)))
    found, end = [], 0
    for place in places.finditer(prompt):
        found += [_once(prompt[end : place.start()], doubled), texts.get(PLACES[place[1]], place[0])]
        end = place.end()
    return "".join([*found, _once(prompt[end:], doubled)])


def _places(prompt: str) -> re.Pattern[str]:
    return _BRACED if _BRACED.search(prompt) else _TAGGED


def _twice(prompt: str) -> str:
    """The prompt without its doubled braces."""
    return prompt.replace("{{", "").replace("}}", "")


def _once(text: str, doubled: bool) -> str:
    return text.replace("{{", "{").replace("}}", "}") if doubled else text


def python_constants(source: str) -> dict[str, str]:
    """The prompts among a Python file's top-level constants, under the official or our own names. Nothing is run.
    ValueError for what is no Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"is no Python that can be read: {error}") from None
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for target in node.targets:
                name = target.id if isinstance(target, ast.Name) else ""
                name = OFFICIAL.get(name, name)
                if name in NEEDED:
                    found[name] = node.value.value
    return found


__all__ = ["NEEDED", "JudgePrompts", "checked", "fill", "python_constants"]
