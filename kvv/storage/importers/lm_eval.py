"""lm-evaluation-harness's ``--log_samples`` (``samples_TASK_TIME.jsonl``): AIME 2025, OCRBench and MMMU Pro.

One line a document and filter: ``doc`` is the data set's own row, ``arguments`` the prompt, ``resps`` the answers. A
document that stands once a filter has the same answers each time; the first line counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvv.storage.importers.answers import Answer, assemble, no_further_files, suite_named
from kvv.storage.importers.inspect_log import ocr_row
from kvv.storage.importers.recorded import Imported, ImportOptions, Lines, RecordedLine, read_lines


def read(path: Path, options: ImportOptions) -> Imported:
    """For ``kvv import lm-eval``. ImportFileError names file and line."""
    no_further_files(options, "lm-eval")
    lines = read_lines(path)
    suite = suite_named(path.name) or _suite(lines.lines[0].value)
    if not suite:
        raise lines.error(
            lines.lines[0].number, "its doc is of no task that can be scored here: AIME 2025, OCRBench, MMMU Pro"
        )
    answers: list[Answer] = []
    first: dict[object, RecordedLine] = {}
    for line in lines.lines:
        number = line.value.get("doc_id")
        if not isinstance(number, int | str):
            raise lines.error(line.number, "has no doc_id")
        seen = first.setdefault(number, line)
        if seen is line:
            answers += _answers(suite, lines, line)
        elif seen.value.get("resps") != line.value.get("resps") or seen.value.get("filter") == line.value.get("filter"):
            raise lines.error(line.number, f"doc_id {number!r:.40} stands in line {seen.number} already")
    notes = ["samples of lm-evaluation-harness; it says neither how an answer ended nor what it cost"]
    return assemble(suite, path, answers, options, model="", notes=notes)


def _suite(value: Mapping[str, Any]) -> str:
    """By the columns of the row."""
    doc = value.get("doc")
    columns = set(doc) if isinstance(doc, dict) else set()
    if {"question", "question_type", "answer", "dataset"} <= columns:
        return "ocrbench"
    return ""


def _answers(suite: str, lines: Lines, line: RecordedLine) -> list[Answer]:
    doc, said = line.value.get("doc"), line.value.get("resps")
    if not isinstance(doc, dict) or not isinstance(said, list):
        raise lines.error(line.number, "has no doc and resps: is it a file of --log_samples?")
    # one list a request, and in it one answer a repeat
    texts = [text for part in said for text in (part if isinstance(part, list) else [part])]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise lines.error(line.number, "its resps are no texts: only generated answers can be scored anew")
    row = _row(suite, lines, line, doc)
    return [
        Answer(
            row=row,
            sample=place,
            asked=_asked(line.value) or str(row.get("problem") or row.get("question")),
            text=text,
            place=f"{lines.path}, line {line.number}",
        )
        for place, text in enumerate(texts)
    ]


def _asked(value: Mapping[str, Any]) -> str:
    """The prompt, where the line holds it: arguments are a mapping, or a list in older versions."""
    found = value.get("arguments")
    for _ in range(2):
        if isinstance(found, dict) and found:
            found = next(iter(found.values()))
        elif isinstance(found, list) and found:
            found = found[0]
    return found if isinstance(found, str) else ""


def _row(suite: str, lines: Lines, line: RecordedLine, doc: Mapping[str, Any]) -> dict[str, Any]:
    needed = {
        "aime2025": ("problem", "answer"),
        "ocrbench": ("question", "answer"),
        "mmmu_pro": ("id", "options", "answer"),
    }
    for column in needed[suite]:
        if doc.get(column) in (None, "", []):
            raise lines.error(line.number, f"its doc has no {column!r}")
    if suite == "aime2025":
        number = doc.get("id", line.value.get("doc_id"))
        return {"problem": str(doc["problem"]), "answer": str(doc["answer"]), "id": str(number)}
    if suite == "ocrbench":
        golds = doc["answer"] if isinstance(doc["answer"], list) else [doc["answer"]]
        return ocr_row(str(doc["question"]), [str(gold) for gold in golds], doc)
    return {
        "id": str(doc["id"]),
        "question": str(doc.get("question") or ""),
        "options": doc["options"],
        "answer": str(doc["answer"]),
        "subject": str(doc.get("subject") or ""),
    }
