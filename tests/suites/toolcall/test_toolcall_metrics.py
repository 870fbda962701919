"""The suite's rows: counts by hand, bounds, K2VV's value, several official runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvv.cases.suite import ReferenceRun
from kvv.core import Area, Case, Level, Outcome, Stat, Verdict
from kvv.stats.f1 import Confusion
from kvv.suites.toolcall.confusion import CallTally, f1_interval, read_samples, tally


def values(triggered: bool, *, called: bool | None = None, valid: bool = True) -> dict[str, float]:
    has = triggered if called is None else called
    return {
        "triggered": float(triggered),
        "called": float(has),
        "calls": float(has),
        "valid_calls": float(has and valid),
        "schema_valid": float(has and valid),
        "schema_valid_k2vv": float(triggered and has and valid),
        "unusable_calls": 0.0,
        "ambiguous_calls": 0.0,
    }


YES, NO, BAD = values(True), values(False), values(True, valid=False)
#: a request the endpoint refused, one it never answered
REFUSED, LOST = "refused", "lost"


def sample(number: int, got: Any, *, sample: int = 0) -> tuple[Case, Verdict]:
    case = Case(
        id=f"toolcall/{number:016x}",
        suite="toolcall",
        area=Area.ACCURACY,
        level=Level.SHOULD,
        requirement="",
        source="",
        since="",
        inputs={},
    )
    outcome = {REFUSED: Outcome.FAIL, LOST: Outcome.INCONCLUSIVE}.get(got) if isinstance(got, str) else None
    if outcome is None:
        outcome = Outcome.FAIL if got["calls"] > got["valid_calls"] else Outcome.PASS
    kept = {} if isinstance(got, str) else got
    return replace(case, sample=sample), Verdict(case=case.id, sample=sample, outcome=outcome, values=kept)


def run(*got: Any) -> list[tuple[Case, Verdict]]:
    return [sample(number, item) for number, item in enumerate(got)]


def reference(*got: Any, name: str = "official") -> ReferenceRun:
    return ReferenceRun(
        name=name, model="m", cases={f"toolcall/{number:016x}": [item] for number, item in enumerate(got)}
    )


def rows(bench: Any, verdicts: Any, *references: ReferenceRun) -> dict[str, Stat]:
    return {
        stat.metric: stat
        for stat in bench.suite.metrics(iter(verdicts), bench.context([bench.row("x")], references=references))
    }


def test_the_confusion_is_counted_by_finish_reason_and_beside_it_by_calls(bench: Any) -> None:
    silent_call = values(False, called=True)
    found = rows(bench, run(YES, YES, NO, NO, silent_call), reference(YES, NO, YES, NO, YES))
    by_reason, by_calls = found["trigger_f1"], found["trigger_f1_calls"]
    assert {key: by_reason.breakdown[key] for key in ("tp", "fp", "fn", "tn")} == {"tp": 1, "fp": 1, "fn": 2, "tn": 1}
    assert by_reason.estimate == pytest.approx(2 / 5)
    assert (by_calls.breakdown["tp"], by_calls.breakdown["fn"]) == (2, 1)
    assert (by_reason.breakdown["precision"], by_reason.breakdown["recall"]) == (
        pytest.approx(1 / 2),
        pytest.approx(1 / 3),
    )
    assert by_reason.breakdown["calls_without_the_finish_reason"] == 1
    assert [stat.metric for stat in found.values() if stat.primary] == ["trigger_f1"]


def test_a_failed_request_stays_planned_and_moves_the_bounds(bench: Any) -> None:
    stat = rows(bench, run(YES, LOST, LOST), reference(YES, YES, NO))["trigger_f1"]
    assert (stat.n_planned, stat.n_concluded, stat.n_inconclusive) == (3, 1, 2)
    assert stat.estimate == stat.kvv_value == 1.0
    assert stat.worst_case == pytest.approx(2 / 4)  # one more FN, one more FP
    assert stat.best_case == 1.0


def test_a_refused_valid_request_is_a_disagreement_which_k2vv_leaves_out(bench: Any) -> None:
    stat = rows(bench, run(YES, REFUSED, REFUSED), reference(YES, YES, NO))["trigger_f1"]
    assert stat.estimate == pytest.approx(2 / 4)
    assert stat.kvv_value == 1.0
    assert (stat.n_concluded, stat.breakdown["refused"]) == (3, 2)


def test_a_sample_the_official_run_lacks_is_inconclusive(bench: Any) -> None:
    stat = rows(bench, run(YES, YES), reference(YES, {}))["trigger_f1"]
    assert (stat.n_concluded, stat.n_inconclusive) == (1, 1)
    assert (stat.worst_case, stat.best_case) == (pytest.approx(2 / 3), 1.0)


def test_without_an_official_run_there_is_no_estimate_and_no_verdict(bench: Any) -> None:
    found = rows(bench, run(YES, LOST))
    for name in ("trigger_f1", "trigger_f1_calls", "schema_accuracy_unconditional"):
        assert (found[name].estimate, found[name].verdict, found[name].worst_case) == (None, None, None)
    assert "reported, not gated" in found["trigger_f1"].comparability["gating"]
    assert (found["trigger_f1"].n_planned, found["trigger_f1"].n_concluded) == (2, 1)
    assert found["schema_accuracy"].estimate == 1.0


def test_schema_accuracy_is_over_triggered_responses(bench: Any) -> None:
    stat = rows(bench, run(YES, BAD, NO, values(True, called=False), LOST))["schema_accuracy"]
    assert (stat.breakdown["valid"], stat.breakdown["triggered"]) == (1, 3)
    assert stat.estimate == pytest.approx(1 / 3)
    assert (stat.n_planned, stat.n_concluded) == (4, 3)
    assert (stat.worst_case, stat.best_case) == (pytest.approx(1 / 4), pytest.approx(2 / 4))


def test_call_accuracy_is_over_calls(bench: Any) -> None:
    two = YES | {"calls": 3.0, "valid_calls": 2.0, "schema_valid": 0.0}
    stat = rows(bench, run(two, YES))["call_schema_accuracy"]
    assert stat.estimate == pytest.approx(3 / 4)


def test_the_unconditional_rate_does_not_profit_from_calling_less(bench: Any) -> None:
    official = reference(YES, YES, YES, NO)
    eager, shy = rows(bench, run(YES, YES, BAD, NO), official), rows(bench, run(YES, NO, NO, NO), official)
    assert shy["schema_accuracy"].estimate == 1.0
    assert eager["schema_accuracy"].estimate == pytest.approx(2 / 3)
    assert eager["schema_accuracy_unconditional"].estimate == pytest.approx(2 / 3)
    assert shy["schema_accuracy_unconditional"].estimate == pytest.approx(1 / 3)
    assert shy["schema_accuracy_unconditional"].n_planned == 3


def test_an_unusable_schema_is_counted_apart(bench: Any) -> None:
    case, verdict = sample(1, YES | {"valid_calls": 0.0, "schema_valid": 0.0, "unusable_calls": 1.0})
    verdict = replace(
        verdict, outcome=Outcome.INCONCLUSIVE, reason="schema-unusable", facts={"failures": {"schema-unusable": 1}}
    )
    found = rows(bench, [sample(0, YES), (case, verdict)], reference(YES, YES))
    assert found["trigger_f1"].n_concluded == 2
    assert (found["schema_accuracy"].n_concluded, found["schema_accuracy"].n_inconclusive) == (1, 1)
    assert (found["call_schema_accuracy"].n_concluded, found["call_schema_accuracy"].n_inconclusive) == (1, 1)
    assert found["schema_accuracy"].breakdown["failures"]["schema-unusable"] == 1
    assert (
        found["schema_accuracy_unconditional"].n_concluded,
        found["schema_accuracy_unconditional"].n_inconclusive,
    ) == (1, 1)


def test_occurrence_is_paired_with_occurrence(bench: Any) -> None:
    verdicts = [sample(0, YES, sample=0), sample(0, NO, sample=1)]
    same = ReferenceRun(name="o", model="m", cases={verdicts[0][0].id: [YES, NO]})
    other = ReferenceRun(name="o", model="m", cases={verdicts[0][0].id: [NO, YES]})
    assert rows(bench, verdicts, same)["trigger_f1"].estimate == 1.0
    assert rows(bench, verdicts, other)["trigger_f1"].estimate == 0.0


def test_more_samples_than_the_official_run_start_over(bench: Any) -> None:
    verdicts = [sample(0, got, sample=number) for number, got in enumerate([YES, NO, YES, NO])]
    official = ReferenceRun(name="o", model="m", cases={verdicts[0][0].id: [YES, NO]})
    assert rows(bench, verdicts, official)["trigger_f1"].estimate == 1.0


def test_several_official_runs_show_where_the_endpoint_falls(bench: Any) -> None:
    runs = [reference(YES, YES, NO, name="a"), reference(YES, NO, NO, name="b"), reference(YES, YES, YES, name="c")]
    stat = rows(bench, run(YES, YES, NO), *runs)["trigger_f1"]
    against = {entry["run"]: entry["f1"] for entry in stat.breakdown["against_each"]}
    assert against == {"1: a": 1.0, "2: b": pytest.approx(2 / 3), "3: c": pytest.approx(4 / 5)}
    pairs = {tuple(pair["runs"]): pair["f1"] for pair in stat.breakdown["official_pairs"]}
    assert pairs == {
        ("1: a", "2: b"): pytest.approx(2 / 3),
        ("1: a", "3: c"): pytest.approx(4 / 5),
        ("2: b", "3: c"): pytest.approx(1 / 2),
    }
    among = stat.breakdown["among_officials"]
    assert among["mean_f1"] == pytest.approx((1 + 2 / 3 + 4 / 5) / 3)
    assert among["official_lowest_f1"] == pytest.approx(1 / 2)
    assert among["official_quantile_1_percent"] <= among["official_lowest_f1"]
    assert 0.5 < among["position"] < 1.0
    assert stat.n_planned == 3


def test_an_endpoint_unlike_all_official_runs_falls_at_the_end_of_their_distribution(bench: Any) -> None:
    one, other = [YES] * 45 + [NO] * 55, [YES] * 43 + [NO] * 57
    runs = reference(*one), reference(*other)
    among = rows(bench, run(*([NO] * 40 + [YES] * 60)), *runs)["trigger_f1"].breakdown["among_officials"]
    assert among["position"] < 0.01
    assert rows(bench, run(*other), *runs)["trigger_f1"].breakdown["among_officials"]["position"] > 0.05


def test_failed_calls_are_listed_with_case_and_class_and_bounded(bench: Any) -> None:
    fact = {"class": "unknown-tool", "tool": "t", "path": "", "keyword": "", "message": "m"}
    verdicts = []
    for number in range(300):
        case, verdict = sample(number, BAD)
        verdicts.append(
            (
                case,
                replace(
                    verdict,
                    facts={"failures": {"unknown-tool": 1}, "failed_calls": [fact], "finish_reason": "tool_calls"},
                ),
            )
        )
    breakdown = rows(bench, verdicts)["schema_accuracy"].breakdown
    assert breakdown["failures"]["unknown-tool"] == 300
    assert breakdown["failures"]["cut-by-length"] == 0
    assert len(breakdown["failed_calls"]) == 200
    assert breakdown["failed_calls"][1] == {"case": "toolcall/0000000000000001", "sample": 0, **fact}


def test_skipped_samples_were_never_planned_and_errors_are_inconclusive(bench: Any) -> None:
    (case, verdict), (_, other) = run(YES, YES)
    verdicts = [
        (case, replace(verdict, outcome=Outcome.SKIP)),
        (case, replace(other, case=case.id, outcome=Outcome.ERROR)),
    ]
    stat = rows(bench, verdicts, reference(YES))["trigger_f1"]
    assert (stat.n_planned, stat.n_concluded) == (1, 0)


def test_nothing_planned_gives_rows_without_estimates(bench: Any) -> None:
    assert all(stat.estimate is None and stat.n_planned == 0 for stat in rows(bench, [], reference(YES)).values())


def test_the_interval_is_reproducible_and_holds_the_estimate(bench: Any) -> None:
    got, official = [YES] * 40 + [NO] * 10 + [YES] * 5, [YES] * 45 + [NO] * 10
    first, second = (rows(bench, run(*got), reference(*official))["trigger_f1"] for _ in range(2))
    assert first.interval == second.interval
    assert first.interval is not None
    assert first.interval[0] < first.estimate < first.interval[1]


def test_dependent_samples_widen_the_interval() -> None:
    apart = [Confusion(tp=1)] * 80 + [Confusion(fp=1)] * 20
    together = [Confusion(tp=10)] * 8 + [Confusion(fp=10)] * 2
    narrow, wide = (f1_interval(cases, np.random.default_rng(1)) for cases in (apart, together))
    assert narrow is not None
    assert wide is not None
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


def test_no_disagreement_is_no_certainty() -> None:
    found = f1_interval([Confusion(tp=1)] * 5, np.random.default_rng(1))
    assert found is not None
    assert found[0] < 0.9
    assert f1_interval([Confusion(tn=1)], np.random.default_rng(1)) is None


GOT = st.sampled_from([YES, NO, BAD, REFUSED, LOST])


@given(st.lists(st.tuples(GOT, st.sampled_from([YES, NO, {}])), max_size=12))
@settings(deadline=None, max_examples=60)
def test_every_completion_of_the_unknown_lies_within_the_bounds(pairs: list[tuple[Any, Any]]) -> None:
    samples = read_samples(run(*[got for got, _ in pairs]))
    found: CallTally = tally(samples, reference(*[official for _, official in pairs]), "triggered")
    assert found.confusion.n + found.positive + found.negative == len(pairs)
    for guess in (YES, NO):
        filled = [(guess if got == LOST else got, official or guess) for got, official in pairs]
        whole = tally(
            read_samples(run(*[got for got, _ in filled])),
            reference(*[official for _, official in filled]),
            "triggered",
        ).confusion.f1
        worst = found.confusion.plus(fn=found.positive, fp=found.negative).f1
        best = found.confusion.plus(tp=found.positive, tn=found.negative).f1
        if whole is not None and worst is not None:
            assert worst - 1e-9 <= whole
        if whole is not None and best is not None:
            assert whole <= best + 1e-9


def beside_officials(bench: Any, got: list[tuple[Case, Verdict]], *runs: list[float | None]) -> dict[str, Stat]:
    references = tuple(
        ReferenceRun(
            name=f"official {k}",
            model="m",
            cases={
                f"toolcall/{number:016x}": [
                    {} if token is None else {"triggered": float(token > 0), "call_digest": token}
                ]
                for number, token in enumerate(tokens)
            },
        )
        for k, tokens in enumerate(runs)
    )
    rows = bench.suite.metrics(got, bench.context([], references=references))
    return {row.metric: row for row in rows}


def test_calls_are_counted_where_official_runs_call_and_where_they_are_the_same(bench: Any) -> None:
    got = run(
        {**YES, "call_digest": 7.0},
        {**YES, "call_digest": 8.0},
        {**NO, "call_digest": 0.0},
        REFUSED,
        LOST,
        {**YES, "call_digest": 7.0},
    )
    rows = beside_officials(bench, got, [7, 7, 7, 7, 7, 0], [7, 7, 0, 7, 7, None])
    recall, match = rows["call_recall"], rows["call_match"]
    # of seven official calls beside answers, four stand where the endpoint called, two of them with the same call
    assert (recall.estimate, match.estimate) == (pytest.approx(4 / 7), pytest.approx(2 / 7))
    assert (recall.n_planned, recall.n_concluded, recall.n_inconclusive) == (5, 4, 1)
    assert recall.breakdown["official_agreement"] == pytest.approx(8 / 9)
    refusals = rows["refusals"]
    assert (refusals.estimate, refusals.n_planned, refusals.n_concluded) == (pytest.approx(1 / 5), 6, 5)


def test_official_runs_recorded_without_calls_give_no_row_of_equal_calls(bench: Any) -> None:
    found = {
        row.metric for row in bench.suite.metrics(run(YES, NO), bench.context([], references=(reference(YES, NO),)))
    }
    assert {"call_recall", "refusals"} <= found
    assert "call_match" not in found
    assert not {"call_recall", "refusals"} & {row.metric for row in bench.suite.metrics(run(YES), bench.context([]))}
