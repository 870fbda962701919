"""What the worker processes of ``kvv.execution.workers`` cost: start-up, latency, throughput, replacement.

    python bench/workers.py

Prints one line per figure. The limit is 2,000 trivial tasks a second.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from kvv.execution.workers import Workers, WorkerTimeout

TRIVIAL = "kvv.protocol.classify:retry_after_seconds"
TASKS = 6_000


async def main() -> None:
    from kvv.core import Exchange, Identity, Role

    identity = Identity(case="bench", sample=0, step=0, ask=0, purpose="probe")
    exchange = Exchange(identity=identity, attempt=0, role=Role.TARGET, started="", status=200)
    async with Workers(2) as workers:
        begin = time.perf_counter()
        await workers.run(TRIVIAL, exchange, timeout_s=5)
        print(f"first answer of a cold worker   {1e3 * (time.perf_counter() - begin):8.1f} ms")

        spans = []
        for _ in range(500):
            begin = time.perf_counter()
            await workers.run(TRIVIAL, exchange, timeout_s=5)
            spans.append(time.perf_counter() - begin)
        spans.sort()
        print(
            f"latency, one at a time          {1e6 * statistics.median(spans):8.0f} us median, {1e6 * spans[495]:.0f}"
            " us at the 99th percentile"
        )

        begin, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(workers.run(TRIVIAL, exchange, timeout_s=5) for _ in range(TASKS)))
        wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
        print(
            f"throughput, two workers         {TASKS / wall:8.0f} tasks/s, {1e6 * cpu / TASKS:.0f} us of the parent's"
            " processor each"
        )

        scorer = "kvv.suites.aime2025.scoring:score"
        await asyncio.gather(*(workers.run(scorer, r"Hence \boxed{70}.", "70", timeout_s=30) for _ in range(4)))
        begin = time.perf_counter()
        await asyncio.gather(
            *(workers.run(scorer, rf"The sum is {i}, hence \boxed{{70}}.", "70", timeout_s=30) for i in range(400))
        )
        print(f"AIME answers scored             {400 / (time.perf_counter() - begin):8.0f} answers/s")

        begin = time.perf_counter()
        try:
            await workers.run(scorer, r"\boxed{9^{9^{9^{9}}}}", "70", timeout_s=0.5)
        except WorkerTimeout:
            print(f"a hang of 0.5 s is over after   {1e3 * (time.perf_counter() - begin):8.1f} ms")
        begin = time.perf_counter()
    print(f"closing                         {1e3 * (time.perf_counter() - begin):8.1f} ms")


if __name__ == "__main__":
    asyncio.run(main())
