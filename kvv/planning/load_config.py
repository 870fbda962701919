"""What `kvv load` is told beside a run's own options: the ladder, what is sent, how long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from kvv.planning.config import MOST_AT_ONCE, ConfigError, Count, Seconds

MIXES = ("chat", "agent")
#: a prompt of more tokens is beyond every context window
MOST_PROMPT_TOKENS = 1_048_576
MOST_STEPS = 24


def _listed(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _counts(value: Any) -> Any:
    """``8k`` and ``1M`` are 8,000 and 1,000,000."""
    units = {"k": 1_000, "m": 1_000_000}
    return [
        str(round(float(part[:-1]) * units[part[-1].lower()])) if _has_unit(part) else part for part in _listed(value)
    ]


def _has_unit(part: Any) -> bool:
    return isinstance(part, str) and part[-1:].lower() in ("k", "m") and part[:-1].replace(".", "", 1).isdigit()


def _levels(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return {name: limit for name, _, limit in (str(part).partition("=") for part in value)}
    return value


class LoadConfig(BaseModel):
    """The options of a ladder. ``duration`` and ``warmup`` in seconds a step; ``requests`` a step where there is no
    duration; ``cached`` and ``known`` are shares.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    concurrency: Annotated[
        tuple[Annotated[int, Field(gt=0, le=MOST_AT_ONCE)], ...], BeforeValidator(_listed), Field(max_length=MOST_STEPS)
    ] = ()
    rate: Annotated[
        tuple[Annotated[float, Field(gt=0, le=10_000)], ...], BeforeValidator(_listed), Field(max_length=MOST_STEPS)
    ] = ()
    arrivals: Literal["poisson", "constant"] = "poisson"
    mix: str = "chat"
    prompt_tokens: Annotated[
        tuple[Annotated[int, Field(ge=100, le=MOST_PROMPT_TOKENS)], ...], BeforeValidator(_counts)
    ] = (1_000,)
    output_tokens: Annotated[int, Field(ge=16, le=32_768)] = 256
    cached: Annotated[float, Field(ge=0, le=0.95)] = 0.0
    known: Annotated[float, Field(ge=0, le=1)] = 0.5
    duration: Seconds | None = None
    requests: Count | None = None
    warmup: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    need: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    level: Annotated[dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]], BeforeValidator(_levels)] = {}

    @model_validator(mode="after")
    def _fits(self) -> LoadConfig:
        if self.concurrency and self.rate:
            raise ValueError("rate: give --concurrency or --rate, not both")
        if self.duration and self.requests:
            raise ValueError("requests: give --duration or --requests, not both")
        return self

    @property
    def open_loop(self) -> bool:
        return bool(self.rate)

    @property
    def ladder(self) -> tuple[float, ...]:
        """Rising loads, each once."""
        return tuple(sorted({float(load) for load in self.rate or self.concurrency or (1, 2, 4, 8, 16)}))

    def planned(self, load: float) -> int:
        """About how many requests a step sends: for a plan and a guard."""
        if self.duration is None:
            return self.count(load)
        # a stream that writes 100 tokens/s is fast; a ladder against a faster one ends at its bounds
        each = load if self.open_loop else load * 100 / self.output_tokens
        return max(1, round(each * (self.duration + (self.warmup or 0))))

    def count(self, load: float) -> int:
        """Measured requests of a step without a duration: 120, half of them with a known answer, show a share of 95 %,
        and four of each worker a steady state. A step of arrivals takes 30 seconds or more.
        """
        return self.requests or max(120, round((30 if self.open_loop else 4) * load))


def load_config_of(values: Mapping[str, Any]) -> LoadConfig:
    """Raises ConfigError naming the option."""
    try:
        return LoadConfig.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        message = first["msg"].removeprefix("Value error, ")
        name, sign, rest = message.partition(": ")
        if not first["loc"] and sign:
            raise ConfigError(f"--{name}: {rest}") from None
        raise ConfigError(f"--{str(first['loc'][0]).replace('_', '-')}: {message}") from None
