"""kvv.toml + environment + flags -> one frozen RunConfig, which knows where each value came from.

Precedence: flag, then environment (``KVV_BASE_URL``, ``KVV_MODEL``), then ``kvv.toml`` in the current
directory, then the default. Keys are never values here: only the *names* of environment variables are.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from kvv.model import Surface
from kvv.shard import parse_shard

CONFIG_FILE = "kvv.toml"
ENVIRONMENT = {"base_url": "KVV_BASE_URL", "model": "KVV_MODEL"}
SURFACES = tuple(surface.value for surface in Surface)
TIERS = ("smoke", "nightly", "full")

#: a run whose plan passes either bound wants --yes or --max-cost
COST_GUARD_USD = 20.0
TOKEN_GUARD = 50_000_000


class ConfigError(ValueError):
    """A usage or configuration error: one line that names the option; exit code 2."""


def pairs(items: Sequence[str], option: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` -> ``{"a": "1", "b": "2"}``; ConfigError naming the option otherwise."""
    found = {}
    for item in items:
        name, sign, rest = str(item).partition("=")
        if not sign or not name or not rest:
            raise ConfigError(f"{option}: wants NAME=VALUE, got {item!r}")
        found[name] = rest
    return found


def _pairs(value: Any) -> Any:
    """As ``pairs``; a mapping (from kvv.toml) passes through."""
    return pairs(value, "") if isinstance(value, (list, tuple)) else value


def _max_tokens(value: Any) -> Any:
    """``["16384", "aime2025=98304"]`` -> ``{"": 16384, "aime2025": 98304}``."""
    if isinstance(value, int):
        return {"": value}
    if not isinstance(value, (list, tuple)):
        return value
    limits = {}
    for item in value:
        suite, _, number = str(item).rpartition("=")
        limits[suite] = number
    return limits


def _extra_body(value: Any) -> Any:
    """JSON text, or ``@FILE`` holding it."""
    if not isinstance(value, str):
        return value
    try:
        text = Path(value[1:]).read_text("utf-8") if value.startswith("@") else value
        parsed = json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {value[1:]}: {error}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ValueError("must be a JSON object")
    return parsed


def _list(value: Any) -> Any:
    return [part for item in value for part in str(item).split(",") if part] if isinstance(value, (list, tuple)) else value


def _concurrency(value: Any) -> Any:
    if value in (None, "auto"):
        return None
    return value


Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Money = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]


def _variable_name(value: str) -> str:
    """A key given in place of a variable's name must not be taken, nor repeated in the message."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError("wants the NAME of an environment variable, not a key")
    return value


VariableName = Annotated[str, AfterValidator(_variable_name)]


def _shard(value: str) -> str:
    return str(parse_shard(value))


class RunConfig(BaseModel):
    """Every option of a run. Times in seconds, money in US dollars, prices per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suites: tuple[str, ...] = ()
    base_url: str | None = None
    model: str | None = None
    api_key_env: VariableName = "KVV_API_KEY"
    header_env: Annotated[dict[str, str], BeforeValidator(_pairs)] = {}
    provider: str | None = None
    extra_body: Annotated[dict[str, Any], BeforeValidator(_extra_body)] = {}
    judge_base_url: str | None = None
    judge_model: str | None = None
    judge_api_key_env: VariableName = "KVV_JUDGE_API_KEY"
    other_model: str | None = None

    profile: str | None = None
    surface: Surface = Surface.VENDOR
    preset: Literal["kvv"] | None = None
    policy: str | None = None
    tier: Literal["smoke", "nightly", "full"] | None = None
    strict: bool = False
    force: bool = False
    gentle: bool = False

    limit: Count | None = None
    samples: Count | None = None
    case: tuple[str, ...] = ()
    variant: str | None = None
    data: Annotated[dict[str, str], BeforeValidator(_pairs)] = {}
    tokenizer: str | None = None
    reference: tuple[str, ...] = ()
    as_reference: str | None = None
    seed: int = 0
    shard: Annotated[str, AfterValidator(_shard)] | None = None

    thinking: Literal["on", "off"] | None = None
    think_mode: Literal["none", "kimi", "opensource"] | None = None
    effort: Annotated[tuple[Literal["low", "high", "max"], ...], BeforeValidator(_list)] = ()
    temperature: Finite | None = None
    top_p: Finite | None = None
    max_tokens: Annotated[dict[str, Count], BeforeValidator(_max_tokens)] = {}
    stream: bool | None = None

    concurrency: Annotated[Count | None, BeforeValidator(_concurrency)] = None
    max_inflight_tokens: Count = 4_000_000
    connect_timeout: Seconds = 10.0
    first_byte_timeout: Seconds = 600.0
    idle_timeout: Seconds = 120.0
    deadline: Seconds | None = None
    max_cost: Money | None = None
    max_requests: Count | None = None
    max_tokens_total: Count | None = None
    price_in: Money | None = None
    price_cached: Money | None = None
    price_out: Money | None = None
    yes: bool = False

    out: str = "reports"
    record: Literal["message", "full"] = "message"
    public: bool = False
    json_output: bool = False
    quiet: bool = False
    verbose: bool = False

    #: where each value that is no default came from: "flag", an environment variable's name, or the file
    origin: dict[str, str] = {}

    @property
    def loopback(self) -> bool:
        """Whether the endpoint is on this machine, hence unpaid unless prices are given."""
        host = urlsplit(self.base_url or "").hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")


def load_config(flags: Mapping[str, Any], *, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> RunConfig:
    """Lay flags over environment over kvv.toml over the defaults; ``flags`` holds only what was given.

    Raises ConfigError naming the option and its origin.
    """
    environ = os.environ if environ is None else environ
    path = (cwd or Path.cwd()) / CONFIG_FILE
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, value in _read_toml(path).items():
        values[name.replace("-", "_")] = value
        origin[name.replace("-", "_")] = CONFIG_FILE
    for name, variable in ENVIRONMENT.items():
        if environ.get(variable):
            values[name] = environ[variable]
            origin[name] = variable
    for name, value in flags.items():
        if value is not None:
            values[name] = value
            origin[name] = "flag"
    try:
        config = RunConfig.model_validate({**values, "origin": origin})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "configuration"
        message = first["msg"].removeprefix("Value error, ").removeprefix(": ")
        raise ConfigError(f"{_spelled(name, origin)}: {message}") from None
    _check_url("base_url", config.base_url, origin)
    _check_url("judge_base_url", config.judge_base_url, origin)
    return config


def _spelled(name: str, origin: Mapping[str, str]) -> str:
    option = "--" + name.replace("_", "-")
    where = origin.get(name, "")
    return option if where in ("", "flag") else f"{name} in {where}"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name}: {error}") from error


def _check_url(name: str, url: str | None, origin: Mapping[str, str]) -> None:
    if url is None:
        return
    try:
        parts = urlsplit(url)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_ok = urlsplit(""), False
    blank = any(character <= " " or character == "\x7f" for character in url)
    if blank or not _host_can_be_asked(parts.hostname or "") or parts.scheme not in ("http", "https") or not parts.hostname or not port_ok:
        # the URL itself is not repeated: it may hold a password
        raise ConfigError(f"{_spelled(name, origin)}: wants http(s)://HOST[:PORT]/PATH")


def _host_can_be_asked(host: str) -> bool:
    """Whether a name server could be asked for it (labels of 1 to 63 characters)."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return bool(host)


def read_key(name: str, *, required: bool, environ: Mapping[str, str] | None = None) -> str | None:
    """The secret in the environment variable ``name``; a header value must be printable ASCII without line breaks."""
    environ = os.environ if environ is None else environ
    value = environ.get(name, "").strip()
    if not value:
        if required:
            raise ConfigError(f"the environment variable {name} is not set")
        return None
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"the environment variable {name} holds characters that no HTTP header can carry")
    return value
