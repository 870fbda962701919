"""Instances of a coding agent in the reports: one line each, a safe link to each page, and the sums in words."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from means import mean_stat

from kvv.reporting import html, markdown
from kvv.reporting.instances import describe, lines_of
from kvv.storage.view import RunView

PAGE = "swebench/logs/kimi-k3/a%2Fb/trajectory.html"


def with_instances(view: RunView, instances: Any, **breakdown: Any) -> RunView:
    stat = mean_stat(
        "ocrbench",
        "resolved",
        [],
        key="score",
        primary=True,
        breakdown={**breakdown, "instances": instances},
        comparability={},
    )
    return replace(view, decision=replace(view.decision, stats=[stat]))


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name == "href"]


def links(page: str) -> list[str]:
    parser = Links()
    parser.feed(page)
    return [link for link in parser.found if not link.startswith("#")]


def test_each_instance_is_a_line_with_its_facts_and_a_relative_link(views: Any) -> None:
    facts = {
        "outcome": "fail",
        "reason": "tests-fail",
        "exit": "submitted",
        "steps": 12,
        "prompt_tokens": 40_000,
        "cost": 0.25,
        "page": PAGE,
    }
    view = with_instances(
        views.make(),
        {"a/b": facts, "c": {"outcome": "inconclusive", "reason": "reset"}},
        exits={"submitted": 1},
        empty_patches=0,
    )
    page = html.render(view)
    # the file's name holds the percent sign itself
    assert links(page) == ["swebench/logs/kimi-k3/a%252Fb/trajectory.html"]
    row = page[page.index(">a/b</a>") :][:400]
    for text in ("fail", "tests-fail", "submitted", ">12<", "40,000", "0.2500"):
        assert text in row
    said = markdown.render(view)
    assert "[a/b](swebench/logs/kimi-k3/a%252Fb/trajectory.html) | fail | tests-fail | submitted | 12 |" in said
    assert "| c | inconclusive | reset |" in said
    assert "- exits: submitted 1\n- empty\\_patches: 0" in said.replace("empty_patches", "empty\\_patches")


@pytest.mark.parametrize(
    "page",
    [
        "javascript:alert(1)",
        "/etc/passwd",
        "../../x.html",
        "swebench/../../x",
        'a" onclick="x',
        "http://x/y",
        "//x/y",
        "a\nb",
        "x" * 2_000,
        5,
        None,
        ".",
    ],
)
def test_a_page_that_is_no_path_in_the_folder_is_no_link(views: Any, page: Any) -> None:
    view = with_instances(
        views.make(), {"<script>x</script>": {"page": page, "reason": "](javascript:alert(1)) <img src=x>"}}
    )
    found = html.render(view)
    expected = ["5"] if page == 5 else []
    assert links(found) == expected
    assert "<script>x" not in found
    assert "<img src=x" not in found
    assert re.search(r"\[[^\]\\]*\]\((?!5\))", markdown.render(view)) is None


def test_what_is_no_table_of_instances_is_left_out(views: Any) -> None:
    for odd in ([1, 2], "x", {"a": 1}, None):
        view = with_instances(views.make(), odd)
        assert lines_of(view.decision.stats[0]) == []
        assert "instances</h2>" not in html.render(view)


def test_counts_are_told_in_words_and_long_ones_are_cut() -> None:
    assert describe({"submitted": 5, "loop": 1}) == "submitted 5, loop 1"
    assert describe({"steps": 4.25}) == "steps 4.25"
    assert describe({}) == "none"
    assert len(describe({str(n): n for n in range(10_000)})) < 400


def test_more_instances_than_the_page_lists_are_counted(views: Any) -> None:
    view = with_instances(views.make(), {f"i{n}": {"outcome": "pass"} for n in range(html.LISTED + 7)})
    page = html.render(view)
    assert page.count('<td class="id">i') == html.LISTED
    assert "and 7 more" in page
