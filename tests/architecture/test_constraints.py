"""The versions and hashes by which CI installs: all that pyproject.toml wants is there, and nothing unhashed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / ".ci" / "constraints.txt").read_text("utf-8")
#: name -> its lines: a requirement, continued by hashes
PINNED = {
    re.sub(r"[-_.]+", "-", found[1]).lower(): found[0]
    for found in re.finditer(r"^([A-Za-z0-9._-]+)==.*?(?<!\\)$", TEXT, re.MULTILINE | re.DOTALL)
}


def names(requirements: list[str]) -> set[str]:
    found = [re.match(r"[A-Za-z0-9._-]+", requirement) for requirement in requirements]
    return {re.sub(r"[-_.]+", "-", name[0]).lower() for name in found if name} - {"kvv"}


def test_every_dependency_of_the_tests_is_pinned_by_hash() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = names([*project["dependencies"], *extras["test"], *extras["tokens"], *extras["types"]])
    assert wanted - PINNED.keys() == set(), "run .ci/lock"
    assert len(PINNED) > len(wanted)
    assert [name for name, lines in PINNED.items() if "--hash=sha256:" not in lines] == []


def test_what_is_pinned_comes_from_whatever_index_the_machine_has() -> None:
    assert "://" not in TEXT
    assert not re.search(r"^-|file:", TEXT, re.MULTILINE)


def test_ci_installs_by_the_file() -> None:
    assert "--require-hashes -r .ci/constraints.txt" in (ROOT / ".ci" / "run").read_text("utf-8")
