"""The public verifier's view of a run: its files, its counts with and without reruns, what it does not look at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvv.cases.suite import Context, Settings, SuiteKind, load_suite, suite_ids
from kvv.core import Area, Case, Level, Outcome, Surface, Verdict
from kvv.profiles.profile import load_profile
from kvv.reporting.finalize import FORMATS
from kvv.reporting.moonshot import after_reruns, count, first_try, render
from kvv.reporting.moonshot_map import KvvMap, load_map
from kvv.storage.view import CheckRow


def row(
    outcome: Outcome, *, case: str = "params/rejected/n-2/whole", reason: str = "", detail: str = "", **facts: Any
) -> CheckRow:
    suite = case.split("/")[0]
    made = Case(
        id=case, suite=suite, area=Area.DECODING, level=Level.MUST, requirement="r", source="s", since="0.1", inputs={}
    )
    verdict = Verdict(case=case, sample=0, outcome=outcome, reason=reason, detail=detail, facts=facts)
    return CheckRow(case=made, verdict=verdict, level=Level.MUST)


@pytest.fixture(scope="module")
def every_case() -> set[str]:
    contexts = [
        Context(model="m", profile=load_profile("kimi-k3", surface), settings=Settings())
        for surface in (Surface.VENDOR, Surface.ENGINE)
    ]
    suites = [suite for suite in map(load_suite, suite_ids()) if suite.kind is not SuiteKind.BENCHMARK]
    return {case.id for suite in suites for context in contexts for case in suite.cases(context)}


def test_every_glob_of_the_map_finds_a_case(every_case: set[str]) -> None:
    mapping = load_map()
    empty = [
        glob
        for test in mapping.test
        for glob in test.cases
        if not any(replace_glob(test, glob).covers(name) for name in every_case)
    ]
    assert empty == []


def replace_glob(test: Any, glob: str) -> Any:
    return test.model_copy(update={"cases": (glob,)})


def test_each_test_of_the_verifier_has_cases_or_a_reason() -> None:
    mapping = load_map()
    assert all(test.cases or test.why for test in mapping.test)
    assert {test.file for test in mapping.test} == {entry.path for entry in mapping.file}
    raw = mapping.model_dump()
    with pytest.raises(ValueError, match="neither cases nor a reason"):
        KvvMap.model_validate({**raw, "test": [{"file": raw["file"][0]["path"], "asserts": "nothing"}]})
    with pytest.raises(ValueError, match="no file"):
        KvvMap.model_validate({**raw, "test": [{"file": "tests/elsewhere", "asserts": "x", "why": "y"}]})


@pytest.mark.parametrize(
    ("made", "first", "rerun"),
    [
        (row(Outcome.PASS, first_try=True), True, True),
        (row(Outcome.PASS, first_try=False), False, True),
        (row(Outcome.FAIL, detail="no call (2 of 2 samples)", first_try=False), False, False),
        (row(Outcome.FAIL, detail="no call (1 of 2 samples)", first_try=False), False, True),
        (row(Outcome.INCONCLUSIVE, reason="unstable-refusal", first_try=False), False, True),
        (row(Outcome.INCONCLUSIVE, reason="connect", first_try=False), False, False),
        (row(Outcome.FAIL, reason="rate-too-low", samples=[1, 0, 0, 0, 0]), True, True),
        (row(Outcome.FAIL, reason="rate-too-low", samples=[0, 0, 0, 1, 0]), False, True),
        (row(Outcome.FAIL, reason="rate-too-low", samples=[0, 0, 0, 0, 1]), False, False),
        (row(Outcome.PASS, samples=[0, 1, 1, 1]), False, True),
        (row(Outcome.PASS, samples=[None, 1]), False, True),
    ],
)
def test_first_tries_and_reruns_are_read_from_the_samples_that_were_asked(
    made: CheckRow, first: bool, rerun: bool
) -> None:
    assert (first_try(made), after_reruns(made)) == (first, rerun)


def test_what_was_not_asked_is_in_no_count_and_what_was_not_answered_is_open() -> None:
    found = count(
        [row(Outcome.SKIP), row(Outcome.INCONCLUSIVE), row(Outcome.ERROR), row(Outcome.PASS), row(Outcome.FAIL)]
    )
    assert (found.asked, found.first, found.rerun, found.open) == (4, 1, 1, 2)


def test_the_report_counts_by_file_names_what_reruns_hide_and_what_goes_beyond(views: Any) -> None:
    rows = (
        row(Outcome.PASS),
        row(
            Outcome.FAIL,
            case="params/rejected/top-p-0.8/whole",
            reason="invalid-request-accepted",
            detail="x (1 of 2 samples)",
        ),
        row(Outcome.FAIL, case="errors/not-json/cut/stream", reason="reproducible-500"),
        row(Outcome.PASS, case="errors/not-json/word/stream"),
    )
    text = render(replace(views.make(), checks=rows), load_map())
    line = next(line for line in text.splitlines() if line.startswith("tests/params"))
    assert line.split() == ["tests/params", "18", "2", "1/2", "2/2", "0"]
    assert "green there only after reruns:\n  params/rejected/top-p-0.8/whole: fail" in text
    assert "beyond it: 2 cases" in text
    assert "errors: 2 cases, 1 failed" in text
    assert "image-token formula is not public" in text


def test_a_hostile_answer_cannot_break_the_report(views: Any) -> None:
    evil = row(
        Outcome.FAIL,
        case="params/rejected/n-2/whole",
        reason="x",
        detail="(1 of 2 samples)\x1b[31m\nPASS everything\u202e",
    )
    evil = replace(evil, verdict=replace(evil.verdict, reason="r\x1b[2J\n"))
    text = render(replace(views.make(), checks=(evil,)), load_map())
    assert "\x1b" not in text
    assert "\nPASS" not in text


def test_the_format_is_offered() -> None:
    assert FORMATS["kvv"][0] == "kvv.txt"
