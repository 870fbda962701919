"""The HTML report in a real browser, over the DevTools protocol: filter, deep links, dark mode, phone width, and
nothing injected runs.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kvv.core import Outcome
from kvv.rendering.document import Chart, ChartMark, Document, DocumentTable, Estimate, Excerpt, Section, Unit
from kvv.rendering.document import html as document_html
from kvv.reporting import html

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


class Tab:
    """One page; ``requests`` are the URLs it asked for, ``errors`` what its console and scripts complained of."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.requests: list[str] = []
        self.errors: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json(timeout=20)
            self._note(message)
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def _note(self, message: dict[str, Any]) -> None:
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            case "Runtime.exceptionThrown":
                self.errors.append(str(message["params"]))
            case "Log.entryAdded":
                self.errors.append(message["params"]["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.errors.append("a dialog opened")

    async def js(self, expression: str) -> Any:
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        for _ in range(200):
            if await self.js("document.readyState") == "complete" and await self.js("location.href") == url:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the page did not load")


def drive(folder: Path, script: Callable[[Tab], Awaitable[None]]) -> Tab:
    async def session() -> Tab:
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder / 'profile'}",
            "about:blank",
        ]
        process = await asyncio.create_subprocess_exec(
            str(CHROMIUM), *flags, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            port_file = folder / "profile" / "DevToolsActivePort"
            for _ in range(600):
                if port_file.exists() and port_file.read_text().count("\n"):
                    break
                await asyncio.sleep(0.05)
            port = int(port_file.read_text().splitlines()[0])
            async with aiohttp.ClientSession() as client:
                pages = await (await client.get(f"http://127.0.0.1:{port}/json")).json()
                address = next(p["webSocketDebuggerUrl"] for p in pages if p["type"] == "page")
                async with client.ws_connect(address, max_msg_size=0) as socket:
                    tab = Tab(socket)
                    for domain in ("Page", "Runtime", "Network", "Log"):
                        await tab.call(f"{domain}.enable")
                    await script(tab)
                    return tab
        finally:
            process.kill()
            await process.wait()

    return asyncio.run(session())


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
