"""Pages of judged samples, filtered: read from the store as far as one page needs, within a bound of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from kvv.core import Case, Outcome, Verdict
from kvv.storage.causes import symptom
from kvv.storage.run_summary_reader import answer_text
from kvv.storage.store import Store

#: samples of one page, and seconds that one page may search
PAGE = 50
SEARCH_S = 0.6
MODES = {"stream": "/stream", "whole": "/whole"}
NAMES = ("outcome", "suite", "level", "mode", "cause", "reason", "q", "new")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What a list is narrowed to; "" is everything. ``q`` is looked for in ids, reasons and, ``deep``, in answers.

    ``new`` names a run: samples that failed there too are left out.
    """

    outcome: str = ""
    suite: str = ""
    level: str = ""
    mode: str = ""
    cause: str = ""
    reason: str = ""
    q: str = ""
    new: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        """Of an address; what no filter knows is left out."""
        found = {name: query.get(name, "")[:300] for name in NAMES}
        found["outcome"] = found["outcome"] if found["outcome"] in {outcome.value for outcome in Outcome} else ""
        found["mode"] = found["mode"] if found["mode"] in MODES else ""
        return cls(**found)

    def query(self, **changed: str) -> str:
        """As the query of an address, with these changed."""
        values = {name: getattr(self, name) for name in NAMES} | changed
        return urlencode({name: value for name, value in values.items() if value})

    @property
    def narrowed(self) -> bool:
        return any(getattr(self, name) for name in NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """``place`` orders it in the plan: its case's number and its own."""

    place: tuple[int, int]
    case: Case
    verdict: Verdict

    @property
    def id(self) -> str:
        return self.case.id if self.verdict.sample == 0 else f"{self.case.id}#{self.verdict.sample}"

    @property
    def cause(self) -> str:
        """The id of the cause that a failed contract case belongs to."""
        verdict = self.verdict
        if verdict.outcome is not Outcome.FAIL:
            return ""
        return symptom(verdict.reason, verdict.detail, self.case.area, self.case.id).id


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePage:
    """``after`` goes on where this page ends, None at the end; ``searched``: the bound of time ended it."""

    rows: tuple[Sample, ...]
    after: tuple[int, int] | None
    searched: bool = False


def scan(
    store: Store,
    filters: Filters,
    *,
    place: tuple[int, int] | None = None,
    limit: int = PAGE,
    backwards: bool = False,
    failed_before: Collection[tuple[str, int]] = (),
    clock: Callable[[], float] = time.monotonic,
) -> SamplePage:
    """The next samples after (or before) a place that fit."""
    end = clock() + SEARCH_S
    rows: list[Sample] = []
    last = place
    for sample in _every(store, filters, place, backwards=backwards):
        if _fits(store, sample, filters, failed_before):
            if len(rows) == limit:
                return SamplePage(rows=tuple(rows), after=rows[-1].place)
            rows.append(sample)
        last = sample.place
        if clock() > end:
            return SamplePage(rows=tuple(rows), after=last, searched=True)
    return SamplePage(rows=tuple(rows), after=None)


def neighbours(
    store: Store, filters: Filters, place: tuple[int, int], failed_before: Collection[tuple[str, int]] = ()
) -> tuple[Sample | None, Sample | None]:
    """The samples before and after a place, within the same filters."""
    found = []
    for backwards in (True, False):
        page = scan(store, filters, place=place, limit=1, backwards=backwards, failed_before=failed_before)
        found.append(page.rows[0] if page.rows else None)
    return found[0], found[1]


def failed_samples(store: Store) -> frozenset[tuple[str, int]]:
    return frozenset(key for key, outcome in store.outcomes().items() if outcome is Outcome.FAIL)


def _every(store: Store, filters: Filters, place: tuple[int, int] | None, *, backwards: bool) -> Iterator[Sample]:
    found = store.judged(
        suite=filters.suite or None,
        outcome=Outcome(filters.outcome) if filters.outcome else None,
        ending=MODES.get(filters.mode, ""),
        place=place,
        backwards=backwards,
    )
    for number, case, verdict in found:
        yield Sample(place=(number, verdict.sample), case=case, verdict=verdict)


def _fits(store: Store, sample: Sample, filters: Filters, failed_before: Collection[tuple[str, int]]) -> bool:
    case, verdict = sample.case, sample.verdict
    if filters.level and case.level.value != filters.level:
        return False
    if filters.reason and verdict.reason != filters.reason:
        return False
    if filters.cause and sample.cause != filters.cause:
        return False
    if filters.new and (verdict.outcome is not Outcome.FAIL or (case.id, verdict.sample) in failed_before):
        return False
    if not filters.q:
        return True
    wanted = filters.q.casefold()
    if any(wanted in text.casefold() for text in (case.id, verdict.reason, verdict.detail)):
        return True
    return wanted in answer_text(store, case.id, verdict.sample).casefold()
