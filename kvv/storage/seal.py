"""What this user, on this machine, started: only such a run may say by itself where its requests go and with which key.

A run folder may come from anybody, and its ``run.toml`` can be edited. A run therefore begins with a seal in its store:
a keyed hash over the options that name an address, the variable of a key or of a header, a sandbox, or a file to read
or to write.
The key stays in the user's state folder and never enters a run. Whoever lacks the key cannot make a seal, and the run's
id in it keeps a seal from being moved to another run.

An option that is covered by no valid seal must be given again on the command line. That is also how a job goes on with
a run that another, short-lived machine began.

A name that kvv itself knows (a shipped policy or profile, the fixture of a suite) is no path and needs no proof.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvv.planning.config import ConfigError, RunConfig
from kvv.planning.trust import GUARDED, state_folder
from kvv.profiles.policy import policy_ids
from kvv.profiles.profile import profile_ids
from kvv.rendering.escape import plain
from kvv.storage.files import new_beside
from kvv.storage.run_folder import STORE, as_written, read_config
from kvv.storage.store import Store, StoreError

#: options whose value may be a file or folder of this machine, which is read and, as questions, sent
PATHS = ("data", "tokenizer", "policy", "reference", "profile", "judge_prompts")
#: what a received folder alone does not decide
SEALED = (*GUARDED, *PATHS)
#: the record's name in the store
RECORD = "seal"
KEY_FILE, KEY_BYTES = "seal.key", 32


def seal(config: RunConfig, run_id: str) -> dict[str, Any] | None:
    """The record that this user starts this run with these options; None where the state folder cannot be written.

    An address with a secret in it is left out: run.toml does not hold it whole, so it has to be given again.
    """
    written, key = as_written(config), _made_key()
    options = [name for name in SEALED if not name.endswith("base_url") or written.get(name) == getattr(config, name)]
    return {"options": options, "mac": _mac(key, config, run_id, options)} if key else None


def doubtful(folder: Path, config: RunConfig) -> tuple[str, ...]:
    """The options of a folder's configuration that only its ``run.toml`` vouches for. ConfigError for a store that
    cannot be read.

    A default is named by nobody and needs no proof. ``--sandbox none`` is never taken from a file.
    """
    try:
        with Store.open(folder / STORE, read_only=True) as store:
            meta = store.meta()
    except StoreError as error:
        raise ConfigError(f"RUN: {error}") from error
    proven = _proven(meta.get(RECORD), config, meta.get("run_id"))
    default = {name: field.default for name, field in RunConfig.model_fields.items()}
    return tuple(
        name
        for name in SEALED
        if (value := getattr(config, name)) != default[name]
        and not _known(name, value)
        and (name not in proven or (name == "sandbox" and value == "none"))
    )


def trusted_config(folder: Path, given: Collection[str], unused: Collection[str] = ()) -> RunConfig:
    """The folder's configuration. ConfigError naming what has to be given again beside the options ``given``;
    ``unused`` ones do not count.
    """
    config = read_config(folder)
    missing = [name for name in doubtful(folder, config) if name not in given and name not in unused]
    if missing:
        named = " ".join(_option(name, getattr(config, name)) for name in missing)
        raise ConfigError(
            f"RUN: {plain(str(folder), 300)} has no proof that you started it here with what its run.toml names; "
            f"if you trust it, give it again on the command line: {plain(named, 600)}"
        )
    return config


def _known(name: str, value: Any) -> bool:
    """Whether an option of ``PATHS`` names no file of this machine, but what kvv brings itself."""
    match name:
        case "data":
            return all(path == "fixture" for path in value.values())
        case "policy":
            return value in policy_ids()
        case "profile":
            return value in profile_ids()
    return False


def _option(name: str, value: Any) -> str:
    values = (
        [f"{header}={variable}" for header, variable in value.items()]
        if isinstance(value, Mapping)
        else [str(one) for one in value]
        if isinstance(value, tuple)
        else [str(value)]
    )
    return " ".join(f"--{name.replace('_', '-')} {shlex.quote(one)}" for one in values)


def _proven(record: Any, config: RunConfig, run_id: Any) -> frozenset[str]:
    """The options that a seal of this user vouches for: all that it covers or, where any of them was changed, none."""
    match record:
        case {"options": [*options], "mac": str(mac)} if all(isinstance(name, str) for name in options) and (
            key := _stored_key()
        ):
            known = _mac(key, config, str(run_id), options).encode()
            return frozenset(options) if hmac.compare_digest(known, mac.encode("utf-8", "replace")) else frozenset()
    return frozenset()


def _mac(key: bytes, config: RunConfig, run_id: str, options: Collection[str]) -> str:
    """Over the values as ``run.toml`` holds them, so that a secret in an address is no part of it."""
    table = as_written(config)
    said = {"run_id": run_id, "options": {name: table.get(name) for name in options}}
    return hmac.new(key, json.dumps(said, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def keyed_hash(data: bytes) -> str | None:
    """Of this user on this machine, in hex; None where there is no key and none can be made."""
    key = _made_key()
    return None if key is None else hmac.new(key, data, hashlib.sha256).hexdigest()


# --- the user's key ------------------------------------------------------------------------------


def _key_path() -> Path | None:
    folder = state_folder()
    return folder and folder / KEY_FILE


def _stored_key() -> bytes | None:
    path = _key_path()
    try:
        key = path.read_bytes() if path is not None and path.is_file() else b""
    except OSError:
        return None
    return key if len(key) == KEY_BYTES else None


def _made_key() -> bytes | None:
    path = _key_path()
    if path is None or (key := _stored_key()) is not None:
        return key if path is not None else None
    with suppress(OSError):  # a read-only home: the run is worth more than its seal
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        unnamed, out = new_beside(path, 0o600)
        try:
            with out:
                out.write(secrets.token_bytes(KEY_BYTES))
            try:
                os.link(unnamed, path)
            except FileExistsError:  # another run of this moment was first: its key is the user's
                pass
            except OSError:  # a file system without links
                os.replace(unnamed, path)
        finally:
            unnamed.unlink(missing_ok=True)
    return _stored_key()
