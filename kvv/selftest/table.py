"""``faults.toml``: for each fault the cases that can see it, and the areas in which it may be seen."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kvv.core import Area, Surface
from kvv.mockserver.faults import FAULTS, NOT_SHOWABLE

Areas = Annotated[tuple[Area, ...], Field(min_length=1, max_length=2)]


class TableError(ValueError):
    """The table does not follow its form or does not fit the catalogue; the message is one line."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class SettingSpec(_Table):
    """Who judges and who answers: profile and surface (with further claims), and the variant of the reference
    endpoint.
    """

    profile: str
    surface: Surface = Surface.VENDOR
    variant: str
    claims: dict[str, Any] = {}
    #: the judge has the endpoint's tokeniser
    tokenizer: bool = False
    #: cases that fail on the clean endpoint, and rules that object to it, below must: case glob or rule -> why
    stated: dict[str, str] = {}


class StatisticalFault(_Table):
    """A statistical fault: ``case`` is asked ``n`` times; at least ``at_least`` samples must not pass, or answers draw
    ``rule``.

    A sample of the case has so many ``answers``; ``p`` is the share of them (of samples, without a rule) that the fault
    spoils: it gives the gate's power. The clean endpoint must show none in as many.
    """

    case: str
    n: int = Field(ge=2, le=64)
    at_least: int = Field(ge=1, alias="at-least")
    p: float = Field(gt=0, le=1)
    answers: int = Field(default=1, ge=1)
    rule: str = ""


class FaultSpec(_Table):
    """How one fault is looked for.

    ``selected`` is what the endpoint is given (the id, or the id with variations); ``areas`` replace those of the
    group; ``also`` are areas that fail as a stated consequence; ``advisory`` says why should is the highest level at
    which it can be seen; ``dies``: the engine dies of it, which the run must say; ``legal``: why no profile promises
    the opposite, so that no must may object; ``gap``: what is missing for it to be seen, and where: a gap that is
    closed leaves the table.
    """

    setting: str = "kimi"
    selected: str = Field(default="", alias="as")
    cases: tuple[str, ...] = ()
    areas: Areas | None = None
    also: dict[Area, str] = {}
    advisory: str = ""
    dies: bool = False
    legal: str = ""
    gap: str = ""
    gate: StatisticalFault | None = None
    #: the endpoint's context window, where a fault is to be seen without prompts of a million tokens
    window: int | None = None
    #: milliseconds that the endpoint takes for each token, for faults of slow answers
    itl_ms: float = Field(default=0.0, alias="itl-ms", ge=0)


class GroupSpec(_Table):
    areas: Areas
    cases: tuple[str, ...] = ()


class Variation(_Table):
    """A fault narrowed down, which must still be seen in its areas."""

    selected: str = Field(alias="as")
    cases: tuple[str, ...] = ()
    gate: StatisticalFault | None = None

    @property
    def fault(self) -> str:
        return self.selected.partition(":")[0]


class FaultTable(_Table):
    settings: dict[str, SettingSpec]
    general: tuple[str, ...]
    group: dict[str, GroupSpec]
    fault: dict[str, FaultSpec] = {}
    variation: tuple[Variation, ...] = ()

    @model_validator(mode="after")
    def _fits_the_catalogue(self) -> FaultTable:
        unknown = [name for name in (*self.fault, *(entry.fault for entry in self.variation)) if name not in FAULTS]
        if unknown:
            raise ValueError(f"the catalogue has no fault {unknown[0]!r} to show")
        missing = sorted({fault.group for fault in FAULTS.values()} - self.group.keys())
        if missing:
            raise ValueError(f"no areas for the group {missing[0]!r}")
        strange = sorted({spec.setting for spec in self.fault.values()} - self.settings.keys())
        if strange:
            raise ValueError(f"no setting {strange[0]!r}")
        both = sorted(FAULTS.keys() & NOT_SHOWABLE.keys())
        if both:
            raise ValueError(f"the fault {both[0]!r} is both shown and not showable")
        return self

    def spec(self, fault: str) -> FaultSpec:
        return self.fault.get(fault) or FaultSpec()

    def areas(self, fault: str) -> tuple[Area, ...]:
        return self.spec(fault).areas or self.group[FAULTS[fault].group].areas

    def cases(self, fault: str) -> tuple[str, ...]:
        """Globs of the cases that are asked: the fault's own (or the group's), then the fixed general ones."""
        return (*(self.spec(fault).cases or self.group[FAULTS[fault].group].cases), *self.general)


def load_table() -> FaultTable:
    """The shipped table. Raises TableError."""
    return parse_table(tomllib.loads(files("kvv.selftest").joinpath("faults.toml").read_text("utf-8")))


def parse_table(raw: Mapping[str, Any]) -> FaultTable:
    try:
        return FaultTable.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        raise TableError(f"selftest.toml: {'.'.join(map(str, first['loc']))}: {message}") from None
