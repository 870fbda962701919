"""What `--confirm-now` asks again: the alarmed benchmarks whole, of the contract the failed cases and those on which a
rule was broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvv.cli.verbs.confirm import Again, what_alarmed
from kvv.core import Area, FindingKind, Gate, Level, Outcome
from kvv.decision import CountedFindings, Decision
from kvv.storage.store import Store


def stored(**cases_of_rules: list[str]) -> Store:
    """A store that knows on which cases a rule was broken."""

    class Stored:
        def meta(self) -> dict[str, Any]:
            return {
                "suites": [
                    {"id": "params", "kind": "gate"},
                    {"id": "streaming", "kind": "contract"},
                    {"id": "bench", "kind": "benchmark"},
                ]
            }

        def exchanges(self, *, rule: str) -> Iterator[Any]:
            for case in cases_of_rules.get(rule.replace("/", "_"), []):
                yield SimpleNamespace(exchange=SimpleNamespace(identity=SimpleNamespace(case=case)))

    return cast("Store", Stored())


def decided(*gates: tuple[str, Area, Outcome], rules: tuple[tuple[str, Level], ...] = ()) -> Decision:
    found = tuple(
        CountedFindings(
            rule=rule,
            area=Area.STREAMING,
            level=level,
            kind=FindingKind.BREAKS_CLIENTS,
            count=1,
            exchanges=1,
            message="",
        )
        for rule, level in rules
    )
    made = tuple(Gate(id=name, area=area, level=Level.MUST, decision=decision) for name, area, decision in gates)
    return Decision(
        outcome=Outcome.FAIL,
        contract=Outcome.FAIL,
        quality=Outcome.FAIL,
        gates=made,
        stats=(),
        areas={},
        findings=found,
        coverage="",
        headline="",
        why=(),
        waivers=(),
    )


@pytest.fixture
def run(sides: Any) -> Any:
    failing = {f"params/p{i}": Outcome.FAIL if i < 2 else Outcome.PASS for i in range(9)}
    streaming = {f"streaming/s{i}": Outcome.PASS for i in range(3)}
    return sides.side(
        sides.contract(failing),
        sides.contract(streaming, suite="streaming"),
        sides.bench([1, 0, 1]),
        sides.bench([1], suite="other"),
    )


DECODING, BENCH = ("contract/decoding", Area.DECODING, Outcome.FAIL), ("bench/accuracy", Area.ACCURACY, Outcome.FAIL)
STREAMING = ("contract/streaming", Area.STREAMING, Outcome.FAIL)


@pytest.mark.parametrize(
    ("decision", "broken", "again"),
    [
        (decided(BENCH), {}, Again(suites=("bench",), cases=())),
        (decided(DECODING), {}, Again(suites=("params",), cases=("params/p0", "params/p1"))),
        (decided(DECODING, BENCH), {}, Again(suites=("params", "bench"), cases=("params/p0", "params/p1", "bench/*"))),
        (decided(("bench/accuracy", Area.ACCURACY, Outcome.INCONCLUSIVE)), {}, Again(suites=(), cases=())),
        (
            decided(STREAMING, rules=(("stream/done", Level.MUST), ("stream/odd", Level.SHOULD))),
            {"stream_done": ["bench/q1", "streaming/s1", "streaming/s1"], "stream_odd": ["streaming/s2"]},
            Again(suites=("streaming",), cases=("streaming/s1",)),
        ),
        # a rule that only a benchmark's answers break
        (
            decided(STREAMING, rules=(("stream/done", Level.MUST),)),
            {"stream_done": ["bench/q1"]},
            Again(suites=("bench",), cases=()),
        ),
        (
            decided(("service/ttft", Area.LATENCY, Outcome.FAIL)),
            {},
            Again(suites=("params", "streaming", "bench", "other"), cases=()),
        ),
    ],
)
def test_what_alarmed_is_asked_again_and_nothing_else(
    run: Any, decision: Decision, broken: dict[str, list[str]], again: Again
) -> None:
    assert what_alarmed(stored(**broken), run, decision, ()) == again


def test_a_suite_in_which_much_failed_is_asked_whole_and_so_is_one_that_drifts(sides: Any) -> None:
    side = sides.side(sides.contract({f"params/p{i}": Outcome.FAIL for i in range(30)}), sides.bench([1, 0]))
    assert what_alarmed(stored(), side, decided(DECODING), ()) == Again(suites=("params",), cases=())
    assert what_alarmed(stored(), side, decided(), ("bench",)) == Again(suites=("bench",), cases=())
