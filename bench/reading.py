"""Microseconds of CPU for reading an answer: bytes to frames, JSON, decoding, passive rules.

    python bench/reading.py            the tables
    python bench/reading.py --limit 8  exit 1 when an ordinary text chunk with rules costs more microseconds

The first table is per chunk of an event stream, the second per body of about 2 kB, where what is made anew for each
request weighs most: ``rules`` is what the rules add to reading it without them, and must stay under 200 us.

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

from kvv.core import Identity, Request
from kvv.profiles.profile import Profile, load_profile
from kvv.protocol.reader import ExchangeReader, ReadLimits
from kvv.protocol.rules import rules_for
from kvv.protocol.sse import EventStream

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
    chunk = {
        "id": "chatcmpl-0123456789abcdef01234567",
        "object": "chat.completion.chunk",
        "created": 1_741_570_283,
        "model": "kimi-k3",
    }
    return b"data: " + orjson.dumps(chunk | {"choices": choices} | top) + b"\n\n"


def _chunk(delta: dict[str, Any], finish: str | None = None, **top: Any) -> bytes:
    return _event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], **top)


def _stream(middle: Sequence[bytes], finish: str = "stop") -> list[bytes]:
    usage = {"prompt_tokens": 5, "completion_tokens": CHUNKS, "total_tokens": 5 + CHUNKS}
    return [
        _chunk({"role": "assistant", "content": ""}),
        *middle,
        _chunk({}, finish),
        _event([], usage=usage),
        b"data: [DONE]\n\n",
    ]


def _tool(arguments: str, **first: Any) -> bytes:
    name = {"name": first.pop("name")} if first else {}
    return _chunk({"tool_calls": [{"index": 0} | first | {"function": name | {"arguments": arguments}}]})


#: what is streamed -> its events
STREAMS: dict[str, list[bytes]] = {
    "text": _stream([_chunk({"content": f" word{n}"}) for n in range(CHUNKS)]),
    "reasoning, text": _stream(
        [_chunk({"reasoning_content" if n < 100 else "content": f" word{n}"}) for n in range(CHUNKS)]
    ),
    "chinese": _stream([_chunk({"content": "月亮" + chr(0x4E00 + n)}) for n in range(CHUNKS)]),
    "tool arguments": _stream(
        [
            _tool("", id="f_0", type="function", name="f"),
            _tool('{"a":"'),
            *[_tool(f"word{n} ") for n in range(CHUNKS - 3)],
            _tool('"}'),
        ],
        "tool_calls",
    ),
    "changing envelope": _stream([_chunk({"content": f" word{n}"}, obfuscation=f"x{n}") for n in range(CHUNKS)]),
}


HEADERS = [("content-type", "application/json"), ("x-msh-usage-prompt-tokens", "5"), ("x-msh-usage-cached-tokens", "0")]
BODY_REQUEST = Request(body={"model": "m", "messages": [{"role": "user", "content": "Tell me a story."}]})
RULES_LIMIT_US = 200.0


def _body(message: dict[str, Any]) -> bytes:
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 480,
        "total_tokens": 485,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    choices = [{"index": 0, "message": {"role": "assistant"} | message, "finish_reason": "stop"}]
    head = {
        "id": "chatcmpl-0123456789abcdef01234567",
        "object": "chat.completion",
        "created": 1_741_570_283,
        "model": "kimi-k3",
    }
    return orjson.dumps(
        head | {"choices": choices, "usage": usage | {"completion_tokens_details": {"reasoning_tokens": 7}}}
    )


_WORDS = " ".join(f"word{number * 7919 % 1000:03}" for number in range(210))
#: what a body of about 2 kB holds -> the body
BODIES: dict[str, bytes] = {
    "words": _body({"content": _WORDS}),
    "reasoning, text": _body({"reasoning_content": _WORDS[:1200], "content": _WORDS[1200:]}),
    "chinese": _body({"content": "".join(chr(0x4E00 + n * 7919 % 5_000) for n in range(640))}),
    "html": _body({"content": "".join(f"<tr><td>{n}</td></tr>\n" for n in range(75))}),
}


@dataclass(frozen=True)
class Way:
    name: str
    profile: Profile | None
    steady: bool = True

    def read(self, events: Sequence[bytes]) -> None:
        rules = rules_for(self.profile, REQUEST) if self.profile else None
        reader = ExchangeReader(
            identity=IDENTITY,
            attempt=1,
            request=REQUEST,
            started="",
            rules=rules,
            keep_frames=False,
            limits=ReadLimits(),
            redact=None,
            steady=self.steady,
        )
        reader.head(200, [("content-type", "text/event-stream")])
        for offset, data in enumerate(events):
            reader.feed(data, offset * 10.0)
        reader.finish(fault=None, total_ms=2_000.0)

    def read_body(self, body: bytes) -> None:
        rules = rules_for(self.profile, BODY_REQUEST) if self.profile else None
        reader = ExchangeReader(
            identity=IDENTITY,
            attempt=1,
            request=BODY_REQUEST,
            started="",
            rules=rules,
            keep_frames=False,
            limits=ReadLimits(),
            redact=None,
        )
        reader.head(200, HEADERS)
        reader.feed(body, 1.0)
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


def _beside(works: Sequence[Callable[[bytes], object]], body: bytes) -> list[float]:
    """The best of many passes for each; they take turns, so that a slow minute of the machine is none's alone."""
    best = [float("inf")] * len(works)
    for _ in range(3 * PASSES):
        for number, work in enumerate(works):
            start = time.process_time_ns()
            for _ in range(25):
                work(body)
            best[number] = min(best[number], (time.process_time_ns() - start) / 25_000)
    return best


def bodies(ways: Sequence[Way]) -> None:
    """One row for each kind of body: reading without rules, what each profile's rules add, and that as a ratio to the
    reading.
    """
    names = "".join(f"{f'+ rules ({way.name})':>18}{'of reading':>12}" for way in ways[1:])
    print(f"\n{'us/2 kB body':18}{'parse':>8}{'reading':>9}{names}")
    most = 0.0
    for name, body in BODIES.items():
        parse, plain, *costs = _beside([orjson.loads, *(way.read_body for way in ways)], body)
        most = max(most, *(cost - plain for cost in costs))
        print(
            f"{name:18}{parse:8.2f}{plain:9.1f}"
            + "".join(f"{cost - plain:18.1f}{(cost - plain) / plain:12.2f}" for cost in costs)
        )
    kept = "keeps" if most <= RULES_LIMIT_US else "MISSES"
    print(f"the rules add at most {most:.0f} us to a 2 kB body: {kept} the bound of {RULES_LIMIT_US:.0f} us")


def main() -> int:
    parser = argparse.ArgumentParser(description="microseconds of CPU per chunk")
    parser.add_argument("--limit", type=float, default=None, help="most microseconds for a text chunk with rules")
    limit = parser.parse_args().limit
    openai, kimi = load_profile("openai"), load_profile("kimi-k3")
    ways = [
        Way("no rules", None),
        Way("openai", openai),
        Way("kimi-k3", kimi),
        Way("long way", None, False),
        Way("long, kimi-k3", kimi, False),
    ]
    print(
        f"{'us/chunk':18}{'parse':>8}{'frames':>8}"
        + "".join(f"{way.name:>15}" for way in ways)
        + f"{'kimi-k3/parse':>15}"
    )
    worst = 0.0
    for name, events in STREAMS.items():
        parse, frames = _microseconds(_parse_only, events), _microseconds(_frames_only, events)
        costs = {way.name: _microseconds(way.read, events) for way in ways}
        print(
            f"{name:18}{parse:8.2f}{frames:8.2f}"
            + "".join(f"{costs[way.name]:15.2f}" for way in ways)
            + f"{costs['kimi-k3'] / parse:15.1f}"
        )
        if name != "changing envelope":
            worst = max(worst, costs["kimi-k3"], costs["openai"])
    bodies(ways[:3])
    if limit is not None and worst > limit:
        print(f"a chunk costs {worst:.2f} us with rules, more than {limit}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
