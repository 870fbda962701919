"""Bare HTTP clients side by side: which one should ``kvv.transport`` stand on?

64 workers against the bare server on the other core: 2 kB bodies (requests/s) and 200-chunk streams, one event
to a write (chunks/s). No client checks, decodes or stores anything, but the openai client makes its objects.
Every client is measured in each round, so that a busy neighbour slows all alike; the best round counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import cycle
from urllib.parse import urlsplit

import aiohttp
import httpx
import httpx2
import openai
from httpx_aiohttp import AiohttpTransport
from loopback import CLIENT_CPU, MODEL, bare_server, pin
from tables import ratio, show

CHUNKS = 200
PATH = f"/c{CHUNKS}b1/v1"
MESSAGES = [{"role": "user", "content": "What is six times seven?"}]

#: whole() sends one request and reads its body; stream() sends one and reads its events
Ask = Callable[[], Awaitable[object]]


def body(stream: bool) -> bytes:
    return json.dumps({"model": MODEL, "messages": MESSAGES, **({"stream": True} if stream else {})}).encode()


WHOLE, STREAM = body(False), body(True)
HEADERS = {"content-type": "application/json", "authorization": "Bearer sk-bench"}


@asynccontextmanager
async def raw_sockets(base: str, workers: int) -> AsyncIterator[tuple[Ask, Ask]]:
    """asyncio streams without any HTTP library: the ceiling."""
    where = urlsplit(base)
    idle: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(workers):
        idle.put_nowait(await asyncio.open_connection(where.hostname, where.port, limit=2**18))
    head = f"POST {PATH}/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: "

    async def ask(data: bytes, until: bytes) -> None:
        reader, writer = connection = idle.get_nowait()
        writer.write(f"{head}{len(data)}\r\n\r\n".encode() + data)
        tail = b""
        while True:
            tail = (tail + await reader.read(2**18))[-64_000:]
            if tail.endswith(until):
                break
        idle.put_nowait(connection)

    yield (lambda: ask(WHOLE, b"}}"), lambda: ask(STREAM, b"\r\n0\r\n\r\n"))
    while not idle.empty():
        idle.get_nowait()[1].close()


@asynccontextmanager
async def aiohttp_client(base: str, workers: int) -> AsyncIterator[tuple[Ask, Ask]]:
    url = f"{base}{PATH}/chat/completions"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=HEADERS) as session:

        async def ask(data: bytes) -> None:
            async with session.post(url, data=data) as response:
                async for _ in response.content.iter_any():
                    pass

        yield (lambda: ask(WHOLE), lambda: ask(STREAM))


def httpx_client(pools: int, library: str = "httpx", transport: str = "") -> Callable[[str, int], object]:
    """``pools`` clients taken in turn; ``library`` is httpx or httpx2 (one API)."""
    module = {"httpx": httpx, "httpx2": httpx2}[library]

    @asynccontextmanager
    async def connect(base: str, workers: int) -> AsyncIterator[tuple[Ask, Ask]]:
        url = f"{base}{PATH}/chat/completions"
        limits = module.Limits(max_connections=None, max_keepalive_connections=None)
        if transport:
            clients = [httpx.AsyncClient(transport=AiohttpTransport(limits=limits), headers=HEADERS)]
        else:
            clients = [module.AsyncClient(limits=limits, headers=HEADERS, trust_env=False) for _ in range(pools)]
        turn = cycle(clients)

        async def ask(data: bytes) -> None:
            async with next(turn).stream("POST", url, content=data) as response:
                async for _ in response.aiter_raw():
                    pass

        yield (lambda: ask(WHOLE), lambda: ask(STREAM))
        for client in clients:
            await client.aclose()

    return connect


@asynccontextmanager
async def openai_client(base: str, workers: int) -> AsyncIterator[tuple[Ask, Ask]]:
    async with openai.AsyncOpenAI(api_key="sk-bench", base_url=base + PATH, max_retries=0) as client:

        async def whole() -> None:
            await client.chat.completions.create(model=MODEL, messages=MESSAGES)

        async def stream() -> None:
            async for _ in await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True):
                pass

        yield whole, stream


CLIENTS = {
    "raw sockets": raw_sockets,
    "aiohttp": aiohttp_client,
    "httpx, one client": httpx_client(1),
    "httpx, 8 clients": httpx_client(8),
    "httpx, 16 clients": httpx_client(16),
    "httpx over aiohttp": httpx_client(1, transport="aiohttp"),
    "httpx2, one client": httpx_client(1, "httpx2"),
    "httpx2, 8 clients": httpx_client(8, "httpx2"),
    "openai": openai_client,
}


async def rate(ask: Ask, workers: int, seconds: float) -> tuple[float, float]:
    """Requests/s and CPU milliseconds per request, after every worker warmed its connection."""
    await asyncio.gather(*(ask() for _ in range(workers)))
    done = 0
    end = time.perf_counter() + seconds

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await ask()
            done += 1

    started, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(workers)))
    return done / (time.perf_counter() - started), (time.process_time() - cpu) / done * 1000


WORST = (0.0, float("inf"))


def better(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """The higher rate and the lower CPU time: what a busy neighbour spoiled least."""
    return max(one[0], other[0]), min(one[1], other[1])


async def measure(base: str, workers: int, seconds: float, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """For each client the best (rate, CPU ms) of whole bodies and of streams."""
    best = {name: [WORST, WORST] for name in CLIENTS}
    for _ in range(rounds):
        for name, connect in CLIENTS.items():
            async with connect(base, workers) as asks:
                for column, ask in enumerate(asks):
                    best[name][column] = better(best[name][column], await rate(ask, workers, seconds))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--workers", type=int, default=64)
    options = parser.parse_args()
    pin(CLIENT_CPU)
    with bare_server() as base:
        best = asyncio.run(measure(base, options.workers, 0.5 if options.quick else 1.5, 1 if options.quick else 4))
    whole, stream = best["openai"][0][0], best["openai"][1][0]
    rows = [
        (
            name,
            f"{one[0]:,.0f}",
            ratio(one[0], whole),
            f"{one[1]:.2f}",
            f"{two[0] * CHUNKS:,.0f}",
            ratio(two[0], stream),
            f"{two[1]:.2f}",
        )
        for name, (one, two) in best.items()
    ]
    header = ("client", "requests/s", "of openai", "CPU ms", "chunks/s", "of openai", "CPU ms/stream")
    show(f"bare clients, {options.workers} connections", header, rows)


if __name__ == "__main__":
    main()
