"""The decoder tells what was sent: nothing defaulted, invented, re-sorted or repaired, and nothing raises."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.core import Frame, Observation, Shape
from kvv.protocol.decode import Decoder, decode_body
from kvv.protocol.error_body import read_error
from kvv.protocol.json_text import DONE, Lenient, Unparsed, nested_deeper, parse, parse_event, plain


def decode(*frames: Any) -> Observation:
    decoder = Decoder()
    for number, frame in enumerate(frames, 1):
        data = frame if isinstance(frame, bytes) else orjson.dumps(frame)
        decoder.feed(Frame(number, 0.0, data), parse_event(data))
    return decoder.finish()


def chunk(delta: Any = None, finish: Any = None, index: Any = 0, **top: Any) -> dict[str, Any]:
    return {"id": "x", "model": "m", "choices": [{"index": index, "delta": delta or {}, "finish_reason": finish}]} | top


def call(**fields: Any) -> dict[str, Any]:
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {"tool_calls": [fields | {"function": function}]}


def test_a_finish_reason_never_sent_stays_none() -> None:
    seen = decode(chunk({"content": "a"}), b"[DONE]")
    assert (seen.finish_reason, seen.done, seen.shape, seen.answer) == (None, True, Shape.COMPLETION, "a")


@pytest.mark.parametrize(
    ("deltas", "answer"),
    [([{}], None), ([{"content": None}], None), ([{"content": ""}], ""), ([{"content": ""}, {"content": "a"}], "a")],
)
def test_an_answer_is_none_only_when_no_content_was_sent(deltas: list[dict[str, Any]], answer: str | None) -> None:
    assert decode(*map(chunk, deltas)).first.answer == answer


@pytest.mark.parametrize(
    ("deltas", "field", "text"),
    [
        ([{"reasoning_content": "a"}, {"reasoning_content": "b"}], "reasoning_content", "ab"),
        ([{"reasoning": "a"}], "reasoning", "a"),
        ([{"reasoning_content": "", "reasoning": "a"}, {"reasoning": "b"}], "reasoning", "ab"),
        ([{"reasoning_content": "a", "reasoning": "a"}], "reasoning_content", "a"),
        ([{"reasoning": None}], None, None),
    ],
)
def test_reasoning_is_read_from_the_first_field_that_carries_it(
    deltas: list[dict[str, Any]], field: str | None, text: str | None
) -> None:
    seen = decode(*map(chunk, deltas)).first
    assert (seen.reasoning_field, seen.reasoning) == (field, text)


def test_calls_stay_in_order_of_arrival_with_their_own_indexes() -> None:
    seen = decode(
        chunk(call(index=1, id="b", type="function", name="g", arguments="")),
        chunk(call(index=0, id="a", type="function", name="f", arguments="{")),
        chunk(call(index=1, arguments="[]")),
        chunk(call(index=0, arguments="}")),
    )
    assert [(c.index, c.id, c.name, c.arguments) for c in seen.tool_calls] == [(1, "b", "g", "[]"), (0, "a", "f", "{}")]


def test_a_second_id_on_one_index_is_a_second_call_and_a_deviation() -> None:
    seen = decode(
        chunk(call(index=0, id="a", name="f", arguments="1")),
        chunk(call(index=0, id="b", name="g", arguments="2")),
        chunk(call(index=0, arguments="3")),
    )
    assert [(c.id, c.arguments) for c in seen.tool_calls] == [("a", "1"), ("b", "23")]
    assert seen.deviations == ("tool-index-reused",)


def test_a_missing_tool_index_is_none_and_never_invented() -> None:
    seen = decode(chunk(call(id="a", name="f", arguments="1")), chunk(call(arguments="2")))
    assert [(c.index, c.arguments) for c in seen.tool_calls] == [(None, "12")]
    assert "tool-index-missing" in seen.deviations


def test_pieces_of_a_name_are_joined_as_clients_join_them() -> None:
    seen = decode(
        chunk(call(index=0, id="a", name="read_file", arguments="")),
        chunk(call(index=0, name="read_file", arguments="{}")),
    )
    assert seen.tool_calls[0].name == "read_fileread_file"


def test_arguments_that_are_no_string_are_kept_as_text_and_a_deviation() -> None:
    seen = decode(chunk(call(index=0, id="a", name="f", arguments={"b": 1})))
    assert seen.tool_calls[0].arguments == '{"b":1}'
    assert seen.deviations == ("arguments-not-a-string",)


def test_a_broken_arguments_text_is_not_repaired() -> None:
    assert (
        decode(chunk(call(index=0, id="a", name="f", arguments='{"a": ')), chunk({}, "length")).tool_calls[0].arguments
        == '{"a": '
    )


def test_interleaved_choices_are_told_apart() -> None:
    seen = decode(chunk({"content": "a"}, index=1), chunk({"content": "b"}, index=0), chunk({"content": "c"}, index=1))
    assert [(c.index, c.answer) for c in seen.choices] == [(1, "ac"), (0, "b")]
    assert seen.answer == "b"


def test_usage_is_kept_by_place() -> None:
    end = chunk({}, "stop")
    end["choices"][0]["usage"] = {"prompt_tokens": 2}
    seen = decode(
        chunk({"content": "a"}, usage={"prompt_tokens": 1}),
        chunk({"content": "a"}, usage=None),
        end,
        chunk(choices=[], usage={"prompt_tokens": 3}),
    )
    assert [(u.place, u.frame, u.count("prompt_tokens")) for u in seen.usage] == [
        ("chunk", 1, 1),
        ("choice", 3, 2),
        ("summary", 4, 3),
    ]
    assert seen.tokens("prompt_tokens") == 3


def test_running_usage_costs_one_report() -> None:
    seen = decode(*(chunk({"content": "a"}, usage={"completion_tokens": n}) for n in range(500)))
    assert [(u.place, u.count("completion_tokens")) for u in seen.usage] == [("chunk", 499)]


@pytest.mark.parametrize(
    ("frames", "shape"),
    [
        ([], Shape.EMPTY),
        ([b"[DONE]"], Shape.EMPTY),
        ([b"<html>"], Shape.NOT_JSON),
        ([{"ok": True}], Shape.OTHER_JSON),
        ([b"[1]"], Shape.OTHER_JSON),
        ([{"error": {"message": "x"}}], Shape.ERROR),
        ([chunk({"content": "a"}), {"error": {"message": "x"}}], Shape.COMPLETION),
        ([chunk(choices=[])], Shape.OTHER_JSON),
        ([chunk(choices=[]), chunk({"content": ""}), chunk(choices=[])], Shape.COMPLETION),
        ([chunk(choices=["x"])], Shape.OTHER_JSON),
        ([chunk(choices=[{"index": 0, "finish_reason": "stop"}])], Shape.OTHER_JSON),
        ([chunk(choices=[{"index": 0, "text": "a"}])], Shape.OTHER_JSON),
    ],
)
def test_the_shape_says_what_came(frames: list[Any], shape: Shape) -> None:
    assert decode(*frames).shape is shape


def test_an_error_frame_keeps_what_came_before() -> None:
    seen = decode(chunk({"content": "a"}), {"error": {"message": "engine died", "code": 500}})
    assert seen.answer == "a"
    assert seen.error is not None
    assert (seen.error.message, seen.error.code) == ("engine died", 500)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "m", "type": "t", "code": "c"}}, ("m", "t", "c", True)),
        ({"error": {"message": "m", "code": 404}}, ("m", None, 404, True)),
        ({"message": "m", "type": "t", "object": "error", "code": 400}, ("m", "t", 400, False)),
        ({"detail": "m"}, ("m", None, None, False)),
        ({"detail": [{"msg": "m"}]}, ('[{"msg":"m"}]', None, None, False)),
        ({"error": "m"}, ("m", None, None, False)),
        ({"error": {}}, ("", None, None, True)),
        ({"message": "hello"}, None),
        ({"error": None, "choices": []}, None),
        ([], None),
    ],
)
def test_every_known_error_shape_is_read(body: object, expected: object) -> None:
    error = read_error(body)
    assert (error and (error.message, error.type, error.code, error.envelope)) == expected


def test_an_errors_message_is_bounded() -> None:
    error = read_error({"error": {"message": "x" * 10_000}})
    assert error is not None
    assert len(error.message) == 2_000


def test_a_body_is_decoded_like_its_stream() -> None:
    message = {
        "role": "assistant",
        "content": "a",
        "reasoning_content": "r",
        "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    seen = decode_body(
        orjson.dumps(
            {
                "id": "x",
                "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
                "usage": {"total_tokens": 1},
            }
        )
    )
    assert (seen.answer, seen.reasoning, seen.finish_reason, seen.tool_calls[0].arguments, seen.usage[0].place) == (
        "a",
        "r",
        "tool_calls",
        "{}",
        "body",
    )
    assert seen.tool_calls[0].index is None
    assert seen.deviations == ()


def test_two_calls_of_a_body_are_two_calls_even_without_ids() -> None:
    calls = [{"function": {"name": "f", "arguments": "1"}}, {"function": {"name": "f", "arguments": "2"}}]
    seen = decode_body(orjson.dumps({"choices": [{"index": 0, "message": {"tool_calls": calls}}]}))
    assert [c.arguments for c in seen.tool_calls] == ["1", "2"]


@pytest.mark.parametrize(
    ("frame", "deviation"),
    [
        (chunk({}, usage=3), "usage-not-an-object"),
        (chunk({}, choices={}), "choices-not-a-list"),
        (chunk({}, choices=[3]), "choice-not-an-object"),
        (chunk({}, 3), "finish-reason-not-a-string"),
        (chunk({"role": 3}), "role-not-a-string"),
        (chunk({"content": 3}), "content-not-a-string"),
        (chunk({"reasoning_content": 3}), "reasoning-not-a-string"),
        (chunk({"tool_calls": 3}), "tool-calls-not-a-list"),
        (chunk({"tool_calls": [3]}), "tool-call-not-an-object"),
        (chunk({"tool_calls": [{"index": 0, "function": 3}]}), "function-not-an-object"),
        (chunk(call(index=0, name=3, arguments="")), "function-name-not-a-string"),
        (chunk({}, choices=[{"index": 0, "delta": [], "finish_reason": None}]), "delta-not-an-object"),
        (chunk({}, choices=[{"index": 0, "message": {"content": "x"}}]), "message-for-delta"),
        (chunk({}, index=None), "choice-index-missing"),
        (b"3", "not-an-object"),
        (b"{", "json-syntax"),
    ],
)
def test_what_cannot_be_placed_is_a_deviation(frame: Any, deviation: str) -> None:
    seen = decode(frame)
    assert seen.deviations == (deviation,)
    assert seen.answer == ""


def test_a_refusal_is_read() -> None:
    assert decode(chunk({"refusal": "I "}), chunk({"refusal": "can't"})).first.refusal == "I can't"


def test_hostile_indexes_do_not_cost_memory() -> None:
    seen = decode(*(chunk({"content": "a"}, index=n) for n in range(1_000)))
    assert len(seen.choices) == 256
    assert "too-many-choices" in seen.deviations


# --- JSON text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"a":1}', {"a": 1}),
        (b"[DONE]", Unparsed("syntax")),
        (b"", Unparsed("empty")),
        (b"  ", Unparsed("empty")),
        (b"{", Unparsed("syntax")),
        (b"[" * 100_000, Unparsed("too-deep")),
        (b"[" * 201 + b"]" * 201, Unparsed("too-deep")),
        (b'{"a":"\xff"}', Lenient({"a": "\ufffd"}, "not-utf8")),
        (b'\xef\xbb\xbf{"a":1}', Lenient({"a": 1}, "byte-order-mark")),
        (b'{"a":"\\ud800"}', Lenient({"a": "\ud800"}, "lone-surrogate")),
        (b'{"a":Infinity}', Lenient({"a": float("inf")}, "nan")),
    ],
)
def test_json_is_read_strictly_then_as_lenient_clients_do(text: bytes, expected: object) -> None:
    assert parse(text) == expected


def test_nesting_within_the_limit_and_brackets_in_strings_are_fine() -> None:
    assert not isinstance(parse(b"[" * 200 + b"]" * 200), Unparsed)
    assert parse(b'["' + b"[" * 1_000 + b'"]') == ["[" * 1_000]
    assert not nested_deeper(b'{"a":"[[[[\\"[["}', 1)


@pytest.mark.parametrize(
    "text",
    [
        b"9" * 5_000,
        b"1e999",
        b'{"a":' + b"9" * 25 + b"}",
        b'{"a":1,"a":2}',
        b"NaN",
        b'"\\ud800"',
        b"\x00",
        b'{"a":"\t"}',
    ],
)
def test_odd_json_never_raises(text: bytes) -> None:
    parse(text)
    decode(text)
    decode_body(text)


def test_a_whole_number_that_no_float_holds_is_infinite_and_a_long_one_is_not() -> None:
    assert plain(parse(b'{"a":-' + b"9" * 400 + b"}")) == {"a": -math.inf}
    assert plain(parse(b'{"a":-' + b"9" * 300 + b"}")) == {"a": -1e300}


def test_an_absurd_number_of_nodes_is_refused_unparsed() -> None:
    assert parse(b"[" + b"[]," * 4_100_000 + b"1]") == Unparsed("too-many-nodes")


def test_done_is_recognised_with_blanks_only() -> None:
    assert parse_event(b"[DONE]") is DONE
    assert parse_event(b" [DONE] ") is DONE
    assert parse_event(b"[DONE]x") is not DONE
    assert parse_event(b'"[DONE]"') == "[DONE]"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3) | st.floats(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
KEYS = [
    "choices",
    "delta",
    "message",
    "index",
    "content",
    "reasoning_content",
    "reasoning",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "id",
    "finish_reason",
    "usage",
    "logprobs",
    "error",
    "role",
    "type",
    "model",
    "refusal",
]
HOSTILE = st.recursive(
    JUNK,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=25,
)


@given(st.lists(HOSTILE, max_size=4))
def test_no_json_raises(frames: list[Any]) -> None:
    decode(*frames)
    for frame in frames:
        decode_body(orjson.dumps(frame))


@given(st.binary(max_size=200))
def test_no_body_raises(data: bytes) -> None:
    decode_body(data)
