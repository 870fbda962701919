"""A run's folder: its name, its redacted configuration, and how a run is found again.

The configuration is put there last and at once: a folder that holds ``run.toml`` holds a usable store, and one
that a killed start left behind is no run.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tomli_w
from pydantic import ValidationError

from kvv.core.toml_text import parse_toml
from kvv.planning.config import ConfigError, RunConfig
from kvv.planning.plain_file import read_plain
from kvv.protocol.redaction.redactor import redact_url
from kvv.storage.files import make_folder, replace_file

STORE = "store.sqlite"
CONFIG = "run.toml"
#: host labels that name no vendor
GENERIC_LABELS = frozenset(
    {
        "api",
        "www",
        "inference",
        "gateway",
        "llm",
        "openai",
        "v1",
        "com",
        "ai",
        "net",
        "org",
        "io",
        "cn",
        "dev",
        "co",
        "xyz",
    }
)
NAME_LIMIT = 99
#: what services on this machine are called, before their port
LOCAL = "local"
#: the committed example under reports/ is nobody's newest run; it is read where it is named
EXAMPLE = "example"
_STAMP_FORM = "%Y%m%dT%H%M%SZ"
_STAMP = re.compile(r"\d{8}T\d{6}Z")


def vendor_of(base_url: str | None) -> str:
    """A short name for the endpoint's owner, from the host; ``reference`` for our own endpoint.

    Services on this machine differ by nothing but their port: ``local-8000``.
    """
    if base_url is None:
        return "reference"
    parts = urlsplit(base_url)
    host = (parts.hostname or "unknown").lower()
    if host in ("localhost", "::1") or host.startswith("127."):
        return f"{LOCAL}-{parts.port or (443 if parts.scheme == 'https' else 80)}"
    if re.fullmatch(r"[0-9.]+", host) or ":" in host:
        return slug(host)
    labels = [label for label in host.split(".") if label not in GENERIC_LABELS]
    return slug(labels[-1]) if labels else slug(host)


def vendor_stored(vendor: str, base_url: str) -> str:
    """The vendor of a stored run. Runs from before ports were told apart say ``local``; their address, where it was
    kept, has the port.
    """
    return vendor_of(base_url) if vendor == LOCAL and base_url.startswith("http") else vendor


def slug(text: str, limit: int = 32) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:limit].strip("-.") or "unnamed"


def create_folder(out: str, vendor: str, model: str, *, shared: bool) -> Path:
    """``<out>/<utc>-<vendor>-<model>-<hash>/``, new, with no colon or slash from names and under 100 characters; this
    user's alone unless ``shared``.
    """
    stamp = datetime.now(UTC).strftime(_STAMP_FORM)
    name = f"{stamp}-{vendor}-{slug(model)}-{secrets.token_hex(3)}"[:NAME_LIMIT]
    folder = Path(out) / name
    try:
        make_folder(folder, shared=shared)
    except OSError as error:
        raise ConfigError(f"--out: cannot make {folder}: {error.strerror or error}") from error
    return folder


def write_config(folder: Path, config: RunConfig) -> None:
    """run.toml. It makes the folder a run: written last."""
    text = "# options of this run that are no defaults; secrets are never written\n" + tomli_w.dumps(as_written(config))
    try:
        replace_file(folder / CONFIG, text)
    except OSError as error:
        raise ConfigError(f"--out: cannot write to {folder}: {error.strerror or error}") from error


def as_written(config: RunConfig) -> dict[str, Any]:
    """What run.toml holds: every option that is no default, URLs without user info or query values."""
    table = config.model_dump(mode="json", exclude_defaults=True)
    for name in ("base_url", "judge_base_url", "reference_base_url"):
        if table.get(name):
            table[name] = redact_url(table[name])
    written: dict[str, Any] = _without_none(table)
    return written


def _without_none(value: Any) -> Any:
    """TOML has no null; a field that is null inside --extra-body is kept as the word."""
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_none(item) for item in value]
    return "null" if value is None else value


def read_config(folder: Path) -> RunConfig:
    """The options of a run folder, which may be anybody's: ``kvv.storage.seal`` tells which of them may be followed.
    ConfigError in one line.
    """
    path = folder / CONFIG
    try:
        table = parse_toml(read_plain(path))
        for name in ("extra_body", "judge_extra_body"):
            if isinstance(table.get(name), str):  # on a command line @FILE is read; written down are its fields
                raise ConfigError(f"RUN: {path}: {name}: must be a table")
        # where a value came from is what this file says of it, whatever the file says of that
        return RunConfig.model_validate({**table, "origin": dict.fromkeys(table, CONFIG)})
    except FileNotFoundError:
        raise ConfigError(f"RUN: {folder} holds no {CONFIG}: this is no run folder") from None
    except ValidationError as error:
        raise ConfigError(f"RUN: {path}: {error.errors()[0]['msg']}") from None
    except ConfigError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"RUN: {path}: {error}") from error


def runs_under(out: str | Path) -> list[Path]:
    """The folders of usable runs directly under ``out``, the oldest first.

    The name begins with the second of the start; of the same second, the one whose run.toml was put first. A folder
    with a name of its own goes by its run.toml alone.
    """
    found = (path.parent for path in Path(out).glob(f"*/{CONFIG}") if (path.parent / STORE).is_file())
    return sorted((folder for folder in found if folder.name != EXAMPLE), key=_begun)


def _begun(folder: Path) -> tuple[str, int, str]:
    try:
        put_ns = (folder / CONFIG).stat().st_mtime_ns
    except OSError:  # removed in this moment
        put_ns = 0
    stamp = _STAMP.match(folder.name)
    return stamp[0] if stamp else datetime.fromtimestamp(put_ns / 1e9, UTC).strftime(_STAMP_FORM), put_ns, folder.name


def find_run(name: str, out: str = "reports") -> Path:
    """A run folder by path, or by its name (or a unique beginning or hash of it) under ``out``; ``last`` is the
    newest.
    """
    path = Path(name)
    if (path / STORE).is_file():
        return path
    if path.name == STORE and path.is_file():
        return path.parent
    if path.exists():
        raise ConfigError(f"RUN: {name} holds no {STORE}: this is no run folder")
    found = runs_under(out)
    if name == "last" and found:
        return found[-1]
    matching = [folder for folder in found if folder.name.startswith(name) or folder.name.endswith(name)]
    if len(matching) == 1:
        return matching[0]
    what = "no run" if not matching else f"{len(matching)} runs"
    raise ConfigError(f"RUN: {what} {'match' if matching else 'matches'} {name!r} here or under {out}/")
