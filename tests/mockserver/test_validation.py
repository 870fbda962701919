"""Every refusal beside the accepted neighbour that differs in one thing."""

import base64
import json
import struct
import zlib
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvv.mockserver import MockConfig
from kvv.mockserver.engine import MockEngine

KEYS = [
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "anyOf",
    "$ref",
    "minimum",
    "maximum",
    "minLength",
    "maxItems",
    "minItems",
    "const",
    "default",
    "content",
    "role",
    "function",
    "name",
    "parameters",
    "tools",
    "id",
    "arguments",
    "text",
    "url",
    "image_url",
    "strict",
    "schema",
]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}}
BAD_SCHEMAS: list[Any] = [
    {"type": "strng"},
    {"type": "object", "properties": ["a"]},
    {"type": "object", "properties": {"a": {"type": "object", "properties": 5}}},
    {"type": "object", "properties": {}, "required": "a"},
    {"type": "object", "properties": {"a": {"enum": []}}},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
    {"type": "object", "properties": {"a": {"type": "array", "items": "x"}}},
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 1}}},
    {"type": "object", "properties": {"a": {"type": "string", "minLength": -1}}},
    {"type": "object", "properties": {"a": {"anyOf": []}}},
    {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": "string"}},
]


def tool(name: Any = "f", **extra: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": PARAMETERS, **extra}}


def schema(**extra: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": PARAMETERS, **extra}}


def png(width: int = 40, height: int = 40) -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height)))
    data = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", rows)
        + chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()


def user(content: Any = "Hello", **extra: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **extra}


def dynamic(*tools: Any, **extra: Any) -> dict[str, Any]:
    return {"role": "system", "tools": list(tools), **extra}


PAST = {"id": "f_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}

# name: (refused fields, accepted fields)
FIELDS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "temperature": (
        [{"temperature": value} for value in (1.1, 2.0, -0.1, 0.7, "hot", "1.0", [], {}, True)],
        [{"temperature": value} for value in (1, 1.0, 0, 0.6, None)],
    ),
    "top_p": (
        [{"top_p": value} for value in (0.8, 1.5, -1, "x", [])],
        [{"top_p": 0.95}, {"top_p": 1}, {"top_p": None}],
    ),
    "presence_penalty": ([{"presence_penalty": value} for value in (0.5, -0.5, "a")], [{"presence_penalty": 0}]),
    "frequency_penalty": ([{"frequency_penalty": value} for value in (0.5, {})], [{"frequency_penalty": 0.0}]),
    "n": ([{"n": value} for value in (2, 0, -1, 1.5, "1", True)], [{"n": 1}, {"n": None}]),
    "max_tokens": (
        [{"max_tokens": value} for value in (0, -1, 1.5, "ten", [], {}, 1_048_577)],
        [{"max_tokens": 5}, {"max_tokens": 1_048_576}],
    ),
    "max_completion_tokens": (
        [{"max_completion_tokens": value} for value in (0, 2.5, "x")],
        [{"max_completion_tokens": 5}],
    ),
    "stop": (
        [{"stop": value} for value in (5, {}, [1], list("abcdef"), "x" * 33, "", [""])],
        [{"stop": value} for value in ("a", list("abcde"), "x" * 32, [], None)],
    ),
    "stream": ([{"stream": value} for value in ("yes", 1, [])], [{"stream": False}, {"stream": True}]),
    "stream_options": (
        [{"stream": True, "stream_options": value} for value in (5, [])],
        [{"stream": True, "stream_options": {}}],
    ),
    "logprobs": (
        [{"logprobs": 5}, {"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 21}],
        [{"logprobs": True, "top_logprobs": 20}],
    ),
    "seed": ([{"seed": "a"}, {"seed": 1.5}], [{"seed": 5}, {"seed": -5}]),
    "user": ([{"user": 5}], [{"user": "me"}]),
    "unknown": ([], [{"some_new_field": {"a": 1}}, {"metadata": {"a": "b"}}, {"top_k": 20}]),
    "model": ([{"model": None}, {"model": 5}], [{}]),
    "messages": (
        [
            {"messages": value}
            for value in (
                None,
                [],
                {},
                "hi",
                ["hi"],
                [{}],
                [{"role": "robot", "content": "x"}],
                [{"role": 5, "content": "x"}],
            )
        ],
        [
            {"messages": [{"role": "system", "content": "Be kind."}, user()]},
            {"messages": [{"role": "assistant", "content": "hello"}]},
        ],
    ),
    "content": (
        [
            {"messages": [{"role": "user"}]},
            *(
                {"messages": [user(value)]}
                for value in (None, 5, [], [5], [{"text": "x"}], [{"type": "input_audio"}], [{"type": "text"}])
            ),
        ],
        [{"messages": [user("")]}, {"messages": [user([{"type": "text", "text": "x"}])]}],
    ),
    "image": (
        [
            {"messages": [user([{"type": "image_url", "image_url": {"url": url}}])]}
            for url in (
                "https://example.org/a.png",
                "data:image/svg+xml;base64,PHN2Zy8+",
                "data:image/png;base64,@@@",
                "data:image/png;base64,aGVsbG8=",
                png()[:60],
            )
        ]
        + [{"messages": [{"role": "system", "content": [{"type": "image_url", "image_url": {"url": png()}}]}, user()]}],
        [{"messages": [user([{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": png()}}])]}],
    ),
    "assistant": (
        [
            {"messages": [user(), {"role": "assistant"}, user()]},
            {"messages": [user(), {"role": "assistant", "content": "x", "tool_calls": 5}, user()]},
            {"messages": [user(), {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}, user()]},
        ],
        [
            {
                "messages": [
                    user(),
                    {"role": "assistant", "content": None, "tool_calls": [PAST]},
                    {"role": "tool", "tool_call_id": "f_0", "content": "x"},
                ]
            },
            {
                "messages": [
                    user(),
                    {"role": "assistant", "content": "x", "tool_calls": None, "reasoning_content": None, "name": None},
                    user(),
                ]
            },
            {
                "messages": [
                    user(),
                    {"role": "assistant", "tool_calls": [PAST]},
                    {"role": "tool", "tool_call_id": "f_0", "content": "x"},
                ]
            },
        ],
    ),
    "tool message": (
        [
            {"messages": [user(), {"role": "tool", "content": "x"}]},
            {"messages": [user(), {"role": "tool", "content": "x", "tool_call_id": ""}]},
        ],
        [
            {
                "messages": [
                    user(),
                    {"role": "assistant", "content": "", "tool_calls": [PAST]},
                    {"role": "tool", "tool_call_id": "f_0", "content": "x"},
                ]
            }
        ],
    ),
    "tools": (
        [
            {"tools": value}
            for value in (
                "x",
                {},
                [5],
                [{}],
                [{"type": "function"}],
                [{"type": "web", "function": {"name": "f"}}],
                [tool(None)],
                [tool("")],
            )
        ]
        + [{"tools": [tool("a b")]}, {"tools": [tool("f", strict="yes")]}, {"tools": [tool("f", description=5)]}]
        + [{"tools": [tool(f"f{at}") for at in range(129)]}],
        [
            {"tools": value}
            for value in (
                None,
                [],
                [tool()],
                [{"type": "function", "function": {"name": "f"}}],
                [tool("f", strict=False)],
                [tool("get-a_b")],
            )
        ]
        + [{"tools": [tool(f"f{at}") for at in range(128)]}, {"tools": [tool("f"), tool("f")]}],
    ),
    "tool schema": (
        [{"tools": [tool("f", parameters=bad)]} for bad in (*BAD_SCHEMAS, 5, [], "x", {"type": "array"})]
        + [
            {
                "tools": [
                    tool(
                        "f",
                        parameters={"type": "object", "properties": {"a": {"type": "string", "const": "a"}}},
                        strict=True,
                    )
                ]
            }
        ],
        [
            {"tools": [tool("f", parameters=good)]}
            for good in (
                None,
                {},
                {"type": "object"},
                {"type": "object", "properties": {"a": {"type": "string", "const": "a"}}},
            )
        ],
    ),
    "tool_choice": (
        [
            {"tool_choice": "required"},
            {"tool_choice": "required", "tools": []},
            {"tool_choice": "always", "tools": [tool()]},
            {"tool_choice": 5, "tools": [tool()]},
            {"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [tool()]},
            {"tool_choice": {"type": "function"}, "tools": [tool()]},
        ],
        [
            {"tool_choice": "auto"},
            {"tool_choice": "none"},
            {"tool_choice": "none", "tools": [tool()]},
            {"tool_choice": "required", "tools": [tool()]},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}, "tools": [tool()]},
            {"tool_choice": "required", "messages": [dynamic(tool()), user()]},
        ],
    ),
    "dynamic tools": (
        [
            {"messages": [dynamic(tool(), content="text"), user()]},
            {"messages": [user(tools=[tool()])]},
            {"messages": [user(), {"role": "assistant", "content": "x", "tools": [tool()]}, user()]},
            {"messages": [{"role": "system", "content": "", "tools": {"a": 1}}, user()]},
            {"messages": [dynamic(5), user()]},
            {"messages": [dynamic({"function": {"name": "f"}}), user()]},
            {"messages": [dynamic({"type": "function"}), user()]},
            {"messages": [dynamic({"type": "function", "function": {}}), user()]},
            {"messages": [dynamic({"type": "tool", "function": {"name": "f"}}), user()]},
            *({"messages": [dynamic(tool(name)), user()]} for name in ("", "x" * 257, "1x", "a@b")),
            {"messages": [dynamic(tool(), tool()), user()]},
            {"messages": [dynamic(tool()), user(), dynamic(tool())]},
            {"messages": [dynamic(tool()), user()], "tools": [tool()]},
        ],
        [
            {"messages": [dynamic(tool(), content=""), user()]},
            {"messages": [dynamic(tool(), content=None), user()]},
            {"messages": [dynamic(tool()), user()]},
            {"messages": [user(), dynamic(tool())]},
            {"messages": [user(), dynamic(tool("a")), user(), dynamic(tool("b", strict=False))], "tools": [tool("c")]},
            {"messages": [dynamic(tool("x" * 256)), user()]},
            {"messages": [{"role": "system", "content": "x", "tools": None}, user()]},
        ],
    ),
    "response_format": (
        [
            {"response_format": value}
            for value in (
                5,
                "json",
                {},
                {"type": "xml"},
                {"type": "json_schema"},
                schema(name=None),
                schema(name=5),
                schema(schema=None),
            )
        ]
        + [{"response_format": value} for value in (schema(schema=[]), schema(schema="x"), schema(strict="yes"))]
        + [{"response_format": schema(schema=bad)} for bad in BAD_SCHEMAS]
        + [{"response_format": schema(schema={**PARAMETERS, "oneOf": [PARAMETERS]}, strict=True)}],
        [
            {"response_format": value}
            for value in (
                None,
                {"type": "text"},
                {"type": "json_object"},
                schema(),
                schema(strict=False),
                schema(strict=True),
                schema(schema={}),
            )
        ]
        + [{"response_format": schema(schema={**PARAMETERS, "oneOf": [PARAMETERS]}, strict=False)}],
    ),
    "thinking": (
        [
            {"thinking": value}
            for value in (5, "on", {"type": "maybe"}, {"type": "enabled", "effort": 5}, {"type": "enabled", "keep": 5})
        ],
        [
            {"thinking": value}
            for value in (
                None,
                {"type": "enabled"},
                {"type": "disabled"},
                {"type": "enabled", "keep": "all", "effort": "low"},
            )
        ]
        + [{"thinking": {"type": "enabled", "effort": "unheard-of"}}],
    ),
    "reasoning_effort": ([{"reasoning_effort": 5}], [{"reasoning_effort": "low"}, {"reasoning_effort": "unheard-of"}]),
    "chat_template_kwargs": (
        [{"chat_template_kwargs": 5}, {"chat_template_kwargs": {"thinking": "yes"}}],
        [{"chat_template_kwargs": {"thinking": False}}],
    ),
    "logit_bias": (
        [{"logit_bias": 5}, {"logit_bias": {"a": 1}}, {"logit_bias": {"1": 101}}],
        [{"logit_bias": {"1": 5}}, {"logit_bias": {}}],
    ),
}
REFUSED = [
    pytest.param(fields, id=f"{name}-{at}")
    for name, (refused, _) in FIELDS.items()
    for at, fields in enumerate(refused)
]
ACCEPTED = [
    pytest.param(fields, id=f"{name}-{at}")
    for name, (_, accepted) in FIELDS.items()
    for at, fields in enumerate(accepted)
]


def body(fields: dict[str, Any]) -> dict[str, Any]:
    return {"model": "kimi-k3", "messages": [user()], **fields}


@pytest.mark.parametrize("fields", REFUSED)
def test_refused_with_a_plain_json_error(kimi, fields):
    for stream in (False, True):
        got = kimi.post({"stream": stream, **body(fields)})
        assert got.status == 400, got.raw
        assert got.headers["content-type"] == "application/json"
        assert got.body["error"]["type"] == "invalid_request_error"
        assert got.body["error"]["message"]


@pytest.mark.parametrize("fields", ACCEPTED)
def test_accepted(kimi, fields):
    got = kimi.post(body(fields))
    assert got.status == 200, got.raw


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"model": NaN}',
    ],
)
def test_a_body_that_is_no_json_object_is_refused(kimi, raw):
    got = kimi.post(raw)
    assert got.status == 400
    assert got.body["error"]["type"] == "invalid_request_error"


def test_a_deep_schema_is_refused_and_the_server_lives_on(kimi):
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(400):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    assert kimi.ask("x", tools=[tool("f", parameters=deep)]).status == 400
    deep = {"type": "string"}
    for _ in range(400):
        deep = {"anyOf": [deep]}
    assert kimi.ask("x", tools=[tool("f", parameters={"type": "object", "properties": {"a": deep}})]).status in (
        200,
        400,
    )
    assert kimi.ask("x").status == 200


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=8),
        st.just("get_weather"),
    ),
    lambda children: st.one_of(
        st.lists(children, max_size=3), st.dictionaries(st.sampled_from(KEYS), children, max_size=4)
    ),
    max_leaves=8,
)
WHOLE: list[dict[str, Any]] = [
    {
        "messages": [
            user("call f with a b"),
            {"role": "assistant", "content": None, "tool_calls": [PAST]},
            {"role": "tool", "tool_call_id": "f_0", "content": "x"},
        ]
    },
    {
        "messages": [dynamic(tool()), user([{"type": "text", "text": "f"}])],
        "tool_choice": "required",
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    {
        "messages": [user("call f")],
        "tools": [tool("f", parameters={"type": "object", "properties": {"a": {"anyOf": [{"type": "integer"}]}}})],
        "max_tokens": 90,
    },
    {
        "messages": [user("x")],
        "response_format": schema(),
        "stop": ["a"],
        "thinking": {"type": "enabled", "effort": "low"},
        "logprobs": True,
        "n": 1,
    },
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_value(value[path[0]], path[1:], new)
    return copy


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(WHOLE), st.data())
def test_no_request_makes_the_server_fail(whole, data):
    """Valid requests with one value replaced by anything: each is answered or refused, in every variant."""
    mutated = body(whole)
    for _ in range(data.draw(st.integers(1, 2))):
        mutated = with_value(mutated, data.draw(st.sampled_from(places(mutated))), data.draw(JSON))
        if not isinstance(mutated, dict):
            break
    try:
        parsed = orjson.loads(json.dumps(mutated))
    except orjson.JSONDecodeError:
        return
    for variant in ("kimi-k3", "openai", "vllm"):
        reply = MockEngine(MockConfig(variant=variant)).answer(parsed).reply
        assert b"".join(part for part in reply.parts if isinstance(part, bytes))
        assert reply.status in (200, 400, 404)


def test_an_unknown_model_is_not_found(kimi):
    got = kimi.post({"model": "no-such-model", "messages": [user()]})
    assert got.status == 404
    assert got.body["error"]["type"] == "resource_not_found_error"


def test_an_over_long_prompt_is_refused(serve):
    client = serve(context_window=500)
    assert client.ask(" ".join(["word"] * 380)).status == 200
    got = client.ask(" ".join(["word"] * 600))
    assert got.status == 400
    assert "token limit" in got.body["error"]["message"]


def test_a_cap_above_the_room_left_is_lowered_to_it(serve):
    client = serve(context_window=500)
    got = client.ask("Write 900 words", max_tokens=1000)
    assert got.usage["total_tokens"] == 500
    assert got.message["finish"] == "length"


def test_thinking_effort_wins_over_reasoning_effort(kimi):
    def length(**fields: Any) -> int:
        return int(kimi.ask("Hello", temperature=0, **fields).usage["completion_tokens_details"]["reasoning_tokens"])

    low, high, most = (length(thinking={"type": "enabled", "effort": effort}) for effort in ("low", "high", "max"))
    assert 0 < low < high < most
    assert length(thinking={"type": "enabled", "effort": "low"}, reasoning_effort="max") == low
    assert length(reasoning_effort="low") == low
    assert length() == most


@pytest.mark.parametrize(
    "fields", [{"thinking": {"type": "disabled", "effort": "max"}}, {"chat_template_kwargs": {"thinking": False}}]
)
def test_disabled_thinking_gives_no_reasoning(kimi, fields):
    got = kimi.ask("Hello", **fields)
    assert "reasoning_content" not in got.body["choices"][0]["message"]
    assert got.usage["completion_tokens_details"]["reasoning_tokens"] == 0
