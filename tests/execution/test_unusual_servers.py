"""Servers that are correct but unusual: no verifier may accuse one. And a stock engine, judged as an engine."""

from __future__ import annotations

import asyncio
import fnmatch
from typing import Any

import pytest

from kvv.core import Level, Outcome, Surface
from kvv.mockserver import MockConfig, MockServer
from kvv.mockserver.faults import QUIRKS
from kvv.selftest.drive import Observed, SelftestSetting, every_case, observe

#: a sample of every contract suite: texts, forced and free calls, refusals, formats, counts, thinking
CASES = (
    "params/omitted/*",
    "params/accepted/*",
    "params/stop/*",
    "params/max-tokens/*",
    "params/type/temperature-string/*",
    "tool_choice/required/fitting/*",
    "tool_choice/none/question/*",
    "tool_choice/auto-calls/said/*",
    "response_format/json-schema/nested/*",
    "response_format/malformed/no-schema/*",
    "usage/adds-up/*",
    "usage/same-streamed-and-not*",
    "thinking/on/*",
    "thinking/history-as-sent/*",
    "errors/not-json/cut*",
    "errors/messages/no-role*",
    "errors/envelope/*",
    "dynamic_tools/position/first/*",
    "streaming/same/*",
    "streaming/usage/*",
    "streaming/cut/arguments/*",
    "tools/parallel/*",
    "tools/loop/*",
)

OPENAI = SelftestSetting(profile="openai", variant="openai")
KIMI = SelftestSetting(profile="kimi-k3", variant="kimi-k3")
ENGINE = SelftestSetting(profile="kimi-k3", surface=Surface.ENGINE, variant="vllm")

#: what the Kimi profile, which promises more than the OpenAI API does, has to say of each behaviour; nothing where not
#: named
KIMI_FINDINGS = {
    "extra-fields": {"delta/end-empty"},
    "null-deltas": {"delta/null"},
    "reasoning-field": {"delta/boundary", "delta/reasoning-field"},
    "whole-arguments": {"tools/first-arguments"},
    "flat-error": {"errors/envelope"},
}
#: should-level cases of which a behaviour is the very subject
KIMI_FAILS = {"flat-error": "errors/envelope/*", "reasoning-field": "thinking/field/*"}


def seen(setting: SelftestSetting, quirk: str) -> Observed:
    cases = [
        planned for planned in every_case(setting) if any(fnmatch.fnmatchcase(planned.case.id, glob) for glob in CASES)
    ]
    assert len(cases) > 40
    return asyncio.run(observe(setting, (f"quirk:{quirk}",) if quirk else (), cases))


def failed(observed: Observed, *levels: Level) -> set[str]:
    found = [
        (case, verdict)
        for case, verdict in observed.verdicts.values()
        if verdict.outcome in (Outcome.FAIL, Outcome.ERROR)
    ]
    return {case.id for case, _ in found if not levels or case.level in levels}


def open_cases(observed: Observed) -> set[str]:
    return {case.id for case, verdict in observed.verdicts.values() if verdict.outcome is Outcome.INCONCLUSIVE}


def rules(observed: Observed, *levels: Level) -> set[str]:
    return {rule for rule, _, level in observed.findings if level in levels}


def test_the_expectations_name_quirks_that_there_are() -> None:
    assert {*KIMI_FINDINGS, *KIMI_FAILS} <= set(QUIRKS)


@pytest.mark.parametrize("quirk", ["", *sorted(QUIRKS)])
def test_the_openai_profile_finds_no_fault_with_it(quirk: str) -> None:
    observed = seen(OPENAI, quirk)
    assert failed(observed) == set()
    assert open_cases(observed) == set()
    assert rules(observed, Level.MUST, Level.SHOULD) == set()


@pytest.mark.parametrize("quirk", ["", *sorted(QUIRKS)])
def test_the_kimi_profile_names_what_differs_and_no_more(quirk: str) -> None:
    observed = seen(KIMI, quirk)
    assert rules(observed, Level.MUST) == set()
    assert rules(observed, Level.SHOULD) == KIMI_FINDINGS.get(quirk, set())
    assert {name for name in failed(observed) if not fnmatch.fnmatchcase(name, KIMI_FAILS.get(quirk, ""))} == set()
    assert open_cases(observed) == set()


def test_a_stock_engine_is_green_as_an_engine() -> None:
    """vLLM-like: any sampling in range, thinking through chat_template_kwargs, `reasoning`, three more prompt
    tokens.
    """
    observed = seen(ENGINE, "")
    assert failed(observed) == set()
    assert rules(observed, Level.MUST, Level.SHOULD) == set()


def test_the_same_engine_is_not_green_as_a_vendor(kvv_cli: Any) -> None:
    with MockServer(MockConfig(variant="vllm")) as server:
        engine = kvv_cli(
            "check", "params", "--base-url", server.base_url, "--model", "kimi-k3", "--surface", "engine", "-q"
        )
        vendor = kvv_cli("check", "params", "--base-url", server.base_url, "--model", "kimi-k3", "-q")
    assert engine.code == 0, engine.said
    assert vendor.code == 1
    assert any(
        row["id"].startswith("params/rejected/") and row["verdict"] == "fail" and row["level"] == "must"
        for row in vendor.report["checks"]
    )
