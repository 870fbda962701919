"""The file of ``kvv vendors``: several endpoints, providers behind one gateway, or layers of one service, each a
``[[vendor]]`` table.

    [[vendor]]
    name = "alpha"                        # shown; may be left out where there is a layer
    base_url = "https://api.alpha.example/v1"
    model = "kimi-k3"                     # default: --model
    api_key_env = "ALPHA_KEY"             # no key is sent where none is named
    provider = "fireworks"                # as --provider; extra_body, header_env, surface, profile as the options
    prices = { input = 0.6, cached = 0.15, output = 2.5 }    # dollars a million tokens
    layer = "engine"                      # or "gateway": what of one service stands there; an engine is judged on the
    surface engine

Everything else (suites, data, tier, seed, bounds, judge) comes from the command line and is the same for all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from kvv.cases.suite import SuiteKind, declared
from kvv.core import Surface
from kvv.core.toml_text import parse_toml
from kvv.core.usage_error import text_problem
from kvv.planning.config import NO_KEY, ConfigError, Money, RunConfig, VariableName, read_key, revise

#: pairs grow with the square
MOST = 20
#: bytes of a file that is no list of endpoints any more
FILE_LIMIT = 1_000_000
NAME_LIMIT = 60
#: contract suites that cost some 360 requests and 50,000 tokens a side, and that set most passive rules to work; not
#: params, which keeps an endpoint that fails it from the benchmarks
CONTRACT_PASS = ("streaming", "tool_choice", "usage")
#: keys of an entry and the option that each stands for, where the names differ
OPTIONS = {"price_in": "prices", "price_cached": "prices", "price_out": "prices"}


def _name(value: str) -> str:
    problem = text_problem(value)
    if problem:
        raise ValueError(problem)
    if len(value) > NAME_LIMIT or not value.isprintable():
        raise ValueError(f"wants at most {NAME_LIMIT} characters that can be printed")
    return value.strip()


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class _Prices(_Table):
    """US dollars a million tokens; without ``cached`` a cached token costs as any other."""

    input: Money
    output: Money
    cached: Money | None = None


class _Entry(_Table):
    base_url: str
    name: Annotated[str, AfterValidator(_name)] | None = None
    layer: Literal["engine", "gateway"] | None = None
    model: str | None = None
    api_key_env: VariableName | None = None
    provider: str | None = None
    extra_body: dict[str, Any] = {}
    header_env: dict[str, str] = {}
    surface: Surface | None = None
    profile: str | None = None
    prices: _Prices | None = None


class _File(_Table):
    vendor: tuple[_Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """One side, ready to be planned."""

    name: str
    config: RunConfig


def read_vendors(path: Path, config: RunConfig, *, least: int = 2, most: int = MOST) -> list[Vendor]:
    """The file's sides over the options that all share. ConfigError in one line that names file, line where it can be
    told, entry and key, or for fewer than ``least`` and more than ``most`` sides.
    """
    text = _text(path)
    try:
        table = parse_toml(text)
    except ValueError as error:  # TomlError, which names the line, and an integer of five thousand digits
        raise ConfigError(f"{path}: {error}") from None
    place = _Places(path, text, table)
    try:
        entries = _File.model_validate(table).vendor
    except ValidationError as error:
        raise place.error(*_first(error)) from None
    if not least <= len(entries) <= most:
        raise place.error(("vendor",), f"wants {least} to {most} [[vendor]] tables")
    sides = [_side(entry, number, config, place) for number, entry in enumerate(entries)]
    for number, side in enumerate(sides):
        if side.name.casefold() in {earlier.name.casefold() for earlier in sides[:number]}:
            raise place.error(
                ("vendor", number, "name"),
                f"{side.name!r} stands there twice; layers without a name are called as the layer",
            )
    return sides


def with_contract_pass(config: RunConfig) -> RunConfig:
    """With a few small contract suites where only benchmarks are named: equal scores say nothing of an endpoint whose
    streams or calls are broken. ``--case`` names what is asked, to the last.
    """
    kinds = {getattr(declared(name), "kind", None) for name in config.suites}
    if config.case or kinds != {SuiteKind.BENCHMARK}:
        return config
    return revise(config, {"suites": (*config.suites, *CONTRACT_PASS)})


def _text(path: Path) -> str:
    try:
        if path.is_file() and path.stat().st_size > FILE_LIMIT:
            raise ConfigError(f"{path}: has more than {FILE_LIMIT:,} bytes")
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is no UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _first(error: ValidationError) -> tuple[tuple[str | int, ...], str]:
    """Where the first problem is, and one sentence; no value is repeated, for it may be a key."""
    found = error.errors(include_input=False, include_url=False)[0]
    match found["type"]:
        case "missing":
            words = "is missing"
        case "extra_forbidden" if found["loc"][-1] in ("api_key", "key", "token"):
            words = "a key never stands in a file; api_key_env names the environment variable that holds it"
        case "extra_forbidden":
            tables: dict[int, type[_Table]] = {1: _File, 3: _Entry}
            table = tables.get(len(found["loc"]), _Prices)
            words = f"no such key; known: {', '.join(table.model_fields)}"
        case _:
            words = found["msg"].removeprefix("Value error, ")
    return found["loc"], words


def _side(entry: _Entry, number: int, config: RunConfig, place: _Places) -> Vendor:
    name = entry.name or entry.layer
    if name is None:
        raise place.error(("vendor", number, "name"), "is missing (a layer may stand in its place)")
    surface = entry.surface or (Surface.ENGINE if entry.layer == "engine" else config.surface)
    prices = entry.prices
    values = {
        "base_url": entry.base_url,
        "model": entry.model or config.model,
        "api_key_env": entry.api_key_env or NO_KEY,
        "provider": entry.provider,
        "extra_body": entry.extra_body,
        "header_env": entry.header_env,
        "other_model": None,
        "surface": surface,
        "profile": entry.profile or config.profile,
        "price_in": prices.input if prices else config.price_in,
        "price_cached": (prices.input if prices.cached is None else prices.cached) if prices else config.price_cached,
        "price_out": prices.output if prices else config.price_out,
        "reference_base_url": None,
    }
    if values["model"] is None:
        raise place.error(("vendor", number, "model"), "is missing (or --model for all)")
    try:
        side = revise(config, values)
        for variable in filter(None, (entry.api_key_env, *side.header_env.values())):
            read_key(variable, required=True)
    except ConfigError as error:
        option, _, words = str(error).partition(": ")
        key = option.removeprefix("--").replace("-", "_")
        named = key in values
        raise place.error(
            ("vendor", number, OPTIONS.get(key, key)) if named else ("vendor", number), words if named else str(error)
        ) from None
    return Vendor(name=name, config=side)


def _shown(keys: Sequence[str | int]) -> str:
    """A path of keys, which are the file's own words: on one line, and not without end."""
    return "".join(c if c.isprintable() else "?" for c in ".".join(map(str, keys)))[:80]


class _Places:
    """Where in the file an entry and its key stand."""

    _HEAD = re.compile(r"\s*\[\[\s*vendor\s*\]\]")

    def __init__(self, path: Path, text: str, table: Mapping[str, Any]) -> None:
        self._path = path
        self._lines = text.splitlines()
        self._entries = table.get("vendor")
        self._heads = [number for number, line in enumerate(self._lines) if self._HEAD.match(line)]

    def error(self, place: Sequence[str | int], words: str) -> ConfigError:
        """``place`` is the path of keys and indices from the top."""
        match place:
            case ["vendor", int(number), *keys]:
                line = self._line(number, str(keys[0]) if keys else "")
                where = f", line {line}" if line else ""
                key = f", {_shown(keys)}" if keys else ""
                return ConfigError(f"{self._path}{where}: vendor {number + 1}{self._named(number)}{key}: {words}")
            case _:
                return ConfigError(f"{self._path}: {_shown(place)}: {words}")

    def _named(self, number: int) -> str:
        """The entry's name, where it has one that can be shown."""
        entry = self._entries[number] if isinstance(self._entries, list) else {}
        name = entry.get("name") if isinstance(entry, dict) else None
        return f" ({name})" if isinstance(name, str) and name.isprintable() and name and len(name) <= NAME_LIMIT else ""

    def _line(self, number: int, key: str) -> int | None:
        """None where the heads do not tell (a text of several lines that looks like one, an inline list): no line is
        better than a wrong one.
        """
        if not isinstance(self._entries, list) or len(self._heads) != len(self._entries):
            return None
        begin = self._heads[number]
        end = self._heads[number + 1] if number + 1 < len(self._heads) else len(self._lines)
        wanted = re.compile(rf"""\s*(?:\[vendor\.)?["']?{re.escape(key)}["']?\s*[=.\]]""")
        return next((at + 1 for at in range(begin + 1, end) if key and wanted.match(self._lines[at])), begin + 1)
