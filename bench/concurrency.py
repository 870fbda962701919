"""Whether ``--concurrency N`` is N: streams of twelve seconds, all at once, through a whole run with its store.

    python bench/concurrency.py            2,000 streams
    python bench/concurrency.py --quick    400 streams

The ideal is one stream's own time; the bare client is beside it, for a machine that has other work.
``in flight`` is the most at one moment, by what the store says of each answer.
Bound: from the first request to the last answer within 1.15 times the ideal.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import aiohttp
from loopback import MODEL, bare_server
from tables import show

from kvv.storage.store import Store

STREAMS, QUICK, SECONDS, CHUNKS, BOUND = 2_000, 400, 12.0, 25, 1.15
QUESTIONS = 12


async def bare(url: str, streams: int) -> float:
    """Seconds that the bare client takes for as many streams at once, read and thrown away."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:

        async def one() -> None:
            async with session.post(f"{url}/chat/completions", data=b'{"stream":true}') as response:
                async for _ in response.content.iter_any():
                    pass

        begin = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(streams)))
        return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer streams")
    samples = -(-(QUICK if parser.parse_args().quick else STREAMS) // QUESTIONS)
    streams = samples * QUESTIONS  # one wave
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the server's; a run raises its own
    interval = round(SECONDS * 1000 / CHUNKS)
    with bare_server(pinned=False) as base, tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "kvv", "run", "aime2025", "--data", "aime2025=fixture", "--force", "-q"),
            *("--base-url", f"{base}/c{CHUNKS}b1i{interval}/v1", "--model", MODEL, "--profile", "kimi-k3"),
            *("--samples", str(samples), "--concurrency", str(streams), "--out", folder, "--yes"),
        ]
        alone = asyncio.run(bare(f"{base}/c{CHUNKS}b1i{interval}/v1", streams))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_PROXY": "127.0.0.1"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        stores = list(Path(folder).glob("*/store.sqlite"))
        if not stores:
            sys.exit(done.stderr)
        with Store.open(stores[0], read_only=True) as store:
            spans = [
                (
                    begin := datetime.fromisoformat(one.exchange.started).timestamp(),
                    begin + one.exchange.timing.total_ms / 1e3,
                )
                for one in store.exchanges()
                if one.exchange.identity.case.startswith("aime2025")
            ]
    ideal = interval * CHUNKS / 1e3
    wall = max(end for _, end in spans) - min(begin for begin, _ in spans)
    marks = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    most = now = 0
    for _, change in marks:
        now += change
        most = max(most, now)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    show(
        f"{len(spans):,} streams of {ideal:.1f} s at --concurrency {streams:,}",
        ("", "in flight", "seconds", "times the ideal", "CPU ms a stream"),
        [
            ("bare aiohttp", f"{streams:,}", f"{alone:.1f}", f"{alone / ideal:.2f}", ""),
            ("kvv", f"{most:,}", f"{wall:.1f}", f"{wall / ideal:.2f}", f"{1e3 * cpu / len(spans):.1f}"),
        ],
    )
    print(f"{'within' if wall <= BOUND * ideal else 'BEYOND'} {BOUND} times the ideal")


if __name__ == "__main__":
    main()
