"""The built packages hold what the tree holds, and the same tree gives the same bytes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import zipfile
from importlib.machinery import SourceFileLoader
from io import BytesIO
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tracked_content() -> set[str]:
    """Package files by the name they have when installed."""
    wanted = set()
    for folder, package in (("kvv", "kvv"), ("suites", "kvv/suites"), ("fixtures", "kvv/fixtures")):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.endswith((".pyc", ".swp")):
                wanted.add(f"{package}/{path.relative_to(ROOT / folder).as_posix()}")
    return wanted


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    """Files by name, of two copies of the tree whose files differ in time and mode."""
    loader = SourceFileLoader("kvv_dist", str(ROOT / ".ci/dist"))
    spec = importlib.util.spec_from_loader("kvv_dist", loader)
    assert spec is not None
    dist = importlib.util.module_from_spec(spec)
    loader.exec_module(dist)
    results = []
    for mode, when in ((0o644, 1_700_000_000), (0o600, 1_750_000_000)):
        folder = tmp_path_factory.mktemp("build")
        source = folder / "source"  # a copy: an old build folder in the tree must not leak into the wheel
        for name in ("kvv", "suites", "fixtures"):
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
            shutil.copy(ROOT / name, source)
        for path in source.rglob("*"):
            if path.is_file():
                path.chmod(mode)
                os.utime(path, (when, when))
        dist.build(source, folder / "dist", 1_600_000_000)
        results.append({path.name: path.read_bytes() for path in (folder / "dist").iterdir()})
    return results


def test_the_wheel_holds_every_file_of_the_packages(built: list[dict[str, bytes]]) -> None:
    (wheel,) = (data for name, data in built[0].items() if name.endswith(".whl"))
    names = {name for name in zipfile.ZipFile(BytesIO(wheel)).namelist() if ".dist-info/" not in name}
    assert tracked_content() - names == set()
    assert names - tracked_content() == set()


def test_the_same_tree_gives_the_same_bytes(built: list[dict[str, bytes]]) -> None:
    first, second = built
    assert sorted(name.rsplit(".", 1)[-1] for name in first) == ["gz", "whl"]
    assert [name for name in first if first[name] != second.get(name)] == []
