"""The pages of `kvv view` over HTTP: for this machine's user alone, reading only.

Who opens a page shows a token once, in the address that `kvv view` printed, and then a cookie. The Host header must
name this server, so that no other site's name leads here. Every text is escaped, and the policy allows no script but
our own file.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvv.cli.verbs.conversation import ENDINGS
from kvv.cli.verbs.viewer import pages
from kvv.cli.verbs.viewer.library import Library, NoSuchRun
from kvv.cli.verbs.viewer.links import Links, ServerLinks
from kvv.cli.verbs.viewer.pages import NoSuchPage, Page
from kvv.core.usage_error import ConfigError
from kvv.rendering.document import tone
from kvv.rendering.escape import block, percent, plain
from kvv.rendering.templates import environment, source
from kvv.storage.store import StoreError

HOME = "kvv.cli.verbs.viewer"
SINGLE = ("base", "problem", "runs", "run", "case", "rule", "live", "endpoint", "board")
SEVERAL = ("choose", "compare", "unlike", "answers")
#: files of a run that may be downloaded
FILES = ("report.html", "report.json", "report.md", "junit.xml")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: seconds between two looks at a store that is being written, and how many pages may look at once
LOOK_S = 1.0
WATCHERS = 24


@cache
def templates() -> Environment:
    sources = {name: source(f"{name}.html.j2", HOME) for name in (*SINGLE, *SEVERAL)} | {
        "macros.html.j2": source("macros.html.j2")
    }
    filters: dict[str, Callable[..., Any]] = {
        "plain": plain,
        "block": block,
        "percent": percent,
        "tone": tone,
        "ago": ago,
        "seconds": seconds,
    }
    return environment(sources, filters)


def render(page: Page, links: Links, *, public: bool = False) -> str:
    return (
        templates()
        .get_template(page.template)
        .render(page=page, links=links, public=public, now=time.time, **page.values)
    )


@cache
def style() -> str:
    return source("style.css.j2") + source("view.css.j2", HOME)


@cache
def script() -> str:
    return source("view.js.j2", HOME)


def ago(moment: str, now: Callable[[], float] = time.time) -> str:
    """``3 h ago``; the text itself where it is no time."""
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    passed = now() - (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if passed >= size:
            return f"{int(passed // size)} {unit} ago"
    return "just now"


def seconds(value: float) -> str:
    """``1 h 20 min``."""
    whole = round(value)
    if whole >= 3_600:
        return f"{whole // 3_600} h {whole % 3_600 // 60} min"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


class Guard:
    """Lets in GET requests to our own name with the token's cookie; the token itself becomes the cookie."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._cookie = f"kvv-view-{port}"  # a browser sends a cookie to every port of a host
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing but the server's own start and stop
            await self._app(scope, receive, send)
            return
        answer = self._refusal(scope)
        if answer is not None:
            await answer(scope, receive, _with_headers(send))
            return
        await self._app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self._hosts:
            return PlainTextResponse("kvv view answers to 127.0.0.1 only", 421)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("kvv view only shows: GET", 405, {"Allow": "GET, HEAD"})
        query = QueryParams(scope["query_string"])
        given = query.get("token")
        if given is not None:
            if not self._right(given):
                return PlainTextResponse("wrong token: open the address that kvv view printed", 403)
            rest = urlencode([(name, value) for name, value in query.multi_items() if name != "token"])
            target = "/" + scope["path"].lstrip("/\\") + (f"?{rest}" if rest else "")
            found = RedirectResponse(target, 303)
            found.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
            return found
        if not self._right(Request(scope).cookies.get(self._cookie, "")):
            return PlainTextResponse("open the address that kvv view printed: it holds a token", 403)
        return None

    def _right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


class Viewer:
    def __init__(self, library: Library) -> None:
        self.library = library
        self.links = ServerLinks()
        self._watchers = 0

    def routes(self) -> list[Route]:
        shown: dict[str, Callable[[Request], Page]] = {
            "/": lambda r: pages.runs_page(self.library, r.query_params),
            "/compare": lambda r: pages.compare_page(self.library, r.query_params.getlist("r"), r.query_params),
            "/board": lambda r: pages.board_page(self.library, r.query_params),
            "/e/{vendor}/{model:path}": lambda r: pages.endpoint_page(
                self.library, r.path_params["vendor"], r.path_params["model"]
            ),
            "/r/{run}": lambda r: pages.run_page(self.library, r.path_params["run"], r.query_params),
            "/r/{run}/live": lambda r: pages.live_page(self.library, r.path_params["run"], time.time),
            "/r/{run}/s/{suite}": lambda r: pages.run_page(
                self.library, r.path_params["run"], r.query_params, suite=r.path_params["suite"]
            ),
            "/r/{run}/rule/{rule:path}": lambda r: pages.rule_page(
                self.library, r.path_params["run"], r.path_params["rule"]
            ),
            "/r/{run}/t/{case:path}": self._case,
            "/r/{run}/c/{case:path}": self._case,
        }
        found = [Route(path, self._shown(make)) for path, make in shown.items()]
        found += [
            Route("/r/{run}/events", self._events),
            Route("/r/{run}/file/{name}", self._file),
            Route("/r/{run}/picture/{case:path}", self._picture),
            Route("/board.csv", self._board_csv),
            Route("/favicon.ico", lambda r: Response(status_code=204)),
            Route("/static/view.css", lambda r: Response(style(), media_type="text/css")),
            Route("/static/view.js", lambda r: Response(script(), media_type="text/javascript")),
        ]
        return found

    def _case(self, request: Request) -> Page:
        return pages.case_page(
            self.library, request.path_params["run"], request.path_params["case"], request.query_params
        )

    def _shown(self, make: Callable[[Request], Page]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                page, status = make(request), 200
            except NoSuchRun as error:
                page, status = _problem(f"no run {error} here"), 404
            except NoSuchPage as error:
                page, status = _problem(str(error)), 404
            except (StoreError, ConfigError, OSError) as error:
                page, status = _problem(f"this cannot be read: {error}"), 422
            return HTMLResponse(render(page, self.links), status)

        return answer

    def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            folder = self.library.folder(request.path_params["run"])
            path = folder / name
            if name not in FILES or path.is_symlink() or not path.is_file():
                raise NoSuchPage(name)
            content = path.read_bytes()
        except (NoSuchRun, NoSuchPage, OSError):
            return HTMLResponse(render(_problem("no such file"), self.links), 404)
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Security-Policy": "sandbox"}
        return Response(content, media_type="application/octet-stream", headers=headers)

    def _picture(self, request: Request) -> Response:
        name, number = request.query_params.get("name", ""), request.query_params.get("n", "0")
        kinds = {f".{ending}": kind for kind, ending in ENDINGS.items()}
        kind = next((kind for ending, kind in kinds.items() if name.endswith(ending)), "")
        try:
            if not kind or not number.isdecimal():
                raise NoSuchPage(name)
            place = request.path_params["run"], request.path_params["case"], int(number[:9])
            data = pages.picture(self.library, *place, name)
        except (NoSuchRun, NoSuchPage, StoreError):
            return PlainTextResponse("no such picture", 404)
        return Response(data, media_type=kind, headers={"Content-Security-Policy": "sandbox"})

    def _board_csv(self, request: Request) -> Response:
        return Response(
            pages.board_csv(self.library, request.query_params),
            media_type="text/csv",
            headers={"Content-Disposition": 'attachment; filename="board.csv"'},
        )

    async def _events(self, request: Request) -> Response:
        """The number of the newest verdict, whenever it has grown."""
        run = request.path_params["run"]
        try:
            last = await run_in_threadpool(self._last, run)
        except (NoSuchRun, StoreError):
            return PlainTextResponse("no such run", 404)
        if self._watchers >= WATCHERS:
            return PlainTextResponse("too many pages are watching", 429)
        known = request.headers.get("last-event-id") or request.query_params.get("after", "")
        return StreamingResponse(self._stream(request, run, known, last), media_type="text/event-stream")

    async def _stream(self, request: Request, run: str, known: str, last: str) -> AsyncIterator[str]:
        self._watchers += 1
        try:
            while not await request.is_disconnected():
                if last != known:
                    known = last
                    yield f"id: {last}\ndata: {last}\n\n"
                    if last.endswith("ended"):
                        return
                else:
                    yield ": still here\n\n"
                await asyncio.sleep(LOOK_S)
                last = await run_in_threadpool(self._last, run)
        except (NoSuchRun, StoreError):
            return
        finally:
            self._watchers -= 1

    def _last(self, run: str) -> str:
        with self.library.store(run) as store:
            return f"{store.last_verdict()}{'-ended' if store.meta().get('finished') else ''}"


def _problem(text: str) -> Page:
    return Page(template="problem", title="Not here", values={"text": text})


def make_app(library: Library, token: str, port: int) -> ASGIApp:
    missing: dict[Any, Any] = {
        404: lambda request, error: HTMLResponse(render(_problem("no such page"), ServerLinks()), 404)
    }
    return Guard(Starlette(routes=Viewer(library).routes(), exception_handlers=missing), token, port)
