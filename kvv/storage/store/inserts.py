"""The writer's statements: each method puts one thing into the open transaction."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvv.core import Case, Exchange, Executed, Finding, Identity, Observation, Request, Upstream
from kvv.protocol.classify import assess
from kvv.protocol.features import LONG, features_of, is_long
from kvv.storage.store.blobs import BlobWriter, Packer
from kvv.storage.store.codec import codec, dump_json, pack_frames, tag
from kvv.storage.store.errors import NotStorableError, StoreError

if TYPE_CHECKING:
    from kvv.protocol.encode import EncodedBody
    from kvv.protocol.reader import Received

#: kept outside the JSON record: in columns, or as packed frames
EXCHANGE_APART = frozenset({"identity", "frames", "id"})
REQUEST_APART = frozenset({"body"})
CASE_APART = frozenset({"inputs"})
FINDING_APART = frozenset({"rule", "area", "level", "kind"})

#: frames up to this size stand in one compressed frame with the record, which repeats their text: together they take
#: half the room
INLINE_FRAMES = 64 * 1024

#: a verdict's record below this size stands as plain JSON: compressing it would cost more time than room
PLAIN_VERDICT = 1024

RECORD_HEAD = struct.Struct("<I")

_LARGEST_COUNT = 2**53
_UNKNOWN = Upstream()


def _exact_count(value: int | None) -> int | None:
    """A count for a column that is summed; a server can send 10**30 or -1, which stays in the record alone."""
    return value if value is not None and 0 <= value < _LARGEST_COUNT else None


class Inserter:
    """For the writer thread alone. Any exception leaves the transaction to be rolled back."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._packer = Packer()
        self._blobs = BlobWriter(connection, self._packer)
        self._restarts: dict[tuple[str, int], int] = {
            (case, sample): number
            for case, sample, number in connection.execute("SELECT case_id, sample, number FROM restart")
        }
        self._encode_exchange = codec(Exchange, without=EXCHANGE_APART).encode
        self._encode_request = codec(Request, without=REQUEST_APART).encode
        self._encode_observation = codec(Observation).encode
        self._encode_finding = codec(Finding, without=FINDING_APART).encode
        self._encode_upstream = codec(Upstream).encode
        self._encode_case = codec(Case, without=CASE_APART).encode

    def cases(self, cases: Sequence[Case], samples: Mapping[str, int]) -> None:
        statement = (
            "INSERT INTO cases (id, suite, samples, record) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET suite ="
            " excluded.suite, samples = excluded.samples, record = excluded.record"
        )
        for case in cases:
            try:
                record = dump_json({"case": self._encode_case(case), "inputs": tag(case.inputs, self._blobs.keep)})
            except NotStorableError as error:
                raise NotStorableError(f"inputs of case {case.id}: {error}") from error
            self._connection.execute(
                statement, (case.id, case.suite, samples.get(case.id, 1), self._packer.pack(record))
            )

    def exchange(self, received: Received, request: Request, body: EncodedBody, cost: float | None) -> None:
        exchange, observation = received.exchange, received.observation
        blob, layout = self._blobs.put_body(body.parts)
        try:
            record, frames = self._record(received, request, body.size)
        except NotStorableError as error:
            raise NotStorableError(f"exchange {exchange.identity.key}: {error}") from error
        number = self._exchange_row(exchange, request, observation, (cost, blob, layout))
        self._connection.execute(
            "INSERT INTO record (exchange, data, frames) VALUES (?, ?, ?)", (number, record, frames)
        )
        if received.findings:
            self.findings(number, received.findings)

    def _exchange_row(
        self,
        exchange: Exchange,
        request: Request,
        observation: Observation,
        sent: tuple[float | None, int | None, str | None],
    ) -> int:
        identity, timing, upstream = exchange.identity, exchange.timing, exchange.upstream
        cached = observation.tokens("cached_tokens")
        if cached is None:
            cached = observation.detail_tokens("prompt_tokens_details", "cached_tokens")
        values = (
            *self._place(identity),
            exchange.attempt,
            exchange.role.value,
            request.stream,
            exchange.status,
            assess(exchange, observation).standing.value,
            _exact_count(observation.tokens("prompt_tokens")),
            _exact_count(cached),
            _exact_count(observation.tokens("completion_tokens")),
            sent[0],
            timing.first_token_ms,
            timing.total_ms,
            timing.itl_p50_ms,
            dump_json(self._encode_upstream(upstream)) if upstream != _UNKNOWN else None,
            *sent[1:],
        )
        statement = (
            "INSERT INTO exchange (case_id, sample, restart, step, ask, purpose, attempt, role, stream, status,"
            " standing, prompt_tokens, cached_tokens, completion_tokens, cost, first_token_ms, total_ms, itl_p50_ms,"
            " upstream, body, layout) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        return self._connection.execute(statement, values).lastrowid or 0

    def _record(self, received: Received, request: Request, size: int) -> tuple[bytes, bytes | None]:
        exchange = received.exchange
        fields: dict[str, Any] = {
            "exchange": self._encode_exchange(exchange),
            "request": self._encode_request(request),
            "observation": self._encode_observation(received.observation),
            "features": sorted(features_of(request) | ({LONG} if is_long(request, size) else frozenset())),
        }
        if isinstance(request.body, bytes):
            fields["raw"] = True
        text = dump_json(fields)
        head = RECORD_HEAD.pack(len(text))
        if not exchange.frames:
            return self._packer.pack(head + text), None
        size, pieces = pack_frames(exchange.frames)
        if size <= INLINE_FRAMES:
            return self._packer.pack(b"".join((head, text, *pieces))), None
        return self._packer.pack(head + text), self._packer.pack_pieces(pieces, size)

    def _place(self, identity: Identity) -> tuple[str, int, int, int, int, str]:
        case, sample = identity.case, identity.sample
        return case, sample, self._restarts.get((case, sample), 0), identity.step, identity.ask, identity.purpose

    def findings(self, exchange: int, findings: Sequence[Finding]) -> None:
        """Replaces what was found on this exchange before."""
        self._connection.execute("DELETE FROM finding WHERE exchange = ?", (exchange,))
        rows = [
            (
                exchange,
                number,
                item.rule,
                item.area.value,
                item.level.value,
                item.kind.value,
                dump_json(self._encode_finding(item)),
            )
            for number, item in enumerate(findings)
        ]
        self._connection.executemany(
            "INSERT INTO finding (exchange, number, rule, area, level, kind, detail) VALUES (?, ?, ?, ?, ?, ?, ?)", rows
        )

    def alias(self, identity: Identity, answered_by: Identity) -> None:
        # of whatever beginning: a control answered before its own case was begun anew has been answered all the same
        where = "case_id = ? AND sample = ? AND step = ? AND ask = ? AND purpose = ?"
        place = (answered_by.case, answered_by.sample, answered_by.step, answered_by.ask, answered_by.purpose)
        (exchange,) = self._connection.execute(f"SELECT max(id) FROM exchange WHERE {where}", place).fetchone()  # noqa: S608
        if exchange is None:
            raise StoreError(f"{identity.key} cannot be answered by {answered_by.key}, of which nothing is stored")
        statement = (
            "INSERT INTO alias (case_id, sample, restart, step, ask, purpose, exchange, after) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, (SELECT max(id) FROM exchange))"
        )
        self._connection.execute(statement, (*self._place(identity), exchange))

    def executed(self, case: str, sample: int, step: int, executed: Executed) -> None:
        record = self._packer.pack(dump_json(codec(Executed).encode(executed)))
        restart = self._restarts.get((case, sample), 0)
        statement = (
            "INSERT INTO executed (case_id, sample, restart, step, record, after) VALUES (?, ?, ?, ?, ?, (SELECT"
            " coalesce(max(id), 0) FROM exchange))"
        )
        self._connection.execute(statement, (case, sample, restart, step, record))

    def restart(self, case: str, sample: int) -> None:
        number = self._restarts.get((case, sample), 0) + 1
        self._connection.execute(
            "INSERT OR REPLACE INTO restart (case_id, sample, number) VALUES (?, ?, ?)", (case, sample, number)
        )
        self._restarts[case, sample] = number

    def verdict(self, case: str, sample: int, outcome: str, at: str, record: bytes) -> None:
        values = (outcome, at, record if len(record) < PLAIN_VERDICT else self._packer.pack(record), case, sample)
        try:
            self._connection.execute(
                "INSERT INTO verdict (outcome, at, record, case_id, sample) VALUES (?, ?, ?, ?, ?)", values
            )
        except sqlite3.IntegrityError:
            self._connection.execute(
                "INSERT INTO verdict_history (case_id, sample, outcome, at, record) "
                "SELECT case_id, sample, outcome, at, record FROM verdict WHERE case_id = ? AND sample = ?",
                (case, sample),
            )
            self._connection.execute(
                "UPDATE verdict SET outcome = ?, at = ?, record = ? WHERE case_id = ? AND sample = ?", values
            )

    def event(self, at: str, kind: str, data: bytes) -> None:
        self._connection.execute("INSERT INTO event (at, kind, data) VALUES (?, ?, ?)", (at, kind, data))

    def meta(self, key: str, value: bytes) -> None:
        self._connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))
