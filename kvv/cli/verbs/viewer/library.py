"""The runs under a folder, and what is known of each without reading the whole of it."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import orjson

from kvv.reporting import json as report_json
from kvv.storage.run_folder import STORE, runs_under
from kvv.storage.run_metadata import check_meta
from kvv.storage.run_summary import RunSummary
from kvv.storage.run_summary_reader import side_of
from kvv.storage.snapshot import build_view
from kvv.storage.store import Store, StoreError

REPORT = "report.json"
#: bytes of a report's head: what stands before its list of checks
HEAD_LIMIT = 8_000_000
TAIL_LIMIT = 2_000_000
#: entries of one list of a report
LISTED = 500
#: runs whose heads and summaries are kept in memory
KEPT = 400
SUMMARIES = 40
#: a store written this recently belongs to a run that goes on
ALIVE_S = 120.0
#: where the list of checks begins in a report
_CHECKS = b'\n "checks":'
#: what stands behind them, a line a field
_TRAFFIC = b'\n "traffic":'

#: what pages read of a report's lists, with what stands for what is missing or of another type
EXAMPLE = {"case": "", "exchange": "", "curl": ""}
FAULT = {"id": "", "where": "", "link": ""}
CAUSE: dict[str, Any] = {
    **dict.fromkeys(("id", "kind", "title", "detail"), ""),
    **{"counts": False, "cases": 0, "answers": 0},
    **{"rules": [""], "areas": [""], "modes": [""], "faults": [FAULT], "example": EXAMPLE},
}
REFERENCE = {"value": 0.0, "kind": ""}
ROW: dict[str, Any] = {
    **{"id": "", "metric": "", "primary": False, "value": 0.0, "ci95": [0.0]},
    **{"n_concluded": 0, "n_planned": 0, "reference": REFERENCE, "verdict": ""},
}
GATE: dict[str, Any] = {"id": "", "verdict": "", "reason": ""}

T = TypeVar("T")
#: a run's name, and when its file was written and how large it is
Key = tuple[str | int, ...]


class NoSuchRun(LookupError):
    """No run folder of this name."""


@dataclass(frozen=True, slots=True)
class RunCard:
    """A run in the list. ``head`` is its report without checks, empty for one that has not ended."""

    id: str
    folder: Path
    head: dict[str, Any] = field(repr=False)
    meta: dict[str, Any] = field(repr=False)
    problem: str = ""
    live: bool = False

    @property
    def vendor(self) -> str:
        return str(self._endpoint("vendor") or self.meta.get("vendor") or "")

    @property
    def model(self) -> str:
        return str(self._endpoint("model") or self.meta.get("model") or "")

    @property
    def address(self) -> str:
        return str(self._endpoint("base_url") or self.meta.get("base_url") or "")

    @property
    def started(self) -> str:
        return str(self.head.get("started") or self.meta.get("started") or "")

    @property
    def verdict(self) -> str:
        if self.live:
            return "running"
        return str(self.head.get("verdict") or ("unreadable" if self.problem else "unfinished"))

    @property
    def headline(self) -> str:
        return str(self.head.get("headline") or self.problem or "it has not ended")

    @property
    def causes(self) -> list[dict[str, Any]]:
        return [shaped(cause, CAUSE) for cause in _list(self.head.get("causes"))]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The report's rows of quality."""
        return [shaped(row, ROW) for row in _list(self.head.get("suites"))]

    @property
    def gates(self) -> list[dict[str, Any]]:
        return [shaped(gate, GATE) for gate in _list(self.head.get("gates"))]

    @property
    def explained(self) -> str:
        return str(self.head.get("explained") or "")

    @property
    def requests(self) -> int:
        traffic = self.head.get("traffic")
        found = traffic.get("requests") if isinstance(traffic, dict) else None
        return found if isinstance(found, int) else 0

    @property
    def first_cause(self) -> str:
        return next((str(cause.get("title", "")) for cause in self.causes if cause.get("counts")), "")

    @property
    def cost(self) -> float | None:
        traffic = self.head.get("traffic")
        cost = traffic.get("cost") if isinstance(traffic, dict) else None
        return float(cost) if isinstance(cost, int | float) else None

    def _endpoint(self, name: str) -> Any:
        endpoint = self.head.get("endpoint")
        return endpoint.get(name) if isinstance(endpoint, dict) else None


class Library:
    """Runs by their folder's name. Everything is read again when its file has changed, and nothing is written."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self.root = root
        self._clock = clock
        self._lock = Lock()
        self._cards: OrderedDict[Key, RunCard] = OrderedDict()
        self._sides: OrderedDict[Key, RunSummary] = OrderedDict()

    def folders(self) -> dict[str, Path]:
        """Of the folder itself where it is a run, else of those in it; the newest first."""
        if (self.root / STORE).is_file():
            return {self.root.resolve().name: self.root}
        return {folder.name: folder for folder in reversed(runs_under(self.root))}

    def folder(self, run: str) -> Path:
        """Raises NoSuchRun; only names that are listed are looked at, so that no address leads out of the folder."""
        try:
            return self.folders()[run]
        except KeyError:
            raise NoSuchRun(run) from None

    def cards(self) -> list[RunCard]:
        """Running ones on top, then the newest first."""
        every = [self._card(name, folder) for name, folder in self.folders().items()]
        return sorted(every, key=lambda card: not card.live)

    def card(self, run: str) -> RunCard:
        return self._card(run, self.folder(run))

    @contextmanager
    def store(self, run: str) -> Iterator[Store]:
        """Raises NoSuchRun and StoreError."""
        with Store.open(self.folder(run) / STORE, read_only=True) as store:
            check_meta(store)
            yield store

    def side(self, run: str) -> RunSummary:
        """What comparisons need of a run that has ended; read once, as it takes a second or two."""
        folder = self.folder(run)

        def read() -> RunSummary:
            with self.store(run) as store:
                return side_of(store)

        return self._kept(self._sides, (run, *_mark(folder / STORE)), read, SUMMARIES)

    def live(self, folder: Path) -> bool:
        try:
            put = max((folder / name).stat().st_mtime for name in (f"{STORE}-wal", STORE) if (folder / name).exists())
        except (OSError, ValueError):
            return False
        return self._clock() - put < ALIVE_S

    def _card(self, run: str, folder: Path) -> RunCard:
        report = _mark(folder / REPORT)
        if report:
            return self._kept(self._cards, (run, *report), lambda: self._finished(run, folder), KEPT)
        return self._unfinished(run, folder)

    def _finished(self, run: str, folder: Path) -> RunCard:
        try:
            head = read_head(folder / REPORT)
            if "causes" not in head:  # written by a version that did not group them
                with self.store(run) as store:
                    told = report_json.report(build_view(store))
                head = head | {name: told[name] for name in ("causes", "explained")}
        except (OSError, ValueError, StoreError) as error:
            return RunCard(run, folder, {}, {}, problem=f"its report cannot be read: {error}"[:300])
        return RunCard(run, folder, head, {})

    def _unfinished(self, run: str, folder: Path) -> RunCard:
        try:
            with self.store(run) as store:
                meta = store.meta()
        except StoreError as error:
            return RunCard(run, folder, {}, {}, problem=str(error)[:300])
        live = not meta.get("finished") and self.live(folder)
        return RunCard(run, folder, {}, meta, live=live)

    def _kept(self, cache: OrderedDict[Key, T], key: Key, read: Callable[[], T], size: int) -> T:
        with self._lock:
            if key in cache:
                cache.move_to_end(key)
                return cache[key]
        value = read()
        with self._lock:
            cache[key] = value
            while len(cache) > size:
                cache.popitem(last=False)
        return value


def read_head(path: Path) -> dict[str, Any]:
    """A report without its list of checks, which may be ten thousand lines, and of what stands behind the traffic
    alone. Raises OSError and ValueError.
    """
    with path.open("rb") as file:
        start = file.read(HEAD_LIMIT)
        at = start.find(_CHECKS)
        text = start[:at].rstrip().rstrip(b",") + b"}" if at > 0 else start
        size = file.seek(0, 2)
        file.seek(max(0, size - TAIL_LIMIT))
        end = file.read(TAIL_LIMIT)
    head = orjson.loads(text)
    if not isinstance(head, dict):
        raise ValueError("it is no JSON object")
    at = end.rfind(_TRAFFIC)
    if at >= 0 and "traffic" not in head:
        head["traffic"] = orjson.loads(end[at + len(_TRAFFIC) :].split(b"\n", 1)[0].rstrip().rstrip(b","))
    return head


def _mark(path: Path) -> tuple[int, int] | tuple[()]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size


def shaped(value: Any, pattern: Any) -> Any:
    """``value`` with the types of ``pattern``, which also says what each list holds: a report may be anybody's. A
    number or an object that is missing is None, anything else empty.
    """
    if isinstance(pattern, dict):
        if not isinstance(value, dict):
            return None if pattern in (REFERENCE,) else {name: shaped(None, part) for name, part in pattern.items()}
        return {name: shaped(value.get(name), part) for name, part in pattern.items()}
    if isinstance(pattern, list):
        return [shaped(item, pattern[0]) for item in _list(value)[:LISTED]]
    if isinstance(pattern, float):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if number else None
    return value if type(value) is type(pattern) else type(pattern)()


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
