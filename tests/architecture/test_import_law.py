"""The import law: each dangerous library is known to one package only, and what should be pure does no I/O.

Which package may import which is a contract in pyproject.toml, checked on the installed wheel by ``.ci/run``.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PURE = ["suites", "kvv/core", "kvv/stats", "kvv/protocol", "kvv/rendering", "kvv/cases", "kvv/decision", "kvv/analysis"]
PURE += [f"kvv/planning/{name}.py" for name in ("plan", "shard", "interim_plan", "published_means", "run_plan")]
PURE += [
    f"kvv/reporting/{name}.py"
    for name in (
        *("csv", "github", "html", "instances", "json", "junit", "leaderboard", "load"),
        *("markdown", "moonshot", "text"),
    )
]
HTTP_CLIENTS = {"httpx", "httpx2", "aiohttp", "requests", "urllib3", "http", "urllib.request", "socket", "openai"}
POSIX_ONLY = {"fcntl", "resource", "pwd", "grp", "termios", "pty"}
CLOCKS = {"time", "random", "secrets"}


def sources(*places: str) -> list[Path]:
    listed: list[Path] = []
    for place in places:
        path = ROOT / place
        assert path.exists(), f"{place} is gone: name its new place"
        listed += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return listed


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(paths: list[Path], banned: set[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in paths
        for name in imports(path)
        if any(name == word or name.startswith(word + ".") for word in banned)
    ]


def calls_open(path: Path) -> bool:
    return any(
        isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id == "open")
            or (
                isinstance(node.func, ast.Attribute)
                and node.func.attr in ("open", "read_bytes", "write_bytes", "write_text")
            )
        )
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )


@pytest.mark.parametrize("place", PURE)
def test_pure_packages_import_no_network_database_clock_or_random_source(place: str) -> None:
    assert violations(sources(place), HTTP_CLIENTS | POSIX_ONLY | CLOCKS | {"sqlite3", "subprocess"}) == []


# Pillow opens a buffer in images.py, which an AST cannot tell from a file
@pytest.mark.parametrize("place", PURE)
def test_pure_packages_open_no_file(place: str) -> None:
    opening = [path.relative_to(ROOT).as_posix() for path in sources(place) if calls_open(path)]
    assert [path for path in opening if path != "kvv/protocol/images.py"] == []


def test_only_the_transport_imports_an_http_client() -> None:
    # the mock server runs a server; reading proxy settings from the environment is no client, though urllib keeps it
    # there
    client, notify, endpoint = (ROOT / f"kvv/transport/{name}.py" for name in ("client", "notify", "endpoint"))
    others = [p for p in sources("kvv", "suites") if p not in (client, notify, endpoint)]
    assert violations([p for p in others if "mockserver" not in p.parts], HTTP_CLIENTS - {"http", "socket"}) == []
    assert violations([endpoint], HTTP_CLIENTS - {"urllib.request"}) == []


def test_only_the_store_imports_sqlite() -> None:
    store = ROOT / "kvv/storage/store"
    assert violations([p for p in sources("kvv", "suites") if store not in p.parents], {"sqlite3"}) == []


def test_posix_only_modules_stay_in_the_sandbox() -> None:
    assert violations([p for p in sources("kvv", "suites") if "sandbox" not in p.parts], POSIX_ONLY) == []


def test_only_data_reads_datasets_and_pandas() -> None:
    elsewhere = [p for p in sources("kvv", "suites") if not set(p.parts) & {"data", "reporting"}]
    assert violations(elsewhere, {"datasets", "pandas"}) == []


def test_suites_and_fixtures_are_imported_by_their_package_name_only() -> None:
    assert violations(sources("kvv", "suites", "tests", "bench"), {"suites", "fixtures"}) == []


def test_no_module_lies_loose_at_the_top() -> None:
    assert {path.stem for path in (ROOT / "kvv").glob("*.py")} <= {"__init__", "__main__", "api"}


def test_the_architecture_page_lists_the_layers_of_the_contract_in_their_order() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in table if contract["type"] == "layers")
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.M)
    assert listed == [name for name in reversed(layers) if name.isidentifier()]
    folders = {path.name for path in (ROOT / "kvv").iterdir() if (path / "__init__.py").is_file()}
    assert {*listed} == folders | {"suites"}


def test_the_law_would_see_a_breach(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import time\nfrom sqlite3 import connect\nopen('x')\n")
    assert set(imports(bad)) >= {"time", "sqlite3"}
    assert calls_open(bad)
