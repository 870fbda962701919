from __future__ import annotations

import json
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.core import Fragment
from kvv.protocol.encode import encode


def text(body: object) -> bytes:
    return b"".join(encode(body).parts)  # type: ignore[arg-type]


def test_the_text_is_compact_utf8_in_key_order() -> None:
    assert text({"b": 1, "a": [True, None, 1.5], "é": "月"}) == '{"b":1,"a":[true,null,1.5],"é":"月"}'.encode()


def test_raw_bytes_pass_through_as_the_same_object() -> None:
    raw = b'{"model": '
    assert encode(raw).parts[0] is raw
    assert encode(raw).size == len(raw)


def test_a_fragment_is_its_own_part_and_the_same_object() -> None:
    history = Fragment.of(b'{"role":"user","content":"x"},{"role":"assistant","content":"y"}', splice=True)
    value = Fragment.of(b'{"type":"object"}')
    body = encode({"model": "m", "messages": [{"role": "system"}, history, {"role": "user"}], "schema": value, "n": 1})
    assert any(part is history.data for part in body.parts)
    assert any(part is value.data for part in body.parts)
    assert len(body.parts) == 5
    assert body.size == len(b"".join(body.parts))
    assert len(json.loads(b"".join(body.parts))["messages"]) == 4


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([Fragment.of(b"", splice=True)], b'{"m":[]}'),
        ([Fragment.of(b"", splice=True), 1], b'{"m":[1]}'),
        ([1, Fragment.of(b"", splice=True)], b'{"m":[1]}'),
        ([1, Fragment.of(b"2,3", splice=True), Fragment.of(b"", splice=True), 4], b'{"m":[1,2,3,4]}'),
        ([Fragment.of(b"2,3", splice=True), Fragment.of(b"4", splice=True)], b'{"m":[2,3,4]}'),
        ([Fragment.of(b"[2]"), [Fragment.of(b"3")]], b'{"m":[[2],[3]]}'),
    ],
)
def test_splices_leave_no_stray_comma(items: list[object], expected: bytes) -> None:
    assert text({"m": items}) == expected


@pytest.mark.parametrize(
    "body",
    [
        {"a": float("nan")},
        {"a": [float("inf")]},
        {1: 2},
        {"a": object()},
        {"a": Fragment.of(b"1", splice=True)},
        {"a": Fragment.of(b"")},
        {"a": float("nan"), "b": Fragment.of(b"1")},
    ],
)
def test_what_json_cannot_carry_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(body)


def test_a_body_nested_beyond_the_encoders_is_refused_not_crashed() -> None:
    body: object = 1
    for _ in range(100_000):
        body = [body]
    with pytest.raises(ValueError, match="no JSON"):
        encode({"a": body})


def test_nesting_beyond_orjson_is_still_encoded() -> None:
    body: object = 1
    for _ in range(400):
        body = [body]
    assert text({"a": body}) == b'{"a":' + b"[" * 400 + b"1" + b"]" * 400 + b"}"


def test_large_integers_and_lone_surrogates_are_sent() -> None:
    assert text({"a": 2**70, "b": "\ud800é"}) == b'{"a":1180591620717411303424,"b":"\\ud800' + "é".encode() + b'"}'


def test_other_mappings_are_objects() -> None:
    assert text(MappingProxyType({"a": MappingProxyType({"b": (1, 2)})})) == b'{"a":{"b":[1,2]}}'


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_encoding_is_read_back_as_the_same_value(body: dict[str, object]) -> None:
    assert json.loads(text(body)) == body


@given(st.lists(JSON, max_size=4), st.lists(JSON, max_size=3))
def test_fragments_change_nothing_in_the_text(plain: list[object], spliced: list[object]) -> None:
    inner = text({"x": spliced})[6:-2]
    whole = text({"k": [*plain, *spliced]})
    # as values: beside an integer beyond 64 bits, floats are spelled by another library (6e-08 for 6e-8)
    same = json.loads(whole)
    assert json.loads(text({"k": [*plain, Fragment.of(inner, splice=True)]})) == same
    assert json.loads(text({"k": [*(Fragment.of(text({"x": item})[5:-1]) for item in plain), *spliced]})) == same
