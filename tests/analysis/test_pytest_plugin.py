"""`pytest --kvv-run DIR` in a pytest of its own; ordinary pytest runs do not notice the plugin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_pytest(where: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The plugin is named, and not found by its entry point, so that an older installation of the package does as
    well.
    """
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "kvv.cli.pytest_plugin",
        "-p",
        "no:cacheprovider",
        *map(str, arguments),
    ]
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False, timeout=120)


def counts(output: str) -> dict[str, int]:
    return {
        word.rstrip("s"): int(n)
        for n, word in re.findall(r"(\d+) (passed|failed|errors?|skipped|xfailed)\b", output.splitlines()[-1])
    }


def test_a_clean_run_is_green_with_an_item_per_case_gate_and_verdict(runs: Any, tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text("def test_other():\n    assert False\n")
    ran = run_pytest(tmp_path, "--kvv-run", runs.good, "-v")
    assert ran.returncode == 0, ran.stdout
    assert "test_other" not in ran.stdout
    assert "store.sqlite::params/rejected/temperature-" in ran.stdout
    assert "store.sqlite::gate/contract/decoding PASSED" in ran.stdout
    assert "store.sqlite::verdict PASSED" in ran.stdout
    assert "ocrbench/regular" not in ran.stdout
    assert set(counts(ran.stdout)) <= {"passed", "skipped"}


def test_a_bad_run_fails_by_case_and_says_what_was_expected(runs: Any, tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "--kvv-run", runs.bad, "--junit-xml", "j.xml")
    assert ran.returncode == 1
    assert "requirement:" in ran.stdout
    assert "curl" in ran.stdout
    assert "Authorization" not in ran.stdout  # no key was sent
    assert "Traceback" not in ran.stdout
    found = ET.parse(tmp_path / "j.xml").getroot().find("testsuite")  # noqa: S314 our own file
    assert found is not None
    cases = {case.get("name"): case for case in found.iter("testcase")}
    for name in ("gate/contract/decoding", "verdict"):
        failure = cases[name].find("failure")
        assert failure is not None
    assert counts(ran.stdout)["failed"] >= 3


def test_a_run_and_ordinary_tests_can_be_named_together(runs: Any, tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text("def test_other():\n    assert True\n")
    ran = run_pytest(tmp_path, "--kvv-run", runs.good, "test_other.py", "-v")
    assert ran.returncode == 0, ran.stdout
    assert "test_other.py::test_other PASSED" in ran.stdout
    assert "store.sqlite::verdict PASSED" in ran.stdout


def test_a_worker_of_xdist_collects_each_item_once(runs: Any, tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "-p", "xdist", "-n1", "--kvv-run", runs.good, "-v")
    assert ran.returncode == 0, ran.stdout
    assert len(re.findall(r"PASSED \S*store\.sqlite::verdict", ran.stdout)) == 1
    assert counts(ran.stdout)["passed"] > 3


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_folder_that_is_no_run_is_a_usage_error(tmp_path: Path, name: str) -> None:
    ran = run_pytest(tmp_path, "--kvv-run", name)
    assert ran.returncode == 4
    assert "this is no run folder" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_damaged_store_is_a_collection_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/store.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    ran = run_pytest(tmp_path, "--kvv-run", "run")
    assert ran.returncode == 2
    assert "Traceback" not in ran.stdout
    assert "run/store.sqlite" in ran.stdout


def test_without_the_option_nothing_is_collected_and_nothing_imported(runs: Any, tmp_path: Path) -> None:
    lines = (
        "import sys",
        "def test_modules():",
        "    heavy = ('kvv', 'numpy', 'scipy', 'pydantic', 'rich')",
        "    loaded = sorted(m for m in sys.modules if m.split('.')[0] in heavy)",
        "    assert loaded == ['kvv', 'kvv.cli', 'kvv.cli.pytest_plugin']",
    )
    (tmp_path / "test_modules.py").write_text("\n".join(lines) + "\n")
    os.symlink(runs.good, tmp_path / "run")
    ran = run_pytest(tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert counts(ran.stdout) == {"passed": 1}


def test_the_package_declares_the_entry_point() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert table["project"]["entry-points"]["pytest11"] == {"kvv": "kvv.cli.pytest_plugin"}
