"""`kvv view` in a real browser: filter, keyboard, comparison, live update, hostile text, a phone, dark."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, Tab, drive
from viewed import CLEAN, FAULTY, TOKEN, UNFINISHED, lay_out, put_failure, served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


#: the page is there and its script has run
READY = "document.readyState === 'complete' && document.documentElement.classList.contains('scripted')"
HEADING = "document.querySelector('h1').textContent"


async def until(tab: Tab, expression: str) -> Any:
    for _ in range(400):
        try:
            if found := await tab.js(expression):
                return found
        except AssertionError as gone:  # the page went away under the question
            if "navigated" not in str(gone) and "context" not in str(gone):
                raise
        await asyncio.sleep(0.025)
    raise AssertionError(f"never true: {expression}")


async def press(tab: Tab, key: str, code: int = 0) -> None:
    text = {"text": key} if len(key) == 1 else {}
    if key == "Enter":
        text = {"text": "\r"}
    for kind in ("keyDown", "keyUp"):
        await tab.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)


def test_a_browser_finds_compares_and_follows(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "runs")
    found: dict[str, Any] = {}

    with served(folder) as address:

        async def script(tab: Tab) -> None:
            await tab.call("Page.navigate", url=f"{address}/?token={TOKEN}")
            await until(tab, "document.querySelectorAll('table.runs tbody tr').length === 3")
            found["address"] = await tab.js("location.search")
            found["cookie"] = await tab.js("document.cookie")

            # the keyboard alone: past the navigation, into the faulty run, along its failed cases and back
            await press(tab, "Tab", 9)
            found["first stop"] = await tab.js("document.activeElement.getAttribute('href')")
            await tab.js(f"[...document.querySelectorAll('td a')].find(a => a.href.endsWith('{FAULTY}')).focus()")
            await press(tab, "Enter", 13)
            await until(tab, "document.querySelector('table.causes') !== null && document.readyState === 'complete'")
            found["title"] = await tab.js("document.title")
            await tab.js("document.querySelector('table.samples td.id a').focus()")
            await press(tab, "Enter", 13)
            first = await until(tab, f"{READY} && document.querySelector('a[rel=next]') && {HEADING}")
            await press(tab, "j")
            second = await until(tab, f"{READY} && {HEADING} !== {first!r} && {HEADING}")
            await press(tab, "k")
            await until(tab, f"{READY} && {HEADING} === {first!r}")
            found["moved"] = first != second

            # filter: a chip, then a word
            await tab.open(f"{address}/r/{FAULTY}")
            await tab.js("[...document.querySelectorAll('.chips a')].find(a => a.textContent === 'streamed').click()")
            await until(
                tab, "document.querySelector('.chips a.on:nth-of-type(n+2)') && location.search.includes('mode=')"
            )
            found["streamed"] = await tab.js(
                "[...document.querySelectorAll('table.samples td.id')].every(e => e.textContent.endsWith('/stream'))"
            )
            await tab.js(
                "document.getElementById('search').value = 'top-p';"
                " document.querySelector('main form.filters').submit()"
            )
            await until(tab, "location.search.includes('q=top-p') && document.readyState === 'complete'")
            found["found"] = await tab.js(
                "[...document.querySelectorAll('table.samples td.id')].map(e => e.textContent)"
            )

            # tick two runs and compare them
            await tab.open(f"{address}/")
            await tab.js("document.querySelectorAll('td.tick input').forEach(e => e.click())")
            await tab.js("document.querySelector('main > form:last-of-type').submit()")
            await until(tab, "location.pathname === '/compare' && document.readyState === 'complete'")
            # one run asked fewer cases: that is said before they are compared
            await tab.js("document.querySelector('section.verdict a.btn').click()")
            await until(tab, "location.search.includes('all=1') && document.readyState === 'complete'")
            found["compared"] = await tab.js(
                "[...document.querySelectorAll('a.btn')].some(a => a.textContent === 'both answers')"
            )

            # hostile text is text
            await tab.open(f"{address}/r/{FAULTY}?outcome=fail")
            found["hostile"] = await tab.js("document.body.textContent.includes('<script>') && document.title")

            # phone, and both colour schemes
            await tab.call(
                "Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True
            )
            wide = []
            case = await tab.js("document.querySelector('table.samples td.id a').href")
            for path in ("/", f"/r/{FAULTY}", f"/r/{UNFINISHED}/live", "/board", "/compare"):
                await tab.open(address + path)
                wide.append(await tab.js("document.documentElement.scrollWidth"))
            await tab.open(case)
            wide.append(await tab.js("document.documentElement.scrollWidth"))
            found["wide"] = wide
            for scheme in ("light", "dark"):
                await tab.call(
                    "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
                )
                found[scheme] = await tab.js("getComputedStyle(document.body).backgroundColor")

            # a verdict that comes while the page is open
            await tab.open(f"{address}/r/{UNFINISHED}/live")
            case = await asyncio.to_thread(put_failure, folder / UNFINISHED)
            await until(tab, f"document.getElementById('live').textContent.includes({case!r})")
            found["live"] = await tab.js(
                "document.getElementById('live').textContent.includes('it came while you looked')"
            )

        tab = drive(tmp_path, script)

    assert found["address"] == ""  # the token is not left in the address
    assert found["cookie"] == ""  # nor where a script reads it
    assert found["first stop"] == "#main"
    assert found["title"].startswith("FAIL")
    assert found["moved"]
    assert found["streamed"]
    assert found["found"]
    assert all("top-p" in name for name in found["found"])
    assert found["compared"]
    assert found["hostile"].startswith("FAIL")
    assert found["wide"] == [390] * 6
    assert found["light"] != found["dark"]
    assert found["live"]
    assert [error for error in tab.errors if "favicon" not in error] == []
    assert [url for url in tab.requests if not url.startswith(address)] == []


def test_without_a_script_every_page_still_works(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "runs")
    found: dict[str, Any] = {}

    with served(folder) as address:

        async def script(tab: Tab) -> None:
            await tab.call("Emulation.setScriptExecutionDisabled", value=True)
            await tab.call("Page.navigate", url=f"{address}/r/{CLEAN}?token={TOKEN}&outcome=pass")
            await until(tab, "document.querySelectorAll('table.samples tr').length === 50")
            found["next"] = await tab.js("document.querySelector('a.btn[rel=next]').href")
            found["dead"] = await tab.js(
                "[...document.querySelectorAll('.js')].every(e => getComputedStyle(e).display === 'none')"
            )
            await tab.call("Page.navigate", url=found["next"])
            await until(
                tab, "location.search.includes('after=') && document.querySelectorAll('table.samples tr').length > 0"
            )

        drive(tmp_path, script)

    assert found["dead"]
