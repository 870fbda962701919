"""Where the same bytes are a must, a should or nothing, depending on what surrounds them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from kvv.core import Fragment, Level, Request, Surface
from kvv.protocol.rules.asked import Asked
from kvv.protocol.rules.heuristics import loop_of

MUST, SHOULD = Level.MUST, Level.SHOULD
FENCE = "```"


def kimi_says(lab: Any, *texts: str, reasoning: bool = False, finish: str = "stop") -> dict[str, Level]:
    """The text rules that object when the answer (or the reasoning) comes in these pieces."""
    answer = lab.base("kimi")
    field, at = ("reasoning_content", slice(1, 3)) if reasoning else ("content", slice(4, 6))
    answer.frames[at] = [lab.chunk({field: text}, kimi=True) for text in texts]
    answer.frames[-3]["choices"][0]["finish_reason"] = finish
    return {rule: level for rule, level in answer.rules().items() if rule.startswith(("leak/", "text/"))}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a<|end_of_msg|>"], {"leak/special": MUST}),
        (["the token `<|end_of_msg|>` ends it"], {"leak/special": SHOULD}),
        ([FENCE + "py\n", "x = <|end_of_msg|>\n", FENCE], {"leak/special": SHOULD}),
        ([FENCE + "py\n" + FENCE, " <|end_of_msg|>"], {"leak/special": MUST}),
        (["ends in [EOS]"], {"leak/special": SHOULD}),
        (["<|", "end", "_of", "_msg", "|>"], {"leak/special": MUST}),
        (["<|end_of_msg|", " >"], {}),
        ([" \n<think>", "hm</think>"], {"leak/think": MUST}),
        (["The tag <think> opens and </think> closes."], {"leak/think": SHOULD}),
        (["hm</think>Hello"], {"leak/think": MUST}),
    ],
)
def test_a_bare_marker_is_a_must_and_a_quoted_one_is_not(
    lab: Any, texts: list[str], expected: dict[str, Level]
) -> None:
    assert kimi_says(lab, *texts) == expected


@pytest.mark.parametrize("filler", [0, 1, 61, 62, 63, 64, 65, 130])
def test_a_marker_is_found_across_any_batch_and_names_the_frame_that_completes_it(lab: Any, filler: int) -> None:
    answer = lab.base("kimi")
    texts = [*["x "] * filler, "<|tool_call", "_begin|>"]
    answer.frames[4:6] = [lab.chunk({"content": text}, kimi=True) for text in texts]
    leaks = [f for f in answer.read().findings if f.rule == "leak/tools"]
    assert [f.frame for f in leaks] == [4 + len(texts)]
    assert leaks[0].excerpt.endswith("<|tool_call_begin|>")


@pytest.mark.parametrize("filler", [0, 61, 62, 63, 64])
@pytest.mark.parametrize(
    ("texts", "rule"),
    [
        (["<|open|>", "tools"], "leak/tools"),
        (["<|op", "en|>to", "ols<|sep|>"], "leak/tools"),
        (["<|open|>", "toast"], "leak/special"),
    ],
)
def test_the_longest_marker_decides_across_any_batch(lab: Any, filler: int, texts: list[str], rule: str) -> None:
    answer = lab.base("kimi")
    answer.profile = lab.profile("kimi-k3", markers={"special": ("<|open|>",), "tools": ("<|open|>tools",)})
    answer.frames[4:6] = [lab.chunk({"content": text}, kimi=True) for text in [*["x "] * filler, *texts, *["y "] * 70]]
    for steady in (True, False):
        for split in (0, 100):
            leaks = [
                (f.rule, f.frame)
                for f in answer.read(steady=steady, split=split).findings
                if f.rule.startswith("leak/")
            ]
            completes = len(texts) if rule == "leak/tools" else 1
            assert leaks == [(rule, 4 + filler + completes)]


def test_a_wrong_index_does_not_set_off_the_rules_of_the_end(lab: Any) -> None:
    answer = lab.base("openai-tools")
    answer.request["tool_choice"] = "required"
    for number, frame in enumerate(answer.frames[:-2]):
        frame["choices"][0]["index"] = 197 + number
    assert answer.rules() == {"chunk/choice-index": MUST}


def test_think_tags_in_reasoning_are_a_should(lab: Any) -> None:
    assert kimi_says(lab, "hm </think> hm", reasoning=True) == {"leak/think": SHOULD}


def test_a_model_that_thinks_inline_leaks_no_think_tag(lab: Any) -> None:
    answer = lab.base("kimi")
    answer.profile = lab.profile("kimi-k3", thinking={"inline": True})
    answer.frames[4]["choices"][0]["delta"]["content"] = "<think>hm</think>Hello"
    assert answer.rules() == {}


@pytest.mark.parametrize("escaped", ["<|end_of_msg|>", "\\u003c|end_of_msg|>"])
def test_a_marker_in_the_request_is_found_however_it_is_escaped(escaped: str) -> None:
    body = {"messages": [Fragment.of(b'{"role":"user","content":"say ' + escaped.encode() + b'"}', splice=True)]}
    assert Asked(Request(body=body)).holds("<|end_of_msg|>")
    assert not Asked(Request(body=body)).holds("<|open|>")


@pytest.mark.parametrize(
    ("texts", "finish", "expected"),
    [
        (["a\ufffd"], "stop", {"text/replacement": MUST}),
        (["a\ufffd"], "length", {"text/replacement": SHOULD}),
        (["a\ufffdb"], "length", {"text/replacement": MUST}),
        (["aé"], "length", {}),
    ],
)
def test_a_character_cut_by_the_cap_is_no_must(
    lab: Any, texts: list[str], finish: str, expected: dict[str, Level]
) -> None:
    assert kimi_says(lab, *texts, finish=finish) == expected


def test_broken_characters_that_the_request_holds_may_come_back(lab: Any) -> None:
    answer = lab.base("openai")
    answer.request["messages"] = [{"role": "user", "content": "What is \ufffd?"}]
    answer.frames[1]["choices"][0]["delta"]["content"] = "\ufffd is U+FFFD"
    assert answer.rules() == {}


@pytest.mark.parametrize(("required", "level"), [(["city"], MUST), ([], SHOULD)])
def test_empty_arguments_are_a_must_only_where_one_is_required(lab: Any, required: list[str], level: Level) -> None:
    answer = lab.base("openai-body-tools")
    answer.request["tools"] = [
        {
            "type": "function",
            "function": {"name": "get_weather", "parameters": {"type": "object", "required": required}},
        }
    ]
    answer.body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = ""
    assert answer.rules() == {"tools/arguments-json": level}


@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        ("\u5317\u4eac", '{"city":"\u5317\u4eac"}'),
        ("\u5317\u4eac", '{"city":"\u5317 \\u4eac"}'),  # the model's own mixture
        ("\u5317\u4eac", '{"city":"\\\\u5317"}'),  # a backslash and the letters u5317
        ("\u5317\u4eac", '{"city":"a\\u0007\\u2028\\u200b"}'),  # nobody sees these
        ("Beijing", '{"city":"\\u5317"}'),
        ("\u5317 \\u4eac", '{"city":"\\u5317"}'),  # the request escapes too
    ],
)
def test_escapes_in_arguments_are_held_against_the_serialiser_alone(lab: Any, said: str, arguments: str) -> None:
    answer = lab.base("openai-body-tools")
    answer.request["messages"] = Fragment.of(f'[{{"role":"user","content":"{said}"}}]'.encode())
    answer.body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = arguments
    assert answer.rules() == {}


@pytest.mark.parametrize(("profile", "level"), [("openai", SHOULD), ("kimi-k3", MUST)])
def test_stop_after_a_required_call_is_a_must_for_kimi_alone(lab: Any, profile: str, level: Level) -> None:
    answer = lab.base("openai-body-tools")
    answer.profile = lab.profile(profile)
    answer.request["tool_choice"] = "required"
    answer.body["choices"][0]["finish_reason"] = "stop"
    assert answer.rules()["finish/tool-calls"] is level


@pytest.mark.parametrize(("surface", "level"), [(Surface.VENDOR, MUST), (Surface.ENGINE, SHOULD)])
def test_ignoring_parallel_tool_calls_is_a_should_for_an_engine(lab: Any, surface: Surface, level: Level) -> None:
    answer = lab.base("openai-body-tools")
    answer.profile = lab.profile("openai", surface)
    answer.request["parallel_tool_calls"] = False
    assert answer.rules() == {"tools/serial": level}


def test_a_named_choice_is_judged_only_where_it_is_claimed(lab: Any) -> None:
    answer = lab.base("openai")
    answer.request |= {"tools": [lab.WEATHER], "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
    assert answer.rules() == {"tools/choice-named": MUST}
    answer.profile = lab.profile("openai", claims={"named": False})
    assert answer.rules() == {}


@pytest.mark.parametrize(
    "message", [{"role": "system", "content": "", "tools": [1]}, Fragment.of(b'{"role":"system","tools":[]}')]
)
def test_calls_are_not_unrequested_where_a_message_declares_tools(lab: Any, message: Any) -> None:
    answer = lab.base("openai-body-tools")
    del answer.request["tools"]
    if isinstance(message, dict):
        message = message | {"tools": [lab.WEATHER]}
    answer.request["messages"] = [message, {"role": "user", "content": "Weather?"}]
    assert answer.rules() == {}


def test_declared_tools_are_read_out_of_fragments() -> None:
    tool = b'{"type":"function","function":{"name":"f","parameters":{"required":["a"]}}}'
    for tools in (Fragment.of(b"[" + tool + b"]"), [Fragment.of(tool)], [Fragment.of(tool, splice=True)]):
        assert Asked(Request(body={"tools": tools})).tools() == {"f": True}
    assert Asked(Request(body=b"{")).tools() is None


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        {"messages": 3, "tools": 4, "n": "x", "stop": 5, "max_tokens": True, "stream_options": [], "tool_choice": 1},
    ],
)
def test_a_malformed_request_asks_for_nothing(lab: Any, body: Any) -> None:
    asked = Asked(Request(body=body))
    assert (asked.n, asked.stops, asked.cap, asked.include_usage, asked.tool_choice) == (1, (), None, False, None)


def test_the_policy_claims_the_stream_rules_for_any_profile(lab: Any) -> None:
    answer = lab.base("openai")
    assert answer.rules() == {}
    answer.moonshot = True
    found = answer.rules()
    assert found["usage/end-frame"] is MUST
    assert found["usage/headers"] is MUST


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("The next step is to add the numbers. " * 30, True),
        ("Let me think. " * 60, True),
        ("ab" * 20, False),
        ("-" * 2_000, False),
        ("\n" * 2_000, False),
        ("".join(f"Step {n}: add {n} and {n + 1}.\n" for n in range(200)), False),
        (
            "The next step is to add the numbers. " * 30 + "Done, the result is forty-two, which is what was asked.",
            False,
        ),
        ("| 1 | 2 | 3 |\n" * 20, False),
    ],
)
def test_a_loop_is_told_from_a_list(text: str, loops: bool) -> None:
    assert bool(loop_of(text)) is loops


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("official", {"tools/arguments-json"}),
        # 13 of this vendor's 80 calls with Chinese arguments are escaped; none of the official 87 is
        ("vendor", {"tools/arguments-json", "tools/arguments-escaped"}),
    ],
)
def test_recorded_answers_of_real_servers_break_no_must(lab: Any, shared: Path, name: str, told: set[str]) -> None:
    """256 answers each, as two public APIs gave them: a must here would accuse a server that works."""
    folder = shared / "data" / "tool_calls"
    requests = [orjson.loads(line) for line in (folder / "requests_256.jsonl").read_bytes().splitlines()]
    answer = lab.base("openai-body")
    seen: set[str] = set()
    for line in gzip.decompress((folder / f"results_{name}_256.jsonl.gz").read_bytes()).splitlines():
        row = orjson.loads(line)
        answer.body, answer.request = row["response"], requests[row["data_index"] - 1]
        received = answer.read()
        assert received.observation.finish_reason == row["finish_reason"]
        assert [f for f in received.findings if f.level is MUST] == []
        seen |= {f.rule for f in received.findings}
    assert seen <= told
    assert ("tools/arguments-escaped" in seen) is (name == "vendor")
