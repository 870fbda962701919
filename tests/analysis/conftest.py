"""Sides by hand, and three real finished runs shared by the tests of a worker."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kvv.analysis import CaseResult, RunSummary, SampleResult, SuiteResult, SummaryRow
from kvv.cases.suite import SuiteKind
from kvv.cli.main import main
from kvv.core import Area, Level, Outcome
from kvv.mockserver import MockConfig, MockServer

FACTS = {"data": "d1", "sampling": {"temperature": 1.0, "samples": 1}, "judge": None, "agent": None, "scorer": "1"}


class Sides:
    """Makes sides; a score of None is an open sample, a sequence is several samples of one case."""

    @staticmethod
    def bench(
        scores: Sequence[Any], *, suite: str = "bench", clusters: Sequence[str] = (), key: str = "correct", **facts: Any
    ) -> SuiteResult:
        cases = {}
        for i, given in enumerate(scores):
            samples = []
            for score in given if isinstance(given, (list, tuple)) else [given]:
                outcome = Outcome.INCONCLUSIVE if score is None else Outcome.PASS if score == 1 else Outcome.FAIL
                samples.append(
                    SampleResult(outcome=outcome, reason="", values={} if score is None else {key: float(score)})
                )
            cluster = clusters[i] if clusters else ""
            cases[f"{suite}/q{i}"] = CaseResult(
                area=Area.ACCURACY, level=Level.SHOULD, cluster=cluster, samples=tuple(samples)
            )
        row = SummaryRow(
            metric="accuracy", primary=True, value=0.5, low=0.4, high=0.6, n=len(scores), n_planned=len(scores)
        )
        return SuiteResult(
            id=suite, kind=SuiteKind.BENCHMARK, title=suite, facts={**FACTS, **facts}, rows=(row,), cases=cases
        )

    @staticmethod
    def contract(outcomes: Mapping[str, Outcome], *, suite: str = "params", reason: str = "not-refused") -> SuiteResult:
        cases = {
            name: CaseResult(
                area=Area.DECODING,
                level=Level.MUST,
                cluster="",
                samples=(SampleResult(outcome=outcome, reason=reason),),
            )
            for name, outcome in outcomes.items()
        }
        return SuiteResult(id=suite, kind=SuiteKind.CONTRACT, title=suite, facts={**FACTS, "data": None}, cases=cases)

    @classmethod
    def calls(cls, called: Sequence[bool]) -> SuiteResult:
        """A tool-call suite, in which every call is valid."""
        found = cls.bench([1] * len(called))
        cases = {}
        for (name, case), call in zip(found.cases.items(), called, strict=True):
            values = {"triggered": float(call), "schema_valid": float(call)}
            cases[name] = replace(case, samples=(SampleResult(outcome=Outcome.PASS, values=values),))
        return replace(found, cases=cases)

    @staticmethod
    def side(*suites: SuiteResult, name: str = "a", **more: Any) -> RunSummary:
        fields: dict[str, Any] = {
            "run_id": f"run-{name}",
            "date": "2026-03-01T12:00:00Z",
            "vendor": f"vendor-{name}",
            "model": "m",
            "base_url": "https://x.example/v1",
            "kvv_version": "1",
            "profile": "kimi-k3",
            "surface": "vendor",
            "preset": "",
            "verdict": "pass",
        }
        return RunSummary(**{**fields, "suites": {s.id: s for s in suites}, **more})


@pytest.fixture(scope="session")
def sides() -> Sides:
    return Sides()


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


Call = Callable[..., Said]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Said:
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            try:
                code = main([str(a) for a in arguments])
            except SystemExit as stop:
                code = int(stop.code or 0)
        return Said(code, stdout.getvalue(), stderr.getvalue())

    return run


def make_run(
    out: Path, *, accuracy: float, seed: int, faults: tuple[str, ...] = (), extra: tuple[str, ...] = ()
) -> Path:
    """One run of OCRBench's fixtures and a few parameter cases against the reference endpoint."""
    from kvv.cases.suite import load_suite
    from kvv.data import load
    from kvv.execution.answer_key import answer_entries

    key = answer_entries(load_suite("ocrbench").answer_key(load("ocrbench", fixture=True)))
    with MockServer(MockConfig(answers=key, accuracy=accuracy, seed=seed, faults=faults)) as server:
        arguments = [
            "run",
            "params",
            "ocrbench",
            "--data",
            "ocrbench=fixture",
            "--base-url",
            server.base_url,
            "--model",
            "kimi-k3",
            "-q",
            "--force",
        ]
        arguments += ["--case", "params/*/temperature*", "--case", "ocrbench/*", "--out", str(out), *extra]
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
            main(arguments)
    found = sorted(path.parent for path in out.glob("*/report.json"))
    assert found, said.getvalue()
    _as_one_endpoint(found[-1])
    return found[-1]


def _as_one_endpoint(folder: Path) -> None:
    """Nights of one service: each server of these tests had a port of its own, and a port that is free now may be taken
    when it is wanted again.
    """
    from kvv.reporting.finalize import FILES
    from kvv.storage.snapshot import build_view
    from kvv.storage.store import Store

    with Store.open(folder / "store.sqlite") as store:
        store.set_meta("base_url", "http://127.0.0.1:8000/v1")
        store.set_meta("vendor", "local-8000")
        store.flush()
        view = build_view(store)
    for name, render in FILES.items():
        (folder / name).write_text(render(view), "utf-8", newline="\n")


@dataclass(frozen=True)
class Runs:
    """``good`` and ``same``: all right; ``bad``: about half right, and a parameter that is not refused."""

    good: Path
    same: Path
    bad: Path


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("runs")
    good = make_run(root / "good", accuracy=1.0, seed=1)
    same = make_run(root / "same", accuracy=1.0, seed=2)
    bad = make_run(root / "bad", accuracy=0.5, seed=3, faults=("A05",))
    return Runs(good=good, same=same, bad=bad)
