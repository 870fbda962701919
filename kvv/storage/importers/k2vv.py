"""Recorded results of K2VV and its kin, joined with their requests.

Forms read: K2VV's own ``results.jsonl`` (data_index, request, response, status, hash, last_run_at, duration_ms ...) and
the short form {data_index, status, finish_reason, response}. A result is joined by the content of the request it
carries, else by K2VV's hash of it, else by its explicit ``data_index`` (the request's line number in K2VV's file);
never by its own position.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from kvv.cases.suite import Context, Settings
from kvv.core import Case, Dataset
from kvv.core.usage_error import ConfigError
from kvv.data.spec import canonical_sha256, load_spec
from kvv.profiles.profile import Profile, load_profile, pick_profile
from kvv.protocol.classify import MISSING_RESULT, RECORDED_FAILURE
from kvv.storage.importers.recorded import (
    Imported,
    ImportOptions,
    Lines,
    RecordedLine,
    RecordedSample,
    no_scores,
    read_lines,
    record_answer,
    record_no_answer,
)
from kvv.suites.toolcall.k2vv import RowError, case_id, content, declared_tools
from kvv.suites.toolcall.suite import ToolcallSuite


class Join(StrEnum):
    CONTENT = "the content of the request they carry"
    HASH = "the hash of their request"
    INDEX = "data_index"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A request: ``index`` is what a result calls it, ``sample`` its occurrence among the rows of its case."""

    index: int
    case: str
    sample: int
    line: RecordedLine


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    line: RecordedLine
    index: int | None

    @property
    def value(self) -> Mapping[str, Any]:
        return self.line.value

    @property
    def succeeded(self) -> bool:
        """A result without a status is one when it has a response."""
        return self.value.get("status", "success") == "success" and isinstance(self.value.get("response"), Mapping)


def read(path: Path, options: ImportOptions) -> Imported:
    """For ``kvv import k2vv``."""
    no_scores(options)
    if options.requests is None:
        raise ConfigError("--requests: is needed, the file of the requests that were asked")
    return import_k2vv(path, options.requests)


def import_k2vv(results: Path, requests: Path) -> Imported:
    """Join recorded results with their requests. Each row of ``requests`` gets one record, answered or not.

    Raises ImportFileError: a result that cannot be joined, a data_index out of range, two answers to one request.
    """
    request_lines, result_lines = read_lines(requests), read_lines(results)
    rows = _rows(request_lines)
    found = _latest(result_lines, [_result(result_lines, line) for line in result_lines.lines])
    joined = _join(rows, found.results, request_lines, result_lines)
    _check_order(rows, joined, request_lines, result_lines)
    model = _model(rows, joined)
    dataset = _dataset(request_lines.path, [row.line.value for row in rows])
    context = Context(
        model=model, profile=load_profile(pick_profile(model)[0]), settings=Settings(stream=False), dataset=dataset
    )
    suite = ToolcallSuite()
    cases = {case.id: case for case in suite.cases(context)}
    records = []
    for row in rows:
        case = replace(cases[row.case], sample=row.sample)
        hit = joined.get((row.case, row.sample))
        records.append(_record(suite, case, hit.result if hit else None, context.profile))
    order = {case: place for place, case in enumerate(cases)}
    return Imported(
        suite=suite.id,
        cases=list(cases.values()),
        samples={case.id: suite.samples(case, context) for case in cases.values()},
        records=sorted(records, key=lambda record: (order[record.case], record.sample)),
        notes=_notes(rows, joined, found.superseded, result_lines, request_lines),
        model=model,
        dataset=dataset,
    )


def _dataset(path: Path, rows: Sequence[Mapping[str, Any]]) -> Dataset:
    """The requests as ``--data`` would load them, so that a later run on the same file shows the same digest."""
    digest = canonical_sha256(rows, load_spec(ToolcallSuite.id).columns)
    return Dataset(rows=rows, origin=str(path), revision=f"local sha256:{digest[:12]}", sha256=digest)


# --- reading ---------------------------------------------------------------------------------------


def _rows(requests: Lines) -> list[_Row]:
    """The rows with their occurrence numbers. A row may carry its own ``data_index``; else it is its line number, as in
    K2VV.
    """
    rows: list[_Row] = []
    counts: dict[str, int] = defaultdict(int)
    seen: dict[int, int] = {}
    for line in requests.lines:
        index = line.value.get("data_index", line.number)
        if isinstance(index, bool) or not isinstance(index, int):
            raise requests.error(line.number, "data_index is no integer")
        if index in seen:
            raise requests.error(line.number, f"data_index {index} stands in line {seen[index]} already")
        seen[index] = line.number
        try:
            case = case_id(content(line.value))
        except RowError as error:
            raise requests.error(line.number, str(error)) from None
        rows.append(_Row(index=index, case=case, sample=0, line=line))
    numbered = []
    for row in sorted(rows, key=lambda row: row.index):
        numbered.append(replace(row, sample=counts[row.case]))
        counts[row.case] += 1
    return numbered


def _result(results: Lines, line: RecordedLine) -> _Result:
    index = line.value.get("data_index")
    if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
        raise results.error(line.number, "data_index is no integer")
    return _Result(line=line, index=index)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Latest:
    results: Sequence[_Result]
    superseded: int


def _latest(lines: Lines, results: Iterable[_Result]) -> _Latest:
    """One result per data_index. K2VV appends a new attempt at a failed request: the answer supersedes the failures.
    Two answers to one request are an error, because choosing one would be choosing the score."""
    kept: dict[int, _Result] = {}
    without: list[_Result] = []
    superseded = 0
    for result in results:
        if result.index is None:
            without.append(result)
            continue
        earlier = kept.get(result.index)
        if earlier is None:
            kept[result.index] = result
            continue
        if earlier.succeeded and result.succeeded:
            raise lines.error(
                result.line.number, f"data_index {result.index} was answered in line {earlier.line.number} already"
            )
        superseded += 1
        if not earlier.succeeded:
            kept[result.index] = result
    return _Latest(results=[*kept.values(), *without], superseded=superseded)


# --- joining ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit:
    result: _Result
    join: Join


def _join(
    rows: Sequence[_Row], results: Sequence[_Result], requests: Lines, lines: Lines
) -> dict[tuple[str, int], _Hit]:
    """(case, sample) -> its result."""
    by_index = {row.index: row for row in rows}
    occurrences: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        occurrences[row.case].append(row)
    hashes = _hashes(rows, results)
    joined: dict[tuple[str, int], _Hit] = {}
    same: dict[str, list[_Hit]] = defaultdict(list)
    for result in results:
        case = _case_of(result, hashes, lines)
        if case is not None:
            if case[0] not in occurrences:
                raise lines.error(result.line.number, f"its request is none of {requests.path}")
            same[case[0]].append(_Hit(result=result, join=case[1]))
            continue
        if result.index is None:
            raise lines.error(
                result.line.number, "carries neither its request nor a data_index, and its position says nothing"
            )
        found = by_index.get(result.index)
        if found is None:
            known = f"{min(by_index)} to {max(by_index)}"
            raise lines.error(
                result.line.number, f"data_index {result.index} is out of range: {requests.path} has {known}"
            )
        joined[found.case, found.sample] = _Hit(result=result, join=Join.INDEX)
    for name, hits in same.items():
        for sample, hit in _placed(occurrences[name], hits, lines):
            if (name, sample) in joined:
                raise lines.error(hit.result.line.number, "its request has a result already")
            joined[name, sample] = hit
    return joined


def _case_of(result: _Result, hashes: Mapping[str, str], lines: Lines) -> tuple[str, Join] | None:
    request = result.value.get("request")
    if isinstance(request, Mapping) and "messages" in request:
        try:
            return case_id(content(request)), Join.CONTENT
        except RowError as error:
            raise lines.error(result.line.number, f"its request is broken: {error}") from None
    digest = result.value.get("hash")
    case = hashes.get(digest) if isinstance(digest, str) else None
    return None if case is None else (case, Join.HASH)


def _hashes(rows: Sequence[_Row], results: Sequence[_Result]) -> dict[str, str]:
    """K2VV's hash of each row as it would be sent to any model that the results name -> case.

    The hash covers model and sampling too: where K2VV overrode temperature or max_tokens it cannot be found again.
    """
    bare = [
        result
        for result in results
        if isinstance(result.value.get("hash"), str) and not isinstance(result.value.get("request"), Mapping)
    ]
    models = {str(_response(result).get("model")) for result in bare}
    found: dict[str, str] = {}
    for row in rows if bare else ():
        messages = content(row.line.value)["messages"]
        body = {**row.line.value, "messages": messages}
        for variant in (body, *({**body, "model": model} for model in models)):
            text = json.dumps(variant, sort_keys=True, ensure_ascii=False)
            found[hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()] = row.case
    return found


def _placed(rows: Sequence[_Row], hits: Sequence[_Hit], lines: Lines) -> list[tuple[int, _Hit]]:
    """Which occurrence of one request each of its results is: by data_index where that fits all of them, else in the
    order of data_index and line, so that shuffling either file changes nothing."""
    if len(hits) > len(rows):
        worst = max(hits, key=lambda hit: hit.result.line.number)
        counts = f"{len(rows)} times among the requests, {len(hits)} times among the results"
        raise lines.error(worst.result.line.number, f"its request stands {counts}")
    samples = {row.index: row.sample for row in rows}
    indexes = [hit.result.index for hit in hits]
    if all(index in samples for index in indexes):
        return [(samples[index], hit) for index, hit in zip(indexes, hits, strict=True) if index is not None]
    ordered = sorted(hits, key=lambda hit: (hit.result.index is None, hit.result.index or 0, hit.result.line.number))
    return list(enumerate(ordered))


def _check_order(rows: Sequence[_Row], joined: Mapping[tuple[str, int], _Hit], requests: Lines, results: Lines) -> None:
    """Joined by data_index, a request file in another order gives nonsense that looks like a bad endpoint: calls of
    tools that not their own request but others declare."""
    own = {row.case: {tool["name"] for tool in declared_tools(row.line.value)} for row in rows}
    anywhere = {name for names in own.values() for name in names}
    total = foreign = 0
    for (case, _), hit in joined.items():
        if hit.join is not Join.INDEX:
            continue
        for name in _called(hit.result):
            total += 1
            foreign += name not in own[case] and name in anywhere
    if total >= 4 and 2 * foreign > total:
        raise results.error(
            results.lines[0].number,
            f"{foreign} of {total} calls name a tool of another request: is {requests.path} in the order that"
            " data_index counts?",
        )


def _called(result: _Result) -> list[str]:
    names = []
    choices = _response(result).get("choices")
    for choice in choices if isinstance(choices, list) else ():
        message = choice.get("message") if isinstance(choice, Mapping) else None
        calls = message.get("tool_calls") if isinstance(message, Mapping) else None
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, Mapping) else None
            name = function.get("name") if isinstance(function, Mapping) else None
            if isinstance(name, str):
                names.append(name)
    return names


def _response(result: _Result) -> Mapping[str, Any]:
    response = result.value.get("response")
    return response if isinstance(response, Mapping) else {}


# --- what comes out ----------------------------------------------------------------------------------


def _model(rows: Sequence[_Row], joined: Mapping[tuple[str, int], _Hit]) -> str:
    """The model that was asked, by the requests the results carry; else the one that answered; else the requests'
    own.
    """
    asked = [
        hit.result.value["request"].get("model")
        for hit in joined.values()
        if isinstance(hit.result.value.get("request"), Mapping)
    ]
    said = [_response(hit.result).get("model") for hit in joined.values()]
    for names in (asked, said, [row.line.value.get("model") for row in rows]):
        texts = [name for name in names if isinstance(name, str) and name]
        if texts:
            return max(sorted(set(texts)), key=texts.count)
    return "unknown"


def _record(suite: ToolcallSuite, case: Case, result: _Result | None, profile: Profile) -> RecordedSample:
    if result is None:
        return record_no_answer(
            case, suite.request(case), reason=MISSING_RESULT, detail="the results have no line for this request"
        )
    recorded = result.value.get("request")
    sent = recorded if isinstance(recorded, Mapping) else case.inputs["body"]
    body = {name: value for name, value in sent.items() if name not in ("stream", "stream_options")}
    request = replace(suite.request(case), body=body)
    started = result.value.get("last_run_at")
    if not result.succeeded:
        return record_no_answer(case, request, reason=RECORDED_FAILURE, detail=_failure(result), started=started)
    return record_answer(
        case,
        request,
        result.value["response"],
        started=started,
        duration_ms=result.value.get("duration_ms"),
        profile=profile,
        whole=not sent.get("stream"),
    )


def _failure(result: _Result) -> str:
    error = _response(result).get("error")
    status = result.value.get("status")
    return error if isinstance(error, str) and error else f"recorded with status {status!r:.60} and no response"


def _notes(
    rows: Sequence[_Row], joined: Mapping[tuple[str, int], _Hit], superseded: int, results: Lines, requests: Lines
) -> list[str]:
    notes = [
        f"{count} results were joined by {join}"
        for join in Join
        if (count := sum(hit.join is join for hit in joined.values()))
    ]
    if any(hit.join is Join.INDEX for hit in joined.values()):
        notes.append(f"data_index counts the lines of {requests.path} from 1, unless a line carries its own")
    failed = sum(not hit.result.succeeded for hit in joined.values())
    missing = len(rows) - len(joined)
    by_index = {row.index: row.case for row in rows}
    moved = sum(
        hit.join is not Join.INDEX and by_index.get(hit.result.index or 0) != case
        for (case, _), hit in joined.items()
        if hit.result.index
    )
    if moved:
        notes.append(
            f"{moved} results carry a data_index of another row: the request files differ in order, the content decided"
        )
    if missing:
        notes.append(f"{missing} of {len(rows)} requests have no result: inconclusive ({MISSING_RESULT})")
    if failed:
        notes.append(f"{failed} results are recorded failures: inconclusive ({RECORDED_FAILURE})")
    if superseded:
        notes.append(
            f"{superseded} earlier or later failed attempts in {results.path} stand beside an attempt that was kept"
        )
    notes.append(
        "recorded responses passed through a client that fills absent fields with null: what the wire rules say of"
        " nulls is not certain"
    )
    return notes
