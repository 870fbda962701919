"""Pictures: peak memory of whole runs over 216 and 1,730 cases with a picture each, and what preparing them costs the
event loop.

Each run is a process of its own against a reference endpoint in another. Bounds: flat (the longer run within 1.25 times
the shorter); while pictures are prepared, a coroutine that wants to run every millisecond waits at most 50 ms more at
the 99th percentile.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from tables import show

from kvv.core import Picture, PictureForm
from kvv.data.pictures import Shelf, with_pictures
from kvv.mockserver import MockConfig, MockServer
from kvv.protocol.encode import encode
from kvv.protocol.images import encode_picture

FLAT, STALL_MS = 1.25, 50.0


def noisy(number: int, side: int, form: str = "PNG") -> bytes:
    """A picture that does not compress: side x side grey pixels."""
    buffer = io.BytesIO()
    pixels = hashlib.shake_128(str(number).encode()).digest(side * side)
    Image.frombytes("L", (side, side), pixels).convert("RGB" if form == "JPEG" else "L").save(
        buffer, form, compress_level=1
    )
    return buffer.getvalue()


def write_rows(path: Path, n: int, side: int) -> None:
    """In the hub's own layout: a struct of bytes and path, a hundred rows in a group."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [
        ("dataset", pa.string()),
        ("question", pa.string()),
        ("question_type", pa.string()),
        ("answer", pa.list_(pa.string())),
        ("image", kind),
    ]
    schema = pa.schema(fields)
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n, 100):
            rows = [
                {
                    "dataset": "d",
                    "question": f"What is number {k}?",
                    "question_type": "Doc-oriented VQA",
                    "answer": [str(k)],
                    "image": {"bytes": noisy(k, side), "path": None},
                }
                for k in range(start, min(start + 100, n))
            ]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


# --- memory ----------------------------------------------------------------------------------------


def run_in_this_process(arguments: list[str]) -> None:
    """`kvv` with these arguments, then the peak in MB on the last line."""
    from kvv.cli.main import main

    code = main(arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    print(f"{code} {peak}")


def whole_run(url: str, folder: Path, n: int, side: int, preset: str) -> list[object]:
    path = folder / f"{n}.parquet"
    if not path.exists():
        write_rows(path, n, side)
    argv = [
        sys.executable,
        "-W",
        "ignore",
        __file__,
        "--child",
        "run",
        "ocrbench",
        "--data",
        f"ocrbench={path}",
        "--base-url",
        url,
    ]
    argv += [
        "--model",
        "kimi-k3",
        "--concurrency",
        "16",
        "--out",
        str(folder / "out"),
        "-q",
        *(["--preset", "kvv"] if preset else []),
    ]
    started = time.perf_counter()
    done = subprocess.run(
        argv, capture_output=True, text=True, check=True, env={**os.environ, "KVV_CACHE": str(folder / "cache")}
    )
    seconds = time.perf_counter() - started
    code, peak = done.stdout.split()[-2:]
    store = max((folder / "out").glob("*/store.sqlite"), key=lambda place: place.stat().st_mtime)
    megabytes = path.stat().st_size / 2**20
    return [
        preset or "as they are",
        n,
        f"{megabytes:.0f}",
        f"{float(peak):.0f}",
        f"{store.stat().st_size / 2**20:.0f}",
        f"{n / seconds:.0f}",
        code,
    ]


def memory(n: int, side: int) -> bool:
    flat = True
    rows = []
    with tempfile.TemporaryDirectory() as name, MockServer(MockConfig(model="kimi-k3")) as server:
        for preset in ("", "kvv"):
            pair = [whole_run(server.base_url, Path(name), size, side, preset) for size in (n // 8, n)]
            ratio = float(str(pair[1][3])) / float(str(pair[0][3]))
            flat = flat and ratio <= FLAT
            rows += [[*pair[0], ""], [*pair[1], f"{ratio:.2f}x"]]
    show(
        "whole runs",
        ["pictures", "cases", "data MB", "peak MB", "store MB", "cases/s", "exit", "peak, longer/shorter"],
        rows,
    )
    return flat


# --- the event loop --------------------------------------------------------------------------------


async def stalls(work: list[Any], *, naive: bool = False) -> float:
    """The 99th percentile in ms of how much later than a millisecond a coroutine wakes while the work goes on in
    threads, two at a time.

    ``naive``: on the event loop itself; without work: how late it is on this machine anyway.
    """
    late: list[float] = []
    gate = asyncio.Semaphore(2)

    async def prepare(body: Any) -> None:
        async with gate:
            encode(with_pictures(body, SHELF) if naive else await asyncio.to_thread(with_pictures, body, SHELF))
            await asyncio.sleep(0)

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append((time.perf_counter() - before - 0.001) * 1000)

    ticking = asyncio.create_task(tick())
    await asyncio.gather(*map(prepare, work))
    if not work:
        await asyncio.sleep(1.0)
    ticking.cancel()
    return sorted(late)[int(0.99 * len(late))] if late else 0.0


SHELF = Shelf()


def body(picture: Picture, form: PictureForm) -> dict[str, Any]:
    shown = Picture(**{**{name: getattr(picture, name) for name in picture.__slots__}, "form": form})
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": shown}}]}]}


def preparing(n: int) -> bool:
    sound = True
    rows = []
    for side in (400, 2000):
        pictures = [SHELF.keep(noisy(k, side), str(k)) for k in range(n if side == 400 else max(4, n // 10))]
        for form in PictureForm:
            started = time.perf_counter()
            late = asyncio.run(stalls([body(picture, form) for picture in pictures]))
            each = (time.perf_counter() - started) / len(pictures) * 1000
            idle = asyncio.run(stalls([]))
            on_loop = asyncio.run(stalls([body(picture, form) for picture in pictures], naive=True))
            size = len(encode_picture(SHELF.read(pictures[0]), form).data) / 1024
            sound = sound and late - idle <= STALL_MS
            rows.append(
                [
                    f"{side} x {side}",
                    form.value,
                    f"{size:.0f}",
                    f"{each:.1f}",
                    f"{idle:.1f}",
                    f"{late:.1f}",
                    f"{on_loop:.1f}",
                ]
            )
    header = ["pixels", "form", "kB sent", "ms each", "idle", "in threads", "on the loop"]
    show("preparing pictures; how late the event loop is, p99 ms", header, rows)
    return sound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the cases")
    parser.add_argument("--child", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_in_this_process(options.child)
        return
    sound = preparing(20 if options.quick else 100)
    sound = memory(352 if options.quick else 1730, 300) and sound
    print("\nwithin bounds" if sound else "\nOUT OF BOUNDS")
    sys.exit(not sound)


if __name__ == "__main__":
    main()
