"""The reader's queries, on a connection of its own."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from itertools import count
from typing import Any

from kvv.core import (
    Answered,
    Area,
    Case,
    Evidence,
    Exchange,
    Executed,
    FaultKind,
    Finding,
    FindingKind,
    Identity,
    Level,
    Observation,
    Outcome,
    Reply,
    Request,
    Role,
    Upstream,
    Verdict,
)
from kvv.decision.gateway_timeouts import AttemptEnding
from kvv.decision.upstreams import AnsweredBy
from kvv.protocol.classify import Assessment, Classification, assess, is_probe
from kvv.protocol.features import STREAMED, WHOLE
from kvv.storage.store.blobs import BlobReader, Unpacker, parse_body
from kvv.storage.store.codec import codec, load_json, unpack_frames, untag
from kvv.storage.store.errors import StoreError
from kvv.storage.store.inserts import CASE_APART, EXCHANGE_APART, FINDING_APART, RECORD_HEAD, REQUEST_APART
from kvv.storage.store.rows import (
    AttemptHead,
    LostRequest,
    RoleTraffic,
    SampleTraffic,
    StoredAttempt,
    StoredEvent,
    StoredExchange,
    StoredFindings,
    StoredTraffic,
    TimingSample,
)

EXAMPLES = 5

_EXCHANGE = (
    "SELECT e.id, e.case_id, e.sample, e.step, e.ask, e.purpose, e.restart, e.standing, e.cost, e.body, e.layout,"
    " r.data, r.frames FROM exchange e JOIN record r ON r.exchange = e.id"
)


class StoreReader:
    """Every method may raise sqlite3.Error; the store turns it into a StoreError."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        unpacker = Unpacker()
        self._unpack = unpacker.unpack
        self._blobs = BlobReader(connection, unpacker)
        self._decode_exchange = codec(Exchange, without=EXCHANGE_APART).decode
        self._decode_request = codec(Request, without=REQUEST_APART).decode
        self._decode_observation = codec(Observation).decode
        self._decode_finding = codec(Finding, without=FINDING_APART).decode
        self._decode_verdict = codec(Verdict).decode
        self._decode_case = codec(Case, without=CASE_APART).decode

    def _rows(self, query: str, *values: Any) -> Iterator[Any]:
        return iter(self._connection.execute(query, values))

    # --- cases, verdicts, meta, events -----------------------------------------------------------

    def meta(self) -> dict[str, Any]:
        return {key: untag(load_json(value)) for key, value in self._rows("SELECT key, value FROM meta ORDER BY key")}

    def cases(self, suite: str | None) -> Iterator[tuple[Case, int]]:
        query = "SELECT record, samples FROM cases WHERE ? IS NULL OR suite = ? ORDER BY number"
        for record, samples in self._rows(query, suite, suite):
            yield self._case(record), samples

    def case(self, case_id: str) -> Case | None:
        for (record,) in self._rows("SELECT record FROM cases WHERE id = ?", case_id):
            return self._case(record)
        return None

    def _case(self, record: bytes) -> Case:
        fields = load_json(self._unpack(record))
        case: Case = self._decode_case(fields["case"], inputs=untag(fields["inputs"], self._blobs.by_digest))
        return case

    def verdict(self, case_id: str, sample: int) -> Verdict | None:
        for (record,) in self._rows("SELECT record FROM verdict WHERE case_id = ? AND sample = ?", case_id, sample):
            return self._verdict(record)
        return None

    def verdict_history(self, case_id: str, sample: int) -> list[Verdict]:
        query = "SELECT record FROM verdict_history WHERE case_id = ? AND sample = ? ORDER BY id"
        return [self._verdict(record) for (record,) in self._rows(query, case_id, sample)]

    def verdicts(self, suite: str | None) -> Iterator[tuple[str, int, Verdict]]:
        query = (
            "SELECT v.case_id, v.sample, v.record FROM verdict v LEFT JOIN cases c ON c.id = v.case_id "
            "WHERE ? IS NULL OR c.suite = ? ORDER BY c.number IS NULL, c.number, v.case_id, v.sample"
        )
        for case_id, sample, record in self._rows(query, suite, suite):
            yield case_id, sample, self._verdict(record)

    def _verdict(self, record: bytes) -> Verdict:
        verdict: Verdict = self._decode_verdict(load_json(record if record.startswith(b"{") else self._unpack(record)))
        return verdict

    def outcomes(self) -> dict[tuple[str, int], Outcome]:
        return {
            (case_id, sample): Outcome(outcome)
            for case_id, sample, outcome in self._rows("SELECT case_id, sample, outcome FROM verdict")
        }

    def outcome_counts(self) -> list[tuple[str, Outcome, int]]:
        query = (
            "SELECT substr(case_id, 1, instr(case_id || '/', '/') - 1), outcome, count(*) FROM verdict GROUP BY 1, 2"
            " ORDER BY min(id)"
        )
        return [(suite, Outcome(outcome), n) for suite, outcome, n in self._rows(query)]

    def planned_samples(self) -> dict[str, int]:
        query = "SELECT suite, sum(samples) FROM cases GROUP BY suite ORDER BY min(number)"
        return {suite: int(n) for suite, n in self._rows(query)}

    def last_verdict(self) -> str:
        query = "SELECT coalesce(max(id), 0), (SELECT coalesce(max(id), 0) FROM verdict_history) FROM verdict"
        new, replaced = next(self._rows(query))
        return f"{new}.{replaced}"

    def newest_verdicts(self, outcome: Outcome, limit: int) -> list[Verdict]:
        query = "SELECT record FROM verdict WHERE outcome = ? ORDER BY at DESC, id DESC LIMIT ?"
        return [self._verdict(record) for (record,) in self._rows(query, outcome.value, limit)]

    def case_number(self, case_id: str) -> int | None:
        return next((int(number) for (number,) in self._rows("SELECT number FROM cases WHERE id = ?", case_id)), None)

    def judged(
        self,
        suite: str | None,
        outcome: Outcome | None,
        containing: str,
        ending: str,
        place: tuple[int, int] | None,
        *,
        backwards: bool,
    ) -> Iterator[tuple[int, Case, Verdict]]:
        """The join is in the order of the plan: a page of it costs what it reads."""
        way, sign = ("DESC", "<") if backwards else ("ASC", ">")
        conditions: dict[str, tuple[Any, ...]] = {}
        if suite is not None:
            conditions["c.suite = ?"] = (suite,)
        if outcome is not None:
            conditions["v.outcome = ?"] = (outcome.value,)
        if containing:
            conditions["instr(lower(c.id), ?) > 0"] = (containing.lower(),)
        if ending:
            conditions["substr(c.id, ?) = ?"] = (-len(ending), ending)
        if place is not None:
            conditions[f"(c.number, v.sample) {sign} (?, ?)"] = place
            conditions[f"c.number {sign}= ?"] = (place[0],)  # the part of it that an index can follow
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        query = (
            "SELECT c.number, c.record, v.record FROM cases c CROSS JOIN verdict v ON v.case_id = c.id"  # noqa: S608
            f"{where} ORDER BY c.number {way}, v.sample {way}"
        )
        for number, case, verdict in self._rows(query, *(value for values in conditions.values() for value in values)):
            yield number, self._case(case), self._verdict(verdict)

    def events(self) -> list[StoredEvent]:
        query = "SELECT at, kind, data FROM event ORDER BY id"
        return [StoredEvent(at=at, kind=kind, data=untag(load_json(data))) for at, kind, data in self._rows(query)]

    # --- exchanges -----------------------------------------------------------------------------------

    def exchanges(self, case_id: str | None, sample: int | None, rule: str | None = None) -> Iterator[StoredExchange]:
        objected = "EXISTS (SELECT 1 FROM finding f WHERE f.exchange = e.id AND f.rule GLOB ?)"
        wanted = {"e.case_id = ?": case_id, "e.sample = ?": sample, objected: rule}
        wanted = {condition: value for condition, value in wanted.items() if value is not None}
        where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
        for row in self._rows(f"{_EXCHANGE}{where} ORDER BY e.id", *wanted.values()):
            yield self._stored(row)

    def _stored(self, row: tuple[Any, ...]) -> StoredExchange:
        number, case_id, sample, step, ask, purpose, restart, standing, cost, blob, layout, data, frames = row
        plain = self._unpack(data)
        if len(plain) < RECORD_HEAD.size:
            raise StoreError("damaged record: too short")
        end = RECORD_HEAD.size + RECORD_HEAD.unpack_from(plain)[0]
        fields = load_json(plain[RECORD_HEAD.size : end])
        packed = self._unpack(frames) if frames is not None else plain[end:]
        exchange = self._decode_exchange(
            fields["exchange"],
            id=number,
            identity=Identity(case=case_id, sample=sample, step=step, ask=ask, purpose=purpose),
            frames=unpack_frames(packed) if packed else (),
        )
        parts = self._blobs.body_parts(blob, layout)
        body = b"".join(parts) if fields.get("raw") else parse_body(parts)
        return StoredExchange(
            exchange=exchange,
            request=self._decode_request(fields["request"], body=body),
            parts=parts,
            observation=self._decode_observation(fields["observation"]),
            findings=self._findings(number),
            standing=Classification(standing),
            restart=restart,
            cost=cost,
        )

    def _findings(self, exchange: int) -> tuple[Finding, ...]:
        query = "SELECT rule, area, level, kind, detail FROM finding WHERE exchange = ? ORDER BY number"
        return tuple(
            self._decode_finding(
                load_json(detail), rule=rule, area=Area(area), level=Level(level), kind=FindingKind(kind)
            )
            for rule, area, level, kind, detail in self._rows(query, exchange)
        )

    def answers(self, case_id: str, sample: int) -> dict[Identity, Answered]:
        return {identity: self._answered(exchange) for identity, (_, exchange) in self._latest(case_id, sample).items()}

    def _latest(self, case_id: str, sample: int) -> dict[Identity, tuple[int, int]]:
        """Per identity of the sample's last beginning, in ask order: place in the order of exchanges, and exchange, of
        the last thing put for it, an attempt or an alias."""
        restart = self._restart(case_id, sample)
        latest: dict[Identity, tuple[int, int]] = {}
        own = (
            "SELECT step, ask, purpose, max(id), max(id) FROM exchange WHERE case_id = ? AND sample = ? AND restart = ?"
            " GROUP BY step, ask, purpose"
        )
        lent = (
            "SELECT step, ask, purpose, after, exchange FROM alias WHERE case_id = ? AND sample = ? AND restart = ?"
            " ORDER BY id"
        )
        for query in (own, lent):
            for step, ask, purpose, order, exchange in self._rows(query, case_id, sample, restart):
                identity = Identity(case=case_id, sample=sample, step=step, ask=ask, purpose=purpose)
                if order >= latest.get(identity, (0, 0))[0]:
                    latest[identity] = (order, exchange)
        return dict(sorted(latest.items(), key=lambda item: (item[0].step, item[0].ask, item[1][0])))

    def _answered(self, exchange: int) -> Answered:
        for row in self._rows(f"{_EXCHANGE} WHERE e.id = ?", exchange):
            stored = self._stored(row)
            return Answered(
                request=stored.request,
                exchange=stored.exchange,
                observation=stored.observation,
                findings=stored.findings,
            )
        raise StoreError(f"damaged store: exchange {exchange} has no record")

    def _restart(self, case_id: str, sample: int) -> int:
        for (number,) in self._rows("SELECT number FROM restart WHERE case_id = ? AND sample = ?", case_id, sample):
            return int(number)
        return 0

    def attempts(self, case_id: str, sample: int) -> dict[str, int]:
        query = (
            "SELECT step, ask, purpose, max(attempt) FROM exchange WHERE case_id = ? AND sample = ? GROUP BY step, ask,"
            " purpose"
        )
        return {
            _key(case_id, sample, step, ask, purpose): attempt
            for step, ask, purpose, attempt in self._rows(query, case_id, sample)
        }

    def replies(self, case_id: str, sample: int) -> list[Reply]:
        """Whole leading steps only: it ends before a step with a gap in its asks, and before one that is older than an
        earlier step (the sample was asked anew from there)."""
        asks: dict[int, dict[int, tuple[int, int]]] = {}
        for identity, found in self._latest(case_id, sample).items():
            asks.setdefault(identity.step, {})[identity.ask] = found
        commands: dict[int, tuple[int, bytes]] = {}
        query = "SELECT step, after, record FROM executed WHERE case_id = ? AND sample = ? AND restart = ? ORDER BY id"
        for step, order, record in self._rows(query, case_id, sample, self._restart(case_id, sample)):
            commands[step] = (order, record)
        replies: list[Reply] = []
        newest = 0
        for step in count():
            places = asks.get(step, {})
            if step in commands and commands[step][0] >= newest:
                replies.append(codec(Executed).decode(load_json(self._unpack(commands[step][1]))))
                newest = commands[step][0]
            elif (
                places
                and list(places) == list(range(len(places)))
                and min(order for order, _ in places.values()) >= newest
            ):
                replies.append(tuple(self._answered(exchange) for _, exchange in places.values()))
                newest = max(order for order, _ in places.values())
            else:
                return replies
        raise AssertionError("unreachable")

    def exchange_count(self) -> int:
        return int(next(self._rows("SELECT count(*) FROM exchange"))[0])

    def finding_groups(self) -> list[StoredFindings]:
        query = (
            "SELECT f.rule, f.area, f.level, f.kind, f.detail, f.exchange, e.stream, c.suite, e.case_id, e.sample,"
            " e.step, e.ask, e.purpose FROM finding f JOIN exchange e ON e.id = f.exchange"
            " LEFT JOIN cases c ON c.id = e.case_id ORDER BY f.exchange, f.number"
        )
        groups: dict[tuple[str, str, str, str], _Group] = {}
        for rule, area, level, kind, detail, exchange, stream, suite, *place in self._rows(query):
            group = groups.setdefault((rule, area, level, kind), _Group())
            group.add(
                exchange,
                bool(stream),
                suite or "",
                detail,
                _key(*place),
                partial(self._decode_finding, rule=rule, area=area, level=level, kind=kind),
            )
        return [
            StoredFindings(
                rule=rule,
                area=Area(area),
                level=Level(level),
                kind=FindingKind(kind),
                exchanges=group.exchanges,
                count=group.count,
                message=group.message,
                causes=group.causes,
                examples=tuple(group.examples),
                suites=dict(group.suites),
                streamed=group.streamed,
            )
            for (rule, area, level, kind), group in sorted(groups.items())
        ]

    def traffic(self) -> StoredTraffic:
        first = (
            "SELECT role, count(*), sum(n > 1), sum(standing IN ('answered', 'refused')) FROM (SELECT role, count(*) AS"
            " n, min(id), standing FROM exchange GROUP BY role, case_id, sample, restart, step, ask, purpose) GROUP BY"
            " role"
        )
        sums = (
            "SELECT role, count(*), total(prompt_tokens), total(cached_tokens), total(completion_tokens), sum(cost)"
            " FROM exchange GROUP BY role"
        )
        status: dict[str, dict[str, int]] = {}
        for role, code, number in self._rows(
            "SELECT role, status, count(*) FROM exchange GROUP BY role, status ORDER BY role, status"
        ):
            status.setdefault(role, {})["none" if code is None else str(code)] = number
        requests = {role: numbers for role, *numbers in self._rows(first)}
        roles: dict[str, RoleTraffic] = {}
        for role, attempts, prompt, cached, completion, cost in self._rows(sums):
            roles[role] = RoleTraffic(
                requests=requests[role][0],
                attempts=attempts,
                retried=requests[role][1],
                first_try_success=requests[role][2],
                status=status[role],
                prompt_tokens=int(prompt),
                cached_tokens=int(cached),
                completion_tokens=int(completion),
                cost=cost,
            )
        return _all_roles(roles)

    def sample_traffic(self, role: Role) -> Iterator[tuple[str, int, SampleTraffic]]:
        query = (
            "SELECT case_id, sample, total(total_ms), first_token_ms, min(CASE WHEN standing = 'answered' THEN id END),"
            " total(prompt_tokens), total(completion_tokens), sum(cost) FROM exchange WHERE role = ? GROUP BY case_id,"
            " sample"
        )
        for case_id, sample, total, first, _, prompt, completion, cost in self._rows(query, role.value):
            yield (
                case_id,
                sample,
                SampleTraffic(
                    total_ms=total,
                    first_token_ms=first,
                    prompt_tokens=int(prompt),
                    completion_tokens=int(completion),
                    cost=cost,
                ),
            )

    def timing_samples(self, suite: str | None, role: Role) -> Iterator[TimingSample]:
        query = (
            "SELECT e.case_id, e.sample, e.purpose, e.attempt, e.stream, e.prompt_tokens, e.cached_tokens,"
            " e.completion_tokens, e.first_token_ms, e.itl_p50_ms, e.total_ms FROM exchange e WHERE e.role = ? AND"
            " e.standing = 'answered' AND (? IS NULL OR EXISTS (SELECT 1 FROM cases c WHERE c.id = e.case_id AND"
            " c.suite = ?)) ORDER BY e.id"
        )
        for case_id, sample, purpose, attempt, stream, prompt, cached, completion, first, itl, total in self._rows(
            query, role.value, suite, suite
        ):
            if is_probe(purpose):
                continue
            yield TimingSample(
                case=case_id,
                sample=sample,
                stream=bool(stream),
                prompt_tokens=prompt,
                cached_tokens=cached,
                completion_tokens=completion,
                first_token_ms=first,
                itl_p50_ms=itl,
                tokens_per_s=_tokens_per_s(completion, first, total) if stream else None,
                total_ms=total,
                attempt=attempt,
            )

    def lost_requests(self, role: Role) -> Iterator[LostRequest]:
        query = (
            "SELECT e.case_id, e.purpose, e.stream, coalesce((SELECT max(x.prompt_tokens) FROM exchange x WHERE"
            " x.case_id = e.case_id AND x.sample = e.sample AND x.restart = e.restart AND x.step = e.step AND x.ask ="
            " e.ask AND x.purpose = e.purpose), (SELECT max(x.prompt_tokens) FROM exchange x WHERE x.case_id ="
            " e.case_id AND x.step = 0 AND e.step = 0 AND x.ask = e.ask AND x.purpose = e.purpose)), e.standing, r.data"
            " FROM exchange e LEFT JOIN record r ON r.exchange = e.id AND e.standing = 'unavailable' WHERE e.role = ?"
            " AND e.attempt = 1 AND e.standing != 'answered' ORDER BY e.id"
        )
        for case_id, purpose, stream, prompt, standing, data in self._rows(query, role.value):
            if not is_probe(purpose):
                fault = None if data is None else self._fault(data)
                yield LostRequest(
                    case=case_id,
                    stream=bool(stream),
                    prompt_tokens=prompt,
                    standing=Classification(standing),
                    fault=fault,
                )

    def results_digest(self, *, answers: bool) -> str:
        query = (
            "SELECT e.case_id, e.step, e.ask, e.purpose, e.attempt, e.status, e.prompt_tokens, e.completion_tokens,"
            " e.first_token_ms, e.total_ms, r.data FROM exchange e LEFT JOIN record r ON r.exchange = e.id AND ? WHERE"
            " e.role = 'target'"
        )
        rows = []
        for *place, purpose, attempt, status, prompt, completion, first, total, data in self._rows(query, answers):
            if not is_probe(purpose):
                row = [
                    *place,
                    purpose,
                    attempt,
                    status,
                    prompt,
                    completion,
                    first,
                    total,
                    *([] if data is None else self._answer_of(data)),
                ]
                rows.append(sha256(json.dumps(row, ensure_ascii=True).encode("ascii")).digest())
        return sha256(b"".join(sorted(rows))).hexdigest() if rows else ""

    def _answer_of(self, data: bytes) -> list[Any]:
        """When it came and what it says; named one by one, so that a field that a later version keeps beside them
        changes no digest.
        """
        plain = self._unpack(data)
        fields = load_json(plain[RECORD_HEAD.size : RECORD_HEAD.size + RECORD_HEAD.unpack_from(plain)[0]])
        said: Observation = self._decode_observation(fields["observation"])
        choices = [
            [c.answer, c.reasoning, [[t.id, t.name, t.arguments] for t in c.tool_calls], c.finish_reason]
            for c in said.choices
        ]
        return [fields["exchange"].get("started", ""), said.id, choices]

    def endings(self, role: Role) -> Iterator[AttemptEnding]:
        """The records of broken attempts alone are read: only they may name a fault."""
        query = (
            "SELECT e.case_id, e.sample, e.step, e.ask, e.purpose, e.stream, e.status, e.standing, e.total_ms, r.data"
            " FROM exchange e LEFT JOIN record r ON r.exchange = e.id AND e.standing = 'unavailable' WHERE e.role = ?"
            " ORDER BY e.id"
        )
        for *place, stream, status, standing, total_ms, data in self._rows(query, role.value):
            yield AttemptEnding(
                exchange=_key(*place),
                stream=bool(stream),
                total_ms=total_ms or 0.0,
                answered=standing == Classification.ANSWERED,
                status=status,
                fault=None if data is None else self._fault(data),
            )

    def _fault(self, data: bytes) -> FaultKind | None:
        plain = self._unpack(data)
        fields = load_json(plain[RECORD_HEAD.size : RECORD_HEAD.size + RECORD_HEAD.unpack_from(plain)[0]])
        fault = fields["exchange"].get("fault")
        return FaultKind(fault["kind"]) if fault else None

    def answer_counts(self, role: Role) -> dict[str, int]:
        query = (
            "SELECT coalesce(c.suite, ''), count(*) FROM exchange e LEFT JOIN cases c ON c.id = e.case_id WHERE e.role"
            " = ? AND e.status IS NOT NULL GROUP BY 1 ORDER BY 1"
        )
        return {suite: int(number) for suite, number in self._rows(query, role.value)}

    def stored_attempts(self, role: Role) -> Iterator[StoredAttempt]:
        query = (
            "SELECT id, case_id, sample, restart, step, ask, purpose, stream, standing, total_ms FROM exchange WHERE"
            " role = ? ORDER BY id"
        )
        for number, case_id, sample, restart, step, ask, purpose, stream, standing, total_ms in self._rows(
            query, role.value
        ):
            yield StoredAttempt(
                number=number,
                request=f"{_key(case_id, sample, step, ask, purpose)}.{restart}",
                case=case_id,
                purpose=purpose,
                stream=bool(stream),
                standing=Classification(standing),
                total_ms=total_ms or 0.0,
            )

    def attempt_head(self, attempt: StoredAttempt) -> AttemptHead:
        for (data,) in self._rows("SELECT data FROM record WHERE exchange = ?", attempt.number):
            plain = self._unpack(data)
            fields = load_json(plain[RECORD_HEAD.size : RECORD_HEAD.size + RECORD_HEAD.unpack_from(plain)[0]])
            features = frozenset(str(name)[:80] for name in fields.get("features", ())) | {
                STREAMED if attempt.stream else WHOLE
            }
            if attempt.standing is Classification.ANSWERED:
                found, fault, status = Assessment(standing=attempt.standing), None, 200
            else:
                identity = Identity(case=attempt.case, sample=0, step=0, ask=0, purpose=attempt.purpose)
                exchange = self._decode_exchange(fields["exchange"], id=attempt.number, identity=identity, frames=())
                found = assess(exchange, self._decode_observation(fields["observation"]))
                fault, status = exchange.fault.kind if exchange.fault else None, exchange.status
            return AttemptHead(
                started=str(fields["exchange"].get("started", "")),
                features=features,
                assessment=found,
                fault=fault,
                status=status,
            )
        raise StoreError(f"damaged store: exchange {attempt.number} has no record")

    def answered_by(self, role: Role) -> list[AnsweredBy]:
        query = (
            "SELECT c.suite, e.upstream, count(*) FROM exchange e LEFT JOIN cases c ON c.id = e.case_id WHERE"
            " e.upstream IS NOT NULL AND e.role = ? AND e.standing = ? GROUP BY c.suite, e.upstream ORDER BY count(*)"
            " DESC, min(e.id)"
        )
        rows = self._rows(query, role.value, Classification.ANSWERED.value)
        return [
            AnsweredBy(suite=suite or "", upstream=codec(Upstream).decode(load_json(data)), count=number)
            for suite, data, number in rows
        ]


class _Group:
    """Gathers one rule's objections; only the first few are decoded."""

    def __init__(self) -> None:
        self.exchanges = self.count = self.streamed = self._last = 0
        self.message = ""
        self.causes: tuple[str, ...] = ()
        self.examples: list[Evidence] = []
        self.suites: Counter[str] = Counter()

    def add(
        self,
        exchange: int,
        stream: bool,
        suite: str,
        detail: bytes,
        key: str,
        decode: Callable[[dict[str, Any]], Finding],
    ) -> None:
        self.count += 1
        if exchange == self._last:
            return
        self.exchanges += 1
        self.suites[suite] += 1
        self.streamed += stream
        self._last = exchange
        if len(self.examples) < EXAMPLES:
            finding = decode(load_json(detail))
            if not self.examples:
                self.message, self.causes = finding.message, finding.causes
            self.examples.append(Evidence(exchange=key, frame=finding.frame, excerpt=finding.excerpt))


def _all_roles(roles: dict[str, RoleTraffic]) -> StoredTraffic:
    blocks = list(roles.values())
    costs = [block["cost"] for block in blocks if block["cost"] is not None]
    status: Counter[str] = Counter()
    for block in blocks:
        status.update(block["status"])
    return StoredTraffic(
        requests=sum(block["requests"] for block in blocks),
        attempts=sum(block["attempts"] for block in blocks),
        retried=sum(block["retried"] for block in blocks),
        first_try_success=sum(block["first_try_success"] for block in blocks),
        status=dict(sorted(status.items())),
        prompt_tokens=sum(block["prompt_tokens"] for block in blocks),
        cached_tokens=sum(block["cached_tokens"] for block in blocks),
        completion_tokens=sum(block["completion_tokens"] for block in blocks),
        cost=sum(costs) if costs else None,
        roles=roles,
    )


def _key(case_id: str, sample: int, step: int, ask: int, purpose: str) -> str:
    return Identity(case=case_id, sample=sample, step=step, ask=ask, purpose=purpose).key


def _tokens_per_s(tokens: int | None, first_ms: float | None, total_ms: float | None) -> float | None:
    if tokens is None or tokens < 2 or first_ms is None or total_ms is None or total_ms <= first_ms:
        return None
    return (tokens - 1) / (total_ms - first_ms) * 1000.0
