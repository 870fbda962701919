"""A run's file: one SQLite database that many may read and one process writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kvv.core import Answered, Case, Executed, Finding, Identity, Outcome, Reply, Request, Role, Verdict
from kvv.decision.gateway_timeouts import AttemptEnding
from kvv.decision.upstreams import AnsweredBy
from kvv.storage.store import schema
from kvv.storage.store.codec import codec, dump_json, tag
from kvv.storage.store.errors import NotStorableError, StoreError, UnknownCaseError
from kvv.storage.store.inserts import Inserter
from kvv.storage.store.lock import WriterLock
from kvv.storage.store.reader import StoreReader
from kvv.storage.store.rows import (
    AttemptHead,
    LostRequest,
    SampleTraffic,
    StoredAttempt,
    StoredEvent,
    StoredExchange,
    StoredFindings,
    StoredTraffic,
    TimingSample,
)
from kvv.storage.store.writer import Writer, WriteTask

if TYPE_CHECKING:
    from kvv.protocol.encode import EncodedBody
    from kvv.protocol.reader import Received

T = TypeVar("T")

#: what a queued thing weighs beside its text: objects, rows
_OVERHEAD = 1_000
_EXCHANGE_OVERHEAD = 5_000
_FRAME_OVERHEAD = 200
#: what reading a record of another shape raises
DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)


class Store:
    """Writing (``put_*``) never waits for the disk; the order of the calls is the order of the commits, so that a
    verdict is never durable before its exchanges. Reading goes over a connection of its own and sees what is committed:
    ``flush`` first.

    ``put_*`` may be called from any thread, the reading methods from one at a time. Every method raises StoreError, of
    one line.
    """

    def __init__(
        self, path: Path, *, lock: WriterLock | None, writer: Writer | None, connection: sqlite3.Connection | None
    ) -> None:
        self.path = path
        self._lock = lock
        self._writer = writer
        self._writing = connection
        self._read_connection: sqlite3.Connection | None = None
        self._reader: StoreReader | None = None
        self._closed = False

    @classmethod
    def create(cls, path: Path, meta: Mapping[str, Any]) -> Self:
        """A new store; raises StoreError when the file exists or its folder cannot be written."""
        path = Path(path)
        if path.exists():
            raise StoreError(f"{path}: exists already; a run is continued with `kvv resume`")
        store = cls._writable(path, new=True)
        for key, value in meta.items():
            store.set_meta(key, value)
        store.flush()
        return store

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """An existing store. What a killed process left is recovered.

        ``read_only`` needs no lock: it works while another process writes, and for a closed store in a read-only
        folder.
        """
        path = Path(path)
        if not path.is_file():
            raise StoreError(f"{path}: no such file")
        if not read_only:
            return cls._writable(path, new=False)
        schema.check_files(path, writing=False)
        store = cls(path, lock=None, writer=None, connection=None)
        store._reading(lambda reader: None)
        return store

    @classmethod
    def _writable(cls, path: Path, *, new: bool) -> Self:
        schema.check_files(path, writing=True)
        if new:
            schema.put_empty(path)
        lock = WriterLock(path)
        connection: sqlite3.Connection | None = None
        try:
            with schema.sqlite_errors(path):
                connection = schema.connect(path)
                if not new:
                    schema.check_header(connection, path)
                schema.prepare_writer(connection)
                if new:
                    schema.create_tables(connection)
                (concluded,) = connection.execute("SELECT count(*) FROM exchange").fetchone()
                writer = Writer(connection, path, concluded=concluded)
        except StoreError:
            if connection is not None:
                connection.close()
            lock.release()
            raise
        return cls(path, lock=lock, writer=writer, connection=connection)

    # --- writing -----------------------------------------------------------------------------------

    def _put(self, run: Callable[..., None], *arguments: Any, size: int = _OVERHEAD, exchanges: int = 0) -> None:
        if self._writer is None:
            raise StoreError(f"{self.path}: {'the store is closed' if self._closed else 'opened for reading only'}")
        self._writer.put(WriteTask(run, arguments, size, exchanges))

    def put_cases(self, cases: Sequence[Case], samples: Mapping[str, int]) -> None:
        """The plan: each case once, and case id -> number of samples (1 where absent). A case put again is replaced."""
        self._put(Inserter.cases, tuple(cases), dict(samples), size=_OVERHEAD * (len(cases) + 1))

    def put_exchange(
        self, received: Received, request: Request, body: EncodedBody, *, cost: float | None = None
    ) -> None:
        """One attempt; ``cost`` in US dollars. Its tokens and its standing are taken from the observation."""
        exchange = received.exchange
        # the answer's text stands in the frames and in the observation
        size = _EXCHANGE_OVERHEAD + body.size + 2 * exchange.bytes_received + _FRAME_OVERHEAD * len(exchange.frames)
        self._put(Inserter.exchange, received, request, body, cost, size=size, exchanges=1)

    def put_alias(self, identity: Identity, answered_by: Identity) -> None:
        """``identity`` was answered by the last exchange of ``answered_by``, which was put before."""
        self._put(Inserter.alias, identity, answered_by)

    def put_executed(self, case_id: str, sample: int, step: int, executed: Executed) -> None:
        """What a step's command gave in the sandbox."""
        self._put(Inserter.executed, case_id, sample, step, executed, size=_OVERHEAD + len(executed.output))

    def put_restart(self, case_id: str, sample: int) -> None:
        """The sample begins anew at step 0 (its sandbox is gone): what was put so far is kept, but is no part of its
        history.
        """
        self._put(Inserter.restart, case_id, sample)

    def put_findings(self, exchange_id: int, findings: Sequence[Finding]) -> None:
        """Replaces the findings of a stored exchange (rules judged anew)."""
        self._put(Inserter.findings, exchange_id, tuple(findings))

    def put_verdict(self, verdict: Verdict) -> None:
        """Replaces an earlier verdict of the sample, which goes to ``verdict_history``.

        Raises NotStorableError, at once and harmlessly, for ``values`` or ``facts`` that are not JSON-like.
        """
        try:
            record = dump_json(codec(Verdict).encode(verdict))
        except NotStorableError as error:
            raise NotStorableError(f"verdict of {verdict.case}#{verdict.sample}: {error}") from error
        self._put(
            Inserter.verdict,
            verdict.case,
            verdict.sample,
            verdict.outcome.value,
            _now(),
            record,
            size=_OVERHEAD + len(record),
        )

    def put_event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Something that happened to the run, with the UTC time. Raises NotStorableError as ``put_verdict`` does."""
        self._put(Inserter.event, _now(), kind, dump_json(tag(data)))

    def set_meta(self, key: str, value: Any) -> None:
        """Raises NotStorableError as ``put_verdict`` does."""
        self._put(Inserter.meta, key, dump_json(tag(value)))

    @property
    def backlog_bytes(self) -> int:
        """About how much memory is held by what is not committed yet; ask ``drained`` before new work is started."""
        return self._writer.backlog_bytes if self._writer is not None else 0

    @property
    def concluded(self) -> int:
        """Exchanges of this run whose commit is acknowledged, earlier processes' included."""
        return self._writer.concluded if self._writer is not None else self._reading(StoreReader.exchange_count)

    async def drained(self, below_bytes: int) -> None:
        """Returns once at most so much is not committed; 0 waits for everything. Raises StoreError when the writer has
        failed.
        """
        if self._writer is not None:
            await self._writer.drained(below_bytes)

    def flush(self, timeout: float | None = None) -> None:
        """Returns when everything put so far is committed. Raises StoreError when it is not after ``timeout``
        seconds.
        """
        if self._writer is not None:
            self._writer.flush(timeout)

    def close(self) -> None:
        """Commits, folds the log into the one file, gives the lock back. Raises StoreError when something put was not
        committed; all is released even then. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._read_connection is not None:
            self._read_connection.close()
        writer, connection, lock = self._writer, self._writing, self._lock
        self._writer = self._writing = self._lock = self._reader = self._read_connection = None
        if writer is None or connection is None or lock is None:
            return
        try:
            writer.stop()
            with schema.sqlite_errors(self.path):
                schema.finish(connection)
        finally:
            with suppress(sqlite3.Error):
                connection.close()
            lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- reading -------------------------------------------------------------------------------------

    def _reading(self, query: Callable[[StoreReader], T]) -> T:
        try:
            with schema.sqlite_errors(self.path):
                return query(self._open_reader())
        except StoreError as error:
            raise self._named(error) from error
        except DAMAGE as error:
            raise self._damaged(error) from error

    def _stream(self, query: Callable[[StoreReader], Iterable[T]]) -> Iterator[T]:
        try:
            with schema.sqlite_errors(self.path):
                yield from query(self._open_reader())
        except StoreError as error:
            raise self._named(error) from error
        except DAMAGE as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> StoreError:
        return StoreError(f"{self.path}: damaged record: {type(error).__name__}: {' '.join(str(error).split())[:200]}")

    def _named(self, error: StoreError) -> StoreError:
        text = str(error)
        return error if text.startswith(str(self.path)) else type(error)(f"{self.path}: {text}")

    def _open_reader(self) -> StoreReader:
        if self._closed:
            raise StoreError(f"{self.path}: the store is closed")
        if self._reader is None:
            connection = schema.connect(self.path, read_only=True)
            try:
                schema.check_header(connection, self.path)
            except (StoreError, sqlite3.Error):
                connection.close()
                raise
            self._read_connection = connection
            self._reader = StoreReader(connection)
        return self._reader

    def meta(self) -> dict[str, Any]:
        return self._reading(StoreReader.meta)

    def cases(self, suite: str | None = None) -> Iterator[tuple[Case, int]]:
        """Each planned case, in the order they were put, and its number of samples. Lists stay lists, tuples tuples,
        fragments fragments.
        """
        return self._stream(lambda reader: reader.cases(suite))

    def case(self, case_id: str) -> Case:
        found = self._reading(lambda reader: reader.case(case_id))
        if found is None:
            raise UnknownCaseError(f"{self.path}: no case {case_id!r} in this run")
        return found

    def history(self, case_id: str, sample: int) -> list[tuple[Answered, ...]]:
        """Per step, in ask order, the last attempt of each identity, aliases resolved: what ``Suite.step`` is fed with.

        Whole leading steps, as far as the store can know: it ends before a gap and before a step that is older than one
        before it. A process that died in mid-step can have left the last step short; compare with the ``Ask``. Ends
        before an executed command.
        """
        replies = self.replies(case_id, sample)
        steps: list[tuple[Answered, ...]] = []
        for reply in replies:
            if isinstance(reply, Executed):
                break
            steps.append(reply)
        return steps

    def replies(self, case_id: str, sample: int) -> list[Reply]:
        """Like ``history``, executed commands included."""
        return self._reading(lambda reader: reader.replies(case_id, sample))

    def answers(self, case_id: str, sample: int) -> dict[Identity, Answered]:
        """The last attempt of each identity of the sample, by step and ask; an alias stands under its own identity."""
        return self._reading(lambda reader: reader.answers(case_id, sample))

    def attempts(self, case_id: str, sample: int) -> dict[str, int]:
        """Identity key -> the highest attempt so far."""
        return self._reading(lambda reader: reader.attempts(case_id, sample))

    def exchanges(
        self, case_id: str | None = None, sample: int | None = None, *, rule: str | None = None
    ) -> Iterator[StoredExchange]:
        """All attempts in the order they were put, frames included where they were kept; with ``rule``, a glob, those
        it objected to.
        """
        return self._stream(lambda reader: reader.exchanges(case_id, sample, rule))

    def verdict(self, case_id: str, sample: int) -> Verdict | None:
        return self._reading(lambda reader: reader.verdict(case_id, sample))

    def verdict_history(self, case_id: str, sample: int) -> list[Verdict]:
        """The verdicts that were replaced, oldest first."""
        return self._reading(lambda reader: reader.verdict_history(case_id, sample))

    def verdicts(self, suite: str | None = None) -> Iterator[tuple[str, int, Verdict]]:
        """Case id, sample, verdict, in the order of the plan."""
        return self._stream(lambda reader: reader.verdicts(suite))

    def outcomes(self) -> dict[tuple[str, int], Outcome]:
        """(case id, sample) -> outcome of the current verdict, without reading the verdicts."""
        return self._reading(StoreReader.outcomes)

    def outcome_counts(self) -> list[tuple[str, Outcome, int]]:
        """Suite (what a case's id begins with), outcome, and how many current verdicts; one pass over them."""
        return self._reading(StoreReader.outcome_counts)

    def planned_samples(self) -> dict[str, int]:
        """Suite -> planned samples."""
        return self._reading(StoreReader.planned_samples)

    def last_verdict(self) -> str:
        """Changes whenever a verdict is put, for the first time or anew."""
        return self._reading(StoreReader.last_verdict)

    def newest_verdicts(self, outcome: Outcome, limit: int) -> list[Verdict]:
        return self._reading(lambda reader: reader.newest_verdicts(outcome, limit))

    def case_number(self, case_id: str) -> int | None:
        """The place of a case in the plan, None for one that is not in it."""
        return self._reading(lambda reader: reader.case_number(case_id))

    def judged(
        self,
        *,
        suite: str | None = None,
        outcome: Outcome | None = None,
        containing: str = "",
        ending: str = "",
        place: tuple[int, int] | None = None,
        backwards: bool = False,
    ) -> Iterator[tuple[int, Case, Verdict]]:
        """Judged samples in the order of the plan (or ``backwards``), each with its case's number, read as they are
        asked for; those after ``place``, a case's number and a sample. ``containing`` and ``ending`` are of the case's
        id.
        """
        return self._stream(
            lambda reader: reader.judged(suite, outcome, containing, ending, place, backwards=backwards)
        )

    def finding_groups(self) -> list[StoredFindings]:
        return self._reading(StoreReader.finding_groups)

    def traffic(self) -> StoredTraffic:
        return self._reading(StoreReader.traffic)

    def sample_traffic(self, *, role: Role = Role.TARGET) -> dict[tuple[str, int], SampleTraffic]:
        """(case id, sample) -> time, tokens and cost of its exchanges with one role, summed by the database."""
        return self._reading(lambda reader: {(case, n): found for case, n, found in reader.sample_traffic(role)})

    def timing_samples(self, suite: str | None = None, *, role: Role = Role.TARGET) -> Iterator[TimingSample]:
        """Answered exchanges of one role but its probes, in the order they were put; what was refused or broke off has
        no timing of its own.
        """
        return self._stream(lambda reader: reader.timing_samples(suite, role))

    def lost_requests(self, *, role: Role = Role.TARGET) -> Iterator[LostRequest]:
        """Requests to one role, but its probes, whose first attempt was not answered, in the order they were put."""
        return self._stream(lambda reader: reader.lost_requests(role))

    def results_digest(self) -> str:
        """Which measurement this is, wherever and in whatever form its results lie; "" where nothing was asked of the
        target.

        SHA-256 over every attempt of the target's requests but probes, in no order: the request's place, status, tokens
        and times. Two runs that agree in every score still differ in times measured to a fraction of a microsecond; a
        copied, renamed or merged store does not, and neither does one whose verdicts were made anew. A recording may
        lack times, so of an imported one each answer's own text, id and date count too: it is the same one compressed,
        reformatted or with its lines in another order. Two imported recordings that agree in all of this hold nothing
        that tells them apart.
        """
        answers = bool(self.meta().get("imported"))
        return self._reading(lambda reader: reader.results_digest(answers=answers))

    def endings(self, *, role: Role = Role.TARGET) -> Iterator[AttemptEnding]:
        """How each attempt at one role's endpoint ended, in the order they were put."""
        return self._stream(lambda reader: reader.endings(role))

    def answer_counts(self, *, role: Role = Role.TARGET) -> dict[str, int]:
        """Attempts that got an HTTP answer, by suite, "" for probes of no case."""
        return self._reading(lambda reader: reader.answer_counts(role))

    def stored_attempts(self, *, role: Role = Role.TARGET) -> Iterator[StoredAttempt]:
        """Every attempt at one role's endpoint, probes included, in the order they were put."""
        return self._stream(lambda reader: reader.stored_attempts(role))

    def attempt_head(self, attempt: StoredAttempt) -> AttemptHead:
        return self._reading(lambda reader: reader.attempt_head(attempt))

    def answered_by(self, *, role: Role = Role.TARGET) -> list[AnsweredBy]:
        """Who says to have answered, by suite, the most frequent first; answers that say nothing are left out."""
        return self._reading(lambda reader: reader.answered_by(role))

    def events(self) -> list[StoredEvent]:
        return self._reading(StoreReader.events)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
