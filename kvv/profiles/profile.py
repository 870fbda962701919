"""What a model promises on a surface: parameters, thinking switches, markers, token overheads, sampling, default
suites.

Profiles are TOML files: those that ship in ``models/``, those of other packages (entry-point group ``kvv.profiles``:
``NAME.toml`` beside the module), and files of the user's own. A file describes the surface ``vendor``; tables under
``[surface.engine]`` or ``[surface.official]`` override it there. Facts come from the model's published
contract; each file names its sources and the day on which they were read.

``extends`` names a known profile: its tables hold where the file says nothing else. What tells a model from its
relatives (``OWN``) is never inherited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kvv.core import Level, Surface
from kvv.core.plugins import PROFILES, find_entry_points, folder_of
from kvv.core.toml_text import TomlError, parse_toml
from kvv.profiles.names import begins_alike, length_of_match

#: the mode that sends no switch
NO_SWITCH = "none"
#: stands in a body for the effort's own name
EFFORT = "@effort"
#: the profile of models that no other knows
DEFAULT = "openai"
#: keys that a profile does not take from the one that it extends
OWN = ("title", "source", "sources", "checked", "match", "prices", "calibrated")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Prices(_Table):
    """US dollars per million tokens."""

    input: float
    cached: float
    output: float


class ThinkForm(_Table):
    """Request fields that switch thinking, as one mode sends them.

    ``effort`` has the fields that switch it on at an effort, by the effort's name; ``*`` is for all others, and the
    string ``@effort`` in it stands for the name. Without an entry ``on`` is sent.
    """

    on: Mapping[str, Any] = Field(default_factory=dict)
    off: Mapping[str, Any] = Field(default_factory=dict)
    effort: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)

    def body(self, *, on: bool, effort: str | None) -> dict[str, Any]:
        """The fields to send; nested values are shared with the profile."""
        if not on:
            return dict(self.off)
        form = self.effort.get(effort, self.effort.get("*")) if effort else None
        return dict(self.on) if form is None else {name: _named(value, effort) for name, value in form.items()}


def _named(value: Any, effort: str | None) -> Any:
    if isinstance(value, Mapping):
        return {name: _named(item, effort) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_named(item, effort) for item in value]
    return effort if value == EFFORT else value


class Thinking(_Table):
    """``mode`` names the form in which the switch is sent, one of ``modes``, or ``none``. ``efforts`` is what
    ``--effort`` may name, lowest first; ``keep``: reasoning of earlier turns reaches the model.
    """

    supported: bool = False
    default: bool = False
    can_disable: bool = False
    mode: str = NO_SWITCH
    modes: Mapping[str, ThinkForm] = Field(default_factory=dict)
    efforts: tuple[str, ...] = ()
    default_effort: str | None = None
    keep: bool = False
    fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    inline: bool = False

    @model_validator(mode="after")
    def _named_ones_exist(self) -> Thinking:
        if self.mode not in self.mode_names:
            raise ValueError(f"mode {self.mode!r} is not among the modes: {', '.join(self.mode_names)}")
        if self.default_effort is not None and self.default_effort not in self.efforts:
            raise ValueError(f"default_effort {self.default_effort!r} is not among the efforts")
        return self

    @property
    def mode_names(self) -> tuple[str, ...]:
        """What ``--think-mode`` may name."""
        return (NO_SWITCH, *self.modes)


class Markers(_Table):
    """Text that must never reach a client: special tokens, tool-call markers, think tags."""

    special: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    think: tuple[str, ...] = ()


class Wire(_Table):
    """What the stream promises beyond the OpenAI API. Regular expressions are for ``re.fullmatch``.

    ``history_id_length``: ids of calls in a history must be so many letters and digits (mistral-common).
    """

    moonshot_stream: bool = False
    usage_headers: bool = False
    chat_id: str | None = None
    tool_id: str | None = None
    finish_reasons: tuple[str, ...] = ("stop", "length", "tool_calls", "content_filter")
    extended_finish_reasons: tuple[str, ...] = ()
    contiguous_phases: bool = False
    history_id_length: int | None = Field(default=None, ge=1, le=32)

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

    ``reject_level``: whether refusing is a must or a should on this surface. ``warned``: entries of ``accepted`` and
    ``rejected`` that are a should whatever their level.
    """

    accepted: tuple[Mapping[str, Any], ...] = ()
    either: tuple[Mapping[str, Any], ...] = ()
    rejected: tuple[Mapping[str, Any], ...] = ()
    warned: tuple[Mapping[str, Any], ...] = ()
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
    """Features the model claims; what is not claimed is SKIP, never FAIL.

    ``context_window``: its size is known; ``error_object``: errors are ``{"error": {...}}``; ``error_type``: with a
    documented ``type``; ``default_temperature``: a request without one is sampled at the documented value.
    ``contracts`` are published contracts that hold as a whole: ``openai`` (the OpenAI API), ``moonshot`` (Moonshot's
    platform), ``kimi-k3`` (what is published of K3 alone), ``k3-token-counts``, ``k2-tool-ids``.

    ``second_hand`` lists claims whose source is not the model's owner, or was not read there: what fails of them is a
    warning. ``not_thinking`` lists claims that hold only while the model does not think.
    """

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
    context_window: bool = True
    error_object: bool = True
    error_type: bool = False
    default_temperature: bool = False
    contracts: tuple[str, ...] = ()
    schema_extra: tuple[str, ...] = ()
    second_hand: tuple[str, ...] = ()
    not_thinking: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _listed_ones_are_claims(self) -> Claims:
        features = Claims.model_fields.keys() - {"contracts", "schema_extra", "second_hand", "not_thinking"}
        for listed in ("second_hand", "not_thinking"):
            if unknown := set(getattr(self, listed)) - features:
                raise ValueError(f"{listed}: no claim is called {min(unknown)!r:.60}")
        return self


class Measured(_Table):
    """What an official endpoint did with one probe, all rounds together; who was not answered is not counted.

    ``answered`` of ``asked`` were answered (the others refused); ``obeyed`` of those did what was asked for, None where
    nothing shows it. ``fields`` and ``thinking`` are the parameters that were probed, ``values`` the numbers that were
    read (tokens, limits), ``texts`` the names (fields, forms of ids). ``rounds`` are the times of the measurements,
    ISO 8601 in UTC.
    """

    fact: str = Field(pattern=r"^[a-z0-9][a-z0-9_./-]{0,119}$")
    asked: int = Field(ge=1)
    answered: int = Field(ge=0)
    obeyed: int | None = Field(default=None, ge=0)
    fields: Mapping[str, Any] = Field(default_factory=dict)
    thinking: Literal["", "on", "off"] = ""
    values: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    rounds: tuple[datetime, ...] = ()


class OfficialFailure(_Table):
    """A case or wire rule that the official endpoint itself fails: in ``seen`` of ``asked`` measurements."""

    id: str = Field(min_length=1, max_length=200)
    seen: int = Field(ge=1)
    asked: int = Field(ge=1)
    rounds: tuple[datetime, ...] = ()


class Calibrated(_Table):
    """Where a profile was measured. ``claims`` are those that the measurement added; they and new parameters warn until
    a person signs (``signed_by``, ``signed_on``), and again once the file has expired. ``parameters``: the parameter
    sets are measured, not the extended profile's.
    """

    base_url: str
    model: str
    kvv: str
    expires: date
    signed_by: str = Field(default="", max_length=200)
    signed_on: date | None = None
    claims: tuple[str, ...] = ()
    parameters: bool = False
    evidence: tuple[Measured, ...] = ()
    fails: tuple[OfficialFailure, ...] = ()

    def binds(self, today: date) -> bool:
        """A person vouches for what was measured, and it is not too old."""
        return bool(self.signed_by.strip()) and self.signed_on is not None and today <= self.expires


class Profile(_Table):
    id: str
    title: str
    source: str
    sources: tuple[str, ...] = ()
    checked: date | None = None
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
    calibrated: Calibrated | None = None

    def as_of(self, today: date) -> Profile:
        """The profile with what its calibration makes a must on this day; bare engines are held to nothing of it."""
        measured = self.calibrated
        if measured is None or not measured.binds(today) or self.surface is Surface.ENGINE:
            return self
        soft = tuple(claim for claim in self.claims.second_hand if claim not in measured.claims)
        changed: dict[str, Any] = {"claims": self.claims.model_copy(update={"second_hand": soft})}
        if measured.parameters:
            held = {"warned": (), "reject_level": Level.MUST}
            changed["decoding"] = self.decoding.model_copy(update=held)
        return self.model_copy(update=changed)

    def sampling_for(self, suite: str) -> Sampling:
        """The suite's own table over the table ``default``."""
        return self.sampling.get(suite) or self.sampling.get("default") or Sampling()

    def thinking_body(self, *, on: bool | None, effort: str | None, mode: str | None = None) -> dict[str, Any]:
        """Request fields that switch thinking. ``on`` None leaves the switch to the endpoint's default; ProfileError
        for a mode that the profile does not list.
        """
        mode = self.thinking.mode if mode is None else mode
        if on is None or mode == NO_SWITCH or not self.thinking.supported:
            return {}
        if mode not in self.thinking.modes:
            raise ProfileError(f"the profile {self.id} has no think mode {mode!r:.60}")
        return self.thinking.modes[mode].body(on=on, effort=effort)


class ProfileError(ValueError):
    """A profile that does not exist or does not parse; the message is one line."""


def shipped_profiles() -> list[str]:
    """Ids of our own profiles, sorted."""
    return list(_shipped())


@cache
def _shipped() -> tuple[str, ...]:
    folder = files("kvv.profiles").joinpath("models")
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml")))


def profile_ids() -> list[str]:
    """Ids of the shipped profiles and of those of other packages, sorted."""
    return sorted([*shipped_profiles(), *plugged_profiles()[0]])


@cache
def plugged_profiles() -> tuple[Mapping[str, str], list[str]]:
    """Other packages' profiles, id -> TOML text; and one line for each that cannot be used."""
    found: dict[str, str] = {}
    entries, broken = find_entry_points(PROFILES)
    for entry in entries:
        try:
            if entry.name in {*shipped_profiles(), *found}:
                raise ProfileError("there is another profile of this name")
            folder = folder_of(PROFILES, entry.name)
            if folder is None:
                raise ProfileError("its module cannot be found")
            text = (folder / f"{entry.name}.toml").read_text("utf-8")
            parse_profile(text, f"{entry.name}.toml", entry.name, find=_shipped_text)
        except (ProfileError, OSError, UnicodeDecodeError) as error:
            broken.append(f"profile {entry.name!r} ({entry.value}): {error}")
        else:
            found[entry.name] = text
    return found, broken


@cache
def load_profile(name: str, surface: Surface = Surface.VENDOR) -> Profile:
    """The profile with this id on ``surface``, shipped or another package's."""
    text = _known_text(name)
    if text is None:
        raise ProfileError(f"no profile {name!r}; known: {', '.join(profile_ids())}")
    return parse_profile(text, f"{name}.toml", name, surface)


def _known_text(name: str) -> str | None:
    """The TOML text of a profile by its id."""
    if name in _shipped():
        return files("kvv.profiles").joinpath("models", f"{name}.toml").read_text("utf-8")
    return plugged_profiles()[0].get(name)


def _shipped_text(name: str) -> str | None:
    return _known_text(name) if name in _shipped() else None


def find_profile(name: str, surface: Surface = Surface.VENDOR) -> Profile:
    """A profile by its id, or a file by its path (its id is the file's name without ``.toml``)."""
    if name in profile_ids():
        return load_profile(name, surface)
    path = Path(name)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        raise ProfileError(f"{name!r:.200} is no file and no profile; known: {', '.join(profile_ids())}") from None
    profile_id = re.sub(r"[^a-z0-9._-]+", "-", path.name.removesuffix(".toml").lower()).strip("-.") or "profile"
    if profile_id in profile_ids():
        raise ProfileError(f"{name!r:.200} has the name of the known profile {profile_id}; rename the file")
    return parse_profile(text, path.name, profile_id, surface)


def parse_profile(
    text: str,
    origin: str,
    profile_id: str,
    surface: Surface = Surface.VENDOR,
    *,
    find: Callable[[str], str | None] | None = None,
) -> Profile:
    """A profile from TOML text; ``origin`` is the file's name for the error. ProfileError names the key.

    ``find`` gives the text of a profile that is extended, None for one that is unknown; by default any known one.
    """
    try:
        table = _inherit(text, origin, profile_id, find or _known_text)
        overrides = table.pop("surface", {})
        own = overrides.get(surface.value, {}) if isinstance(overrides, dict) else None
        if not isinstance(own, dict):
            raise ProfileError(f"{origin}: surface: must hold tables")
        if unknown := set(overrides) - {each.value for each in Surface}:
            raise ProfileError(f"{origin}: surface: unknown surface {sorted(unknown)[0]!r:.60}")
        return Profile.model_validate({**_merge(table, own), "id": profile_id, "surface": surface})
    except TomlError as error:
        raise ProfileError(f"{origin}: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "profile"
        raise ProfileError(f"{origin}: {where}: {first['msg'].removeprefix('Value error, ')}") from None


def _inherit(
    text: str, origin: str, profile_id: str, find: Callable[[str], str | None], seen: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The file's table over the tables of all that it extends."""
    try:
        table = parse_toml(text)
    except TomlError as error:
        raise ProfileError(f"{origin}: {error}") from None
    if "extends" not in table:
        return table
    parent = table.pop("extends")
    if not isinstance(parent, str):
        raise ProfileError(f"{origin}: extends: must be the id of a profile")
    line = (*seen, profile_id)
    if parent in line:
        raise ProfileError(f"{origin}: extends: {' extends '.join((*line, parent))}, which is a circle")
    inherited = find(parent)
    if inherited is None:
        known = ", ".join(_shipped())
        raise ProfileError(f"{origin}: extends: no profile {parent!r:.60}; known: {known}")
    base = _inherit(inherited, f"{parent}.toml", parent, find, line)
    merged = _merge({key: value for key, value in base.items() if key not in OWN}, table)
    thinking = table.get("thinking")
    modes = thinking.get("modes") if isinstance(thinking, dict) else None
    if isinstance(modes, dict):  # a mode's fields are sent together: those of the parent's form do not mix in
        merged["thinking"]["modes"] |= modes
    return merged


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables merge key by key; everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def pick_profile(model: str) -> tuple[str, str]:
    """The profile id for a model's name and one clause that says why.

    Each profile's ``match`` lists patterns (``kvv.profiles.names``); the longest that explains the name wins. A name
    that none explains, or two profiles equally, gets ``openai``, which promises only what the OpenAI API does.
    """
    patterns = [(name, pattern) for name in profile_ids() for pattern in load_profile(name).match]
    explained = [(length_of_match(pattern, model), name, pattern) for name, pattern in patterns]
    longest = max((length for length, _, _ in explained), default=0)
    found = {name: pattern for length, name, pattern in explained if length == longest and length}
    if len(found) == 1:
        [(name, pattern)] = found.items()
        return name, f"the model's name begins with {pattern!r}"
    alike = [(begins_alike(pattern, model), name) for name, pattern in patterns]
    nearest = max((length for length, _ in alike), default=0)
    near = sorted(found or {name for length, name in alike if length == nearest and length})
    hint = f"; if it is one of these, say so: {', '.join(f'--profile {name}' for name in near)}" if near else ""
    return DEFAULT, f"no profile knows the model {model!r:.300}: only what the OpenAI API promises is checked{hint}"


def another_model(theirs: str, model: str, profile: Profile) -> str:
    """Why official results of ``theirs`` are no measure for ``model`` under ``profile``; "" where they may be one.

    A name that no profile knows may be the same model under a vendor's own name; a profile from a file is not known by
    any name, so that the names must be equal.
    """
    picked, reason = pick_profile(theirs)
    from_file = profile.id not in profile_ids()
    fits = picked in (profile.id, DEFAULT) or (from_file and theirs == model)
    return "" if fits else reason
