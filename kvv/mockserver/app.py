"""The HTTP surface: POST /v1/chat/completions, GET /v1/models, GET /kvv/stats, GET /kvv/times."""

import asyncio
import hmac
import time
import traceback
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kvv.mockserver.engine import MockEngine, MockOutcome
from kvv.mockserver.errors import ApiError, error_body
from kvv.mockserver.sending import Sending, Transports
from kvv.mockserver.wire import JSON, json_reply

CHAT_PATH = "/v1/chat/completions"
MAX_BODY = 100_000_000
# Larger bodies are parsed and answered in a thread, so that other streams go on meanwhile.
_THREAD_FROM = 1_000_000


def make_app(engine: MockEngine, transports: Transports) -> ASGIApp:
    """The ASGI application around one engine. Completions take a short way past Starlette's router and middleware."""
    chat = Chat(engine, transports)
    other = _other_routes(engine)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (chat if scope.get("path") == CHAT_PATH else other)(scope, receive, send)

    return app


def _other_routes(engine: MockEngine) -> Starlette:

    async def models(request: Request) -> Response:
        if (refused := _key_error(engine, dict(request.scope["headers"]))) is not None:
            return _error(engine, refused)
        return _json({"object": "list", "data": [_model(engine)]})

    async def model(request: Request) -> Response:
        if (refused := _key_error(engine, dict(request.scope["headers"]))) is not None:
            return _error(engine, refused)
        if request.path_params["name"] != engine.config.model:
            missing = f"the model {request.path_params['name'][:200]!r} does not exist"
            return _error(engine, ApiError(missing, status=404, kind="resource_not_found_error", reason="model"))
        return _json(_model(engine))

    async def stats(_request: Request) -> Response:
        return _json(engine.stats.snapshot())

    async def times(_request: Request) -> Response:
        return _json(engine.stamps)

    async def not_found(request: Request, _error_: Exception) -> Response:
        return _error(
            engine,
            ApiError(f"no such path: {request.url.path}", status=404, kind="resource_not_found_error", reason="route"),
        )

    async def wrong_method(_request: Request, error: Exception) -> Response:
        headers = getattr(error, "headers", None)
        return _error(engine, ApiError("method not allowed", status=405, reason="route"), headers)

    return Starlette(
        routes=[
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/models/{name:path}", model, methods=["GET"]),
            Route("/kvv/stats", stats, methods=["GET"]),
            Route("/kvv/times", times, methods=["GET"]),
        ],
        exception_handlers={404: not_found, 405: wrong_method},
    )


def _model(engine: MockEngine) -> dict[str, Any]:
    return {
        "id": engine.config.model,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "kvv",
        "context_length": engine.config.context_window,
    }


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), media_type=JSON)


def _error(engine: MockEngine, error: ApiError, headers: dict[str, str] | None = None) -> Response:
    engine.stats.status(error.status)
    return Response(
        orjson.dumps(error_body(error, engine.variant.name)), status_code=error.status, media_type=JSON, headers=headers
    )


def _key_error(engine: MockEngine, headers: dict[bytes, bytes]) -> ApiError | None:
    expected = engine.config.api_key
    if expected is None:
        return None
    given = headers.get(b"authorization", b"")
    if not given.lower().startswith(b"bearer "):
        return ApiError("an API key is required", status=401, kind="invalid_authentication_error", reason="auth")
    if hmac.compare_digest(given[7:].strip(), expected.encode()):
        return None
    return ApiError("the API key is not valid", status=401, kind="incorrect_api_key_error", reason="auth")


class Chat:
    """The chat completions endpoint, as a bare ASGI application to keep the path short."""

    def __init__(self, engine: MockEngine, transports: Transports) -> None:
        self._engine = engine
        self._transports = transports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = Sending(scope, receive, send, self._transports)
        if scope["method"] != "POST":
            error = ApiError("method not allowed", status=405, reason="route")
            reply = json_reply(error_body(error, self._engine.variant.name), status=405, headers=(("allow", "POST"),))
            await sending.run(reply, lambda: self._engine.stats.status(405))
            return
        self._engine.stats.request()
        self._engine.active += 1
        try:
            outcome = await self._outcome(scope, receive)
            delivered = False
            try:
                delivered = await sending.run(outcome.reply, lambda: self._engine.settle(outcome))
            finally:
                if not delivered:
                    self._engine.undelivered(outcome)
                elif self._engine.config.stamp:
                    self._engine.stamps[dict(outcome.reply.headers).get("x-request-id", "")] = sending.handed
        finally:
            self._engine.active -= 1

    async def _outcome(self, scope: Scope, receive: Receive) -> MockOutcome:
        headers = dict(scope["headers"])
        client = str(scope["client"])
        body = await _read_body(headers, receive)
        if self._engine.dwell_s:
            await asyncio.sleep(self._engine.dwell_s)
        if body is None:
            error = ApiError(f"the body is larger than {MAX_BODY} bytes", status=413, reason="size")
            outcome = self._engine.answer(None, error, client=client)
            # What the client still sends is not read; the connection cannot be used again.
            outcome.reply = json_reply(
                error_body(error, self._engine.variant.name), status=413, headers=(("connection", "close"),)
            )
            return outcome
        if len(body) > _THREAD_FROM:
            return await asyncio.to_thread(self._answer, headers, body, client)
        return self._answer(headers, body, client)

    def _answer(self, headers: dict[bytes, bytes], body: bytes, client: str) -> MockOutcome:
        try:
            return self._answer_to(headers, body, client)
        except Exception as error:  # noqa: BLE001  whatever it is, it is ours: said aloud, and answered as what it is
            traceback.print_exc()
            own = ApiError(
                f"the reference endpoint failed: {type(error).__name__}",
                status=500,
                kind="server_error",
                reason="fault",
            )
            return MockOutcome(reply=json_reply(error_body(own, self._engine.variant.name), status=500))

    def _answer_to(self, headers: dict[bytes, bytes], body: bytes, client: str) -> MockOutcome:
        refused = _key_error(self._engine, headers)
        parsed: Any = None
        if refused is None:
            try:
                parsed = orjson.loads(body)
            except orjson.JSONDecodeError as error:
                refused = ApiError(f"the body is not JSON: {error}", reason="json")
        return self._engine.answer(parsed, refused, client=client)


async def _read_body(headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
    """The whole body, or None as soon as it is known to be too large."""
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > MAX_BODY:
        return None
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BODY:
            return None
        chunks.append(chunk)
        more = message["type"] == "http.request" and message.get("more_body", False)
    return b"".join(chunks)
