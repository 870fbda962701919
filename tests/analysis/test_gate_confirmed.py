"""`kvv gate --confirm-now`: what alarmed is measured once more, inside bounds, and both measurements decide; what the
first line then says.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from kvv.analysis.gate_report import document, headline, workflow_commands
from kvv.analysis.regression import (
    Confirmation,
    Drift,
    FalseAlarms,
    GateLine,
    GateResult,
    decide_lines,
    drift_of,
    drift_outcomes,
    false_alarms,
    repeated_drift,
)
from kvv.core import Area, Gate, Level, Outcome
from kvv.decision import Decision
from kvv.mockserver import MockConfig, MockServer
from kvv.profiles.policy import Policy, load_policy
from kvv.stats import repeated_alarm
from kvv.storage.run_folder import STORE, read_config, runs_under
from kvv.storage.seal import RECORD, seal
from kvv.storage.store import Store

POLICY = (
    'name = "night"\nalpha = 0.005\n[[benchmark]]\nsuite = "ocrbench"\nkey = "correct"\nmode = "regression"\ndetect ='
    " 0.9\n"
)


def a_server(accuracy: float, *faults: str) -> MockServer:
    from kvv.cases.suite import load_suite
    from kvv.data import load
    from kvv.execution.answer_key import answer_entries

    key = answer_entries(load_suite("ocrbench").answer_key(load("ocrbench", fixture=True)))
    return MockServer(MockConfig(answers=key, accuracy=accuracy, seed=3, faults=faults))


@pytest.fixture(scope="module")
def worse() -> Iterator[MockServer]:
    with a_server(0.5, "A05") as server:
        yield server


@pytest.fixture
def night(runs: Any, call: Any, worse: MockServer) -> Path:
    """The bad run of `runs`, as if the worse server of this module had been its endpoint."""
    Path("night.toml").write_text(POLICY, "utf-8")
    folder = Path("reports") / str(runs.bad.name)
    shutil.copytree(runs.bad, folder)
    text = (folder / "run.toml").read_text("utf-8")
    address = next(line for line in text.splitlines() if line.startswith("base_url"))
    (folder / "run.toml").write_text(text.replace(address, f'base_url = "{worse.base_url}"'), "utf-8")
    started_here(folder)
    return folder


def started_here(folder: Path) -> None:
    with Store.open(folder / STORE) as store:
        store.set_meta(RECORD, seal(read_config(folder), store.meta()["run_id"]))


def gated(call: Any, night: Path, runs: Any, *arguments: Any) -> tuple[int, Any]:
    said = call("gate", night, "--baseline", runs.good, "--policy", "night.toml", "--format", "json", *arguments)
    assert "Traceback" not in said.err
    return said.code, json.loads(said.out)


def test_an_alarm_that_the_fresh_measurement_repeats_is_confirmed(runs: Any, call: Any, night: Path) -> None:
    code, found = gated(call, night, runs, "--confirm-now")
    (fresh,) = (night / "confirming").iterdir()
    assert (code, found["outcome"], found["confirming"]) == (1, "fail", fresh.name)
    assert {gate["standing"] for gate in found["gates"]} == {"confirmed"}
    assert found["headline"].startswith(
        f"FAIL against the baseline of {found['baseline']['date'][:10]}; confirmed: contract/decoding"
    )
    assert f"fail in {night.name} and again in {fresh.name}" in found["headline"]
    # an ordinary run of what alarmed alone, with the run's own settings
    config = read_config(fresh)
    failed = {row["case"] for row in found["broken"]}
    assert set(config.case) == {"ocrbench/*", *failed}
    assert (config.suites, config.data) == (("params", "ocrbench"), {"ocrbench": "fixture"})
    assert json.loads((fresh / "report.json").read_text("utf-8"))["suites"][0]["n_concluded"] == 22
    # it is no night of its own
    assert runs_under("reports") == [night]
    # and one measurement confirms, however often the gate is asked
    again, _ = gated(call, night, runs, "--confirm-now")
    assert (again, len(list((night / "confirming").iterdir()))) == (1, 1)


def test_an_alarm_that_it_does_not_repeat_decides_nothing(runs: Any, call: Any, night: Path) -> None:
    with a_server(1.0) as mended:
        code, found = gated(call, night, runs, "--confirm-now", "--base-url", mended.base_url)
    assert (code, found["outcome"]) == (3, "inconclusive")
    assert {(gate["first"], gate["second"], gate["standing"]) for gate in found["gates"]} == {
        ("fail", "pass", "not-repeated")
    }
    assert (
        "; alarm not confirmed: contract/decoding (contract-broken), ocrbench/accuracy (worse-than-reference) fail in"
        in found["headline"]
    )
    assert found["headline"].index("not in") < found["headline"].index(found["confirming"])


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (["--max-requests", "3"], "the fresh measurement ended first (max-requests)"),
        (["--deadline", "0.001"], "ended first (deadline)"),
    ],
)
def test_an_alarm_whose_budget_ends_first_is_unconfirmed_and_says_so(
    runs: Any, call: Any, night: Path, bounds: list[str], words: str
) -> None:
    code, found = gated(call, night, runs, "--confirm-now", *bounds)
    assert (code, found["outcome"]) == (3, "inconclusive")
    assert words in found["confirmation_trouble"]
    quality = next(gate for gate in found["gates"] if gate["id"] == "ocrbench/accuracy")
    assert (quality["first"], quality["verdict"], quality["standing"]) == ("fail", "inconclusive", "unconfirmed")
    assert "alarm not confirmed" in found["headline"]
    assert words in found["headline"]


def test_an_unconfirmed_alarm_is_no_mere_warning(runs: Any, call: Any, night: Path) -> None:
    code, found = gated(call, night, runs, "--confirm-now", "--max-requests", "3", "--on-inconclusive", "warn")
    assert (code, found["outcome"], found["exit_code"]) == (3, "inconclusive", 3)


def test_a_measurement_that_cannot_be_made_leaves_the_alarm_unconfirmed(
    runs: Any, call: Any, night: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (night / "run.toml").read_text("utf-8")
    (night / "run.toml").write_text(text.replace("suites =", 'tokenizer = "gone.json"\nsuites =', 1), "utf-8")
    started_here(night)
    code, found = gated(call, night, runs, "--confirm-now")
    assert (code, found["confirming"]) == (3, None)
    assert "the fresh measurement was not made: --tokenizer" in found["headline"]


def test_a_night_without_an_alarm_sends_nothing(runs: Any, call: Any, night: Path) -> None:
    said = call(
        "gate", runs.same, "--baseline", runs.good, "--policy", "night.toml", "--confirm-now", "--format", "json"
    )
    found = json.loads(said.out)
    assert (said.code, found["confirming"], (runs.same / "confirming").exists()) == (0, None, False)
    assert "nothing alarmed: nothing was measured again" in found["notes"]


def test_wrong_options_are_one_line_and_send_nothing(runs: Any, call: Any, night: Path) -> None:
    for arguments, words in (
        (["--max-cost", "3"], "--max-cost: is for --confirm-now"),
        (["--confirm-now", "--confirm", runs.same], "give one of them"),
        (["--confirm-now", "--deadline", "-1"], "--deadline"),
        (["--confirm-now", "--base-url", "nowhere"], "--base-url"),
    ):
        said = call("gate", night, "--baseline", runs.good, "--policy", "night.toml", *arguments)
        assert (said.code, len(said.err.splitlines())) == (2, 1), arguments
        assert words in said.err
    assert not (night / "confirming").exists()


def test_a_job_on_github_gets_annotations_and_a_step_summary(
    runs: Any, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("night.toml").write_text(POLICY, "utf-8")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    arguments = ["gate", runs.bad, "--baseline", runs.good, "--policy", "night.toml"]
    said = call(*arguments, "--format", "md", "--to", "gate.md")
    assert said.code == 1
    assert said.out.count("::error title=") == 2
    assert said.out.startswith("::error title=contract/decoding::contract-broken: ")
    assert "::notice title=kvv gate::FAIL against the baseline" in said.out
    assert Path("summary.md").read_text("utf-8") == Path("gate.md").read_text("utf-8")
    # what a machine reads stays what it is; the summary is appended
    assert json.loads(call(*arguments, "--format", "json").out)["outcome"] == "fail"
    assert Path("summary.md").read_text("utf-8").count("# FAIL") == 2


# --- what is decided, without a run ------------------------------------------------------------------


def gate(name: str, decision: Outcome, reason: str = "r: text") -> Gate:
    return Gate(id=name, area=Area.ACCURACY, level=Level.MUST, decision=decision, reason=reason)


def decision(*gates: Gate) -> Decision:
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
        why=(),
        waivers=(),
    )


@pytest.mark.parametrize(
    ("second", "trouble", "standing", "counts"),
    [
        (None, "", "alone", Outcome.FAIL),
        (Outcome.FAIL, "", "confirmed", Outcome.FAIL),
        (Outcome.FAIL, "the budget ended", "confirmed", Outcome.FAIL),
        (Outcome.PASS, "", "not-repeated", Outcome.INCONCLUSIVE),
        (Outcome.PASS, "the budget ended", "not-repeated", Outcome.INCONCLUSIVE),
        (Outcome.INCONCLUSIVE, "", "unconfirmed", Outcome.INCONCLUSIVE),
        (Outcome.INCONCLUSIVE, "the budget ended", "unconfirmed", Outcome.INCONCLUSIVE),
        (None, "the budget ended", "unconfirmed", Outcome.INCONCLUSIVE),
    ],
)
def test_both_measurements_decide(second: Outcome | None, trouble: str, standing: str, counts: Outcome) -> None:
    (line,), _ = decide_lines(
        decision(gate("a/b", Outcome.FAIL)), decision(gate("a/b", second)) if second else None, trouble
    )
    assert (line.standing, line.decision) == (standing, counts)
    assert (trouble in line.note) is (standing == "unconfirmed" or not trouble)


def result(sides: Any, lines: list[GateLine], **more: Any) -> GateResult:
    fields: dict[str, Any] = {
        "run": sides.side(name="a"),
        "baseline": sides.side(name="b"),
        "older": (),
        "policy": load_policy("nightly"),
        "lines": tuple(lines),
        "missing": (),
        "drift": (),
        "waivers": (),
        "broken": (),
        "mended": (),
        "notes": (),
        "false_alarms": FalseAlarms(first=0.9, confirmed=0.05),
        "outcome": Outcome.FAIL,
    }
    return GateResult(**{**fields, **more})


def test_the_first_line_tells_a_confirmed_alarm_from_one_that_was_not_repeated(sides: Any) -> None:
    first = decision(
        gate("a/x", Outcome.FAIL, "loss: 3"), gate("b/x", Outcome.FAIL, "loss: 4"), gate("c/x", Outcome.PASS)
    )
    again = decision(gate("a/x", Outcome.FAIL), gate("b/x", Outcome.PASS))
    lines, _ = decide_lines(first, again)
    said = headline(result(sides, lines, confirmation=Confirmation(side=sides.side(name="c"))))
    assert (
        said == "FAIL against the baseline of 2026-03-01; confirmed: a/x (loss) fails in run-a and again in run-c; "
        "alarm not confirmed: b/x (loss) fails in run-a, not in run-c; 3 gates (1 fail, 1 inconclusive, 1 pass)"
    )


def test_annotations_cannot_be_forged_and_keep_their_number(sides: Any) -> None:
    hostile = "bad: 100 %\n::error::forged\r::warning::x"
    lines = [GateLine(gate=gate(f"g{i}:,/x", Outcome.FAIL, hostile), decision=Outcome.FAIL) for i in range(30)]
    said = workflow_commands(result(sides, lines))
    assert len(said.splitlines()) == 10 + 1
    assert all(line.startswith(("::error title=g", "::notice title=kvv gate::")) for line in said.splitlines())
    assert "title=g0%3A%2C/x::bad: 100 %25 :\\x3aerror::forged" in said
    assert document(result(sides, lines)).outcome == "fail"


def test_drift_that_fails_a_night_is_confirmed_too(sides: Any) -> None:
    policy = Policy.model_validate({"name": "p", "alpha": 0.01})
    old = sides.side(sides.bench([1] * 200), name="old")
    run, same = (sides.side(sides.bench([0] * lost + [1] * (200 - lost)), name=str(lost)) for lost in (16, 0))
    rng = np.random.default_rng(0)
    first = drift_of(run, [old], policy, rng)
    for second, repeated, outcome in ((run, True, Outcome.FAIL), (same, False, Outcome.INCONCLUSIVE)):
        (drift,) = repeated_drift(first, drift_of(second, [old], policy, rng))
        assert (drift.shown, drift.repeated) == (True, repeated)
        assert drift_outcomes([drift], wanted=True) == [outcome]
    assert drift_outcomes(first, wanted=False) == [Outcome.FAIL]
    alarms = [Drift(suite="bench", baseline="old", date="", pair=drift.pair, shown=False)] * 4
    assert false_alarms(policy, run, gated=[], drift=alarms).first == pytest.approx(4.0)


# --- false alarms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("alarm", [0.0016, 0.05, 0.4])
def test_two_measurements_against_one_baseline_alarm_together_more_often_than_by_chance(alarm: float) -> None:
    """Against SciPy's bivariate normal with correlation 1/2; independent runs would alarm together alarm^2 of the
    time.
    """
    h = norm.ppf(alarm)
    assert repeated_alarm(alarm) == pytest.approx(multivariate_normal.cdf([h, h], cov=[[1, 0.5], [0.5, 1]]), rel=1e-6)
    assert repeated_alarm(alarm, 0.0) == pytest.approx(alarm**2)
    assert alarm**2 < repeated_alarm(alarm) < alarm
    assert (repeated_alarm(0.0), repeated_alarm(1.0)) == (0.0, 1.0)


def test_by_default_at_most_one_night_in_a_hundred_alarms_before_any_confirmation(sides: Any) -> None:
    policy = load_policy("nightly")
    names = [entry.suite for entry in policy.benchmark]
    found = false_alarms(
        policy, sides.side(*(sides.bench([1] * 450 + [0] * 50, suite=name) for name in names)), gated=names
    )
    assert found.first <= 1.0
    assert 0 < found.confirmed < found.first / 5
