"""What rules prepare once for a profile says the same as what it stands in for, and holds nothing of any exchange."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvv.profiles.profile import load_profile
from kvv.protocol.rules.heuristics import _CLASSES, mostly_of
from kvv.protocol.rules.texts import _compiled

PROFILES = ("kimi-k3", "kimi-k2.6", "qwen3", "deepseek-v3.2", "glm-4.6", "minimax-m2", "gpt-oss")
#: profile -> one of its markers
MARKERS = {"kimi-k3": "<|end_of_msg|>", "qwen3": "<|im_end|>", "minimax-m2": "]~b]"}


def test_exchanges_of_one_profile_share_no_findings_and_no_memory_of_the_request(lab: Any) -> None:
    clean, broken, asked = lab.base("kimi"), lab.base("kimi"), lab.base("kimi")
    broken.frames[4]["choices"][0]["delta"]["content"] = "Hello <|end_of_msg|>"
    broken.frames[2]["id"] = "chatcmpl-other"
    asked.frames[4]["choices"][0]["delta"]["content"] = "Hello <|end_of_msg|>"
    asked.request["metadata"] = "<|end_of_msg|>"
    before = [answer.rules() for answer in (clean, broken, asked)]
    assert before[0] == {}
    assert {"leak/special", "chunk/id-constant"} <= before[1].keys()
    assert before[2] == {}
    for order in ((2, 0, 1), (1, 2, 0), (1, 1, 0)):
        for number in order:
            assert (clean, broken, asked)[number].rules() == before[number]


def test_a_profile_of_the_same_id_with_other_promises_has_its_own_levels(lab: Any) -> None:
    """A profile made of another one (claims laid over it) is not taken for that one."""
    answer = lab.base("openai-tools")
    answer.request["parallel_tool_calls"] = False
    assert "tools/serial" in answer.rules()
    answer.profile = lab.profile("openai", claims={"parallel": False})
    assert "tools/serial" not in answer.rules()
    answer.profile = load_profile("openai")
    assert "tools/serial" in answer.rules()


@pytest.mark.parametrize("name", PROFILES)
def test_the_expression_of_the_markers_finds_the_longest_at_each_place(name: str) -> None:
    markers = load_profile(name).markers
    made = _compiled(markers.special, markers.tools, markers.think)
    assert made.pattern is not None
    words = sorted(made.groups, key=len, reverse=True)
    plain = re.compile("|".join(map(re.escape, words)))
    texts = [
        *words,
        *(word[:-1] for word in words),
        *(word + "|>" for word in words),
        "<" * 40,
        "[" * 40,
        "</td><th><tr>",
        "<|open|><|close|>tool",
    ]
    for text in [*texts, "x".join(texts), "".join(texts)]:
        assert [m.span() for m in made.pattern.finditer(text)] == [m.span() for m in plain.finditer(text)]
        # a text that is not searched has none
        if not any(start in text for start in made.starts) or not any(first in text for first in made.firsts):
            assert plain.search(text) is None


@pytest.mark.parametrize(("name", "marker"), MARKERS.items())
def test_a_marker_is_seen_wherever_it_stands_in_a_body(lab: Any, name: str, marker: str) -> None:
    for text in (marker, "a" * 2_000 + marker, marker + "a" * 2_000, f"<td>[x]{marker[:-1]} {marker}"):
        answer = lab.base("openai-body")
        answer.profile = load_profile(name)
        answer.body["choices"][0]["message"]["content"] = text
        assert any(rule.startswith("leak/") for rule in answer.rules()), text[:40]


def _counted(text: str) -> str:
    """As the rule is written: count every candidate."""
    letters = "".join(text[:20_000].split())
    if len(letters) < 40:
        return ""
    common = max(sorted(set(letters[:64])), key=letters.count)
    return common if letters.count(common) > len(letters) * 0.6 and not common.isdecimal() else ""


def test_no_blank_is_counted_among_the_letters() -> None:
    blanks = {ord(blank) & 0xFF for blank in map(chr, range(0x110000)) if blank.isspace()}
    assert not blanks & {byte for members in _CLASSES for byte in members}
    assert sum(map(len, _CLASSES)) == len({byte for members in _CLASSES for byte in members}), (
        "a character is in one class only"
    )


@given(
    st.lists(st.tuples(st.characters(), st.integers(1, 60)), max_size=12).map(
        lambda runs: "".join(c * n for c, n in runs)
    )
)
@example("!" * 61 + "abcdefghij" * 4)
@example("!" * 60 + "abcdefghij" * 4)
@example("\u4e00" * 61 + "\u4e01" * 39 + " " * 30)
@example("\U0001f600" * 90 + "ab" * 20)
@example("\ud800" * 50)
@example("7" * 100)
@example("0" * 15 + "A" * 25 + "\x85" * 2)
@example("A" * 25 + "b" * 15 + "\u2028" * 30)
def test_junk_is_told_as_if_every_character_were_counted(text: str) -> None:
    assert mostly_of(text) == _counted(text)


@given(
    st.text(st.sampled_from("etn !\u4e00\u4e01\U0001f600"), min_size=30, max_size=200),
    st.sampled_from("e!\u4e00"),
    st.integers(0, 300),
)
def test_junk_within_text_is_told_as_if_every_character_were_counted(text: str, character: str, times: int) -> None:
    assert mostly_of(text + character * times) == _counted(text + character * times)
