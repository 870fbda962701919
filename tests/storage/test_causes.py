"""Failed cases and findings become a few causes, each with one plain sentence."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from kvv.cases.suite import SuiteKind
from kvv.core import Area, Case, FindingKind, Level, Outcome, Verdict
from kvv.core import Evidence as Pointer
from kvv.decision import Collector, CountedFindings, DecisionEvidence, SuiteRun, decide
from kvv.profiles.known_faults import known_faults
from kvv.profiles.policy import Policy, Waiver
from kvv.protocol.rules import RULES
from kvv.storage.causes import KIN, find_causes, symptom
from kvv.storage.view import CauseKind, CheckRow, EndpointView, PolicyRef, RunFacts, RunView, explained

TODAY = date(2026, 3, 1)
WRONG = "finish_reason is 'stop', want 'tool_calls' (2 of 2 samples)"


def failed(
    case: str,
    reason: str,
    detail: str,
    *,
    area: Area = Area.TOOLS,
    level: Level = Level.MUST,
    outcome: Outcome = Outcome.FAIL,
) -> tuple[Case, Verdict]:
    suite = case.split("/")[0]
    evidence = (Pointer(exchange=f"{case}#0/0.0.probe"),) if outcome is Outcome.FAIL else ()
    return (
        Case(id=case, suite=suite, area=area, level=level, requirement="r", source="s", since="1", inputs={}),
        Verdict(case=case, sample=0, outcome=outcome, reason=reason, detail=detail, evidence=evidence),
    )


def rule(name: str, message: str, exchanges: int, streamed: int, level: Level = Level.MUST) -> CountedFindings:
    return CountedFindings(
        rule=name,
        area=RULES[name].area,
        level=level,
        kind=FindingKind.BREAKS_CLIENTS,
        count=3 * exchanges,
        exchanges=exchanges,
        streamed=streamed,
        message=message,
        causes=RULES[name].causes,
    )


def view(
    pairs: list[tuple[Case, Verdict]],
    findings: tuple[CountedFindings, ...] = (),
    *,
    trouble: str = "",
    waived: str = "",
) -> RunView:
    waiver = Waiver(case=waived, reason="known", owner="ops", issue="#1", expires=TODAY) if waived else None
    policy = Policy.model_validate({"name": "test"}).model_copy(update={"waiver": (waiver,) if waiver else ()})
    suites = [SuiteRun(id=name, kind=SuiteKind.CONTRACT) for name in dict.fromkeys(case.suite for case, _ in pairs)]
    collector = Collector(policy, suites, TODAY)
    for case, verdict in pairs:
        collector.add(case, verdict)
    decision = decide(collector, DecisionEvidence(stats=[], findings=findings), np.random.default_rng(0))
    made = RunView(
        run=RunFacts(run_id="r", started="", finished="", kvv_version="", seed=0, exit_code=1),
        endpoint=EndpointView(base_url="", model="m", vendor="v"),
        profile="p",
        surface="vendor",
        policy=PolicyRef(name="test", sha256=""),
        suites=tuple(suites),
        decision=decision,
        checks=tuple(CheckRow.under(policy, TODAY, case, verdict) for case, verdict in pairs),
        trouble=trouble,
    )
    return replace(made, causes=find_causes(made))


def test_what_cases_and_a_wire_rule_say_alike_is_one_cause() -> None:
    pairs = [
        failed("tools/fixed/ascii/stream", "finish-reason", WRONG),
        failed("tools/fixed/ascii/whole", "finish-reason", WRONG, level=Level.SHOULD),
        failed(
            "params/max-tokens/whole",
            "finish-reason",
            "finish_reason is 'stop' after 9 tokens of at most 9, want 'length'",
        ),
        failed(
            "tools/auto/stream", "rate-too-low", f"0 of 6 answers; want at least 0.5; sample.1: {WRONG.split(' (')[0]}"
        ),
        failed("tools/other/stream", "finish-reason", "finish_reason is 'length', want 'tool_calls'"),
    ]
    made = view(pairs, (rule("finish/tool-calls", "finish_reason is stop after tool calls", 40, 30),))
    first, other = made.causes
    assert (first.cases, first.answers, first.levels) == (4, 40, ((Level.MUST, 3), (Level.SHOULD, 1)))
    assert first.sentence == (
        "finish_reason is stop (want 'tool_calls' or 'length'): 4 cases, 40 answers, streamed, whole. Known elsewhere:"
        " B25: Gemini OpenAI layer; B26: mlx-vlm server; B24: vLLM before PR 9209."
    )
    assert (other.title, other.cases) == ("finish_reason is length", 1)  # another value is another cause
    assert made.explained == "2 causes explain 5 failed cases (4 must, 1 should)."


def test_a_rule_alone_is_a_cause_and_what_counts_for_nothing_comes_last() -> None:
    made = view(
        [
            failed("tools/a/stream", "no-call", "no tool call", level=Level.MAY),
            failed("tools/b", "", "", outcome=Outcome.PASS),
        ],
        (
            rule("chunk/id", "id is empty (101 times in this answer)", 7, 7),
            rule("stream/done-once", "[DONE] came twice", 900, 900, Level.SHOULD),
        ),
    )
    assert [(c.title, c.counts, c.size, c.modes) for c in made.causes] == [
        ("id is empty", True, "7 answers", ("streamed",)),
        ("[DONE] came twice", False, "900 answers", ("streamed",)),
        ("a required tool call is missing", False, "1 case", ("streamed",)),
    ]
    assert made.explained == "1 cause explains 7 wrong answers."


def test_a_waived_failure_counts_for_nothing_beside_one_that_is_not() -> None:
    pairs = [failed("tools/x/stream", "no-call", "no tool call"), failed("tools/y/stream", "junk", "x")]
    made = view(pairs, waived="tools/x/stream")
    assert [(cause.reason, cause.counts, cause.waived) for cause in made.causes] == [
        ("junk", True, 0),
        ("no-call", False, 1),
    ]


def test_a_dead_endpoint_is_one_cause_whatever_number_of_cases_it_left_open() -> None:
    pairs = [failed(f"tools/c{i}/stream", "not-run", "", outcome=Outcome.INCONCLUSIVE) for i in range(70)]
    pairs.append(failed("tools/odd/stream", "finish-reason-once", WRONG, outcome=Outcome.INCONCLUSIVE))
    made = view(pairs, trouble="the endpoint refuses connections")
    assert [(cause.kind, cause.title, cause.cases) for cause in made.causes] == [
        (CauseKind.ENDPOINT, "the endpoint refuses connections", 70),
        (CauseKind.OPEN, "not decided: finish reason once", 1),
    ]
    assert made.explained == "1 cause explains 70 cases without a result of 71."


@pytest.mark.parametrize(
    ("reason", "detail", "area", "case", "same"),
    [
        (
            "no-call",
            "called None, want 'a' among the calls",
            Area.TOOL_CHOICE,
            "x/y",
            True,
        ),  # wherever a call is missing
        ("wrong-answer", "3 is not in the content '4'", Area.TOOLS, "x/y", False),
        ("rate-too-low", "1 of 4 answers; want at least 0.75; sample.2: no tool call", Area.TOOLS, "x/y", True),
        ("rate-too-low", "1 of 4 answers; want at least 0.75", Area.TOOLS, "x/y", False),
    ],
)
def test_a_symptom_leaves_out_what_varies_from_case_to_case(
    reason: str, detail: str, area: Area, case: str, same: bool
) -> None:
    wanted = symptom("no-call", "no tool call", Area.TOOLS, "tools/fixed")
    assert (symptom(reason, detail, area, case).id == wanted.id) is same


def test_wrong_values_of_two_areas_and_topics_are_two_causes() -> None:
    places = [(Area.DECODING, "params/rejected/t"), (Area.DECODING, "params/other/t"), (Area.ERRORS, "errors/key/t")]
    assert len({symptom("invalid-request-accepted", "", area, case).id for area, case in places}) == 3


def test_every_fault_that_a_rule_names_or_that_was_reported_is_described_by_rules_that_exist() -> None:
    described = known_faults()
    named = {cause for info in RULES.values() for cause in info.causes}
    assert {name for name in named if name in described and not described[name].where} == set()
    assert set(KIN) <= set(RULES)
    assert all(fault.link.startswith("https://") for fault in described.values() if fault.where)


def test_no_cause_explains_nothing() -> None:
    assert explained((), 10) == ""
