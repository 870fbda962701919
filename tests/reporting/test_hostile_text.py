"""Whatever a model or a server sends, each report stays what it is: it parses, nothing escapes, nothing grows without
bound.
"""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kvv.rendering.escape import block, bound_text, cell, fence_text, jsonable, plain, uncommanding_json
from kvv.reporting import csv as csv_report
from kvv.reporting import github, html, junit, leaderboard, markdown, text
from kvv.reporting import json as json_report

SCHEMA = jsonschema.Draft202012Validator(
    json.loads(files("kvv.reporting").joinpath("report.schema.json").read_text("utf-8"))
)
XSD = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))

PAYLOADS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    '\'" autofocus onfocus=alert(1) x="',
    "</pre></details></style></title><svg/onload=alert(1)>",
    "{{ 7 * 7 }}{% for x in y %}",
    "\x1b[31mred\x1b[0m\x1b]8;;http://x\x07link\x07",
    "\u202egnp.exe\u2066\u200f\u200b\ufeff",
    "a\x00b\x08\x7f\x85\u2028\u2029",
    "\ud800 lone \udfff",
    "]]> <!-- --> <?php ?> &amp; &#x0;",
    "::error title=x::y%0A::stop-commands::z\n::warning::w",
    "| a | b |\n|---|---|\n```\n# h\n[x](javascript:alert(1)) ![](http://x/y.png) @everyone",
    "\uffff\ufffe\U0010ffff\ue000",
    '=HYPERLINK("http://x")',
]
hostile = st.one_of(
    st.sampled_from(PAYLOADS),
    st.text(max_size=60),
    st.text(alphabet=st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Co"]), max_size=20),
)
quick = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)

#: what no person should be shown raw: controls (but tab and newline), bidi and zero-width characters, surrogates, line
#: separators
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufffe\uffff]")


class Page(HTMLParser):
    """Tags and event attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.attributes: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]


MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def page(out: str) -> Page:
    found = Page()
    found.feed(out)
    return found


@pytest.fixture(scope="module")
def clean_tags(views: Any) -> dict[str, int]:
    return page(html.render(views.make("plain"))).tags


@quick
@given(hostile)
def test_html_holds_no_injected_tag_attribute_or_link(views: Any, clean_tags: dict[str, int], payload: str) -> None:
    out = html.render(views.make(payload))
    found = page(out)
    assert found.tags.keys() <= clean_tags.keys() | {"p"}
    assert found.tags["script"] == found.tags["style"] == 1
    assert not any(name.startswith("on") for name in found.attributes)
    assert all(link.startswith("#") for link in found.links)
    assert not RAW.search(out)
    out.encode("utf-8")


@quick
@given(hostile)
def test_json_parses_validates_and_encodes(views: Any, payload: str) -> None:
    out = json_report.render(views.make(payload))
    assert out.isascii()
    report = json.loads(out)
    SCHEMA.validate(report)
    json.dumps(report, ensure_ascii=False).encode("utf-8")
    assert json.loads(leaderboard.render(views.make(payload)))["leaderboard_version"] == 1


@quick
@given(hostile)
def test_junit_parses_and_validates(views: Any, payload: str) -> None:
    out = junit.render(views.make(payload))
    XSD.validate(out)
    assert len(list(ET.fromstring(out.encode("utf-8")).iter("testcase"))) == 13 + bool(payload)  # noqa: S314
    assert not RAW.search(out)


@quick
@given(hostile)
def test_the_terminal_gets_no_control_character(views: Any, payload: str) -> None:
    for out in (text.render(views.make(payload)), github.workflow_commands(views.make(payload))):
        assert not RAW.search(out.replace("\n", ""))
        assert all(line.isprintable() for line in out.splitlines())
    assert all(line.startswith(("::error title=", "::warning title=", "::notice title=")) for line in out.splitlines())


@quick
@given(hostile)
@example("\r")
def test_markdown_holds_no_html_link_or_table_from_outside(views: Any, payload: str) -> None:
    out = markdown.render(views.make(payload))
    assert not RAW.search(out)
    open_fence, outside = "", []
    for line in out.splitlines():
        if open_fence:
            open_fence = "" if line == open_fence else open_fence
        elif line.startswith("```"):
            open_fence = line
        else:
            outside.append(line)
    assert not open_fence
    prose = "\n".join(outside)
    assert not re.search(r"<|\]\(|@everyone", prose)
    shown = page(MARKDOWN.render(out))
    assert shown.tags.keys() <= {
        *("h1", "h2", "h3", "h4", "p", "strong", "ul", "li", "pre", "code"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
    assert not shown.links
    assert shown.tags["h1"] == 1


@quick
@given(hostile)
def test_csv_has_one_row_a_metric_and_no_formula(views: Any, payload: str) -> None:
    (row,) = csv.DictReader(io.StringIO(csv_report.render(views.make(payload))))
    assert not any(value.lstrip().startswith(("=", "+", "@")) for value in row.values())


@pytest.mark.parametrize(
    "render",
    [
        html.render,
        json_report.render,
        junit.render,
        markdown.render,
        text.render,
        csv_report.render,
        leaderboard.render,
    ],
)
def test_ten_megabyte_texts_are_bounded(views: Any, render: Any) -> None:
    out = render(views.make("<b>\x1b" + "A" * 10_000_000))
    assert len(out) < 6_000_000


@given(st.text())
def test_plain_is_one_printable_line(value: str) -> None:
    assert plain(value).isprintable()
    assert plain(plain(value, 10_000), 20_000) == plain(value, 10_000)


def test_plain_keeps_ordinary_text_of_any_language() -> None:
    for ordinary in ("x ≤ 3, naïve", "你好，世界", "Привет", "🙂 ok"):
        assert plain(ordinary) == ordinary


def test_plain_shows_what_it_removes() -> None:
    assert plain("a\x1b[0m\u202eb\ud800\n\tc") == "a\\x1b[0m\\u202eb\\ud800 c"
    assert block("a\r\nb\rc\x00") == "a\nb\\x0dc\\x00"


def test_bounded_says_how_much_is_missing() -> None:
    assert bound_text("a" * 10, 4) == "aaaa [... 6 more characters]"
    assert bound_text("aaaa", 4) == "aaaa"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_jsonable_always_dumps(value: Any) -> None:
    json.dumps(jsonable(value), allow_nan=False, ensure_ascii=False).encode("utf-8")


def test_jsonable_bounds_depth_and_length() -> None:
    deep: Any = "x"
    for _ in range(10_000):
        deep = [deep]
    assert len(json.dumps(jsonable(deep))) < 200
    assert len(jsonable(list(range(100_000)))) == 500
    assert jsonable(float("nan")) is None


@given(st.text())
def test_a_fence_is_longer_than_any_run_inside(value: str) -> None:
    lines = fence_text(value).splitlines()
    assert lines[0] == lines[-1]
    assert lines[0] not in lines[1:-1]


#: characters that Markdown gives a meaning to, alone and in company
MARKED = st.text(alphabet=st.sampled_from("\\\\`*_{}[]()<>#|~!&$@+-=.:;1aé \u4e2d\"'/"), max_size=30)


@given(st.one_of(MARKED, st.text(), hostile))
def test_a_cell_is_shown_as_the_line_that_it_is(value: str) -> None:
    """In a table, at the beginning of a line and of a list item: the text, no tag, nothing lost."""
    want = " ".join(plain(value).split())
    for before, after in (("| x |\n|---|\n| ", " |"), ("", ""), ("- ", ""), ("## ", " ##"), ("**", " end**")):
        rendered = MARKDOWN.render(f"{before}{cell(value)}{after}\n")
        found = page(rendered).tags.keys() - {
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "p",
            "ul",
            "li",
            "h2",
            "strong",
        }
        assert not found, rendered
        if before in ("", "- "):
            assert " ".join(unescape(re.sub(r"</?(?:p|ul|li)>", "", rendered)).split()) == want


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("trigger_f1: 0.93 -> 0.90", "trigger_f1: 0.93 -> 0.90"),
        ("params/rejected/top-p-0.8 (thinking-on)", "params/rejected/top-p-0.8 (thinking-on)"),
        ("https://api.example.com/v1?x=1&y=2", "https://api.example.com/v1?x=1&y=2"),
        ('{"error": {"message": "no!"}} #12', '{"error": {"message": "no!"}} #12'),
        ("a | b", "a \\| b"),
        ("`x` *y* _z_", "\\`x\\` \\*y\\* \\_z\\_"),
        ("# no heading", "\\# no heading"),
        ("2. no list", "2\\. no list"),
        ("<b>", "&lt;b>"),
        ("&lt; & co", "&amp;lt; & co"),
    ],
)
def test_a_cell_escapes_only_what_would_mean_something(text: str, written: str) -> None:
    assert cell(text) == written


@pytest.mark.parametrize("shown", [plain, block, cell, fence_text])
@pytest.mark.parametrize(
    "command",
    [
        "::error title=x::y",
        "::stop-commands::z",
        "##[group]x",
        "##vso[task.setvariable variable=x]y",
        "##VSO[task.complete]",
        "###teamcity[buildStop comment='x']",
        "section_start:1700000000:x",
        "section_end:1700000000:x",
        "--- x",
        "+++ x",
        "~~~ x",
        "^^^ +++",
    ],
)
def test_no_text_speaks_to_a_log_reader_of_a_ci_service(shown: Callable[[object], str], command: str) -> None:
    line_start = command[0] in "-+~^"
    for said in (command, f" \t{command}", f"a\n{command}", *(() if line_start else (f"said {command}",))):
        out = shown(said)
        if line_start:
            assert not re.search(rf"^\s*{re.escape(command[:3])}", out, re.MULTILINE), out
        else:
            assert not re.search(r"##(\[|vso\[|teamcity\[)|section_(start|end):|::(error|stop-c)", out, re.I), out


@pytest.mark.parametrize(
    "harmless",
    ["tests/x.py::test_one", "std::vector", "a --- b", "## Heading", "#[x]", "section_start", "-- x", "a::b::c"],
)
def test_what_no_log_reader_obeys_stands_as_it_is(harmless: str) -> None:
    assert plain(harmless) == block(harmless) == harmless


def test_json_keeps_its_value_and_speaks_to_no_log_reader() -> None:
    value = ["##vso[a]", "###[b", "\\##teamcity[", "section_start:1:x"]
    out = uncommanding_json(json.dumps(value))
    assert json.loads(out) == value
    assert "##" not in out
    assert "section_" not in out
