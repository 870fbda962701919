"""What each renderer says of an ordinary run."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema

from kvv.core import Area, Gate, Level, Outcome
from kvv.reporting import csv as csv_report
from kvv.reporting import github, html, junit, leaderboard, markdown, text
from kvv.reporting import json as json_report
from kvv.stats.metrics import rate_stat
from kvv.storage.causes import find_causes
from kvv.storage.view import Asked, Unlisted, shown_metric, timing_of

RENDERERS = {
    "json": json_report.render,
    "text": text.render,
    "junit": junit.render,
    "markdown": markdown.render,
    "html": html.render,
    "github": github.render,
    "annotations": github.workflow_commands,
    "csv": csv_report.render,
    "leaderboard": leaderboard.render,
}

SCHEMA = json.loads(files("kvv.reporting").joinpath("report.schema.json").read_text("utf-8"))
XSD = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def valid(report: Any) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(report)


@pytest.mark.parametrize("name", RENDERERS)
def test_the_same_view_gives_the_same_bytes(views: Any, name: str) -> None:
    assert RENDERERS[name](views.make()) == RENDERERS[name](views.make())


@pytest.mark.parametrize("name", ["text", "markdown", "html", "github"])
def test_the_verdict_and_its_coverage_come_first(views: Any, name: str) -> None:
    out = RENDERERS[name](views.make())
    body = out.split("<body>")[-1]
    assert re.match(r'(# |\s*<header class="fail">\s*<h1>)?FAIL, 3 of 4 suites, skipped: beam ', body)


def test_report_json_keeps_the_designs_keys(views: Any) -> None:
    report = json.loads(json_report.render(views.make()))
    valid(report)
    design = (
        "schema_version run_id started finished kvv_version seed partial coverage verdict exit_code endpoint profile"
        " surface policy"
    )
    assert set(f"{design} waivers gates suites checks findings areas traffic timing".split()) <= set(report)
    assert (report["verdict"], report["exit_code"], report["coverage"]) == (
        "fail",
        1,
        "3 of 4 suites, skipped: beam (no judge)",
    )
    row = report["suites"][0]
    assert (row["id"], row["value"], row["n_planned"], row["reference"]["kind"]) == (
        "ocrbench",
        pytest.approx(80 / 90),
        90,
        "per-case",
    )
    assert set(row["comparability"]) == {
        "data_revision",
        "sampling",
        "preset",
        "judge",
        "agent",
        "scorer_version",
        "failures_in_denominator",
    }
    assert len(report["checks"]) == 99
    assert report["timing"]["ttft_ms"]["by_prompt_tokens"][0] == {
        "from": 0,
        "to": 1000,
        "p50": 210.5,
        "p90": 480.0,
        "p99": 900.25,
        "n": 120,
    }


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict",), "good"),
        (("exit_code",), 7),
        (("suites", 0, "value"), "88"),
        (("gates", 0, "area"), "taste"),
        (("policy", "sha256"), "x"),
    ],
)
def test_the_schema_refuses_wrong_neighbours(views: Any, path: tuple[Any, ...], value: Any) -> None:
    report = json.loads(json_report.render(views.make()))
    inner = report
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        valid(report)


def test_the_schema_requires_every_row_field(views: Any) -> None:
    report = json.loads(json_report.render(views.make()))
    del report["suites"][0]["worst_case"]
    with pytest.raises(jsonschema.ValidationError, match="worst_case"):
        valid(report)


def test_junit_tells_failure_error_and_skip_apart(views: Any) -> None:
    out = junit.render(views.make())
    XSD.validate(out)
    root = ET.fromstring(out)  # noqa: S314
    cases = {c.get("name"): [child.tag for child in c] for c in root.iter("testcase")}
    assert cases["params/ok-0"] == []
    assert cases["params/too-hot"] == ["failure"]
    assert cases["params/ours"] == ["error"]
    assert cases["params/off"] == ["skipped"]
    assert cases["params/top-p"] == ["skipped"], "waived"
    assert cases["params/pretty"] == ["skipped"], "a should that does not count"
    assert root.find(".//testcase[@name='streaming/done']/error").get("type") == "inconclusive"  # type: ignore[union-attr]
    assert cases["contract/streaming"] == ["failure"]
    assert not any(name.startswith("ocrbench/q") for name in cases), "one wrong answer is no failed test"
    params = root.find("testsuite[@name='params']")
    assert params is not None
    assert [params.get(k) for k in ("tests", "failures", "errors", "skipped")] == ["8", "1", "1", "3"]


def test_the_xsd_refuses_a_suite_without_its_counts(views: Any) -> None:
    broken = junit.render(views.make()).replace(' failures="1"', "", 1)
    assert not XSD.is_valid(broken)


def test_markdown_separates_contract_from_quality_and_shows_failures_with_their_texts(views: Any) -> None:
    out = markdown.render(views.make())
    assert (
        out.index("## Contract")
        < out.index("## Quality")
        < out.index("## Findings")
        < out.index("### FAIL params/too&#45;hot".replace("&#45;", "-"))
    )
    assert '```\n{"temperature": 2}\n```' in out
    assert "88.89" in out


def test_html_is_one_file_that_asks_for_nothing_outside(views: Any) -> None:
    out = html.render(views.make())
    for needle in (
        "http-equiv",
        "prefers-color-scheme: dark",
        "<svg",
        'id="filter"',
        'id="case-params/too-hot"',
        'href="#case-params/too-hot"',
    ):
        assert needle in out
    for outside in (" src=", "<link", "@import", "url(", 'href="http'):
        assert outside not in out
    places = [out.index(f'id="{name}"') for name in ("causes", "failed", "contract", "quality", "findings")]
    assert places == sorted(places)  # what failed stands first


def test_html_policy_names_the_hash_of_its_own_script(views: Any) -> None:
    out = html.render(views.make())
    script = out.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    found = re.search(r"script-src &#39;sha256-([^&]+)&#39;", out)
    assert found
    assert found.group(1).replace("&#43;", "+") == digest


def test_ten_thousand_cases_make_a_bounded_page(views: Any) -> None:
    extra = [
        views.judged(f"params/n{i}", "params", Outcome.PASS if i % 2 else Outcome.FAIL, text="x" * 5000)
        for i in range(10_000)
    ]
    view = views.make(extra=extra)
    out = html.render(view)
    assert len(out) < 8_000_000
    assert "more failed cases are listed below without their texts" in out
    assert out.count('<details class="case row"') == html.DETAILED
    assert out.count('<li class="row"') <= 5 * html.LISTED
    assert len(markdown.render(view)) < 500_000
    assert len(text.render(view).splitlines()) < 80
    assert len(json.loads(json_report.render(view))["checks"]) == 10_099


def test_github_stays_within_its_limits(views: Any) -> None:
    extra = [views.judged(f"params/{'é' * 180}{i}", "params", Outcome.FAIL, text="`" * 3000) for i in range(500)]
    view = views.make("é" * 200_000, extra=extra)
    assert len(github.render(view).encode()) <= 1024 * 1024
    commands = github.workflow_commands(view).splitlines()
    for kind in ("error", "warning", "notice"):
        assert 0 <= sum(line.startswith(f"::{kind} ") for line in commands) <= 10


def test_a_summary_beyond_github_s_limit_is_cut_and_says_so(views: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(github, "SUMMARY_BYTES", 3000)
    out = github.render(views.make())
    assert len(out.encode()) <= 3000
    assert "cut at GitHub's limit" in out


def test_annotations_say_what_failed_what_is_open_and_the_verdict(views: Any) -> None:
    lines = github.workflow_commands(views.make()).splitlines()
    # causes, not the gates that they break
    assert "::error title=kvv%3A not refused::not refused (answered 200): 3 cases, decoding." in lines
    assert not any(line.startswith("::error title=contract/") for line in lines)
    assert any(line.startswith("::notice title=kvv::FAIL") for line in lines)


def test_csv_rows_carry_run_interval_and_reference(views: Any) -> None:
    (row,) = csv.DictReader(io.StringIO(csv_report.render(views.make())))
    assert (row["vendor"], row["id"], row["n_planned"], row["reference_kind"]) == (
        "example",
        "ocrbench",
        "90",
        "per-case",
    )
    assert 0 < float(row["ci95_low"]) < float(row["value"]) < float(row["ci95_high"])
    assert len(list(csv.DictReader(io.StringIO(csv_report.render_table(views.make(), "checks"))))) == 99


@pytest.mark.parametrize("formula", ["=1+1", "+cmd", "-2", "@SUM(A1)", " =x"])
def test_a_spreadsheet_formula_is_defused(views: Any, formula: str) -> None:
    (row,) = csv.DictReader(io.StringIO(csv_report.render(views.make(formula))))
    assert row["vendor"].startswith("'")


def test_a_leaderboard_row_says_what_makes_it_comparable(views: Any) -> None:
    row = json.loads(leaderboard.render(views.make()))
    assert (row["model"], row["vendor"], row["date"], row["kvv_preset"]) == ("kimi-k3", "example", "2026-03-01", True)
    assert (row["suites"]["ocrbench"]["n"], row["suites"]["ocrbench"]["preset"]) == (90, "kvv")
    assert row["suites"]["ocrbench"]["comparability"]["sampling"] == "T=1"


def test_the_terminal_shows_n_interval_and_reference_beside_each_value(views: Any) -> None:
    out = text.render(views.make())
    assert "* ocrbench accuracy: 88.89 [80.74, 93.85], n 90/90, reference" in out
    assert "  1. not refused (answered 200): 3 cases, decoding\n     params/too-hot\n" in out
    assert "waiver used: params/top-p (ops, until 2026-03-01): by design" in out


def test_timing_is_by_prompt_length() -> None:
    from kvv.decision import TimedAnswer

    answers = [
        TimedAnswer(prompt_tokens=tokens, ttft_ms=float(tokens), itl_ms=5.0) for tokens in (10, 999, 1000, 200_000)
    ]
    timing = timing_of(answers)
    assert [(t.low, t.ttft_ms.n) for t in timing.by_prompt_tokens] == [(0, 2), (1000, 1), (128_000, 1)]
    assert timing.ttft_ms is not None
    assert timing.ttft_ms.p50 == pytest.approx(999.5)
    assert timing.e2e_ms is None


@pytest.mark.parametrize(
    ("metric", "breakdown", "shown"),
    [
        ("avg@k", {"k": 4}, "avg@4"),
        ("pass^k", {"k": 8}, "pass^8"),
        ("avg@k", {}, "avg@k"),
        ("accuracy", {"k": 4}, "accuracy"),
        ("avg@k", {"k": "<b>"}, "avg@k"),
    ],
)
def test_a_metric_over_k_samples_says_its_k(metric: str, breakdown: dict[str, Any], shown: str) -> None:
    stat = rate_stat("aime2025", metric, successes=1, concluded=2, breakdown=breakdown)
    assert shown_metric(stat) == shown


def test_service_levels_stand_under_timing_with_their_interval(views: Any) -> None:
    view = views.make()
    reason = "missed: 80 of 100 answers (90 % interval 72 to 86 %)"
    gate = Gate(id="service/ttft-8k", area=Area.LATENCY, level=Level.MUST, decision=Outcome.FAIL, reason=reason)
    two = (("chat", view.timing.itl_ms), ("agentic", view.timing.itl_ms))
    timing = replace(view.timing, itl_by_workload=two)
    view = replace(view, decision=replace(view.decision, gates=(*view.decision.gates, gate)), timing=timing)
    page = html.render(view)
    contract, rest = page[page.index('id="contract"') :].split('id="quality"')
    assert "service/ttft-8k" not in contract
    assert "service/ttft-8k" in rest[rest.index('id="timing"') :]
    assert "90 % interval 72 to 86 %" in rest
    assert "– agentic" in rest
    assert "- agentic" in markdown.render(view)
    assert json.loads(json_report.render(view))["timing"]["itl_ms"]["by_workload"]["agentic"]["n"] == 120


def test_wrong_answers_that_a_report_does_not_list_are_counted(views: Any) -> None:
    view = replace(
        views.make(),
        unlisted=(
            Unlisted(suite="ocrbench", outcome=Outcome.FAIL, n=288),
            Unlisted(suite="beam", outcome=Outcome.SKIP, n=3),
        ),
    )
    listed = len(view.rows(Outcome.FAIL, Outcome.ERROR))
    page = html.render(view)
    assert f'Failed cases <span class="dim">{listed + 288}</span>' in page
    assert "288 more wrong answers of benchmarks are not in this file" in page
    assert "and 288 more; the run's store has all." in page.replace("&#39;", "'")
    found = json.loads(json_report.render(view))
    jsonschema.validate(found, SCHEMA)
    assert found["unlisted"][0] == {"suite": "ocrbench", "verdict": "fail", "n": 288}


def test_a_dead_endpoint_is_one_error_and_one_cause_in_every_report(views: Any) -> None:
    pairs = [views.judged(f"params/n{i}", "params", Outcome.INCONCLUSIVE) for i in range(40)]
    view = views.make("", extra=pairs)
    dead = replace(view, trouble="nothing accepts connections there")
    dead = replace(dead, causes=find_causes(dead))
    found = ET.fromstring(junit.render(dead).encode())  # noqa: S314 our own
    errors = [case.get("name") for case in found.iter("testcase") if case.find("error") is not None]
    assert errors == ["reachable", "params/ours"]  # and the one on which our own code failed
    assert dead.causes[0].sentence == "nothing accepts connections there: 41 cases, availability."
    out = text.render(dead)
    assert out.count("nothing accepts connections there") == 1
    assert "params/n7" not in out


def test_junit_has_times_findings_as_cases_and_names_causes(views: Any) -> None:
    view = views.make()
    timed = replace(view, checks=tuple(replace(row, asked=Asked(seconds=1.5)) for row in view.checks))
    suites = {suite.get("name"): suite for suite in ET.fromstring(junit.render(timed).encode())}  # noqa: S314
    assert {case.get("time") for case in suites["params"].iter("testcase")} == {"1.500"}
    assert suites["params"].get("time") == f"{1.5 * len(list(suites['params'].iter('testcase'))):.3f}"
    (rule,) = suites["wire-rules"].iter("testcase")
    assert (rule.get("name"), rule.find("failure") is not None) == ("stream/done", True)
    failure = next(
        case.find("failure") for case in suites["params"].iter("testcase") if case.get("name") == "params/too-hot"
    )
    assert "cause: not refused" in failure.text
    assert "3 cases" in suites["params"].find("system-out").text


def test_the_next_two_commands_fit_what_happened(views: Any) -> None:
    failed = [command for command, _ in text.next_commands(views.make(), "reports/a b")]
    assert failed == ["kvv show params/too-hot --run 'reports/a b'", "kvv run --last-failed 'reports/a b'"]
    clean = replace(views.make(), causes=())
    assert [command for command, _ in text.next_commands(clean, "r")] == ["kvv view r", "kvv gate r"]
