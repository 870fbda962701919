"""Log forms of test runners outside of Python, as SWE-bench Multilingual and Multimodal name them. One pass over lines,
no backtracking.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

PASSED, FAILED, SKIPPED = "PASSED", "FAILED", "SKIPPED"

Report = Iterator[tuple[str, str]]

LINE_LIMIT = 4_000


def lines_of(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        yield line[:LINE_LIMIT].strip()


def _marked(line: str, marks: Mapping[str, str]) -> tuple[str, str] | None:
    """``mark name``: the status and the name."""
    mark, blank, name = line.partition(" ")
    return (marks[mark], name.strip()) if blank and mark in marks and name.strip() else None


def without_duration(name: str, *, bare: bool = False) -> str:
    """A trailing ``(12 ms)``, or, ``bare``, ``12ms`` or ``[skipped]``, is not part of the name."""
    head, _, tail = name.rpartition(" ")
    if name.endswith("ms)") or name.endswith(" s)") or name.endswith("s)"):
        head, bracket, inner = name.rpartition(" (")
        words = inner[:-1].removesuffix("ms").removesuffix("s").strip()
        return head if bracket and words.isdecimal() else name
    if bare and head and (tail == "[skipped]" or tail.removesuffix("s").removesuffix("m").isdecimal()):
        return head
    return name


def _jest(text: str) -> Report:
    for line in lines_of(text):
        if found := _marked(line, {"✓": PASSED, "✕": FAILED, "○": SKIPPED}):
            yield without_duration(found[1]).strip(), found[0]


def _jest_json(text: str) -> Report:
    for line in lines_of(text):
        if found := _marked(line, {"[PASSED]": PASSED, "[FAILED]": FAILED}):
            yield found[1], found[0]


def _vitest(text: str) -> Report:
    for line in lines_of(text):
        if found := _marked(line, {"✓": PASSED, "×": FAILED, "↓": SKIPPED}):
            yield without_duration(found[1], bare=True), found[0]


def _tap(text: str) -> Report:
    """``ok 12 name``."""
    for line in lines_of(text):
        status = FAILED if line.startswith("not ok ") else PASSED if line.startswith("ok ") else ""
        number, _, name = line.removeprefix("not ").removeprefix("ok ").partition(" ")
        if status and number.isdecimal() and name:
            yield name, status


def _maven(text: str) -> Report:
    """Each test is a run of its own: its name stands in the traced command, its status is the next build's. A result
    that came before any name is for the names that are left in the end."""
    waiting: deque[str] = deque()
    early: deque[str] = deque()
    for line in lines_of(text):
        _, named, rest = line.rpartition("-Dtest=")
        if named and rest.strip():
            waiting.append(rest.split()[0])
        if line.endswith(("BUILD SUCCESS", "BUILD FAILURE")):
            status = PASSED if line.endswith("SUCCESS") else FAILED
            if waiting:
                yield waiting.popleft(), status
            else:
                early.append(status)
    yield from zip(waiting, early, strict=False)


def _ant(text: str) -> Report:
    marks = {"[PASS]": PASSED, "[FAIL]": FAILED, "[ERR]": FAILED}
    for line in lines_of(text):
        if line.startswith("[junit]") and (found := _marked(line.removeprefix("[junit]").strip(), marks)):
            yield found[1], found[0]


def _gradle(text: str) -> Report:
    """``class > method PASSED``; the status may come alone on a later line."""
    waiting = ""
    for line in lines_of(text):
        name, blank, status = line.rpartition(" ")
        words = line.split()
        if blank and status in (PASSED, FAILED) and not line.startswith(">"):
            yield name.strip(), status
            waiting = ""
        elif len(words) == 3 and words[1] == ">" and not line.startswith(">"):
            waiting = line
        elif waiting and line in (PASSED, FAILED):
            yield waiting, line
            waiting = ""


def _phpunit(text: str) -> Report:
    """``--testdox``: a class with its name in brackets, then its tests."""
    suite = "None"
    marks = {"✔": PASSED, "✘": FAILED, "↩": SKIPPED}
    for line in text.split("\n"):
        line = line[:LINE_LIMIT].rstrip("\r")
        stripped = line.strip()
        if line[:1].isalnum() and line.endswith(")") and " (" in line:
            suite = line.rpartition(" (")[0] if line.count(" (") == 1 else line.partition(" (")[0]
        elif stripped[:1] in marks and stripped[:1]:
            yield f"{suite} > {stripped[1:].strip()}", marks[stripped[0]]


def _go(text: str) -> Report:
    """``--- PASS: TestName (0.00s)``, nested tests indented."""
    words = {"PASS:": PASSED, "FAIL:": FAILED, "SKIP:": SKIPPED}
    for line in lines_of(text):
        parts = line.split(" ", 2)
        if len(parts) == 3 and parts[0] == "---" and parts[1] in words and parts[2].endswith(")") and " (" in parts[2]:
            yield parts[2].rpartition(" (")[0], words[parts[1]]


def _cargo(text: str) -> Report:
    """``test module::name ... ok``; an ignored test has no status."""
    words = {"ok": PASSED, "FAILED": FAILED}
    for line in lines_of(text):
        parts = line.split()
        if len(parts) == 4 and parts[0] == "test" and parts[2] == "..." and parts[3] in words:
            yield parts[1], words[parts[3]]


def _googletest(text: str) -> Report:
    for line in lines_of(text):
        before, bracket, rest = line.partition("]")
        status = before.rpartition("[")[2].strip()
        if bracket and status in ("OK", "FAILED") and rest.strip().endswith(")") and " (" in rest:
            yield rest.strip().rpartition(" (")[0], PASSED if status == "OK" else FAILED


ELSEWHERE: Mapping[str, Callable[[str], Report]] = {
    "jest": _jest,
    "jest_json": _jest_json,
    "vitest": _vitest,
    "tap": _tap,
    "maven": _maven,
    "ant": _ant,
    "gradle_custom": _gradle,
    "phpunit": _phpunit,
    "gotest": _go,
    "cargo": _cargo,
    "googletest": _googletest,
}
