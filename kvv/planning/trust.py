"""Whether the user vouches for the ``kvv.toml`` of the current directory, which may have come with somebody's
repository.

Most options are anybody's to set. Those that say where requests and keys go, which variables are read, where a model's
commands run and what is read or written outside the folder are taken from a file that the user has read: named once by
``--trust-config``, which records its place and content in the user's state folder, or by its SHA-256 in the environment
(for CI, where no state outlives the job). A file that changed is a new file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

#: SHA-256 of the kvv.toml that a job may follow, as sha256sum prints it
TRUST_VARIABLE = "KVV_TRUST_CONFIG"
RECORDS = "trusted-configs"

#: options that say where something is sent, with whose secret, where a model's commands run, or what file is written
GUARDED = (
    "base_url",
    "api_key_env",
    "header_env",
    "judge_base_url",
    "judge_api_key_env",
    "reference_base_url",
    "reference_api_key_env",
    "sandbox",
    "as_reference",
)


def guarded(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Those of a file's options, as it spells their values, that only a trusted file may set. A default is nobody's
    word.
    """
    return [name for name, value in values.items() if _is_guarded(name, value, defaults)]


def _is_guarded(name: str, value: Any, defaults: Mapping[str, Any]) -> bool:
    if name in ("extra_body", "judge_extra_body"):  # a file of the user's, sent with every request
        return isinstance(value, str) and value.startswith("@")
    if name == "out":
        return isinstance(value, str) and _leaves(value)
    return name in GUARDED and value != defaults.get(name)


def _leaves(path: str) -> bool:
    """Whether a path may lie outside of the current directory."""
    pure = PurePath(path)
    return pure.is_absolute() or bool(pure.drive) or ".." in pure.parts or path.startswith("~")


def is_trusted(path: Path, text: str, environ: Mapping[str, str]) -> bool:
    named = environ.get(TRUST_VARIABLE, "").split()[:1]
    if named == [hashlib.sha256(text.encode()).hexdigest()]:
        return True
    record = _record(path, text)
    return record is not None and record.is_file()


def trust(path: Path, text: str) -> None:
    """Records the file, where the state folder can be written; where not, the option is given each time."""
    record = _record(path, text)
    if record is not None:
        with suppress(OSError):
            record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            record.touch(mode=0o600)


def _record(path: Path, text: str) -> Path | None:
    """Named by place and content: the same words in another folder are another file, and may name other files."""
    folder = state_folder()
    said = hashlib.sha256(f"{path.resolve()}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
    return None if folder is None else folder / RECORDS / said


def state_folder() -> Path | None:
    """Under XDG_STATE_HOME, ``~/.local/state`` or, on Windows, LOCALAPPDATA. None where the user has no home."""
    named = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_STATE_HOME", "")
    try:
        # a relative path is to be ignored (XDG Base Directory Specification): it would be another one in each folder
        root = Path(named) if Path(named).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return root / "kvv"
