"""Fixtures: the hostile server, and one way to send through a transport."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvv.core import Identity, Request, Role
from kvv.protocol.encode import encode
from kvv.protocol.reader import ReadLimits, Received
from kvv.protocol.redaction.redactor import Redactor
from kvv.transport import Transport
from kvv.transport.endpoint import Endpoint

KEY = "sk-canary-Zq81bYt0Wv55NcKe"
SMALL = ReadLimits(body_bytes=2**20, event_bytes=2**17)

Send = Callable[..., Awaitable[Received]]


def _load_hostile() -> ModuleType:
    """By path: under importlib mode a test folder's modules cannot import each other by name."""
    spec = importlib.util.spec_from_file_location("kvv_tests_hostile", Path(__file__).with_name("hostile.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def hostile() -> ModuleType:
    return sys.modules.get("kvv_tests_hostile") or _load_hostile()


@pytest.fixture
def serve(hostile: ModuleType) -> Iterator[Callable[[Any], Any]]:
    """``serve(behaviour or its name)`` starts a server that lives as long as the test."""
    with ExitStack() as stack:

        def start(behaviour: Any) -> Any:
            found = hostile.BEHAVIOURS[behaviour] if isinstance(behaviour, str) else behaviour
            return stack.enter_context(hostile.Hostile(found))

        yield start


@pytest.fixture(autouse=True)
def no_proxy_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def run() -> Callable[..., Any]:
    """``run(base_url, work, **options)``: the result of ``work(send)`` with a transport open; ``send(**fields of
    Request)``.
    """

    def go(base_url: str, work: Callable[[Send], Awaitable[Any]], *, key: str | None = KEY, **options: Any) -> Any:
        headers: Mapping[str, str] = options.pop("headers", {})
        options = {"limits": SMALL, "first_byte_timeout": 5.0, "idle_timeout": 5.0} | options

        async def main() -> Any:
            endpoints = {Role.TARGET: Endpoint(role=Role.TARGET, base_url=base_url, key=key, headers=headers)}
            async with Transport(endpoints, redactor=Redactor([key]), **options) as transport:

                async def send(*, deadline: float | None = None, keep_frames: bool = True, **fields: Any) -> Received:
                    request = Request(**({"body": {"model": "m", "messages": []}} | fields))
                    identity = Identity(case="c", sample=0, step=0, ask=0, purpose="probe")
                    return await transport.send(
                        request,
                        encode(request.body),
                        identity=identity,
                        attempt=1,
                        rules=None,
                        keep_frames=keep_frames,
                        deadline=deadline,
                    )

                return await work(send)

        return asyncio.run(main())

    return go


@pytest.fixture
def fetch(run: Callable[..., Any], serve: Callable[[Any], Any]) -> Callable[..., Received]:
    """``fetch(behaviour or its name or a URL, **options)``: what one request to such a server gives."""

    def go(target: Any, *, request: Mapping[str, Any] | None = None, **options: Any) -> Received:
        url = target if isinstance(target, str) and "://" in target else serve(target).base_url
        received: Received = run(url, lambda send: send(**(request or {})), **options)
        return received

    return go
