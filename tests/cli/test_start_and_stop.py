"""How a command begins and ends: what it imports before it knows that it is needed, and what a signal finds at any
moment.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kvv.cli.main
import kvv.cli.verbs.session
from kvv.cli.main import main
from kvv.cli.stdio import Outlet
from kvv.mockserver import MockConfig, MockServer

HEAVY = {"numpy", "scipy", "aiohttp", "pandas", "datasets", "jinja2", "sympy", "rich"}


def imported_by(*arguments: str) -> set[str]:
    code = (
        "import json, sys\n"
        "from kvv.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(ended.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("arguments", "not_even"),
    [
        (("--help",), {"pydantic", "sqlite3", "asyncio"}),
        (("run", "--help"), {"pydantic", "sqlite3", "asyncio"}),
        (("frob",), {"pydantic"}),
        (("run", "--limit", "x"), {"pydantic"}),
        (("run", "--limit", "0"), set()),
        (("run", "--header-env", "Host=X"), set()),
        (("resume", "nowhere"), set()),
        (("vendors", "nowhere.toml"), set()),
        (("list", "rules"), set()),
        (("list", "profiles"), set()),
    ],
)
def test_what_needs_no_run_imports_nothing_that_a_run_needs(arguments: tuple[str, ...], not_even: set[str]) -> None:
    assert not imported_by(*arguments) & (HEAVY | not_even)


@pytest.mark.parametrize("what", ["suites", "cases"])
def test_listing_the_suites_needs_no_statistics(what: str) -> None:
    assert not imported_by("list", what) & {"scipy", "aiohttp", "sympy", "jinja2"}


# --- signals ---------------------------------------------------------------------------------------

STOPPED = """
import os, signal, sys
# a test run in the background was started with SIGINT ignored, and a child inherits that
signal.signal(signal.SIGINT, signal.default_int_handler)
from kvv.cli.main import main
import kvv.cli.{module} as module
def stop(*a, **k):
    os.kill(os.getpid(), {number})
    raise AssertionError("the signal came to nothing")
module.{name} = stop
sys.exit(main(sys.argv[1:]))
"""

MOMENTS = [
    ("main", "build_parser"),
    ("main", "_verb"),
    ("verbs.session", "_put_plan"),
    ("verbs.session", "execute"),
    ("verbs.session", "finalize"),
]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("module", "name"), MOMENTS)
def test_a_signal_at_any_moment_is_one_line_and_exit_code_130(
    module: str, name: str, number: signal.Signals, tmp_path: Path
) -> None:
    code = STOPPED.format(module=module, name=name, number=int(number))
    command = [sys.executable, "-c", code, "run", "ocrbench", "--limit", "1", "--out", str(tmp_path), "-q"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 130, ended
    assert "Traceback" not in ended.stderr
    (line,) = ended.stderr.splitlines()
    folders = list(tmp_path.iterdir())
    if name in ("execute", "finalize"):
        assert line == f"kvv: interrupted; continue with: kvv resume {folders[0]}"
    else:
        assert line == "kvv: interrupted"
        assert folders == []


def test_the_handler_is_there_before_anything_else_and_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def looked() -> Any:
        seen.append(signal.getsignal(signal.SIGTERM))
        raise SystemExit(0)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(kvv.cli.main, "build_parser", looked)
    with pytest.raises(SystemExit):
        main([])
    assert seen != [before]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_program_may_call_the_command_line_from_another_thread() -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(["report", "nowhere"])))
    thread.start()
    thread.join()
    assert codes == [2]


def test_a_run_that_was_stopped_says_how_to_go_on_even_when_quiet(kvv_cli: Any) -> None:
    ran = kvv_cli("run", "ocrbench", "--max-requests", "5", "-q")
    assert ran.code == 5
    assert (
        ran.err.splitlines()[-1]
        == f"kvv: stopped (max-requests); continue with: kvv resume {ran.folder} --max-requests MORE"
    )
    ended = kvv_cli("run", "ocrbench", "--limit", "1", "-q")
    assert "continue with" not in ended.said


def test_a_folder_with_blanks_is_quoted_for_the_shell(tmp_path: Path) -> None:
    for sandbox, option in ((None, ""), ("bwrap", ""), ("none", " --sandbox none")):
        job: Any = SimpleNamespace(config=SimpleNamespace(sandbox=sandbox))
        again = kvv.cli.verbs.session.continuation(tmp_path / "a b", job)
        assert again == f"kvv resume '{tmp_path / 'a b'}'{option}"


def test_an_unreachable_endpoint_is_named_even_when_quiet(kvv_cli: Any) -> None:
    ran = kvv_cli("check", "usage", "--base-url", "http://127.0.0.1:1/v1", "--model", "m", "-q")
    assert ran.code == 3
    verdict, trouble, folder = ran.out.splitlines()
    assert verdict.startswith("INCONCLUSIVE")
    assert "nothing accepts connections there" in trouble
    assert folder == str(ran.folder)
    assert os.path.isdir(folder)


COMMAND = f"{sys.executable} -c 'import sys; from kvv.cli.main import main; sys.exit(main())'"


def in_bash(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        errors="replace",
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize(
    "closing", [">/dev/full", "2>/dev/full", ">&-", "2>&-", "<&- >&- 2>&-", "| head -c 1 >/dev/null", "2>&1 | true"]
)
def test_a_verdict_that_cannot_be_printed_is_still_the_exit_code(closing: str, tmp_path: Path) -> None:
    ended = in_bash(f"{COMMAND} run params --case 'params/omitted/*' --out {tmp_path} {closing}")
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ("standard output cannot be written (No space left on device)" in ended.stderr) is (closing == ">/dev/full")
    (report,) = tmp_path.glob("*/report.json")
    assert json.loads(report.read_text("utf-8"))["verdict"] == "pass"


@pytest.fixture(scope="module")
def failed_and_passed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs whose readers went away at once: one of an endpoint that takes what it must refuse, one of a good
    one.
    """
    folders = []
    for fault, code in (((MockConfig(faults=("A05",))), 1), (MockConfig(), 0)):
        out = tmp_path_factory.mktemp("out")
        with MockServer(fault) as server:
            line = (
                f"{COMMAND} run params --case 'params/*/temperature*' --base-url {server.base_url} --model kimi-k3"
                f" --out {out} 2>&1 | true"
            )
            assert in_bash(line).returncode == code
        (report,) = out.glob("*/report.json")
        assert (report.parent / "report.html").is_file()
        folders.append(report.parent)
    return folders[0], folders[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("score {failed}", 1),
        ("report {failed} --format csv", 0),
        ("show --rule * --run {passed} --json", 2),  # a run without findings: a usage error stays one
        ("compare {failed} {passed}", 0),
        ("gate {failed} --baseline {passed} --policy smoke", 1),
        ("list cases", 0),
        ("list cases --json", 0),
        ("frob", 2),
        ("--help", 0),
    ],
)
def test_every_verb_keeps_its_exit_code_when_nobody_reads(
    words: str, code: int, failed_and_passed: tuple[Path, Path]
) -> None:
    failed, passed = failed_and_passed
    ended = in_bash(f"set -f; {COMMAND} {words.format(failed=failed, passed=passed)} 2>&1 | true")
    assert (ended.returncode, "Traceback" in ended.stderr, "Exception ignored" in ended.stderr) == (
        code,
        False,
        False,
    ), ended.stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_character_that_the_terminal_cannot_print_is_escaped(
    encoding: str, failed_and_passed: tuple[Path, Path]
) -> None:
    failed, passed = failed_and_passed
    for words, code in (
        (f"compare {failed} {passed}", 0),
        (f"report {failed} --format md", 0),
        ("list cases --json", 0),
    ):
        ended = in_bash(f"{COMMAND} {words}", PYTHONIOENCODING=encoding)
        assert (ended.returncode, "internal error" in ended.stderr) == (code, False), ended.stderr
    assert json.loads(ended.stdout)
    ended = in_bash(f"{COMMAND} show '\u2192\u00e9' --run {failed}", PYTHONIOENCODING=encoding)
    assert ended.returncode == 2
    assert {"ascii": "\\u2192\\xe9", "cp1252": "\\u2192"}[encoding] in ended.stderr


class _Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_stream_that_failed_is_silent_from_then_on_and_others_are_not() -> None:
    full, good = Outlet(_Full()), Outlet(io.StringIO())
    for outlet in (full, good):
        outlet.write("a")
        outlet.writelines(["b", "c"])
        outlet.flush()
    assert full.failure is not None
    assert (good.failure, good.getvalue()) == (None, "abc")
