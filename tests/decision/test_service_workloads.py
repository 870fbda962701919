"""Of which answers a service level is: those of a workload, and of a tier of prompt lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from kvv.decision import LatencyTally
from kvv.profiles.policy import Policy, PolicyError, parse_policy
from kvv.storage.snapshot import _answers
from kvv.storage.store import Store, TimingSample
from kvv.storage.view import timing_of


def reason(**level: Any) -> str:
    policy = Policy.model_validate(
        {"name": "p", "service_level": [{"id": "ttft", "measure": "ttft_ms", "limit": 1000, "share": 0.9, **level}]}
    )
    return LatencyTally(policy).gates()[0].reason


def test_a_level_of_an_unknown_workload_would_measure_nothing_and_is_refused() -> None:
    level = {"id": "x", "measure": "itl_ms", "limit": 50, "workload": "chats"}
    with pytest.raises(PolicyError) as error:
        parse_policy(
            'name = "p"\n[[service_level]]\n' + "".join(f"{name} = {value!r}\n" for name, value in level.items()),
            "p.toml",
        )
    assert "workload" in str(error.value)


def test_the_reason_says_of_which_answers() -> None:
    level = {"workload": "agentic", "min_prompt_tokens": 1000, "max_prompt_tokens": 8000}
    assert "ttft_ms at most 1000 for 90 % of agentic requests with prompts of 1,000 to 8,000 tokens" in reason(**level)
    assert reason().endswith("(ttft_ms at most 1000 for 90 %)")


def test_turns_of_an_agent_in_a_sandbox_are_the_agentic_workload() -> None:
    class Stored:
        def meta(self) -> dict[str, Any]:
            return {"suites": [{"id": name} for name in ("swebench", "ocrbench", "params")]}

        def timing_samples(self) -> Iterator[TimingSample]:
            for case, itl in (("swebench/a", 80.0), ("ocrbench/q1", 20.0), ("params/x", 30.0)):
                yield TimingSample(
                    case=case,
                    sample=0,
                    stream=True,
                    prompt_tokens=10,
                    cached_tokens=0,
                    completion_tokens=9,
                    first_token_ms=5.0,
                    itl_p50_ms=itl,
                    tokens_per_s=9.0,
                    total_ms=100.0,
                )

    levels = [{"id": name, "measure": "itl_ms", "limit": 50, "workload": name} for name in ("chat", "agentic")]
    tally = LatencyTally(Policy.model_validate({"name": "p", "service_level": levels}))
    timing = timing_of(_answers(cast("Store", Stored()), tally, ()))
    assert ["2 of 2 requests" in tally.gates()[0].reason, "0 of 1 requests" in tally.gates()[1].reason] == [True, True]
    assert [(name, q.n, q.p50) for name, q in timing.itl_by_workload] == [("chat", 2, 25.0), ("agentic", 1, 80.0)]
