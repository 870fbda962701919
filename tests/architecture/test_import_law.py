"""The import law of DESIGN section 2: pure rooms do no I/O, and each dangerous library is known to one room only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PURE = [
    "suites",
    "kvv/protocol",
    "kvv/protocol/rules",
    "kvv/stats",
    "kvv/decision",
    "kvv/analysis",
    "kvv/planning/plan.py",
    "kvv/planning/shard.py",
    "kvv/planning/interim_plan.py",
    "kvv/reporting",
    "kvv/core",
    "kvv/protocol/classify.py",
    "kvv/stats/metrics.py",
    "kvv/cases/contract",
    "kvv/cases/checks",
    "kvv/protocol/reader.py",
    "kvv/cases/case_file.py",
    "kvv/protocol/images.py",
    "kvv/protocol/visible_text.py",
    "kvv/decision/gateway_timeouts.py",
    "kvv/decision/upstreams.py",
    "kvv/cases/replay.py",
]
HTTP_CLIENTS = {"httpx", "httpx2", "aiohttp", "requests", "urllib3", "http", "urllib.request", "socket", "openai"}
POSIX_ONLY = {"fcntl", "resource", "pwd", "grp", "termios", "pty"}
CLOCKS = {"time", "random", "secrets"}


def sources(*places: str) -> list[Path]:
    found: list[Path] = []
    for place in places:
        path = ROOT / place
        assert path.exists(), f"{place} is gone: name its new place"
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return found


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
            or (isinstance(node.func, ast.Attribute) and node.func.attr in ("open", "read_bytes", "write_bytes", "write_text"))
        )
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )


@pytest.mark.parametrize("place", PURE)
def test_pure_rooms_import_no_network_database_clock_or_random_source(place: str) -> None:
    assert violations(sources(place), HTTP_CLIENTS | POSIX_ONLY | CLOCKS | {"sqlite3", "subprocess"}) == []


# Pillow opens a buffer in images.py, which an AST cannot tell from a file
@pytest.mark.parametrize("place", [place for place in PURE if place != "kvv/protocol/images.py"])
def test_pure_rooms_open_no_file(place: str) -> None:
    assert [str(path.relative_to(ROOT)) for path in sources(place) if calls_open(path)] == []


def test_only_the_transport_knows_an_http_client() -> None:
    # reference/ runs a server; reading proxy settings from the environment is no client, though urllib keeps it there
    allowed = {ROOT / "kvv/transport/client.py", ROOT / "kvv/transport/endpoint.py"}
    everything = [path for path in sources("kvv", "suites") if path not in allowed and "reference" not in path.parts]
    assert violations(everything, HTTP_CLIENTS - {"http", "socket"}) == []
    assert violations([ROOT / "kvv/transport/endpoint.py"], HTTP_CLIENTS - {"urllib.request"}) == []


def test_only_the_store_knows_sqlite() -> None:
    assert violations([path for path in sources("kvv", "suites") if "store" not in path.parts], {"sqlite3"}) == []


def test_posix_only_modules_stay_in_the_sandbox() -> None:
    assert violations([path for path in sources("kvv", "suites") if "sandbox" not in path.parts], POSIX_ONLY) == []


def test_only_data_reads_datasets_and_pandas() -> None:
    allowed = ("data", "report")
    assert (
        violations(
            [path for path in sources("kvv", "suites") if not set(path.parts) & set(allowed) and path.name != "data.py"], {"datasets", "pandas"}
        )
        == []
    )


def test_the_reference_endpoint_cannot_mirror_our_mistakes() -> None:
    assert violations(sources("kvv/mockserver"), {"kvv.protocol.rules", "kvv.protocol", "kvv.suites", "kvv.cases.checks", "kvv.cases.contract", "kvv.protocol.reader"}) == []


def test_suites_and_fixtures_are_imported_by_their_package_name_only() -> None:
    assert violations(sources("kvv", "suites", "tests", "bench"), {"suites", "fixtures"}) == []


def test_the_law_would_see_a_breach(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import time\nfrom sqlite3 import connect\nopen('x')\n")
    assert set(imports(bad)) >= {"time", "sqlite3"}
    assert calls_open(bad)
