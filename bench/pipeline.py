"""The whole pipeline beside bare clients: transport, decoder, passive rules, a judge, the store.

64 connections against the bare server on the other core; 2 kB bodies and 200-chunk streams (one event to a write).
The bounds: at least as many requests per second as the bare openai client and at least 4 times its chunks per
second, though it neither checks nor stores; a sample costs at most 1.3 ms of CPU (writer thread included).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from clients import CHUNKS, MESSAGES, PATH, WORST, Ask, aiohttp_client, better, openai_client, rate
from loopback import CLIENT_CPU, MODEL, bare_server, pin
from tables import ratio, show

from kvv.core import Identity, Outcome, Request, Role, Verdict
from kvv.profiles.profile import load_profile
from kvv.protocol.classify import Classification, assess
from kvv.protocol.encode import encode
from kvv.protocol.reader import ReadLimits
from kvv.protocol.redaction.redactor import Redactor
from kvv.protocol.rules import rules_for
from kvv.storage.store import Store
from kvv.transport import Endpoint, Transport

CPU_LIMIT_MS = 1.3


class Pipeline:
    """What one sample goes through. ``profile`` "" runs without rules; ``store`` None keeps nothing."""

    def __init__(self, transport: Transport, profile: str, store: Store | None) -> None:
        self._transport = transport
        self._profile = load_profile(profile) if profile else None
        self._store = store
        self._number = count()
        self.findings = 0

    async def ask(self, *, stream: bool) -> None:
        body = {
            "model": MODEL,
            "messages": MESSAGES,
            **({"stream": True, "stream_options": {"include_usage": True}} if stream else {}),
        }
        request = Request(body=body, stream=stream)
        encoded = encode(body)
        identity = Identity(case="bench/sample", sample=next(self._number), step=0, ask=0, purpose="probe")
        rules = rules_for(self._profile, request) if self._profile else None
        received = await self._transport.send(
            request, encoded, identity=identity, attempt=1, rules=rules, keep_frames=False
        )
        self.findings += len(received.findings)
        verdict = judge(identity, assess(received.exchange, received.observation).standing, received.observation.answer)
        if self._store is not None:
            await self._store.drained(64 * 2**20)
            self._store.put_exchange(received, request, encoded)
            self._store.put_verdict(verdict)


def judge(identity: Identity, standing: Classification, answer: str) -> Verdict:
    assert standing is Classification.ANSWERED, standing
    right = bool(answer)
    outcome = Outcome.PASS if right else Outcome.FAIL
    return Verdict(
        case=identity.case,
        sample=identity.sample,
        outcome=outcome,
        values={"right": float(right)},
        facts={"length": len(answer)},
    )


@asynccontextmanager
async def pipeline(base: str, profile: str, store: Store | None) -> AsyncIterator[tuple[Ask, Ask]]:
    endpoints = {Role.TARGET: Endpoint(role=Role.TARGET, base_url=base + PATH, key="sk-bench-0123456789")}
    async with Transport(endpoints, redactor=Redactor(["sk-bench-0123456789"]), limits=ReadLimits()) as transport:
        run = Pipeline(transport, profile, store)
        yield (lambda: run.ask(stream=False), lambda: run.ask(stream=True))
        if run.findings:
            print(f"note: {run.findings} findings on the bare server's answers (profile {profile})")


async def measure(
    base: str, folder: Path, workers: int, seconds: float, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    stores = {profile: Store.create(folder / f"{profile}.sqlite", {}) for profile in ("openai", "kimi-k3")}
    clients = {
        "bare openai client": lambda: openai_client(base, workers),
        "bare aiohttp": lambda: aiohttp_client(base, workers),
        "transport + decoder": lambda: pipeline(base, "", None),
        "+ rules (openai)": lambda: pipeline(base, "openai", None),
        "+ rules (kimi-k3)": lambda: pipeline(base, "kimi-k3", None),
        "whole pipeline, openai": lambda: pipeline(base, "openai", stores["openai"]),
        "whole pipeline, kimi-k3": lambda: pipeline(base, "kimi-k3", stores["kimi-k3"]),
    }
    best = {name: [WORST, WORST] for name in clients}
    for _ in range(rounds):
        for name, connect in clients.items():
            async with connect() as asks:
                for column, ask in enumerate(asks):
                    best[name][column] = better(best[name][column], await rate(ask, workers, seconds))
                    for store in stores.values():
                        store.flush()
    for store in stores.values():
        store.close()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--workers", type=int, default=64)
    options = parser.parse_args()
    pin(CLIENT_CPU)
    with bare_server() as base, tempfile.TemporaryDirectory() as folder:
        best = asyncio.run(
            measure(base, Path(folder), options.workers, 0.7 if options.quick else 2.5, 1 if options.quick else 3)
        )
    whole, stream = (column[0] for column in best["bare openai client"])
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
    show(f"{options.workers} connections, 2 kB bodies and {CHUNKS}-chunk streams", header, rows)
    for name in ("whole pipeline, openai", "whole pipeline, kimi-k3"):
        (requests, cpu), (streams, _) = best[name]
        kept = requests >= whole and streams >= 4 * stream and cpu <= CPU_LIMIT_MS
        share = ratio(cpu, best["bare openai client"][0][1])
        words = "keeps" if kept else "MISSES"
        print(
            f"{name}: {words} the bounds (requests 1x, chunks 4x, {CPU_LIMIT_MS} ms of CPU a sample); CPU {share} of"
            " the bare openai client's"
        )


if __name__ == "__main__":
    main()
