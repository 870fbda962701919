"""BEAM where a million tokens hurt: preparing, memory in flight, the store, and other streams' delay.

python bench/beam.py [--quick] [--tokenizer MERGES]

- *prepare*: the twenty requests of one conversation, tokenised and serialised once, against the version that does it
for each question.
- *memory*: sixteen requests of a million tokens in flight, each of another conversation, in a process of their own.
- *end to end*: 240 questions over 12 conversations (``--quick``: 40 over 2) against the reference endpoint in another
process.
- *streams*: how late 32 streams' events come while such bodies are built and sent.

The conversations are made of random words, about four bytes a token, as the public ones have. The tokeniser is the one
of ``--tokenizer`` (else of the shared data folder, KVV_SHARED); without one a regular expression counts, in both
versions alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import zstandard
from loopback import MODEL, bare_server
from slow_disk import INTERVAL_MS, LIMIT_MS, lateness, quantile
from tables import ratio, show

from kvv.cases.suite import Context, Settings
from kvv.core import Case, Dataset, Identity, Request, Role
from kvv.data.beam import ABILITIES
from kvv.data.merges import read_merges
from kvv.profiles.profile import load_profile
from kvv.profiles.token_counts import Bpe, Tokenizer
from kvv.protocol.encode import encode
from kvv.protocol.reader import ReadLimits
from kvv.protocol.redaction.redactor import Redactor
from kvv.storage.store import Store
from kvv.suites.beam.suite import BeamSuite
from kvv.transport import Endpoint, Transport

BYTES, MESSAGE_BYTES = 4_000_000, 2_200
PREPARE_TIMES, MEMORY_MB, STORE_TIMES = 20.0, 600, 2.0
IN_FLIGHT, STREAMS, PUSHED = 16, 32, 8
WORDS = ["".join(random.Random(n).choices("etaoinshrdlucmfwyp", k=1 + n % 9)) for n in range(6_000)]


class Pieces:
    """Stands in for a tokeniser where there is none."""

    _piece = re.compile(r" ?\w{1,4}|\s|[^\w\s]")

    def count(self, text: str) -> int:
        return len(self._piece.findall(text))


def conversation(number: int, size: int) -> list[dict[str, str]]:
    chance = random.Random(number)
    messages = []
    while size > 0:
        text = " ".join(chance.choices(WORDS, k=MESSAGE_BYTES // 6))
        messages.append({"role": "assistant" if len(messages) % 2 else "user", "content": text})
        size -= len(text)
    return messages


def rows_of(conversations: int, size: int) -> list[dict[str, Any]]:
    found = []
    for number in range(conversations):
        questions = []
        for at in range(20):
            text = f"Conversation {number}, question {at}: what did I say about the matter?"
            key = {
                "question_type": ABILITIES[at % 10],
                "question_index": at // 10,
                "question": text,
                "gold_answer": "this",
                "rubric": ["this"],
            }
            questions.append({**key, "difficulty": "easy", "right": f"this, {number} {at}", "wrong": "nothing"})
        found.append(
            {"chat_id": str(number), "size": "1M", "messages": conversation(number, size), "questions": questions}
        )
    return found


def cases_of(rows: list[dict[str, Any]], tokenizer: Tokenizer | None) -> list[Case]:
    context = Context(
        model=MODEL,
        profile=load_profile("kimi-k3"),
        settings=Settings(max_tokens=32_768, stream=False),
        dataset=Dataset(rows=rows, origin="bench", revision=""),
        tokenizer=tokenizer,
    )
    return BeamSuite().cases(context)


def a_tokenizer(path: str | None) -> Tokenizer:
    shared = Path(os.environ.get("KVV_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    merges = Path(path) if path else shared / "data" / "tokenizer" / "kimi-k2.6.tiktoken"
    return Bpe(read_merges(merges)) if merges.exists() else Pieces()


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and seconds of processor time of all threads."""
    start, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start, time.process_time() - cpu


def peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


# --- preparing -----------------------------------------------------------------------------------


def naive(row: dict[str, Any], tokenizer: Tokenizer, questions: int) -> list[bytes]:
    """Counts and serialises the whole conversation for each question, with the standard library."""
    bodies = []
    for question in row["questions"][:questions]:
        messages = [*row["messages"], {"role": "user", "content": question["question"]}]
        tokens = [tokenizer.count(message["content"]) for message in messages]
        assert sum(tokens) > 0
        bodies.append(
            json.dumps({"model": MODEL, "messages": messages, "max_tokens": 32_768, "temperature": 1.0}).encode()
        )
    return bodies


def ours(row: dict[str, Any], tokenizer: Tokenizer) -> list[tuple[bytes, ...]]:
    return [encode(case.inputs["body"]).parts for case in cases_of([row], tokenizer)]


def prepare(tokenizer: Tokenizer, *, quick: bool) -> None:
    """Best of several turns of each, in turn: other work on the machine is left out as far as it can be."""
    (row,) = rows_of(1, BYTES)
    slow: list[tuple[float, float]] = []
    fast: list[tuple[float, float]] = []
    for _ in range(3 if quick else 6):
        slow.append(timed(partial(naive, row, tokenizer, 1)))
        fast.append(timed(partial(ours, row, tokenizer)))
    (wall, cpu), (our_wall, our_cpu) = ((min(column) for column in zip(*times, strict=True)) for times in (slow, fast))
    rows = [
        ("for each question", f"{20 * wall:.2f}", "1.00x", f"{20 * cpu:.2f}"),
        ("once a conversation", f"{our_wall:.2f}", ratio(20 * wall, our_wall), f"{our_cpu:.2f}"),
    ]
    header = ("version", "seconds", "faster", "processor seconds")
    show(
        f"20 requests of one conversation of {BYTES // 4:,} tokens ({type(tokenizer).__name__}, {os.cpu_count()}"
        " processors)",
        header,
        rows,
    )
    print(f"{'at least' if 20 * wall >= PREPARE_TIMES * our_wall else 'LESS than'} {PREPARE_TIMES:.0f} times faster")


# --- memory --------------------------------------------------------------------------------------


async def _flight(base: str, folder: Path, cases: list[Case]) -> None:
    endpoints = {Role.TARGET: Endpoint(role=Role.TARGET, base_url=f"{base}/c200b1i10/v1", key=None)}
    with Store.create(folder / "store.sqlite", {}) as store:
        async with Transport(endpoints, redactor=Redactor(), limits=ReadLimits()) as transport:

            async def ask(number: int, case: Case) -> None:
                request = Request(body={**case.inputs["body"], "stream": True}, stream=True)
                identity = Identity(case=case.id, sample=0, step=0, ask=number, purpose="probe")
                body = encode(request.body)
                received = await transport.send(
                    request, body, identity=identity, attempt=1, rules=None, keep_frames=False
                )
                assert received.exchange.status == 200, received.exchange.fault
                store.put_exchange(received, request, body)

            await asyncio.gather(*(ask(number, case) for number, case in enumerate(cases)))


def flight() -> None:
    """In a process of its own: prints its peak."""
    cases = cases_of(rows_of(IN_FLIGHT, BYTES), None)
    leads = [case for case in cases if case.id.endswith("/abstention-0")]
    with bare_server() as base, tempfile.TemporaryDirectory() as folder:
        asyncio.run(_flight(base, Path(folder), leads))
    print(peak_mb())


def memory() -> None:
    out = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--flight"], capture_output=True, text=True, check=True
    ).stdout
    peak = float(out)
    title = f"{IN_FLIGHT} requests of {BYTES // 4:,} tokens in flight, all of different conversations"
    show(
        title,
        ("", "MB"),
        [("peak of the process", f"{peak:.0f}"), ("their bodies", f"{IN_FLIGHT * BYTES / 2**20:.0f}")],
    )
    print(f"{'under' if peak < MEMORY_MB else 'OVER'} {MEMORY_MB} MB")


# --- end to end ----------------------------------------------------------------------------------


@contextmanager
def served(data: Path) -> Iterator[str]:
    """The reference endpoint in another process, with the answers of this data."""
    argv = [sys.executable, "-m", "kvv", "serve", "--port", "0", "--data", f"beam={data}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := re.search(r"http://\S+/v1", line):
                    yield found[0]
                    break
        finally:
            process.terminate()


def end_to_end(*, quick: bool) -> None:
    conversations = 2 if quick else 12
    rows = rows_of(conversations, BYTES)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "data"
        folder.mkdir()
        for name, lines in (
            ("chats", [{"chat_id": row["chat_id"], "messages": row["messages"]} for row in rows]),
            ("questions", [{"chat_id": row["chat_id"], **question} for row in rows for question in row["questions"]]),
        ):
            (folder / f"beam_1m_{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        packed = sum(len(zstandard.compress(json.dumps(row["messages"]).encode(), 3)) for row in rows)
        with served(folder) as url:
            argv = [
                sys.executable,
                "-m",
                "kvv",
                "run",
                "beam",
                "--data",
                f"beam={folder}",
                "--base-url",
                url,
                "--model",
                "kimi-k3",
            ]
            argv += ["--variant", "1M", "--judge-base-url", url, "--judge-model", "kimi-k3"]
            argv += ["--out", f"{scratch}/out", "--yes", "--concurrency", "16", "-q"]
            start = time.perf_counter()
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - start
        report = json.loads(next(Path(scratch, "out").glob("*/report.json")).read_text("utf-8"))
        store = next(Path(scratch, "out").glob("*/store.sqlite")).stat().st_size
    row = next(row for row in report["suites"] if row["metric"] == "kvv_score")
    print("\n" + done.stdout.strip())
    figures = [
        ("questions concluded", f"{row['n_concluded']} of {row['n_planned']}", ""),
        ("seconds", f"{seconds:.0f}", ""),
        ("store, MB", f"{store / 2**20:.1f}", ratio(store, packed)),
        ("conversations compressed (zstd 3), MB", f"{packed / 2**20:.1f}", "1.00x"),
    ]
    show(f"{conversations} conversations of {BYTES // 4:,} tokens end to end", ("", "", "of the compressed"), figures)
    print(f"{'under' if store < STORE_TIMES * packed else 'OVER'} {STORE_TIMES:.0f} times; score {row['value']}")


# --- other streams -------------------------------------------------------------------------------


async def _streams(
    base: str, sink: str, folder: Path, cases: list[Case], seconds: float
) -> tuple[list[float], list[float]]:
    """Lateness of the events of STREAMS streams, and the loop's own work between two turns of a 5 ms timer
    (milliseconds of its thread's processor time, which other programs do not change), while the cases' bodies go to
    another server."""
    chunks = int(seconds * 1000 / INTERVAL_MS)
    endpoints = {
        Role.TARGET: Endpoint(role=Role.TARGET, base_url=f"{base}/c{chunks}b1i{int(INTERVAL_MS)}/v1", key=None),
        Role.JUDGE: Endpoint(role=Role.JUDGE, base_url=f"{sink}/c200/v1", key=None),
    }
    late: list[float] = []
    ticks: list[float] = []
    ended = time.monotonic() + seconds * 0.9
    number = count()
    with Store.create(folder / "store.sqlite", {}) as store:
        async with Transport(endpoints, redactor=Redactor(), limits=ReadLimits()) as transport:

            async def watch() -> None:
                request = Request(
                    body={"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}, stream=True
                )
                identity = Identity(case="bench/stream", sample=next(number), step=0, ask=0, purpose="probe")
                received = await transport.send(
                    request, encode(request.body), identity=identity, attempt=1, rules=None, keep_frames=True
                )
                late.extend(lateness(received.exchange.frames))

            async def push(case: Case) -> None:
                while time.monotonic() < ended:
                    body = encode(case.inputs["body"])
                    request = Request(body=case.inputs["body"], role=Role.JUDGE)  # the second address, nothing else
                    identity = Identity(case=case.id, sample=next(number), step=0, ask=0, purpose="probe")
                    received = await transport.send(
                        request, body, identity=identity, attempt=1, rules=None, keep_frames=False
                    )
                    await store.drained(64 * 2**20)
                    store.put_exchange(received, request, body)

            async def tick() -> None:
                while time.monotonic() < ended:
                    before = time.thread_time()
                    await asyncio.sleep(0.005)
                    ticks.append((time.thread_time() - before) * 1000)

            await asyncio.gather(tick(), *(watch() for _ in range(STREAMS)), *(push(case) for case in cases[:PUSHED]))
    return late, ticks


def streams(*, quick: bool) -> None:
    seconds = 3.0 if quick else 10.0
    cases = [case for case in cases_of(rows_of(PUSHED, BYTES), None) if case.id.endswith("/abstention-0")]
    rows: list[tuple[str, ...]] = []
    p99: list[float] = []
    with bare_server() as base, bare_server() as sink, tempfile.TemporaryDirectory() as folder:
        for name, sent in (("nothing beside them", []), (f"{PUSHED} bodies of 4 MB at a time", cases)):
            own = Path(folder) / str(len(rows))
            own.mkdir()
            late, ticks = asyncio.run(_streams(base, sink, own, sent, seconds))
            p99.append(quantile(late, 0.99))
            rows.append(
                (
                    name,
                    f"{quantile(late, 0.5):.1f}",
                    f"{p99[-1]:.1f}",
                    f"{max(late):.1f}",
                    f"{quantile(ticks, 0.99):.1f}",
                )
            )
    show(
        f"{STREAMS} streams, an event every {INTERVAL_MS:.0f} ms: later than that by, ms",
        ("", "p50", "p99", "max", "own work p99"),
        rows,
    )
    busy = (
        f" (without bodies it is {p99[0]:.0f} ms already: the machine has other work)" if p99[0] > LIMIT_MS / 2 else ""
    )
    print(f"{'within' if p99[1] <= LIMIT_MS else 'BEYOND'} {LIMIT_MS:.0f} ms at the 99th percentile{busy}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tokenizer", metavar="MERGES")
    parser.add_argument("--only", choices=("prepare", "memory", "end-to-end", "streams"))
    parser.add_argument("--flight", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flight:
        flight()
        return
    parts: dict[str, Callable[[], None]] = {
        "prepare": lambda: prepare(a_tokenizer(options.tokenizer), quick=options.quick),
        "memory": memory,
        "streams": lambda: streams(quick=options.quick),
        "end-to-end": lambda: end_to_end(quick=options.quick),
    }
    for name, part in parts.items():
        if options.only in (None, name):
            part()


if __name__ == "__main__":
    main()
