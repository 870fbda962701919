"""evalscope's reviews (``reviews/MODEL/BENCHMARK_SUBSET.jsonl``): AIME 2025 and OCRBench.

One line a sample: ``target``, the whole exchange as ``messages``, and the score, of which only the answer that it was
made of is used. Of MMMU Pro these files do not hold the options, and the prediction files no targets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvv.storage.importers.answers import Answer, assemble, no_further_files, suite_named, text_of
from kvv.storage.importers.inspect_log import ocr_row
from kvv.storage.importers.recorded import Imported, ImportFileError, ImportOptions, Lines, RecordedLine, read_lines


def read(path: Path, options: ImportOptions) -> Imported:
    """For ``kvv import evalscope``. ImportFileError names file and line."""
    no_further_files(options, "evalscope")
    suite = suite_named(path.name)
    if suite not in ("aime2025", "ocrbench"):
        raise ImportFileError(
            f"{path}: its name says no benchmark that can be scored here (aime25_..., ocr_bench_...); reviews of"
            " mmmu_pro do not hold the options"
        )
    lines = read_lines(path)
    seen: dict[object, int] = {}
    answers = []
    for line in lines.lines:
        answer = _answer(suite, lines, line)
        key = repr(answer.row)
        answers.append(replace(answer, sample=seen.get(key, 0)))
        seen[key] = seen.get(key, 0) + 1
    notes = ["reviews of evalscope; they say neither how an answer ended nor what it cost"]
    return assemble(suite, path, answers, options, model=path.resolve().parent.name, notes=notes)


def _answer(suite: str, lines: Lines, line: RecordedLine) -> Answer:
    value = line.value
    messages = [message for message in _list(value.get("messages")) if isinstance(message, dict)]
    asked = "\n".join(text_of(message.get("content")) for message in messages if message.get("role") == "user")
    asked = asked or (value["input"] if isinstance(value.get("input"), str) else "")
    scored = _mapping(value.get("sample_score"))
    score = _mapping(scored.get("score"))
    said = next((message for message in reversed(messages) if message.get("role") == "assistant"), None)
    prediction = score.get("prediction")
    text = text_of(said.get("content")) if said is not None else prediction if isinstance(prediction, str) else None
    golds = _golds(value.get("target"))
    if not asked or not golds:
        raise lines.error(line.number, "has no question (messages or input) or no target: is it a file of reviews/?")
    metadata = _mapping(scored.get("sample_metadata"))
    place = f"{lines.path}, line {line.number}"
    if suite == "ocrbench":
        row: dict[str, Any] = ocr_row(asked, golds, metadata)
    else:
        row = {"problem": _problem(asked), "answer": golds[0], "id": str(scored.get("group_id", value.get("index")))}
    return Answer(
        row=row,
        sample=0,
        asked=asked,
        text=text,
        place=place,
        reasoning="" if said is None else text_of(said.get("content"), kind="reasoning"),
    )


def _problem(asked: str) -> str:
    """The problem inside evalscope's prompt: without the paragraph before and the one after it."""
    parts = asked.strip().split("\n\n")
    return "\n\n".join(parts[1:-1]) if len(parts) > 2 and "boxed" in parts[0] and "boxed" in parts[-1] else asked


def _golds(target: object) -> list[str]:
    """Texts; evalscope keeps OCRBench's alternatives as the JSON text of a list."""
    found = [text for text in (target if isinstance(target, list) else [target]) if isinstance(text, str) and text]
    if len(found) == 1 and found[0].startswith("["):
        try:
            listed = json.loads(found[0])
        except (ValueError, RecursionError):
            return found
        return [str(text) for text in listed if text] if isinstance(listed, list) else found
    return found


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
