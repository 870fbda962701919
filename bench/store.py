"""The store against its limits: cost of a put for the caller, exchanges a second, bytes an exchange, memory, delay of
the event loop.

python bench/store.py [EXCHANGES]
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from kvv.core import (
    Choice,
    Exchange,
    Finding,
    Frame,
    Identity,
    Observation,
    Outcome,
    Request,
    Role,
    Shape,
    Timing,
    Upstream,
    UsageReport,
    Verdict,
)
from kvv.protocol.encode import EncodedBody, encode
from kvv.protocol.reader import Received
from kvv.storage.store import Store

HIGH_WATER = 16 * 2**20
WORDS = ["".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=2 + seed % 9)) for seed in range(4_000)]


def rss_mb() -> float:
    """Resident memory; NaN where the system has no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return float("nan")
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def text(generator: random.Random, size: int) -> str:
    words: list[str] = []
    while size > 0:
        words.append(generator.choice(WORDS))
        size -= len(words[-1]) + 1
    return " ".join(words)


def prepared(number: int, generator: random.Random) -> tuple[Received, Request, EncodedBody]:
    """A request of about 1 kB and an unstreamed answer of about 2 kB, whose body frame is kept."""
    request = Request(
        body={"model": "kimi-k3", "messages": [{"role": "user", "content": text(generator, 900)}], "max_tokens": 4096}
    )
    usage = {
        "prompt_tokens": 260,
        "completion_tokens": 500,
        "total_tokens": 760,
        "prompt_tokens_details": {"cached_tokens": 128},
    }
    answer = text(generator, 1_700)
    message = {"role": "assistant", "content": answer}
    body = {"id": f"chatcmpl-{number}", "object": "chat.completion", "model": "kimi-k3", "usage": usage}
    data = json.dumps(body | {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    exchange = Exchange(
        identity=Identity(case=f"bench/case-{number // 8}", sample=number % 8, step=0, ask=0, purpose="probe"),
        attempt=1,
        role=Role.TARGET,
        started="2026-01-01T00:00:00.000Z",
        status=200,
        headers=(
            ("content-type", "application/json"),
            ("date", "Thu, 01 Jan 2026 00:00:00 GMT"),
            ("x-request-id", f"{generator.getrandbits(96):x}"),
        ),
        content_type="application/json",
        frames=(Frame(1, generator.random() * 1000, data, "body"),),
        frame_count=1,
        bytes_received=len(data),
        upstream=Upstream(model="kimi-k3", system_fingerprint="fp_1"),
        timing=Timing(
            first_byte_ms=generator.random() * 900,
            first_token_ms=generator.random() * 999,
            total_ms=generator.random() * 1000,
            increments=1,
        ),
    )
    observation = Observation(
        shape=Shape.COMPLETION,
        choices=(Choice(index=0, role="assistant", answer=answer, finish_reason="stop"),),
        usage=(UsageReport(place="body", frame=1, raw=usage),),
        id=f"chatcmpl-{number}",
        model="kimi-k3",
    )
    findings: tuple[Finding, ...] = ()
    return Received(exchange=exchange, observation=observation, findings=findings), request, encode(request.body)


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def write(store: Store, count: int) -> None:
    """Puts exchanges and verdicts as fast as the store drains; making them is not measured."""
    generator = random.Random(1)
    start_rss = peak = 0.0
    puts: list[float] = []
    making = 0.0
    begin = time.perf_counter()
    cpu_made = 0.0
    cpu_begin = time.process_time()
    for number in range(count):
        if number % 500 == 0:
            await store.drained(HIGH_WATER)
            peak = max(peak, rss_mb())
        if number == 2_000:
            start_rss = rss_mb()
        before, cpu_before = time.perf_counter(), time.thread_time()
        received, request, body = prepared(number, generator)
        making += time.perf_counter() - before
        cpu_made += time.thread_time() - cpu_before
        put = time.perf_counter()
        store.put_exchange(received, request, body, cost=0.001)
        puts.append(time.perf_counter() - put)
        identity = received.exchange.identity
        store.put_verdict(
            Verdict(
                case=identity.case,
                sample=identity.sample,
                outcome=Outcome.PASS,
                values={"hit": 1.0},
                facts={"answer": "42"},
            )
        )
    await store.drained(0)
    took = time.perf_counter() - begin
    cpu = time.process_time() - cpu_begin - cpu_made
    print(
        f"put_exchange, caller's side: p50 {quantile(puts, 0.5) * 1e6:.1f} us, p99 {quantile(puts, 0.99) * 1e6:.1f} us"
    )
    print(
        f"while the samples are made on the same interpreter: {count / took:,.0f} exchanges/s ({making / took:.0%} of"
        " the time is their making)"
    )
    print(f"CPU per exchange and verdict, caller and writer: {cpu / count * 1e6:.0f} us")
    print(f"RSS {start_rss:.0f} MB after 2,000, at most {peak:.0f} MB: grew {peak - start_rss:.1f} MB")


def writer_alone(folder: Path) -> None:
    """How fast the thread writes what stands in the queue; the best of thirty rounds of a thousand, the machine may be
    shared.
    """
    generator = random.Random(2)
    with Store.create(folder / "alone.sqlite", {}) as store:
        walls, cpus = [], []
        for number in range(30):
            things = [prepared(1_000 * number + place, generator) for place in range(1_000)]
            begin, cpu_begin = time.perf_counter(), time.process_time()
            for received, request, body in things:
                store.put_exchange(received, request, body)
            store.flush()
            walls.append((time.perf_counter() - begin) / 1_000)
            cpus.append((time.process_time() - cpu_begin) / 1_000)
    print(
        f"writer alone: {1 / min(walls):,.0f} exchanges/s at best, {1 / quantile(walls, 0.5):,.0f} median; CPU"
        f" {min(cpus) * 1e6:.0f} us each at best"
    )


async def loop_delay(store: Store) -> None:
    """How late a 1 ms timer is while large streams are being stored."""
    generator = random.Random(3)
    received, request, body = prepared(0, generator)
    frames = tuple(
        Frame(n, n * 1.5, b'{"choices":[{"index":0,"delta":{"content":"token %d"}}]}' % n) for n in range(98_000)
    )
    delays: list[float] = []

    async def timer() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            delays.append(time.perf_counter() - before - 0.001)

    task = asyncio.create_task(timer())
    for number in range(20):
        identity = Identity(case="bench/stream", sample=number, step=0, ask=0, purpose="probe")
        exchange = Exchange(
            identity=identity,
            attempt=1,
            role=Role.TARGET,
            started="",
            status=200,
            frames=frames,
            frame_count=len(frames),
        )
        store.put_exchange(Received(exchange=exchange, observation=received.observation, findings=()), request, body)
    await store.drained(0)
    task.cancel()
    late = ", ".join(
        f"{name} {quantile(delays, share) * 1e3:.1f} ms" for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    )
    print(f"timer delay while 20 streams of 98,000 frames are stored: {late}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        with Store.create(path, {"run": "bench"}) as store:
            asyncio.run(write(store, count))
        print(
            f"{path.stat().st_size / count:,.0f} bytes per exchange and verdict, {path.stat().st_size / 2**20:,.0f} MB"
            " in all"
        )
        begin = time.perf_counter()
        with Store.open(path, read_only=True) as store:
            samples = sum(1 for _ in store.timing_samples())
            middle = time.perf_counter()
            verdicts = sum(1 for _ in store.verdicts())
            late = time.perf_counter()
            store.traffic()
            end = time.perf_counter()
            read = sum(1 for _, stored in zip(range(5_000), store.exchanges(), strict=False) if stored.body)
            last = time.perf_counter()
        print(
            f"read {samples:,} timings in {middle - begin:.2f} s, {verdicts:,} verdicts in {late - middle:.2f} s,"
            f" traffic in {end - late:.2f} s, whole exchanges at {read / (last - end):,.0f}/s"
        )
        writer_alone(Path(folder))
        with Store.create(Path(folder) / "streams.sqlite", {}) as store:
            asyncio.run(loop_delay(store))


if __name__ == "__main__":
    main()
