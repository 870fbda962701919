"""Log parsers and patch reading, with the official harness's rules as right values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.suites.swebench.grading import official_report, status_lists
from kvv.suites.swebench.logs import END, PARSERS, START, Statuses, UnknownParserError, parse, parser_for
from kvv.suites.swebench.patches import files_of, list_touched, tampering


def last(parser: str, text: str) -> dict[str, str]:
    return parse(f"noise\n{START}\n{text}\n{END}\n", parser).last


def test_pytest_reads_the_short_summary_and_no_counts_of_skips() -> None:
    text = """
PASSED tests/test_a.py::test_one
FAILED tests/test_a.py::test_two - AssertionError: 1 == 2
ERROR tests/test_b.py
SKIPPED [3] tests/test_a.py:10: no network
XFAIL tests/test_a.py::test_four - why
tests/test_c.py::test_five[a PASSED   [ 50%]
 PASSED indented
XPASS tests/test_a.py::test_six
"""
    assert last("pytest", text) == {
        "tests/test_a.py::test_one": "PASSED",
        "tests/test_a.py::test_two": "FAILED",
        "tests/test_b.py": "ERROR",
        "tests/test_a.py::test_four": "XFAIL",
    }


def test_options_know_a_path_by_its_last_part() -> None:
    assert last("pytest_options", "PASSED t.py::a[/tmp/x/y]\nPASSED t.py::b[//host/x]\nPASSED t.py::c[/a/*]") == {
        "t.py::a[/y]": "PASSED",
        "t.py::b[//host/x]": "PASSED",
        "t.py::c[/a/*]": "PASSED",
    }


def test_newer_pytest_has_ids_with_blanks_and_older_puts_the_status_last() -> None:
    text = "PASSED t.py::a[x - y]\nFAILED t.py::b[x y] - AssertionError: z\nt.py::c[p q] PASSED"
    assert last("pytest_v2", text) == {"t.py::a[x - y]": "PASSED", "t.py::b[x y]": "FAILED", "t.py::c[p q]": "PASSED"}


def test_colours_do_not_hide_a_status() -> None:
    assert last("pytest_v2", "\x1b[32mPASSED\x1b[0m t.py::\x1b[1mtest_a\x1b[0m") == {"t.py::test_a": "PASSED"}


def test_django_finds_a_status_that_output_has_moved_to_a_later_line() -> None:
    text = """test_a (m.C) ... ok
test_b (m.C) ... System check identified no issues (0 silenced).
ok
test_c (m.C) ... skipped 'no database'
test_d (m.C) ... FAIL
test_e (m.C) ... ERROR
test_f (m.C) ... expected failure"""
    found = last("django", text)
    assert found["test_a (m.C)"] == found["test_b (m.C)"] == "PASSED"
    assert (found["test_c (m.C)"], found["test_d (m.C)"], found["test_e (m.C)"]) == ("SKIPPED", "FAILED", "ERROR")


@pytest.mark.parametrize("line", ["test_a (m.C) ... ok", "test_a (m.C.test_a) ... ok"])
def test_unittest_ids_are_the_same_on_every_python(line: str) -> None:
    assert last("unittest", line) == {"test_a (m.C.test_a)": "PASSED"}


def test_unittest_takes_no_status_from_the_list_of_failures() -> None:
    text = (
        "test_a (m.C.test_a) ... FAIL\n\nFAIL: test_a (m.C.test_a)\nTraceback\nRan 1 test in 0.001s\nFAILED"
        " (failures=1)"
    )
    assert last("unittest", text) == {"test_a (m.C.test_a)": "FAILED"}


def test_minitest_names_end_at_the_sentence_and_its_last_letter_counts() -> None:
    text = """Run options: --verbose --seed 1
TestTags#test_: should not cause an error.  = 0.02 s = .
TestTags#test_: with a link. = 0.01 s = F
TestFilters#test_: markdownify. = 0.00 s = E
TestSite: reads. posts. = 1.30 s = .
Finished in 1.5s, 12.3 runs/s
"""
    assert last("minitest", text) == {
        "TestTags#test_: should not cause an error": "PASSED",
        "TestTags#test_: with a link": "FAILED",
        "TestFilters#test_: markdownify": "FAILED",
        "TestSite: reads. posts": "PASSED",
    }


def test_cucumber_counts_the_first_letter_after_the_dots_and_no_sentence() -> None:
    text = "Feature: Collections ......\nFeature: Drafts ..F-..\nI have a page .\n5 scenarios (5 passed)"
    assert last("cucumber", text) == {"Feature: Collections": "PASSED", "Feature: Drafts": "FAILED"}


def test_rubys_test_unit_omits_errs_and_fails() -> None:
    text = """  test: parse a line:\t\t.: (0.001)
  test_write(TestOut):\tF
  test: emit: E
test: later: O: (0.0)
  test: not a status: Every time
"""
    assert last("ruby_unit", text) == {
        "parse a line": "PASSED",
        "test_write(TestOut)": "FAILED",
        "emit": "FAILED",
        "later": "SKIPPED",
    }


def test_rspec_lines_of_the_data_sets_scripts() -> None:
    text = (
        "RuboCop::Cop registers - an offense - passed\nRuboCop::Cop corrects - failed\nRuboCop::Cop - pending\n -"
        " passed"
    )
    assert last("rspec_transformed_json", text) == {
        "RuboCop::Cop registers - an offense": "PASSED",
        "RuboCop::Cop corrects": "FAILED",
    }


def test_redis_failures_lose_their_file_and_tests_their_duration() -> None:
    text = """[ok]: SET and GET an item (3 ms)
[err]: EXPIRE precision in tests/unit/expire.tcl
[ok]: keys in db (12 ms)
[skip]: large memory
[ignore]: needs debug
[exception]: Executing test client
[ok] no colon"""
    assert last("redis", text) == {
        "SET and GET an item": "PASSED",
        "EXPIRE precision": "FAILED",
        "keys in db": "PASSED",
        "large memory": "SKIPPED",
        "needs debug": "SKIPPED",
    }


def test_jq_and_micropython_lines() -> None:
    assert last("jq", "PASS: tests/jqtest\n  FAIL: tests/shtest\nXPASS: x\nPASS:\nTOTAL: 2") == {
        "tests/jqtest": "PASSED",
        "tests/shtest": "FAILED",
    }
    text = "pass  basics/a.py\nFAIL  basics/b.py\nskip  float/c.py\n2 tests performed\npassed x"
    assert last("micropython_test", text) == {"basics/a.py": "PASSED", "basics/b.py": "FAILED", "float/c.py": "SKIPPED"}


def test_a_doctest_subcase_passes_when_all_expressions_in_it_do() -> None:
    def report(case: str) -> str:
        return f'[doctest] x\n<?xml version="1.0"?>\n<doctest binary="t"><TestSuite>{case}</TestSuite></doctest>\nend'

    good, bad = (
        '<Expression success="true" type="CHECK"/>',
        '<Expression success="false" type="CHECK"><Original>a</Original></Expression>',
    )
    inner = f'<SubCase name="b">{good}<SubCase name="in">{bad}</SubCase></SubCase>'
    text = report(f'<TestCase name="parse"><SubCase name="a">{good}</SubCase>{inner}</TestCase>')
    assert last("doctest", text) == {"parse > a": "PASSED", "parse > in": "FAILED", "parse > b": "FAILED"}
    assert last("doctest", report(f'<TestCase name="x">{bad}</TestCase>')) == {}
    assert last("doctest", text.replace("</TestCase>", "", 1)) == {}
    deep = "".join(f'<SubCase name="{n}">' for n in range(3_000)) + "</SubCase>" * 3_000
    assert last("doctest", report(f'<TestCase name="x">{deep}</TestCase>')) == {}


def test_karma_reads_between_browser_and_summary_and_names_suites_as_the_data_set_does() -> None:
    text = """ ✔ before the browser
Chrome Headless: Starting browser Chrome
  Component
    render
      ✔ renders
      ✖ fails
    next
      ✔ keeps the names before
  Other
    hooks
      ✔ runs
SUMMARY:
✔ 3 tests completed
      ✔ after the summary"""
    assert last("karma", text) == {
        "Component > render > renders": "PASSED",
        "Component > render > fails": "FAILED",
        "Component > render > keeps the names before": "PASSED",
        "Component > hooks > runs": "PASSED",
    }


def test_a_hostile_nest_of_suites_stays_small() -> None:
    nest = "\n".join(" " * n + "x" for n in range(2, 1_500))
    found = last("karma", f"Starting browser\n{nest}\n" + "\n".join(f"✔ {n}" for n in range(2_000)))
    assert len(found) == 2_000
    assert max(map(len, found)) < 400


@pytest.mark.parametrize(
    ("name", "instance", "parser"),
    [
        ("parse_log_jekyll", "jekyll__jekyll-9141", "minitest"),
        ("parse_log_jekyll", "jekyll__jekyll-8771", "cucumber"),
        ("parse_log_immutable_js", "immutable-js__immutable-js-2005", "jest_json"),
        ("parse_log_redis", "redis__redis-1", "redis"),
    ],
)
def test_some_repositories_have_changed_their_runner(name: str, instance: str, parser: str) -> None:
    assert parser_for(name, "", instance) == parser
    with pytest.raises(UnknownParserError):
        parser_for("parse_log_jekyll", "jekyll/jekyll", "jekyll__jekyll-1")


def test_other_forms() -> None:
    assert last("gotest", "--- PASS: TestA (0.00s)\n    --- FAIL: TestA/b (0.1s)\n--- SKIP: TestC (0.00s)") == {
        "TestA": "PASSED",
        "TestA/b": "FAILED",
        "TestC": "SKIPPED",
    }
    assert last("cargo", "test a::b ... ok\ntest c ... FAILED\ntest d ... ignored, slow") == {
        "a::b": "PASSED",
        "c": "FAILED",
    }
    assert last("sympy", "test_x ok\ntest_y F\ntest_z E\n____ sympy/core/tests/test_a.py:test_q ____") == {
        "test_x": "PASSED",
        "test_y": "FAILED",
        "test_z": "ERROR",
        "sympy/core/tests/test_a.py:test_q": "FAILED",
    }
    assert last("seaborn", "FAILED t::a - x\nt::b PASSED [ 3%]\nPASSED t::c") == {
        "t::a": "FAILED",
        "t::b": "PASSED",
        "t::c": "PASSED",
    }


def test_without_both_marks_there_is_no_evidence_that_tests_ran() -> None:
    assert parse("PASSED t::a", "pytest") == Statuses()
    assert parse(f"{START}\nPASSED t::a", "pytest").complete is False
    assert parse(f"{START}\nPASSED t::a\n{END}", "pytest").last == {"t::a": "PASSED"}


TRACED = "+ echo '>>>>> Test Exit Code: 3'\n>>>>> Test Exit Code: 3"


@pytest.mark.parametrize(("text", "code"), [(">>>>> Test Exit Code: 1", 1), (TRACED, 3), ("", None)])
def test_the_exit_code_is_what_the_script_says_after_the_tests_not_what_they_say(text: str, code: int | None) -> None:
    assert parse(f"{START}\n{END}\n{text}", "pytest").exit_code == code
    if code is not None:
        assert parse(f"{START}\n>>>>> Test Exit Code: 0\n{END}\n{text}", "pytest").exit_code == code


@pytest.mark.parametrize(
    ("text", "fail_only", "ran"),
    [
        ("", False, False),
        ("", True, False),
        ("Executed 0 of 0", True, False),
        ("12 passing", True, True),
        ("12 passing", False, False),
        ("PASSED t::a", False, True),
    ],
)
def test_that_tests_ran_needs_a_sign(text: str, fail_only: bool, ran: bool) -> None:
    assert parse(f"{START}\n{text}\n{END}", "pytest").ran(fail_only=fail_only) is ran


def test_a_test_reported_twice_keeps_its_last_and_its_worst_status() -> None:
    found = parse(f"{START}\nFAILED t::a\nPASSED t::a\nPASSED t::b\nPASSED t::b\n{END}", "pytest")
    assert (found.last["t::a"], found.worst["t::a"]) == ("PASSED", "FAILED")
    assert found.worst["t::b"] == "PASSED"


@pytest.mark.parametrize(
    ("name", "repo", "parser"),
    [
        ("", "django/django", "django"),
        ("parse_log_pytest_v2", "x/y", "pytest_v2"),
        ("parse_log_flask", "pallets/flask", "pytest"),
        ("parse_log_requests", "psf/requests", "pytest_options"),
        ("unittest", "kvv/x", "unittest"),
    ],
)
def test_a_parser_is_found_by_name_or_repository(name: str, repo: str, parser: str) -> None:
    assert parser_for(name, repo) == parser


def test_an_unknown_parser_is_said() -> None:
    with pytest.raises(UnknownParserError, match="no log parser 'parse_log_cobol'"):
        parser_for("parse_log_cobol", "pallets/flask")
    with pytest.raises(UnknownParserError, match="repository 'a/b'"):
        parser_for("", "a/b")


@given(st.text(), st.sampled_from(sorted(PARSERS)))
def test_no_output_breaks_a_parser(text: str, parser: str) -> None:
    found = parse(f"{START}\n{text}\n{END}", parser)
    assert set(found.last) == set(found.worst)


# --- the lists ------------------------------------------------------------------------------------


def test_absent_failed_skipped_and_expected_failures_count_as_officially() -> None:
    statuses = {"a": "PASSED", "b": "XFAIL", "c": "SKIPPED", "d": "FAILED", "e": "ERROR"}
    tests = ["a", "b", "c", "d", "e", "absent"]
    found = status_lists(statuses, tests, tests, fail_only=False)
    assert found["FAIL_TO_PASS"] == {"success": ["a", "b"], "failure": ["c", "d", "e", "absent"]}
    assert found["PASS_TO_PASS"] == {"success": ["a", "b", "c"], "failure": ["d", "e", "absent"]}
    assert status_lists(statuses, tests, [], fail_only=True)["FAIL_TO_PASS"]["failure"] == ["d"]


def test_an_id_cut_off_at_a_space_matches_what_begins_with_it() -> None:
    statuses = {"t::a[x-1]": "PASSED", "t::a[x-2]": "XFAIL", "t::b[y-1]": "PASSED", "t::b[y-2]": "FAILED"}
    assert status_lists(statuses, ["t::a[x"], [], fail_only=False)["FAIL_TO_PASS"]["success"] == ["t::a[x"]
    assert status_lists(statuses, ["t::b[y"], [], fail_only=False)["FAIL_TO_PASS"]["success"] == []
    assert status_lists(statuses, ["t::a"], [], fail_only=False)["FAIL_TO_PASS"]["success"] == []


def test_the_official_report_says_what_was_applied_and_run() -> None:
    lists = {"FAIL_TO_PASS": {"success": ["a"], "failure": []}, "PASS_TO_PASS": {"success": [], "failure": []}}
    done = official_report("x__y-1", "diff", {"applied": "git apply", "tests_status": lists, "official_resolved": True})
    assert done["x__y-1"]["resolved"] is True
    assert done["x__y-1"]["tests_status"]["FAIL_TO_PASS"] == lists["FAIL_TO_PASS"]
    failed = official_report("x__y-1", "diff", {"applied": "", "tests_status": None, "official_resolved": False})
    flags = {"patch_is_None": False, "patch_successfully_applied": False, "resolved": False, "infra_failure": False}
    assert failed["x__y-1"] == {**flags, "patch_exists": True}


# --- patches --------------------------------------------------------------------------------------


def patch(path: str, *lines: str) -> str:
    return "\n".join([f"diff --git a/{path} b/{path}", f"--- a/{path}", f"+++ b/{path}", "@@ -1 +1 @@", *lines, ""])


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("conftest.py", ["+x"]),
        ("tests/unit/conftest.py", ["+x"]),
        ("pytest.ini", ["+x"]),
        ("sitecustomize.py", ["+x"]),
        ("unittest/__init__.py", ["+x"]),
        ("hooks.pth", ["+x"]),
        ("tests/__init__.py", ["+x"]),
        ("tests/helpers.py", ["+def load_tests(loader, tests, pattern):"]),
        ("pyproject.toml", ["+addopts = '--collect-only'"]),
        ("setup.cfg", ["-[tool:pytest]"]),
        ("package.json", ['+  "test": "true"']),
        ('"conft\\145st.py"', ["+x"]),
    ],
)
def test_what_steers_the_runner_is_seen(path: str, lines: list[str]) -> None:
    text = patch(path, *lines)
    if path.startswith('"'):
        text = text.replace('a/"', '"a/').replace('b/"', '"b/')
    assert tampering(text, reference="", test_files=["tests/test_a.py"])


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("src/app.py", ["+import pytest"]),
        ("pyproject.toml", ["+version = '2'"]),
        ("package/__init__.py", ["+x"]),
        ("tests/test_a.py", ["+x"]),
        ("docs/conftest.md", ["+x"]),
        ("tests/data/unittest.txt", ["+x"]),
    ],
)
def test_what_does_not_is_left_alone(path: str, lines: list[str]) -> None:
    assert tampering(patch(path, *lines), reference="", test_files=["tests/test_a.py"]) == []


def test_what_the_reference_touches_is_the_task() -> None:
    assert tampering(patch("conftest.py", "+x"), reference=patch("conftest.py", "+y"), test_files=[]) == []


def test_new_deleted_and_renamed_files_are_all_touched() -> None:
    text = (
        "diff --git a/old.py b/new.py\nsimilarity index 100%\nrename from old.py\nrename to new.py\ndiff --git"
        " a/gone.py b/gone.py\ndeleted file mode 100644\n--- a/gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\ndiff --git"
        " a/added.py b/added.py\nnew file mode 100644\n--- /dev/null\n+++ b/added.py\n@@ -0,0 +1 @@\n+-- a comment\n"
    )
    assert files_of(text) == ["old.py", "new.py", "gone.py", "added.py"]
    assert list_touched(text)[-1].lines == ["-- a comment"]


def test_a_plain_diff_without_git_heads_is_read_too() -> None:
    assert files_of("--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n--- a/y.py\n+++ b/y.py\n@@ -1 +1 @@\n-a\n+b\n") == [
        "x.py",
        "y.py",
    ]


@given(st.text())
def test_no_patch_text_breaks_the_reader(text: str) -> None:
    for known in list_touched(text):
        assert known.path


def test_a_patch_of_nothing_but_heads_is_read_in_one_pass() -> None:
    heads = "".join(f"--- a/{number}\n" for number in range(50_000))
    assert len(list_touched(f"diff --git a/x b/x\n{heads}")) == 4
    assert len(list_touched(heads)) == 50_000


def test_a_removed_line_that_looks_like_a_head_hides_no_file_after_it() -> None:
    text = patch("a.sql", "---- a comment", "-x") + patch("conftest.py", "+x")
    assert "conftest.py" in files_of(text)
    assert tampering(text, reference="", test_files=[]) == ["conftest.py"]


@pytest.mark.parametrize(
    ("parser", "text", "statuses"),
    [
        (
            "jest",
            "  ✓ adds (12 ms)\n ✕ takes away\n ○ skipped one\n✓ of (3 s) kind (1 ms)",
            ["adds", "-takes away", "~skipped one", "of (3 s) kind"],
        ),
        ("jest_json", "[PASSED] a > b\n[FAILED] a > c", ["a > b", "-a > c"]),
        (
            "vitest",
            " ✓ src/a.test.ts > adds 3ms\n × src/a.test.ts > b\n ↓ c [skipped]",
            ["src/a.test.ts > adds", "-src/a.test.ts > b", "~c"],
        ),
        ("tap", "ok 1 adds\nnot ok 2 fails - why\n# ok 3 no\nok x y", ["adds", "-fails - why"]),
        (
            "maven",
            "+ mvn test -Dtest=A#b -q\n[INFO] BUILD SUCCESS\n+ mvn test -Dtest=A#c\n[INFO] BUILD FAILURE",
            ["A#b", "-A#c"],
        ),
        ("ant", "    [junit] [PASS] a.B\n [junit] [ERR] a.C\n[other] [PASS] x", ["a.B", "-a.C"]),
        ("gradle_custom", "a.B > c PASSED\na.B > d\nwarning\nFAILED\n> Task x FAILED", ["a.B > c", "-a.B > d"]),
        (
            "phpunit",
            "Money (App\\\\Money)\n ✔ Adds\n ✘ Takes\n ↩ Skips",
            ["Money > Adds", "-Money > Takes", "~Money > Skips"],
        ),
        (
            "gotest",
            "--- PASS: TestA (0.00s)\n    --- FAIL: TestA/b_(x) (0.1s)\n--- SKIP: TestC (0.00s)",
            ["TestA", "-TestA/b_(x)", "~TestC"],
        ),
        ("cargo", "test a::b ... ok\ntest c ... FAILED\ntest d ... ignored, slow\nrunning 3 tests", ["a::b", "-c"]),
        (
            "googletest",
            "[ RUN      ] A.b\n[       OK ] A.b (0 ms)\n[  FAILED  ] A.c (1 ms)\n[  FAILED  ] A.c",
            ["A.b", "-A.c"],
        ),
    ],
)
def test_runners_of_other_languages(parser: str, text: str, statuses: list[str]) -> None:
    marks = {"-": "FAILED", "~": "SKIPPED"}
    assert last(parser, text) == {name.lstrip("-~"): marks.get(name[0], "PASSED") for name in statuses}
