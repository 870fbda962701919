"""One line to a web hook (Slack, Mattermost and Teams take ``{"text": ...}``)."""

from __future__ import annotations

import asyncio

import aiohttp

TIMEOUT_S = 20.0


def post_line(url: str, text: str) -> str:
    """Posts ``{"text": text}``; "" when it was taken, else why not, without the address: it may hold a key."""

    async def post() -> str:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(url, json={"text": text}, allow_redirects=False) as response,
            ):
                return "" if response.status < 300 else f"the web hook answered {response.status}"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return f"the web hook cannot be reached ({type(error).__name__})"

    return asyncio.run(post())
