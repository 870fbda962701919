"""`kvv load` against the mock server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvv.core import Choice, Observation, Shape, ToolCall
from kvv.execution.load.mix import Mix
from kvv.mockserver import MockConfig, MockServer
from kvv.planning.config import ConfigError, load_config
from kvv.planning.load_config import load_config_of
from kvv.profiles.profile import load_profile

PROFILE = load_profile("kimi-k3")


def mix_of(**options: Any) -> Mix:
    return Mix(load_config({}, environ={}), load_config_of(options), PROFILE, "kimi-k3")


@pytest.fixture(scope="module")
def busy_server() -> Iterator[str]:
    """Half of its tool calls are damaged while more than three requests are under way."""
    with MockServer(MockConfig(ttft_ms=15, itl_ms=0.2, faults=("J10:busy3",))) as server:
        yield server.base_url


def data_of(root: Path) -> dict[str, Any]:
    (path,) = root.glob("*/load.json")
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def test_right_at_low_load_and_broken_calls_at_a_higher_one(kvv_cli: Any, busy_server: str, tmp_path: Path) -> None:
    ran = kvv_cli(
        *("load", "--base-url", busy_server, "--model", "kimi-k3", "--out", str(tmp_path / "o"), "--mix", "agent"),
        *("--concurrency", "3,12", "--known", "1", "--requests", "70", "--prompt-tokens", "200"),
        *("--output-tokens", "20", "--level", "ttft-under-4k=5000", "--level", "itl-agent=500", "-q"),
    )
    data = data_of(tmp_path / "o")
    low, high = data["steps"]
    assert (data["knee"], data["first_missed"]) == (3, 12)
    assert "12 misses tool call" in data["headline"]
    assert ran.code == 0
    calls = [next(row for row in each["known_answers"] if row["kind"] == "tool call") for each in (low, high)]
    assert calls[0]["wrong"] == 0
    assert calls[1]["worse"]
    assert any(one["what"] == "tool call" and one["load"] == 12 for one in data["examples"])
    assert low["ttft_ms"]["p50"]["value"] >= 15
    page = next((tmp_path / "o").glob("*/load.html")).read_text("utf-8")
    assert page.count("<circle") == 4
    assert "known answer" in next((tmp_path / "o").glob("*/load.md")).read_text("utf-8")


def test_a_budget_ends_the_ladder_and_what_was_measured_is_reported(
    kvv_cli: Any, busy_server: str, tmp_path: Path
) -> None:
    ran = kvv_cli(
        *("load", "--base-url", busy_server, "--model", "kimi-k3", "--out", str(tmp_path / "o"), "-q"),
        *("--rate", "50,100", "--requests", "40", "--prompt-tokens", "200", "--output-tokens", "20"),
        *("--warmup", "0", "--max-requests", "60"),
    )
    data = data_of(tmp_path / "o")
    assert ran.code == 5
    assert (data["ended_early"], [each["requests"] for each in data["steps"]]) == ("max-requests", [40, 20])
    assert data["traffic"]["requests"] == 60


def test_a_dead_endpoint_keeps_no_load_and_misses_none(kvv_cli: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("kvv.execution.load.ladder.PAUSE_S", 0.01)
    ran = kvv_cli(
        *("load", "--base-url", "http://127.0.0.1:9/v1", "--model", "kimi-k3", "--out", str(tmp_path / "o")),
        *("--concurrency", "4", "--requests", "20", "--warmup", "0", "-q"),
    )
    data = data_of(tmp_path / "o")
    assert (ran.code, data["verdict"], data["ended_early"]) == (3, "inconclusive", "unreachable-connect")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rate", "1", "--concurrency", "1"], "--rate: give --concurrency or --rate, not both"),
        (["--concurrency", "0"], "--concurrency:"),
        (["--mix", "nothing.jsonl"], "--mix: 'nothing.jsonl' is neither chat nor agent nor a file of requests"),
        (["--level", "fast=1"], "--level: the policy has no 'fast'"),
        (["--policy", "smoke"], "--policy: smoke has no [[service_level]]"),
        (["--prompt-tokens", "2M"], "--prompt-tokens:"),
    ],
)
def test_wrong_options_are_named_in_one_line(kvv_cli: Any, options: list[str], said: str) -> None:
    ran = kvv_cli("load", *options)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_a_costly_ladder_wants_the_users_word(kvv_cli: Any) -> None:
    ran = kvv_cli("load", "--base-url", "https://example.invalid/v1", "--model", "kimi-k3", "--prompt-tokens", "1M")
    assert ran.code == 2
    assert "say --yes" in ran.err


# --- what is sent -----------------------------------------------------------------------------------------


def prompt(asked: Any) -> tuple[str, str]:
    first, second = asked.request.body["messages"]
    return first["content"], second["content"]


def test_prompts_have_the_stated_length_and_share_only_the_stated_prefix() -> None:
    mix = mix_of(prompt_tokens="8k", cached=0.25, known=0)
    (system, one), (same, other) = prompt(mix.next()), prompt(mix.next())
    assert system == same
    assert len(system.split()) == pytest.approx(2000, abs=20)
    assert len((system + " " + one).split()) == pytest.approx(8000, abs=60)
    assert one.split()[:3] != other.split()[:3]


def test_without_a_shared_prefix_prompts_begin_differently_at_once() -> None:
    mix = mix_of(prompt_tokens="1k")
    (_, one), (_, other) = prompt(mix.next()), prompt(mix.next())
    assert one[:20] != other[:20]


@pytest.mark.parametrize("known", [0, 0.25, 1])
def test_the_share_of_known_answers_is_exact(known: float) -> None:
    mix = mix_of(prompt_tokens="200", known=known)
    assert sum(mix.next().expect is not None for _ in range(40)) == 40 * known


def test_the_same_seed_asks_the_same() -> None:
    one, other = mix_of(), mix_of()
    assert [one.next() for _ in range(5)] == [other.next() for _ in range(5)]


def wanted(kind: str, mix: str) -> Any:
    made = mix_of(mix=mix, prompt_tokens="200", known=1)
    return next(one for one in (made.next() for _ in range(100)) if one.kind == kind)


def observed(answer: str | None = None, *calls: ToolCall, finish: str = "stop") -> Observation:
    return Observation(
        shape=Shape.COMPLETION, choices=(Choice(index=0, answer=answer, tool_calls=calls, finish_reason=finish),)
    )


def test_an_echo_is_exact_and_a_needle_is_found() -> None:
    echo, needle = wanted("echo", "chat"), wanted("needle", "chat")
    assert echo.judge(observed(f" {echo.expect}\n")) is True
    assert echo.judge(observed(f"{echo.expect}.")) is False
    assert echo.judge(observed(echo.expect[:30], finish="length")) is None
    assert needle.expect in prompt(needle)[1]
    assert needle.judge(observed(f"The password is {needle.expect}.")) is True
    assert needle.judge(observed("The password is 12345678.")) is False


def test_a_call_has_the_fixed_arguments_in_value_and_type() -> None:
    asked = wanted("tool call", "agent")

    def call(arguments: dict[str, Any], name: str = "book_shipment") -> ToolCall:
        return ToolCall(index=0, id="a", name=name, arguments=json.dumps(arguments))

    right = dict(asked.expect)
    assert asked.judge(observed(None, call(right))) is True
    assert asked.judge(observed(None, call({**right, "crates": float(right["crates"])}))) is False
    assert asked.judge(observed(None, call({**right, "more": 1}))) is False
    assert asked.judge(observed(None, call(right), call(right))) is False
    assert asked.judge(observed(None, call(right, "book"))) is False
    assert asked.judge(observed(None, ToolCall(index=0, id="a", name="book_shipment", arguments="{"))) is False
    assert asked.judge(observed("done")) is False


def test_own_requests_are_asked_in_turn_under_the_runs_model(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    plain = {"messages": [{"role": "user", "content": "a"}], "model": "other", "stream": False}
    path.write_text(json.dumps(plain) + "\n\n" + json.dumps({"body": plain, "expect": "yes", "workload": "agentic"}))
    mix = mix_of(mix=str(path))
    first, second, third = mix.next(), mix.next(), mix.next()
    assert first == third
    assert first.request.body["model"] == "kimi-k3"
    assert (first.request.stream, first.expect, second.expect, second.workload) == (False, None, "yes", "agentic")
    assert second.judge(observed("yes")) is True


@pytest.mark.parametrize("line", ["{", "[]", '{"messages": "x"}', '{"body": {"messages": []}, "expect": 3}', ""])
def test_a_wrong_line_of_own_requests_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ConfigError, match=r"own\.jsonl(:1: | holds no request)"):
        mix_of(mix=str(path))


def test_random_bytes_are_no_requests(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_bytes(Random(0).randbytes(200))
    with pytest.raises(ConfigError, match="--mix"):
        mix_of(mix=str(path))
