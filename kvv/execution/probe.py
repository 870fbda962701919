"""One look at an endpoint outside a run: does it answer, does it know the model and the key, and what would mend it
where not.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from kvv.core import Identity, Request, Role
from kvv.execution.executor import endpoints, redactor_for
from kvv.execution.preparation import control_request
from kvv.planning.config import NO_KEY, RunConfig
from kvv.planning.run_plan import RunPlan
from kvv.protocol.classify import Assessment, Classification, assess
from kvv.protocol.encode import encode
from kvv.protocol.reader import ReadLimits, Received
from kvv.protocol.redaction.redactor import redact_url
from kvv.transport import Transport

#: seconds that one question of this kind may take
PATIENCE_S = 60.0
#: model names that are read of a list, and that are shown
LISTED, SHOWN = 1_000, 8
#: reasons of the outcome table that a wrong address gives: no such route, or a page that is no completion
WRONG_ADDRESS = re.compile(r"route|(?:unreachable-)?200-.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """``models``: the names that the endpoint lists, None where it lists none. ``hint``: what to change, "" where
    nothing is known.
    """

    found: Assessment
    status: int | None
    total_ms: float
    models: tuple[str, ...] | None
    hint: str


def look(job: RunPlan, base_url: str) -> ProbeResult:
    """Asks the simplest request and for the list of models."""
    return asyncio.run(_look(job, base_url))


def advice(job: RunPlan, base_url: str, reason: str) -> str:
    """What to change about an endpoint that refused the first request of a run for this reason; "" where nothing is
    known.
    """

    async def ask() -> str:
        async with _transport(job, base_url) as transport:
            return await _hint(job, base_url, transport, reason, await _models(transport, "/models"))

    return asyncio.run(ask())


async def _look(job: RunPlan, base_url: str) -> ProbeResult:
    async with _transport(job, base_url) as transport:
        received = await _ask(transport, control_request(job))
        found = assess(received.exchange, received.observation)
        silent = found.standing is Classification.UNAVAILABLE and received.exchange.status is None
        models = None if silent else await _models(transport, "/models")
        hint = (
            ""
            if silent or found.standing is Classification.ANSWERED
            else await _hint(job, base_url, transport, found.reason, models)
        )
    return ProbeResult(
        found=found,
        status=received.exchange.status,
        total_ms=received.exchange.timing.total_ms,
        models=models,
        hint=hint,
    )


def _transport(job: RunPlan, base_url: str) -> Transport:
    config, target = job.config, endpoints(job, base_url)[Role.TARGET]
    return Transport(
        {Role.TARGET: target},
        redactor=redactor_for({Role.TARGET: target}),
        connect_timeout=config.connect_timeout,
        first_byte_timeout=config.first_byte_timeout,
        idle_timeout=config.idle_timeout,
        limits=ReadLimits(),
    )


async def _ask(transport: Transport, request: Request) -> Received:
    identity = Identity(case="kvv/reachability", sample=0, step=0, ask=0, purpose="doctor")
    return await transport.send(
        request, encode(request.body), identity=identity, attempt=1, rules=None, keep_frames=True, deadline=PATIENCE_S
    )


async def _models(transport: Transport, path: str) -> tuple[str, ...] | None:
    received = await _ask(transport, Request(body=b"", method="GET", path=path, purpose="doctor"))
    if received.exchange.status != 200 or not received.exchange.frames:
        return None
    try:
        listed = json.loads(received.exchange.frames[0].data)["data"][:LISTED]
        return tuple(str(entry["id"])[:200] for entry in listed)
    except (ValueError, KeyError, TypeError, RecursionError):  # some other page
        return None


async def _hint(job: RunPlan, base_url: str, transport: Transport, reason: str, models: tuple[str, ...] | None) -> str:
    if reason == "auth":
        return key_hint(job.config, has_key=bool(endpoints(job, base_url)[Role.TARGET].key))
    if WRONG_ADDRESS.fullmatch(reason) and (better := await _better_address(job, base_url, transport)):
        return f"did you mean --base-url {better} ?"
    return model_hint(job.model, models)


def key_hint(config: RunConfig, *, has_key: bool) -> str:
    name = config.api_key_env
    if name == NO_KEY:
        return "it wants a key, and no variable is named for it"
    return (
        f"look at the key in the environment variable {name}"
        if has_key
        else f"it wants a key, and the environment variable {name} is not set"
    )


def model_hint(model: str, models: tuple[str, ...] | None) -> str:
    """Where an endpoint lists its models, and not this one."""
    if not models or model in models:
        return ""
    more = f" and {len(models) - SHOWN} more" if len(models) > SHOWN else ""
    return f"it lists no model {model!r}, but {', '.join(models[:SHOWN])}{more}"


async def _better_address(job: RunPlan, base_url: str, transport: Transport) -> str | None:
    """The base URL that people most often mean, where the endpoint answers there as an API does."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/")
    if path.endswith("/chat/completions"):
        return redact_url(parts._replace(path=path.removesuffix("/chat/completions")).geturl())
    if re.search(r"/v[0-9]+$", path):
        return None
    received = await _ask(transport, replace(control_request(job), path="/v1/chat/completions"))
    found = assess(received.exchange, received.observation)
    lives = found.spoken or found.reason in ("auth", "no-credit")
    return redact_url(parts._replace(path=f"{path}/v1").geturl()) if lives else None
