"""Are the times right that `kvv load` reports? Beside those that the mock server stamps on the same clock.

For each answer: from the moment that the client began it to the moment that the server handed over its first token, and
its last byte (``time.perf_counter``, one clock on a machine). The reported figures contain what the client adds:
reading late while other streams keep it busy. The server runs in a process of its own. On a busy machine both are late,
which the table's last columns show.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from time import perf_counter
from typing import Any

import numpy as np
from tables import show

from kvv.core import Role
from kvv.decision.load import LoadStep
from kvv.execution.load.ladder import Ladder
from kvv.execution.load.mix import Mix
from kvv.execution.scheduling.budget import Budget, RunBounds
from kvv.planning.config import load_config
from kvv.planning.load_config import load_config_of
from kvv.profiles.policy import load_policy
from kvv.profiles.profile import load_profile
from kvv.protocol.reader import ReadLimits, Received
from kvv.protocol.redaction.redactor import Redactor
from kvv.transport import Transport
from kvv.transport.endpoint import Endpoint

MODEL = "kimi-k3"


class Noting(Transport):
    """Remembers when each answer was begun, and what was measured of it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.noted: dict[str, tuple[float, float, float]] = {}

    async def send(self, *given: Any, **named: Any) -> Received:
        begun = perf_counter()
        received = await super().send(*given, **named)
        timing = received.exchange.timing
        if timing.first_token_ms is not None:
            self.noted[received.observation.id or ""] = (begun, timing.first_token_ms, timing.total_ms)
        return received


async def climb(base_url: str, streams: int, tokens: int) -> tuple[Noting, LoadStep]:
    load = load_config_of(
        {
            "concurrency": str(streams),
            "output_tokens": tokens,
            "known": 0,
            "requests": 2 * streams,
            "prompt_tokens": "200",
        }
    )
    profile = load_profile(MODEL)
    mix = Mix(load_config({}, environ={}), load, profile, MODEL)
    endpoint = Endpoint(role=Role.TARGET, base_url=base_url)
    async with Noting(
        {Role.TARGET: endpoint}, redactor=Redactor(), limits=ReadLimits(), max_connections=4_096
    ) as transport:
        ladder = Ladder(
            transport,
            mix,
            load,
            profile=profile,
            policy=load_policy("load"),
            budget=Budget(RunBounds(), None),
            seed=0,
            tell=lambda step: None,
        )
        await ladder.run()
        return transport, ladder.steps[0]


def figures(mine: list[float], true: list[float]) -> list[str]:
    """Reported and true p50 and p99, and whether they lie within 2 % or 2 ms."""
    cells = []
    for q in (0.5, 0.99):
        a, b = float(np.quantile(mine, q)), float(np.quantile(true, q))
        cells.append(f"{a:.1f} / {b:.1f}{'' if abs(a - b) <= max(2.0, 0.02 * b) else ' (!)'}")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--streams", default="1,16,128,512,1000")
    parser.add_argument("--itl-ms", default="100")
    arguments = parser.parse_args()
    counts = [8, 64] if arguments.quick else [int(part) for part in arguments.streams.split(",")]
    rows = []
    for streams in counts:
        command = [sys.executable, "-m", "kvv", "serve", "--port", "0", "--stamp", "--ttft-ms", "300"]
        with subprocess.Popen([*command, "--itl-ms", arguments.itl_ms], stdout=subprocess.PIPE, text=True) as server:
            try:
                said = server.stdout.readline() if server.stdout else ""
                base_url = re.findall(r"http://\S+", said)[0]
                transport, step = asyncio.run(climb(base_url, streams, 30))
                with urllib.request.urlopen(base_url.removesuffix("/v1") + "/kvv/times") as answer:  # noqa: S310
                    stamps = json.load(answer)
            finally:
                server.terminate()
        known = [(noted, stamps[key]) for key, noted in transport.noted.items() if len(stamps.get(key, ())) == 3]
        # the first part is the role alone, the second the first token
        first = figures([n[1] for n, _ in known], [1000 * (s[1] - n[0]) for n, s in known])
        whole = figures([n[2] for n, _ in known], [1000 * (s[2] - n[0]) for n, s in known])
        busy = f"{100 * step.client_cpu:.0f}"
        rows.append([streams, len(known), *first, *whole, busy, f"{step.client_lag_ms:.1f}"])
    show(
        "kvv load: reported / stamped, ms; (!) beyond 2 % and 2 ms",
        ["streams", "answers", "first token p50", "p99", "end to end p50", "p99", "client CPU %", "late p99 ms"],
        rows,
    )


if __name__ == "__main__":
    main()
