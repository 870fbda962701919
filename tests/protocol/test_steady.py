"""The envelope of a steady stream is found only where it is certain."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kvv.core import Frame
from kvv.protocol.increments import IncrementTiming
from kvv.protocol.steady_state import Steady, envelope


def chunk(delta: Any) -> bytes:
    return orjson.dumps({"id": "x", "choices": [{"index": 0, "delta": delta}]})


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (chunk({"content": "a"}), "content"),
        (chunk({"content": 'say "content":"b"'}), "content"),
        (chunk({"content": ""}), "content"),
        (chunk({"reasoning_content": "a\\"}), "reasoning_content"),
        (chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"content":"x"}'}}]}), "arguments"),
        (b'{"content":"no","choices":[{"delta":{"content":"a","content":"b"}}]}', "content"),
        (b'{ "choices" : [ { "delta" : { "content" : "a" } } ] }', "content"),
    ],
)
def test_the_envelope_surrounds_the_text(data: bytes, field: str) -> None:
    around = envelope(data, field)
    assert around is not None
    prefix, suffix = around
    assert data.startswith(prefix)
    assert data.endswith(suffix)
    changed = orjson.loads(prefix + b"new" + suffix)
    delta = changed["choices"][0]["delta"]
    assert (delta["tool_calls"][0]["function"]["arguments"] if field == "arguments" else delta[field]) == "new"


@pytest.mark.parametrize(
    "data",
    [
        chunk({"text": "a"}),
        chunk({"content": 3}),
        b'{"content":"a',
        b'{"content":"a"',
        b'{"content":"a"}',
        b'{"a":{"content":"1"},"b":{"content":"2"},"c":{"content":"3"},"d":{"content":"4"},"choices":[{"delta":{"content":"5"}}]}',
    ],
)
def test_no_envelope_where_the_text_is_elsewhere(data: bytes) -> None:
    assert envelope(data, "content") is None


@pytest.mark.parametrize(
    ("data", "taken"),
    [
        (chunk({"content": "b"}), True),
        (chunk({"content": 'b"\\\n月'}), True),
        (chunk({"content": ""}), False),
        (chunk({"content": None}), False),
        (chunk({"content": "b"}).replace(b'"x"', b'"y"'), False),
        (chunk({"content": "b"}).replace(b'"b"', b'"b","role":"x"'), False),
        (chunk({"content": "b"}).replace(b'"b"', b'"b" '), False),
        (chunk({"content": "b"}).replace(b'"b"', b'"\\ud800"'), False),
        (chunk({"content": "b"}).replace(b'"b"', b'"\xff"'), False),
        (chunk({"content": "b"}).replace(b'"b"', b'"'), False),
        (chunk({"content": "b"}).replace(b'"b"', b'"\n"'), False),
    ],
)
def test_only_another_text_in_the_same_envelope_is_taken(data: bytes, taken: bool) -> None:
    around = envelope(chunk({"content": "a"}), "content")
    assert around is not None
    pieces: list[str] = []
    frames: list[Frame] = []
    texts: list[str] = []
    steady = Steady(around, pieces, frames, texts)
    assert steady.take(Frame(1, 0.0, data)) is taken
    assert pieces == texts == ([orjson.loads(data)["choices"][0]["delta"]["content"]] if taken else [])
    assert not steady.take(Frame(2, 0.0, data, "error"))


def test_quantiles_are_within_a_bucket_and_the_largest_gap_is_exact() -> None:
    pace = IncrementTiming()
    moment = 0.0
    for number in range(1_001):
        moment += 10.0 if number % 100 else 250.0
        pace.tick(moment, 1)
    timing = pace.timing(moment)
    assert timing.itl_p50_ms == pytest.approx(10.0, rel=0.03)
    assert timing.itl_p99_ms == pytest.approx(10.0, rel=0.03)
    assert timing.max_gap_ms == 250.0


def test_no_increment_has_no_gap() -> None:
    assert IncrementTiming().timing(5.0).itl_p50_ms is None
    pace = IncrementTiming()
    pace.tick(1.0, 1)
    assert (pace.timing(5.0).first_token_ms, pace.timing(5.0).max_gap_ms) == (1.0, None)
