"""What the importers of other harnesses share: recorded answers to AIME 2025, OCRBench or MMMU Pro become a run's
samples.

Cases are made by the suites themselves out of what the file says of a question, so that a recording and a run of ours
have the same case ids. What another program scored is used for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvv.cases.suite import Context, Settings, Suite, load_suite
from kvv.core import Case, Dataset, Picture, Request
from kvv.core.usage_error import ConfigError
from kvv.data import DataError, load, load_spec
from kvv.data.cache import copy_folder
from kvv.data.copies import read_manifest
from kvv.profiles.profile import Profile, load_profile, pick_profile
from kvv.protocol.classify import MISSING_RESULT, RECORDED_FAILURE
from kvv.storage.importers.recorded import (
    Imported,
    ImportFileError,
    ImportOptions,
    RecordedSample,
    no_scores,
    record_answer,
    record_no_answer,
)
from kvv.suites.mmmu_pro.prompts import RECORDED

#: how other programs' names of a benchmark are told; OCRBench v2 and AIME 2024 are others
NAMES: Mapping[str, re.Pattern[str]] = {
    "aime2025": re.compile(r"aime[_\- ]?(?:20)?25(?![0-9])", re.IGNORECASE),
    "ocrbench": re.compile(r"ocr[_\- ]?bench(?![_\- ]?v?2)", re.IGNORECASE),
    "mmmu_pro": re.compile(r"mmmu[_\- ]?pro", re.IGNORECASE),
}
#: a picture that the recording does not need: answers are judged without it
NO_PICTURE = Picture(digest="", size=0, media="image/jpeg", width=1, height=1, where="recorded")
UNKNOWN_MODEL = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One recorded sample. ``row`` has the columns of the suite's data set, ``sample`` counts from 0, ``asked`` is the
    text that was sent. ``text`` None: no answer, ``error`` says why. ``place`` names file and sample for messages.
    """

    row: Mapping[str, Any]
    sample: int
    asked: str
    text: str | None
    place: str
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    started: object = None
    duration_ms: object = None


def suite_named(*names: object) -> str:
    """The suite that the first of these names that names one means, else ""."""
    for name in names:
        for suite, pattern in NAMES.items():
            if isinstance(name, str) and pattern.search(name):
                return suite
    return ""


def no_further_files(options: ImportOptions, tool: str) -> None:
    """ConfigError where a file of scores or requests was given to an importer that reads one file."""
    no_scores(options)
    if options.requests is not None:
        raise ConfigError(f"--requests: is for k2vv; a file of {tool} holds its own questions")


def assemble(
    suite_id: str,
    path: Path,
    answers: Sequence[Answer],
    options: ImportOptions,
    *,
    model: str,
    notes: Sequence[str],
    config: str = "",
) -> Imported:
    """A recorded run. ``config`` is MMMU Pro's. ImportFileError names a question that the suite cannot make a case of,
    a sample that stands twice or is missing between others.
    """
    name = options.model or model or UNKNOWN_MODEL
    profile = load_profile(pick_profile(name)[0])
    suite = load_suite(suite_id)
    variant = "/".join(filter(None, (RECORDED, config))) if suite_id == "mmmu_pro" else ""
    keyed: dict[str, list[Answer]] = {}
    rows: dict[str, Mapping[str, Any]] = {}
    for answer in answers:
        key = repr(sorted((column, value) for column, value in answer.row.items() if column != "image"))
        rows.setdefault(key, answer.row)
        keyed.setdefault(key, []).append(answer)
    dataset, kept, further = _dataset(suite_id, path, list(rows.values()))
    context = Context(
        model=name,
        profile=profile,
        settings=Settings(stream=False, variant=variant),
        dataset=dataset,
        seed=options.seed,
    )
    try:
        made = suite.cases(context)
    except ValueError as error:
        raise ImportFileError(f"{path}: {error}") from error
    cases: list[Case] = []
    samples: dict[str, int] = {}
    records: list[RecordedSample] = []
    for case, answered in zip([made[place] for place in kept], keyed.values(), strict=True):
        ordered = sorted(answered, key=lambda answer: answer.sample)
        for place, answer in enumerate(ordered):
            if answer.sample != place:
                what = "stands twice" if place and ordered[place - 1].sample == answer.sample else "follows a gap"
                raise ImportFileError(f"{answer.place}: sample {answer.sample + 1} of its question {what}")
        if case.id in samples:
            raise ImportFileError(f"{ordered[0].place}: its question stands twice with other words")
        body = {"model": name, "messages": [{"role": "user", "content": ordered[0].asked}]}
        case = replace(case, inputs={**case.inputs, "body": body})
        cases.append(case)
        samples[case.id] = len(ordered)
        records += [_record(suite, replace(case, sample=answer.sample), answer, profile) for answer in ordered]
    return Imported(
        suite=suite_id,
        cases=cases,
        samples=samples,
        records=records,
        notes=[*notes, *further, *_notes(records)],
        model=name,
        dataset=dataset,
        variant=variant,
    )


def _dataset(suite: str, path: Path, rows: Sequence[Mapping[str, Any]]) -> tuple[Dataset, Sequence[int], Sequence[str]]:
    """The questions as a data set, the places of ``rows`` in it, and notes.

    AIME's problems are looked up by their text in the public copy, where there is one: a part of the set, or ids of
    another's making, then still get the competition's numbers.
    """
    if suite == "aime2025" and (public := _public(suite)) is not None:
        places = {_words(row["problem"]): place for place, row in enumerate(public.rows)}
        found = [places.get(_words(row["problem"])) for row in rows]
        kept = [place for place in found if place is not None]
        same = len(kept) == len(rows) and all(
            str(public.rows[place]["answer"]).strip() == str(row["answer"]).strip()
            for place, row in zip(kept, rows, strict=True)
        )
        if same:
            return public, kept, ["its questions were found in the public set by their text"]
    digest = _digest(rows)
    dataset = Dataset(rows=rows, origin=str(path), revision=f"recorded sha256:{digest[:12]}", sha256=digest)
    notes = []
    if suite == "aime2025" and len(rows) < (load_spec(suite).rows or 0):
        notes = ["a part of AIME 2025 is paired with other runs only once `kvv data pull aime2025` was run here"]
    return dataset, range(len(rows)), notes


def _public(suite: str) -> Dataset | None:
    """The checked copy in the cache; nothing is fetched."""
    try:
        return load(suite) if read_manifest(copy_folder(suite, "")) else None
    except DataError:
        return None


def _words(text: object) -> str:
    return " ".join(str(text).split())


def _digest(rows: Sequence[Mapping[str, Any]]) -> str:
    from hashlib import sha256

    said = [sorted((column, str(value)) for column, value in row.items() if column != "image") for row in rows]
    return sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()


def _record(suite: Suite, case: Case, answer: Answer, profile: Profile) -> RecordedSample:
    request = Request(body=case.inputs["body"], stream=False)
    if answer.text is None:
        reason = RECORDED_FAILURE if answer.error else MISSING_RESULT
        return record_no_answer(
            case, request, reason=reason, detail=(answer.error or "no answer")[:300], started=answer.started
        )
    message = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    body: dict[str, Any] = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason}],
    }
    if answer.usage:
        body["usage"] = dict(answer.usage)
    return record_answer(
        case, request, body, started=answer.started, duration_ms=answer.duration_ms, profile=profile, whole=False
    )


def _notes(records: Sequence[RecordedSample]) -> list[str]:
    notes = ["the answers are scored anew by our rules; what the file says of scores is used for nothing"]
    for reason in (MISSING_RESULT, RECORDED_FAILURE):
        if count := sum(reason in record.observation.deviations for record in records):
            notes.append(f"{count} of {len(records)} samples have no answer: inconclusive ({reason})")
    return notes


def text_of(content: object, *, kind: str = "text") -> str:
    """The text of a message's content: a text, or a list of parts of which those of ``kind`` count."""
    if isinstance(content, str):
        return content if kind == "text" else ""
    parts = content if isinstance(content, list) else []
    said = [part.get(kind) for part in parts if isinstance(part, dict) and part.get("type") == kind]
    return "\n".join(text for text in said if isinstance(text, str))
