"""The hub: the only module that imports ``datasets`` and its hub client, lazily, with telemetry off and progress bars
only on a terminal.

``HF_ENDPOINT`` (a mirror), ``HF_HUB_OFFLINE``, ``HF_HOME`` and tokens are honoured by the libraries themselves.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kvv.data.shape import shape_row
from kvv.data.spec import DataError, DatasetSpec, one_line

#: seconds to find out whether anybody listens; the library's own retries take half a minute to say no
PROBE_TIMEOUT_S = 5.0

_COMMIT = re.compile(r"[0-9a-f]{40}")


def _datasets() -> Any:
    """The library. It costs seconds to import, and reads its switches from the environment while it is imported."""
    for switch in ("HF_HUB_DISABLE_TELEMETRY", "HF_DATASETS_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        os.environ.setdefault(switch, "1")
    datasets: Any = import_module("datasets")
    hub: Any = import_module("huggingface_hub.utils")
    hub.logging.set_verbosity_error()
    datasets.logging.set_verbosity_error()
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        hub.disable_progress_bars()
    return datasets


def read_hub(spec: DatasetSpec, *, revision: str, offline: bool) -> tuple[list[dict[str, Any]], str]:
    """Rows of the split, and the commit they came from (the asked revision where the library does not tell).

    Where the hub cannot be reached, or ``offline``, only what the library has in its own cache. DataError with one line
    for whatever goes wrong.
    """
    datasets = _datasets()
    silence = "" if offline else unreachable(datasets.config.HF_ENDPOINT)
    try:
        with _network(off=offline or bool(silence)):
            loaded = datasets.load_dataset(spec.repo, spec.config, split=spec.split, revision=revision)
            return _rows(datasets, loaded, spec, spec.repo), _commit(loaded) or revision
    except DataError:
        raise
    except (
        Exception
    ) as error:  # the libraries raise what their many parts raise: httpx, pyarrow, fsspec, OSError, ValueError
        reason = silence or ("offline, and not in the library's cache" if offline else one_line(error, 200))
        raise DataError(f"{spec.repo}@{revision}: cannot load from the hub ({reason})") from error


def unreachable(endpoint: str) -> str:
    """Why nobody answers at the endpoint's host, "" when somebody listens or a proxy decides."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return f"{endpoint!r:.100} is no address"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"{endpoint!r:.100} is no http or https address"
    if any(
        os.environ.get(name)
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
    ):
        return ""
    try:
        with socket.create_connection((parts.hostname, port), PROBE_TIMEOUT_S):
            return ""
    except OSError as error:
        return f"{parts.hostname}:{port} cannot be reached: {error.strerror or one_line(error, 80)}"


@contextmanager
def _network(*, off: bool) -> Iterator[None]:
    """Both libraries read HF_HUB_OFFLINE once, while they are imported: what they made of it is set here, and put
    back.
    """
    datasets: Any = import_module("datasets")
    constants: Any = import_module("huggingface_hub.constants")
    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    if off:
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def _commit(loaded: Any) -> str | None:
    """The commit, by which the library names the folder it keeps the rows in."""
    names = (Path(kept["filename"]).parent.name for kept in loaded.cache_files)
    return next((name for name in names if _COMMIT.fullmatch(name)), None)


def _rows(
    datasets: Any, loaded: Any, spec: DatasetSpec, where: str, folder: Path | None = None
) -> list[dict[str, Any]]:
    for column, kind in spec.columns.items():
        if kind.startswith("image") and column in loaded.column_names:
            loaded = loaded.cast_column(column, datasets.Image(decode=False))
    return [shape_row(dict(row), spec, f"{where}: row {number}", folder) for number, row in enumerate(loaded, 1)]


def read_saved(folder: Path, spec: DatasetSpec) -> list[dict[str, Any]]:
    """Rows of a folder written by ``save_to_disk``: a data set, or a dictionary of splits."""
    datasets = _datasets()
    try:
        loaded = datasets.load_from_disk(str(folder))
        if isinstance(loaded, datasets.DatasetDict):
            if spec.split not in loaded:
                raise DataError(f"{folder}: holds no split {spec.split!r}, only {', '.join(map(str, loaded))}")
            loaded = loaded[spec.split]
        return _rows(datasets, loaded, spec, str(folder), folder)
    except DataError:
        raise
    except Exception as error:  # as above
        raise DataError(f"{folder}: not a sound data-set folder ({one_line(error, 200)})") from error


def fetch(spec: DatasetSpec, into: Path, *, revision: str, mirror: str | None) -> str:
    """Download the set's files as they are, in the hub's layout; returns the commit."""
    datasets = _datasets()
    client: Any = import_module("huggingface_hub")
    endpoint = mirror or datasets.config.HF_ENDPOINT
    if datasets.config.HF_HUB_OFFLINE:
        raise DataError(f"{spec.repo}@{revision}: cannot be fetched: HF_HUB_OFFLINE is set")
    if silence := unreachable(endpoint):
        raise DataError(f"{spec.repo}@{revision}: cannot be fetched ({silence})")
    try:
        api = client.HfApi(endpoint=mirror)
        commit = str(api.dataset_info(spec.repo, revision=revision).sha or revision)
        client.snapshot_download(
            spec.repo,
            repo_type="dataset",
            revision=commit,
            local_dir=into,
            allow_patterns=list(spec.files),
            endpoint=mirror,
        )
    except Exception as error:  # as above
        raise DataError(
            f"{spec.repo}@{revision}: cannot be fetched from {urlsplit(endpoint).hostname} ({one_line(error, 200)})"
        ) from error
    return commit
