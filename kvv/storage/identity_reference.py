"""What an endpoint answered to the prompts of `kvv identity`, in a file: the measure for later ones.

JSON Lines. A header, then one line for each prompt:

    {"kvv_identity": 1, "model": ..., "created": ..., "asked": {...}}
    {"prompt": 0, "texts": ["...", ...], "greedy": "..." or null, "distributions": [{token: probability}, ...]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvv.core.usage_error import ConfigError
from kvv.storage.files import replace_file

FORMAT = 1
MOST_BYTES = 64 * 2**20
_T = TypeVar("_T", bound=BaseModel)


@dataclass(slots=True, kw_only=True)
class PromptAnswers:
    """``greedy`` is None where the endpoint takes no temperature of 0; ``distributions`` is empty where it serves no
    log probabilities.
    """

    texts: list[str] = field(default_factory=list)
    greedy: str | None = None
    distributions: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityAnswers:
    """``asked``: what decides whether two files can be compared, JSON-like."""

    model: str
    created: str
    asked: Mapping[str, Any]
    prompts: Sequence[PromptAnswers]


class _Header(BaseModel):
    model_config = ConfigDict(extra="ignore")
    kvv_identity: int
    model: str = Field(max_length=500)
    created: str = Field(default="", max_length=100)
    asked: dict[str, Any] = {}


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore")
    prompt: int
    texts: list[str] = Field(max_length=1_000)
    greedy: str | None = None
    distributions: list[dict[str, float]] = Field(default=[], max_length=1_000)


def write_identity(path: Path, answers: IdentityAnswers) -> None:
    """Raises ConfigError naming --as-reference."""
    lines: list[dict[str, Any]] = [
        {"kvv_identity": FORMAT, "model": answers.model, "created": answers.created, "asked": dict(answers.asked)}
    ]
    for number, one in enumerate(answers.prompts):
        lines.append({"prompt": number, "texts": one.texts, "greedy": one.greedy, "distributions": one.distributions})
    try:
        replace_file(path, "".join(json.dumps(line) + "\n" for line in lines))
    except OSError as error:
        raise ConfigError(f"--as-reference: cannot write {path}: {error.strerror or error}") from error


def read_identity(path: Path, asked: Mapping[str, Any], prompts: int) -> IdentityAnswers:
    """A file of ``prompts`` prompts that were asked as ``asked``. ConfigError names file and line."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"--reference: {path} is larger than {MOST_BYTES // 2**20} MiB")
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--reference: cannot read {path}: {error}") from error
    header = _parsed(_Header, lines[0] if lines else "", f"{path}:1")
    if header.kvv_identity != FORMAT:
        raise ConfigError(f"--reference: {path}: format {header.kvv_identity} is not {FORMAT}")
    if different := [name for name in asked if header.asked.get(name) != asked[name]]:
        raise ConfigError(f"--reference: {path} was asked in another way: {different[0]} differs")
    found: dict[int, PromptAnswers] = {}
    for number, text in enumerate(lines[1:], 2):
        line = _parsed(_Line, text, f"{path}:{number}")
        if not 0 <= line.prompt < prompts or line.prompt in found:
            raise ConfigError(f"--reference: {path}:{number}: no such prompt, or one that stood before")
        found[line.prompt] = PromptAnswers(texts=line.texts, greedy=line.greedy, distributions=line.distributions)
    return IdentityAnswers(
        model=header.model,
        created=header.created,
        asked=header.asked,
        prompts=[found.get(number, PromptAnswers()) for number in range(prompts)],
    )


def _parsed(kind: type[_T], text: str, where: str) -> _T:
    try:
        return kind.model_validate_json(text)
    except (ValidationError, RecursionError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else "nested too deep"
        raise ConfigError(f"--reference: {where}: {what}") from None
