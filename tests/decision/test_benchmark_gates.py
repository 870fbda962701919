"""One benchmark row: PASS, FAIL, INCONCLUSIVE and DEGRADED against each kind of reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvv.cases.suite import REFUSED, ReferenceRun, SuiteKind
from kvv.core import Area, Outcome, ReferenceValue, Stat
from kvv.decision import InterimAnalysis, SuiteRun
from kvv.stats import equal_looks, obrien_fleming
from kvv.stats.constrained import mean_interval, mean_z
from kvv.stats.metrics import rate_stat

P, F, I, S, E = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.SKIP, Outcome.ERROR  # noqa: E741


def policy(**entry: Any) -> dict[str, Any]:
    return {"benchmark": [{"suite": "bench", "key": "score", "margin": 0.03, **entry}]}


def table(both: int, gained: int, lost: int, neither: int) -> tuple[list[float], list[float]]:
    """Vendor's and reference's scores of a paired table."""
    vendor = [1.0] * both + [1.0] * gained + [0.0] * lost + [0.0] * neither
    reference = [1.0] * both + [0.0] * gained + [1.0] * lost + [0.0] * neither
    return vendor, reference


def paired(bench: Any, vendor: list[float | None], reference: list[float], **entry: Any) -> Any:
    return bench.decide(bench.answers(vendor), policy(**entry), references={"bench": [bench.reference(reference)]})


def test_a_vendor_no_worse_passes_by_the_exact_sum(bench: Any) -> None:
    decision = paired(bench, *table(860, 25, 27, 88))
    gate, row = decision.gates[0], decision.stats[0]
    low = mean_interval([1.0] * 25 + [-1.0] * 27 + [0.0] * 948, 0.9).low
    assert (gate.decision, gate.degraded, decision.outcome) == (P, False, P)
    assert gate.method == "paired difference, exact sum, 25 gained, 27 lost"
    assert f"90 % interval {100 * low:+.2f} points" in gate.reason
    assert (row.verdict, row.margin, row.reference) == (
        P,
        0.03,
        ReferenceValue(value=0.887, n=1000, kind="per-case", source="official 1"),
    )
    assert decision.headline == "PASS, 1 of 1 suite; quality pass"


def test_a_shown_loss_beyond_the_margin_fails(bench: Any) -> None:
    decision = paired(bench, *table(800, 10, 80, 110))
    assert (decision.outcome, decision.gates[0].reason.split(":")[0]) == (F, "worse-than-reference")


def test_a_shown_loss_within_the_margin_passes_degraded(bench: Any) -> None:
    decision = paired(bench, *table(880, 1, 14, 105))
    assert (decision.outcome, decision.gates[0].degraded) == (P, True)
    assert "(degraded)" in decision.headline


def test_a_small_run_cannot_tell_and_says_how_many_more_samples_would(bench: Any) -> None:
    decision = paired(bench, *table(120, 6, 6, 8))
    gate = decision.gates[0]
    assert (gate.decision, gate.reason.split(":")[0]) == (I, "cannot-tell")
    assert "more cases (or as many repeats) would settle it" in gate.reason


def test_a_lucky_run_of_few_questions_passes_nothing(bench: Any) -> None:
    """Six gained of 20: the test alone would pass it."""
    vendor, reference = [1.0] * 20, [0.0] * 6 + [1.0] * 14
    assert mean_interval([v - r for v, r in zip(vendor, reference, strict=True)], 0.9).low > -0.1
    assert paired(bench, vendor, reference, margin=0.1).gates[0].decision is S


@pytest.mark.parametrize(
    ("n", "lost", "outcome", "code"),
    [
        (28, 0, S, "not-gated"),
        (28, 2, S, "not-gated"),
        (28, 3, I, "cannot-tell"),  # more than the margin is lost: that stands in the way of a pass
        (28, 9, F, "worse-than-reference"),
        (29, 0, P, "no-worse"),
        (29, 2, I, "cannot-tell"),
    ],
)
def test_where_not_even_no_loss_passes_there_is_no_gate(
    bench: Any, n: int, lost: int, outcome: Outcome, code: str
) -> None:
    """A margin of 10 points: .9 to the 28th is over .05, to the 29th below."""
    verdicts = [*bench.answers([0.0] * lost + [1.0] * (n - lost)), bench.case("params/a", "params")]
    decision = bench.decide(verdicts, policy(margin=0.1), references={"bench": [bench.reference([1.0] * n)]})
    gate = next(gate for gate in decision.gates if gate.id == "bench/accuracy")
    assert (gate.decision, gate.reason.split(":")[0]) == (outcome, code)
    if outcome is S:
        assert "quality NOT DECIDED" in decision.headline
        assert "28 questions cannot decide quality, 29 would do" in decision.headline
        wants = {**policy(margin=0.1), "required": {"quality": True}}
        assert bench.decide(verdicts, wants, references={"bench": [bench.reference([1.0] * n)]}).outcome is I


def test_the_margin_itself_is_not_enough(bench: Any) -> None:
    """An estimate exactly at -margin is undecidable, and no number of samples is promised."""
    decision = paired(bench, *table(900, 0, 30, 70))
    assert "no number of samples" in decision.gates[0].reason


def test_a_pass_must_survive_counting_the_open_samples_as_wrong(bench: Any) -> None:
    vendor, reference = table(900, 10, 10, 80)
    assert paired(bench, vendor, reference).outcome is P
    holes: list[float | None] = [None if 100 <= i < 140 else v for i, v in enumerate(vendor)]
    decision = paired(bench, holes, reference)
    assert (decision.outcome, decision.stats[0].n_inconclusive) == (I, 40)


def test_a_fail_must_survive_counting_the_open_samples_as_right(bench: Any) -> None:
    vendor, reference = table(850, 0, 70, 80)
    assert paired(bench, vendor, reference).outcome is F
    holes: list[float | None] = [None if 850 <= i < 900 else v for i, v in enumerate(vendor)]
    assert paired(bench, holes, reference).outcome is I


def test_a_refused_request_counts_as_wrong_on_its_case(bench: Any) -> None:
    answers = bench.answers([1.0] * 200)
    refused = [bench.case("bench/q0", "bench", area=Area.ACCURACY, outcome=F, reason="valid-request-refused")]
    decision = bench.decide([*refused, *answers[1:]], policy(), references={"bench": [bench.reference([1.0] * 200)]})
    assert decision.gates[0].method == "paired difference, exact sum, 0 gained, 1 lost"


def test_repeats_are_compared_by_their_per_question_means(bench: Any) -> None:
    rng = np.random.default_rng(3)
    ability = np.clip(rng.beta(5, 0.6, 30), 0, 1)
    vendor = [float(rng.random() < p) for p in ability for _ in range(32)]
    reference = {f"bench/q{i}": [float(rng.random() < p) for _ in range(32)] for i, p in enumerate(ability)}
    decision = bench.decide(
        bench.answers(vendor, samples=32), policy(margin=0.05), references={"bench": [bench.reference(reference)]}
    )
    assert decision.gates[0].method.startswith("paired difference, t and BCa")
    assert decision.outcome is P
    assert decision.stats[0].reference.n == 960


def test_a_loss_hidden_in_repeats_is_found(bench: Any) -> None:
    rng = np.random.default_rng(4)
    ability = np.clip(rng.beta(5, 0.6, 30), 0, 1)
    vendor = [float(rng.random() < p - 0.2) for p in ability for _ in range(32)]
    reference = {f"bench/q{i}": [float(rng.random() < p) for _ in range(32)] for i, p in enumerate(ability)}
    assert (
        bench.decide(
            bench.answers(vendor, samples=32), policy(margin=0.05), references={"bench": [bench.reference(reference)]}
        ).outcome
        is F
    )


def test_several_official_runs_are_one_k_of_n_reference(bench: Any) -> None:
    references = [bench.reference([1.0, 0.0] * 100, name=f"official {i}") for i in range(3)]
    decision = bench.decide(bench.answers([1.0, 0.0] * 100), policy(), references={"bench": references})
    row = decision.stats[0].reference
    assert (row.n, row.value, row.source) == (600, 0.5, "official 0, official 1, official 2")
    assert decision.gates[0].method.startswith("paired difference")


@pytest.mark.parametrize(("clustered", "expected"), [(True, I), (False, P)])
def test_cases_of_one_conversation_are_one_cluster(bench: Any, clustered: bool, expected: Outcome) -> None:
    """Sixty shifts of six conversations are six draws: t with 5 degrees of freedom reaches beyond 10 points, with 59 it
    does not.
    """
    verdicts = []
    for number, shift in enumerate((0.2, -0.2, 0.15, -0.15, 0.1, -0.1)):
        for q in range(10):
            cluster = f"c{number}" if clustered else ""
            verdicts.append(
                bench.case(
                    f"bench/c{number}-{q}",
                    "bench",
                    area=Area.LONG_CONTEXT,
                    values={"score": 0.5 + shift},
                    cluster=cluster,
                )
            )
    reference = bench.reference({case.id: [0.5] for case, _ in verdicts})
    decision = bench.decide(verdicts, policy(margin=0.1), references={"bench": [reference]})
    assert decision.gates[0].decision is expected
    assert decision.areas["long-context"] is expected


def test_a_reference_that_knows_too_few_of_the_cases_is_not_used(bench: Any) -> None:
    decision = bench.decide(bench.answers([1.0] * 100), policy(), references={"bench": [bench.reference([1.0] * 60)]})
    assert decision.gates[0].reason == "reference-too-small: it knows 60 of 100 cases"


def test_without_a_reference_a_benchmark_is_reported_not_gated(bench: Any) -> None:
    verdicts = [*bench.answers([1.0, 0.0]), bench.case("params/a", "params")]
    decision = bench.decide(verdicts, policy())
    gate = next(g for g in decision.gates if g.id == "bench/accuracy")
    assert (gate.decision, decision.outcome, decision.quality, decision.contract) == (S, P, S, P)
    assert decision.headline.split("; ") == [
        "PASS, 2 of 2 suites",
        "contract pass",
        "quality NOT DECIDED, only reported: bench (no reference, gate with --reference FILE)",
    ]


def test_a_policy_can_require_that_a_suite_is_gated(bench: Any) -> None:
    verdicts = [*bench.answers([1.0, 0.0]), bench.case("params/a", "params")]
    decision = bench.decide(verdicts, {**policy(), "required": {"gated": ["bench"]}})
    assert (decision.outcome, decision.why) == (
        I,
        ("required-gate-missing: bench was only reported (no reference, gate with --reference FILE)",),
    )


def test_a_policy_that_asks_for_quality_wants_every_benchmark_decided_and_one_at_least(bench: Any) -> None:
    wants = {**policy(), "required": {"quality": True}}
    contract = bench.case("params/a", "params")
    answers = bench.answers([1.0, 0.0] * 200)
    unreferenced = bench.decide([*answers, contract], wants)
    assert (unreferenced.outcome, unreferenced.why[0][:28]) == (I, "required-gate-missing: bench")
    assert bench.decide([contract], wants).why == ("required-quality-missing: no benchmark ran",)
    assert (
        bench.decide([*answers, contract], wants, references={"bench": [bench.reference([1.0, 0.0] * 200)]}).outcome
        is P
    )


def test_a_policy_without_required_quality_passes_on_the_contract_alone_and_says_so_loudly(bench: Any) -> None:
    decision = bench.decide([*bench.answers([1.0, 0.0]), bench.case("params/a", "params")], policy())
    assert decision.outcome is P
    assert "quality NOT DECIDED" in decision.headline


def test_a_published_mean_shows_a_loss(bench: Any) -> None:
    published = {"bench": ReferenceValue(value=0.9, n=1000, kind="published-mean", source="leaderboard")}
    decision = bench.decide(bench.answers([1.0] * 400 + [0.0] * 100), policy(), published=published)
    assert (decision.outcome, decision.gates[0].reason.split(":")[0]) == (F, "loss-shown")
    assert decision.stats[0].reference == published["bench"]


def test_a_published_mean_never_proves_parity(bench: Any) -> None:
    published = {"bench": ReferenceValue(value=0.9, n=100_000, kind="published-mean", source="leaderboard")}
    verdicts = [*bench.answers([1.0] * 4990 + [0.0] * 10), bench.case("params/a", "params")]
    decision = bench.decide(verdicts, policy(), published=published)
    gate = next(g for g in decision.gates if g.id == "bench/accuracy")
    assert (gate.decision, gate.reason.split(":")[0]) == (S, "not-gated")


def test_a_published_loss_must_survive_counting_the_open_as_right(bench: Any) -> None:
    published = {"bench": ReferenceValue(value=0.9, n=1000, kind="published-mean", source="leaderboard")}
    decision = bench.decide(bench.answers([1.0] * 400 + [0.0] * 60 + [None] * 40), policy(), published=published)
    assert decision.gates[0].decision is S


@pytest.mark.parametrize(("count", "expected"), [(3, P), (2, F), (4, F)])
def test_fixtures_are_gated_by_equality_with_our_servers_own_count(bench: Any, count: int, expected: Outcome) -> None:
    decision = bench.decide(bench.answers([1.0, 1.0, 1.0, 0.0]), server_counts={"bench": count})
    assert (decision.outcome, decision.stats[0].reference.kind) == (expected, "server-count")


def test_a_server_count_needs_every_sample(bench: Any) -> None:
    assert bench.decide(bench.answers([1.0, 1.0, None]), server_counts={"bench": 2}).outcome is I


def test_two_upstreams_behind_one_name_decide_nothing(bench: Any) -> None:
    vendor, reference = table(900, 10, 10, 80)
    decision = bench.decide(
        bench.answers(vendor), policy(), references={"bench": [bench.reference(reference)]}, mixed={"bench": "A 5, B 7"}
    )
    assert (decision.gates[0].decision, decision.gates[0].reason) == (I, "mixed-upstream: A 5, B 7")


def test_an_error_of_ours_stands_in_the_way_of_a_pass_but_not_of_a_fail(bench: Any) -> None:
    vendor, reference = table(900, 10, 10, 80)
    broken = bench.case("bench/q0", "bench", area=Area.ACCURACY, outcome=E)
    decision = bench.decide(
        [broken, *bench.answers(vendor)[1:]], policy(), references={"bench": [bench.reference(reference)]}
    )
    assert decision.outcome is E
    vendor, reference = table(700, 0, 200, 100)
    decision = bench.decide(
        [broken, *bench.answers(vendor)[1:]], policy(), references={"bench": [bench.reference(reference)]}
    )
    assert decision.outcome is F


def test_nothing_concluded_is_inconclusive(bench: Any) -> None:
    decision = bench.decide(bench.answers([None, None]), policy(), references={"bench": [bench.reference([1.0, 1.0])]})
    assert decision.gates[0].reason == "nothing-concluded: none of 2 samples was answered"


def test_a_regression_gate_passes_when_no_loss_is_shown_and_it_would_have_been_seen(bench: Any) -> None:
    entry = {"mode": "regression", "margin": 0.0, "detect": 0.03}
    decision = paired(bench, *table(880, 12, 12, 96), **entry)
    assert (decision.outcome, decision.gates[0].reason.split(":")[0]) == (P, "no-loss-shown")
    small = paired(bench, *table(85, 4, 4, 7), **entry)
    assert (small.outcome, small.gates[0].reason.split(":")[0]) == (I, "too-small-to-see")
    worse = paired(bench, *table(880, 5, 25, 90), **entry)
    assert worse.outcome is F


def test_a_key_that_no_verdict_has_is_said(bench: Any) -> None:
    decision = bench.decide(bench.answers([1.0]), policy(key="points"), references={"bench": [bench.reference([1.0])]})
    assert decision.gates[0].reason.startswith("no-such-value")


@pytest.mark.parametrize(
    ("keys", "used"),
    [
        (("accuracy", "correct"), "accuracy"),
        (("correct", "strict"), "correct"),
        (("odd",), "odd"),
        (("even", "odd"), None),
    ],
)
def test_without_a_key_the_metrics_name_or_a_usual_one_is_compared(
    bench: Any, keys: tuple[str, ...], used: str | None
) -> None:
    values = dict.fromkeys(keys, 0.0) | ({used: 1.0} if used else {})
    verdicts = [bench.case(f"bench/q{i}", "bench", area=Area.ACCURACY, values=values) for i in range(200)]
    stat = rate_stat("bench", "accuracy", successes=200, concluded=200, primary=True)
    reference = ReferenceRun(name="o", model="m", cases={case.id: [values] for case, _ in verdicts})
    rules = {"benchmark": [{"suite": "bench", "margin": 0.03}]}
    decision = bench.decide(verdicts, rules, metrics=False, stats=[stat], references={"bench": [reference]})
    assert decision.outcome is (P if used else I)
    if used:
        assert decision.stats[0].reference.value == 1.0, "the value that is 1 was compared, not its neighbours"


def test_more_than_two_percent_truncated_is_said_in_the_first_line(bench: Any) -> None:
    answers = bench.answers([1.0] * 97) + [
        bench.case(f"bench/t{i}", "bench", outcome=F, values={"score": 0.0}, truncated=True) for i in range(3)
    ]
    assert "3.0 % of bench answers truncated" in bench.decide(answers).headline
    assert (
        "truncated" not in bench.decide([*answers[:97], answers[97], answers[98]], {"truncated_notice": 0.05}).headline
    )


def test_at_an_early_look_the_bound_is_obrien_flemings(bench: Any) -> None:
    """Z of the table lies between the fixed bound 1.645 and the look's 2.768: enough at the end, not at look 2 of 5."""
    vendor, reference = table(350, 10, 11, 29)
    z = mean_z([1.0] * 10 + [-1.0] * 11 + [0.0] * 379, -0.03)
    bound = obrien_fleming(0.05, equal_looks(5))[1]
    assert 1.645 < z < bound
    refs = {"bench": [bench.reference(reference)]}
    look = InterimAnalysis(number=2, fractions=equal_looks(5))
    at_look = bench.decide(bench.answers(vendor), {**policy(), "looks": 5}, references=refs, looks={"bench": look})
    assert at_look.outcome is I
    assert bench.decide(bench.answers(vendor), {**policy(), "looks": 5}, references=refs).outcome is P


@pytest.mark.parametrize(
    ("looks", "expected"), [({"bench": InterimAnalysis(number=3, fractions=equal_looks(5))}, P), ({}, I)]
)
def test_what_an_early_stop_left_out_is_not_open_but_what_a_cut_run_left_out_is(
    bench: Any, looks: dict[str, InterimAnalysis], expected: Outcome
) -> None:
    vendor, reference = table(540, 5, 5, 50)
    answers = bench.answers(vendor)
    answers += [
        bench.case(f"bench/late{i}", "bench", area=Area.ACCURACY, outcome=I, reason="early-stop") for i in range(400)
    ]
    cases = {f"bench/q{i}": [score] for i, score in enumerate(reference)} | {
        f"bench/late{i}": [1.0] for i in range(400)
    }
    rules = {**policy(), "looks": 5}
    assert bench.decide(answers, rules, references={"bench": [bench.reference(cases)]}, looks=looks).outcome is expected


def test_a_row_says_in_what_it_was_asked_otherwise_than_its_published_mean(bench: Any) -> None:
    unlike = "the published 0.89 was asked otherwise: effort low, not max"
    decision = bench.decide(bench.answers([0.0] * 50), policy(), published_otherwise={"bench": unlike})
    (gate,) = decision.gates
    assert (gate.decision, gate.reason) == (S, f"not-gated: no reference, gate with --reference FILE; {unlike}")


def f1_run(bench: Any, calls: np.ndarray, name: str) -> Any:
    return ReferenceRun(
        name=name, model="m", cases={f"bench/q{i}": [{"triggered": float(c)}] for i, c in enumerate(calls)}
    )


def f1_decision(bench: Any, vendor: np.ndarray, runs: list[np.ndarray], refused: int = 0) -> Any:
    verdicts = [
        bench.case(f"bench/q{i}", "bench", area=Area.TOOLS, values={"triggered": float(c)})
        for i, c in enumerate(vendor)
    ]
    verdicts[:refused] = [
        bench.case(f"bench/q{i}", "bench", area=Area.TOOLS, outcome=F, reason="valid-request-refused")
        for i in range(refused)
    ]
    stat = Stat(
        suite="bench",
        metric="trigger_f1",
        primary=True,
        estimate=0.8,
        interval=None,
        n_planned=len(vendor),
        n_concluded=len(vendor),
        n_inconclusive=0,
        n_truncated=0,
        worst_case=0.8,
        best_case=0.8,
    )
    rules = {"benchmark": [{"suite": "bench", "method": "f1", "key": "triggered", "margin": 0.01}]}
    references = {"bench": [f1_run(bench, run, f"official {i}") for i, run in enumerate(runs)]}
    suites = [SuiteRun(id="bench", kind=SuiteKind.BENCHMARK)]
    return bench.decide(verdicts, rules, suites=suites, metrics=False, stats=[stat], references=references)


def test_an_f1_is_judged_by_the_official_runs_own_scatter(bench: Any) -> None:
    rng = np.random.default_rng(9)
    p = rng.beta(0.5, 0.5, 2000)
    runs = [rng.random(2000) < p for _ in range(5)]
    same = f1_decision(bench, rng.random(2000) < p, runs)
    assert (same.outcome, same.gates[0].reason.split(":")[0]) == (P, "within-official-scatter")
    shy = f1_decision(bench, rng.random(2000) < 0.7 * p, runs)
    assert (shy.outcome, shy.gates[0].reason.split(":")[0]) == (F, "below-official-scatter")
    assert shy.areas["tools"] is F


def test_refused_requests_count_against_an_f1(bench: Any) -> None:
    rng = np.random.default_rng(9)
    p = rng.beta(0.5, 0.5, 2000)
    runs = [rng.random(2000) < p for _ in range(5)]
    vendor = rng.random(2000) < p
    assert f1_decision(bench, vendor, runs, refused=0).outcome is P
    assert f1_decision(bench, vendor, runs, refused=200).outcome is F


def test_official_runs_of_other_prompts_are_not_used_for_an_f1(bench: Any) -> None:
    rng = np.random.default_rng(9)
    runs = [rng.random(500) < 0.7 for _ in range(3)]
    assert (
        f1_decision(bench, rng.random(2000) < 0.7, runs).gates[0].reason
        == "reference-too-small: a run knows 500 of 2000 answers"
    )


def test_one_official_run_is_not_enough_to_judge_an_f1(bench: Any) -> None:
    rng = np.random.default_rng(9)
    run = rng.random(100) < 0.5
    decision = f1_decision(bench, run, [run])
    assert (decision.outcome, decision.gates[0].reason.split(":")[0]) == (I, "one-official-run")
    assert "F1 1.0000" in decision.gates[0].reason


def test_beside_one_official_run_a_shifted_rate_of_calls_is_a_loss_and_symmetric_noise_is_none(bench: Any) -> None:
    rng = np.random.default_rng(9)
    p = rng.beta(0.5, 0.5, 2000)
    official = rng.random(2000) < p
    assert f1_decision(bench, rng.random(2000) < p, [official]).outcome is I
    for other in (rng.random(2000) < 0.7 * p, rng.random(2000) < 1 - 0.7 * (1 - p)):
        decision = f1_decision(bench, other, [official])
        assert (decision.outcome, decision.gates[0].reason.split(":")[0]) == (F, "trigger-rate-shifted")


def test_two_official_runs_that_agree_on_few_prompts_leave_a_vendor_that_differs_once_undecided(bench: Any) -> None:
    official = np.array([True] * 8)
    vendor = np.array([False] + [True] * 7)
    decision = f1_decision(bench, vendor, [official, official])
    assert (decision.outcome, decision.gates[0].reason.split(":")[0]) == (I, "official-scatter-too-wide")


def test_few_prompts_scatter_too_widely_to_pass_an_f1(bench: Any) -> None:
    rng = np.random.default_rng(9)
    p = rng.beta(0.5, 0.5, 60)
    decision = f1_decision(bench, rng.random(60) < p, [rng.random(60) < p for _ in range(5)])
    assert decision.gates[0].reason.split(":")[0] == "official-scatter-too-wide"


def test_official_runs_that_contradict_each_other_judge_nobody(bench: Any) -> None:
    official = np.array([True] * 100 + [False] * 100)
    decision = f1_decision(bench, np.array([False] * 200), [official, ~official])
    assert (decision.outcome, decision.gates[0].reason.split(":")[0]) == (I, "official-runs-disagree")


def test_refused_requests_are_said_in_the_first_line_and_leave_nothing_to_compare(bench: Any) -> None:
    refused = [
        bench.case(
            f"bench/q{n}",
            "bench",
            area=Area.ACCURACY,
            outcome=F,
            reason="valid-request-refused",
            detail="temperature must be 1.0",
        )
        for n in range(20)
    ]
    decision = bench.decide(refused, policy(), references={"bench": [bench.reference([1.0] * 20)]})
    assert (decision.outcome, decision.gates[0].reason.split(":")[0]) == (I, "all-refused")
    assert "20 bench requests were refused (temperature must be 1.0)" in decision.headline


def test_a_part_of_a_run_passes_nothing_and_fails_what_fails(bench: Any) -> None:
    part = bench.decide([bench.case("params/a", "params")], part="shard 1 of 3 alone")
    assert (part.outcome, part.why) == (I, ("part-of-a-run: shard 1 of 3 alone",))
    assert "shard 1 of 3 alone" in part.headline
    assert bench.decide([bench.case("params/a", "params", outcome=F)], part="shard 1 of 3 alone").outcome is F
    chosen = bench.decide([bench.case("params/a", "params")], chosen="only cases params/*")
    assert chosen.headline == "PASS, 1 of 1 suite, only cases params/*; contract pass"


def test_a_regression_pass_must_survive_counting_the_open_samples_as_wrong(bench: Any) -> None:
    entry = {"mode": "regression", "margin": 0.0, "detect": 0.05}
    vendor, reference = table(880, 12, 12, 96)
    assert paired(bench, vendor, reference, **entry).outcome is P
    holes: list[float | None] = [None if i < 40 else v for i, v in enumerate(vendor)]
    decision = paired(bench, holes, reference, **entry)
    assert decision.outcome is I
    assert "counted as wrong the open samples show a loss" in decision.gates[0].reason


def test_a_regression_gate_at_a_look_needs_the_looks_own_width(bench: Any) -> None:
    """400 cases with 10 gained and 10 lost see 4.5 points at a fixed size, and 7 at look 2 of 5, whose bound is 2.77
    and not 1.64.
    """
    vendor, reference = table(340, 10, 10, 40)
    looks = {"bench": InterimAnalysis(number=2, fractions=equal_looks(5))}
    refs = {"bench": [bench.reference(reference)]}
    seen = {}
    for detect in (0.05, 0.08):
        rules = policy(mode="regression", margin=0.0, detect=detect)
        fixed = bench.decide(bench.answers(vendor), rules, references=refs)
        at_look = bench.decide(bench.answers(vendor), rules, references=refs, looks=looks)
        seen[detect] = (fixed.outcome, at_look.outcome)
    assert seen == {0.05: (P, I), 0.08: (P, P)}


@pytest.mark.parametrize(
    ("before", "now", "alpha", "outcome"),
    [
        (8, 0, 0.004, F),  # 1 of 256 ways to divide them is as bad: .0039
        (8, 0, 0.0016, I),
        (7, 0, 0.004, I),
        (10, 0, 0.001, F),
        (10, 0, 0.0009, I),
        (8, 8, 0.004, P),
        (8, 7, 0.004, P),
        (8, 8, 0.0016, I),  # at this level not even eight lost of ten would show
    ],
)
def test_a_loss_never_passes_because_it_is_large(
    bench: Any, before: int, now: int, alpha: float, outcome: Outcome
) -> None:
    vendor, reference = [1.0] * now + [0.0] * (10 - now), [1.0] * before + [0.0] * (10 - before)
    decision = bench.decide(
        bench.answers(vendor),
        {"alpha": alpha, **policy(mode="regression", margin=0.0, detect=0.8)},
        references={"bench": [bench.reference(reference)]},
    )
    assert decision.outcome is outcome, decision.gates[0].reason


@pytest.mark.parametrize(
    ("lost", "code"),
    [(0, "no-loss-shown"), (1, "no-loss-shown"), (2, "worse-than-reference"), (7, "worse-than-reference")],
)
def test_repeats_are_compared_question_by_question(bench: Any, lost: int, code: str) -> None:
    """30 questions x 4, always right or always wrong: two questions lost are 1 of 70 x 70 ways, one is 1 of 70."""
    reference = {f"bench/q{i}": [1.0 if i < 27 else 0.0] * 4 for i in range(30)}
    vendor = [0.0 if i < lost else values[0] for i, values in enumerate(reference.values()) for _ in range(4)]
    rules = {"alpha": 0.0011, **policy(mode="regression", margin=0.0, detect=0.24)}
    decision = bench.decide(bench.answers(vendor, samples=4), rules, references={"bench": [bench.reference(reference)]})
    assert decision.gates[0].reason.split(":")[0] == code


@pytest.mark.parametrize(
    ("before", "of", "rules", "code"),
    [
        (8, 10, {"alpha": 0.004, "detect": 0.8}, "no-loss-shown"),
        (7, 10, {"alpha": 0.004, "detect": 0.8}, "too-little-to-lose"),
        (0, 10, {"alpha": 0.004, "detect": 0.8}, "too-little-to-lose"),
        (18, 200, {"alpha": 0.0011, "detect": 0.09}, "no-loss-shown"),
        (17, 200, {"alpha": 0.0011, "detect": 0.09}, "too-little-to-lose"),
        # ten of ten lost reach .00098; nine do not, although 5 points of 200 would have been seen elsewhere
        (10, 200, {"alpha": 0.0011, "detect": 0.05}, "no-loss-shown"),
        (40, 200, {"margin": 0.1, "detect": 0.2}, "no-loss-shown"),
        (40, 200, {"margin": 0.18, "detect": 0.2}, "too-small-to-see"),
    ],
)
def test_a_reference_with_too_little_to_lose_passes_nobody(
    bench: Any, before: int, of: int, rules: dict[str, float], code: str
) -> None:
    """Not even with the very same answers: a vendor that solves nothing would pass beside it, or be undecided."""
    answers = [1.0] * before + [0.0] * (of - before)
    entry = {"mode": "regression", "margin": 0.0, **{k: v for k, v in rules.items() if k != "alpha"}}
    decision = bench.decide(
        bench.answers(answers),
        {"alpha": rules.get("alpha", 0.05), **policy(**entry)},
        references={"bench": [bench.reference(answers)]},
    )
    assert decision.gates[0].reason.split(":")[0] == code
    assert decision.outcome is (P if code == "no-loss-shown" else I)


def test_a_regression_gate_knows_no_clusters(bench: Any) -> None:
    """Twelve scores of one conversation fall from .5 to 0, 148 others stay: on these same questions a loss, 1 of 4,096
    ways.
    """
    reference = [0.5] * 160
    rules = {"alpha": 0.0011, **policy(mode="regression", margin=0.0, detect=0.17)}
    for lost, outcome in ((12, F), (9, P)):
        vendor = [0.0 if i < lost else 0.5 for i in range(160)]
        answers = [
            bench.case(f"bench/q{i}", "bench", area=Area.ACCURACY, outcome=F, values={"score": x}, cluster=str(i // 20))
            for i, x in enumerate(vendor)
        ]
        assert bench.decide(answers, rules, references={"bench": [bench.reference(reference)]}).outcome is outcome


def test_what_a_look_showed_stands_beside_the_row(bench: Any) -> None:
    vendor, reference = table(860, 4, 4, 132)
    look = InterimAnalysis(number=1, fractions=equal_looks(5), planned=5000)
    decision = bench.decide(
        bench.answers(vendor),
        {**policy(), "looks": 5},
        references={"bench": [bench.reference(reference)]},
        looks={"bench": look},
    )
    taken = decision.stats[0].look
    assert (taken.number, taken.of, taken.asked, taken.planned, taken.stopped) == (1, 5, 1000, 5000, True)
    assert taken.z == pytest.approx(mean_z([1.0] * 4 + [-1.0] * 4 + [0.0] * 992, -0.03))
    assert taken.bound == pytest.approx(obrien_fleming(0.05, equal_looks(5))[0])
    assert taken.z > taken.bound
    assert taken.interval[0] > -0.03
    assert decision.gates[0].reason.endswith("stopped at look 1 of 5 for pass: 1,000 of 5,000 asked")
    ran_out = InterimAnalysis(number=5, fractions=equal_looks(5), planned=1000, stopped=False)
    end = bench.decide(
        bench.answers(vendor),
        {**policy(), "looks": 5},
        references={"bench": [bench.reference(reference)]},
        looks={"bench": ran_out},
    )
    assert end.stats[0].look.bound == pytest.approx(1.751, abs=1e-3)
    assert "none of its 5 looks ended it early" in end.gates[0].reason


def test_a_look_at_repeats_shows_students_t_as_a_normal_value(bench: Any) -> None:
    rng = np.random.default_rng(3)
    ability = np.clip(rng.beta(5, 0.6, 12), 0, 1)
    vendor = [float(rng.random() < p) for p in ability for _ in range(32)]
    reference = {f"bench/q{i}": [float(rng.random() < p) for _ in range(32)] for i, p in enumerate(ability)}
    look = InterimAnalysis(number=2, fractions=equal_looks(5), planned=30 * 32)
    decision = bench.decide(
        bench.answers(vendor, samples=32),
        policy(margin=0.3),
        references={"bench": [bench.reference(reference)]},
        looks={"bench": look},
    )
    taken = decision.stats[0].look
    assert 0 < taken.z < 8
    assert (taken.z > taken.bound) is (taken.interval[0] > -0.3)


def test_rows_are_decided_alike_whatever_stands_before_them(bench: Any) -> None:
    """A look decides one suite alone; the end of the run decides it among others."""
    rng = np.random.default_rng(8)
    vendor = [round(float(x), 2) for x in rng.random(40)]
    refs = {"bench": [bench.reference([round(float(x), 2) for x in rng.random(40)])]}
    alone = bench.decide(bench.answers(vendor), policy(margin=0.2), references=refs)
    other = rate_stat("other", "score", successes=1, concluded=2, primary=True)
    stats = bench.decide(bench.answers(vendor), policy(margin=0.2), references=refs).stats
    suites = [SuiteRun(id="other", kind=SuiteKind.BENCHMARK), SuiteRun(id="bench", kind=SuiteKind.BENCHMARK)]
    among = bench.decide(
        bench.answers(vendor), policy(margin=0.2), suites=suites, metrics=False, stats=[other, *stats], references=refs
    )
    assert among.gates[-1] == alone.gates[-1]


# --- where both sides call -----------------------------------------------------------------------------

WHERE_BOTH = {
    "benchmark": [{"suite": "bench", "metric": "validity", "key": "valid", "given": "called", "margin": 0.05}]
}


def calls(bench: Any, pattern: list[tuple[float, float] | None]) -> list[Any]:
    """(called, valid) of one sample a case; None: inconclusive."""
    return [
        bench.case(
            f"bench/q{i}",
            "bench",
            area=Area.TOOLS,
            outcome=I if found is None else P,
            values={} if found is None else {"called": found[0], "valid": found[1]},
        )
        for i, found in enumerate(pattern)
    ]


def judged_where_both_call(
    bench: Any, vendor: list[tuple[float, float] | None], official: list[tuple[float, float]]
) -> Any:
    run = ReferenceRun(
        name="official",
        model="m",
        cases={f"bench/q{i}": [{"called": c, "valid": v}] for i, (c, v) in enumerate(official)},
    )
    verdicts = calls(bench, vendor)
    concluded = sum(found is not None for found in vendor)
    row = rate_stat("bench", "validity", successes=0, concluded=concluded, planned=len(vendor))
    decision = bench.decide(verdicts, WHERE_BOTH, metrics=False, stats=[row], references={"bench": [run]})
    return next(gate for gate in decision.gates if gate.id == "bench/validity")


GOOD, BAD, SILENT = (1.0, 1.0), (1.0, 0.0), (0.0, 0.0)


def test_broken_calls_fail_where_both_sides_call(bench: Any) -> None:
    official = [GOOD] * 300
    assert judged_where_both_call(bench, [GOOD] * 300, official).decision is P
    worse = judged_where_both_call(bench, [BAD] * 40 + [GOOD] * 260, official)
    assert (worse.decision, worse.reason.split(":")[0]) == (F, "worse-than-reference")


def test_a_vendor_that_calls_less_often_or_elsewhere_is_another_gates_matter(bench: Any) -> None:
    less = judged_where_both_call(bench, [SILENT] * 100 + [GOOD] * 200, [GOOD] * 300)
    assert (less.decision, "200 cases" in less.reason) == (P, True)
    elsewhere = judged_where_both_call(bench, [GOOD] * 200 + [BAD] * 100, [GOOD] * 200 + [SILENT] * 100)
    assert (elsewhere.decision, "200 cases" in elsewhere.reason) == (P, True)
    assert judged_where_both_call(bench, [SILENT] * 300, [GOOD] * 300).reason.startswith("nothing-in-common")


def test_an_unanswered_case_may_have_been_a_broken_call(bench: Any) -> None:
    official = [GOOD] * 300
    assert judged_where_both_call(bench, [None] * 30 + [GOOD] * 270, official).decision is I
    assert judged_where_both_call(bench, [None] * 30 + [BAD] * 100 + [GOOD] * 170, official).decision is F


# --- a reference with gaps -----------------------------------------------------------------------------


def test_cases_to_which_the_reference_has_no_answer_count_against_a_pass(bench: Any) -> None:
    """A vendor that is wrong just where the official endpoint was silent is no proven equal."""
    known = bench.reference({f"bench/q{i}": [1.0] for i in range(270)})
    settings = {"benchmark": [{"suite": "bench", "margin": 0.05}], "min_paired": 0.5}
    right = [1.0] * 300
    wrong_there = [1.0] * 270 + [0.0] * 30
    passed = bench.decide(bench.answers(right), settings, references={"bench": [known]})
    assert passed.gates[0].decision is P
    assert "the reference has no answer to 30 of 300 cases" in passed.gates[0].reason
    assert bench.decide(bench.answers(wrong_there), settings, references={"bench": [known]}).gates[0].decision is I
    everywhere = [0.0] * 150 + [1.0] * 150
    assert bench.decide(bench.answers(everywhere), settings, references={"bench": [known]}).gates[0].decision is F


def refusing(bench: Any, refused: int, n: int, right: float = 1.0) -> list[Any]:
    """Answers to ``n`` questions, of which the first ``refused`` were refused."""
    gone = [
        bench.case(f"bench/q{i}", "bench", area=Area.ACCURACY, outcome=F, reason="valid-request-refused")
        for i in range(refused)
    ]
    return [*gone, *bench.answers([right] * n)[refused:]]


@pytest.mark.parametrize(
    ("vendor", "official", "outcome"),
    [
        (20, 20, P),  # both refuse the same questions
        (20, 0, I),  # the vendor alone: 2 points lost of a margin of 2
        (0, 20, I),  # the official endpoint alone: it may have been right there, or wrong
        (60, 20, F),
    ],
)
def test_what_both_sides_refuse_is_wrong_on_both(bench: Any, vendor: int, official: int, outcome: Outcome) -> None:
    cases = {f"bench/q{i}": [{REFUSED: 1.0} if i < official else {"score": 1.0}] for i in range(1000)}
    run = ReferenceRun(name="official", model="m", cases=cases)
    answers = refusing(bench, vendor, 1000) if vendor else bench.answers([0.0] * 20 + [1.0] * 980)
    gate = bench.decide(answers, policy(margin=0.02), references={"bench": [run]}).gates[0]
    assert gate.decision is outcome, gate.reason
    assert ("the reference has no answer to 20 of 1000 cases" in gate.reason) is (vendor == 0)
    assert "answers to the open samples" not in gate.reason, "the vendor left nothing open"


def test_official_samples_that_are_missing_may_have_been_right_or_wrong(bench: Any) -> None:
    """Thirty problems x 8, the official runs lost their wrong samples: what is left looks better than it was."""
    cases = {f"bench/q{i}": [{"score": 1.0}] * 7 + [{"score": 0.0}] for i in range(30)}
    lossy = {case: [*values[:7], {}] for case, values in cases.items()}
    answers = bench.answers([1.0] * 7 + [0.0] + ([1.0] * 7 + [0.0]) * 29, samples=8)
    for name, known, outcome in (("whole", cases, P), ("lossy", lossy, I)):
        run = ReferenceRun(name=name, model="m", cases=known)
        gate = bench.decide(answers, policy(margin=0.11), references={"bench": [run]}).gates[0]
        assert gate.decision is outcome, gate.reason
    assert "the reference has 30 samples of others without an answer" in gate.reason
    assert "answers to the open samples" not in gate.reason
    wrong = bench.answers([0.0] * 240, samples=8)
    assert bench.decide(wrong, policy(margin=0.11), references={"bench": [run]}).gates[0].decision is F


def test_a_vendor_answered_only_where_the_reference_is_silent_is_compared_with_nothing(bench: Any) -> None:
    run = bench.reference([1.0] * 90)
    answers = bench.answers([None] * 90 + [1.0] * 10)
    gate = bench.decide(answers, policy(), references={"bench": [run]}).gates[0]
    assert (gate.decision, gate.reason.split(":")[0]) == (I, "nothing-in-common")
