"""How a run against a faulty endpoint is judged, and the form of the table; nothing is sent here."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kvv.core import Area, Case, Level, Outcome, Verdict
from kvv.mockserver.faults import FAULTS, NOT_SHOWABLE
from kvv.selftest import Matrix, MatrixRow, State, TableError, load_table
from kvv.selftest.drive import Observed
from kvv.selftest.matrix import clean_row, judge
from kvv.selftest.table import FaultSpec, StatisticalFault, parse_table

HOME = (Area.TOOLS, Area.TOOL_CHOICE)
CLEAN = Observed()


def case(name: str, area: Area, level: Level = Level.MUST, sample: int = 0) -> Case:
    return Case(
        id=name, suite="tools", area=area, level=level, requirement="r", source="s", since="0", inputs={}, sample=sample
    )


def observed(
    *failed: tuple[str, Area, Level], rules: tuple[tuple[str, Area, Level], ...] = (), **more: Any
) -> Observed:
    verdicts = {
        name: (case(name, area, level), Verdict(case=name, sample=0, outcome=Outcome.FAIL))
        for name, area, level in failed
    }
    return Observed(verdicts=verdicts, findings=Counter(rules), **more)


def state(
    seen: Observed, spec: FaultSpec | None = None, clean: Observed = CLEAN, gate: StatisticalFault | None = None
) -> State:
    return judge("X01", spec or FaultSpec(), HOME, seen, clean, gate=gate).state


MUST, SHOULD, MAY = Level.MUST, Level.SHOULD, Level.MAY


def test_a_must_case_or_a_must_rule_of_its_areas_sees_a_fault_and_nothing_less_does() -> None:
    assert state(observed(("tools/a", Area.TOOLS, MUST))) is State.SEEN
    assert state(observed(rules=(("tools/index", Area.TOOL_CHOICE, MUST),))) is State.SEEN
    assert state(observed(("tools/a", Area.TOOLS, SHOULD))) is State.UNSEEN
    assert state(observed(rules=(("tools/index", Area.TOOLS, SHOULD),))) is State.UNSEEN
    assert state(observed()) is State.UNSEEN


def test_an_advisory_fault_is_seen_by_should_but_never_by_may() -> None:
    advisory = FaultSpec(advisory="legal and slow")
    assert state(observed(("tools/a", Area.TOOLS, SHOULD)), advisory) is State.SEEN
    assert state(observed(("tools/a", Area.TOOLS, MAY)), advisory) is State.UNSEEN


def test_a_failed_case_or_a_must_rule_of_another_area_is_elsewhere_unless_stated() -> None:
    home = ("tools/a", Area.TOOLS, MUST)
    assert state(observed(home, ("usage/a", Area.USAGE, SHOULD))) is State.ELSEWHERE
    assert state(observed(home, rules=(("usage/total", Area.USAGE, MUST),))) is State.ELSEWHERE
    assert state(observed(home, rules=(("usage/details", Area.USAGE, SHOULD),))) is State.SEEN
    assert state(observed(home, ("usage/a", Area.USAGE, MUST)), FaultSpec(also={Area.USAGE: "why"})) is State.SEEN


def test_what_the_clean_endpoint_shows_too_sees_nothing() -> None:
    both = observed(("tools/a", Area.TOOLS, MUST), rules=(("tools/index", Area.TOOLS, MUST),))
    assert state(both, clean=both) is State.UNSEEN


def test_an_error_of_ours_is_never_a_sight() -> None:
    broken = observed(("tools/a", Area.TOOLS, MUST))
    broken.verdicts["tools/b"] = (case("tools/b", Area.TOOLS), Verdict(case="tools/b", sample=0, outcome=Outcome.ERROR))
    assert state(broken) is State.ERROR


def test_an_engine_that_dies_must_be_said_to_have_died() -> None:
    dies = FaultSpec(dies=True)
    assert state(observed(died="the endpoint stopped answering"), dies) is State.SEEN
    assert state(observed(("tools/a", Area.TOOLS, MUST)), dies) is State.UNSEEN


def test_a_stated_gap_holds_until_it_is_closed() -> None:
    gap = FaultSpec(gap="a rule")
    assert state(observed(), gap) is State.GAP
    assert state(observed(("usage/a", Area.USAGE, MUST)), gap) is State.GAP
    assert state(observed(("tools/a", Area.TOOLS, MUST)), gap) is State.CLOSED


def test_what_no_profile_forbids_must_not_be_accused() -> None:
    legal = FaultSpec(legal="the standard allows it")
    assert state(observed(), legal) is State.LEGAL
    assert (
        state(observed(("tools/a", Area.TOOLS, SHOULD), rules=(("tools/index", Area.TOOLS, SHOULD),)), legal)
        is State.LEGAL
    )
    assert state(observed(("tools/a", Area.TOOLS, MUST)), legal) is State.ELSEWHERE
    assert state(observed(rules=(("usage/total", Area.USAGE, MUST),)), legal) is State.ELSEWHERE


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (State.SEEN, True),
        (State.GAP, True),
        (State.LEGAL, True),
        (State.UNSEEN, False),
        (State.CLOSED, False),
        (State.ELSEWHERE, False),
        (State.ERROR, False),
    ],
)
def test_the_matrix_holds_while_each_gap_is_a_stated_one(found: State, holds: bool) -> None:
    row = MatrixRow(fault="X01", state=found, areas=HOME)
    assert Matrix(clean=(), rows=[row]).holds is holds


@pytest.mark.parametrize(("bad", "expected"), [(1, State.UNSEEN), (2, State.SEEN)])
def test_a_gate_counts_samples_that_did_not_pass(bad: int, expected: State) -> None:
    gate = StatisticalFault.model_validate({"case": "tools/*", "n": 24, "at-least": 2, "p": 0.3})
    repeats = [
        (case("tools/a", Area.TOOLS, sample=n), Verdict(case="tools/a", sample=n, outcome=Outcome.INCONCLUSIVE))
        for n in range(1, bad + 1)
    ]
    row = judge("X01", FaultSpec(), HOME, Observed(repeats=repeats), CLEAN, gate=gate)
    assert row.state is expected
    assert row.gate is not None
    assert row.gate.power == pytest.approx(1 - 0.7**24 - 24 * 0.3 * 0.7**23)


def test_a_clean_endpoint_has_only_the_problems_that_are_stated() -> None:
    dirty = observed(
        ("tools/a", Area.TOOLS, SHOULD), rules=(("tools/index", Area.TOOLS, SHOULD), ("usage/headers", Area.USAGE, MAY))
    )
    assert len(clean_row("kimi", dirty, {}, []).problems) == 2
    assert clean_row("kimi", dirty, {"tools/*": "why"}, ["tools/a", "tools/index"]).problems == []
    spoiled = Observed(
        repeats=[(case("tools/a", Area.TOOLS, sample=1), Verdict(case="tools/a", sample=1, outcome=Outcome.FAIL))]
    )
    assert len(clean_row("kimi", spoiled, {}, []).problems) == 1


# --- the table ---------------------------------------------------------------------------------------


def test_the_table_gives_every_fault_at_most_two_areas_and_at_least_fifteen_general_cases() -> None:
    table = load_table()
    assert set(table.group) == set("abcdefghijk")
    assert all(1 <= len(table.areas(name)) <= 2 for name in FAULTS)
    assert len(table.general) >= 15
    assert not FAULTS.keys() & NOT_SHOWABLE.keys()


def test_every_statistical_gate_is_nearly_sure_to_see_its_fault() -> None:
    table = load_table()
    gates = {name: spec.gate for name, spec in table.fault.items() if spec.gate}
    assert set(gates) >= {"G04", "G06", "J08", "I12"}
    powers = {name: judge(name, FaultSpec(), HOME, Observed(), CLEAN, gate=gate).gate for name, gate in gates.items()}
    assert all(gated is not None and gated.power > 0.99 for gated in powers.values())


def test_the_variations_are_exercised() -> None:
    flags = {flag for entry in load_table().variation for flag in entry.selected.partition(":")[2].split("+")}
    assert flags == {"stream", "nonstream", "1in4", "tools", "turn2"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fault": {"Z99": {}}}, "no fault 'Z99'"),
        ({"fault": {"A01": {"setting": "mars"}}}, "no setting 'mars'"),
        ({"fault": {"A01": {"areas": ["tools", "usage", "vision"]}}}, "at most 2"),
        ({"fault": {"A01": {"colour": "red"}}}, "Extra inputs"),
        ({"group": {}}, "no areas for the group 'a'"),
        ({"variation": [{"as": "Z99:stream"}]}, "no fault 'Z99'"),
    ],
)
def test_a_table_that_does_not_fit_the_catalogue_is_refused_in_one_line(change: dict[str, Any], words: str) -> None:
    raw = {**load_table().model_dump(by_alias=True), **change}
    with pytest.raises(TableError, match=words) as caught:
        parse_table(raw)
    assert "\n" not in str(caught.value)
