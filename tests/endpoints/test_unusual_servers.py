"""Servers that are correct but unusual: no verifier may accuse one. And a stock engine, judged as an engine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kvv.reference import ReferenceConfig, ReferenceServer
from kvv.reference.faults import QUIRKS

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
    "streaming/*",
    "tools/*parallel*",
)

#: what the Kimi profile, which promises more than the OpenAI API does, has to say of each behaviour; nothing where not named
EXPECTED: dict[str, set[str]] = {}


def check(kvv_cli: Any, base_url: str, *arguments: str) -> Any:
    globs = [part for glob in CASES for part in ("--case", glob)]
    return kvv_cli("check", "--base-url", base_url, "--model", "kimi-k3", *globs, *arguments, "-q")


def failed(report: dict[str, Any]) -> dict[str, str]:
    return {row["id"]: f"{row['level']} {row['reason']}" for row in report["checks"] if row["verdict"] in ("fail", "error")}


def findings(report: dict[str, Any], *levels: str) -> set[str]:
    return {row["rule"] for row in report["findings"] if row["level"] in levels}


def test_every_quirk_of_the_reference_endpoint_is_known_here() -> None:
    assert set(EXPECTED) <= set(QUIRKS)
    assert set(QUIRKS) >= {"comments", "crlf", "split", "merged", "null-deltas", "extra-fields", "whole-arguments", "gzip", "flat-error"}


@pytest.mark.parametrize("quirk", sorted(QUIRKS))
def test_the_openai_profile_finds_no_fault_with_it(quirk: str, kvv_cli: Any) -> None:
    with ReferenceServer(ReferenceConfig(variant="openai", faults=(f"quirk:{quirk}",))) as server:
        ran = check(kvv_cli, server.base_url, "--profile", "openai")
    assert failed(ran.report) == {}
    assert findings(ran.report, "must") == set()
    assert ran.code == 0, ran.said


@pytest.mark.parametrize("quirk", sorted(QUIRKS))
def test_the_kimi_profile_shows_what_differs_and_no_more(quirk: str, kvv_cli: Any) -> None:
    with ReferenceServer(ReferenceConfig(faults=(f"quirk:{quirk}",))) as server:
        ran = check(kvv_cli, server.base_url)
    assert findings(ran.report, "must") == set()
    assert findings(ran.report, "should", "may") == EXPECTED.get(quirk, set())
    assert {name: why for name, why in failed(ran.report).items() if why.startswith("must")} == {}
    assert ran.code == 0, ran.said


def test_a_stock_engine_is_green_as_an_engine_and_not_as_a_vendor(kvv_cli: Any, tmp_path: Path) -> None:
    """vLLM-like: any sampling in range, thinking through chat_template_kwargs, `reasoning`, three more prompt tokens."""
    with ReferenceServer(ReferenceConfig(variant="vllm")) as server:
        engine = check(kvv_cli, server.base_url, "--surface", "engine")
        vendor = kvv_cli("check", "params", "--base-url", server.base_url, "--model", "kimi-k3", "-q", out=tmp_path / "vendor")
    counts = Counter(row["level"] for row in engine.report["checks"] if row["verdict"] == "fail")
    assert counts["must"] == 0
    assert findings(engine.report, "must") == set()
    assert engine.code == 0, engine.said
    assert vendor.code == 1
    assert any(row["id"].startswith("params/rejected/") and row["verdict"] == "fail" for row in vendor.report["checks"])
