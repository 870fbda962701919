"""The aggregation law, on contract cases, findings and required suites."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.cases.suite import SuiteKind
from kvv.core import Area, Finding, FindingKind, Level, Outcome
from kvv.decision import CountedFindings, SuiteRun, aggregate, coverage_sentence, exit_code, group_findings

P, F, I, S, E = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.SKIP, Outcome.ERROR  # noqa: E741


def finding(level: Level = Level.MUST, rule: str = "stream/done", area: Area = Area.STREAMING) -> CountedFindings:
    return CountedFindings(
        rule=rule, area=area, level=level, kind=FindingKind.BREAKS_CLIENTS, count=3, exchanges=2, message="no [DONE]"
    )


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [([P, F, E, I], F), ([P, E, I], E), ([P, I, S], I), ([P, S], P), ([S, S], S), ([], S)],
)
def test_a_fail_beats_an_error_beats_an_inconclusive_beats_a_pass(outcomes: list[Outcome], expected: Outcome) -> None:
    assert aggregate(outcomes) is expected


@given(st.lists(st.sampled_from(list(Outcome))))
def test_order_never_matters(outcomes: list[Outcome]) -> None:
    assert aggregate(outcomes) is aggregate(outcomes[::-1])


@pytest.mark.parametrize(
    ("outcome", "flags", "code"),
    [
        (P, {}, 0),
        (F, {}, 1),
        (I, {}, 3),
        (S, {}, 3),
        (E, {}, 4),
        (P, {"budget": True}, 5),
        (I, {"budget": True}, 5),
        (F, {"budget": True}, 1),
        (E, {"budget": True}, 4),
        (F, {"interrupted": True, "budget": True}, 130),
        (F, {"usage": True, "interrupted": True}, 2),
    ],
)
def test_exit_codes_come_in_the_order_2_130_1_4_5_3_0(outcome: Outcome, flags: dict[str, bool], code: int) -> None:
    assert exit_code(outcome, **flags) == code


def test_all_cases_passing_is_a_pass_with_its_coverage(bench: Any) -> None:
    decision = bench.decide([bench.case("params/a", "params"), bench.case("params/b", "params")])
    assert decision.outcome is P
    assert decision.headline == "PASS, 1 of 1 suite; contract pass"
    assert decision.areas["decoding"] is P
    assert decision.areas["vision"] is S


def test_a_must_failure_fails_its_area_and_names_the_case(bench: Any) -> None:
    decision = bench.decide([bench.case("params/a", "params"), bench.case("params/b", "params", outcome=F)])
    assert decision.outcome is F
    assert decision.gates[0].reason == "contract-broken: 1 of 2 cases failed (params/b)"
    assert decision.why == ("contract/decoding: contract-broken: 1 of 2 cases failed (params/b)",)


def test_errors_are_shown_beside_a_fail_never_instead_of_it(bench: Any) -> None:
    decision = bench.decide([bench.case("params/a", "params", outcome=E), bench.case("params/b", "params", outcome=F)])
    assert decision.outcome is F
    assert "1 of 2 could not be judged (params/a)" in decision.gates[0].reason


@pytest.mark.parametrize(("strict", "expected"), [(False, P), (True, F)])
def test_a_should_failure_counts_only_under_strict(bench: Any, strict: bool, expected: Outcome) -> None:
    cases = [bench.case("params/a", "params"), bench.case("params/b", "params", level=Level.SHOULD, outcome=F)]
    decision = bench.decide(cases, {"strict": strict})
    assert decision.outcome is expected
    if not strict:
        assert "1 should-level failed (shown only)" in decision.gates[0].reason


@pytest.mark.parametrize("strict", [False, True])
def test_a_may_failure_never_counts(bench: Any, strict: bool) -> None:
    assert bench.decide([bench.case("params/b", "params", level=Level.MAY, outcome=F)], {"strict": strict}).outcome is P


def test_an_endpoint_that_answers_nothing_neither_passes_nor_fails(bench: Any) -> None:
    decision = bench.decide([bench.case(f"params/{i}", "params", outcome=I, reason="connect") for i in range(9)])
    assert decision.outcome is I
    assert exit_code(decision.outcome) == 3


def test_a_run_in_which_nothing_ran_is_inconclusive(bench: Any) -> None:
    for cases in ([], [bench.case("params/a", "params", outcome=S)]):
        decision = bench.decide(cases)
        assert decision.outcome is I
        assert any("nothing-decided" in why for why in decision.why)


def test_a_must_finding_fails_its_area_without_any_case(bench: Any) -> None:
    decision = bench.decide([bench.case("params/a", "params")], findings=[finding()])
    assert (decision.outcome, decision.areas["streaming"], decision.areas["decoding"]) == (F, F, P)
    assert "rules broken: stream/done in 2 of 2 contract answers (15.8 to 100 %)" in decision.why[0]


@pytest.mark.parametrize(("strict", "expected"), [(False, P), (True, F)])
def test_a_should_finding_shows_and_gates_only_under_strict(bench: Any, strict: bool, expected: Outcome) -> None:
    decision = bench.decide([bench.case("params/a", "params")], {"strict": strict}, findings=[finding(Level.SHOULD)])
    assert decision.outcome is expected
    assert decision.areas["streaming"] is (F if strict else S)


def test_a_policy_can_raise_rules_and_cases_to_must(bench: Any) -> None:
    cases = [
        bench.case("params/a", "params"),
        bench.case("stream/p0.5/ids", "stream", level=Level.MAY, outcome=F, area=Area.STREAMING),
    ]
    assert bench.decide(cases, {"must": ["*p0*"]}).areas["streaming"] is F
    decision = bench.decide(
        cases[:1],
        {"must": ["*p0*"]},
        findings=[finding(Level.SHOULD, "stream/p0.2"), finding(Level.SHOULD, "stream/p1.2")],
    )
    assert decision.areas["streaming"] is F
    assert [f.level for f in decision.findings] == [Level.MUST, Level.SHOULD]


def test_a_required_suite_that_was_skipped_leaves_the_run_inconclusive(bench: Any) -> None:
    suites = [
        SuiteRun(id="params", kind=SuiteKind.CONTRACT),
        SuiteRun(id="beam", kind=SuiteKind.BENCHMARK, skipped="no judge"),
    ]
    cases = [bench.case("params/a", "params")]
    assert bench.decide(cases, suites=suites).outcome is P
    decision = bench.decide(cases, {"required": {"suites": ["params", "beam", "ocrbench"]}}, suites=suites)
    assert decision.outcome is I
    assert decision.why == (
        "required-suite-missing: beam (no judge)",
        "required-suite-missing: ocrbench (not selected)",
    )


def test_a_required_area_that_nothing_decides_leaves_the_run_inconclusive(bench: Any) -> None:
    cases = [bench.case("params/a", "params"), bench.case("tools/a", "tools", area=Area.TOOLS, outcome=S)]
    decision = bench.decide(cases, {"required": {"areas": ["decoding", "tools", "vision"]}})
    assert decision.why == ("required-area-missing: tools", "required-area-missing: vision")


def test_a_failure_stays_a_failure_when_something_required_is_missing(bench: Any) -> None:
    decision = bench.decide([bench.case("params/a", "params", outcome=F)], {"required": {"suites": ["beam"]}})
    assert decision.outcome is F


def test_the_coverage_sentence_says_what_was_skipped_and_why() -> None:
    suites = [SuiteRun(id=f"s{i}", kind=SuiteKind.CONTRACT) for i in range(4)]
    suites += [
        SuiteRun(id="beam", kind=SuiteKind.BENCHMARK, skipped="no judge"),
        SuiteRun(id="swebench", kind=SuiteKind.BENCHMARK, skipped="no sandbox"),
    ]
    assert (
        coverage_sentence(suites, {f"s{i}" for i in range(4)})
        == "4 of 6 suites, skipped: beam (no judge), swebench (no sandbox)"
    )


def test_a_suite_of_which_nothing_was_asked_does_not_count_as_covered(bench: Any) -> None:
    suites = [SuiteRun(id=name, kind=SuiteKind.CONTRACT) for name in ("params", "tools", "vision", "usage")]
    verdicts = [
        bench.case("params/a", "params"),
        bench.case("tools/a", "tools", outcome=S, reason="not-claimed", detail="no tools here"),
        bench.case("usage/a", "usage", outcome=I, reason="not-run"),
    ]
    decision = bench.decide(verdicts, suites=suites)
    assert (
        decision.coverage
        == "1 of 4 suites, skipped: tools (no tools here), vision (no case of it was chosen), not reached: usage"
    )
    assert [suite.skipped for suite in decision.suites] == ["", "no tools here", "no case of it was chosen", ""]


def test_a_required_suite_whose_every_case_was_skipped_is_missing(bench: Any) -> None:
    verdicts = [
        bench.case("params/a", "params"),
        bench.case("tools/a", "tools", outcome=S, reason="not-claimed", detail="no tools here"),
    ]
    decision = bench.decide(verdicts, {"required": {"suites": ["tools"]}})
    assert (decision.outcome, decision.why) == (I, ("required-suite-missing: tools (no tools here)",))


def test_findings_decide_nothing_where_no_sample_was_concluded(bench: Any) -> None:
    silent = bench.decide([bench.case("params/a", "params", outcome=I, reason="http-429")], findings=[finding()])
    assert silent.outcome is I
    assert silent.findings[0].level is Level.MUST
    answered = bench.decide([bench.case("params/a", "params")], findings=[finding()])
    assert answered.outcome is F


def waiver(case: str, expires: date = date(2026, 3, 1)) -> dict[str, Any]:
    return {
        "case": case,
        "reason": "fixed top_p",
        "owner": "ops@example.org",
        "issue": "https://example.org/1",
        "expires": expires,
    }


def test_a_waived_failure_is_shown_and_decides_nothing(bench: Any) -> None:
    cases = [bench.case("params/a", "params"), bench.case("params/top-p", "params", outcome=F)]
    decision = bench.decide(cases, {"waiver": [waiver("params/top-*")]})
    assert decision.outcome is P
    assert "1 waived" in decision.gates[0].reason
    assert [(w.state, w.subjects) for w in decision.waivers] == [("used", ("params/top-p",))]


def test_an_expired_waiver_waives_nothing_and_is_reported(bench: Any) -> None:
    cases = [bench.case("params/top-p", "params", outcome=F)]
    decision = bench.decide(cases, {"waiver": [waiver("params/top-*", date(2026, 2, 28))]})
    assert decision.outcome is F
    assert decision.waivers[0].state == "expired"


def test_an_unneeded_waiver_and_one_that_names_nothing_are_told_apart(bench: Any) -> None:
    decision = bench.decide([bench.case("params/a", "params")], {"waiver": [waiver("params/*"), waiver("tools/*")]})
    assert [w.state for w in decision.waivers] == ["unneeded", "not-seen"]


def test_a_rule_and_a_gate_can_be_waived(bench: Any) -> None:
    cases = [bench.case("params/a", "params")]
    waived = bench.decide(cases, {"waiver": [waiver("stream/done")]}, findings=[finding()])
    assert (waived.outcome, waived.breaking, len(waived.findings)) == (P, (), 1)
    assert [group.rule for group in bench.decide(cases, findings=[finding()]).breaking] == ["stream/done"]
    assert bench.decide(cases, findings=[finding(level=Level.SHOULD)]).breaking == ()
    decision = bench.decide(
        [*cases, bench.case("tools/a", "tools", area=Area.TOOLS, outcome=F)], {"waiver": [waiver("contract/tools")]}
    )
    assert decision.outcome is P
    assert decision.areas["tools"] is S


def test_findings_are_grouped_by_rule_and_count_exchanges_once() -> None:
    def one(rule: str, frame: int) -> Finding:
        return Finding(
            rule=rule,
            area=Area.STREAMING,
            level=Level.MUST,
            kind=FindingKind.DIFFERS,
            message="m",
            frame=frame,
            excerpt="x" * 999,
            causes=("f1",),
        )

    pairs = [
        ("e1", one("a", 1)),
        ("e1", one("a", 2)),
        ("e1", one("b", 3)),
        ("e2", one("a", 4)),
        *((f"e{i}", one("a", i)) for i in range(3, 9)),
    ]
    first, second = group_findings(pairs)
    assert (first.rule, first.count, first.exchanges, len(first.examples), first.causes) == ("a", 9, 8, 5, ("f1",))
    assert (second.rule, second.count, second.exchanges) == ("b", 1, 1)
    assert len(first.examples[0].excerpt) == 400


def test_an_open_should_case_keeps_no_pass_away_unless_the_area_showed_nothing_else(bench: Any) -> None:
    open_should = bench.case("params/a", "params", level=Level.SHOULD, outcome=I)
    assert bench.decide([open_should, bench.case("params/b", "params")]).outcome is P
    assert bench.decide([open_should]).outcome is I
    assert bench.decide([open_should, bench.case("params/b", "params")], {"name": "x", "strict": True}).outcome is I
    assert bench.decide([bench.case("params/a", "params", outcome=I), bench.case("params/b", "params")]).outcome is I
