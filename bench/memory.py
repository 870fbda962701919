"""Peak memory: 50 concurrent streams of 98,000 chunks each, and 1,000 against 100,000 samples through the whole
pipeline.

Each figure comes from a process of its own. Bounds: under 500 MB; flat (the longer run within 1.25 times the shorter).
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from itertools import repeat
from pathlib import Path

from loopback import CLIENT_CPU, bare_server, pin
from pipeline import Pipeline
from tables import show

from kvv.core import Role
from kvv.protocol.reader import ReadLimits
from kvv.protocol.redaction.redactor import Redactor
from kvv.storage.store import Store
from kvv.transport import Endpoint, Transport

KEY = "sk-bench-0123456789"
LIMIT_MB, FLAT = 500, 1.25


def peak_mb() -> float:
    """ru_maxrss is in kB on Linux, in bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


async def run(base: str, folder: Path, *, chunks: int, samples: int, workers: int) -> None:
    """``samples`` through the pipeline by ``workers``; streams where ``chunks`` is not 0."""
    endpoints = {Role.TARGET: Endpoint(role=Role.TARGET, base_url=f"{base}/c{chunks or 200}b4/v1", key=KEY)}
    with Store.create(folder / "store.sqlite", {}) as store:
        async with Transport(endpoints, redactor=Redactor([KEY]), limits=ReadLimits()) as transport:
            pipeline = Pipeline(transport, "kimi-k3", store)
            turns = repeat(None, samples)

            async def work() -> None:
                for _ in turns:
                    await pipeline.ask(stream=bool(chunks))

            await asyncio.gather(*(work() for _ in range(workers)))


def child(chunks: int, samples: int, workers: int) -> tuple[float, float]:
    """Peak MB and seconds of one run in its own process."""
    argv = [
        sys.executable,
        "-W",
        "ignore",
        __file__,
        "--chunks",
        str(chunks),
        "--samples",
        str(samples),
        "--workers",
        str(workers),
    ]
    started = time.perf_counter()
    out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return float(out), time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the chunks and of the samples")
    for name in ("chunks", "samples", "workers"):
        parser.add_argument(f"--{name}", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.samples:
        pin(CLIENT_CPU)
        with bare_server() as base, tempfile.TemporaryDirectory() as folder:
            asyncio.run(
                run(base, Path(folder), chunks=options.chunks, samples=options.samples, workers=options.workers)
            )
        print(peak_mb())
        return
    scale = 10 if options.quick else 1
    plan = {
        f"50 streams of {98_000 // scale:,} chunks": (98_000 // scale, 50, 50),
        "1,000 samples": (0, 1_000, 64),
        f"{100_000 // scale:,} samples": (0, 100_000 // scale, 64),
    }
    found = {name: child(*arguments) for name, arguments in plan.items()}
    streams, few, many = (peak for peak, _ in found.values())
    rows = [(name, f"{peak:.0f}", f"{peak / few:.2f}x", f"{seconds:.0f}") for name, (peak, seconds) in found.items()]
    show("peak memory of the whole pipeline, store on", ("run", "MB", "of 1,000 samples", "seconds"), rows)
    print(
        f"streams: {'under' if streams < LIMIT_MB else 'OVER'} {LIMIT_MB} MB; samples:"
        f" {'flat' if many <= FLAT * few else 'GROWING'}"
    )


if __name__ == "__main__":
    main()
