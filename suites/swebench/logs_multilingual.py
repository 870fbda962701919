"""Log forms of the Ruby, C and JavaScript runners of SWE-bench Multilingual, with the official parsers' own reading of
odd lines.

One pass over lines, no backtracking, and nothing that grows with nesting: the output is written by code under test.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from kvv.suites.swebench.logs_elsewhere import FAILED, LINE_LIMIT, PASSED, SKIPPED, Report, lines_of, without_duration

#: suites in each other; the real ones stay below ten
DEPTH = 64

# --- Ruby ------------------------------------------------------------------------------------------


def _minitest(text: str) -> Report:
    """``name. = 0.02 s = .``: the last of ``. F E`` after the last sign of equality counts, so that a skipped test
    (``S``) reads as the dot of its duration, as it does officially."""
    for line in lines_of(text):
        said = max(line.rfind(letter) for letter in ".FE")
        sign = line.rfind("=", 0, max(0, said))
        end = line.rfind(". ", 0, max(0, sign))
        if end > 0:
            yield line[:end], PASSED if line[said] == "." else FAILED


_DOTS = re.compile(r" (\.+)(F?)")


def _cucumber(text: str) -> Report:
    """``name ....F..`` of the progress format: the first letter after the dots. One dot alone is the end of a
    sentence.
    """
    for line in lines_of(text):
        for found in reversed(list(_DOTS.finditer(line))):
            if found[2] or len(found[1]) > 1:
                yield line[: found.start()], FAILED if found[2] else PASSED
                break


_UNIT = re.compile(r":\s+(\.|[EFO]\b)")


def _ruby_unit(text: str) -> Report:
    """``test: name: .: (0.001)``; ``O`` is an omitted test."""
    endings = {".": PASSED, "E": FAILED, "F": FAILED, "O": SKIPPED}
    for line in lines_of(text):
        for found in deque(_UNIT.finditer(line, 1), maxlen=1):  # the last one
            name = line[: found.start()]
            yield name.removeprefix("test: ") or name, endings[found[1]]


def _rspec(text: str) -> Report:
    """``name - passed``, made of RSpec's JSON by the data set's scripts."""
    for line in lines_of(text):
        places = {line.rfind(f" - {word}"): status for word, status in (("passed", PASSED), ("failed", FAILED))}
        end = max(places)
        if end > 0:
            yield line[:end], places[end]


# --- C and C++ -------------------------------------------------------------------------------------


def _redis(text: str) -> Report:
    """``[ok]: name (12 ms)``; a failure ends with its file."""
    marks = {"[ok]:": PASSED, "[err]:": FAILED, "[skip]:": SKIPPED, "[ignore]:": SKIPPED}
    for line in lines_of(text):
        mark, blank, name = line.partition(" ")
        if blank and mark in marks and name:
            yield _without_file(without_duration(name) or name, marks[mark]), marks[mark]


def _without_file(name: str, status: str) -> str:
    head, found, _ = name.rpartition(" in ")
    ends = found and not name[-1].isspace() and len(name[len(head) :].split()) == 2
    return head.rstrip() if status == FAILED and ends else name


def _jq(text: str) -> Report:
    for line in lines_of(text):
        if line[:5] in ("PASS:", "FAIL:") and line[5:6].isspace() and line[6:]:
            yield line[6:], PASSED if line.startswith("PASS") else FAILED


def _micropython(text: str) -> Report:
    marks = {"pass": PASSED, "FAIL": FAILED, "skip": SKIPPED}
    for line in lines_of(text):
        mark, *rest = line.split(maxsplit=1) or [""]
        if mark in marks and rest:
            yield rest[0], marks[mark]


_DOCTEST, _DOCTEST_END = "<doctest", "</doctest>"


def _doctest(text: str) -> Report:
    """doctest's XML report: a subcase passes when all expressions in it do. A report that cannot be read says
    nothing.
    """
    start = text.find(_DOCTEST)
    end = text.find(_DOCTEST_END, start) if start >= 0 else -1
    if end < 0:
        return
    try:  # no entities: what is read begins with the root, before which alone they can be defined
        yield from list(_subcases(text[start : end + len(_DOCTEST_END)]))
    except (ElementTree.ParseError, _TooDeepError, ValueError):
        return


class _TooDeepError(Exception):
    """No report of a real suite."""


def _subcases(report: str) -> Iterator[tuple[str, str]]:
    parser: ElementTree.XMLPullParser[ElementTree.Element] = ElementTree.XMLPullParser(("start", "end"))
    parser.feed(report)
    parser.close()
    names: list[str] = []
    good: list[bool] = []
    case = ""
    for event, element in cast("Iterator[tuple[str, ElementTree.Element]]", parser.read_events()):
        match event, element.tag:
            case "start", "TestCase":
                case = str(element.get("name"))
            case "start", "SubCase":
                if len(names) >= DEPTH:
                    raise _TooDeepError
                names.append(f"{case} > {element.get('name')}")
                good.append(True)
            case "start", "Expression" if element.get("success") != "true":
                good[:] = [False] * len(good)
            case "end", "SubCase":
                yield names.pop(), PASSED if good.pop() else FAILED


# --- JavaScript ------------------------------------------------------------------------------------

_KARMA = re.compile(r"(\s*)([✔✖])?\s(.*)$")


def _karma(text: str) -> Report:
    """karma's spec reporter. A suite at the same depth as the one before keeps that one's name, and one less deep only
    takes a name away: the ids of the data set are made so."""
    suites: list[str] = []
    depth, started = -1, False
    for raw in text.split("\n"):
        line = raw[:LINE_LIMIT]
        if line.startswith("SUMMARY:"):
            return
        if "Starting browser" in line:
            started = True
            continue
        found = _KARMA.match(line) if started else None
        if found is None:
            continue
        indent, mark, name = found.groups()
        if mark:
            yield " > ".join([*suites, name]), PASSED if mark == "✔" else FAILED
        elif indent:
            if len(indent) > depth and len(suites) < DEPTH:
                suites.append(name)
            elif len(indent) < depth and suites:
                suites.pop()
            depth = len(indent)


MULTILINGUAL: Mapping[str, Callable[[str], Report]] = {
    "minitest": _minitest,
    "cucumber": _cucumber,
    "ruby_unit": _ruby_unit,
    "rspec_transformed_json": _rspec,
    "redis": _redis,
    "jq": _jq,
    "micropython_test": _micropython,
    "doctest": _doctest,
    "karma": _karma,
}

#: parsers that stand for another one, by the number of the instance's pull request
BY_INSTANCE: Mapping[str, Mapping[str, str]] = {
    "jekyll": {"9141": "minitest", "8047": "minitest", "8167": "minitest", "8761": "cucumber", "8771": "cucumber"},
    "immutable_js": {"2006": "jest", "2005": "jest_json"},
}
