"""A gateway that hands one name's requests to several providers, over real sockets."""

from __future__ import annotations

import json
from typing import Any


def completion(body: bytes, **more: str) -> bytes:
    asked = json.loads(body)
    choice = {"index": 0, "message": {"role": "assistant", "content": "\\boxed{1}"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    whole = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": asked["model"],
        "choices": [choice],
        "usage": usage,
    }
    return json.dumps({**whole, **more}).encode()


def test_a_gateway_that_changes_providers_decides_nothing_until_one_is_pinned(kvv_cli: Any, serve: Any) -> None:
    """It names the provider in a header and has another fingerprint with every answer; a pinned one stays."""

    def answer(number: int, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        order = json.loads(body).get("provider", {}).get("order")
        provider = order[0] if order else ("one", "two")[number % 2]
        told = {"x-inference-provider": provider, "x-provider-request-id": f"{number}"}
        return {"body": completion(body, system_fingerprint=f"fp_{number}"), "headers": told}

    with serve(answer) as gateway:
        asked = (
            "run",
            "aime2025",
            "--data",
            "aime2025=fixture",
            "--limit",
            "6",
            "--samples",
            "2",
            "--no-stream",
            "--model",
            "kimi-k3",
        )
        asked += ("--base-url", gateway.url)
        pinned = ("--provider", "one")
        kvv_cli(*asked, *pinned, "--as-reference", "official.jsonl")
        loose = kvv_cli(*asked, "--reference", "official.jsonl")
        (gate,) = [gate for gate in loose.report["gates"] if gate["id"].startswith("aime2025/")]
        assert gate["verdict"] == "inconclusive"
        assert gate["reason"].startswith("mixed-upstream: 2 upstreams answered behind one name (")
        assert gate["reason"].endswith("; pin one with --provider")
        assert set(loose.report["endpoint"]["upstreams"]) == {"one", "two"}
        assert loose.code == 3
        kept = kvv_cli(*asked, *pinned, "--reference", "official.jsonl")
        (gate,) = [gate for gate in kept.report["gates"] if gate["id"].startswith("aime2025/")]
        # so few questions show nothing, but they are judged
        assert gate["reason"].startswith("cannot-tell")
        assert set(kept.report["endpoint"]["upstreams"]) == {"one"}
        assert len(kept.report["endpoint"]["fingerprints"]) >= 12
        assert "system fingerprints: fp_" in (kept.folder / "report.md").read_text("utf-8")
