"""Microseconds of CPU per chunk for reading an event stream: bytes to frames, JSON, decoding, passive rules.

    python bench/reading.py            the table
    python bench/reading.py --limit 8  exit 1 when an ordinary text chunk with rules costs more microseconds

Each row is the best of several passes over a 200-chunk stream fed one chunk per read, the whole exchange
included (reader, rules, finish, findings). ``parse`` is one orjson.loads of the same chunk: the ratio to it holds
on any machine, the microseconds only on this one. ``long way`` switches the steady state off, as chunks whose
envelope changes every time would.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kvv.model import Identity, Request
from kvv.profile import Profile, load_profile
from kvv.reading import Limits, Reader
from kvv.rules import rules_for
from kvv.wire.sse import EventStream

CHUNKS = 200
PASSES = 60
IDENTITY = Identity(case="bench", sample=0, step=0, ask=0, purpose="probe")
REQUEST = Request(
    body={
        "model": "m",
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    stream=True,
)


def _event(choices: Sequence[dict[str, Any]], **top: Any) -> bytes:
    chunk = {"id": "chatcmpl-0123456789abcdef01234567", "object": "chat.completion.chunk", "created": 1_741_570_283, "model": "kimi-k3"}
    return b"data: " + orjson.dumps(chunk | {"choices": choices} | top) + b"\n\n"


def _chunk(delta: dict[str, Any], finish: str | None = None, **top: Any) -> bytes:
    return _event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], **top)


def _stream(middle: Sequence[bytes], finish: str = "stop") -> list[bytes]:
    usage = {"prompt_tokens": 5, "completion_tokens": CHUNKS, "total_tokens": 5 + CHUNKS}
    return [_chunk({"role": "assistant", "content": ""}), *middle, _chunk({}, finish), _event([], usage=usage), b"data: [DONE]\n\n"]


def _tool(arguments: str, **first: Any) -> bytes:
    name = {"name": first.pop("name")} if first else {}
    return _chunk({"tool_calls": [{"index": 0} | first | {"function": name | {"arguments": arguments}}]})


#: what is streamed -> its events
STREAMS: dict[str, list[bytes]] = {
    "text": _stream([_chunk({"content": f" word{n}"}) for n in range(CHUNKS)]),
    "reasoning, text": _stream([_chunk({"reasoning_content" if n < 100 else "content": f" word{n}"}) for n in range(CHUNKS)]),
    "chinese": _stream([_chunk({"content": "月亮" + chr(0x4E00 + n)}) for n in range(CHUNKS)]),
    "tool arguments": _stream(
        [_tool("", id="f_0", type="function", name="f"), _tool('{"a":"'), *[_tool(f"word{n} ") for n in range(CHUNKS - 3)], _tool('"}')], "tool_calls"
    ),
    "changing envelope": _stream([_chunk({"content": f" word{n}"}, obfuscation=f"x{n}") for n in range(CHUNKS)]),
}


@dataclass(frozen=True)
class Way:
    name: str
    profile: Profile | None
    steady: bool = True

    def read(self, events: Sequence[bytes]) -> None:
        rules = rules_for(self.profile, REQUEST) if self.profile else None
        reader = Reader(
            identity=IDENTITY,
            attempt=1,
            request=REQUEST,
            started="",
            rules=rules,
            keep_frames=False,
            limits=Limits(),
            redact=None,
            steady=self.steady,
        )
        reader.head(200, [("content-type", "text/event-stream")])
        for offset, data in enumerate(events):
            reader.feed(data, offset * 10.0)
        reader.finish(fault=None, total_ms=2_000.0)


def _frames_only(events: Sequence[bytes]) -> None:
    stream = EventStream()
    for data in events:
        stream.feed(data, 0.0)


def _parse_only(events: Sequence[bytes]) -> None:
    for data in events[:-1]:
        orjson.loads(data[6:])


def _microseconds(work: Callable[[Sequence[bytes]], None], events: Sequence[bytes]) -> float:
    """Best of many passes: on a shared machine every other figure measures the neighbours."""
    best = float("inf")
    for _ in range(PASSES):
        start = time.process_time_ns()
        work(events)
        best = min(best, (time.process_time_ns() - start) / 1_000 / len(events))
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description="microseconds of CPU per chunk")
    parser.add_argument("--limit", type=float, default=None, help="most microseconds for a text chunk with rules")
    limit = parser.parse_args().limit
    openai, kimi = load_profile("openai"), load_profile("kimi-k3")
    ways = [Way("no rules", None), Way("openai", openai), Way("kimi-k3", kimi), Way("long way", None, False), Way("long, kimi-k3", kimi, False)]
    print(f"{'us/chunk':18}{'parse':>8}{'frames':>8}" + "".join(f"{way.name:>15}" for way in ways) + f"{'kimi-k3/parse':>15}")
    worst = 0.0
    for name, events in STREAMS.items():
        parse, frames = _microseconds(_parse_only, events), _microseconds(_frames_only, events)
        costs = {way.name: _microseconds(way.read, events) for way in ways}
        print(f"{name:18}{parse:8.2f}{frames:8.2f}" + "".join(f"{costs[way.name]:15.2f}" for way in ways) + f"{costs['kimi-k3'] / parse:15.1f}")
        if name != "changing envelope":
            worst = max(worst, costs["kimi-k3"], costs["openai"])
    if limit is not None and worst > limit:
        print(f"a chunk costs {worst:.2f} us with rules, more than {limit}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
