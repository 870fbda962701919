"""Recorded answers, one JSON object a line: id, question, answer (the right one), response (a chat completion)."""

from __future__ import annotations

from pathlib import Path

from acme_sums.suite import Sums
from kvv.api import (
    Context,
    Dataset,
    Imported,
    ImportOptions,
    Lines,
    RecordedLine,
    Settings,
    load_profile,
    read_lines,
    record_answer,
)


def _row(found: Lines, line: RecordedLine) -> dict[str, str]:
    missing = [name for name in ("id", "question", "answer") if name not in line.value]
    if missing:
        raise found.error(line.number, f"has no {missing[0]!r}")
    return {name: str(line.value[name]) for name in ("id", "question", "answer")}


def read(path: Path, options: ImportOptions) -> Imported:
    found = read_lines(path)
    rows = [_row(found, line) for line in found.lines]
    data = Dataset(rows=rows, origin=str(path), revision="recorded", sha256="")
    profile, suite = load_profile("acme-1"), Sums()
    context = Context(model=options.model or "acme-1", profile=profile, settings=Settings(stream=False), dataset=data)
    cases = suite.cases(context)
    records = [
        record_answer(
            case,
            suite.request(case),
            line.value.get("response"),
            started=None,
            duration_ms=None,
            profile=profile,
            whole=True,
        )
        for case, line in zip(cases, found.lines, strict=True)
    ]
    return Imported(
        suite=suite.id,
        cases=cases,
        samples={case.id: 1 for case in cases},
        records=records,
        notes=[],
        model=context.model,
        dataset=data,
    )
