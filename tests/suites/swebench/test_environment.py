"""The environment is tried before the endpoint: what keeps a right patch from being resolved is never the vendor's
loss.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kvv.core import Ask, Case, Done, Exec, Outcome, Reply, Verdict
from kvv.execution.scheduling.trees import Trees, slots
from kvv.sandbox import Sandbox
from kvv.suites.swebench.grading import official_report
from kvv.suites.swebench.infrastructure import cause_of
from kvv.suites.swebench.prompts import MARK

from .conftest import SUITE, Instance, context
from .test_agent_fold import call, output, run

COMMAND = "python3 -m unittest -v tests.test_spans"


def changed(instance: Instance, command: str = COMMAND, **fields: Any) -> Case:
    grade = instance.case.inputs["grade"]
    assert COMMAND in grade["eval_script"]
    script = grade["eval_script"].replace(COMMAND, command)
    return replace(
        instance.case,
        inputs={**instance.case.inputs, "controls": True, "grade": {**grade, "eval_script": script, **fields}},
    )


def first_words(case: Case, sandbox: Sandbox) -> Verdict | Ask:
    """What a sample comes to before a model is asked."""

    async def whole() -> Verdict | Ask:
        trees, history = Trees(sandbox, case, slots()), list[Reply]()
        try:
            while True:
                match SUITE.step(case, history):
                    case Done(verdict=verdict):
                        return verdict
                    case Exec() as step:
                        assert step.shared
                        history.append(await trees.run(step))
                    case ask:
                        return ask
        finally:
            await trees.close()
            await sandbox.close()

    return asyncio.run(whole())


@pytest.fixture
def instance(instances: dict[str, Instance]) -> Instance:
    return instances["kvv__intervals-1"]


def test_where_gold_passes_and_the_base_fails_the_model_is_asked(instance: Instance, sandbox: Sandbox) -> None:
    assert isinstance(first_words(changed(instance), sandbox), Ask)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-runner --all", "missing-runner"),
        ("python3 -m pytest_is_not_here", "environment-broken"),
        ("python3 -m unittest discover -v -s intervals", "no-tests-collected"),
        ("python3 -c 'import socket; socket.getaddrinfo(\"mirror.invalid\", 80)'", "no-network"),
        ("python3 -c 'x = bytearray(1 << 40)'", "out-of-memory"),
        ("python3 -c 'raise SystemExit(1)'", "environment-broken"),
    ],
)
def test_tests_that_cannot_run_are_inconclusive_with_their_cause(
    instance: Instance, sandbox: Sandbox, command: str, reason: str
) -> None:
    found = first_words(changed(instance, command), sandbox)
    assert isinstance(found, Verdict)
    assert (found.outcome, found.reason, dict(found.values)) == (Outcome.INCONCLUSIVE, reason, {})
    assert found.facts == {"environment": reason}
    assert found.detail.startswith("the reference patch is not resolved: tests-did-not-run: ")


def test_a_reference_that_is_not_resolved_and_a_base_that_is_are_inconclusive(
    instance: Instance, sandbox: Sandbox
) -> None:
    grade = instance.case.inputs["grade"]
    unsolved = first_words(changed(instance, f2p=[*grade["f2p"], "test_gone (tests.Gone)"]), sandbox)
    assert isinstance(unsolved, Verdict)
    assert (unsolved.outcome, unsolved.reason) == (Outcome.INCONCLUSIVE, "environment-broken")
    assert "test_gone (tests.Gone)" in unsolved.detail
    solved = first_words(changed(instance, f2p=grade["p2p"], p2p=[]), sandbox)
    assert isinstance(solved, Verdict)
    assert (solved.outcome, solved.reason) == (Outcome.INCONCLUSIVE, "base-resolved")


def test_without_a_reference_patch_the_base_tells_of_a_runner_that_is_missing(
    instance: Instance, sandbox: Sandbox
) -> None:
    found = first_words(changed(instance, "no-such-runner", reference=""), sandbox)
    assert isinstance(found, Verdict)
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "missing-runner")
    assert isinstance(first_words(changed(instance, reference=""), sandbox), Ask)


LOG = ": '>>>>> Start Test Output'\n{}\n: '>>>>> End Test Output'\n>>>>> Test Exit Code: {}\n"
#: one submission, applied at once, its tests run
SUBMITTED: list[Reply] = [call(run("s")), output(f"{MARK}\ndiff --git a/x b/x\n"), output(), output(), output()]


def graded(case: Case, log: str, code: int, *, proven: bool, **fields: Any) -> Verdict:
    passed = "\n".join(f"{test} ... ok" for test in case.inputs["grade"]["f2p"] + case.inputs["grade"]["p2p"])
    history: list[Reply] = [*SUBMITTED, output(LOG.format(log, code), **fields)]
    if proven:
        gold: list[Reply] = [output(), output(), output(), output(LOG.format(passed, 0)), output()]
        history = [*gold, output(), output(LOG.format("x", 1)), output(), *history]
    case = replace(case, inputs={**case.inputs, "controls": proven})
    step = SUITE.step(case, history)
    assert isinstance(step, Done)
    return step.verdict


def test_beside_a_control_a_patch_is_to_blame_for_tests_that_do_not_run_and_without_one_nobody(
    instance: Instance,
) -> None:
    log = "bash: no-such-runner: command not found"
    without = graded(instance.case, log, 127, proven=False)
    assert (without.outcome, without.reason) == (Outcome.INCONCLUSIVE, "missing-runner")
    assert official_report("x", "p", without.facts)["x"]["infra_failure"] is True
    beside = graded(instance.case, log, 127, proven=True)
    assert (beside.outcome, beside.reason) == (Outcome.FAIL, "tests-did-not-run")
    assert beside.facts["environment"] == "proven"
    assert official_report("x", "p", beside.facts)["x"]["infra_failure"] is False
    silent = graded(instance.case, "bye", 0, proven=False)
    assert (silent.outcome, silent.reason) == (Outcome.FAIL, "tests-did-not-run")


def test_the_sandboxes_own_bound_of_memory_is_nobodys_loss(instance: Instance) -> None:
    found = graded(instance.case, "", 137, proven=True, killed="memory")
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "out-of-memory")


@pytest.mark.parametrize(
    ("said", "code", "cause"),
    [
        ("/eval.sh: line 9: pytest: command not found", 127, "missing-runner"),
        ("/usr/bin/python: No module named pytest", 1, "missing-runner"),
        ("No module named flask", 1, ""),
        ("go: dial tcp: lookup proxy.golang.org: no such host", 1, "no-network"),
        ("Temporary failure in name resolution", 1, "no-network"),
        ("java.lang.OutOfMemoryError: Java heap space", 1, "out-of-memory"),
        ("collected 0 items", 5, "no-tests-collected"),
        ("collected 10 items", 1, ""),
        ("OSError: [Errno 28] No space left on device", 1, "out-of-disk"),
        ("1 failed", 1, ""),
    ],
)
def test_causes_are_read_from_what_the_tests_said(said: str, code: int, cause: str) -> None:
    assert cause_of(said, code) == cause


def test_whose_an_unresolved_sample_is_stands_apart(instance: Instance) -> None:
    case = instance.case
    verdicts = [
        replace(graded(case, "bash: x: command not found", 127, proven=False), sample=0),
        replace(graded(case, "bash: x: command not found", 127, proven=True), sample=1),
        replace(graded(case, "bye", 0, proven=True), reason="step-limit", sample=2),
    ]
    (resolved, *_) = SUITE.metrics([(case, verdict) for verdict in verdicts], context())
    assert resolved.breakdown["unresolved_by"] == {
        "vendor": {"tests-did-not-run": 1},
        "agent": {"step-limit": 1},
        "infrastructure": {"missing-runner": 1},
    }
    assert resolved.breakdown["environments"] == {"proven": 2, "untried": 1}
    assert (resolved.n_planned, resolved.n_concluded) == (3, 2)
