"""A mode that is dead in every request is a verdict, by the report and by what `kvv score` makes of the store again."""

from __future__ import annotations

import json
from typing import Any


def answer(_: int, __: dict[str, str], body: bytes) -> dict[str, Any]:
    """Whole requests are answered, streamed ones never."""
    asked = json.loads(body)
    if asked.get("stream"):
        return {"status": 500, "body": b'{"error": {"message": "boom", "type": "server_error"}}'}
    message = {"role": "assistant", "content": "ready"}
    told = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": asked["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
    }
    return {"body": json.dumps(told).encode()}


def test_a_server_that_answers_no_stream_is_failed_for_that_and_again_from_its_store(kvv_cli: Any, serve: Any) -> None:
    with serve(answer) as server:
        ran = kvv_cli(
            *("check", "params", "--case", "params/accepted/*", "--base-url", server.url),
            *("--model", "any-model", "--profile", "openai"),
        )
    [found] = ran.report["features"]
    assert (found["feature"], found["asked"], found["others_failed"]) == ("streamed", found["failed"], 0)
    assert found["failed"] >= 12
    gate = next(gate for gate in ran.report["gates"] if gate["id"] == "failures/streamed")
    assert (gate["verdict"], gate["area"], ran.report["areas"]["streaming"]) == ("fail", "streaming", "fail")
    assert f"0 of {found['asked']} streamed requests were answered" in gate["reason"]
    assert ran.code == 1

    # whole requests of each case stood beside the dead ones: what is not streamed is judged
    whole = [check for check in ran.report["checks"] if check["id"].endswith("/whole")]
    assert {check["verdict"] for check in whole} == {"pass"}
    streamed = [check for check in ran.report["checks"] if check["id"].endswith("/stream")]
    assert {check["verdict"] for check in streamed} == {"inconclusive"}
    assert all("the plainest request" in check["detail"] for check in streamed)

    again = kvv_cli("score", str(ran.folder))
    assert again.code == 1
    assert again.report["features"] == ran.report["features"]
    assert again.report["gates"] == ran.report["gates"]
