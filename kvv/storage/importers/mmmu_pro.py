"""Recorded MMMU-Pro answers, as the official scripts save them: one JSON object a line with id, options, answer and
response.

Each line becomes a sample that the suite's own scorer judges; what the file says itself (``pred_indexs``, ``if_right``)
is compared with nothing and used for nothing. A response that is an object is the official scripts' form of a failed
request: they guess for it, here it is inconclusive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from kvv.suites.mmmu_pro.prompts import RECORDED
from kvv.suites.mmmu_pro.suite import MmmuProSuite, read_options

#: columns of a line that make up the question; the rest is what became of it
QUESTION = ("id", "question", "options", "answer", "subject", "explanation", "img_type", "topic_difficulty")
UNKNOWN_MODEL = "unknown"


def read(path: Path, options: ImportOptions) -> Imported:
    """For ``kvv import mmmu-pro``."""
    no_scores(options)
    if options.requests is not None:
        raise ConfigError("--requests: is for k2vv; an mmmu-pro file holds its own questions")
    return import_mmmu_pro(path, model=options.model, seed=options.seed)


def import_mmmu_pro(path: Path, *, model: str | None = None, seed: int = 0) -> Imported:
    """Each line gets one record, answered or not. ``seed`` is the run's, from which the parser's guesses come.

    Raises ImportFileError naming file and line: no id, options or answer, an id that stands twice, options that are no
    list.
    """
    lines = read_lines(path)
    rows = [_row(lines, line) for line in lines.lines]
    _check_ids(lines, rows)
    digest = canonical_sha256(rows, load_spec(MmmuProSuite.id).columns)
    dataset = Dataset(rows=rows, origin=str(path), revision=f"recorded sha256:{digest[:12]}", sha256=digest)
    name = model or UNKNOWN_MODEL
    profile = load_profile(pick_profile(name)[0])
    suite = MmmuProSuite()
    context = Context(
        model=name, profile=profile, settings=Settings(stream=False, variant=RECORDED), dataset=dataset, seed=seed
    )
    cases = suite.cases(context)
    records = [_record(suite, case, line, profile) for case, line in zip(cases, lines.lines, strict=True)]
    return Imported(
        suite=suite.id,
        cases=cases,
        samples={case.id: 1 for case in cases},
        records=records,
        notes=_notes(lines, records),
        model=name,
        dataset=dataset,
        variant=RECORDED,
    )


def _row(lines: Lines, line: RecordedLine) -> dict[str, Any]:
    value = line.value
    for column in ("id", "answer"):
        if not isinstance(value.get(column), str) or not value[column]:
            raise lines.error(line.number, f"column {column!r} is missing or no text")
    try:
        read_options(value.get("options"))
    except ValueError as error:
        raise lines.error(line.number, f"column 'options': {error}") from error
    return {column: value[column] for column in QUESTION if column in value}


def _check_ids(lines: Lines, rows: Sequence[Mapping[str, Any]]) -> None:
    """The results of several configs in one file would repeat their ids: which one counts would be our choice."""
    seen: dict[str, int] = {}
    for row, line in zip(rows, lines.lines, strict=True):
        first = seen.setdefault(row["id"], line.number)
        if first != line.number:
            raise lines.error(line.number, f"id {row['id']!r:.60} stands in line {first} already")


def _record(suite: MmmuProSuite, case: Case, line: RecordedLine, profile: Profile) -> RecordedSample:
    request, response = suite.request(case), line.value.get("response")
    if isinstance(response, str):
        message = {"role": "assistant", "content": response}
        body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": None}]}
        return record_answer(case, request, body, started=None, duration_ms=None, profile=profile, whole=False)
    if response is None:
        return record_no_answer(case, request, reason=MISSING_RESULT, detail="the line has no response")
    return record_no_answer(case, request, reason=RECORDED_FAILURE, detail=f"recorded as {str(response)!r:.200}")


def _notes(lines: Lines, records: Sequence[RecordedSample]) -> list[str]:
    notes = [
        "the file holds no requests: the text shown as sent is the question with its options; instruction and pictures"
        " are not known"
    ]
    for reason in (MISSING_RESULT, RECORDED_FAILURE):
        if count := sum(reason in record.observation.deviations for record in records):
            notes.append(
                f"{count} of {len(lines.lines)} lines have no answer: inconclusive ({reason}); the official script"
                " guesses for them"
            )
    return notes
