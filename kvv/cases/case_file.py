"""Case files (``suites/*/cases.toml``): their form, and how they are read.

Values that begin with ``@`` are not sent as they stand:

* the string ``"@name"`` stands for a snippet of the file, a variable of an ``each`` entry, or one of ``@null``,
  ``@model``, ``@other-model``, ``@context-window``, ``@beyond-window``, ``@stub``, ``@tools-limit``, ``@call-choice``;
  ``"@@name"`` is the text ``@name``;
* the table ``{ "@name" = argument }`` is a directive, replaced when the request is made (see
``kvv.cases.contract.build``).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvv.core import STRENGTH, Area, Credential, Level, Surface

Expect = Literal["answered", "refused", "either"]
Switch = Literal["on", "off", "default"]

REFERENCE = re.compile(r"@[a-z][a-z0-9-]*")
#: references that the run and the profile fill in
RESERVED = frozenset(
    {
        "null",
        "model",
        "other-model",
        "context-window",
        "beyond-window",
        "stub",
        "tools-limit",
        "reasoning-field",
        "call-choice",
    }
)
#: claims that are no field of the profile's claims table
VIRTUAL_CLAIMS = frozenset(
    [
        *("thinking", "separate-reasoning", "thinking-off", "always-thinks", "effort", "keep"),
        *("calls", "other-model", "tokens", "tokenizer", "moonshot-stream", "stop-limit", "key"),
    ]
)
#: claims that a profile lists by names of its own: ``schema_extra``, ``contracts``
OPEN_CLAIMS = ("schema:", "contract:")
#: keys of an ``each`` entry that are no variables
ENTRY_FIELDS = frozenset(
    {
        "id",
        "body",
        "omit",
        "level",
        "source",
        "claims",
        "checks",
        "requirement",
        "expect",
        "prompt",
        "messages",
        "effort",
        "raw",
        "credential",
    }
)


class CaseFileError(ValueError):
    """A case file that does not follow the form; the message names the file and the case."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, populate_by_name=True)


class CaseVariant(_Table):
    """One request of several: what differs from the case's own request.

    ``body`` goes over the request's fields, ``omit`` removes some, ``prompt`` or ``messages`` replace the conversation,
    ``raw`` is sent instead of it all. ``stream``, ``thinking`` and ``effort`` override the case's mode.
    """

    prompt: str | None = None
    messages: Any = None
    body: dict[str, Any] = {}
    omit: tuple[str, ...] = ()
    raw: Any = None
    stream: bool | None = None
    thinking: Switch | None = None
    effort: str | None = None


class Round(CaseVariant):
    """One step of a script: a request (named ``name``) or several ``variants``, all asked at once, and what they must
    show.
    """

    name: str
    variants: dict[str, CaseVariant] = {}
    expect: Expect = "answered"
    checks: dict[str, Any] = {}
    compare: dict[str, Any] = {}


class CaseSpec(_Table):
    """One ``[[case]]``. It becomes one case per entry of ``each``, per thinking mode and per stream mode.

    ``each`` names a parameter set of the profile, or lists tables with an ``id`` and variables. ``level`` may name a
    level of the profile (``reject``, ``type``); ``levels`` and ``skip`` are keyed by a surface, a claim, ``not:claim``,
    ``claim/surface``, or ``*``, and the first key that fits decides (a level can only be lowered). ``claims`` must all
    be claimed, else the case is SKIP. ``rule`` names the passive rule that states the same requirement: both must have
    one level under every profile.

    ``variants`` are asked together (``sequence``: one after the other) and ``compare``d; ``rounds`` are a script.
    A case that claims ``calls`` wants calls of its tools: with ``tool_choice = "@call-choice"`` they are forced where
    the profile claims that. Elsewhere the model is asked in the prompt alone, each request six times, and half of the
    answers must pass at most at the level should; ``only-calls`` says that answers without a call tell nothing.
    ``samples`` asks each request so often; then ``at-least`` (or ``at-most``) bounds the rate of answers that pass
    ``checks``.
    """

    id: str
    requirement: str
    level: Level | Literal["reject", "type"] = Level.MUST
    levels: dict[str, Level] = {}
    rule: str | None = None
    area: Area | None = None
    source: str = ""
    since: str = ""
    each: Literal["accepted", "either", "rejected"] | tuple[dict[str, Any], ...] | None = None
    prompt: str | None = None
    messages: Any = None
    body: dict[str, Any] = {}
    omit: tuple[str, ...] = ()
    raw: Any = None
    effort: str | None = None
    expect: Expect = "answered"
    statuses: tuple[int, ...] = (400, 422)
    credential: Credential = Credential.OWN
    control: CaseVariant | None = None
    afterwards: bool | None = None
    checks: dict[str, Any] = {}
    compare: dict[str, Any] = {}
    variants: dict[str, CaseVariant] = {}
    sequence: bool = False
    rounds: tuple[Round, ...] = ()
    samples: int = Field(default=1, ge=1, le=64)
    at_least: float | None = Field(default=None, alias="at-least", ge=0, le=1)
    at_most: float | None = Field(default=None, alias="at-most", ge=0, le=1)
    stream: Literal["both", "on", "off", "mixed"] | None = None
    thinking: Literal["each", "default", "on", "off"] | None = None
    only_calls: bool = Field(default=False, alias="only-calls")
    claims: tuple[str, ...] = ()
    surfaces: tuple[str, ...] = ()
    skip: dict[str, str] = {}
    risk: bool = False

    @property
    def rated(self) -> bool:
        return self.at_least is not None or self.at_most is not None


class CaseFile(_Table):
    """A whole file: defaults, named snippets, then cases. ``max_tokens`` is what a request sends unless a case says
    otherwise.
    """

    area: Area
    source: str
    since: str
    prompt: str
    max_tokens: int = 64
    stream: Literal["both", "on", "off", "mixed"] = "both"
    thinking: Literal["each", "default", "on", "off"] = "each"
    claims: tuple[str, ...] = ()
    control: CaseVariant | None = None
    afterwards: bool = False
    snippets: dict[str, Any] = {}
    case: tuple[CaseSpec, ...]


class Names(_Table):
    """What a suite's case file may name: checks, comparisons, directives."""

    checks: frozenset[str]
    comparisons: frozenset[str]
    directives: frozenset[str]


@cache
def load_case_file(suite: str, names: Names) -> CaseFile:
    """The case file of a built-in suite, checked."""
    text = files("kvv.suites").joinpath(suite, "cases.toml").read_text("utf-8")
    return parse_case_file(text, f"suites/{suite}/cases.toml", names)


def parse_case_file(text: str, name: str, names: Names) -> CaseFile:
    """CaseFileError for TOML that is none, unknown fields, repeated ids, unknown checks, snippets, directives or
    claims.
    """
    try:
        parsed = CaseFile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise CaseFileError(f"{name}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise CaseFileError(f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    anywhere = frozenset().union(*(_variables(spec) for spec in parsed.case))
    _references(
        {"snippets": parsed.snippets},
        f"{name}: snippets",
        anywhere | frozenset(parsed.snippets) | RESERVED,
        names.directives,
    )
    seen = set()
    for spec in parsed.case:
        where = f"{name}: case {spec.id!r}"
        if spec.id in seen:
            raise CaseFileError(f"{name}: two cases have the id {spec.id!r}")
        seen.add(spec.id)
        _check_spec(spec, parsed, where, names)
    return parsed


def _check_spec(spec: CaseSpec, file: CaseFile, where: str, names: Names) -> None:
    tables: list[CaseSpec | Round] = [spec, *spec.rounds]
    for table in tables:
        _known("check", table.checks, names.checks, where)
        _known("comparison", table.compare, names.comparisons, where)
    keys = (key.partition("/")[0].removeprefix("not:") for key in (*spec.levels, *spec.skip))
    named = (*file.claims, *spec.claims, *(key for key in keys if key != "*" and key not in {*Surface}))
    _known("claim", (claim for claim in named if not claim.startswith(OPEN_CLAIMS)), _claims(), where)
    for entry in spec.each if isinstance(spec.each, tuple) else ():
        if not isinstance(entry.get("id"), str) or not re.fullmatch(r"[a-z0-9.-]+", entry["id"]):
            raise CaseFileError(f"{where}: an entry of each wants an id of a-z, 0-9, dots and hyphens")
    _references(
        spec.model_dump(exclude_unset=True),
        where,
        _variables(spec) | frozenset(file.snippets) | RESERVED,
        names.directives,
    )
    _check_rounds(spec, where)
    _check_levels(spec, where)


def _variables(spec: CaseSpec) -> frozenset[str]:
    entries = spec.each if isinstance(spec.each, tuple) else ()
    return frozenset(name for entry in entries for name in entry.keys() - ENTRY_FIELDS)


def _check_rounds(spec: CaseSpec, where: str) -> None:
    if spec.rounds and (spec.variants or spec.samples > 1):
        raise CaseFileError(f"{where}: rounds go with neither variants nor samples of the whole case")
    if spec.variants and spec.expect != "answered":
        raise CaseFileError(f"{where}: variants must all be answered")
    if spec.rated and spec.samples < 2:
        raise CaseFileError(f"{where}: a rate wants samples")
    if spec.rated and spec.expect != "answered":
        raise CaseFileError(f"{where}: a rate is one of answers")
    asked = [name for entry in spec.rounds for name in (entry.variants or (entry.name,))]
    if len(asked) != len(set(asked)):
        raise CaseFileError(f"{where}: two requests of the script have the same name")


def _check_levels(spec: CaseSpec, where: str) -> None:
    """What can never decide a level is a mistake of the file's author, who believes that it does."""
    keys = list(spec.levels)
    if "*" in keys[:-1]:
        raise CaseFileError(f"{where}: levels after '*' are never reached: {', '.join(keys[keys.index('*') + 1 :])}")
    if isinstance(spec.level, Level):
        raised = [key for key, level in spec.levels.items() if STRENGTH.index(level) < STRENGTH.index(spec.level)]
        if raised:
            raise CaseFileError(
                f"{where}: levels can only lower the case's level {spec.level}, and {', '.join(raised)} would raise it;"
                " set the case's level to the strongest"
            )
    if spec.rule is not None:
        from kvv.protocol.rules import RULES

        _known("rule", iter([spec.rule]), RULES.keys(), where)


def _claims() -> Collection[str]:
    from kvv.profiles.profile import Claims

    return {*Claims.model_fields, *VIRTUAL_CLAIMS} - {"contracts", "schema_extra"}


def _known(what: str, found: Mapping[str, Any] | Iterator[str], known: Collection[str], where: str) -> None:
    for name in found:
        if name not in known:
            raise CaseFileError(f"{where}: unknown {what} {name!r}; known: {', '.join(sorted(known))}")


def _references(value: Any, where: str, known: Collection[str], directives: Collection[str]) -> None:
    """Every ``@name`` must be known, wherever it stands."""
    if isinstance(value, str):
        if REFERENCE.fullmatch(value) and value[1:] not in known:
            raise CaseFileError(f"{where}: nothing is called {value!r}")
    elif isinstance(value, Mapping):
        directive = directive_of(value)
        if directive is not None and directive not in directives:
            raise CaseFileError(f"{where}: unknown directive '@{directive}'; known: {', '.join(sorted(directives))}")
        for item in value.values():
            _references(item, where, known, directives)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _references(item, where, known, directives)


def directive_of(value: Mapping[str, Any]) -> str | None:
    """The directive's name where the table is one: its only key begins with ``@``."""
    if len(value) != 1:
        return None
    key = next(iter(value))
    return key[1:] if isinstance(key, str) and key.startswith("@") else None
