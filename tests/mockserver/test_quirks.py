"""Unusual but correct behaviour: the message that a client reads is the same as from a plain server."""

import zlib
from typing import Any

import pytest

from kvv.mockserver import QUIRKS

CALL: dict[str, Any] = {"prompt": 'First say "one moment" and then call get_weather with city "Zürich"'}
SAME_BYTES = {
    "rate-limit-1in5",
    "unavailable-1in7",
    "slow-first-token",
    "gzip",
    "close-each",
    "close-100",
    "flat-error",
    "merged",
    "split",
}


def test_the_catalogue_of_quirks():
    assert set(QUIRKS) == {
        "comments",
        "crlf",
        "split",
        "merged",
        "null-deltas",
        "extra-fields",
        "whole-arguments",
        "rate-limit-1in5",
        "unavailable-1in7",
        "slow-first-token",
        "gzip",
        "close-each",
        "close-100",
        "flat-error",
        "reasoning-field",
    }


@pytest.mark.parametrize("name", sorted(QUIRKS))
@pytest.mark.parametrize("stream", [True, False])
def test_the_message_is_the_same(serve, kimi, weather, name, stream):
    if name == "slow-first-token" and not stream:
        pytest.skip("one slow answer is enough")
    fields = {**CALL, "tools": [weather], "stream": stream, "temperature": 0}
    got = serve(faults=(f"quirk:{name}",), fresh=True).ask(**fields)
    assert got.status == 200
    assert got.message == kimi.ask(**fields).message


def stream_of(serve: Any, name: str, prompt: str = "Hello", **fields: Any) -> Any:
    return serve(faults=(f"quirk:{name}",)).ask(prompt, stream=True, **fields)


def test_comments_stand_alone(serve):
    assert stream_of(serve, "comments").raw.startswith(b": keep-alive\n\ndata: ")


def test_crlf_ends_every_line(serve):
    raw = stream_of(serve, "crlf").raw
    assert raw.count(b"\r\n") == raw.count(b"\n") > 0


def test_null_deltas(serve):
    deltas = stream_of(serve, "null-deltas").deltas
    assert all("tool_calls" in delta for delta in deltas[:-1])
    assert "role" not in deltas[1]


def test_extra_fields_at_every_level(serve):
    frame = stream_of(serve, "extra-fields").frames[1]
    assert {"x_provider"} <= frame.keys()
    assert {"x_choice"} <= frame["choices"][0].keys()


def test_whole_arguments_come_with_the_name(serve, weather):
    got = stream_of(serve, "whole-arguments", 'call get_weather with city "Paris"', tools=[weather])
    (entry,) = [delta["tool_calls"][0] for delta in got.deltas if "tool_calls" in delta]
    assert entry["function"] == {"name": "get_weather", "arguments": '{"city":"Paris","unit":"c"}'}


@pytest.mark.parametrize(("name", "every", "status"), [("rate-limit-1in5", 5, 429), ("unavailable-1in7", 7, 503)])
def test_busy_at_a_fixed_rate_with_retry_after(serve, name, every, status):
    client = serve(faults=(f"quirk:{name}",), fresh=True)
    answers = [client.ask("x") for _ in range(2 * every)]
    assert [at for at, got in enumerate(answers) if got.status == status] == [every - 1, 2 * every - 1]
    assert answers[every - 1].headers["retry-after"] == "0"
    assert answers[every - 1].body["error"]["type"]


def test_gzip_is_flushed_event_by_event(serve):
    client = serve(faults=("quirk:gzip",))
    body = {"model": "kimi-k3", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    with client.http.stream("POST", "/chat/completions", json=body) as response:
        assert response.headers["content-encoding"] == "gzip"
        raw = b"".join(response.iter_raw())
    unpacker = zlib.decompressobj(wbits=31)
    assert unpacker.decompress(raw[:400]).startswith(b"data: ")


def test_connections_are_closed_as_announced(serve):
    assert stream_of(serve, "close-each").headers["connection"] == "close"
    client = serve(faults=("quirk:close-100",), fresh=True)
    headers = [
        client.ask("Reply with exactly: a", reasoning_effort="low").headers.get("connection") for _ in range(101)
    ]
    assert [at for at, value in enumerate(headers) if value == "close"] == [99]


def test_flat_errors(serve):
    got = serve(faults=("quirk:flat-error",)).ask("x", temperature=9)
    assert got.status == 400
    assert got.body.keys() == {"message", "type"}


def test_the_other_reasoning_field(serve):
    client = serve(faults=("quirk:reasoning-field",))
    assert b"reasoning_content" not in client.ask("x", stream=True).raw
    assert client.ask("x").body["choices"][0]["message"]["reasoning"]


def test_split_writes_end_inside_events(serve):
    client = serve(faults=("quirk:split",))
    body = {"model": "kimi-k3", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    with client.http.stream("POST", "/chat/completions", json=body) as response:
        pieces = list(response.iter_raw())
    assert len([piece for piece in pieces if not piece.endswith(b"\n\n")]) > 10
