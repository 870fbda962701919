"""A line per contract case on which the sides differ: what one keeps and another breaks first."""

from __future__ import annotations

from typing import Any

import pytest

from kvv.analysis.findings import contract_groups, list_broken, rule_lines, who_fails
from kvv.analysis.layers import LISTED, as_data, section, verdict_lines
from kvv.core import Area, Gate, Level, Outcome
from kvv.rendering.document import Document, html, markdown
from kvv.storage.run_summary import RuleResult

P, F, OPEN, S, E = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.SKIP, Outcome.ERROR
NAMES = ("engine", "gateway")


def lines(sides: Any, *tables: dict[str, Outcome], **more: Any) -> Any:
    return verdict_lines(
        [sides.side(sides.contract(table, **more), name=f"s{number}") for number, table in enumerate(tables)]
    )


def test_only_cases_that_differ_have_a_line_and_decided_ones_stand_first(sides: Any) -> None:
    found = lines(
        sides,
        {"p/open": OPEN, "p/both": P, "p/broken": F, "p/gateway": P, "p/engine": F, "p/ours": E, "p/none": S},
        {"p/open": P, "p/both": P, "p/broken": F, "p/gateway": F, "p/engine": P, "p/ours": F, "p/none": S},
    )
    assert [(line.case, line.text(NAMES), line.decided) for line in found] == [
        ("p/gateway", "engine ok, gateway broken", True),
        ("p/engine", "engine broken, gateway ok", True),
        ("p/open", "engine open, gateway ok", False),
        ("p/ours", "engine our error, gateway broken", False),
    ]


def test_a_case_that_one_side_has_not_is_not_asked_there(sides: Any) -> None:
    (line,) = lines(sides, {"p/a": P}, {"p/a": P, "p/new": F})
    assert (line.case, line.text(NAMES)) == ("p/new", "engine not asked, gateway broken")
    (line,) = verdict_lines([sides.side(name="empty"), sides.side(sides.contract({"p/a": P}))])
    assert line.text(NAMES) == "engine not asked, gateway ok"


def test_the_reason_is_that_of_the_verdict_and_ways_are_counted(sides: Any) -> None:
    found = lines(sides, {"p/a": P, "p/b": P, "p/c": F}, {"p/a": F, "p/b": F, "p/c": P}, reason="not-refused")
    shown = section(found, NAMES)
    assert shown.notes == ("engine ok, gateway broken: 2 cases", "engine broken, gateway ok: 1 case")
    assert shown.tables[0].rows[0][-1] == "gateway: not-refused"
    first = as_data(found, NAMES)[0]
    assert (first["case"], first["verdicts"][1]) == (
        "p/a",
        {"side": "gateway", "verdict": "fail", "reason": "not-refused"},
    )


def test_benchmarks_have_no_such_line_and_agreement_is_said(sides: Any) -> None:
    assert verdict_lines([sides.side(sides.bench([1, 0])), sides.side(sides.bench([0, 1]), name="b")]) == []
    assert section([], NAMES).notes == ("No contract case and no passive rule has different verdicts.",)


def test_many_lines_are_cut_and_said_and_names_are_harmless(sides: Any) -> None:
    many = {f"p/{number}": P for number in range(LISTED + 7)}
    found = lines(sides, many, dict.fromkeys(many, F))
    shown = section(found, ("<b>one</b>", "two|x"))
    assert (len(shown.tables[0].rows), shown.tables[0].left_out) == (LISTED, 7)
    document = Document(title="t", sections=(shown,))
    assert "<b>one</b>" not in html(document)
    assert "two|x" not in markdown(document).replace("two\\|x", "")


# --- what passive rules found ------------------------------------------------------------------------


def objected(
    rule: str = "tools/index-reused",
    level: Level = Level.MUST,
    *,
    answers: int = 17,
    case: str = "p/a",
    breaks: bool = True,
) -> RuleResult:
    return RuleResult(
        rule=rule,
        area=Area.TOOLS,
        level=level,
        count=answers,
        exchanges=answers,
        message="twice",
        cases=(case,),
        breaks=breaks,
    )


def gate(outcome: Outcome, area: Area = Area.TOOLS) -> Gate:
    return Gate(id=f"contract/{area.value}", area=area, level=Level.MUST, decision=outcome)


@pytest.mark.parametrize(
    ("answered", "recorded", "text"),
    [
        ({"p/a": P}, (), "engine ok, gateway broken"),
        ({"p/a": F}, (), "engine ok, gateway broken"),  # wrong, but answered
        ({"p/a": OPEN, "p/b": P}, (), "engine open, gateway broken"),  # never answered the question that shows it
        ({"p/b": P}, (), "engine not asked, gateway broken"),
        ({"p/a": P}, None, "engine open, gateway broken"),  # a baseline from before findings were kept
    ],
)
def test_a_side_keeps_a_rule_only_where_it_answered_what_broke_it_elsewhere(
    sides: Any, answered: Any, recorded: Any, text: str
) -> None:
    engine = sides.side(sides.contract(answered), findings=recorded)
    gateway = sides.side(sides.contract({"p/a": P, "p/b": P}), name="b", findings=(objected(),))
    line = next(line for line in verdict_lines([engine, gateway]) if line.kind == "rule")
    assert (line.case, line.level, line.text(NAMES), line.why(NAMES)) == (
        "tools/index-reused",
        Level.MUST,
        text,
        "gateway: 17 in 17 answers",
    )


def test_what_only_a_probe_of_ours_showed_any_answer_shows(sides: Any) -> None:
    gateway = sides.side(sides.contract({"p/a": P}), name="b", findings=(objected(case="kvv/reachability"),))
    for outcome, expected in ((P, P), (OPEN, OPEN)):
        (line,) = rule_lines([sides.side(sides.contract({"p/a": outcome}), findings=()), gateway])
        assert line.outcomes == (expected, F)


def test_rules_that_all_break_or_that_may_be_broken_make_no_line(sides: Any) -> None:
    table = sides.contract({"p/a": P})
    both = [sides.side(table, name=name, findings=(objected(),)) for name in "ab"]
    assert verdict_lines(both) == []
    assert [line.differs for line in rule_lines(both)] == [False]
    may = objected("texts/loop", Level.MAY, breaks=False)
    assert verdict_lines([sides.side(table, findings=()), sides.side(table, name="b", findings=(may,))]) == []
    should = objected("texts/loop", Level.SHOULD, breaks=False)
    assert len(verdict_lines([sides.side(table, findings=()), sides.side(table, name="b", findings=(should,))])) == 1


def test_who_breaks_what_is_said_by_the_gates_that_fail(sides: Any) -> None:
    found = (
        objected("tools/name", answers=1),
        objected(),
        objected("texts/loop", Level.SHOULD, answers=40, breaks=False),
    )
    fails = sides.side(findings=found, gates=(gate(F), gate(P, Area.DECODING)), contract="fail")
    waived = sides.side(name="b", findings=found, gates=(gate(S),), contract="skip")
    slow = sides.side(
        name="c",
        gates=(gate(P), Gate(id="latency/ttft", area=Area.LATENCY, level=Level.MUST, decision=F)),
        contract="pass",
    )
    assert list_broken(fails) == ["tools/index-reused (17 answers)", "tools/name (1 answer)"]
    assert who_fails([fails, waived, slow], ["gamma", "beta", "alpha"]) == [
        "gamma breaks tools/index-reused (17 answers), tools/name (1 answer)",
        "alpha fails latency/ttft",
    ]
    assert contract_groups([fails, waived, slow]) == [("keeps", (2,)), ("undecided", (1,)), ("breaks", (0,))]
    assert contract_groups([waived, waived]) == []
