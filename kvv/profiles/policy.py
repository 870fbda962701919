"""What a run must show to pass: required suites and areas, margins, alpha, looks, service levels, waivers.

A policy is a TOML file, shipped under ``fixtures/policies`` or the user's own. Margins, alpha, looks and primary
metrics are fixed before the run; the SHA-256 of the policy's canonical form stands in the report.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from enum import StrEnum
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kvv.core import Area, Level
from kvv.core.toml_text import TomlError, parse_toml

Share = Annotated[float, Field(ge=0, le=1)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Coverage(_Table):
    """The share of an area's contract cases that must come to a verdict before the area counts as kept: ``share`` of
    any area, ``areas`` of single ones. What only another kind of endpoint is asked is no case of the area.

    One in five, since a model that promises little is asked little, but a verdict on an area wants more than the odd
    case that everybody is asked: a profile without JSON formats is asked 2 of 135 cases of them.
    """

    share: Share = 0.2
    areas: Mapping[Area, Share] = Field(default_factory=dict)

    def of(self, area: Area) -> float:
        return self.areas.get(area, self.share)


class RuleBounds(_Table):
    """The share of answers in which a passive rule at a binding level may object, by workload; ``limits`` by globs of
    rule ids go before ``benchmark`` and ``agent``.

    ``contract``: none, as soon as it repeats, since those requests ask for each feature a few times on purpose.
    ``benchmark`` and ``agent``: three in a thousand. A model's own calls are malformed in fewer than one of a thousand
    turns, so that a correct server stays far below; a 1 % fault fails in four of five runs of 1,000 answers, one of 5 %
    in four of five of 60. ``model``: how much more often than at the official endpoint a model may loop, fall silent or
    change its script: one in a hundred, as rates of rare answers differ from day to day.
    """

    contract: Share = 0.0
    benchmark: Share = 0.003
    agent: Share = 0.003
    model: Share = 0.01
    limits: Mapping[str, Share] = Field(default_factory=dict)

    def bound(self, rule: str, workload: str) -> float:
        if workload == "contract":
            return self.contract
        own = next((share for glob, share in self.limits.items() if fnmatchcase(rule, glob)), None)
        return own if own is not None else self.agent if workload == "agent" else self.benchmark


class BenchmarkMode(StrEnum):
    """``parity``: no worse than the reference by the margin. ``regression``: no loss shown, and the stated one would
    have been seen.
    """

    PARITY = "parity"
    REGRESSION = "regression"


class Required(_Table):
    """``gated`` suites must not only run but be decided: without a usable reference they make the run INCONCLUSIVE.

    ``quality`` asks the same of every benchmark that runs, and that one does.
    """

    suites: tuple[Slug, ...] = ()
    areas: tuple[Area, ...] = ()
    gated: tuple[Slug, ...] = ()
    quality: bool = False


class Benchmark(_Table):
    """How one row is gated. ``metric`` "" is the suite's primary one; ``key`` names the verdict's value (default: the
    metric).

    ``given``: only the samples whose value of that name is above 0 on both sides (schema validity where both call a
    tool). ``method`` paired compares case by case; f1 compares an F1 against official runs with their own scatter.
    agreement compares how often the calls of official runs are made (same value of ``key``) with how often they make
    each other's, a share of those calls; refusals bounds the share of requests that official runs answered and the
    vendor refused.
    ``margin`` is delta, in the metric's own unit; a parity gate needs one above 0. A regression gate fails on a shown
    loss beyond ``margin`` (default 0) and passes only where a loss of ``detect`` would have been seen with the policy's
    power.
    """

    suite: Slug
    metric: str = ""
    key: str = ""
    given: str = ""
    method: Literal["paired", "f1", "agreement", "refusals"] = "paired"
    mode: BenchmarkMode = BenchmarkMode.PARITY
    margin: Share = 0.0
    detect: Share | None = None
    alpha: Annotated[float, Field(gt=0, lt=0.5)] | None = None

    @model_validator(mode="after")
    def _needs_its_numbers(self) -> Benchmark:
        if self.mode is BenchmarkMode.PARITY and self.margin <= 0:
            raise ValueError("a parity gate needs margin > 0")
        if self.mode is BenchmarkMode.REGRESSION and not self.detect:
            raise ValueError("a regression gate needs detect > 0, the loss it must be able to see")
        return self


class LatencyMeasure(StrEnum):
    TTFT_MS = "ttft_ms"
    ITL_MS = "itl_ms"
    OUTPUT_TPS = "output_tps"
    E2E_MS = "e2e_ms"
    #: measured by `kvv load` alone; each request counts 1 or 0
    ANSWERED = "answered"
    RIGHT = "right"
    CLEAN = "clean"

    @property
    def is_floor(self) -> bool:
        """The limit is the least that keeps the level, not the most."""
        return not self.value.endswith("_ms")


class ServiceLevel(_Table):
    """At least ``share`` of the requests keep ``limit``: at most that for times in ms, at least that for tokens/s.

    ``answered`` (a whole answer came), ``right`` (a known answer was given) and ``clean`` (no wire rule of level must
    objected) are 1 or 0 a request; only `kvv load` measures them. It counts lengths without the cached prefix.

    Counted over the first attempts of the run's own requests with ``min_prompt_tokens`` <= prompt tokens <
    ``max_prompt_tokens``, of ``workload`` (agentic: turns of an agent with tools in a sandbox; chat: all others; "":
    both). A request that hung, broke off or was refused keeps no limit. Judged with a one-sided Clopper-Pearson limit.
    """

    id: Slug
    measure: LatencyMeasure
    limit: Annotated[float, Field(gt=0)]
    share: Annotated[float, Field(gt=0, lt=1)] = 0.9
    min_prompt_tokens: Annotated[int, Field(ge=0)] = 0
    max_prompt_tokens: Annotated[int, Field(gt=0)] | None = None
    workload: Literal["", "chat", "agentic"] = ""

    def covers(self, prompt_tokens: int, workload: str) -> bool:
        below = self.max_prompt_tokens is None or prompt_tokens < self.max_prompt_tokens
        return prompt_tokens >= self.min_prompt_tokens and below and self.workload in ("", workload)

    def keeps(self, value: float) -> bool:
        return value >= self.limit if self.measure.is_floor else value <= self.limit

    @property
    def any_length(self) -> bool:
        return self.min_prompt_tokens == 0 and self.max_prompt_tokens is None


class Waiver(_Table):
    """A signed exception. ``case`` is a glob over case ids, rule ids and gate ids; ``expires`` is the last day it
    holds.
    """

    case: Annotated[str, Field(min_length=1, max_length=200)]
    reason: Annotated[str, Field(min_length=1, max_length=500)]
    owner: Annotated[str, Field(min_length=1, max_length=200)]
    issue: Annotated[str, Field(max_length=500)] = ""
    expires: date

    def matches(self, subject: str) -> bool:
        return fnmatchcase(subject, self.case)

    def holds(self, subject: str, today: date) -> bool:
        return today <= self.expires and self.matches(subject)


class Policy(_Table):
    """``must`` are globs over case and rule ids that this policy raises to level must, whatever they are by themselves.

    ``looks`` > 1: under ``--early-stop`` alpha is spent over that many O'Brien-Fleming looks; ``strict`` makes
    should-level failures count.

    ``feature_failures`` is the share of requests with one feature (streamed, with tools, one field) that may fail where
    those without it are answered: above it, by its exact interval, the run fails. One in a hundred is what clients with
    a retry do not notice.

    ``moonshot_stream`` raises every P0 rule of the stream specification to must.
    ``truncated_notice`` is the share of truncated answers above which the verdict line says so; ``min_paired`` the
    share of the planned cases that a per-case reference must cover to be usable.
    """

    name: Slug
    title: str = ""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    power: Annotated[float, Field(gt=0.5, lt=1)] = 0.8
    looks: Annotated[int, Field(ge=1, le=20)] = 1
    strict: bool = False
    moonshot_stream: bool = False
    must: tuple[str, ...] = ()
    truncated_notice: Share = 0.02
    min_paired: Share = 0.9
    feature_failures: Share = 0.01
    required: Required = Required()
    coverage: Coverage = Coverage()
    rules: RuleBounds = RuleBounds()
    benchmark: tuple[Benchmark, ...] = ()
    service_level: tuple[ServiceLevel, ...] = ()
    waiver: tuple[Waiver, ...] = ()

    @model_validator(mode="after")
    def _no_doubles(self) -> Policy:
        for what, names in (
            ("benchmark", [f"{b.suite}/{b.metric}" for b in self.benchmark]),
            ("service_level", [level.id for level in self.service_level]),
        ):
            double = next((name for name in names if names.count(name) > 1), None)
            if double:
                raise ValueError(f"{what} {double!r} stands there twice")
        return self

    @property
    def sha256(self) -> str:
        """Of the canonical form: sorted keys, no blanks, defaults spelled out. Comments and order do not change it."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def level(self, subject: str, level: Level) -> Level:
        """The level at which a case or rule of this id counts here."""
        return Level.MUST if any(fnmatchcase(subject, glob) for glob in self.must) else level

    def benchmark_for(self, suite: str, metric: str, *, primary: bool) -> Benchmark | None:
        """The entry for this row: by metric name, else the suite's entry without one when the row is primary."""
        named = next((b for b in self.benchmark if b.suite == suite and b.metric == metric), None)
        return named or (
            next((b for b in self.benchmark if b.suite == suite and not b.metric), None) if primary else None
        )

    def with_waivers(self, waivers: Iterable[Waiver]) -> Policy:
        """With a waivers file's entries added; they change the hash, as they change the meaning."""
        return self.model_copy(update={"waiver": (*self.waiver, *waivers)})


class PolicyError(ValueError):
    """A policy or waivers file that does not parse; the message is one line and names file and key."""


def policy_ids() -> list[str]:
    """Names of the shipped policies, sorted."""
    return sorted(
        entry.name[:-5]
        for entry in files("kvv.profiles").joinpath("policies").iterdir()
        if entry.name.endswith(".toml")
    )


def load_policy(name: str) -> Policy:
    """The shipped policy ``name``. A policy of the user's own is read by the caller and given to ``parse_policy``."""
    if name not in policy_ids():
        raise PolicyError(f"no policy {name!r}; known: {', '.join(policy_ids())}")
    return parse_policy(files("kvv.profiles").joinpath("policies", f"{name}.toml").read_text("utf-8"), f"{name}.toml")


def parse_policy(text: str, origin: str) -> Policy:
    """A policy from TOML text; ``origin`` is the file's name for the error."""
    table = _toml(text, origin)
    table.setdefault(
        "name",
        re.sub(r"[^a-z0-9._-]+", "-", origin.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".toml").lower()).strip(
            "-."
        )
        or "policy",
    )
    try:
        return Policy.model_validate(table)
    except ValidationError as error:
        raise PolicyError(_one_line(error, origin)) from None


class _WaiverFile(_Table):
    waiver: tuple[Waiver, ...] = ()


def parse_waivers(text: str, origin: str) -> Sequence[Waiver]:
    """The ``[[waiver]]`` tables of a waivers file."""
    try:
        return _WaiverFile.model_validate(_toml(text, origin)).waiver
    except ValidationError as error:
        raise PolicyError(_one_line(error, origin)) from None


def _toml(text: str, origin: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except TomlError as error:
        raise PolicyError(f"{origin}: {_clean(str(error))}") from None


def _one_line(error: ValidationError, origin: str) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return _clean(f"{origin}: {where or 'policy'}: {first['msg'].removeprefix('Value error, ')}{more}")


def _clean(text: str) -> str:
    """One printable line."""
    return "".join(ch if ch.isprintable() else " " for ch in text)[:500]
