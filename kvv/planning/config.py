"""kvv.toml + environment + flags -> one frozen RunConfig, which knows where each value came from.

Precedence: flag, then environment (``KVV_BASE_URL``, ``KVV_MODEL``), then ``kvv.toml`` in the current
directory, then the default. Keys are never values here: only the *names* of environment variables are.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from kvv.core import Surface
from kvv.core.toml_text import parse_toml
from kvv.core.usage_error import ConfigError as ConfigError
from kvv.core.usage_error import text_problem
from kvv.planning.plain_file import read_plain
from kvv.planning.shard import parse_shard
from kvv.planning.trust import TRUST_VARIABLE, guarded, is_trusted, trust
from kvv.protocol.redaction.key_forms import is_issued_key, keys_in_body

CONFIG_FILE = "kvv.toml"
ENVIRONMENT = {"base_url": "KVV_BASE_URL", "model": "KVV_MODEL"}

#: the name of no variable: an endpoint of `kvv vendors` that names none must not get the key of another
NO_KEY = "KVV_NO_KEY"

#: a run whose plan passes either bound wants --yes or --max-cost
COST_GUARD_USD = 20.0
TOKEN_GUARD = 50_000_000

#: requests at once, and repeats of one question: a slip of the finger beyond these would take the machine's memory, not
#: the endpoint's
MOST_AT_ONCE, MOST_SAMPLES = 4_096, 10_000

#: nesting of --extra-body; no server's own fields come near it
EXTRA_BODY_DEPTH = 32

#: a field name of RFC 9110, section 5.1
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: headers that the HTTP client makes itself, that say how an answer is to be read, or that carry the key: --header-env
#: sets none of them
RESERVED_HEADERS = frozenset(
    {
        *(
            "host",
            "content-length",
            "transfer-encoding",
            "connection",
            "keep-alive",
            "te",
            "trailer",
            "upgrade",
            "expect",
        ),
        *(
            "content-type",
            "content-encoding",
            "accept",
            "accept-encoding",
            "authorization",
            "proxy-authorization",
            "proxy-connection",
        ),
    }
)


def pairs(items: Sequence[str], option: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` -> ``{"a": "1", "b": "2"}``; ConfigError naming the option otherwise."""
    found = {}
    for item in items:
        name, sign, rest = str(item).partition("=")
        if not sign or not name.strip() or not rest.strip():
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
    """JSON text, or ``@FILE`` holding it, or a table of kvv.toml: an object that can be sent as JSON."""
    parsed = _parsed(value) if isinstance(value, str) else value
    if not isinstance(parsed, dict):
        raise ValueError("must be a JSON object")
    _check_json(parsed, 0)
    if key := next(keys_in_body(parsed), ""):
        raise ValueError(
            f"{key[:80]!r} looks like a key, which would be stored with every request; send it as a header from a"
            " variable: --header-env HEADER=NAME"
        )
    return parsed


def _parsed(value: str) -> Any:
    try:
        text = Path(value[1:]).read_text("utf-8-sig") if value.startswith("@") else value
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {value[1:]}: {error}") from error
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"is nested more than {EXTRA_BODY_DEPTH} deep") from None
    except ValueError as error:  # not only JSONDecodeError: an integer of five thousand digits
        raise ValueError(f"not JSON: {error}") from error


def _check_json(value: Any, depth: int) -> None:
    """ValueError for what JSON cannot say: Python reads NaN and 1e999, TOML has dates, a lone surrogate is no
    character.
    """
    if depth > EXTRA_BODY_DEPTH:
        raise ValueError(f"is nested more than {EXTRA_BODY_DEPTH} deep")
    match value:
        case str():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise ValueError("holds a lone surrogate, which is no character") from None
        case float():
            if not math.isfinite(value):
                raise ValueError(f"holds {value}, which is no JSON number")
        case dict():
            for name, item in value.items():
                _check_json(name, depth + 1)
                _check_json(item, depth + 1)
        case list():
            for item in value:
                _check_json(item, depth + 1)
        case None | bool() | int():
            pass
        case _:
            raise ValueError(f"holds a {type(value).__name__}, which JSON has not")


def _preset(value: Literal["moonshot", "kvv"] | None) -> Literal["kvv"] | None:
    """``moonshot`` is the name for people; runs, reports and the leaderboard record its older name, so they compare."""
    return "kvv" if value else None


def _list(value: Any) -> Any:
    return (
        [part.strip() for item in value for part in str(item).split(",")] if isinstance(value, (list, tuple)) else value
    )


def _headers(value: dict[str, str]) -> dict[str, str]:
    """Names that an HTTP client may send beside its own; values are names of variables. A wrong name may be a key and
    is not repeated.
    """
    for name, variable in value.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError("wants HEADER=NAME, where HEADER is letters, digits and hyphens")
        if name.lower() in RESERVED_HEADERS:
            hint = "; the key's variable is named by --api-key-env" if name.lower() == "authorization" else ""
            raise ValueError(f"the header {name} cannot be set{hint}")
        _variable_name(variable)
    return value


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


#: where keys are read from unless the user names another variable
USUAL_KEYS = frozenset({"KVV_API_KEY", "KVV_JUDGE_API_KEY", "KVV_REFERENCE_API_KEY", NO_KEY})


class RunConfig(BaseModel):
    """Every option of a run. Times in seconds, money in US dollars, prices per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    suites: tuple[str, ...] = ()
    base_url: str | None = None
    model: str | None = None
    api_key_env: VariableName = "KVV_API_KEY"
    header_env: Annotated[dict[str, str], BeforeValidator(_pairs), AfterValidator(_headers)] = {}
    provider: str | None = None
    extra_body: Annotated[dict[str, Any], BeforeValidator(_extra_body)] = {}
    judge_base_url: str | None = None
    judge_model: str | None = None
    second_judge_model: str | None = None
    judge_effort: str | None = None
    judge_extra_body: Annotated[dict[str, Any], BeforeValidator(_extra_body)] = {}
    judge_prompts: str | None = None
    judge_api_key_env: VariableName = "KVV_JUDGE_API_KEY"
    other_model: str | None = None

    profile: str | None = None
    surface: Surface = Surface.VENDOR
    preset: Annotated[Literal["moonshot", "kvv"] | None, AfterValidator(_preset)] = None
    policy: str | None = None
    tier: Literal["smoke", "nightly", "full"] | None = None
    strict: bool = False
    force: bool = False
    gentle: bool = False

    limit: Count | None = None
    samples: Annotated[int, Field(gt=0, le=MOST_SAMPLES)] | None = None
    case: tuple[str, ...] = ()
    variant: str | None = None
    data: Annotated[dict[str, str], BeforeValidator(_pairs)] = {}
    tokenizer: str | None = None
    sandbox: Literal["bwrap", "docker", "none"] | None = None
    agent: Literal["kvv", "mini"] | None = None
    grader: Literal["kvv", "swebench"] | None = None
    reference: tuple[str, ...] = ()
    as_reference: str | None = None
    early_stop: bool = False
    reference_base_url: str | None = None
    reference_model: str | None = None
    reference_api_key_env: VariableName = "KVV_REFERENCE_API_KEY"
    seed: Annotated[int, Field(ge=0)] = 0
    shard: Annotated[str, AfterValidator(_shard)] | None = None

    thinking: Literal["on", "off"] | None = None
    think_mode: str | None = None
    effort: Annotated[tuple[str, ...], BeforeValidator(_list)] = ()
    temperature: Finite | None = None
    top_p: Finite | None = None
    max_tokens: Annotated[dict[str, Count], BeforeValidator(_max_tokens)] = {}
    stream: bool | None = None
    discreet: bool = False

    concurrency: Annotated[Annotated[int, Field(gt=0, le=MOST_AT_ONCE)] | None, BeforeValidator(_concurrency)] = None
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
    reference_price_in: Money | None = None
    reference_price_cached: Money | None = None
    reference_price_out: Money | None = None
    yes: bool = False

    out: str = "reports"
    shared: bool = False
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


def load_config(
    flags: Mapping[str, Any], *, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> RunConfig:
    """Lay flags over environment over kvv.toml over the defaults; ``flags`` holds only what was given, and with
    ``trust_config`` that the user vouches for the file.

    Raises ConfigError naming the option and its origin.
    """
    environ = os.environ if environ is None else environ
    path = (cwd or Path.cwd()) / CONFIG_FILE
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    text = _read_text(path)
    for name, value in _parsed_toml(path, text).items():
        values[name.replace("-", "_")] = value
        origin[name.replace("-", "_")] = CONFIG_FILE
    for name, variable in ENVIRONMENT.items():
        if environ.get(variable):
            values[name] = environ[variable]
            origin[name] = variable
    for name, value in flags.items():
        if value is not None and name != "trust_config":
            values[name] = value
            origin[name] = "flag"
    told = bool(flags.get("trust_config"))
    if not told:
        _check_trust(path, text, values, origin, environ)
    config = _validated(values, origin)
    if told:
        trust(path, text)
    return config


def _check_trust(
    path: Path, text: str, values: Mapping[str, Any], origin: Mapping[str, str], environ: Mapping[str, str]
) -> None:
    """ConfigError where the file sets what only a trusted one may, before any value of it is followed. What a flag or
    the environment replaces does not count.
    """
    defaults = {name: field.default for name, field in RunConfig.model_fields.items()}
    named = guarded({name: value for name, value in values.items() if origin[name] == CONFIG_FILE}, defaults)
    if named and not is_trusted(path, text, environ):
        raise ConfigError(
            f"{CONFIG_FILE}: sets {', '.join(named)}, which a file may do only if you trust it: read it, then give"
            f" --trust-config once (until the file changes), or in CI its SHA-256 in {TRUST_VARIABLE}"
        )


def revise(config: RunConfig, flags: Mapping[str, Any]) -> RunConfig:
    """The configuration with some options given anew. Raises ConfigError naming the option."""
    origin = {**config.origin, **dict.fromkeys(flags, "flag")}
    return _validated({**config.model_dump(exclude={"origin"}), **flags}, origin)


def _validated(values: Mapping[str, Any], origin: Mapping[str, str]) -> RunConfig:
    for name, value in values.items():
        if not name.endswith("extra_body") and (problem := text_problem(value)):
            raise ConfigError(f"{_spelled(name, origin)}: {problem}")
    try:
        config = RunConfig.model_validate({**values, "origin": origin})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "configuration"
        message = first["msg"].removeprefix("Value error, ").removeprefix(": ")
        raise ConfigError(f"{_spelled(name, origin)}: {message}") from None
    if config.sandbox == "none" and origin.get("sandbox") != "flag":
        raise ConfigError(
            f"{_spelled('sandbox', origin)}: none is no sandbox at all, and is taken from the command line alone:"
            " --sandbox none"
        )
    _check_url("base_url", config.base_url, origin)
    _check_url("judge_base_url", config.judge_base_url, origin)
    _check_url("reference_base_url", config.reference_base_url, origin)
    return config


def _spelled(name: str, origin: Mapping[str, str]) -> str:
    option = "--" + name.replace("_", "-")
    where = origin.get(name, "")
    return option if where in ("", "flag") else f"{name} in {where}"


def _read_text(path: Path) -> str:
    try:
        return read_plain(path, follow=True)
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name}: cannot be read: {error}") from error


def _parsed_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except ValueError as error:  # TomlError, and an integer of five thousand digits
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
    if (
        blank
        or not _host_can_be_asked(parts.hostname or "")
        or parts.scheme not in ("http", "https")
        or not parts.hostname
        or not port_ok
    ):
        # the URL itself is not repeated: it may hold a password
        raise ConfigError(f"{_spelled(name, origin)}: wants http(s)://HOST[:PORT]/PATH")
    # a process list shows it to every user of the machine, and a file to whoever reads it; the environment to nobody
    said = [*parts.path.split("/"), *re.split("[&=]", parts.query)]
    if origin.get(name) not in ENVIRONMENT.values() and any(is_issued_key(unquote(part)) for part in said):
        option = "--" + name.replace("base_url", "api_key_env").replace("_", "-")
        raise ConfigError(
            f"{_spelled(name, origin)}: holds what looks like a key; put it into an environment variable and name that:"
            f" {option} NAME, or --header-env HEADER=NAME"
        )


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
    value = "" if name == NO_KEY else environ.get(name, "").strip()
    if not value:
        if required:
            raise ConfigError(f"the environment variable {name} is not set")
        return None
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"the environment variable {name} holds characters that no HTTP header can carry")
    return value
