"""What each page of `kvv view` shows, as values for its template. A page reads what it needs and nothing else."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from markupsafe import Markup

from kvv.analysis import UnlikeRuns
from kvv.analysis import compare as compare_sides
from kvv.analysis.history import document as history_document
from kvv.analysis.history import history as make_history
from kvv.analysis.leaderboard import Leaderboard
from kvv.analysis.leaderboard import leaderboard as make_leaderboard
from kvv.analysis.report import document as compare_document
from kvv.cases.contract.crashes import REPRODUCIBLE
from kvv.cases.suite import Column, SuiteKind
from kvv.cli.verbs.conversation import conversation, pictures
from kvv.cli.verbs.history import collect
from kvv.cli.verbs.leaderboard import published_rows
from kvv.cli.verbs.viewer.library import Library, NoSuchRun, RunCard
from kvv.cli.verbs.viewer.samples import Filters, Sample, SamplePage, failed_samples, neighbours, scan
from kvv.core import Area, Outcome, Verdict
from kvv.core.usage_error import ConfigError
from kvv.protocol.rules import RULES
from kvv.rendering.document import Document, DocumentTable, Section, csv_text, html_sections
from kvv.rendering.escape import block, plain
from kvv.storage.curl import curl_line
from kvv.storage.run_summary import RunSummary, SummaryRow
from kvv.storage.run_summary_reader import answer_text
from kvv.storage.snapshot import crash_rate, expected_text, raw_answer, telling_exchange
from kvv.storage.store import Store, StoredExchange, StoreError, UnknownCaseError

#: runs beside which a case is shown, and those of one list or board
BESIDE = 12
RUNS = 200
BOARD = 40
#: causes and findings of one page; characters of one text
CAUSES = 60
FOUND = 30
TEXT = 40_000
#: words of two answers that are set against each other
WORDS = 6_000
SORTS = ("quality", "price", "ttft", "speed")

Query = Mapping[str, str]


class NoSuchPage(LookupError):
    """What the address names is not there; the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A template's name and its values."""

    template: str
    title: str
    values: dict[str, Any] = field(default_factory=dict)


def runs_page(library: Library, query: Query) -> Page:
    """Every run, narrowed to a vendor, model, verdict or word."""
    wanted = {name: query.get(name, "")[:200] for name in ("vendor", "model", "verdict", "q")}
    every = library.cards()
    shown = [card for card in every if _wanted(card, wanted)]
    choices = {
        name: sorted({str(getattr(card, name)) for card in every if getattr(card, name)})
        for name in ("vendor", "model", "verdict")
    }
    values = {"cards": shown[:RUNS], "left_out": max(0, len(shown) - RUNS), "wanted": wanted, "choices": choices}
    return Page(template="runs", title="Runs", values={**values, "total": len(every)})


def _wanted(card: RunCard, wanted: Mapping[str, str]) -> bool:
    if any(wanted[name] and getattr(card, name) != wanted[name] for name in ("vendor", "model", "verdict")):
        return False
    text = f"{card.id} {card.headline} {card.first_cause}".casefold()
    return all(word in text for word in wanted["q"].casefold().split())


def run_page(library: Library, run: str, query: Query, *, suite: str = "") -> Page:
    """Verdict, causes, suites, and a page of samples."""
    card = library.card(run)
    filters = Filters.of({**query, **({"suite": suite} if suite else {})})
    if not filters.narrowed and not suite:
        filters = Filters(outcome=Outcome.FAIL.value)
    previous = _previous(library, card)
    try:
        with library.store(run) as store:
            meta = store.meta()
            suites = _suites(store, meta)
            before = _failed_in(library, filters.new)
            page = scan(store, filters, place=_place(query.get("after", "")), failed_before=before)
    except StoreError as error:
        meta, suites, page = {}, [], SamplePage(rows=(), after=None)
        card = RunCard(card.id, card.folder, card.head, card.meta, problem=str(error))
    titles = {entry["id"]: entry["title"] for entry in suites}
    if suite and suite not in titles:
        raise NoSuchPage(f"the run has no suite {suite}")
    return Page(
        template="run",
        title=f"{titles.get(suite, '') or card.verdict.upper()} · {card.vendor}",
        values={
            "card": card,
            "causes": card.causes[:CAUSES],
            "suites": suites,
            "suite": suite,
            "filters": filters,
            "samples": page,
            "after": "" if page.after is None else f"{page.after[0]}.{page.after[1]}",
            "previous": previous,
            "outcomes": _sums(suites, suite),
            "gates": _gates(card, suite),
            "rows": [row for row in card.rows if suite in ("", row["id"])],
        },
    )


def _gates(card: RunCard, suite: str) -> list[dict[str, Any]]:
    order = ["fail", "error", "inconclusive", "pass", "skip"]
    gates = [gate for gate in card.gates if not suite or gate["id"].startswith(f"{suite}/")]
    return sorted(gates, key=lambda gate: order.index(gate["verdict"]) if gate["verdict"] in order else len(order))


def _previous(library: Library, card: RunCard) -> str:
    """The last run before this one of the same vendor and model."""
    older = [
        other
        for other in library.cards()
        if (other.vendor, other.model) == (card.vendor, card.model) and other.started < card.started and other.head
    ]
    return max(older, key=lambda other: other.started).id if older else ""


def _failed_in(library: Library, run: str) -> Collection[tuple[str, int]]:
    if not run:
        return ()
    with library.store(run) as store:
        return failed_samples(store)


def _suites(store: Store, meta: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each planned suite with its counts; what was skipped as a whole comes last."""
    planned = store.planned_samples()
    counts: dict[str, dict[str, int]] = {}
    for suite, outcome, n in store.outcome_counts():
        counts.setdefault(suite, {})[outcome.value] = n
    found = []
    for entry in meta.get("suites") or ():
        one = counts.get(entry["id"], {})
        found.append(
            {
                "id": entry["id"],
                "title": entry.get("title") or entry["id"],
                "kind": str(entry.get("kind")),
                "planned": planned.get(entry["id"], 0),
                "done": sum(one.values()),
                "counts": {outcome.value: one.get(outcome.value, 0) for outcome in Outcome},
                "skipped": "",
            }
        )
    for entry in meta.get("skipped") or ():
        found.append(
            {
                "id": entry["id"],
                "title": entry.get("title") or entry["id"],
                "kind": str(entry.get("kind")),
                "planned": 0,
                "done": 0,
                "counts": {outcome.value: 0 for outcome in Outcome},
                "skipped": entry.get("skipped") or "skipped",
            }
        )
    return found


def _sums(suites: Sequence[Mapping[str, Any]], suite: str) -> dict[str, int]:
    return {
        outcome.value: sum(one["counts"][outcome.value] for one in suites if suite in ("", one["id"]))
        for outcome in Outcome
    }


def _place(text: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d{1,12})\.(\d{1,9})", text)
    return (int(found[1]), int(found[2])) if found else None


# --- one sample ----------------------------------------------------------------------------------


def case_page(library: Library, run: str, case_id: str, query: Query) -> Page:
    """What was expected and what came, how to repeat it, the answer, the same case elsewhere."""
    card = library.card(run)
    number = query.get("n", "0")
    sample = int(number) if number.isdecimal() and len(number) < 10 else 0
    filters = Filters.of(query)
    view = query.get("as", "read") if query.get("as") in ("frames", "json") else "read"
    with library.store(run) as store:
        meta = store.meta()
        try:
            case = store.case(case_id)
        except UnknownCaseError:
            raise NoSuchPage(f"the run has no case {case_id}") from None
        stored_verdict = store.verdict(case_id, sample)
        if stored_verdict is None:
            raise NoSuchPage(f"{case_id}#{sample} was not concluded")
        verdict = stored_verdict
        if verdict.reason.startswith(REPRODUCIBLE):  # what a crash counts for depends on all the others
            verdict = crash_rate(store, meta).weighed(verdict)
        place = (store.case_number(case_id) or 0, sample)
        before, after = neighbours(store, filters, place, _failed_in(library, filters.new))
        stored = telling_exchange(store, verdict)
        told = list(conversation(store, case_id, sample))
        shown = None if stored is None else _exchange(stored, meta, view)
        images = [name for name, _ in pictures(stored)] if stored is not None else []
    one = Sample(place=place, case=case, verdict=verdict)
    cause = next((c for c in card.causes if c.get("id") == one.cause), None)
    return Page(
        template="case",
        title=f"{verdict.outcome.value} · {one.id}",
        values={
            "card": card,
            "one": one,
            "filters": filters,
            "before": before,
            "after": after,
            "as": view,
            "told": told,
            "stored": shown,
            "images": images,
            "expected": expected_text(case) or case.requirement,
            "cause": cause,
            "facts": _facts(verdict),
            "benchmark": case.area is Area.ACCURACY,
            "elsewhere": list(_elsewhere(library, run, case_id, sample)),
        },
    )


def _facts(verdict: Verdict) -> list[tuple[str, str]]:
    values = [(name, f"{value:.6g}") for name, value in verdict.values.items()]
    facts = [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
        for name, value in verdict.facts.items()
    ]
    return [(plain(name, 60), block(value, 2_000)) for name, value in [*values, *facts]][:40]


def _exchange(stored: StoredExchange, meta: Mapping[str, Any], view: str) -> dict[str, Any]:
    exchange, said = stored.exchange, stored.observation
    body = stored.body[:TEXT].decode("utf-8", "replace")
    frames = [
        (f"{frame.number}", f"{frame.offset_ms:.0f}", frame.data[:4_000].decode("utf-8", "replace"))
        for frame in exchange.frames[:400]
    ]
    return {
        "status": f"HTTP {exchange.status}" if exchange.status is not None else "no answer",
        "fault": f"{exchange.fault.kind}: {exchange.fault.detail}" if exchange.fault else "",
        "started": exchange.started,
        "ms": exchange.timing.total_ms,
        "ttft": exchange.timing.first_token_ms,
        "tokens": (said.tokens("prompt_tokens"), said.tokens("completion_tokens")),
        "finish": said.finish_reason,
        "reasoning": said.reasoning,
        "answer": said.answer,
        "calls": [(call.name or "", call.arguments) for call in said.tool_calls],
        "error": said.error.message if said.error else "",
        "curl": curl_line(meta, stored),
        "body": _pretty(body) if view == "json" else body,
        "raw": raw_answer(stored)[:TEXT] if view == "json" else "",
        "frames": frames if view == "frames" else [],
        "kept": exchange.frames_kept,
        "findings": list({f.rule: f for f in reversed(stored.findings)}.values()),
        "objected": {str(f.frame) for f in stored.findings},
    }


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=1)
    except (ValueError, RecursionError):
        return text


def _elsewhere(library: Library, run: str, case: str, sample: int) -> Iterator[tuple[RunCard, str]]:
    """The same sample in the newest other runs."""
    found = 0
    for card in library.cards():
        if card.id == run or card.problem or found >= BESIDE:
            continue
        try:
            with library.store(card.id) as store:
                verdict = store.verdict(case, sample)
        except (StoreError, NoSuchRun):
            continue
        if verdict is not None:
            found += 1
            yield card, verdict.outcome.value


def picture(library: Library, run: str, case: str, sample: int, name: str) -> bytes:
    """A picture that a request carried. Raises NoSuchPage."""
    with library.store(run) as store:
        verdict = store.verdict(case, sample)
        stored = telling_exchange(store, verdict) if verdict else None
        for found, data in pictures(stored) if stored else ():
            if found == name:
                return data
    raise NoSuchPage("no such picture")


# --- causes and rules ----------------------------------------------------------------------------


def rule_page(library: Library, run: str, rule: str) -> Page:
    """What a rule wants, and the answers that it objected to."""
    card = library.card(run)
    info = RULES.get(rule)
    found: list[dict[str, Any]] = []
    with library.store(run) as store:
        meta = store.meta()
        group = next((group for group in store.finding_groups() if group.rule == rule), None)
        if group is None:
            raise NoSuchPage(f"the run has no finding of {rule}")
        known = {case for case in (example.exchange.rpartition("#")[0] for example in group.examples) if case}
        for stored in store.exchanges(rule=_literal(rule)):
            if len(found) >= FOUND:
                break
            frames = {frame.number: frame for frame in stored.exchange.frames}
            for finding in stored.findings:
                if finding.rule == rule:
                    frame = frames.get(finding.frame) if finding.frame is not None else None
                    found.append(
                        {
                            "case": stored.exchange.identity.case,
                            "sample": stored.exchange.identity.sample,
                            "message": finding.message,
                            "frame": finding.frame,
                            "data": finding.excerpt
                            if frame is None
                            else frame.data[:2_000].decode("utf-8", "backslashreplace"),
                            "curl": curl_line(meta, stored) if not found else "",
                        }
                    )
                    break
        planned = {entry["case"]: store.case_number(entry["case"]) is not None for entry in found}
    values = {"card": card, "rule": rule, "info": info, "group": group, "found": found, "known": known}
    return Page(template="rule", title=rule, values={**values, "planned": planned})


def _literal(rule: str) -> str:
    """As a pattern that fits nothing but itself."""
    return re.sub(r"([\[*?])", r"[\1]", rule)


# --- a run that goes on --------------------------------------------------------------------------


def live_page(library: Library, run: str, now: Callable[[], float]) -> Page:
    """How far it is, what fails, what it has cost."""
    card = library.card(run)
    with library.store(run) as store:
        meta = store.meta()
        suites = _suites(store, meta)
        newest = store.newest_verdicts(Outcome.FAIL, 12)
        traffic = store.traffic()
        last = store.last_verdict()
        events = [event for event in store.events() if event.kind != "resumed"][-6:]
    planned = sum(entry["planned"] for entry in suites)
    done = sum(entry["done"] for entry in suites)
    passed = (
        max(0.0, now() - datetime.fromisoformat(str(meta["started"])).timestamp()) if not meta.get("finished") else 0.0
    )
    blocked = bool(meta.get("blocked"))
    failing = sum(entry["counts"]["fail"] for entry in suites if entry["kind"] == SuiteKind.PRE_CHECK)
    return Page(
        template="live",
        title=f"{done} of {planned} · {card.vendor}",
        values={
            "card": card,
            "suites": suites,
            "planned": planned,
            "done": done,
            "left_s": passed / done * (planned - done) if done and passed > 0 and planned > done else None,
            "traffic": traffic,
            "newest": newest,
            "last": last,
            "events": [(event.at, event.kind, json.dumps(event.data, ensure_ascii=False)) for event in events],
            "gate": "failed: benchmarks are not asked" if blocked else "failing" if failing else "",
            "ended": bool(meta.get("finished")),
        },
    )


# --- several runs --------------------------------------------------------------------------------


def compare_page(library: Library, runs: Sequence[str], query: Query) -> Page:
    """Two or more runs; with ``case``, both answers to it."""
    names = list(dict.fromkeys(runs))[:6]
    cards = [library.card(run) for run in names]
    if query.get("case"):
        return _two_answers(library, cards, query)
    if len(names) < 2:
        values = {"cards": cards, "choices": [card for card in library.cards() if card.head][:RUNS]}
        return Page(template="choose", title="Compare", values=values)
    allowed = ["all"] if query.get("all") else []
    try:
        found = compare_sides(_sides(library, names), np.random.default_rng(0), allowed=allowed)
    except UnlikeRuns as error:
        unlike: dict[str, Any] = {"cards": cards, "names": names, "why": str(error)}
        return Page(template="unlike", title="Not comparable", values=unlike)
    document = compare_document(found)
    return Page(
        template="compare",
        title="Compare",
        values={
            "cards": cards,
            "names": names,
            "heading": document.title,
            "outcome": document.outcome,
            "lead": document.lead,
            "different": [(row, names[row.first], names[row.second]) for row in found.discordant[:RUNS]],
            "sections": html_sections(document),
        },
    )


def _sides(library: Library, names: Sequence[str]) -> list[RunSummary]:
    return [library.side(name) for name in names]


def _two_answers(library: Library, cards: Sequence[RunCard], query: Query) -> Page:
    case, number = query["case"], query.get("n", "0")
    sample = int(number) if number.isdecimal() and len(number) < 10 else 0
    told: list[dict[str, Any]] = []
    for card in cards[:2]:
        with library.store(card.id) as store:
            verdict = store.verdict(case, sample)
            told.append({"card": card, "verdict": verdict, "answer": block(answer_text(store, case, sample), TEXT)})
    if len(told) < 2 or all(one["verdict"] is None for one in told):
        raise NoSuchPage(f"{case} is in neither run")
    marked = difference(told[0]["answer"], told[1]["answer"])
    values = {"case": case, "sample": sample, "told": told, "marked": marked}
    return Page(template="answers", title=case, values=values)


def difference(first: str, second: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Both texts in pieces, each with whether the other lacks it."""
    a, b = (re.findall(r"\s+|\w+|[^\w\s]", text)[:WORDS] for text in (first, second))
    left: list[tuple[str, bool]] = []
    right: list[tuple[str, bool]] = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=len(a) > 500).get_opcodes():
        if j > i:
            left.append(("".join(a[i:j]), kind != "equal"))
        if m > k:
            right.append(("".join(b[k:m]), kind != "equal"))
    return left, right


def endpoint_page(library: Library, vendor: str, model: str) -> Page:
    """One endpoint over time."""
    cards = [card for card in library.cards() if (card.vendor, card.model) == (vendor, model)]
    if not cards:
        raise NoSuchPage(f"no run of {model} at {vendor}")
    finished = [card for card in cards if card.head]
    readings, unread, notes = collect([card.folder for card in finished])
    sections: Markup | None = None
    if readings or unread:
        told = make_history(readings, np.random.default_rng(0), notes=notes, unread=unread)
        sections = html_sections(history_document(told))
    return Page(
        template="endpoint",
        title=f"{model} at {vendor}",
        values={"cards": cards[:RUNS], "finished": finished, "vendor": vendor, "model": model, "sections": sections},
    )


def board_page(library: Library, query: Query) -> Page:
    """Vendors in one row each: rank with ties, contract, quality, price, first token, speed."""
    cards = {card.id: card for card in library.cards() if card.head}
    sides, problems = [], []
    for name in list(cards)[:BOARD]:
        try:
            sides.append(library.side(name))
        except (StoreError, ConfigError, NoSuchRun) as error:
            problems.append(f"{name}: {error}")
    sort = query.get("sort", "quality") if query.get("sort") in SORTS else "quality"
    only = query.get("only", "")
    board = make_leaderboard(sides, np.random.default_rng(0), published=published_rows(sides)) if sides else None
    rows = board_rows(board) if board else []
    if only == "contract":
        rows = [row for row in rows if row["contract"] == "pass"]
    if only == "comparable":
        rows = [row for row in rows if not row["why_not"]]
    keys: dict[str, Callable[[dict[str, Any]], Any]] = {
        "quality": lambda row: (row["rank"] is None, row["rank"] or 0),
        "price": lambda row: (row["price"] is None, row["price"] or 0),
        "ttft": lambda row: (row["ttft"].value is None, row["ttft"].value or 0),
        "speed": lambda row: (row["speed"].value is None, -(row["speed"].value or 0)),
    }
    rows.sort(key=keys[sort])
    return Page(
        template="board",
        title="Vendors",
        values={
            "rows": rows,
            "columns": board.columns if board else (),
            "measured": [any(row["values"][at] for row in rows) for at in range(len(board.columns) if board else 0)],
            "sort": sort,
            "only": only,
            "published": board.published if board else (),
            "problems": problems,
            "plot": _plot(rows),
            "left_out": max(0, len(cards) - BOARD),
        },
    )


def board_csv(library: Library, query: Query) -> str:
    """The board's rows with every interval."""
    page = board_page(library, query)
    head = ["rank", "vendor", "model", "contract", "usd_per_1000_requests", "ttft_ms", "tokens_per_s", "date", "run"]
    for column in page.values["columns"]:
        head += [column.title, f"{column.title} low", f"{column.title} high", f"{column.title} n"]
    rows = []
    for row in page.values["rows"]:
        side = row["side"]
        line = [row["rank"], side.vendor, side.model, row["contract"], row["price"], row["ttft"].value]
        line += [row["speed"].value, side.date, side.run_id]
        for value in row["values"]:
            line += [None] * 4 if value is None else [value.value, value.low, value.high, value.n]
        rows.append(tuple(line))
    table = DocumentTable(name="board", columns=tuple(head), rows=tuple(rows))
    return csv_text(Document(title="", sections=(Section(title="", tables=(table,)),)))


def board_rows(board: Leaderboard) -> list[dict[str, Any]]:
    """A row an endpoint; the rank is of the first suite by which any are told apart, equal where they are not."""
    ranks: dict[int, int] = {}
    for ties in board.ties:
        if ties.groups and ties.groups[0] and len(ties.classes[0]) > 1 and not ranks:
            place = 1
            for group in ties.groups[0]:
                ranks |= dict.fromkeys(group, place)
                place += len(group)
    return [
        {
            "rank": ranks.get(number),
            "tied": list(ranks.values()).count(ranks.get(number, -1)) > 1,
            "side": entry.side,
            "why_not": entry.why_not,
            "contract": entry.side.contract,
            "values": [_measured(entry.side, column) for column in board.columns],
            "price": 1_000 * entry.side.service.cost / entry.side.service.requests
            if entry.side.service.cost is not None and entry.side.service.requests
            else None,
            "ttft": entry.side.service.ttft_ms,
            "speed": entry.side.service.output_tps,
        }
        for number, entry in enumerate(board.entries)
    ]


def _measured(side: RunSummary, column: Column) -> SummaryRow | None:
    result = side.suites.get(column.suite)
    return result.primary if result is not None and column.edition == result.edition else None


def _plot(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, str]]:
    """Quality against price: places in per cent of the plot and a label; empty with fewer than two."""
    points = [
        (row["price"], value.value, row["side"].vendor)
        for row in rows
        if row["price"] is not None and (value := next((v for v in row["values"] if v and v.value is not None), None))
    ]
    if len(points) < 2:
        return []
    dearest, best, worst = max(p for p, _, _ in points), max(q for _, q, _ in points), min(q for _, q, _ in points)
    room = max(0.01, best - worst)
    return [
        (round(8 + 84 * price / dearest, 2) if dearest else 8.0, round(90 - 80 * (quality - worst) / room, 2), name)
        for price, quality, name in points
    ]
