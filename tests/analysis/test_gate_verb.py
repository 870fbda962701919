"""`kvv gate` and `kvv baseline`: decisions, exit codes, confirmation, drift, waivers, and what changes a baseline."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.analysis.regression import CALL_RATE, GateLine, decide_lines, drift_of, false_alarms, outcome_of_lines
from kvv.cli.verbs.gate import _older
from kvv.core import Area, Gate, Level, Outcome
from kvv.decision import Decision
from kvv.planning.config import ConfigError
from kvv.profiles.policy import Policy, load_policy
from kvv.storage.baselines import Baseline, accepted_baselines, read_baseline, write_baseline

POLICY = """
name = "night"
alpha = 0.005
[[benchmark]]
suite = "ocrbench"
key = "correct"
mode = "regression"
detect = 0.45
"""

json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["pass", "benchmark", "2026"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["run_id", "suites", "cases", "samples", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture
def policy(call: Any) -> str:
    Path("night.toml").write_text(POLICY, "utf-8")
    return "night.toml"


def gated(call: Any, *arguments: Any) -> tuple[int, Any]:
    said = call("gate", *arguments, "--format", "json")
    assert said.err == "", said.err
    return said.code, json.loads(said.out)


def test_a_run_as_good_as_the_baseline_passes_and_a_worse_one_fails(runs: Any, call: Any, policy: str) -> None:
    code, found = gated(call, runs.same, "--baseline", runs.good, "--policy", policy)
    assert (code, found["outcome"], found["exit_code"]) == (0, "pass", 0)
    assert found["differences"][0]["n_samples"] == 22
    code, found = gated(call, runs.bad, "--baseline", runs.good, "--policy", policy)
    assert (code, found["outcome"]) == (1, "fail")
    failed = {gate["id"] for gate in found["gates"] if gate["verdict"] == "fail"}
    assert failed == {"contract/decoding", "ocrbench/accuracy"}
    assert all(row["baseline"] == "passes" and row["run"].startswith("fails") for row in found["broken"])
    assert found["broken"]
    assert found["lost"]
    assert {(row["baseline"], row["run"], row["change"]) for row in found["lost"]} == {("right", "wrong", -1.0)}
    code, found = gated(call, runs.good, "--baseline", runs.bad, "--policy", policy)
    assert (code, found["broken"], found["lost"]) == (0, [], [])
    assert found["mended"]
    assert found["gained"]


def test_a_worse_run_is_shown_by_cause_and_case_with_both_answers(runs: Any, call: Any, policy: str) -> None:
    told = call(
        "gate", runs.bad, "--baseline", runs.good, "--policy", policy, "--out", runs.good.parent, "--format", "md"
    ).out
    causes, _, rest = told.partition("## Gates")
    assert "| invalid requests are accepted (rejected: temperature" in causes
    line = next(line for line in causes.splitlines() if line.startswith("| invalid requests"))
    assert line.split("|")[2].strip() == "–"  # the baseline had none of it
    both = rest.partition("## Both answers")[2]
    assert "the baseline answered" in both
    assert both.count("It reads:") >= 2
    bare = call(
        "gate", runs.bad, "--baseline", runs.good, "--policy", policy, "--out", "elsewhere", "--format", "md"
    ).out
    assert "(its answers are not here)" in bare


def test_the_false_alarms_of_a_policy_are_stated(runs: Any, call: Any, policy: str) -> None:
    _, found = gated(call, runs.same, "--baseline", runs.good, "--policy", policy)
    assert found["false_alarms_per_100"] == pytest.approx(0.5)
    said = call("gate", runs.same, "--baseline", runs.good, "--policy", policy, "--format", "md")
    assert "0.50 in 100 nights on which nothing changed" in said.out


def test_the_shipped_nightly_policy_alarms_at_most_once_in_100_nights(sides: Any) -> None:
    names = [entry.suite for entry in load_policy("nightly").benchmark]
    run = sides.side(*(sides.bench([1] * 450 + [0] * 50, suite=name) for name in names))
    assert 0 < false_alarms(load_policy("nightly"), run, gated=names).first <= 1.0
    assert false_alarms(load_policy("nightly"), run, gated=[]).first == 0.0
    assert false_alarms(load_policy("smoke"), run, gated=names).first < 10


def test_what_cannot_be_told_is_exit_code_3_or_a_warning(runs: Any, call: Any) -> None:
    Path("strict.toml").write_text(POLICY.replace("0.45", "0.001"), "utf-8")
    arguments = [runs.same, "--baseline", runs.good, "--policy", "strict.toml"]
    code, found = gated(call, *arguments)
    assert (code, found["outcome"]) == (3, "inconclusive")
    assert gated(call, *arguments, "--on-inconclusive", "fail")[0] == 3
    assert gated(call, *arguments, "--on-inconclusive", "warn")[0] == 0
    assert (
        gated(call, runs.bad, "--baseline", runs.good, "--policy", "strict.toml", "--on-inconclusive", "warn")[0] == 1
    )


def test_a_missing_baseline_has_a_message_of_its_own(runs: Any, call: Any) -> None:
    said = call("gate", runs.good)
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "no baseline yet for local-8000 kimi-k3 under baselines/" in said.err
    assert f"kvv baseline accept {runs.good.name}" in said.err


def test_only_accept_changes_the_baseline_and_gate_finds_it(runs: Any, call: Any, policy: str) -> None:
    said = call("baseline", "accept", runs.good, "--note", "first")
    assert said.code == 0, said.err
    before = sorted(Path("baselines").rglob("*.json"))
    assert len(before) == 1
    bytes_before = before[0].read_bytes()
    code, found = gated(call, runs.bad, "--policy", policy)
    assert (code, found["baseline"]["run_id"]) == (1, runs.good.name)
    assert gated(call, runs.same, "--policy", policy)[0] == 0
    assert sorted(Path("baselines").rglob("*.json")) == before
    assert before[0].read_bytes() == bytes_before
    again = call("baseline", "accept", runs.good)
    assert (again.code, "accepted before" in again.err) == (2, True)
    # a run is no baseline of itself
    itself = call("gate", runs.good)
    assert (itself.code, "gate a later run" in itself.err) == (2, True)
    listed = json.loads(call("baseline", "list", "--format", "json").out)
    assert [(row["run_id"], row["note"]) for row in listed] == [(runs.good.name, "first")]


def test_a_baseline_that_was_accepted_before_ports_were_told_apart_is_found_by_its_address(
    runs: Any, call: Any, policy: str
) -> None:
    from kvv.storage.run_summary_reader import open_finished, side_of

    with open_finished(str(runs.good), None) as (store, _):
        good = side_of(store)
    write_baseline(Path("baselines"), Baseline(side=replace(good, vendor="local"), accepted="2026-01-01T00:00:00Z"))
    assert gated(call, runs.same, "--policy", policy)[0] == 0
    other = replace(good, run_id="other", vendor="local", base_url="http://127.0.0.1:8001/v1")
    write_baseline(Path("elsewhere"), Baseline(side=other, accepted="2026-01-01T00:00:00Z"))
    said = call("gate", runs.same, "--policy", policy, "--baselines", "elsewhere")
    assert (said.code, "no baseline yet for local-8000" in said.err) == (2, True)


def test_one_run_is_one_baseline_in_whatever_form_it_is_given(
    runs: Any, call: Any, policy: str, tmp_path: Path
) -> None:
    copy = shutil.copytree(runs.good, tmp_path / "renamed")
    assert call("baseline", "accept", runs.good).code == 0
    (accepted,) = Path("baselines").rglob("*.json")
    # as if the same results had been accepted under another id: a merge made twice, a recording imported twice
    again = replace(read_baseline(accepted).side, run_id="again")
    write_baseline(Path("baselines"), Baseline(side=again, accepted="2026-01-02T00:00:00Z"))
    for named in (("--baseline", runs.good, "--baseline", copy), ("--baseline", copy, "--baseline", accepted), ()):
        code, found = gated(call, runs.bad, *named, "--policy", policy)
        assert (code, found["drift"], sum("it is counted once" in note for note in found["notes"])) == (1, [], 1)
    said = call("gate", copy, "--baseline", runs.good)
    assert (said.code, "is the run itself" in said.err) == (2, True)
    said = call("gate", runs.bad, "--baseline", runs.good, "--confirm", shutil.copytree(runs.bad, tmp_path / "fresh"))
    assert (said.code, "a confirmation is a fresh measurement" in said.err) == (2, True)


def test_two_runs_that_are_right_throughout_are_two_baselines(runs: Any, call: Any, policy: str) -> None:
    code, found = gated(call, runs.bad, "--baseline", runs.good, "--baseline", runs.same, "--policy", policy)
    assert (code, len(found["drift"]), [note for note in found["notes"] if "counted once" in note]) == (1, 1, [])


def test_a_failed_run_is_accepted_only_by_force(runs: Any, call: Any) -> None:
    said = call("baseline", "accept", runs.bad)
    assert said.code == 2
    assert "verdict" in said.err
    assert "--force" in said.err
    assert not Path("baselines").exists()
    assert call("baseline", "accept", runs.bad, "--force").code == 0


def test_a_baseline_file_holds_what_the_run_had(runs: Any, call: Any) -> None:
    from kvv.storage.run_summary_reader import open_finished, side_of

    with open_finished(str(runs.good), None) as (store, _):
        side = side_of(store)
    path = write_baseline(Path("b"), Baseline(side=side, accepted="2026-03-01T00:00:00Z"))
    assert read_baseline(path).side == side
    assert b"It reads" not in path.read_bytes()


@given(json_like)
def test_whatever_a_baseline_file_holds_it_is_read_or_refused_in_one_line(table: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "b.json"
        path.write_text(json.dumps({"kvv_baseline": 1, "side": table}), "utf-8")
        with pytest.raises(ConfigError) as error:
            read_baseline(path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no JSON"),
        ("[]", "is no baseline file"),
        ('{"kvv_baseline": 2}', "format 1"),
        ('{"kvv_baseline": 1, "side": {"run_id": 3}}', "side.run_id"),
        ('{"kvv_baseline": 1}', "side."),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_a_broken_baseline_file_is_one_line_that_names_it(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError) as error:
        read_baseline(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_an_alarm_that_a_second_run_does_not_repeat_decides_nothing(runs: Any, call: Any, policy: str) -> None:
    code, found = gated(call, runs.bad, "--baseline", runs.good, "--policy", policy, "--confirm", runs.same)
    assert (code, found["outcome"], found["confirming"]) == (3, "inconclusive", runs.same.name)
    gate = next(g for g in found["gates"] if g["id"] == "ocrbench/accuracy")
    assert (gate["first"], gate["second"], gate["verdict"], gate["note"]) == (
        "fail",
        "pass",
        "inconclusive",
        "not confirmed: the second run says pass",
    )
    said = call("gate", runs.bad, "--baseline", runs.good, "--policy", policy, "--confirm", runs.bad)
    assert (said.code, "fresh measurement" in said.err) == (2, True)


def test_a_run_of_another_model_confirms_nothing(runs: Any, call: Any, policy: str, tmp_path: Path) -> None:
    import shutil

    from kvv.storage.store import Store

    other = shutil.copytree(runs.same, tmp_path / "other")
    with Store.open(other / "store.sqlite") as store:
        store.set_meta("model", "kimi-k2")
    said = call("gate", runs.bad, "--baseline", runs.good, "--policy", policy, "--confirm", other)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "--confirm: is of the model kimi-k2, the run of kimi-k3" in said.err


def decision(*outcomes: Outcome) -> Decision:
    gates = tuple(
        Gate(id=f"g{i}", area=Area.ACCURACY, level=Level.MUST, decision=o, reason="r") for i, o in enumerate(outcomes)
    )
    return Decision(
        outcome=Outcome.FAIL,
        contract=Outcome.PASS,
        quality=Outcome.FAIL,
        gates=gates,
        stats=(),
        areas={},
        findings=(),
        coverage="",
        headline="",
        why=("g0: r", "required-area-missing: tools"),
        waivers=(),
    )


def test_a_repeated_alarm_is_confirmed_gate_by_gate() -> None:
    first, second = (
        decision(Outcome.FAIL, Outcome.FAIL, Outcome.PASS),
        decision(Outcome.FAIL, Outcome.PASS, Outcome.FAIL),
    )
    lines, missing = decide_lines(first, second)
    assert [line.decision for line in lines] == [Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS]
    assert missing == ["required-area-missing: tools"]
    assert outcome_of_lines(lines, missing) is Outcome.FAIL
    assert [line.decision for line in decide_lines(first, None)[0]] == [Outcome.FAIL, Outcome.FAIL, Outcome.PASS]
    assert outcome_of_lines(lines[2:], missing) is Outcome.INCONCLUSIVE


def test_drift_fails_a_night_only_where_that_was_asked_for(sides: Any) -> None:
    gate = Gate(id="a", area=Area.ACCURACY, level=Level.MUST, decision=Outcome.PASS)
    lines = [GateLine(gate=gate, decision=Outcome.PASS)]
    assert outcome_of_lines(lines, []) is Outcome.PASS
    assert outcome_of_lines(lines, [], [Outcome.FAIL]) is Outcome.FAIL
    assert outcome_of_lines([], []) is Outcome.INCONCLUSIVE


def test_small_accepted_losses_add_up_to_a_drift(sides: Any) -> None:
    """Each step loses 4 of 200 questions, which no single night shows; four steps lose 16."""
    policy = Policy.model_validate({"name": "p", "alpha": 0.01})
    steps = [sides.side(sides.bench([0] * lost + [1] * (200 - lost)), name=str(lost)) for lost in (16, 12, 8, 4, 0)]
    found = drift_of(steps[0], steps[1:], policy, np.random.default_rng(0))
    assert [d.shown for d in found] == [False, True, True, True]
    assert not any(d.shown for d in drift_of(steps[4], steps[:4], policy, np.random.default_rng(0)))


@pytest.mark.parametrize("direction", [1, -1])
def test_a_rate_of_calls_that_was_accepted_step_by_step_is_a_drift_either_way(sides: Any, direction: int) -> None:
    """Each step calls on 4 of 200 requests less, or more: against the first baseline it shows, not against the last."""
    policy = Policy.model_validate({"name": "p", "alpha": 0.01})

    def night(step: int) -> Any:
        return sides.side(sides.calls([i < 100 - direction * 4 * step for i in range(200)]), name=str(step))

    found = drift_of(night(4), [night(step) for step in (3, 2, 1, 0)], policy, np.random.default_rng(0))
    found = [d for d in found if d.pair.measure.key == CALL_RATE]
    assert [d.shown for d in found] == [False, True, True, True]


@pytest.mark.parametrize(
    ("last", "seen"), [(1, []), (2, [0]), (3, [4, 0]), (5, [4, 3, 2, 0]), (6, [4, 3, 2, 1, 0]), (9, [4, 3, 2, 1, 0])]
)
def test_the_first_accepted_baseline_is_among_those_looked_at(sides: Any, last: int, seen: list[int]) -> None:
    accepted = [Baseline(side=sides.side(name=str(n))) for n in (5, 4, 3, 2, 1, 0)]
    assert [side.run_id for side in _older(accepted, last)] == [f"run-{n}" for n in seen]


def test_older_baselines_show_drift_and_an_unlike_one_is_left_out(runs: Any, call: Any, policy: str) -> None:
    from kvv.storage.run_summary_reader import open_finished, side_of

    with open_finished(str(runs.good), None) as (store, _):
        good = side_of(store)
    with open_finished(str(runs.bad), None) as (store, _):
        bad = side_of(store)
    other = replace(
        good,
        run_id="other",
        results_sha256="other",
        suites={"ocrbench": replace(good.suites["ocrbench"], facts={"data": "else"})},
    )
    write_baseline(Path("baselines"), Baseline(side=good, accepted="2026-01-01T00:00:00Z"))
    write_baseline(Path("baselines"), Baseline(side=other, accepted="2026-01-02T00:00:00Z"))
    write_baseline(
        Path("baselines"),
        Baseline(side=replace(bad, run_id="weak", results_sha256="weak"), accepted="2026-01-03T00:00:00Z"),
    )
    assert [b.side.run_id for b in accepted_baselines(Path("baselines"))] == ["weak", "other", good.run_id]
    code, found = gated(call, runs.bad, "--policy", policy, "--waivers", waive("contract/decoding"))
    assert (code, found["baseline"]["run_id"]) == (0, "weak")
    assert [(d["baseline"], d["shown"]) for d in found["drift"]] == [(good.run_id, True)]
    assert any("the baseline other is not used" in note for note in found["notes"])
    assert "drift shown: ocrbench" in found["headline"]
    assert (
        gated(call, runs.bad, "--policy", policy, "--waivers", waive("contract/decoding"), "--on-drift", "fail")[0] == 1
    )
    assert (
        gated(call, runs.bad, "--policy", policy, "--waivers", waive("contract/decoding"), "--last", "1")[1]["drift"]
        == []
    )


def waive(case: str, expires: str = "2999-12-31") -> Path:
    path = Path("waivers.toml")
    path.write_text(
        f'[[waiver]]\ncase = "{case}"\nreason = "by design"\nowner = "ops"\nissue = "https://x.example/1"\nexpires ='
        f" {expires}\n",
        "utf-8",
    )
    return path


@pytest.mark.parametrize(
    ("case", "expires", "code", "state"),
    [
        ("contract/decoding", "2999-12-31", 0, "used"),
        ("contract/decoding", "2020-01-01", 1, "expired"),
        ("ocrbench/accuracy", "2999-12-31", 1, "unneeded"),
        ("beam/score", "2999-12-31", 1, "not-seen"),
    ],
)
def test_waivers_are_used_while_they_hold_and_reported_otherwise(
    runs: Any, call: Any, case: str, expires: str, code: int, state: str
) -> None:
    Path("none.toml").write_text(
        'name = "none"\n[[benchmark]]\nsuite = "ocrbench"\nkey = "correct"\nmargin = 0.999\n', "utf-8"
    )
    arguments = [runs.bad, "--baseline", runs.good, "--policy", "none.toml", "--waivers", waive(case, expires)]
    got, found = gated(call, *arguments)
    assert (got, found["waivers"][0]["state"]) == (code, state)
    assert (found["waivers"][0]["owner"], found["waivers"][0]["issue"]) == ("ops", "https://x.example/1")
    text = call("gate", *arguments, "--format", "md").out
    assert ("has expired" in text, "is not needed" in text, "nothing that ran" in text) == (
        state == "expired",
        state == "unneeded",
        state == "not-seen",
    )


def test_a_baseline_made_otherwise_is_refused_until_allowed(runs: Any, call: Any, policy: str) -> None:
    from kvv.storage.run_summary_reader import open_finished, side_of

    with open_finished(str(runs.good), None) as (store, _):
        good = side_of(store)
    suite = good.suites["ocrbench"]
    hot = replace(suite, facts={**suite.facts, "sampling": {**suite.facts["sampling"], "temperature": 0.6}})
    path = write_baseline(
        Path("b"), Baseline(side=replace(good, run_id="hot", suites={**good.suites, "ocrbench": hot}), accepted="2026")
    )
    said = call("gate", runs.same, "--baseline", path, "--policy", policy)
    assert said.code == 2
    assert "temperature 0.6 and 1.0" in said.err
    code, found = gated(call, runs.same, "--baseline", path, "--policy", policy, "--allow-different", "sampling")
    assert code == 0
    assert any("compared although they differ" in note for note in found["notes"])


def test_bad_input_is_one_line_and_exit_code_2(runs: Any, call: Any, tmp_path: Path) -> None:
    Path("broken.toml").write_text("[[waiver]]\ncase = 1\n", "utf-8")
    for arguments, words in (
        (["gate", runs.good, "--baseline", "nowhere"], "--baseline: no run matches"),
        (["gate", tmp_path, "--baseline", runs.good], "no run folder"),
        (["gate", runs.good, "--baseline", runs.good], "is the run itself"),
        (["gate", runs.good, "--baseline", runs.same, "--policy", "nope"], "--policy"),
        (["gate", runs.good, "--baseline", runs.same, "--waivers", "broken.toml"], "--waivers"),
        (["gate", runs.good, "--baseline", runs.same, "--waivers", "nope.toml"], "--waivers"),
        (["gate", runs.good, "--baseline", runs.same, "--last", "0"], "--last"),
        (["gate", runs.good, "--baseline", runs.same, "--confirm", "nowhere"], "--confirm"),
        (["baseline", "accept"], "RUN"),
        (["baseline", "accept", "nowhere"], "RUN"),
    ):
        said = call(*arguments)
        assert said.code == 2, arguments
        assert words in said.err, said.err
        assert len(said.err.splitlines()) == 1


F1_POLICY = """
name = "f1"
[[benchmark]]
suite = "toolcall"
method = "f1"
key = "triggered"
margin = 0.03
"""


def test_an_f1_is_judged_by_how_accepted_baselines_agree(call: Any, tmp_path: Path) -> None:
    from kvv.storage.run_summary_reader import open_finished, side_of

    assert call("run", "toolcall", "--samples", "4", "--out", "out", "-q").code == 0
    (folder,) = Path("out").iterdir()
    Path("f1.toml").write_text(F1_POLICY, "utf-8")
    with open_finished(str(folder), None) as (store, _):
        side = side_of(store)
    for number, name in enumerate(("one", "two")):
        write_baseline(
            Path("baselines"),
            Baseline(side=replace(side, run_id=name, results_sha256=name), accepted=f"2026-01-0{number + 1}T00:00:00Z"),
        )
        code, found = gated(call, folder, "--policy", "f1.toml")
        gate = next(g for g in found["gates"] if g["id"] == "toolcall/trigger_f1")
        lacking = [note for note in found["notes"] if "accept a second one (there is 1)" in note]
        assert (gate["verdict"], len(lacking)) == (("skip", 1), ("pass", 0))[number]
    assert "official against official" in gate["reason"]
    assert code == 0
