"""A package that registers a suite and cannot be used is named in one line and skipped, by every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvv.cases.suite import built_in
from kvv.core.plugins import SUITES, find_entry_points
from kvv.profiles.profile import shipped_profiles

GOOD = """
from kvv.core import Area, Done, Outcome, Verdict
from kvv.cases.suite import Suite, SuiteKind

class Good(Suite):
    id, title, kind, areas = "good", "A suite from outside", SuiteKind.CONTRACT, (Area.DECODING,)
    def cases(self, context): return []
    def step(self, case, history): raise AssertionError
    def metrics(self, verdicts, context): return []

class Titleless(Good):
    id = "titleless"
    title = property()

class Abstract(Suite): pass

def leaves(): raise SystemExit(7)
def text(): return "no suite"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder for installed packages, with a module whose suites are of use and not."""
    (tmp_path / "good_suite.py").write_text(GOOD)
    return tmp_path


def install(place: Path, name: str, entry_points: str) -> None:
    info = place / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(entry_points)


def kvv(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KVV_")} | {
        "PYTHONPATH": str(place)
    }
    argv = [sys.executable, "-m", "kvv", *arguments]
    return subprocess.run(argv, cwd=place, env=environment, capture_output=True, text=True, timeout=120, check=False)


def warnings(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("warning: skipped ")]


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "suites", "--json"),
        ("serve", "--help"),
        ("plan", "params"),
        ("run", "params", "--case", "params/rejected/top-p-0.8/*", "-q"),
    ],
    ids=" ".join,
)
def test_every_command_names_a_plugin_that_cannot_be_imported_and_goes_on(
    place: Path, arguments: tuple[str, ...]
) -> None:
    install(place, "gone", "[kvv.suites]\nelsewhere = module_that_does_not_exist:Suite\n")
    done = kvv(place, *arguments)
    assert done.returncode == 0, done.stderr
    why = (
        "plug-in 'elsewhere' (module_that_does_not_exist:Suite): ModuleNotFoundError: No module named"
        " 'module_that_does_not_exist'"
    )
    assert warnings(done) == [f"warning: skipped {why}"]
    assert "Traceback" not in done.stderr
    if arguments[0] == "list":
        assert {row["id"] for row in json.loads(done.stdout)} == set(built_in())


def test_whatever_is_wrong_with_one_the_others_are_there(place: Path) -> None:
    lines = [
        "good = good_suite:Good",
        "other = good_suite:Good",
        "titleless = good_suite:Titleless",
        "abstract = good_suite:Abstract",
    ]
    lines += [
        "leaves = good_suite:leaves",
        "text = good_suite:text",
        "module = good_suite",
        "absent = good_suite:Absent",
        "odd = no name!",
    ]
    lines += ["params = good_suite:Good"]
    usual = kvv(place, "serve", "--help")
    assert (usual.returncode, usual.stderr) == (0, "")
    install(place, "mixed", "\n".join(["[kvv.suites]", *lines, ""]))
    done = kvv(place, "list", "suites", "--json")
    assert done.returncode == 0
    assert {row["id"] for row in json.loads(done.stdout)} == {*built_in(), "good"}
    said = sorted(line.removeprefix("warning: skipped ") for line in warnings(done))
    assert len(said) == len(done.stderr.splitlines())
    for line, told in zip(
        said,
        [
            "plug-in 'absent' (good_suite:Absent): AttributeError",
            "plug-in 'abstract' (good_suite:Abstract): TypeError",
            "plug-in 'leaves' (good_suite:leaves): SystemExit: 7",
            "plug-in 'module' (good_suite): TypeError",
            "plug-in 'odd': 'no name!' is not of the form package.module:name",
            "plug-in 'other' (good_suite:Good): its suite has the id 'good'",
            "plug-in 'params' (good_suite:Good): its suite has the id 'good'",
            "plug-in 'text' (good_suite:text): it gives a str, not a kvv.cases.suite.Suite",
            "plug-in 'titleless' (good_suite:Titleless): its suite has no 'title'",
        ],
        strict=True,
    ):
        assert line.startswith(told)


def test_metadata_that_cannot_be_read_is_named_where_it_speaks_of_suites(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(place, "torn", "[kvv.suites]\nno assignment here\n")
    install(place, "unrelated", "[console_scripts]\nno assignment here\n")
    install(place, "fine", "[kvv.suites]\ngood = good_suite:Good\n")
    monkeypatch.syspath_prepend(place)
    entries, malformed = find_entry_points(SUITES)
    assert [(entry.name, entry.module) for entry in entries] == [("good", "good_suite")]
    assert [line.partition(": ")[0] for line in malformed] == ["entry points of torn-1.dist-info"]


def test_profiles_and_importers_that_cannot_be_used_are_named_too(place: Path) -> None:
    (place / "broken-1.toml").write_text('title = "Broken"\n')
    lines = ["[kvv.profiles]", "broken-1 = good_suite", "absent-1 = good_suite", "kimi-k3 = good_suite"]
    lines += [
        "lost-1 = module_that_does_not_exist",
        "[kvv.importers]",
        "nothing = good_suite:GONE",
        "k2vv = good_suite:text",
    ]
    install(place, "mixed", "\n".join([*lines, ""]))
    done = kvv(place, "list", "profiles", "--json")
    assert done.returncode == 0
    assert {row["id"] for row in json.loads(done.stdout)} == {*shipped_profiles()}
    said = [line.removeprefix("warning: skipped ") for line in warnings(done)]
    assert len(said) == len(done.stderr.splitlines()) == 6
    told = [
        "importer 'k2vv' (good_suite:text): there is another importer of this name",
        "importer 'nothing' (good_suite:GONE): AttributeError",
        "profile 'absent-1' (good_suite): ",
        "profile 'broken-1' (good_suite): broken-1.toml: source: Field required",
        "profile 'kimi-k3' (good_suite): there is another profile of this name",
        "profile 'lost-1' (module_that_does_not_exist): its module cannot be found",
    ]
    assert all(line.startswith(start) for line, start in zip(sorted(said), told, strict=True)), said
