"""What --tokenizer and --data add to the usage suite."""

from __future__ import annotations

from typing import Any

import pytest

from kvv.cases.suite import Context, Settings, load_suite
from kvv.core import Dataset, Level, Surface
from kvv.data import load
from kvv.profiles.profile import load_profile

PICTURE = {"type": "image_url", "image_url": {"url": "fixture://a.png?width=1&height=1"}}
REQUEST = {"messages": [{"role": "user", "content": "hi"}], "reasoning_effort": "max", "model": "theirs"}


class Words:
    def count(self, text: str) -> int:
        return len(text.split())


def cases(
    *rows: dict[str, Any], profile: str = "kimi-k3", surface: Surface = Surface.VENDOR, **options: Any
) -> dict[str, Any]:
    dataset = Dataset(rows=rows, origin="x", revision="x") if rows else None
    context = Context(
        model="mine", profile=load_profile(profile, surface), settings=Settings(), dataset=dataset, **options
    )
    return {case.id: case for case in load_suite("usage").cases(context)}


def row(name: str = "One Case", **request: Any) -> dict[str, Any]:
    return {"id": name, "request": {**REQUEST, **request}, "expected_prompt_tokens": 86}


def test_a_row_is_sent_as_it_stands_but_for_model_and_stream() -> None:
    case = cases(row())["usage/data/one-case/stream"]
    assert case.level is Level.MUST
    assert case.inputs["body"] == {
        **REQUEST,
        "model": "mine",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert case.inputs["checks"] == {"prompt-tokens": {"exact": 86, "stub": 0}}


def test_an_engine_may_count_the_generation_stub() -> None:
    assert (
        cases(row(), surface=Surface.ENGINE)["usage/data/one-case/stream"].inputs["checks"]["prompt-tokens"]["stub"]
        == 3
    )


@pytest.mark.parametrize(
    ("request_fields", "options", "reason"),
    [
        ({}, {"profile": "openai"}, "Kimi K3"),
        ({"thinking": {"type": "disabled"}}, {}, "thinking-off"),
        ({"messages": [{"role": "user", "content": [PICTURE]}]}, {}, "an image"),
    ],
)
def test_rows_that_cannot_be_asked_are_skipped_with_the_reason(
    request_fields: Any, options: dict[str, Any], reason: str
) -> None:
    assert reason in cases(row(**request_fields), **options)["usage/data/one-case/stream"].inputs["skip"]


def test_rows_that_are_none_are_refused_with_their_id() -> None:
    with pytest.raises(ValueError, match=r"'One Case'.*no messages"):
        cases(row(messages="hi"))
    with pytest.raises(ValueError, match=r"'one case'.*taken"):
        cases(row(), row("one case"))


def test_full_counts_come_from_the_runs_tokeniser() -> None:
    found = cases(tokenizer=Words())
    english = found["usage/full/english/thinking-on/whole"]
    # 7 + 68 for effort low + 11 + thirteen words
    assert english.inputs["rounds"][0]["checks"]["prompt-tokens"]["exact"] == 7 + 68 + 11 + 13
    assert cases()["usage/full/english/thinking-on/whole"].inputs["skip"] == "no --tokenizer"


def test_the_shipped_rows_are_whole() -> None:
    dataset = load("usage", fixture=True)
    assert [entry["expected_prompt_tokens"] for entry in dataset.rows] == [99, 103, 36]
