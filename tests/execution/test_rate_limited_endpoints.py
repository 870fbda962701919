"""A run over real sockets against endpoints with a rate limit: every question is answered, at the endpoint's speed."""

from __future__ import annotations

import json
import threading
from time import monotonic
from typing import Any

import pytest

ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "\\boxed{1}"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
).encode()
SLOW_DOWN = {
    "status": 429,
    "body": json.dumps({"error": {"message": "slow", "type": "rate_limit_reached_error"}}).encode(),
}


@pytest.mark.parametrize(("rate", "headers"), [(5.0, {"Retry-After": "1"}), (20.0, {}), (50.0, {})])
def test_a_rate_limit_loses_no_question(rate: float, headers: dict[str, str], kvv_cli: Any, serve: Any) -> None:
    lock = threading.Lock()
    level, at, refused = 5.0, monotonic(), 0

    def answer(*_: object) -> dict[str, Any]:
        nonlocal level, at, refused
        with lock:
            now = monotonic()
            level, at = min(5.0, level + rate * (now - at)), now
            if level >= 1:
                level -= 1
                return {"body": ANSWER}
            refused += 1
            return {**SLOW_DOWN, "headers": headers}

    with serve(answer) as server:
        ran = kvv_cli(
            *("run", "aime2025", "--data", "aime2025=fixture", "--samples", "3", "--no-stream"),
            *("--model", "any-model", "--concurrency", "64", "--base-url", server.url),
        )
    row = ran.row("aime2025")
    assert refused > 0
    assert row["n_concluded"] == row["n_planned"] == 36
    assert ran.report["trouble"] == ""
