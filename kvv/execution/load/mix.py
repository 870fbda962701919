"""The requests of a load: prompts of a stated length, unique but for a cached prefix, a share with a known answer.

A prompt is filler of common English words with one line of its own before it, so that no prefix cache can serve it;
with ``cached`` its first part is the same for all prompts of that length. Answers are known of three kinds: an exact
line to repeat, a tool to call with given arguments, a needle in the filler.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from kvv.core import Choice, Observation, Request
from kvv.core.lazy import numpy as np
from kvv.planning.config import ConfigError, RunConfig
from kvv.planning.load_config import MIXES, LoadConfig
from kvv.profiles.profile import Profile

#: short common words: one token each in every current vocabulary, or close to it
_COMMON = (
    "the of and to in that was his with as had but at on be which have from this by her they were all she there"
    " one so their we him been has when who will more no if out up into them can only other new some could time these"
    " two may then do first any my now such like our over man me even most made after also did many before must through"
    " back years where much your way well down should because each just those people too good very still own see men"
    " work long here get between life being under never day same another know while last might us great old year"
    " off come since against go came right take three house water field road stone river market letter table"
    " window morning paper number system garden village engine winter summer machine doctor teacher station bridge"
)
WORDS = _COMMON.split(" ")
#: places where a filler may begin in the one text that all are cut from
POOL = 65_536
NAMES = ("Lima", "Oslo", "Quito", "Perth", "Turin", "Cairo", "Delhi", "Kyoto", "Porto", "Minsk", "Accra", "Leeds")
TOOL = {
    "type": "function",
    "function": {
        "name": "book_shipment",
        "description": "Books a shipment.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "crates": {"type": "integer"},
                "express": {"type": "boolean"},
                "reference": {"type": "string"},
            },
            "required": ["city", "crates", "express", "reference"],
            "additionalProperties": False,
        },
    },
}
#: bounds of a file of the user's own requests
MOST_LINES, MOST_BYTES = 100_000, 512 * 2**20
#: tokens that an answer which is known may take, for thinking above all: cut off, it would tell nothing
KNOWN_ROOM = 2_048
#: tokens that instructions, names and the template add to the filler
OVERHEAD = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """``expect``: the exact answer, the arguments of the call, or the needle; None where no answer is known."""

    kind: str
    workload: str
    length: int
    request: Request
    expect: Any = None

    def judge(self, observation: Observation) -> bool | None:
        """Whether the known answer was given; None where none is known, or the output limit cut it off."""
        choice = observation.first
        if self.expect is None or choice.finish_reason == "length":
            return None
        if self.kind == "tool call":
            return _called(choice, self.expect)
        said = (choice.answer or "").strip()
        return self.expect in said if self.kind == "needle" else said == self.expect


def _called(choice: Choice, expected: Mapping[str, Any]) -> bool:
    """One call of the tool, its arguments equal in value and type."""
    if len(choice.tool_calls) != 1 or choice.tool_calls[0].name != TOOL["function"]["name"]:  # type: ignore[index]
        return False
    try:
        given = json.loads(choice.tool_calls[0].arguments)
    except (ValueError, RecursionError):
        return False
    return isinstance(given, dict) and {k: (type(v), v) for k, v in given.items()} == {
        k: (type(v), v) for k, v in expected.items()
    }


class Mix:
    """Gives the requests of a load one after the other. The same seed gives the same requests."""

    def __init__(self, config: RunConfig, load: LoadConfig, profile: Profile, model: str) -> None:
        self._load = load
        self._random = Random(config.seed)
        self._own = None if load.mix in MIXES else _read(Path(load.mix), model, dict(config.extra_body))
        self._fields = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
        for name in ("temperature", "top_p"):
            if (value := getattr(config, name)) is not None:
                self._fields[name] = value
        on = None if config.thinking is None else config.thinking == "on"
        effort = config.effort[0] if config.effort else None
        self._fields |= profile.thinking_body(on=on, effort=effort, mode=config.think_mode)
        self._extra = dict(config.extra_body)
        words = self._random.choices(WORDS, k=POOL + (0 if self._own else max(load.prompt_tokens)))
        self._pool = " ".join([*words, ""])
        self._starts = np.concatenate([[0], np.cumsum([len(word) + 1 for word in words])]).tolist()
        self._prefixes = {length: self._filler(round(load.cached * length)) for length in set(load.prompt_tokens)}
        self._given = 0

    @property
    def mean_prompt_tokens(self) -> float:
        if self._own is not None:
            return sum(one.length for one in self._own) / len(self._own)
        return sum(self._load.prompt_tokens) / len(self._load.prompt_tokens)

    @property
    def _known_room(self) -> int:
        return max(KNOWN_ROOM, self._load.output_tokens)

    @property
    def mean_output_tokens(self) -> float:
        """At most; of the user's own requests, what --output-tokens says."""
        known = 0.0 if self._own is not None else self._load.known
        return known * self._known_room + (1 - known) * self._load.output_tokens

    def prefixes(self) -> Sequence[LoadRequest]:
        """One request for each shared prefix, to fill the cache."""
        if self._own is not None or not self._load.cached:
            return ()
        return [self._made("text", length) for length in self._prefixes]

    def next(self) -> LoadRequest:
        self._given += 1
        if self._own is not None:
            return self._own[(self._given - 1) % len(self._own)]
        length = self._random.choice(self._load.prompt_tokens)
        kinds = ("tool call", "tool call", "needle") if self._load.mix == "agent" else ("echo", "needle")
        # spread evenly: any run of requests holds the stated share, to one
        known = math.floor(self._given * self._load.known) > math.floor((self._given - 1) * self._load.known)
        kind = self._random.choice(kinds) if known else "text"
        return self._made(kind, length)

    def _made(self, kind: str, length: int) -> LoadRequest:
        random = self._random
        code = f"{random.choice(NAMES)}-{random.randrange(16**8):08x}"
        prefix = self._prefixes[length]
        filler = self._filler(max(20, length - round(self._load.cached * length) - OVERHEAD))
        fields: dict[str, Any] = {"max_tokens": self._load.output_tokens if kind == "text" else self._known_room}
        expect: Any = None
        match kind:
            case "echo":
                expect = " ".join([*random.choices(WORDS, k=24), code])
                task = f"Reply with exactly the following line: {expect}"
            case "needle":
                expect = str(random.randrange(10**7, 10**8))
                before, after = self._split(filler)
                filler = f"{before}. The password of the depot {code} is {expect}. {after}"
                task = f"What is the password of the depot {code}?"
            case "tool call":
                expect = {
                    "city": random.choice(NAMES),
                    "crates": random.randrange(1, 500),
                    "express": random.random() < 0.5,
                    "reference": code,
                }
                task = f"Call book_shipment with exactly these arguments: {json.dumps(expect)}"
            case _:
                task = f"Write {self._load.output_tokens} words about {code}, as one plain paragraph."
        agent = self._load.mix == "agent"
        if agent:
            fields["tools"] = [TOOL]
        messages = [
            {"role": "system", "content": f"{prefix}\nYou are an assistant of the company.".strip()},
            {"role": "user", "content": f"Note {code}: {filler}.\n\n{task}"},
        ]
        return LoadRequest(
            kind=kind,
            workload="agentic" if agent else "chat",
            length=length,
            request=Request(
                body={**self._fields, "messages": messages, **fields, **self._extra},
                stream=True,
                purpose="load",
                expect_prompt_tokens=length,
            ),
            expect=expect,
        )

    def _filler(self, words: int) -> str:
        """So many words of the pool, from a place of their own: a slice, as a million words must not hold up the event
        loop.
        """
        if words <= 0:
            return ""
        first = self._random.randrange(POOL)
        return self._pool[self._starts[first] : self._starts[first + words] - 1]

    def _split(self, filler: str) -> tuple[str, str]:
        """A text cut between two of its words, anywhere."""
        at = filler.find(" ", self._random.randrange(len(filler)))
        return (filler, "") if at < 0 else (filler[:at], filler[at + 1 :])


def _read(path: Path, model: str, extra: Mapping[str, Any]) -> list[LoadRequest]:
    """A JSON Lines file: each line a body with ``messages``, or ``{"body": ..., "expect": "exact answer", "workload":
    "chat" or "agentic"}``. ConfigError names the line.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"--mix: {path} is larger than {MOST_BYTES // 2**20} MiB")
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"--mix: {str(path)!r:.200} is neither {' nor '.join(MIXES)} nor a file of requests"
        ) from None
    if len(lines) > MOST_LINES:
        raise ConfigError(f"--mix: {path} has more than {MOST_LINES:,} lines")
    found = [_own(line, f"{path}:{number}", model, extra) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise ConfigError(f"--mix: {path} holds no request")
    return found


def _own(line: str, where: str, model: str, extra: Mapping[str, Any]) -> LoadRequest:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise ConfigError(f"--mix: {where}: no JSON") from None
    wrapped = row if isinstance(row, dict) and "body" in row else {"body": row}
    body, expect, workload = wrapped["body"], wrapped.get("expect"), wrapped.get("workload", "chat")
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        raise ConfigError(f"--mix: {where}: wants a request body with a list of messages")
    if not (expect is None or isinstance(expect, str)) or workload not in ("chat", "agentic"):
        raise ConfigError(f"--mix: {where}: expect is a text, workload chat or agentic")
    stream = body.get("stream", True) is not False
    full = {**body, "model": model, "stream": stream, **extra}
    if stream:
        full.setdefault("stream_options", {"include_usage": True})
    length = len(line) // 4
    return LoadRequest(
        kind="own",
        workload=workload,
        length=length,
        request=Request(body=full, stream=stream, purpose="load", expect_prompt_tokens=length),
        expect=expect.strip() if expect is not None else None,
    )
