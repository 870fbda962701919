"""Addresses of pages: of the server, and of a static export."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from typing import Protocol
from urllib.parse import quote, urlencode


class Links(Protocol):
    """ "" where there is no such page."""

    static: bool

    def runs(self, query: str = "") -> str: ...
    def run(self, run: str, query: str = "", suite: str = "") -> str: ...
    def live(self, run: str) -> str: ...
    def case(self, run: str, case: str, sample: int = 0, query: str = "") -> str: ...
    def rule(self, run: str, rule: str) -> str: ...
    def endpoint(self, vendor: str, model: str) -> str: ...
    def compare(self, runs: Collection[str], query: str = "") -> str: ...
    def board(self, query: str = "") -> str: ...
    def picture(self, run: str, case: str, sample: int, name: str) -> str: ...
    def file(self, run: str, name: str) -> str: ...
    def asset(self, name: str) -> str: ...


def _path(*parts: str) -> str:
    return "/" + "/".join(quote(part, safe="" if at < len(parts) - 1 else "/") for at, part in enumerate(parts))


def _asked(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path


class ServerLinks:
    """As ``app.py`` routes them. A fragment is never sent to a server, so a sample's number is ``n``."""

    static = False

    def runs(self, query: str = "") -> str:
        return _asked("/", query)

    def run(self, run: str, query: str = "", suite: str = "") -> str:
        return _asked(_path("r", run, "s", suite) if suite else _path("r", run), query)

    def live(self, run: str) -> str:
        return _path("r", run) + "/live"

    def case(self, run: str, case: str, sample: int = 0, query: str = "") -> str:
        return _asked(_path("r", run, "c", case), "&".join(filter(None, (f"n={sample}" if sample else "", query))))

    def rule(self, run: str, rule: str) -> str:
        return _path("r", run, "rule", rule)

    def endpoint(self, vendor: str, model: str) -> str:
        return _path("e", vendor, model)

    def compare(self, runs: Collection[str], query: str = "") -> str:
        return _asked("/compare", "&".join(filter(None, (urlencode([("r", run) for run in runs]), query))))

    def board(self, query: str = "") -> str:
        return _asked("/board", query)

    def picture(self, run: str, case: str, sample: int, name: str) -> str:
        return _asked(_path("r", run, "picture", case), urlencode({"n": sample, "name": name}))

    def file(self, run: str, name: str) -> str:
        return _path("r", run, "file", name)

    def asset(self, name: str) -> str:
        return f"/static/{name}"


class StaticLinks:
    """File names beside each other. ``cases`` are the exported (run, case, sample), ``runs`` the exported runs."""

    static = True

    def __init__(
        self, runs: Collection[str], cases: Collection[tuple[str, str, int]], endpoints: Collection[tuple[str, str]]
    ) -> None:
        self._runs, self._cases, self._endpoints = set(runs), set(cases), set(endpoints)

    def runs(self, query: str = "") -> str:
        return "" if query else "runs.html"

    def run(self, run: str, query: str = "", suite: str = "") -> str:
        return f"run-{_slug(run)}.html" if run in self._runs and not query and not suite else ""

    def live(self, run: str) -> str:
        return ""

    def case(self, run: str, case: str, sample: int = 0, query: str = "") -> str:
        return f"case-{_slug(run, case, str(sample))}.html" if (run, case, sample) in self._cases else ""

    def rule(self, run: str, rule: str) -> str:
        return ""

    def endpoint(self, vendor: str, model: str) -> str:
        return f"endpoint-{_slug(vendor, model)}.html" if (vendor, model) in self._endpoints else ""

    def compare(self, runs: Collection[str], query: str = "") -> str:
        return ""

    def board(self, query: str = "") -> str:
        return "" if query else "index.html"

    def picture(self, run: str, case: str, sample: int, name: str) -> str:
        return ""

    def file(self, run: str, name: str) -> str:
        return ""

    def asset(self, name: str) -> str:
        return name


def _slug(*names: str) -> str:
    digest = hashlib.sha256("\0".join(names).encode("utf-8", "replace")).hexdigest()[:10]
    return f"{re.sub(r'[^a-z0-9]+', '-', names[-1 if len(names) == 1 else 1].lower())[:60].strip('-')}-{digest}"
