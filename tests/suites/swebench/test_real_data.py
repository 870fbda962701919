"""Rows of the public sets and a whole DeepSWE task parse, and are graded by their own rules (golden values of the
sources).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.cases.suite import Dataset
from kvv.core import Case, Done, Exec, Executed, Outcome, Reply, Verdict
from kvv.data import DataError, load
from kvv.data.spec import load_spec
from kvv.data.swebench import from_rows, read_swebench
from kvv.suites.swebench.grading import status_lists
from kvv.suites.swebench.harbor import lists_of, read_command, read_report, read_reward, worst
from kvv.suites.swebench.instance import directives, image_of
from kvv.suites.swebench.logs import END, START, parse
from kvv.suites.swebench.prompts import MARK

from .conftest import SUITE, context, untried
from .test_agent_fold import call, output, run


def flask(shared: Path) -> Case:
    dataset = load("swebench", path=shared / "data/swebench/flask-5014.jsonl")
    (case,) = SUITE.cases(context(dataset=dataset))
    return case


def test_a_real_row_of_swe_bench_parses(shared: Path) -> None:
    case = flask(shared)
    grade = case.inputs["grade"]
    assert case.id == "swebench/pallets__flask-5014"
    assert grade["f2p"] == ["tests/test_blueprints.py::test_empty_name_not_allowed"]
    assert len(grade["p2p"]) == 59
    assert case.inputs["sandbox"]["image"] == "swebench/sweb.eval.x86_64.pallets_1776_flask-5014:latest"
    assert grade["log_parser"] == "pytest"
    assert "pytest -rA tests/test_blueprints.py\n" in grade["eval_script"]
    assert case.inputs["unusable"] == ""


def log(passed: list[str], failed: list[str]) -> str:
    lines = [f"PASSED {test}" for test in passed] + [f"FAILED {test} - ValueError" for test in failed]
    return "\n".join([f"+ : '{START}'", *lines, f"+ : '{END}'", f">>>>> Test Exit Code: {1 if failed else 0}"])


def test_the_golden_counts_of_flask_5014(shared: Path) -> None:
    """At the base with the test patch 1 failed and 59 passed; with the reference patch 60 passed."""
    grade = flask(shared).inputs["grade"]
    base = status_lists(
        parse(log(grade["p2p"], grade["f2p"]), "pytest").last, grade["f2p"], grade["p2p"], fail_only=False
    )
    assert (len(base["FAIL_TO_PASS"]["failure"]), len(base["PASS_TO_PASS"]["success"])) == (1, 59)
    gold = status_lists(
        parse(log(grade["p2p"] + grade["f2p"], []), "pytest").last, grade["f2p"], grade["p2p"], fail_only=False
    )
    assert (len(gold["FAIL_TO_PASS"]["success"]), len(gold["PASS_TO_PASS"]["success"])) == (1, 59)
    unpinned = status_lists(parse(log([], []), "pytest").last, grade["f2p"], grade["p2p"], fail_only=False)
    assert (len(unpinned["FAIL_TO_PASS"]["failure"]), len(unpinned["PASS_TO_PASS"]["failure"])) == (1, 59)


def test_lists_of_tests_come_as_json_text_or_as_lists() -> None:
    (row,) = from_rows([{"FAIL_TO_PASS": '["a b", "c"]', "PASS_TO_PASS": ["[x]", "d"]}], "x")
    assert (row["FAIL_TO_PASS"], row["PASS_TO_PASS"]) == (["a b", "c"], ["[x]", "d"])
    with pytest.raises(DataError, match="x: row 1: column 'FAIL_TO_PASS': not JSON"):
        from_rows([{"FAIL_TO_PASS": '["a', "PASS_TO_PASS": []}], "x")


def test_a_bundle_is_read_from_the_rows_folder_and_from_nowhere_else(tmp_path: Path) -> None:
    row = {"instance_id": "a", "FAIL_TO_PASS": ["x"], "PASS_TO_PASS": [], "bundle": "b.bundle"}
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.bundle").write_bytes(b"hi")
    (tmp_path / "secret").write_bytes(b"no")
    path = tmp_path / "in" / "rows.jsonl"
    path.write_text(json.dumps(row))
    assert read_swebench(path, load_spec("swebench"))[0]["bundle"] == "aGk="
    path.write_text(json.dumps({**row, "bundle": "../secret"}))
    with pytest.raises(DataError, match="lies outside"):
        read_swebench(path, load_spec("swebench"))
    path.write_text(json.dumps({**row, "bundle": "missing"}))
    with pytest.raises(DataError, match="row 1: the bundle 'missing'"):
        read_swebench(path, load_spec("swebench"))


def test_a_row_without_a_parser_is_a_skip_with_its_reason_not_a_row_less() -> None:
    dataset = load("swebench", fixture=True)
    rows = [{**dataset.rows[0], "log_parser": "parse_log_cobol"}]
    (case,) = SUITE.cases(context(dataset=type(dataset)(rows=rows, origin="x", revision="x")))
    found = SUITE.step(case, [])
    assert isinstance(found, Done)
    assert (found.verdict.outcome, found.verdict.reason) == (Outcome.SKIP, "unusable-instance")
    assert "cobol" in found.verdict.detail


def test_what_is_known_to_be_broken_is_run_and_shown_apart() -> None:
    dataset = load("swebench", fixture=True)
    rows = [
        {**row, "instance_id": name}
        for row, name in zip(dataset.rows, ["astropy__astropy-7606", "fine-1"], strict=False)
    ]
    cases = SUITE.cases(context(dataset=type(dataset)(rows=rows, origin="x", revision="x")))
    verdicts = []
    for case, patch in zip(cases, ["", ""], strict=True):
        found = SUITE.step(untried(case), [call(run("s")), output(f"{MARK}\n{patch}")])
        assert isinstance(found, Done)
        verdicts.append((case, found.verdict))
    stats = {stat.metric: stat for stat in SUITE.metrics(verdicts, context(dataset=dataset))}
    assert stats["resolved"].n_planned == 2
    assert stats["resolved_but_known_bad"].n_planned == 1
    assert list(stats["resolved"].breakdown["known_bad"]) == ["astropy__astropy-7606"]
    assert "sb-cli/issues" in stats["resolved"].breakdown["known_bad"]["astropy__astropy-7606"]["source"]
    assert stats["resolved"].breakdown["empty_patches"] == 2


def test_names_of_images_and_arguments_of_test_commands() -> None:
    assert image_of("Django__django-1") == "swebench/sweb.eval.x86_64.django_1776_django-1:latest"
    patch = (
        "diff --git a/tests/a/tests.py b/tests/a/tests.py\n--- a/tests/a/tests.py\n+++ b/tests/a/tests.py\n@@ -1 +1"
        " @@\n-x\n+y\n"
    )
    patch += (
        "diff --git a/tests/a/x.json b/tests/a/x.json\n--- a/tests/a/x.json\n+++ b/tests/a/x.json\n@@ -1 +1"
        " @@\n-x\n+y\n"
    )
    assert directives("django/django", patch) == ["a.tests"]
    assert directives("x/y", patch) == ["tests/a/tests.py"]


# --- DeepSWE ---------------------------------------------------------------------------------------


TASK = "cattrs-partial-structuring-recovery"


def case_of(row: Mapping[str, Any]) -> Case:
    (case,) = SUITE.cases(context(dataset=Dataset(rows=[row], origin="x", revision="x")))
    return case


def task(shared: Path) -> Case:
    if not (shared / "data/deep_swe").is_dir():
        pytest.skip("the task of DeepSWE is absent")
    (row,) = load("swebench", path=shared / "data/deep_swe").rows
    return case_of(row)


def test_a_real_task_of_deep_swe_parses(shared: Path) -> None:
    case = task(shared)
    inputs = case.inputs
    assert inputs["instance"] == TASK
    assert inputs["repo"] == "python-attrs/cattrs"
    assert inputs["grade"]["base"] == "6bc4708fb9b2ac52d9a18997e923da6a58916102"
    assert (len(inputs["grade"]["f2p"]), len(inputs["grade"]["p2p"])) == (69, 7)
    assert inputs["sandbox"] == {
        "image": "public.ecr.aws/d3j8x8q7/swe-bench-202605:kh7f7cahc5ddm1qzpxz13kpmrh8235pc-v1.1",
        "workdir": "/app",
    }
    assert (inputs["limits"]["agent_s"], inputs["task_files"]["verifier_s"]) == (5_400, 1_800)
    assert inputs["task_files"]["reports"] == ["/logs/verifier/base.xml", "/logs/verifier/new.xml"]
    assert "commit" in inputs["task"]
    assert inputs["unusable"] == ""
    assert {"test.sh", "test.patch", "grader.py", "config.json"} <= inputs["task_files"]["files"].keys()
    assert inputs["grade"]["reference"].startswith("diff --git a/")
    (row,) = load("swebench", path=shared / "data/deep_swe").rows
    files = {name: text for name, text in row["task"]["files"].items() if name != "test.sh"}
    assert (
        case_of({**row, "task": {**row["task"], "files": files}}).inputs["unusable"] == "the task has no tests/test.sh"
    )


def statuses(reports: list[str], **task: str) -> dict[str, str]:
    found = [read_report(report, task) for report in reports]
    return worst(each for tests in found if tests is not None for each in tests)


def xml(tests: dict[str, str]) -> str:
    cases = []
    for test, tag in tests.items():
        place, _, name = (
            test.rpartition(".") if "[" not in test else (test.partition("[")[0].rpartition(".")[0], "", "")
        )
        name = name or test[len(place) + 1 :]
        cases.append(f'<testcase classname="{place}" name="{name}">{f"<{tag}/>" if tag else ""}</testcase>')
    return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"


@pytest.mark.parametrize(
    ("change", "resolved"),
    [
        ({}, True),
        ({"drop": 1}, False),
        ({"failure": 1}, False),
        ({"skipped": 1}, False),
        ({"error": 1}, False),
        ({"twice": 1}, False),
    ],
)
def test_the_tasks_own_rule_absent_or_skipped_failed_and_the_worst_status_wins(
    shared: Path, change: dict[str, int], resolved: bool
) -> None:
    grade = task(shared).inputs["grade"]
    tests = dict.fromkeys([*grade["f2p"], *grade["p2p"]], "")
    reports = [xml(tests)]
    first = grade["f2p"][0]
    if "drop" in change:
        reports = [xml({test: "" for test in tests if test != first})]
    elif "twice" in change:
        reports = [xml({first: "failure"}), xml(tests)]
    elif change:
        reports = [xml({**tests, first: next(iter(change))})]
    found = lists_of(statuses(reports, format="junit"), grade["f2p"], grade["p2p"])
    assert all(not group["failure"] for group in found.values()) is resolved


@pytest.mark.parametrize(
    "report",
    ["", "<a", '<!DOCTYPE x [<!ENTITY e "x">]><testsuite><testcase name="&e;"/></testsuite>', "\x00", "<a>" * 5_000],
)
def test_a_report_that_cannot_be_read_is_none_and_one_without_tests_is_empty(report: str) -> None:
    assert read_report(report, {"format": "junit"}) is None
    assert read_report("<testsuites/>", {"format": "junit"}) == []


def ctrf(*tests: object) -> str:
    return json.dumps(
        {
            "reportFormat": "CTRF",
            "specVersion": "1.0.0",
            "results": {"tool": {"name": "vitest"}, "summary": {}, "tests": list(tests)},
        }
    )


#: as vitest's and Go's reporters write them
VITEST = (
    {
        "name": "parses a flag",
        "status": "passed",
        "duration": 3,
        "suite": ["src/a.test.ts", "flags"],
        "filePath": "src/a.test.ts",
    },
    {
        "name": " parses two ",
        "status": "failed",
        "duration": 1,
        "suite": "src/a.test.ts",
        "message": "expected 1 to be 2",
    },
    {"name": "later", "status": "pending", "duration": 0},
    {"name": "odd", "status": "other", "duration": 0},
    {"name": "left out", "status": "skipped", "duration": 0},
    {"name": "", "status": "passed"},
)


def test_ctrf_reports_give_names_or_names_with_their_first_suite() -> None:
    others = {"later": "SKIPPED", "odd": "SKIPPED", "left out": "SKIPPED"}
    assert statuses([ctrf(*VITEST)], format="ctrf", node_id="name") == {
        "parses a flag": "PASSED",
        "parses two": "FAILED",
        **others,
    }
    named = {"src/a.test.ts.parses a flag": "PASSED", "src/a.test.ts.parses two": "FAILED", **others}
    assert statuses([ctrf(*VITEST)], format="ctrf", node_id="suite.name") == named
    assert statuses([ctrf(*VITEST)], format="", node_id="suite.name") == named
    assert read_report(ctrf(*VITEST), {"format": "tap"}) is None
    assert read_report(ctrf(*VITEST), {"format": "junit"}) is None


def test_in_ctrf_too_the_worst_status_wins_and_an_unknown_word_is_a_failure() -> None:
    good, bad = {"name": "a", "status": "passed"}, {"name": "a", "status": "Failed"}
    assert statuses([ctrf(good, bad), ctrf(good)], format="ctrf") == {"a": "FAILED"}
    assert statuses([ctrf(good, {"name": "a", "status": "skipped"})], format="ctrf") == {"a": "SKIPPED"}
    assert statuses([ctrf({"name": "a", "status": "flaky"}, {"name": "b"})], format="ctrf") == {
        "a": "FAILED",
        "b": "FAILED",
    }
    lists = lists_of(statuses([ctrf(good)], format="ctrf"), ["a", "absent"], [])
    assert lists["FAIL_TO_PASS"] == {"success": ["a"], "failure": ["absent"]}


@pytest.mark.parametrize("report", ["", "{", "[]", '{"results": 1}', '{"results": {"tests": {"a": 1}}}', "[" * 9_999])
def test_a_ctrf_report_that_cannot_be_read_is_none_and_one_without_tests_is_empty(report: str) -> None:
    assert read_report(report, {"format": "ctrf", "node_id": "suite.name"}) is None
    assert read_report('{"results": {"tests": [1, null]}}', {"format": "ctrf", "node_id": "suite.name"}) == []


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_ctrf_report_raises(value: object) -> None:
    for node_id in ("name", "suite.name"):
        statuses(
            [json.dumps({"results": {"tests": [value, {"name": value, "suite": value, "status": value}]}})],
            format="ctrf",
            node_id=node_id,
        )


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ('{"reward": 1, "f2p": 1.0}', (1.0, True)),
        ("0", (0.0, True)),
        ("-1", (-1.0, True)),
        ('{"reward": 0, "apply_failed": true}', (0.0, False)),
    ],
)
def test_a_reward_is_read_from_either_file(text: str, reward: tuple[float, bool]) -> None:
    assert read_reward(text) == reward


@pytest.mark.parametrize(
    "text", ["", "x", '{"reward": "1"}', "true", "[" * 50_000, "NaN", "1e999", "-2", "1.5", "1" + "0" * 400]
)
def test_what_is_no_reward_is_none(text: str) -> None:
    assert read_reward(text)[0] is None


Report = Callable[[str], Executed]


def ended(case: Case, reward: str, patch: str, report: Report) -> Verdict:
    """Plays the agent's end, the collection and the verifier; ``report`` gives what reading the report of a name
    gives.
    """
    case = untried(case)
    history: list[Reply] = [call(run("done")), output(f"{MARK}\n"), output(patch)]
    while True:
        found = SUITE.step(case, history)
        if isinstance(found, Done):
            return found.verdict
        assert isinstance(found, Exec)
        last = found.command.argv
        assert found.tree == "grade"
        if "/logs/verifier/reward.json" in last[-1]:
            history.append(output(reward))
        else:
            history.append(report(last[-1]) if last[-1] in case.inputs["task_files"]["reports"] else output())


@pytest.mark.parametrize(
    ("reward", "patch", "outcome", "reason"),
    [
        ('{"reward": 1}', "diff --git a/src/x.py b/src/x.py\n", Outcome.PASS, ""),
        ('{"reward": 0}', "diff --git a/src/x.py b/src/x.py\n", Outcome.FAIL, "tests-fail"),
        ('{"reward": 0}', "", Outcome.FAIL, "empty-patch"),
        (
            '{"reward": 0, "apply_failed": true}',
            "diff --git a/src/x.py b/src/x.py\n",
            Outcome.FAIL,
            "patch-apply-failed",
        ),
        ("-1", "diff --git a/src/x.py b/src/x.py\n", Outcome.INCONCLUSIVE, "verifier-crashed"),
        ("", "diff --git a/src/x.py b/src/x.py\n", Outcome.INCONCLUSIVE, "verifier-crashed"),
        ('{"reward": 1}', "diff --git a/conftest.py b/conftest.py\n", Outcome.FAIL, "tampered"),
    ],
)
def test_a_task_is_worth_what_its_verifier_says(
    shared: Path, reward: str, patch: str, outcome: Outcome, reason: str
) -> None:
    case = task(shared)
    grade = case.inputs["grade"]
    told = output(xml(dict.fromkeys([*grade["f2p"], *grade["p2p"]], "")))
    verdict = ended(case, reward, patch, lambda _: told)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)


PATCH = "diff --git a/x.ts b/x.ts\n"
MISSING = Executed(exit_code=1, output="cat: /logs/verifier/new.json: No such file or directory\n")


def told(**tests: str) -> Executed:
    return output(ctrf(*({"suite": "s", "name": name, "status": status} for name, status in tests.items())))


def flags(folder: Path, *reports: str) -> Case:
    """A task with the tests ``s.a`` (fails at the base) and ``s.b`` (passes there)."""
    (folder / "tests").mkdir(parents=True)
    (folder / "task.toml").write_text('[environment]\ndocker_image = "x"\n')
    (folder / "instruction.md").write_text("Add flags.")
    (folder / "tests" / "test.sh").write_text("exit 0")
    grade = {"node_id": "suite.name", "tool_label": "vitest", "reports": list(reports)}
    (folder / "tests" / "config.json").write_text(
        json.dumps({"f2p_node_ids": [" s.a ", "s.a"], "p2p_node_ids": ["s.b"], "grade": grade})
    )
    (row,) = load("swebench", path=folder).rows
    return case_of(row)


@pytest.mark.parametrize(
    ("reward", "base", "new", "reason", "failed", "detail"),
    [
        (1, told(b="passed"), told(a="passed"), "", [], ""),
        (
            1,
            told(b="passed"),
            told(a="failed"),
            "tests-conflict",
            ["s.a"],
            "the verifier's reward is 1; its reports say that s.a did not pass",
        ),
        (
            1,
            told(b="passed"),
            told(),
            "tests-conflict",
            ["s.a"],
            "the verifier's reward is 1; its reports say that s.a did not pass",
        ),
        (0, told(b="passed"), told(a="failed"), "tests-fail", ["s.a"], "the verifier's reward is 0"),
        (
            0,
            told(b="passed"),
            told(a="passed"),
            "tests-fail",
            [],
            "the verifier's reward is 0; its reports say that every test passed",
        ),
        # no evidence: the reward decides
        (
            1,
            MISSING,
            MISSING,
            "",
            [],
            "the verifier's reward is 1; report new.json is missing, report /l/base.json is missing",
        ),
        (1, told(b="passed"), MISSING, "", [], "the verifier's reward is 1; report new.json is missing"),
        (1, told(b="passed"), output("{"), "", [], "the verifier's reward is 1; report new.json is unreadable"),
        (1, told(b="passed"), output("{", elided=5), "", [], "the verifier's reward is 1; report new.json is too long"),
        (0, told(b="passed"), MISSING, "tests-fail", [], "the verifier's reward is 0; report new.json is missing"),
        # evidence, although there could be more
        (
            1,
            told(b="failed"),
            MISSING,
            "tests-conflict",
            ["s.b"],
            "the verifier's reward is 1; report new.json is missing; its reports say that s.b did not pass",
        ),
    ],
)
def test_the_reward_decides_and_only_what_a_report_says_contradicts_it(
    tmp_path: Path, reward: int, base: Executed, new: Executed, reason: str, failed: list[str], detail: str
) -> None:
    case = flags(tmp_path / "flags", "new.json", "/l/base.json")
    verdict = ended(case, str(reward), PATCH, {"new.json": new, "/l/base.json": base}.__getitem__)
    assert (verdict.outcome, verdict.reason, verdict.detail) == (
        Outcome.FAIL if reason else Outcome.PASS,
        reason,
        detail,
    )
    assert verdict.facts["official_resolved"] is (reward == 1)
    assert [test for group in verdict.facts["tests_status"].values() for test in group["failure"]] == failed


def test_a_reward_of_0_that_no_report_explains_concludes_nothing(tmp_path: Path) -> None:
    """The verifier counts each absent test as failed, also where none could be run."""
    case = flags(tmp_path / "flags", "new.json", "/l/base.json")
    verdict = ended(case, '{"reward": 0}', PATCH, lambda _: MISSING)
    assert (verdict.outcome, verdict.reason, verdict.values) == (Outcome.INCONCLUSIVE, "verifier-without-reports", {})
    assert verdict.detail.startswith(
        "the verifier's reward is 0; report new.json is missing, report /l/base.json is missing"
    )
    empty = ended(case, '{"reward": 0}', "", lambda _: MISSING)
    assert (empty.outcome, empty.reason) == (Outcome.FAIL, "empty-patch")


def test_a_task_that_names_no_report_is_worth_its_reward(tmp_path: Path) -> None:
    case = flags(tmp_path / "flags")
    verdict = ended(case, '{"reward": 1}', PATCH, lambda _: MISSING)
    assert (verdict.outcome, verdict.detail) == (Outcome.PASS, "the verifier's reward is 1; the task names no report")
    verdict = ended(case, '{"reward": 0}', PATCH, lambda _: MISSING)
    assert (verdict.outcome, verdict.reason, verdict.detail) == (
        Outcome.FAIL,
        "tests-fail",
        "the verifier's reward is 0; the task names no report",
    )


@pytest.mark.parametrize("moved", [True, False])
def test_a_report_is_found_where_the_frame_has_moved_it_or_where_it_was_written(tmp_path: Path, moved: bool) -> None:
    """The command that reads a report, run on a folder as the frame leaves it."""

    def read(report: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(read_command(report).argv, check=False, capture_output=True, text=True, cwd=tmp_path)

    name = tmp_path / "logs" / "base.xml"
    place = name.parent / "reports" / "base.xml" if moved else name
    place.parent.mkdir(parents=True)
    place.write_text("<testsuites/>")
    found = [read(str(name)), read("logs/base.xml")]
    assert [(done.returncode, done.stdout) for done in found] == [(0, "<testsuites/>")] * 2
    assert [read(str(wrong)).returncode for wrong in (f"{name}x", name.parent, "-")] == [1] * 3


def test_only_commits_count(shared: Path) -> None:
    case = task(shared)
    found = SUITE.step(untried(case), [call(run("done")), output(f"{MARK}\nthis text is no patch")])
    assert isinstance(found, Exec)
    assert found.tree == "work"
    assert (
        found.command.argv[-1]
        == "git -c safe.directory='*' diff --binary 6bc4708fb9b2ac52d9a18997e923da6a58916102 HEAD"
    )


def test_a_folder_with_a_broken_task_is_named(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "task.toml").write_text("x = [")
    with pytest.raises(DataError, match=r"one/task.toml"):
        read_swebench(tmp_path, load_spec("swebench"))
