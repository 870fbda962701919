"""Each fault changes a triggering exchange in the way its line in the catalogue says, and leaves the other mode
alone.
"""

import base64
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from kvv.mockserver import FAULTS, NOT_SHOWABLE, KeyedAnswer, Reply

OFF = {"thinking": {"type": "disabled"}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": properties, "required": list(properties)},
        },
    }


def png(width: int = 60, height: int = 60, tag: bytes = b"") -> dict[str, Any]:
    # Header only: sizes are read from it. Pillow, where it is installed, is content with a header and an end.
    def chunk(kind: bytes, data: bytes) -> bytes:
        import zlib

        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    import zlib

    rows = zlib.compress(b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height)))
    data = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"tEXt", b"t\0" + tag)
    )
    data += chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


CALL = {"prompt": 'call get_weather with city "Paris"', "tools": [WEATHER]}
TWO = {"prompt": "call get_weather for Paris and for London", "tools": [WEATHER]}
PAST = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "call-abc-1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
    ],
}
TURN2 = {
    "messages": [
        user("call get_weather"),
        PAST,
        {"role": "tool", "tool_call_id": "call-abc-1", "content": "sunny"},
        user("call get_weather again"),
    ],
    "tools": [WEATHER],
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "x",
        "schema": {"type": "object", "properties": {"alpha": {"type": "integer"}}, "required": ["alpha"]},
    },
}
FORMATTED = {"prompt": "Give me data.", "response_format": SCHEMA}
BAD_SCHEMA = {
    "prompt": "x",
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nope"}}},
}
BAD_NESTED = {"prompt": "x", "tools": [tool("f", a={"type": "object", "properties": 5})]}
RANDOM = {"prompt": "Give me a random string"}
LONG = " ".join(["filler"] * 5000)
IMAGE = {"prompt": [text("What is shown?"), png()]}
KEY = (KeyedAnswer(suite="v", case="1", prompt="What is shown?", right=Reply(text="seven"), wrong=Reply(text="nine")),)
CHUNK = {"prompt": "Reply with exactly: say \"one\" two 'three' four \"five\" six 'seven' eight", **OFF}

See = Callable[[list[Any], list[Any]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The requests that trigger a fault and how their answers (clean, faulted) must relate. ``stream`` None runs both
    modes.
    """

    requests: tuple[dict[str, Any], ...]
    see: See
    config: dict[str, Any] = field(default_factory=dict)
    stream: bool | None = None


def case(
    request: dict[str, Any],
    see: See,
    *,
    times: int = 1,
    more: tuple[dict[str, Any], ...] = (),
    stream: bool | None = None,
    **config: Any,
) -> Case:
    return Case(requests=(request,) * times + more, see=see, config=config, stream=stream)


def message(got: Any) -> dict[str, Any]:
    return dict(got.message)


def arguments(got: Any) -> list[str]:
    return [call[2] for call in message(got)["calls"]]


def same(clean: list[Any]) -> bool:
    return len({message(got)["content"] for got in clean}) == 1


def status(number: int) -> See:
    return lambda clean, bad: clean[0].status != number and bad[0].status == number


def prompt_grows(by: int) -> See:
    return lambda clean, bad: bad[0].usage["prompt_tokens"] - clean[0].usage["prompt_tokens"] == by


def some(test: Callable[[Any], bool], least: int = 1) -> See:
    """The answers that the test finds damaged are a share of all, and none is damaged on the clean server."""
    return lambda clean, bad: least <= sum(map(test, bad)) < len(bad) and not any(map(test, clean))


def entries(got: Any) -> list[dict[str, Any]]:
    return [delta["tool_calls"][0] for delta in got.deltas if delta.get("tool_calls")]


def invalid(got: Any) -> bool:
    try:
        return not all(isinstance(json.loads(text), dict) for text in arguments(got))
    except ValueError:
        return True


def is_json(got: Any) -> bool:
    try:
        json.loads(message(got)["content"])
    except ValueError:
        return False
    return True


BIG = {"prompt": "call echo with value=9007199254740993", "tools": [tool("echo", value={"type": "integer"})]}
HAN = {"prompt": 'call echo with value "你好"', "tools": [tool("echo", value={"type": "string"})]}
REF = {
    "prompt": "call f",
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"$ref": "#/$defs/x"}},
                    "required": ["a"],
                    "$defs": {"x": {"type": "string"}},
                },
            },
        }
    ],
}
BLOCK = "a <tool_call>{}</tool_call> b"
ORDER = {"prompt": [text("What is shown?"), png(tag=b"1"), text("and"), png(tag=b"2")]}

CASES: dict[str, Case] = {
    "A01": case(RANDOM, lambda clean, bad: not same(clean) and same(bad), times=4),
    "A02": case(
        {**RANDOM, "logprobs": True},
        lambda clean, bad: bad[0].raw.count(b"logprob") > 0 and logprob(bad[0]) > logprob(clean[0]),
    ),
    "A04": case(
        {"prompt": [text("Give me a random string"), png()]}, lambda clean, bad: not same(clean) and same(bad), times=4
    ),
    "A05": case({"prompt": "x", "temperature": -1}, lambda clean, bad: clean[0].status == 400 and bad[0].status == 200),
    "A06": case(
        {"prompt": "x", "logit_bias": {"77": 100}, "max_tokens": 1},
        lambda clean, bad: message(clean[0])["content"] == " token" != message(bad[0])["content"],
    ),
    "A07": case({"prompt": "x", "min_p": 0.1}, status(400)),
    "A08": case({**RANDOM, "seed": 5}, lambda clean, bad: True),
    "A11": case({"prompt": "x", "n": 2}, status(400), variant="openai"),
    "A13": case(
        {"prompt": "Reply with exactly: alpha", "stop": ["user writes"]},
        lambda clean, bad: message(bad[0])["content"] == "" and message(clean[0])["content"] == "alpha",
    ),
    "A14": case(
        {"prompt": "Reply with exactly: alpha beta", "stop": ["beta"]},
        lambda clean, bad: message(bad[0])["content"] == "alpha beta",
    ),
    "A15": case(
        {**TWO, "parallel_tool_calls": False},
        lambda clean, bad: (len(arguments(clean[0])), len(arguments(bad[0]))) == (1, 2),
    ),
    "A16": case(
        {**CALL, "logprobs": True},
        lambda clean, bad: any(frame["choices"][0].get("logprobs", 0) is None for frame in bad[0].frames),
    ),
    "A19": case(RANDOM, lambda clean, bad: not same(clean) and same(bad), times=4),
    "B01": case(
        CALL,
        lambda clean, bad: "<|open|>tools" in message(bad[0])["content"] and arguments(clean[0]) == arguments(bad[0]),
    ),
    "B05": case(CALL, lambda clean, bad: not entries(bad[0]) and bool(message(bad[0])["reasoning"])),
    "B09": case(CALL, lambda clean, bad: len(entries(bad[0])) == 1 < len(entries(clean[0]))),
    "B11": case(
        {"prompt": "call get-it", "tools": [tool("get-it")]},
        lambda clean, bad: not arguments(bad[0]) and "get-it" in message(bad[0])["content"],
    ),
    "B12": case(TURN2, lambda clean, bad: {entry["index"] for entry in entries(bad[0])} == {1}),
    "B15": case(CALL, lambda clean, bad: message(bad[0])["content"] == "" != message(clean[0])["content"]),
    "B17": case(CALL, lambda clean, bad: message(bad[0])["calls"][0][0].startswith("chatcmpl-tool-")),
    "B19": case(TWO, lambda clean, bad: {entry["index"] for entry in entries(bad[0])} == {0}),
    "B21": case(CALL, lambda clean, bad: not any("index" in entry for entry in entries(bad[0]))),
    "B22": case(CALL, lambda clean, bad: all(entry["function"]["name"] == "get_weather" for entry in entries(bad[0]))),
    "B23": case(
        CALL, lambda clean, bad: [entry["function"].get("name") for entry in entries(bad[0])][:2] == ["", "get_weather"]
    ),
    "B24": case(
        {**CALL, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
        lambda clean, bad: message(bad[0])["finish"] == "stop",
    ),
    "B25": case(CALL, lambda clean, bad: message(bad[0])["finish"] == "stop"),
    "B26": case({"prompt": "x", "max_tokens": 3}, lambda clean, bad: message(bad[0])["finish"] == "stop"),
    "B27": case(
        {**CALL, "tool_choice": "required"},
        lambda clean, bad: (message(bad[0])["calls"], message(bad[0])["finish"]) == ([], "tool_calls"),
    ),
    "B31": case({**CALL, "tool_choice": "none"}, lambda clean, bad: "<|open|>tools" in message(bad[0])["content"]),
    "B32": case(
        {"prompt": f"Reply with exactly: {BLOCK}", "tools": [WEATHER], "tool_choice": "none"},
        lambda clean, bad: (message(clean[0])["content"], message(bad[0])["content"]) == (BLOCK, "a  b"),
    ),
    "B33": case(
        {**CALL, "tool_choice": "none"}, lambda clean, bad: arguments(bad[0]) == ["{}"] and not arguments(clean[0])
    ),
    "B35": case(CALL, lambda clean, bad: json.loads(arguments(bad[0])[0]) == arguments(clean[0])[0]),
    "B36": case(CALL, lambda clean, bad: arguments(bad[0]) == ["{}"]),
    "B37": case(CALL, some(lambda got: "city=Paris" in arguments(got)[0]), times=12),
    "B40": case(
        BIG,
        lambda clean, bad: (
            ("9007199254740993" in arguments(clean[0])[0], "9007199254740992" in arguments(bad[0])[0]) == (True, True)
        ),
    ),
    "B42": case(HAN, lambda clean, bad: "\\u4f60" in arguments(bad[0])[0] and "你好" in arguments(clean[0])[0]),
    "B44": case(HAN, lambda clean, bad: "\\你\\好" in arguments(bad[0])[0]),
    "B45": case(REF, lambda clean, bad: arguments(bad[0]) == ["{}"] != arguments(clean[0])),
    "B47": case({"prompt": "call f", "tools": [tool("f", a={"type": "integer", "minimum": 3})]}, status(400)),
    "B48": case(
        {
            "prompt": "call f",
            "tools": [
                {"type": "function", "function": {"name": "f", "parameters": {"$schema": "x", "type": "object"}}}
            ],
        },
        status(400),
    ),
    "B49": case({"prompt": "call f", "tools": [tool("f", a={"type": "object"})]}, status(500)),
    "B52": case(
        {"prompt": "x"}, lambda clean, bad: b'"tool_calls":[]' in bad[0].raw and b"tool_calls" not in clean[0].raw
    ),
    "B54": case(CALL, lambda clean, bad: message(bad[0])["calls"][0][1] == "get_weather<|channel|>commentary"),
    "B55": case(CALL, lambda clean, bad: "<｜DSML｜function_calls>" in message(bad[0])["content"]),
    "B57": case(
        TWO,
        lambda clean, bad: (
            [entry["id"] for entry in entries(bad[0]) if entry["id"]] == ["0", "1"]
            and {entry["index"] for entry in entries(bad[0])} == {0}
        ),
    ),
    "B58": case(TWO, lambda clean, bad: [bool(one) for one in arguments(bad[0])] == [False, True]),
    "B60": case(
        {"prompt": "x"},
        lambda clean, bad: message(bad[0])["finish"] == "tool_calls" and "<tool_call>" in message(bad[0])["content"],
    ),
    "C01": case({"prompt": "x"}, lambda clean, bad: not any("role" in delta for delta in bad[0].deltas)),
    "C03": case(
        {"prompt": "x"},
        lambda clean, bad: {"role": None, "content": None} in bad[0].deltas and not message(bad[0])["reasoning"],
    ),
    "C04": case({"prompt": "x"}, lambda clean, bad: bad[0].first_gap > 0.2 > clean[0].first_gap),
    "C08": case(
        {"prompt": "x"}, lambda clean, bad: "usage" in bad[0].frames[-1] and "usage" not in clean[0].frames[-1]
    ),
    "C09": case(
        {"prompt": "x"},
        lambda clean, bad: (
            all(frame["usage"]["total_tokens"] == 0 for frame in bad[0].frames)
            and "finish_reason" not in bad[0].frames[0]["choices"][0]
        ),
    ),
    "C10": case({"prompt": "x"}, lambda clean, bad: bad[0].frames[0]["choices"] == []),
    "C12": case(
        {"prompt": "x"}, lambda clean, bad: len({frame["id"] for frame in bad[0].frames}) == len(bad[0].frames)
    ),
    "C13": case({"prompt": "x"}, lambda clean, bad: len({frame["created"] for frame in bad[0].frames}) == 2),
    "C14": case({"prompt": "x"}, lambda clean, bad: {frame["id"] for frame in bad[0].frames} == {""}),
    "C15": case(
        {"prompt": "x"},
        lambda clean, bad: (
            [frame["choices"][0]["index"] for frame in bad[0].frames] == list(range(len(bad[0].frames)))
            and "message" in bad[0].frames[3]["choices"][0]
        ),
    ),
    "C16": case(
        {"prompt": "x"}, lambda clean, bad: {frame["object"] for frame in bad[0].frames} == {"chat.completions.chunk"}
    ),
    "C18": case(CHUNK, lambda clean, bad: len(message(bad[0])["content"]) < len(message(clean[0])["content"])),
    "C19": case({"prompt": "x"}, lambda clean, bad: b"data: : PING\n\n" in bad[0].raw),
    "C20": case({"prompt": "x"}, lambda clean, bad: b"id: 1\n: ping\n\n" in bad[0].raw),
    "C22": case({"prompt": "x"}, lambda clean, bad: b": x-cost=0\ndata: [DONE]\n\n" in bad[0].raw),
    "C23": case(
        {"prompt": "x", "temperature": 9},
        lambda clean, bad: clean[0].status == 400 and bad[0].status == 200 and "error" in bad[0].frames[0],
    ),
    "C24": case({"prompt": "x"}, lambda clean, bad: bad[0].raw == b"data: [DONE]\n\n"),
    "C25": case(TWO, lambda clean, bad: len(entries(bad[0])) == 4 and arguments(bad[0]) == arguments(clean[0])),
    "C27": case(
        {"prompt": "x"},
        lambda clean, bad: (
            message(clean[0])["reasoning"].startswith(message(bad[0])["reasoning"])
            and message(clean[0])["reasoning"] != message(bad[0])["reasoning"]
        ),
    ),
    "C28": case({"prompt": "x"}, lambda clean, bad: bad[0].headers["content-type"] == "application/json"),
    "C32": case(
        {"prompt": "x"},
        lambda clean, bad: any(
            delta.get("content") and delta.get("content") == delta.get("reasoning_content") for delta in bad[0].deltas
        ),
    ),
    "D04": case(
        {"prompt": "x", **OFF},
        lambda clean, bad: (
            (message(bad[0])["content"], message(bad[0])["reasoning"]) == ("", message(clean[0])["content"])
        ),
    ),
    "D06": case(
        {"prompt": "x"},
        lambda clean, bad: message(bad[0])["content"].startswith("<think>") and not message(bad[0])["reasoning"],
    ),
    "D09": case(
        {"prompt": "x"},
        lambda clean, bad: "</think>" in message(bad[0])["content"] and "<think>" not in message(bad[0])["content"],
    ),
    "D10": case(
        {"prompt": "x"},
        lambda clean, bad: "</think>" in message(bad[0])["content"] and not message(bad[0])["reasoning"],
    ),
    "D14": case(
        TURN2,
        lambda clean, bad: (
            not arguments(bad[0]) and "get_weather" in message(bad[0])["reasoning"] and message(bad[0])["content"] == ""
        ),
    ),
    "E01": case(FORMATTED, some(lambda got: not is_json(got)), times=12),
    "E02": case(
        FORMATTED,
        lambda clean, bad: (
            message(bad[0])["content"] == "" and message(bad[0])["reasoning"] == message(clean[0])["content"]
        ),
    ),
    "E03": case(FORMATTED, lambda clean, bad: message(clean[0])["reasoning"] != "" == message(bad[0])["reasoning"]),
    "E04": case(
        {**FORMATTED, "max_tokens": 200},
        lambda clean, bad: (
            message(bad[0])["finish"] == "length"
            and bad[0].usage["completion_tokens"] == 200
            and not message(bad[0])["reasoning"]
        ),
    ),
    "E05": case(FORMATTED, lambda clean, bad: is_json(bad[0]) and "alpha" not in message(bad[0])["content"]),
    "E06": case(
        BAD_SCHEMA,
        lambda clean, bad: clean[0].status == 400 and bad[0].status == 500 and bad[0].body["error"]["message"] == "",
    ),
    "E08": case(
        BAD_SCHEMA,
        lambda clean, bad: [got.status for got in clean] == [400, 200] and [got.status for got in bad] == [500, 500],
        more=({"prompt": "x"},),
    ),
    "E09": case(FORMATTED, lambda clean, bad: is_json(clean[0]) and not is_json(bad[0]) and bad[0].status == 200),
    "E10": case(
        {"prompt": "x", "response_format": {"type": "json_object"}},
        lambda clean, bad: [got.broken for got in bad] == [True, True],
        more=({"prompt": "x"},),
        stream=False,
    ),
    "F01": case({"prompt": "x"}, prompt_grows(1)),
    "F02": case(IMAGE, prompt_grows(1)),
    "F05": case(
        {"messages": [user("x"), {"role": "assistant", "content": ""}, user("y")]},
        lambda clean, bad: bad[0].usage["prompt_tokens"] > clean[0].usage["prompt_tokens"],
    ),
    "F10": case(
        {"prompt": "x"},
        lambda clean, bad: (
            bad[0].usage["prompt_tokens"] == 0 and bad[0].usage["total_tokens"] == bad[0].usage["completion_tokens"]
        ),
    ),
    "F12": case(TURN2, lambda clean, bad: bad[0].usage["prompt_tokens"] > clean[0].usage["prompt_tokens"]),
    "G01": case(
        ORDER,
        lambda clean, bad: (message(clean[0])["content"], message(bad[0])["content"]) == ("seven", "nine"),
        answers=KEY,
    ),
    "G03": case(
        ORDER,
        lambda clean, bad: (message(clean[0])["content"], message(bad[0])["content"]) == ("seven", "nine"),
        answers=KEY,
    ),
    "G04": case(IMAGE, some(lambda got: message(got)["content"] == "nine"), times=16, answers=KEY),
    "G05": case(IMAGE, lambda clean, bad: clean[0].usage["prompt_tokens"] - bad[0].usage["prompt_tokens"] == 9 - 4),
    "G06": case(IMAGE, some(lambda got: message(got)["content"] == "nine"), times=16, answers=KEY),
    "G10": case(IMAGE, status(400)),
    "G11": case(
        {"prompt": [text("Give me a random string"), png(tag=b"1")], "seed": 1},
        lambda clean, bad: not same(clean) and same(bad),
        more=({"prompt": [text("Give me a random string"), png(tag=b"2")], "seed": 2},),
    ),
    "G12": case(IMAGE, lambda clean, bad: [got.status for got in bad] == [200, 500], times=2),
    "G13": case(
        IMAGE,
        lambda clean, bad: (
            clean[0].usage["prompt_tokens"] - bad[0].usage["prompt_tokens"] == 9
            and message(bad[0])["content"] == "nine"
        ),
        answers=KEY,
    ),
    "G15": case(IMAGE, lambda clean, bad: clean[0].usage["prompt_tokens"] - bad[0].usage["prompt_tokens"] == 9 - 4),
    "G16": case({"prompt": [text("x"), png(3, 23)]}, status(500)),
    "H01": case(
        {"prompt": f"The secret code is 4711. {LONG}\nWhat is the secret code?"},
        lambda clean, bad: (
            "4711" in message(clean[0])["content"]
            and "4711" not in message(bad[0])["content"]
            and bad[0].usage["prompt_tokens"] < 2200
        ),
    ),
    "H02": case(
        {"prompt": LONG},
        lambda clean, bad: clean[0].usage["prompt_tokens"] > 5000 and 3000 < bad[0].usage["prompt_tokens"] < 3200,
        context_window=6000,
    ),
    "H03": case(
        {"prompt": f"{LONG}\nWrite 900 words"},
        lambda clean, bad: bad[0].usage["total_tokens"] == 4096 and message(bad[0])["finish"] == "length",
    ),
    "H06": case(
        {"prompt": "x"},
        lambda clean, bad: bad[0].usage["completion_tokens"] == 16 and message(bad[0])["finish"] == "length",
    ),
    "H07": case(
        {"prompt": "x", "max_tokens": 5},
        lambda clean, bad: bad[0].usage["completion_tokens"] == 5 and message(bad[0])["finish"] == "stop",
    ),
    "H08": case(
        {"prompt": LONG}, lambda clean, bad: (clean[0].status, bad[0].status) == (400, 500), context_window=1000
    ),
    "H09": case({"prompt": LONG + LONG}, lambda clean, bad: "zx qv" in message(bad[0])["content"]),
    "H11": case({"prompt": LONG}, status(400), context_window=16000),
    "I02": case({"prompt": "x"}, lambda clean, bad: bad[0].status == 200 and bad[0].body.keys() == {"error"}),
    "I03": case({"prompt": "x"}, lambda clean, bad: bad[0].status == 200 and bad[0].body["choices"] == []),
    "I04": case({"prompt": "x", "temperature": 9}, lambda clean, bad: (clean[0].status, bad[0].status) == (400, 502)),
    "I05": case(
        {**CALL, **OFF, "tool_choice": "required", "max_tokens": 4},
        lambda clean, bad: bad[0].frames[-1]["error"]["message"] == "malformed_response",
    ),
    "I07": case(
        {"prompt": "x"},
        lambda clean, bad: (
            ["error" in got.frames[-1] if got.status == 200 else got.status for got in bad] == [False, False, True, 500]
        ),
        times=4,
        stream=True,
    ),
    "I08": case(
        {"prompt": "x", "temperature": 9},
        lambda clean, bad: bad[0].status == 502 and bad[0].raw.startswith(b"<!doctype html>"),
    ),
    "I09": case(BAD_NESTED, lambda clean, bad: (clean[0].status, bad[0].status) == (400, 500)),
    "I11": case({"prompt": "x", "temperature": 0}, status(504), itl_ms=1, gateway_timeout_s=0.05),
    "I12": case({**TWO}, some(lambda got: got.broken), times=12),
    "J06": case(
        {"prompt": LONG, "temperature": 0},
        lambda clean, bad: same(clean) and len({message(got)["content"] for got in bad}) == 3,
        times=3,
    ),
    "J08": case({"prompt": "x"}, some(lambda got: len(message(got)["content"]) > 400), times=12),
    "J10": case(CALL, some(invalid), times=12),
    "J11": case(
        CALL,
        lambda clean, bad: sum(map(invalid, bad[:20])) < sum(map(invalid, bad[20:])) and not any(map(invalid, clean)),
        times=40,
    ),
    "J12": case(IMAGE, lambda clean, bad: "????" in message(bad[0])["content"], answers=KEY),
    "J13": case(
        {"prompt": "x", "n": 3},
        lambda clean, bad: bad[0].raw.count(b"!!!!!!!!") >= 2 and b"!!!!!!!!" not in clean[0].raw,
        variant="openai",
    ),
}
# Tested on their own below: they need neighbours in flight or a client that gives up.
OF_THEIR_OWN = {"A08", "I10", "J04"}


def logprob(got: Any) -> float:
    values = [float(value) for value in re.findall(r'"logprob":(-?[0-9.e-]+)', got.raw.decode())]
    return sum(values) / len(values)


def echo(value: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"text": {"type": "string", "enum": [value]}}, "required": ["text"]}
    return {
        "prompt": "call put_text",
        "tools": [{"type": "function", "function": {"name": "put_text", "parameters": parameters}}],
    }


def argument(value: Any, faulted: Any) -> See:
    return lambda clean, bad: [json.loads(arguments(one[0])[0])["text"] for one in (clean, bad)] == [value, faulted]


def says(right: str, wrong: str) -> See:
    return lambda clean, bad: [message(one[0])["content"] for one in (clean, bad)] == [right, wrong]


def fewer_prompt_tokens(clean: list[Any], bad: list[Any]) -> bool:
    return bool(bad[0].usage["prompt_tokens"] < clean[0].usage["prompt_tokens"])


def positions(got: Any) -> list[dict[str, Any]]:
    """The entries of logprobs.content, of a body or of all frames."""
    found: list[dict[str, Any]] = []
    for part in re.findall(rb"^(?:data: )?(\{.*\})$", got.raw, re.M):
        for choice in json.loads(part).get("choices", ()):
            found += (choice.get("logprobs") or {}).get("content") or []
    return found


def at_all_positions(test: Callable[[list[dict[str, Any]]], bool]) -> See:
    return lambda clean, bad: bool(positions(clean[0])) and test(positions(bad[0])) and not test(positions(clean[0]))


ALPHA = {"prompt": "Reply with exactly: alpha bravo charlie", **OFF}
PROBABLE = {**ALPHA, "logprobs": True, "top_logprobs": 3}
ORDERED = {
    "type": "object",
    "properties": {"zone": {"type": "string", "enum": ["b"]}, "area": {"type": "string", "enum": ["a"]}},
    "required": ["zone", "area"],
}
CODES = [
    user("call get_weather for Paris and for London"),
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": f"c-{at}",
                "type": "function",
                "function": {"name": "get_weather", "arguments": f'{{"city":"{city}"}}'},
            }
            for at, city in enumerate(("Paris", "London"))
        ],
    },
    {"role": "tool", "tool_call_id": "c-1", "content": "code TM-9302"},
    {"role": "tool", "tool_call_id": "c-0", "content": "code WX-4471"},
    user("Which code did the tool give for Paris?"),
]
LATE = [
    user("Hello."),
    {"role": "assistant", "content": "Hello."},
    {"role": "system", "content": "Be brief."},
    user("x"),
]
K_CASES: dict[str, Case] = {
    "K01": case(
        {"prompt": "Prove it", "max_tokens": 3},
        lambda clean, bad: not message(clean[0])["content"] and bool(message(bad[0])["content"]),
    ),
    "K02": case(
        {**CALL, "tool_choice": "required"},
        lambda clean, bad: bool(message(clean[0])["reasoning"]) and not message(bad[0])["reasoning"],
    ),
    "K03": case(
        {"messages": CODES, "tools": [WEATHER], **OFF},
        lambda clean, bad: "WX-4471" in message(clean[0])["content"] and "TM-9302" in message(bad[0])["content"],
    ),
    "K04": case({**ALPHA, "stop": ["bravo ch"]}, says("alpha ", "alpha brav")),
    "K05": case(ALPHA, says("alpha bravo charlie", "alpha bravo charlie<|")),
    "K06": case(echo(" two "), argument(" two ", "two")),
    "K07": case(echo("McX"), argument("McX", "mcx")),
    "K08": case(echo("a\r\nb"), argument("a\r\nb", "a\nb")),
    "K09": case(echo("e\u0301"), argument("e\u0301", "\u00e9")),
    "K10": case(echo("42"), argument("42", 42)),
    "K11": case({"messages": LATE}, fewer_prompt_tokens),
    "K12": case({"messages": LATE}, status(400)),
    "K13": case({"prompt": "url(data:image/png;base64,x) is text"}, status(400)),
    "K14": case({"prompt": "<image> is a tag"}, status(400)),
    "K15": case(
        {
            "prompt": [
                {"type": "image_url", "image_url": {"url": png()["image_url"]["url"].replace(";", ";name=a;", 1)}}
            ]
        },
        status(400),
    ),
    "K16": case(PROBABLE, at_all_positions(lambda found: len({str(one["top_logprobs"]) for one in found}) == 1)),
    "K17": case(PROBABLE, at_all_positions(lambda found: {one["logprob"] for one in found} == {0.0})),
    "K18": case(PROBABLE, at_all_positions(lambda found: {one["logprob"] for one in found} == {-3.4e38})),
    "K19": case(
        PROBABLE,
        at_all_positions(lambda found: all(one["logprob"] < one["top_logprobs"][0]["logprob"] for one in found)),
    ),
    "K20": case(PROBABLE, at_all_positions(lambda found: {len(one["top_logprobs"]) for one in found} == {1})),
    "K21": case(
        {
            "prompt": "x",
            "response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": ORDERED}},
            **OFF,
        },
        says('{"zone":"b","area":"a"}', '{"area":"a","zone":"b"}'),
    ),
    "K22": case(
        {
            "prompt": 'Return {"zone":"c","area":"a"}',
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "r", "strict": False, "schema": ORDERED},
            },
            **OFF,
        },
        says('{"zone":"c","area":"a"}', '{"zone":"b","area":"a"}'),
    ),
    "K23": case(
        {"prompt": "call ring", "tools": [tool("ring")]},
        lambda clean, bad: b'"arguments":null' in bad[0].raw and b'"arguments":null' not in clean[0].raw,
    ),
    "K24": case(
        ALPHA, lambda clean, bad: sum(bool(one.get("content")) for one in bad[0].deltas) == 1 != len(clean[0].deltas)
    ),
    "K25": case(ALPHA, says("alpha bravo charlie", "\n\nalpha bravo charlie")),
    "K26": case(
        {"messages": [user("Hello."), {"role": "assistant", "content": "Hi."}, user("x")]}, fewer_prompt_tokens
    ),
    "K27": case({"messages": CODES, "tools": [WEATHER]}, fewer_prompt_tokens),
    "K28": case(
        {"prompt": "call f with n 7", "tools": [tool("f", n={"type": "integer"})]},
        lambda clean, bad: [json.loads(arguments(one[0])[0])["n"] for one in (clean, bad)] == [7, "7"],
    ),
    "K29": case(
        {"prompt": 'call f with type "x"', "tools": [tool("f", type={"type": "string"})]},
        lambda clean, bad: [arguments(one[0])[0] for one in (clean, bad)] == ['{"type":"x"}', "{}"],
    ),
    "K30": case(PROBABLE, at_all_positions(lambda found: found[0]["token"] == "")),
}
CASES |= K_CASES


def modes(fault_id: str) -> list[bool]:
    wanted = CASES[fault_id].stream
    if wanted is not None:
        return [wanted]
    return {"stream": [True], "nonstream": [False], "both": [True, False]}[FAULTS[fault_id].mode]


def neutral(got: Any) -> bytes:
    """The answer without what differs between any two answers."""
    raw = re.sub(rb"chatcmpl-[0-9A-Za-z]+|call_[0-9A-Za-z]{24}", b"ID", got.raw)
    return re.sub(rb'"created":\d+', b'"created":0', raw)


CLEAN: dict[str, list[Any]] = {}


def run(serve: Any, wanted: Case, stream: bool, faults: tuple[str, ...]) -> list[Any]:
    """The answers of a server of its own; those of a clean one are asked for once."""
    key = json.dumps([wanted.requests, repr(wanted.config), stream])
    if not faults and key in CLEAN:
        return CLEAN[key]
    client = serve(fresh=True, faults=faults, **wanted.config)
    answers = [client.ask(stream=stream, **request) for request in wanted.requests]
    if not faults:
        CLEAN[key] = answers
    return answers


def test_every_fault_of_the_catalogue_is_here_and_has_a_test():
    assert not FAULTS.keys() & NOT_SHOWABLE.keys()
    assert len(FAULTS) + len(NOT_SHOWABLE) == 153
    assert CASES.keys() | OF_THEIR_OWN == FAULTS.keys()
    for fault in FAULTS.values():
        assert fault.group == fault.id[0].lower()
        assert 1 <= len(fault.areas) <= 2


@pytest.mark.parametrize("fault_id", sorted(CASES.keys() - OF_THEIR_OWN))
def test_the_fault_shows_as_described(serve, fault_id):
    wanted = CASES[fault_id]
    for stream in modes(fault_id):
        clean, bad = run(serve, wanted, stream, ()), run(serve, wanted, stream, (fault_id,))
        assert wanted.see(clean, bad), (bad[0].status, bad[0].raw[:1500])


@pytest.mark.parametrize("fault_id", sorted(id for id, fault in FAULTS.items() if fault.mode != "both" and id in CASES))
def test_the_other_mode_is_untouched(serve, fault_id):
    wanted = CASES[fault_id]
    stream = not modes(fault_id)[0]
    clean, other = run(serve, wanted, stream, ()), run(serve, wanted, stream, (fault_id,))
    assert list(map(neutral, clean)) == list(map(neutral, other))


@pytest.mark.parametrize("fault_id", sorted(FAULTS.keys() - {"C13", "C04", "I07"}))
def test_a_fault_that_never_applies_changes_nothing(serve, fault_id):
    """With ``turn2`` no first turn is touched, not a byte."""
    if fault_id not in CASES:
        pytest.skip("needs concurrency")
    wanted = CASES[fault_id]
    if wanted.requests[0].get("messages"):
        pytest.skip("the trigger is a second turn")
    short = Case(requests=wanted.requests[:1], see=wanted.see, config=wanted.config)
    stream = modes(fault_id)[0]
    clean, other = run(serve, short, stream, ()), run(serve, short, stream, (f"{fault_id}:turn2",))
    assert list(map(neutral, clean)) == list(map(neutral, other))
