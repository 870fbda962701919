"""Prompt tokens of the K3 template: the published constants with the model's own merges, and the parts one by one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.data import DataError
from kvv.data.merges import read_merges
from kvv.profiles.profile import load_profile
from kvv.profiles.token_counts import Bpe, Tokenizer, Uncountable, prompt_tokens

K3 = load_profile("kimi-k3").tokens
OFF = {"thinking": {"type": "disabled"}}
RF: dict[str, Any] = {
    "messages": [{"role": "user", "content": "请用 JSON 格式回答：北京是中国的首都吗？答案需要包含键 capital。"}],
    **OFF,
}
CAPITAL = {
    "type": "object",
    "properties": {"capital": {"type": "boolean"}},
    "required": ["capital"],
    "additionalProperties": False,
}
CONCISE = [{"role": "system", "content": "你是一个简洁、准确的助手。"}, {"role": "user", "content": "你好"}]
#: the public verifier's one request that holds everything; it expects 539, without the empty think block of the chat
#: path
EVERYTHING: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "You are Kimi, a helpful assistant."},
        {
            "role": "system",
            "content": "",
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "get_weather",
                        "description": "Get the weather of a city.",
                        "parameters": {
                            "type": "object",
                            "properties": {
                                "city": {"type": "string", "description": "城市名称"},
                                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                            },
                            "required": ["city"],
                        },
                    },
                }
            ],
        },
        {"role": "user", "content": "北京今天天气怎么样？请查一下。"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_01abc",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "北京"}'},
                }
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "call_01abc",
            "content": '{"city": "北京", "temperature": 26, "condition": "晴"}',
        },
        {"role": "user", "content": "请用 JSON 格式总结今天的天气，包含城市、温度、天气状况和一句话总结。"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_news",
                "description": "Get the latest news by topic.",
                "parameters": {"type": "object", "properties": {"topic": {"type": "string"}}},
            },
        }
    ],
    "tool_choice": "auto",
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "weather_summary",
            "schema": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "temperature": {"type": "number"},
                    "condition": {"type": "string"},
                    "summary": {"type": "string"},
                },
                "required": ["city", "temperature", "condition", "summary"],
                "additionalProperties": False,
            },
        },
    },
    "thinking": {"type": "enabled", "keep": "all", "effort": "high"},
}


class Words:
    """One token a word."""

    def count(self, text: str) -> int:
        return len(text.split())


def counted(
    body: Mapping[str, Any], tokenizer: Tokenizer | None = None, *, thinking: bool = True, effort: str | None = "max"
) -> int:
    return prompt_tokens(body, K3, tokenizer or Words(), default_effort=effort, thinking=thinking)


@pytest.fixture(scope="module")
def merges() -> Bpe:
    pytest.importorskip("tiktoken", reason="tiktoken is an extra")
    shared = Path(os.environ.get("KVV_SHARED", Path(__file__).resolve().parents[3] / "shared"))
    path = shared / "data" / "tokenizer" / "kimi-k2.6.tiktoken"
    if not path.is_file():
        pytest.skip("no merges file: set KVV_SHARED")
    return Bpe(read_merges(path))


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (RF, 36),
        (
            {
                **RF,
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "capital_answer", "schema": CAPITAL},
                },
            },
            119,
        ),
        ({"messages": CONCISE, **OFF}, 36),
        ({"messages": CONCISE, "reasoning_effort": "max"}, 103),
        ({"messages": [{"role": "assistant", "content": "你好"}], "reasoning_effort": "high"}, 99),
        (EVERYTHING, 545),
    ],
)
def test_the_published_constants_are_reproduced_with_the_models_merges(
    merges: Bpe, body: dict[str, Any], tokens: int
) -> None:
    assert counted(body, merges) == tokens


def test_elements_have_the_published_overheads(merges: Bpe) -> None:
    """Tools element 6, call get_weather #1 16, argument city/string 14, tool message get_weather #1
    21.
    """
    user = [{"role": "user", "content": "hi"}]
    calling = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "x", "function": {"name": "get_weather", "arguments": '{"city":"hello"}'}}],
    }
    base, call = counted({"messages": user}, merges), counted({"messages": [*user, calling]}, merges)
    assert call - base == 17 + 6 + 6 + 16 + 14 + 1
    result = {"role": "tool", "tool_call_id": "x", "content": "hello"}
    assert counted({"messages": [*user, calling, result]}, merges) - call == 21 + 1


def test_the_differences_of_the_contract() -> None:
    tool = [{"type": "function", "function": {"name": "f"}}]
    user = [{"role": "user", "content": "hi"}]
    base = counted({"messages": user, "tools": tool})
    assert counted({"messages": [{"role": "system", "content": "", "tools": tool}, *user]}) - base == 21
    assert counted({"messages": user, "tools": tool, "tool_choice": "required"}) - base == 36
    assert counted({"messages": user, "tools": tool, "tool_choice": "none"}) - base == 38
    assert counted({"messages": user, "tools": tool, "response_format": {"type": "json_object"}}) - base == 47
    assert counted({"messages": [*user, *user], "tools": tool}) - base == 12
    by_effort = {
        effort: counted({"messages": user, "tools": tool, "reasoning_effort": effort})
        for effort in ("low", "high", "max")
    }
    assert (by_effort["max"] - by_effort["high"], by_effort["low"] - by_effort["high"]) == (-1, 0)


def test_the_inner_effort_wins_and_off_has_none() -> None:
    user = [{"role": "user", "content": "hi"}]
    inner = counted({"messages": user, "thinking": {"type": "enabled", "effort": "high"}, "reasoning_effort": "max"})
    assert inner == counted({"messages": user, "reasoning_effort": "high"})
    assert counted({"messages": user, "thinking": {"type": "disabled", "effort": "max"}}) == 7 + 11 + 1
    assert counted({"messages": user, "chat_template_kwargs": {"thinking": False}}) == 7 + 11 + 1
    assert counted({"messages": user}, effort=None) == 7 + 11 + 1


def test_blank_reasoning_counts_as_none_and_ids_do_not_count() -> None:
    def history(reasoning: str | None, call_id: str) -> int:
        call = {"id": call_id, "function": {"name": "f", "arguments": "{}"}}
        said = {"role": "assistant", "content": None, "reasoning_content": reasoning, "tool_calls": [call]}
        return counted({"messages": [said, {"role": "tool", "tool_call_id": call_id, "content": "ok"}]})

    assert history(None, "a") == history("", "a") == history(" \n", "a") == history(None, "much-longer id")
    assert history("two words", "a") == history(None, "a") + 2


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
        {"messages": [{"role": "assistant", "content": "x", "partial": True}]},
        {"messages": [{"role": "tool", "tool_call_id": "lost", "content": "x"}]},
        {"messages": [], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"messages": [], "reasoning_effort": "enormous"},
        {
            "messages": [
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}
            ]
        },
    ],
)
def test_what_nobody_published_is_not_counted(body: dict[str, Any]) -> None:
    with pytest.raises(Uncountable):
        counted(body)


def test_a_profile_without_overheads_counts_nothing() -> None:
    with pytest.raises(Uncountable, match="generation"):
        prompt_tokens({"messages": []}, load_profile("openai").tokens, Words(), default_effort=None, thinking=False)


@given(text=st.text(max_size=200))
def test_any_text_has_a_count_of_at_most_its_bytes(merges: Bpe, text: str) -> None:
    clean = text.encode("utf-8", "replace").decode()
    assert 0 <= merges.count(clean) <= len(clean.encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        ("aGVsbG8= 5\nno-rank\n", "line 2: not a base64 token and a rank"),
        ("aGVsbG8= 5\n", "single bytes are missing"),
    ],
)
def test_a_file_that_is_no_merges_file_gives_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "x.tiktoken"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_merges(path)


def test_a_missing_merges_file_gives_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.tiktoken"):
        read_merges(tmp_path / "none.tiktoken")
