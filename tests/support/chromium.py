"""A page in a headless Chromium, driven over the DevTools protocol."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


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
