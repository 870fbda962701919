"""Instances of coding benchmarks: SWE-bench's columns, and folders of DeepSWE / Harbor tasks."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kvv.core.toml_text import TomlError, parse_toml
from kvv.data.local import Row, read_path
from kvv.data.spec import DataError, DatasetSpec, one_line

#: bytes of one bundle
BUNDLE_LIMIT = 64 << 20
LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")

#: a task's file, and where the task's repository lies in its image
TASK, TASK_WORKDIR = "task.toml", "/app"
#: bytes of all files that the verifier needs
TESTS_LIMIT = 16 << 20
AGENT_S, VERIFIER_S, COLLECT_S = 5_400.0, 1_800.0, 300.0


def read_swebench(path: Path, spec: DatasetSpec) -> list[Row]:
    """Rows of a file or of a folder. DataError names file and row."""
    if path.is_dir() and (tasks := task_folders(path)):
        return [task_row(folder) for folder in tasks]
    rows = read_path(path, spec)
    folder = path if path.is_dir() else path.parent
    return [
        _with_bundle(row, f"{path}: row {number}", folder) for number, row in enumerate(from_rows(rows, str(path)), 1)
    ]


def from_rows(rows: list[dict[str, Any]], where: str) -> list[Row]:
    """The classic sets hold lists of tests as JSON text."""
    for number, row in enumerate(rows, 1):
        for column in LISTS:
            row[column] = _list(row.get(column), f"{where}: row {number}: column {column!r}")
    return rows


def _list(value: Any, where: str) -> Any:
    """``shaped`` has made a list of one out of a text."""
    text = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(text, str) or not text.lstrip().startswith("["):
        return value
    try:
        parsed = json.loads(text)
    except ValueError as error:
        # a test whose name begins with a bracket is a name
        if isinstance(value, list):
            return value
        raise DataError(f"{where}: not JSON: {one_line(error, 80)}") from error
    return parsed if isinstance(parsed, list) else value


def _with_bundle(row: Row, where: str, folder: Path) -> Row:
    """A bundle is named by its path below the folder, and becomes its content in base64."""
    name = row.get("bundle")
    if not isinstance(name, str) or not name:
        return row
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise DataError(f"{where}: the bundle {name!r:.80} lies outside of {folder}")
    try:
        if path.stat().st_size > BUNDLE_LIMIT:
            raise DataError(f"{where}: the bundle {name!r:.80} is larger than {BUNDLE_LIMIT} bytes")
        row["bundle"] = base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError as error:
        raise DataError(f"{where}: the bundle {name!r:.80}: {error.strerror or one_line(error)}") from error
    return row


# --- DeepSWE and Harbor ----------------------------------------------------------------------------


def task_folders(path: Path) -> list[Path]:
    """The task that the folder is, or the tasks that it holds (``tasks/*`` included), by name."""
    if (path / TASK).is_file():
        return [path]
    return sorted(found.parent for pattern in ("*", "tasks/*") for found in path.glob(f"{pattern}/{TASK}"))


def task_row(folder: Path) -> Row:
    """A task in the columns of SWE-bench; ``task`` holds what only such tasks have."""
    where = str(folder / TASK)
    settings = _toml(folder / TASK)
    metadata, environment = _table(settings, "metadata", where), _table(settings, "environment", where)
    config = _config(folder)
    tests = _tests(folder)
    verifier = _table(settings, "verifier", where)
    return {
        "instance_id": folder.name,
        "repo": _repository(str(metadata.get("repository_url") or folder.name)),
        "base_commit": str(config.get("base_commit") or metadata.get("base_commit_hash") or ""),
        "problem_statement": _text(folder / "instruction.md"),
        "patch": _first(folder / "solution", ("solution.patch", "model.patch")),
        "test_patch": tests.get("test.patch", ""),
        "FAIL_TO_PASS": _node_ids(config.get("f2p_node_ids")),
        "PASS_TO_PASS": _node_ids(config.get("p2p_node_ids")),
        "image": str(environment.get("docker_image") or ""),
        "workdir": TASK_WORKDIR,
        "task": {
            "files": tests,
            "agent_s": float(_table(settings, "agent", where).get("timeout_sec") or AGENT_S),
            "verifier_s": float(verifier.get("timeout_sec") or VERIFIER_S),
            "collect_s": COLLECT_S,
            "reports": [str(name) for name in (config.get("grade") or {}).get("reports") or []],
            "format": str((config.get("grade") or {}).get("format") or ""),
            "node_id": str((config.get("grade") or {}).get("node_id") or ""),
        },
    }


def _node_ids(names: Any) -> list[str]:
    """As the tasks' grader reads them: without blanks around, each once."""
    return list(dict.fromkeys(text for name in names or [] if (text := str(name).strip())))


def _config(folder: Path) -> Mapping[str, Any]:
    path = folder / "tests" / "config.json"
    if not path.is_file():
        return {}
    try:
        parsed = json.loads(_text(path))
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {one_line(error, 80)}") from error
    if not isinstance(parsed, dict):
        raise DataError(f"{path}: should be an object")
    return parsed


def _tests(folder: Path) -> dict[str, str]:
    """The verifier's files by their path below ``tests``."""
    root = folder / "tests"
    found, size = {}, 0
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        size += path.stat().st_size
        if size > TESTS_LIMIT:
            raise DataError(f"{root}: holds more than {TESTS_LIMIT} bytes")
        found[path.relative_to(root).as_posix()] = _text(path)
    return found


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return parse_toml(_text(path))
    except TomlError as error:
        raise DataError(f"{path}: {error}") from error


def _table(settings: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    table = settings.get(name) or {}
    if not isinstance(table, dict):
        raise DataError(f"{where}: {name} should be a table")
    return table


def _repository(address: str) -> str:
    return urlsplit(address).path.strip("/").removesuffix(".git") or address


def _first(folder: Path, names: tuple[str, ...]) -> str:
    return next((_text(folder / name) for name in names if (folder / name).is_file()), "")


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or one_line(error)}") from error
