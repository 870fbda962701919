"""The HTML report in a real browser, over the DevTools protocol: filter, deep links, dark mode, phone width, and
nothing injected runs.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, Tab, drive

from kvv.core import Outcome
from kvv.rendering.document import Chart, ChartMark, Document, DocumentTable, Estimate, Excerpt, Section, Unit
from kvv.rendering.document import html as document_html
from kvv.reporting import html

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


def write(folder: Path, text: str) -> str:
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    return path.as_uri()


def test_filter_deep_link_dark_mode_and_phone_width(views: Any, tmp_path: Path) -> None:
    extra = [views.judged(f"params/n{i}", "params", Outcome.PASS if i % 2 else Outcome.FAIL) for i in range(5_000)]
    url = write(tmp_path, html.render(views.make(extra=extra)))
    found: dict[str, Any] = {}

    async def script(tab: Tab) -> None:
        await tab.open(f"{url}#case-params/too-hot")
        found["opened"] = await tab.js("document.getElementById('case-params/too-hot').open")
        # below the filter, which stays on top of the page
        top = "document.getElementById('case-params/too-hot').getBoundingClientRect().top"
        found["near"] = await tab.js(
            f"{top} >= document.querySelector('.filterbar').getBoundingClientRect().bottom - 1 && {top} < innerHeight"
        )
        # a case that is no failure stands in a closed list; one that is not in the file is said to be missing
        await tab.js("location.hash = '#case-params/n17'")
        await asyncio.sleep(0.1)
        found["listed"] = await tab.js("document.getElementById('case-params/n17').closest('details').open")
        await tab.js("location.hash = '#case-params/nowhere'")
        await asyncio.sleep(0.1)
        found["missing"] = await tab.js("document.getElementById('hits').textContent")
        await tab.js(
            "const b = document.getElementById('filter'); b.value = 'TOO-HOT not-refused'; b.dispatchEvent(new"
            " Event('input'))"
        )
        await asyncio.sleep(0.4)
        found["hits"] = await tab.js("document.getElementById('hits').textContent")
        found["shown"] = await tab.js(
            "[...document.querySelectorAll('details.case.row')].filter(e => !e.hidden).length"
        )
        await tab.js("b.value = ''; b.dispatchEvent(new Event('input'))")
        await asyncio.sleep(0.4)
        found["all"] = await tab.js("document.querySelectorAll('.row[hidden]').length")
        background = "getComputedStyle(document.body).backgroundColor"
        for scheme in ("light", "dark"):
            await tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            found[scheme] = await tab.js(background)
        await tab.call("Emulation.setDeviceMetricsOverride", width=375, height=800, deviceScaleFactor=2, mobile=True)
        found["overflow"] = await tab.js("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    tab = drive(tmp_path, script)
    assert (found["opened"], found["near"]) == (True, True)
    assert found["shown"] == 1
    assert found["listed"]
    assert "not listed in this file" in found["missing"]
    # it stands among the failed and among all: one case, of those that the file lists
    assert found["hits"].startswith("1 of ")
    assert found["all"] == 0
    assert found["light"] != found["dark"]
    assert found["overflow"] <= 0
    assert [request.split("#")[0] for request in tab.requests] == [url]
    assert tab.errors == []


@pytest.mark.parametrize(
    "payload",
    [
        "<script>window.owned = 1; alert(1)</script><img src=http://127.0.0.1:9/x onerror='window.owned=1'>",
        '"><svg onload=window.owned=1></pre></details><iframe src=http://127.0.0.1:9/>',
        "</title></style><script>window.owned=1</script>{{ 7*7 }}",
    ],
)
def test_nothing_injected_runs_or_loads(views: Any, tmp_path: Path, payload: str) -> None:
    url = write(tmp_path, html.render(views.make(payload)))
    found: dict[str, Any] = {}

    async def script(tab: Tab) -> None:
        await tab.open(url)
        await tab.js("document.querySelectorAll('details').forEach(d => d.open = true)")
        await asyncio.sleep(0.1)
        found["owned"] = await tab.js("typeof window.owned")
        found["tags"] = await tab.js(
            "document.querySelectorAll('iframe, img, object, embed').length + document.scripts.length"
        )

    tab = drive(tmp_path, script)
    assert found == {"owned": "undefined", "tags": 1}
    assert tab.requests == [url]
    assert tab.errors == []


def test_a_document_filters_fits_a_phone_and_runs_nothing_injected(tmp_path: Path) -> None:
    payload = "<script>window.owned = 1</script><img src=http://127.0.0.1:9/x onerror='window.owned=1'>"
    points = tuple(
        (f"2026-03-{i:02}", Estimate(value=0.9 - 0.01 * i, low=0.8 - 0.01 * i, high=0.95, n=9)) for i in range(1, 20)
    )
    chart = Chart(title=payload, unit=Unit.SHARE, points=points, marks=(ChartMark(index=7, text=payload),))
    rows = tuple((f"case-{i} {payload}", Estimate(value=0.5, low=0.4, high=0.6, n=9)) for i in range(300))
    table = DocumentTable(name="t", columns=("case", payload), rows=rows)
    excerpt = Excerpt(line=payload, texts=((payload, payload),))
    section = Section(title=payload, notes=(payload,), charts=(chart,), tables=(table,), excerpts=(excerpt,))
    url = write(tmp_path, document_html(Document(title=payload, lead=(payload,), sections=(section,), outcome="fail")))
    found: dict[str, Any] = {}

    async def script(tab: Tab) -> None:
        await tab.open(url)
        await tab.js("document.querySelectorAll('details').forEach(d => d.open = true)")
        await tab.js(
            "const b = document.getElementById('filter'); b.value = 'CASE-17 '; b.dispatchEvent(new Event('input'))"
        )
        await asyncio.sleep(0.4)
        found["shown"] = await tab.js("document.querySelectorAll('tr.row:not([hidden])').length")
        found["owned"] = await tab.js("typeof window.owned")
        found["tags"] = await tab.js(
            "document.querySelectorAll('iframe, img, object, embed').length + document.scripts.length"
        )
        await tab.call("Emulation.setDeviceMetricsOverride", width=375, height=800, deviceScaleFactor=2, mobile=True)
        found["overflow"] = await tab.js("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    tab = drive(tmp_path, script)
    assert (found["owned"], found["tags"]) == ("undefined", 1)
    assert found["shown"] == 11  # 17 and 170 to 179
    assert found["overflow"] <= 0
    assert tab.requests == [url]
    assert tab.errors == []
