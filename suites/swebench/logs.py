"""Test statuses from a test run's output, by the log forms of the official harness.

One pass over the lines, no backtracking: the output is written by code under test. What the harness's parsers take for
a status is taken here too, so that ids of FAIL_TO_PASS and PASS_TO_PASS match; the difference is that a test that is
reported twice keeps its worst status in ``worst`` beside the last one in ``last``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from kvv.suites.swebench.logs_elsewhere import ELSEWHERE
from kvv.suites.swebench.logs_multilingual import BY_INSTANCE, MULTILINGUAL

START, END = ">>>>> Start Test Output", ">>>>> End Test Output"
EXIT = ">>>>> Test Exit Code"

PASSED, FAILED, ERROR, SKIPPED, XFAIL = "PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL"
STATUSES = (PASSED, FAILED, ERROR, SKIPPED, XFAIL)
#: from best to worst
_RANK = {PASSED: 0, XFAIL: 0, SKIPPED: 1, ERROR: 2, FAILED: 2}

LINE_LIMIT = 4_000

#: summaries of runners that tell failures only
_COUNTED = re.compile(
    r"\b[1-9]\d{0,8} (?:passing|passed|specs?|SUCCESS)\b|Executed [1-9]|^# tests [1-9]|Tests: +[1-9]|': ok$", re.M
)

Report = Iterator[tuple[str, str]]


@dataclass(slots=True, kw_only=True)
class Statuses:
    """By test id. ``exit_code`` is the test command's, where the script says it; ``complete``: both marks stand in the
    output; ``counted``: the runner says how many tests it ran."""

    last: dict[str, str] = field(default_factory=dict)
    worst: dict[str, str] = field(default_factory=dict)
    exit_code: int | None = None
    complete: bool = False
    counted: bool = False

    def ran(self, *, fail_only: bool) -> bool:
        """Positive evidence that tests ran: a status, or, where only failures are told, a count that is not zero."""
        return self.complete and bool(self.last or (fail_only and self.counted))

    def add(self, test: str, status: str) -> None:
        self.last[test] = status
        if _RANK[status] >= _RANK.get(self.worst.get(test, ""), -1):
            self.worst[test] = status

    @property
    def any_failed(self) -> bool:
        return any(status in (FAILED, ERROR) for status in self.last.values())


class UnknownParserError(ValueError):
    """No parser of this name, and none for the repository."""


def parse(output: str, parser: str) -> Statuses:
    """Statuses between the marks; where there are no marks, of nothing at all: no evidence that the tests ran."""
    found = Statuses()
    _, start, rest = output.partition(START)
    # with `set -x` the shell says each mark before it prints or skips it
    inside, end, after = rest.partition(END)
    if not start or not end:
        return found
    found.complete = True
    # the script says it after the tests: what stands before was printed by them
    codes = re.findall(rf"{re.escape(EXIT)}: (\d{{1,3}})", f"{inside}\n{after}")
    found.exit_code = int(codes[-1]) if codes else None
    found.counted = _COUNTED.search(inside) is not None
    for test, status in PARSERS[parser](inside):
        found.add(test, status)
    return found


def parser_for(name: str, repo: str, instance: str = "") -> str:
    """The parser's own name from the column ``log_parser`` (``parse_log_flask`` and ``pytest`` mean the same), else
    from the repository.

    Some repositories have changed their runner: the instance decides.
    """
    wanted = name.strip().lower().removeprefix("parse_log_")
    wanted = BY_INSTANCE.get(wanted, {}).get(instance.rpartition("-")[2], wanted)
    if wanted in PARSERS:
        return wanted
    if wanted in _ALIASES:
        return _ALIASES[wanted]
    if not wanted and repo in REPOSITORIES:
        return REPOSITORIES[repo]
    raise UnknownParserError(f"no log parser {name!r}" if wanted else f"no log parser for the repository {repo!r}")


def _lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        yield line[:LINE_LIMIT].rstrip("\r")


# --- pytest and its relatives ------------------------------------------------------------------------


def _pytest_line(line: str, *, whole: bool = False) -> tuple[str, str] | None:
    """``STATUS test [- message]`` of the short summary; ``whole`` takes all words for the id, which a failure's message
    then ends.
    """
    words = (line.split(" - ", 1)[0] if whole and line.startswith(FAILED) else line).split()
    if len(words) < 2 or words[0] not in STATUSES or not line.startswith(words[0]):
        return None
    counted = words[0] == SKIPPED and words[1].startswith("[") and words[1][-1:] == "]" and words[1][1:-1].isdecimal()
    return None if counted else (" ".join(words[1:]) if whole else words[1], words[0])


def _pytest(text: str) -> Report:
    for line in _lines(text):
        found = _pytest_line(line)
        if found is not None:
            yield found


def _pytest_options(text: str) -> Report:
    """A parameter that is an absolute path is known by its last part."""
    for test, status in _pytest(text):
        name, bracket, option = test.partition("[")
        if bracket and option.startswith("/") and not option.startswith("//") and "*" not in option and "]" in option:
            inner, _, tail = option.rpartition("]")
            yield f"{name}[/{inner.rsplit('/', 1)[-1]}]{tail}", status
        else:
            yield test, status


_CONTROL = {number: None for number in range(1, 32) if number not in (10,)}
_COLOUR = re.compile(r"\[\d{1,3}m")


def _pytest_plain(text: str) -> Report:
    """Colours and control characters taken out before; ids may hold blanks; older versions put the status at the line's
    end.
    """
    for raw in _lines(text):
        line = _COLOUR.sub("", raw).translate(_CONTROL)
        found = _pytest_line(line, whole=True)
        if found is not None:
            yield found
        elif not line.startswith(STATUSES):
            words = line.split()
            if len(words) > 1 and words[-1] in STATUSES:
                yield " ".join(words[:-1]), words[-1]


def _matplotlib(text: str) -> Report:
    return _pytest(text.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3"))


def _seaborn(text: str) -> Report:
    for line in _lines(text):
        words = line.split()
        if len(words) > 1 and words[0] in (FAILED, PASSED):
            yield words[1], words[0]
        elif len(words) > 1 and words[1] == PASSED:
            yield words[0], PASSED


# --- unittest, Django, sympy ----------------------------------------------------------------------------


_ENDINGS = {"ok": PASSED, "OK": PASSED, "FAIL": FAILED, "ERROR": ERROR, "expected failure": XFAIL}


def _django(text: str) -> Report:
    """``name (module.Class) ... ok``. Output between the dots and the word moves it to a later line."""
    waiting = ""
    for raw in _lines(text):
        line = raw.strip()
        if "--version is equivalent to version" in line:
            yield "--version is equivalent to version", PASSED
        name, dots, said = line.rpartition(" ... ")
        if dots:
            waiting = line.partition(" ... ")[0]
            status = _ENDINGS.get(said.strip()) or (SKIPPED if said.startswith("skipped") else "")
            if status:
                yield name, status
                continue
        if line.startswith(("FAIL:", "ERROR:")):
            words = line.split()
            if len(words) > 1:
                yield words[1], FAILED if line.startswith("FAIL:") else ERROR
        elif line.startswith("ok") and waiting:
            yield waiting, PASSED


def _unittest(text: str) -> Report:
    """As Django's, with one form of id for all versions of Python: ``method (module.Class.method)``, and one id where a
    failure is told once more in the list at the end."""
    for test, status in _django(text):
        method, space, place = test.partition(" (")
        if space and place.endswith(")"):
            path = place[:-1]
            yield f"{method} ({path if path.rpartition('.')[2] == method else f'{path}.{method}'})", status


def _sympy(text: str) -> Report:
    endings = {" E": ERROR, " F": FAILED, " ok": PASSED}
    for raw in _lines(text):
        line = raw.strip()
        if line.startswith("_") and ".py:" in line and line.endswith("_"):
            yield line.strip("_ "), FAILED
        for ending, status in endings.items():
            if line.startswith("test_") and line.endswith(ending):
                yield line.split()[0], status


PARSERS: Mapping[str, Callable[[str], Report]] = {
    "pytest": _pytest,
    "pytest_options": _pytest_options,
    "pytest_v2": _pytest_plain,
    "matplotlib": _matplotlib,
    "seaborn": _seaborn,
    "django": _django,
    "unittest": _unittest,
    "sympy": _sympy,
    **ELSEWHERE,
    **MULTILINGUAL,
}

#: repository of the classic sets -> parser (the harness's table)
REPOSITORIES: Mapping[str, str] = {
    "astropy/astropy": "pytest_v2",
    "django/django": "django",
    "matplotlib/matplotlib": "matplotlib",
    "mwaskom/seaborn": "seaborn",
    "pallets/flask": "pytest",
    "psf/requests": "pytest_options",
    "pydata/xarray": "pytest",
    "pylint-dev/pylint": "pytest_options",
    "pytest-dev/pytest": "pytest",
    "scikit-learn/scikit-learn": "pytest_v2",
    "sphinx-doc/sphinx": "pytest_v2",
    "sympy/sympy": "sympy",
    "pylint-dev/astroid": "pytest",
    "marshmallow-code/marshmallow": "pytest",
    "pvlib/pvlib-python": "pytest",
    "pydicom/pydicom": "pytest_options",
    "pyvista/pyvista": "pytest",
    "sqlfluff/sqlfluff": "pytest",
}

#: ``parse_log_flask`` and the like
_ALIASES: Mapping[str, str] = {
    **{repo.rpartition("/")[2].removesuffix("-python"): parser for repo, parser in REPOSITORIES.items()},
    "scikit": "pytest_v2",
    "go": "gotest",
    "rust": "cargo",
}
