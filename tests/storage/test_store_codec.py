"""What is read equals what was written, for any text and number an endpoint can send."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvv.core import (
    Choice,
    ErrorBody,
    Evidence,
    Exchange,
    Fault,
    FaultKind,
    Fragment,
    Frame,
    Identity,
    Observation,
    Outcome,
    Request,
    Role,
    Shape,
    Timeouts,
    Timing,
    ToolCall,
    Upstream,
    UsageReport,
    Verdict,
)
from kvv.storage.store import NotStorableError, StoreError
from kvv.storage.store.codec import codec, dump_json, load_json, pack_frames, tag, unpack_frames, untag

# all code points: NUL, and surrogates alone and in pairs that Python keeps apart
texts = st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from(
    ["\ud83d\ude00", "\x00", "null", "\udfff\ud800"]
)
tag_like = st.sampled_from(["$fragment", "$tuple", "$literal", "$ref"])
maybe_text = st.none() | texts
numbers = st.integers() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | tag_like, inner, max_size=3),
    max_leaves=8,
)
any_values = st.recursive(
    json_values, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.lists(inner, max_size=3), max_leaves=6
)
milliseconds = st.none() | st.floats(0, 1e9)

usage = st.builds(
    UsageReport,
    place=st.sampled_from(["body", "chunk"]),
    frame=st.integers(),
    raw=st.dictionaries(texts, json_values, max_size=3),
)
observations = st.builds(
    Observation,
    shape=st.sampled_from(Shape),
    choices=st.lists(
        st.builds(
            Choice,
            index=st.none() | st.integers(),
            role=maybe_text,
            answer=maybe_text,
            reasoning=maybe_text,
            reasoning_field=maybe_text,
            tool_calls=st.lists(
                st.builds(
                    ToolCall,
                    index=st.none() | st.integers(),
                    id=maybe_text,
                    name=maybe_text,
                    arguments=texts,
                    type=maybe_text,
                ),
                max_size=2,
            ).map(tuple),
            finish_reason=maybe_text,
            logprobs=st.integers(0, 9),
            refusal=maybe_text,
        ),
        max_size=2,
    ).map(tuple),
    usage=st.lists(usage, max_size=2).map(tuple),
    error=st.none()
    | st.builds(
        ErrorBody, message=texts, type=maybe_text, code=st.none() | texts | st.integers(), envelope=st.booleans()
    ),
    done=st.booleans(),
    id=maybe_text,
    model=maybe_text,
    deviations=st.lists(texts, max_size=2).map(tuple),
)
exchanges = st.builds(
    Exchange,
    identity=st.builds(
        Identity, case=texts, sample=st.integers(0), step=st.integers(0), ask=st.integers(0), purpose=texts
    ),
    attempt=st.integers(1, 9),
    role=st.sampled_from(Role),
    started=texts,
    status=st.none() | st.integers(100, 999),
    headers=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    content_type=texts,
    frames_kept=st.booleans(),
    frame_count=st.integers(0),
    bytes_received=st.integers(0),
    fault=st.none() | st.builds(Fault, kind=st.sampled_from(FaultKind), detail=texts, after_content=st.booleans()),
    upstream=st.builds(Upstream, provider=maybe_text, system_fingerprint=maybe_text, model=maybe_text),
    timing=st.builds(
        Timing,
        first_byte_ms=milliseconds,
        first_token_ms=milliseconds,
        total_ms=st.floats(0, 1e9),
        itl_p50_ms=milliseconds,
    ),
)
verdicts = st.builds(
    Verdict,
    case=texts,
    sample=st.integers(0),
    outcome=st.sampled_from(Outcome),
    reason=texts,
    detail=texts,
    values=st.dictionaries(texts, st.floats(allow_nan=False), max_size=3),
    facts=st.dictionaries(texts, any_values, max_size=3),
    evidence=st.lists(
        st.builds(Evidence, exchange=texts, frame=st.none() | st.integers(), excerpt=texts), max_size=2
    ).map(tuple),
    scorer=texts,
    truncated=st.booleans(),
)
frames = st.lists(
    st.builds(Frame, st.integers(0, 2**40), st.floats(allow_nan=False), st.binary(max_size=40), texts), max_size=5
)


def through_bytes(value: Any, cls: Callable[..., Any]) -> Any:
    return codec(cls).decode(load_json(dump_json(codec(cls).encode(value))))


@given(observations)
def test_an_observation_is_read_as_it_was_written(observation: Observation) -> None:
    assert through_bytes(observation, Observation) == observation


@given(exchanges)
def test_an_exchange_is_read_as_it_was_written(exchange: Exchange) -> None:
    assert through_bytes(exchange, Exchange) == exchange


@given(verdicts)
def test_a_verdict_is_read_as_it_was_written_and_tuples_stay_tuples(verdict: Verdict) -> None:
    read = through_bytes(verdict, Verdict)
    assert read == verdict
    assert repr(read.facts) == repr(verdict.facts)  # == alone would take 1 for 1.0 and for True


@given(frames)
def test_frames_are_read_as_they_were_written(items: list[Frame]) -> None:
    size, pieces = pack_frames(items)
    packed = b"".join(pieces)
    assert len(packed) == size
    assert list(unpack_frames(packed)) == items


@settings(max_examples=50)
@given(frames.filter(bool), st.data())
def test_cut_frames_are_refused_and_never_guessed(items: list[Frame], data: st.DataObject) -> None:
    packed = b"".join(pack_frames(items)[1])
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    with pytest.raises(StoreError, match="damaged"):
        unpack_frames(cut)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_does_not_know_survive(value: float) -> None:
    report = UsageReport(place="body", frame=1, raw={"prompt_tokens": value})
    assert repr(through_bytes(report, UsageReport)) == repr(report)


def test_a_surrogate_pair_that_a_server_split_over_two_chunks_is_not_joined_by_storing_it() -> None:
    text = "\ud83d" + "\ude00"
    assert len(text) == 2
    assert load_json(dump_json(text)) == text
    assert json.loads(json.dumps(text)) != text  # what escapes would have done


def test_integers_beyond_64_bits_stay_integers() -> None:
    assert load_json(dump_json({"n": 2**64 + 1})) == {"n": 2**64 + 1}


def test_usage_nested_to_the_decoders_limit_is_stored() -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": [deep]}
    assert load_json(dump_json(deep)) == deep


@given(json_values)
def test_a_value_that_looks_like_a_tag_is_no_tag(value: Any) -> None:
    for wrapped in ({"$fragment": value}, {"$literal": value, "x": 1}, {"$tuple": value}):
        assert repr(untag(load_json(dump_json(tag(wrapped))))) == repr(wrapped)


def test_a_fragment_and_bytes_become_their_digests_and_come_back() -> None:
    kept: dict[str, bytes] = {}

    def keep(data: bytes) -> str:
        kept[Fragment.of(data).digest] = data
        return Fragment.of(data).digest

    value = {"history": Fragment.of(b'{"a":1},{"b":2}', splice=True), "image": b"\xff\x00", "n": (1, [2])}
    tagged = tag(value, keep)
    assert tagged["history"] == {"$fragment": Fragment.of(b'{"a":1},{"b":2}').digest, "splice": True}
    assert untag(load_json(dump_json(tagged)), kept.__getitem__) == value


@pytest.mark.parametrize(
    "value", [{1: 2}, {"a": {3}}, {"a": object()}, {"a": b"bytes"}, {"a": Fragment.of(b"1")}, {"a": 1j}]
)
def test_what_is_not_json_like_is_refused(value: Any) -> None:
    with pytest.raises(NotStorableError, match="JSON-like"):
        dump_json(tag(value))


def test_fields_equal_to_their_default_are_left_out_and_unknown_ones_are_ignored() -> None:
    choice = Choice(answer="")
    assert codec(Choice).encode(choice) == {"answer": ""}
    assert codec(Choice).decode({"answer": "", "of_a_later_version": 1}) == choice
    assert codec(Request).encode(Request(body={}, timeouts=Timeouts())) == {"body": {}}


@pytest.mark.parametrize(
    "data", [{}, {"shape": "no such shape"}, {"shape": "error", "choices": 3}, {"shape": "error", "error": []}]
)
def test_a_record_that_fits_no_type_is_a_store_error(data: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="damaged record"):
        codec(Observation).decode(data)
