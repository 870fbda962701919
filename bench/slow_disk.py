"""Does a slow disk or a large commit delay a stream?

32 streams bring an event every 10 ms while other workers store samples: on an idle store, on one whose every commit
takes a second, and with large bodies (1 MB each, all different) to compress and commit. Shown is how much later than
its 10 ms an event came, over all gaps of all streams, and how late the event loop ran its own 5 ms timer. Bound: 50 ms
at the 99th percentile. As in a real run, and unlike the other benches, the process is not kept on one core.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from loopback import MODEL, bare_server
from pipeline import judge
from tables import show

from kvv.core import Frame, Identity, Request, Role
from kvv.profiles.profile import load_profile
from kvv.protocol.classify import Classification
from kvv.protocol.encode import encode
from kvv.protocol.reader import ReadLimits
from kvv.protocol.redaction.redactor import Redactor
from kvv.protocol.rules import rules_for
from kvv.storage.store import Store
from kvv.transport import Endpoint, Transport

INTERVAL_MS, STREAMS, WRITERS = 10.0, 32, 4
LIMIT_MS = 50.0
BACKLOG = 64 * 2**20


class SlowConnection:
    """A connection whose every commit takes ``seconds`` more."""

    def __init__(self, connection: sqlite3.Connection, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        if statement == "COMMIT":
            time.sleep(self._seconds)
        return self._connection.execute(statement, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def lateness(frames: Sequence[Frame]) -> list[float]:
    """For each gap between frames the milliseconds beyond the interval."""
    return [max(0.0, after.offset_ms - before.offset_ms - INTERVAL_MS) for before, after in pairwise(frames)]


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def scenario(
    base: str, path: Path, *, commit_s: float, padding: int, seconds: float
) -> tuple[list[float], list[float], int]:
    """Lateness of the events, lateness of the loop, samples stored."""
    chunks = int(seconds * 1000 / INTERVAL_MS)
    endpoints = {
        Role.TARGET: Endpoint(role=Role.TARGET, base_url=f"{base}/c{chunks}b1i{int(INTERVAL_MS)}/v1", key=None)
    }
    late: list[float] = []
    loop_late: list[float] = []
    number = count()
    noise = random.Random(7).randbytes(padding // 2).hex()
    profile = load_profile("kimi-k3")
    store = Store.create(path, {})
    if commit_s:
        assert store._writer is not None
        store._writer._connection = SlowConnection(store._writer._connection, commit_s)  # type: ignore[assignment]

    async def ask(transport: Transport, *, stream: bool, text: str) -> None:
        messages = [{"role": "user", "content": text}]
        request = Request(
            body={"model": MODEL, "messages": messages, **({"stream": True} if stream else {})}, stream=stream
        )
        encoded = encode(request.body)
        identity = Identity(case="bench/sample", sample=next(number), step=0, ask=0, purpose="probe")
        rules = rules_for(profile, request)
        received = await transport.send(
            request,
            encoded,
            identity=identity,
            attempt=1,
            rules=rules,
            keep_frames=True,
        )
        await store.drained(BACKLOG)
        store.put_exchange(received, request, encoded)
        store.put_verdict(judge(identity, Classification.ANSWERED, received.observation.answer))
        late.extend(lateness(received.exchange.frames))

    async def write(transport: Transport) -> None:
        while True:
            await ask(transport, stream=False, text=f"{next(number)} {noise}")
            await asyncio.sleep(0.02)

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            loop_late.append((time.perf_counter() - before) * 1000 - 5)

    async with Transport(endpoints, redactor=Redactor(), limits=ReadLimits()) as transport:
        background = [asyncio.create_task(tick()), *(asyncio.create_task(write(transport)) for _ in range(WRITERS))]
        await asyncio.gather(*(ask(transport, stream=True, text="hello") for _ in range(STREAMS)))
        for task in background:
            task.cancel()
        for task in background:
            with suppress(asyncio.CancelledError):
                await task
    store.close()
    return late, loop_late, next(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 seconds for each case instead of 8")
    options = parser.parse_args()
    seconds = 2.0 if options.quick else 8.0
    cases = {
        "store as it is": {"commit_s": 0.0, "padding": 0},
        "every commit takes 1 s": {"commit_s": 1.0, "padding": 0},
        "1 MB bodies": {"commit_s": 0.0, "padding": 2**20},
        "1 MB bodies, commits of 1 s": {"commit_s": 1.0, "padding": 2**20},
    }
    rows = []
    with bare_server() as base, tempfile.TemporaryDirectory() as folder:
        for place, (name, how) in enumerate(cases.items()):
            late, loop_late, stored = asyncio.run(
                scenario(base, Path(folder) / f"{place}.sqlite", seconds=seconds, **how)
            )
            figures = (quantile(late, 0.5), quantile(late, 0.99), max(late), quantile(loop_late, 0.99))
            rows.append(
                (
                    name,
                    *(f"{figure:.1f}" for figure in figures),
                    f"{figures[1] / float(rows[0][2] if rows else figures[1]):.2f}x",
                    stored,
                )
            )
    header = ("store", "late p50 ms", "p99 ms", "max ms", "loop p99 ms", "p99 of the first", "samples")
    show(f"{STREAMS} streams, an event every {INTERVAL_MS:g} ms", header, rows)
    worst = max(float(row[2]) for row in rows)
    print(f"worst p99 {worst:.1f} ms: {'within' if worst <= LIMIT_MS else 'BEYOND'} {LIMIT_MS:g} ms")


if __name__ == "__main__":
    main()
