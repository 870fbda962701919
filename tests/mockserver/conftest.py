"""A client that trusts nothing: it keeps the raw answer and reads frames by the SSE rules it needs."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from kvv.mockserver import MockConfig, MockServer

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["c", "f"]}},
            "required": ["city"],
        },
    },
}
TIME: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]},
    },
}


@dataclass(slots=True, kw_only=True)
class Got:
    """What came back: status, headers, raw bytes, JSON body or frames; ``broken`` when the connection ended early;
    ``first_gap`` is the time between the first two pieces that arrived, in seconds."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""
    broken: bool = False
    first_gap: float = 0.0

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def data(self) -> list[str]:
        """The data of every event, in order."""
        text = self.raw.decode().replace("\r\n", "\n")
        events = [
            [line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
            for block in text.split("\n\n")
        ]
        return ["\n".join(lines) for lines in events if lines]

    @property
    def frames(self) -> list[Any]:
        return [json.loads(data) for data in self.data if data != "[DONE]"]

    @property
    def deltas(self) -> list[dict[str, Any]]:
        return [frame["choices"][0]["delta"] for frame in self.frames if frame.get("choices")]

    @property
    def message(self) -> dict[str, Any]:
        """The first choice, joined if it was streamed: content, reasoning, calls, finish."""
        if not self.headers["content-type"].startswith("text/event-stream"):
            choice = self.body["choices"][0]
            message = choice["message"]
            calls = [
                (call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in message.get("tool_calls", [])
            ]
            reasoning = message.get("reasoning_content", message.get("reasoning", ""))
            return {
                "content": message["content"] or "",
                "reasoning": reasoning,
                "calls": calls,
                "finish": choice["finish_reason"],
            }
        return self._joined()

    def _joined(self) -> dict[str, Any]:
        content = reasoning = ""
        calls: dict[int, list[str]] = {}
        finish = None
        for frame in self.frames:
            for choice in frame.get("choices", [])[:1]:
                delta = choice["delta"]
                content += delta.get("content") or ""
                reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
                for call in delta.get("tool_calls") or []:
                    entry = calls.setdefault(call["index"], ["", "", ""])
                    entry[0] += call.get("id", "")
                    entry[1] += call["function"].get("name", "")
                    entry[2] += call["function"].get("arguments", "")
                finish = choice.get("finish_reason") or finish
        return {
            "content": content,
            "reasoning": reasoning,
            "calls": [tuple(calls[at]) for at in sorted(calls)],
            "finish": finish,
        }

    @property
    def usage(self) -> dict[str, Any]:
        """The usage wherever it stands: in the body, in the tail frame or on the end frame's choice."""
        if not self.headers["content-type"].startswith("text/event-stream"):
            return dict(self.body["usage"])
        places = [frame["usage"] for frame in self.frames if frame.get("usage")]
        places += [choice["usage"] for frame in self.frames for choice in frame["choices"] if "usage" in choice]
        return dict(places[0])


class Client:
    """Posts bodies to one server; ``ask`` fills in the model and a user message from a plain string."""

    def __init__(self, server: MockServer) -> None:
        self.server = server
        self.http = httpx.Client(base_url=server.base_url, timeout=20, trust_env=False, verify=False)  # noqa: S501  plain http only; loading certificates is slow

    def ask(self, prompt: str | list[Any] | None = None, **fields: Any) -> Got:
        body: dict[str, Any] = {"model": self.server.config.model, **fields}
        if prompt is not None:
            body["messages"] = [{"role": "user", "content": prompt}]
        return self.post(body)

    def post(self, body: Any, **options: Any) -> Got:
        got = Got()
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        chunks: list[bytes] = []
        try:
            with self.http.stream("POST", "/chat/completions", content=content, **options) as response:
                got.status, got.headers = response.status_code, dict(response.headers)
                times = []
                for chunk in response.iter_bytes():
                    chunks.append(chunk)
                    times.append(time.monotonic())
                got.first_gap = times[1] - times[0] if len(times) > 1 else 0.0
        except httpx.TransportError:
            got.broken = True
        got.raw = b"".join(chunks)
        return got


Serve = Callable[..., Client]


def _start(config: MockConfig) -> Client:
    server = MockServer(config)
    server.__enter__()
    return Client(server)


def _stop(client: Client) -> None:
    client.http.close()
    client.server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def shared() -> Iterator[dict[MockConfig, Client]]:
    """Servers that several tests use, by configuration."""
    known: dict[MockConfig, Client] = {}
    yield known
    for client in known.values():
        _stop(client)


@pytest.fixture
def serve(shared: dict[MockConfig, Client]) -> Iterator[Serve]:
    """Starts servers on demand; equal configurations share one unless ``fresh`` is set, then it is the test's own."""
    own: list[Client] = []

    def start(*, fresh: bool = False, **fields: Any) -> Client:
        config = MockConfig(**fields)
        if fresh:
            own.append(_start(config))
            return own[-1]
        if config not in shared:
            shared[config] = _start(config)
        return shared[config]

    yield start
    for client in own:
        _stop(client)


@pytest.fixture(scope="session")
def kimi(shared: dict[MockConfig, Client]) -> Client:
    config = MockConfig()
    if config not in shared:
        shared[config] = _start(config)
    return shared[config]


@pytest.fixture(scope="session")
def weather() -> dict[str, Any]:
    return WEATHER


@pytest.fixture(scope="session")
def time_tool() -> dict[str, Any]:
    return TIME
