"""What a model promises on a surface: parameters, thinking switches, markers, token overheads, sampling, default
suites.

Profiles are TOML files in ``fixtures/profiles``. A file describes the surface ``vendor``; tables under
``[surface.engine]`` or ``[surface.official]`` override it there. Facts come from the model's published
contract; each file names its source.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from kvv.core import Level, Surface

ThinkMode = Literal["none", "kimi", "opensource"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Prices(_Table):
    """US dollars per million tokens."""

    input: float
    cached: float
    output: float


class Thinking(_Table):
    """``mode`` is how the switch is sent: kimi (``thinking`` object), opensource (``chat_template_kwargs``), none."""

    supported: bool = False
    default: bool = False
    can_disable: bool = False
    mode: ThinkMode = "none"
    efforts: tuple[str, ...] = ()
    default_effort: str | None = None
    keep: bool = False
    kwargs_switch: str = "thinking"
    fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    inline: bool = False


class Markers(_Table):
    """Text that must never reach a client: special tokens, tool-call markers, think tags."""

    special: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    think: tuple[str, ...] = ()


class Wire(_Table):
    """What the stream promises beyond the OpenAI API. Regular expressions are for ``re.fullmatch``."""

    moonshot_stream: bool = False
    usage_headers: bool = False
    chat_id: str | None = None
    tool_id: str | None = None
    finish_reasons: tuple[str, ...] = ("stop", "length", "tool_calls", "content_filter")
    extended_finish_reasons: tuple[str, ...] = ()
    contiguous_phases: bool = False

    @field_validator("chat_id", "tool_id")
    @classmethod
    def _empty_means_none(cls, value: str | None) -> str | None:
        """TOML has no null: a surface withdraws a form with an empty string."""
        return value or None


class Tokens(_Table):
    """Template overheads in tokens; absent where unknown. ``stub`` is the generation stub some engines count."""

    stub: int = 0
    message: int | None = None
    assistant: int | None = None
    think_block: int | None = None
    effort: Mapping[str, int] = Field(default_factory=dict)
    required_note: int | None = None
    none_note: int | None = None
    json_object_note: int | None = None
    json_schema_note: int | None = None
    global_tools: int | None = None
    dynamic_tools: int | None = None
    generation: int | None = None


class Decoding(_Table):
    """The three parameter sets. Each entry is a table of request fields; ``thinking`` ("on" or "off") limits where it
    holds.

    ``reject_level``: whether refusing is a must or a should on this surface.
    """

    accepted: tuple[Mapping[str, Any], ...] = ()
    either: tuple[Mapping[str, Any], ...] = ()
    rejected: tuple[Mapping[str, Any], ...] = ()
    reject_level: Level = Level.SHOULD
    type_level: Level = Level.SHOULD
    stop_limit: int | None = None


class Sampling(_Table):
    """What a benchmark sends; None leaves a field out of the request.

    ``samples``, ``limit`` (questions) and ``variant`` (of the data) are per tier; ``tiers`` are those that ask the
    suite without its being named, all where empty; ``temperature_off`` holds while thinking is off.
    """

    temperature: float | None = None
    temperature_off: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stream: bool = True
    samples: Mapping[str, int] = Field(default_factory=dict)
    limit: Mapping[str, int] = Field(default_factory=dict)
    variant: Mapping[str, str] = Field(default_factory=dict)
    tiers: tuple[str, ...] = ()
    expect_completion_tokens: int = 2_000


class Claims(_Table):
    """Features the model claims; what is not claimed is SKIP, never FAIL."""

    tools: bool = True
    required: bool = True
    named: bool = False
    parallel: bool = True
    dynamic_tools: bool = False
    json_object: bool = True
    json_schema: bool = True
    vision: bool = False
    logprobs: bool = False
    n: bool = False
    partial: bool = False
    schema_extra: tuple[str, ...] = ()


class Profile(_Table):
    id: str
    title: str
    source: str
    surface: Surface = Surface.VENDOR
    match: tuple[str, ...] = ()
    context_window: int = 131_072
    prices: Prices | None = None
    thinking: Thinking = Thinking()
    markers: Markers = Markers()
    wire: Wire = Wire()
    tokens: Tokens = Tokens()
    decoding: Decoding = Decoding()
    claims: Claims = Claims()
    suites: tuple[str, ...] = ()
    sampling: Mapping[str, Sampling] = Field(default_factory=dict)

    def sampling_for(self, suite: str) -> Sampling:
        """The suite's own table over the table ``default``."""
        return self.sampling.get(suite) or self.sampling.get("default") or Sampling()

    def thinking_body(self, *, on: bool | None, effort: str | None, mode: ThinkMode | None = None) -> dict[str, Any]:
        """Request fields that switch thinking. ``on`` None leaves the switch to the endpoint's default.

        The two forms are those KVV sends: a ``thinking`` object (type, keep, effort), or
        ``chat_template_kwargs`` (thinking, preserve_thinking, thinking_effort). Its table has keep beside an effort
        only: without one the endpoint's own defaults hold, which are to keep all, at effort max (contract 2.2).
        """
        mode = self.thinking.mode if mode is None else mode
        if on is None or mode == "none" or not self.thinking.supported:
            return {}
        if mode == "kimi":
            if not on:
                return {"thinking": {"type": "disabled"}}
            thinking: dict[str, Any] = {"type": "enabled"}
            if self.thinking.keep and effort:
                thinking["keep"] = "all"
            if effort:
                thinking["effort"] = effort
            return {"thinking": thinking}
        kwargs: dict[str, Any] = {self.thinking.kwargs_switch: on}
        if on and self.thinking.keep and effort:
            kwargs["preserve_thinking"] = True
        if on and effort:
            kwargs["thinking_effort"] = effort
        return {"chat_template_kwargs": kwargs}


class ProfileError(ValueError):
    """A profile that does not exist or does not parse; the message is one line."""


def profile_ids() -> list[str]:
    """Ids of the shipped profiles, sorted."""
    return sorted(
        entry.name[:-5] for entry in files("kvv.profiles").joinpath("models").iterdir() if entry.name.endswith(".toml")
    )


@cache
def load_profile(name: str, surface: Surface = Surface.VENDOR) -> Profile:
    """The shipped profile ``name`` on ``surface``."""
    if name not in profile_ids():
        raise ProfileError(f"no profile {name!r}; known: {', '.join(profile_ids())}")
    table = tomllib.loads(files("kvv.profiles").joinpath("models", f"{name}.toml").read_text("utf-8"))
    overrides = table.pop("surface", {})
    merged = _merge(table, overrides.get(surface.value, {}))
    return Profile.model_validate({**merged, "id": name, "surface": surface})


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables merge key by key; everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def pick_profile(model: str) -> tuple[str, str]:
    """The profile id for a model's name and one clause that says why.

    The last path component, lower-cased, without a ``:suffix``, is compared with each profile's
    ``match`` prefixes; the longest match wins; ``openai`` promises only what the OpenAI API does.
    """
    name = re.sub(r"[:@].*$", "", model.strip().lower().rsplit("/", 1)[-1])
    best, prefix = "openai", ""
    for profile_id in profile_ids():
        for candidate in load_profile(profile_id).match:
            if name.startswith(candidate) and len(candidate) > len(prefix):
                best, prefix = profile_id, candidate
    if prefix:
        return best, f"the model's name begins with {prefix!r}"
    return best, f"no profile knows the model {model!r}: only what the OpenAI API promises is checked"
