"""The built wheel holds what the tree holds: a new suite folder or fixture must not be missing from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked_content() -> set[str]:
    """Package files by the name they have when installed."""
    wanted = set()
    for folder, package in (("kvv", "kvv"), ("suites", "kvv/suites"), ("fixtures", "kvv/fixtures")):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.endswith((".pyc", ".swp")):
                wanted.add(f"{package}/{path.relative_to(ROOT / folder).as_posix()}")
    return wanted


def test_the_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    source = tmp_path / "source"  # a copy: an old build folder in the tree must not leak into the wheel
    for name in ("kvv", "suites", "fixtures"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "-q",
            "-w",
            str(tmp_path),
            str(source),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-2000:]
    wheel = next(tmp_path.glob("kvv-*.whl"))
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert tracked_content() - names == set()
    assert names - tracked_content() == set()
