"""A line per contract case on which the sides differ: what one keeps and another breaks first."""

from __future__ import annotations

from typing import Any

from kvv.compare.layers import LISTED, as_data, section, verdict_lines
from kvv.model import Outcome
from kvv.report.document import Document, html, markdown

P, F, OPEN, S, E = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.SKIP, Outcome.ERROR
NAMES = ("engine", "gateway")


def lines(sides: Any, *tables: dict[str, Outcome], **more: Any) -> Any:
    return verdict_lines([sides.side(sides.contract(table, **more), name=f"s{number}") for number, table in enumerate(tables)])


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
    assert (first["case"], first["verdicts"][1]) == ("p/a", {"side": "gateway", "verdict": "fail", "reason": "not-refused"})


def test_benchmarks_have_no_such_line_and_agreement_is_said(sides: Any) -> None:
    assert verdict_lines([sides.side(sides.bench([1, 0])), sides.side(sides.bench([0, 1]), name="b")]) == []
    assert section([], NAMES).notes == ("No contract case has different verdicts.",)


def test_many_lines_are_cut_and_said_and_names_are_harmless(sides: Any) -> None:
    many = {f"p/{number}": P for number in range(LISTED + 7)}
    found = lines(sides, many, dict.fromkeys(many, F))
    shown = section(found, ("<b>one</b>", "two|x"))
    assert (len(shown.tables[0].rows), shown.tables[0].left_out) == (LISTED, 7)
    document = Document(title="t", sections=(shown,))
    assert "<b>one</b>" not in html(document)
    assert "two|x" not in markdown(document).replace("two\\|x", "")
