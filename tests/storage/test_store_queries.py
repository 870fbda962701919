"""What the store answers about a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvv.core import Area, Executed, Fault, FaultKind, Finding, FindingKind, Level, Outcome, Role, Timing, Upstream
from kvv.storage.store import NotStorableError, Store, StoreError


def answers_of(store: Store, case: str = "suite/one", sample: int = 0) -> list[list[str]]:
    store.flush()
    return [[answered.observation.answer for answered in step] for step in store.history(case, sample)]


# --- history ---------------------------------------------------------------------------------------


def test_history_is_by_step_and_in_ask_order_whatever_order_the_answers_came_in(store: Store, make: Any) -> None:
    for step, ask, answer in [(0, 1, "b"), (0, 0, "a"), (1, 0, "c")]:
        make.put(store, make.identity(step=step, ask=ask), answer=answer)
    assert answers_of(store) == [["a", "b"], ["c"]]


def test_history_has_the_last_attempt_of_each_request(store: Store, make: Any) -> None:
    make.put(store, make.identity(), status=503)
    make.put(store, make.identity(), attempt=2, answer="second")
    make.put(store, make.identity(sample=1), answer="another sample")
    assert answers_of(store) == [["second"]]
    assert store.attempts("suite/one", 0) == {make.identity().key: 2}
    assert [item.exchange.attempt for item in store.exchanges("suite/one", 0)] == [1, 2]


def test_a_shared_control_is_in_the_history_of_both_cases(store: Store, make: Any) -> None:
    control = make.identity("suite/one", purpose="control")
    make.put(store, control, answer="shared")
    alias = make.identity("suite/two", ask=0, purpose="control")
    store.put_alias(alias, control)
    make.put(store, make.identity("suite/two", ask=1), answer="own")
    assert answers_of(store, "suite/two") == [["shared", "own"]]
    assert store.answers("suite/two", 0)[alias].exchange.identity == control


def test_a_request_sent_after_it_was_aliased_counts_and_an_alias_put_after_it_was_sent_counts(
    store: Store, make: Any
) -> None:
    control, mine = make.identity(purpose="control"), make.identity("suite/two", purpose="control")
    make.put(store, control, answer="shared")
    store.put_alias(mine, control)
    make.put(store, mine, answer="own")
    assert answers_of(store, "suite/two") == [["own"]]
    store.put_alias(mine, control)
    assert answers_of(store, "suite/two") == [["shared"]]


def test_an_alias_to_nothing_is_an_error_and_not_forgotten(store_path: Any, make: Any) -> None:
    store = Store.create(store_path, {})
    store.put_alias(make.identity("suite/two"), make.identity())
    with pytest.raises(StoreError, match="nothing is stored"):
        store.flush()
    with pytest.raises(StoreError, match="nothing is stored"):
        store.close()


def test_history_ends_before_a_step_with_a_gap(store: Store, make: Any) -> None:
    make.put(store, make.identity(step=0), answer="a")
    make.put(store, make.identity(step=1, ask=1), answer="its sibling was in flight when the process died")
    assert answers_of(store) == [["a"]]


def test_a_sample_asked_anew_has_none_of_its_later_steps(store: Store, make: Any) -> None:
    make.put(store, make.identity(step=0), answer="first round")
    make.put(store, make.identity(step=1), answer="first round, judged")
    make.put(store, make.identity(step=0), attempt=2, answer="second round")
    assert answers_of(store) == [["second round"]]


def test_a_restart_empties_the_history_and_keeps_the_exchanges(store: Store, make: Any) -> None:
    make.put(store, make.identity(), answer="before")
    store.put_executed("suite/one", 0, 1, Executed(exit_code=0, output="before"))
    store.put_restart("suite/one", 0)
    assert answers_of(store) == []
    make.put(store, make.identity(), answer="after")
    store.put_executed("suite/one", 0, 1, Executed(exit_code=None, output="\ud800\x00", timed_out=True, seconds=1.5))
    store.flush()
    first, second = store.replies("suite/one", 0)
    assert isinstance(first, tuple)
    assert (first[0].observation.answer, second) == (
        "after",
        Executed(exit_code=None, output="\ud800\x00", timed_out=True, seconds=1.5),
    )
    assert answers_of(store) == [["after"]]
    assert [item.restart for item in store.exchanges()] == [0, 1]


def test_a_restart_outlives_the_process(store_path: Any, make: Any) -> None:
    with Store.create(store_path, {}) as store:
        make.put(store, make.identity(), answer="before")
        store.put_restart("suite/one", 0)
    with Store.open(store_path) as store:
        make.put(store, make.identity(), answer="after")
        assert answers_of(store) == [["after"]]


def test_history_carries_request_and_findings_so_that_the_suite_judges_as_it_did(store: Store, make: Any) -> None:
    finding = Finding(
        rule="r",
        area=Area.USAGE,
        level=Level.SHOULD,
        kind=FindingKind.DIFFERS,
        message="\ud800",
        frame=3,
        excerpt="\x00",
        causes=("F-1", "F-2"),
    )
    make.put(store, make.identity(), body={"stop": ["x"]}, findings=(finding, finding))
    store.flush()
    ((answered,),) = store.history("suite/one", 0)
    assert (answered.request.body, answered.findings) == ({"stop": ["x"]}, (finding, finding))


# --- verdicts ------------------------------------------------------------------------------------------


def test_a_later_verdict_replaces_and_the_earlier_ones_are_kept(store: Store, make: Any) -> None:
    outcomes = [Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.PASS]
    for outcome in outcomes:
        store.put_verdict(make.verdict(outcome=outcome))
    store.flush()
    verdict = store.verdict("suite/one", 0)
    assert verdict is not None
    assert verdict.outcome is Outcome.PASS
    assert [item.outcome for item in store.verdict_history("suite/one", 0)] == outcomes[:2]
    assert [item.outcome for *_, item in store.verdicts()] == [Outcome.PASS]
    assert store.outcomes() == {("suite/one", 0): Outcome.PASS}
    assert store.verdict("suite/one", 1) is None


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_verdict_of_any_size_comes_back(store: Store, make: Any, size: int) -> None:
    verdict = make.verdict(values={"f1": 0.1, "nan": float("inf")}, facts={"patch": "x\ud800" * size}, detail="d")
    store.put_verdict(verdict)
    store.flush()
    assert store.verdict("suite/one", 0) == verdict


def test_verdicts_come_in_the_order_of_the_plan_and_by_suite(store: Store, make: Any) -> None:
    store.put_cases([make.case("suite/z"), make.case("other/m", "other"), make.case("suite/a")], {})
    for case, sample in [("suite/a", 0), ("suite/z", 1), ("other/m", 0), ("suite/z", 0)]:
        store.put_verdict(make.verdict(case, sample))
    store.flush()
    assert [(case, sample) for case, sample, _ in store.verdicts("suite")] == [
        ("suite/z", 0),
        ("suite/z", 1),
        ("suite/a", 0),
    ]
    assert [(case, sample) for case, sample, _ in store.verdicts()] == [
        ("suite/z", 0),
        ("suite/z", 1),
        ("other/m", 0),
        ("suite/a", 0),
    ]


@pytest.mark.parametrize("facts", [{"a": object()}, {"a": {1, 2}}, {1: "a"}])
def test_a_verdict_that_is_not_json_like_is_refused_at_once_and_harms_nothing(
    store: Store, make: Any, facts: Any
) -> None:
    with pytest.raises(NotStorableError, match="verdict of suite/one#0"):
        store.put_verdict(make.verdict(facts=facts))
    store.put_verdict(make.verdict())
    store.flush()
    assert store.verdict("suite/one", 0) == make.verdict()


# --- sums ----------------------------------------------------------------------------------------------


def test_traffic_counts_requests_attempts_and_tokens_by_role(store: Store, make: Any) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}
    make.put(store, make.identity(sample=0), usage=usage, cost=0.5)
    make.put(store, make.identity(sample=1), status=503)
    make.put(
        store,
        make.identity(sample=1),
        attempt=2,
        usage={"prompt_tokens": 1, "cached_tokens": 1, "completion_tokens": -5},
        cost=0.25,
    )
    make.put(store, make.identity(sample=2), status=None, fault=Fault(kind=FaultKind.CONNECT, detail="refused"))
    make.put(
        store, make.identity(sample=0, step=1), role=Role.JUDGE, usage={"prompt_tokens": 10**30, "completion_tokens": 2}
    )
    store.flush()
    traffic = store.traffic()
    target = traffic["roles"]["target"]
    assert target == {
        "requests": 3,
        "attempts": 4,
        "retried": 1,
        "first_try_success": 1,
        "status": {"none": 1, "200": 2, "503": 1},
        "prompt_tokens": 101,
        "cached_tokens": 65,
        "completion_tokens": 7,
        "cost": 0.75,
    }
    assert traffic["roles"]["judge"]["cost"] is None
    assert (traffic["attempts"], traffic["completion_tokens"], traffic["cost"], traffic["status"]) == (
        5,
        9,
        0.75,
        {"200": 3, "503": 1, "none": 1},
    )


def test_traffic_of_an_empty_run_is_zero(store: Store) -> None:
    traffic = store.traffic()
    assert (traffic["requests"], traffic["cost"], traffic["roles"]) == (0, None, {})


def test_timing_is_of_answered_exchanges_and_tokens_per_second_counts_from_the_first_token(
    store: Store, make: Any
) -> None:
    timing = Timing(first_token_ms=200.0, total_ms=1200.0, itl_p50_ms=9.0)
    make.put(store, make.identity(), usage={"prompt_tokens": 5, "completion_tokens": 101}, timing=timing, stream=True)
    make.put(store, make.identity(sample=1), usage={"prompt_tokens": 5, "completion_tokens": 101}, timing=timing)
    make.put(store, make.identity(sample=2), status=503, timing=timing)
    make.put(store, make.identity(sample=3), role=Role.JUDGE, timing=timing)
    store.put_cases([make.case()], {})
    store.flush()
    streamed, whole = list(store.timing_samples("suite"))
    assert (streamed.tokens_per_s, streamed.first_token_ms, streamed.itl_p50_ms, streamed.total_ms) == (
        100.0,
        200.0,
        9.0,
        1200.0,
    )
    assert (streamed.stream, streamed.prompt_tokens, whole.stream, whole.tokens_per_s) == (True, 5, False, None)
    assert list(store.timing_samples("other")) == []
    assert [item.sample for item in store.timing_samples(role=Role.JUDGE)] == [3]


def test_lost_requests_are_first_attempts_without_an_answer_and_no_probes(store: Store, make: Any) -> None:
    hung = Fault(kind=FaultKind.FIRST_BYTE_TIMEOUT, detail="nothing came")
    usage = {"prompt_tokens": 7}
    make.put(store, make.identity(), status=None, fault=hung, stream=True)
    make.put(store, make.identity(), attempt=2, usage=usage, stream=True)
    make.put(store, make.identity(sample=1), status=503)
    make.put(store, make.identity(sample=1), attempt=2, status=503)
    make.put(store, make.identity(sample=2), usage=usage)
    make.put(store, make.identity(sample=2, step=1), status=401)
    for purpose in ("liveness", "control", "beside", "between:stream"):
        make.put(store, replace(make.identity(sample=3), purpose=purpose), status=503)
        make.put(store, replace(make.identity(sample=4), purpose=purpose), usage=usage)
    store.flush()
    assert [(lost.stream, lost.prompt_tokens, lost.standing.value, lost.fault) for lost in store.lost_requests()] == [
        (True, 7, "unavailable", FaultKind.FIRST_BYTE_TIMEOUT),
        (False, 7, "unavailable", None),  # the same question's other sample tells its length
        (False, None, "configuration", None),  # a later turn is of another length
    ]
    assert [(one.sample, one.attempt) for one in store.timing_samples()] == [(0, 2), (2, 1)]


def test_endings_name_the_fault_of_broken_attempts_and_the_age_of_all(store: Store, make: Any) -> None:
    make.put(store, make.identity(), timing=Timing(total_ms=900.0), stream=True)
    make.put(store, make.identity(sample=1), status=504, timing=Timing(total_ms=60_000.0))
    make.put(
        store,
        make.identity(sample=2),
        fault=Fault(kind=FaultKind.CUT, detail="closed"),
        timing=Timing(total_ms=60_001.0),
    )
    make.put(store, make.identity(sample=3), role=Role.JUDGE)
    store.flush()
    assert [
        (one.exchange, one.stream, one.total_ms, one.answered, one.status, one.fault) for one in store.endings()
    ] == [
        ("suite/one#0/0.0.probe", True, 900.0, True, 200, None),
        ("suite/one#1/0.0.probe", False, 60_000.0, False, 504, None),
        ("suite/one#2/0.0.probe", False, 60_001.0, False, 200, FaultKind.CUT),
    ]


def test_findings_are_grouped_by_rule_with_the_first_five_examples(store: Store, make: Any) -> None:
    def finding(rule: str, message: str) -> Finding:
        return Finding(
            rule=rule,
            area=Area.STREAMING,
            level=Level.MUST,
            kind=FindingKind.BREAKS_CLIENTS,
            message=message,
            frame=2,
            excerpt="x",
            causes=("c",),
        )

    for sample in range(7):
        make.put(
            store, make.identity(sample=sample), findings=(finding("twice", f"m{sample}"), finding("twice", "again"))
        )
    make.put(store, make.identity(sample=9), findings=(finding("once", "only"),))
    store.flush()
    once, twice = store.finding_groups()
    assert (once.rule, once.exchanges, once.count) == ("once", 1, 1)
    assert (twice.exchanges, twice.count, twice.message, twice.causes, twice.level) == (7, 14, "m0", ("c",), Level.MUST)
    assert [item.exchange for item in twice.examples] == [make.identity(sample=sample).key for sample in range(5)]
    store.put_findings(8, [])
    store.flush()
    assert [group.rule for group in store.finding_groups()] == ["twice"]


def test_upstreams_are_counted_and_silence_is_no_upstream(store: Store, make: Any) -> None:
    for sample, upstream in enumerate(
        [Upstream(model="a"), Upstream(model="b", provider="\ud800\x00"), Upstream(model="a"), Upstream()]
    ):
        make.put(store, make.identity(sample=sample), upstream=upstream)
    store.flush()
    found = [(one.suite, one.upstream, one.count) for one in store.answered_by()]
    assert found == [("", Upstream(model="a"), 2), ("", Upstream(model="b", provider="\ud800\x00"), 1)]


def test_events_and_meta_are_kept_in_order_with_utc_times(store: Store) -> None:
    store.put_event("breaker-open", {"reason": "http-503", "n": (1, 2)})
    store.put_event("breaker-closed", {})
    store.set_meta("seed", 7)
    store.set_meta("run", {"again": [1]})
    store.flush()
    first, second = store.events()
    assert (first.kind, first.data, second.kind) == (
        "breaker-open",
        {"reason": "http-503", "n": (1, 2)},
        "breaker-closed",
    )
    assert first.at.endswith("+00:00")
    assert store.meta() == {"run": {"again": [1]}, "seed": 7}


def test_an_unknown_case_is_named(store: Store) -> None:
    with pytest.raises(StoreError, match="no case 'suite/none'"):
        store.case("suite/none")
