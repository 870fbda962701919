"""A laboratory for the passive rules: realistic clean exchanges, and what the rules say of a changed one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from kvv.core import Fault, Identity, Level, Request, Surface
from kvv.profiles.profile import Profile, load_profile
from kvv.protocol.reader import ExchangeReader, ReadLimits, Received
from kvv.protocol.rules import rules_for

DONE = b"[DONE]"
IDENTITY = Identity(case="lab", sample=0, step=0, ask=0, purpose="probe")
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "required": ["city"]}},
}
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
DETAILED = USAGE | {"prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 3}}


@dataclass
class Answer:
    """One exchange to be: frames are chunk objects or raw event data; a body is one object or raw bytes."""

    frames: list[Any] = field(default_factory=list)
    body: Any = None
    request: dict[str, Any] = field(default_factory=dict)
    profile: Profile = field(default_factory=lambda: load_profile("openai"))
    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)
    tail: bytes = b""
    fault: Fault | None = None
    close_delimited: bool = False
    moonshot: bool = False

    def wire(self) -> bytes:
        if self.body is not None:
            return self.body if isinstance(self.body, bytes) else orjson.dumps(self.body)
        return (
            b"".join(b"data: " + (f if isinstance(f, bytes) else orjson.dumps(f)) + b"\n\n" for f in self.frames)
            + self.tail
        )

    def read(self, *, split: int = 0, steady: bool = True, keep_frames: bool = False) -> Received:
        request = Request(
            body={"model": "m", "messages": [{"role": "user", "content": "Hi"}]} | self.request,
            stream=self.request.get("stream") is True,
        )
        rules = rules_for(self.profile, request, moonshot_stream=self.moonshot)
        reader = ExchangeReader(
            identity=IDENTITY,
            attempt=1,
            request=request,
            started="2026-01-01T00:00:00Z",
            rules=rules,
            keep_frames=keep_frames,
            limits=ReadLimits(),
            redact=None,
            steady=steady,
        )
        label = "text/event-stream" if self.body is None else "application/json"
        reader.head(
            self.status,
            (
                self.headers
                if any(k == "content-type" for k, _ in self.headers)
                else [("content-type", label), *self.headers]
            ),
        )
        wire = self.wire()
        for start in range(0, len(wire), split or max(1, len(wire))):
            reader.feed(wire[start : start + (split or len(wire))], float(start))
        return reader.finish(fault=self.fault, total_ms=1_000.0, close_delimited=self.close_delimited)

    def rules(self) -> dict[str, Level]:
        """The highest level at which each rule objects."""
        found: dict[str, Level] = {}
        for finding in self.read().findings:
            if found.get(finding.rule) is not Level.MUST:
                found[finding.rule] = finding.level
        return found


class Lab:
    """Clean exchanges by name; each call gives a fresh one."""

    DONE = DONE
    USAGE = USAGE
    DETAILED = DETAILED
    WEATHER = WEATHER
    STREAM = STREAM

    def __init__(self) -> None:
        self.bases: Mapping[str, Callable[[], Answer]] = {
            "openai": self.openai_text,
            "openai-tools": self.openai_tools,
            "openai-body": self.openai_body,
            "openai-body-tools": self.openai_body_tools,
            "vllm": self.vllm_reasoning,
            "kimi": self.kimi_text,
            "kimi-tools": self.kimi_tools,
            "kimi-body": self.kimi_body,
            "n2": self.two_choices,
        }

    def chunk(
        self,
        delta: dict[str, Any] | None = None,
        finish: str | None = None,
        *,
        index: int = 0,
        kimi: bool = False,
        **top: Any,
    ) -> dict[str, Any]:
        id = "chatcmpl-0123456789abcdef01234567" if kimi else "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG"
        choice = (
            {"index": index, "delta": delta or {}} | ({} if kimi else {"logprobs": None}) | {"finish_reason": finish}
        )
        return {
            "id": id,
            "object": "chat.completion.chunk",
            "created": 1_741_570_283,
            "model": "m",
            "choices": [choice],
        } | top

    def openai_text(self) -> Answer:
        """As OpenAI streams: usage null on every chunk, a system fingerprint, a service tier, refusal null in the first
        delta.
        """
        extra = {"service_tier": "default", "system_fingerprint": "fp_fc9f1d7035", "usage": None}
        return Answer(
            frames=[
                self.chunk({"role": "assistant", "content": "", "refusal": None}, **extra),
                self.chunk({"content": "Hello"}, **extra),
                self.chunk({"content": ", how can I"}, **extra),
                self.chunk({"content": " help?"}, **extra),
                self.chunk({}, "stop", **extra),
                self.chunk(
                    **(
                        extra
                        | {
                            "choices": [],
                            "usage": DETAILED | {"completion_tokens_details": {"reasoning_tokens": 0}},
                        }
                    )
                ),
                DONE,
            ],
            request=dict(STREAM),
        )

    def openai_tools(self) -> Answer:
        def call(index: int, arguments: str, **first: Any) -> dict[str, Any]:
            name = first.pop("name", None)
            return {
                "tool_calls": [
                    {"index": index} | first | {"function": ({"name": name} if name else {}) | {"arguments": arguments}}
                ]
            }

        return Answer(
            frames=[
                self.chunk({"role": "assistant", "content": None}),
                self.chunk(call(0, "", id="call_a", type="function", name="get_weather")),
                self.chunk(call(0, '{"ci')),
                self.chunk(call(0, 'ty":"Paris"}')),
                self.chunk(call(1, "", id="call_b", type="function", name="get_weather")),
                self.chunk(call(1, '{"city":"Rome"}')),
                self.chunk({}, "tool_calls"),
                self.chunk(choices=[], usage=USAGE),
                DONE,
            ],
            request=STREAM | {"tools": [WEATHER]},
        )

    def openai_body(self) -> Answer:
        message = {"role": "assistant", "content": "Hello!", "refusal": None, "annotations": []}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return Answer(
            body=self.chunk(object="chat.completion", choices=[choice], usage=DETAILED | {"service_tier": "default"})
        )

    def openai_body_tools(self) -> Answer:
        calls = [
            {"id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}},
            {"id": "call_b", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'}},
        ]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": None, "tool_calls": calls},
            "finish_reason": "tool_calls",
        }
        return Answer(
            body=self.chunk(object="chat.completion", choices=[choice], usage=USAGE), request={"tools": [WEATHER]}
        )

    def vllm_reasoning(self) -> Answer:
        """As vLLM 0.2x streams: reasoning and content side by side, one null; stop_reason and token_ids beside."""

        def piece(**delta: Any) -> dict[str, Any]:
            made = self.chunk(delta)
            made["choices"][0]["token_ids"] = None
            return made

        end = self.chunk({"content": "", "reasoning": None}, "stop")
        end["choices"][0]["stop_reason"] = None
        return Answer(
            frames=[
                piece(role="assistant", content="", reasoning=None),
                piece(reasoning="The user greets."),
                piece(reasoning=" Greet back."),
                piece(content="Hello", reasoning=None),
                piece(content=" there.", reasoning=None),
                end,
                self.chunk(choices=[], usage=USAGE | {"prompt_tokens_details": None}),
                DONE,
            ],
            request=dict(STREAM),
        )

    def kimi_text(self) -> Answer:
        def c(delta: dict[str, Any], finish: str | None = None, **top: Any) -> dict[str, Any]:
            return self.chunk(delta, finish, kimi=True, **top)

        end = c({}, "stop")
        end["choices"][0]["usage"] = DETAILED
        return Answer(
            frames=[
                c({"role": "assistant", "content": ""}),
                c({"reasoning_content": "The user"}),
                c({"reasoning_content": " greets."}),
                c({"reasoning_content": ""}),
                c({"content": "Hello"}),
                c({"content": " there."}),
                end,
                c({}, choices=[], usage=DETAILED),
                DONE,
            ],
            request=dict(STREAM),
            profile=load_profile("kimi-k3"),
            headers=[("X-Msh-Usage-Prompt-Tokens", "11"), ("X-Msh-Usage-Cached-Tokens", "0")],
        )

    def kimi_tools(self) -> Answer:
        answer = self.kimi_text()
        c = lambda delta, finish=None: self.chunk(delta, finish, kimi=True)  # noqa: E731
        first = {
            "index": 0,
            "id": "get_weather_0",
            "type": "function",
            "function": {"name": "get_weather", "arguments": ""},
        }
        second = {
            "index": 1,
            "id": "get_weather_1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": ""},
        }
        end = c({}, "tool_calls")
        end["choices"][0]["usage"] = DETAILED
        answer.frames[3:7] = [
            c({"tool_calls": [first]}),
            c({"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]}),
            c({"tool_calls": [{"index": 0, "function": {"arguments": '"Paris"}'}}]}),
            c({"tool_calls": [second]}),
            c({"tool_calls": [{"index": 1, "function": {"arguments": '{"city":"Rome"}'}}]}),
            end,
        ]
        answer.request["tools"] = [WEATHER]
        return answer

    def kimi_body(self) -> Answer:
        message = {"role": "assistant", "content": "Hello!", "reasoning_content": "They greet."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = self.kimi_text()
        answer.frames, answer.request = [], {}
        answer.body = self.chunk(kimi=True, object="chat.completion", choices=[choice], usage=DETAILED)
        return answer

    def two_choices(self) -> Answer:
        """n = 2, interleaved, as OpenAI sends them."""
        c = self.chunk
        return Answer(
            frames=[
                c({"role": "assistant", "content": ""}, index=0),
                c({"content": "A"}, index=0),
                c({"role": "assistant", "content": ""}, index=1),
                c({"content": "B"}, index=1),
                c({"content": "a"}, index=0),
                c({}, "stop", index=1),
                c({}, "stop", index=0),
                c(choices=[], usage=USAGE),
                DONE,
            ],
            request=STREAM | {"n": 2},
        )

    def profile(self, name: str = "openai", surface: Surface = Surface.VENDOR, **update: Any) -> Profile:
        """A shipped profile with whole tables replaced field by field."""
        made = load_profile(name, surface)
        tables = {
            key: getattr(made, key).model_copy(update=value) if isinstance(value, dict) else value
            for key, value in update.items()
        }
        return made.model_copy(update=tables)

    def base(self, name: str) -> Answer:
        return deepcopy(self.bases[name]())


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of facts and real data, which lives beside the repository."""
    folder = Path(os.environ.get("KVV_SHARED") or Path(__file__).resolve().parents[3].parent / "shared")
    if not (folder / "faults.jsonl").is_file():
        pytest.skip(f"no shared data at {folder}: set KVV_SHARED")
    return folder


@pytest.fixture(scope="session")
def fault_ids(shared: Path) -> frozenset[str]:
    """Ids of the fault catalogue."""
    return frozenset(orjson.loads(line)["id"] for line in (shared / "faults.jsonl").read_bytes().splitlines())
