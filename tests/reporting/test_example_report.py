"""The committed example: made by `kvv run`, small, and rendered again from its store to the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kvv.reporting.finalize import FILES

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "reports" / "example"
AGAIN = "kvv report reports/example --format json,junit,md,html,leaderboard --to reports/example"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    from kvv.storage.snapshot import build_view
    from kvv.storage.store import Store

    # a copy: opening a store may leave files beside it
    place = tmp_path_factory.mktemp("example") / "store.sqlite"
    shutil.copy(EXAMPLE / "store.sqlite", place)
    with Store.open(place, read_only=True) as store:
        view = build_view(store)
    return {name: render(view) for name, render in FILES.items()}


@pytest.mark.parametrize("name", sorted(FILES))
def test_its_store_gives_the_same_bytes_again(rendered: dict[str, str], name: str) -> None:
    same = (EXAMPLE / name).read_bytes() == rendered[name].encode()
    assert same, f"{name} is not what its store gives now; where that was meant, run: {AGAIN}"


def test_it_is_whole_small_and_says_nothing_of_the_machine() -> None:
    files = sorted(path for path in EXAMPLE.iterdir())
    assert {path.name for path in files} == {*FILES, "run.toml", "store.sqlite"}
    assert sum(path.stat().st_size for path in files) < 1_000_000
    for path in files:
        data = path.read_bytes()
        for word in (b"/tmp/", b"/home/", b"/root", b"/work/", b"Bearer ey", b"sk-"):
            assert word not in data, (path.name, word)


def test_it_shows_a_failure_with_its_evidence_and_a_quality_gate(kvv_cli: Any) -> None:
    said = kvv_cli("report", str(EXAMPLE), "--format", "text")
    assert said.code == 0
    assert said.out.startswith("FAIL, 3 of 3 suites")
    assert "chunk/finish-key" in said.out
    assert "worse-than-reference" in said.out


def test_it_is_nobodys_newest_run(kvv_cli: Any) -> None:
    shutil.copytree(EXAMPLE, "reports/example")
    for arguments in (("report", "last"), ("history", "reports"), ("leaderboard", "reports")):
        assert kvv_cli(*arguments).code == 2
    assert kvv_cli("report", "reports/example").code == 0
