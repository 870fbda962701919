"""Recorded answers, one JSON object a line: id, question, answer (the right one), response (a chat completion)."""

from __future__ import annotations

from pathlib import Path

from acme_sums.suite import Sums
from kvv.api import (
    Context,
    Dataset,
    Imported,
    ImportFileError,
    ImportOptions,
    Settings,
    answered,
    load_profile,
    read_lines,
)


def read(path: Path, options: ImportOptions) -> Imported:
    lines = list(read_lines(path))
    try:
        rows = [{name: str(line.value[name]) for name in ("id", "question", "answer")} for line in lines]
    except KeyError as error:
        raise ImportFileError(f"{path}: a line has no {error}") from error
    data = Dataset(rows=rows, origin=str(path), revision="recorded", sha256="")
    profile, suite = load_profile("acme-1"), Sums()
    context = Context(model=options.model or "acme-1", profile=profile, settings=Settings(stream=False), dataset=data)
    cases = suite.cases(context)
    records = [
        answered(
            case,
            suite.request(case),
            line.value.get("response"),
            started=None,
            duration_ms=None,
            profile=profile,
            whole=True,
        )
        for case, line in zip(cases, lines, strict=True)
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
