"""Whether runs may be compared at all: same suites, data, cases, judge, agent, sampling, scorer and profile, or the
user said which may differ.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvv.cases.suite import SuiteKind
from kvv.storage.run_summary import RunSummary, SuiteResult

#: what `--allow-different` takes, beside `all`
KINDS = ("suites", "data", "cases", "sampling", "judge", "agent", "scorer", "profile")
#: facts of a suite that have to be equal
FACTS = ("data", "sampling", "judge", "agent", "scorer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlike:
    """``suite`` is "" for what concerns the whole run; ``text`` is one sentence."""

    kind: str
    suite: str
    text: str


def differences(sides: Sequence[RunSummary]) -> list[Unlike]:
    """Everything in which the runs differ from the first one, in a fixed order."""
    first = sides[0]
    found = []
    for other in sides[1:]:
        found += _whole(first, other)
        for suite in first.suites:
            if suite in other.suites:
                found += _suite(first, other, suite)
    return found


def find_refused(found: Sequence[Unlike], allowed: Collection[str]) -> list[Unlike]:
    """Those that keep a comparison from being made."""
    return [] if "all" in allowed else [unlike for unlike in found if unlike.kind not in allowed]


def _whole(first: RunSummary, other: RunSummary) -> list[Unlike]:
    found = []
    lacking = [name for name in first.suites if name not in other.suites]
    extra = [name for name in other.suites if name not in first.suites]
    if lacking or extra:
        parts = [
            f"{run} lacks {', '.join(names)}"
            for run, names in ((other.run_id, lacking), (first.run_id, extra))
            if names
        ]
        found.append(Unlike(kind="suites", suite="", text="; ".join(parts)))
    contract = any(suite.kind is not SuiteKind.BENCHMARK for suite in first.suites.values())
    if contract and (first.profile, first.surface) != (other.profile, other.surface):
        text = (
            f"{first.run_id} was judged as {first.profile} ({first.surface}), {other.run_id} as {other.profile}"
            f" ({other.surface})"
        )
        found.append(Unlike(kind="profile", suite="", text=text))
    return found


def _suite(first: RunSummary, other: RunSummary, suite: str) -> list[Unlike]:
    a, b = first.suites[suite], other.suites[suite]
    found = []
    for kind in FACTS:
        if a.facts.get(kind) != b.facts.get(kind):
            text = f"{suite}: {_what(kind, a.facts.get(kind), b.facts.get(kind))} ({first.run_id}, {other.run_id})"
            found.append(Unlike(kind=kind, suite=suite, text=text))
    # a contract suite grows with kvv's version; a benchmark that asked other questions is another benchmark
    if a.kind is SuiteKind.BENCHMARK and set(a.cases) != set(b.cases) and not (_first_part(a, b) or _first_part(b, a)):
        shared = len(set(a.cases) & set(b.cases))
        text = f"{suite}: {len(a.cases)} cases in {first.run_id}, {len(b.cases)} in {other.run_id}, {shared} in both"
        found.append(Unlike(kind="cases", suite=suite, text=text))
    return found


def _first_part(part: SuiteResult, whole: SuiteResult) -> bool:
    """A suite that a look ended asked the same questions as far as it came: no choice of anybody's, they were in random
    order.
    """
    return part.ended_early and set(part.cases) <= set(whole.cases)


def _what(kind: str, a: Any, b: Any) -> str:
    """Names the fields that differ where both sides are tables."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        names = [name for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name)]
        return f"{kind} differs: " + ", ".join(
            f"{name} {_short(a.get(name))} and {_short(b.get(name))}" for name in names[:4]
        )
    return f"{kind} differs: {_short(a)} and {_short(b)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, sort_keys=True)
    return text if len(text) <= 60 else f"{text[:57]}..."


def shared_suites(sides: Sequence[RunSummary]) -> list[SuiteResult]:
    """The first run's suites that all runs have, in report order."""
    return [suite for name, suite in sides[0].suites.items() if all(name in side.suites for side in sides)]
