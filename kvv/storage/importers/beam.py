"""Recorded answers and scores of KVV's BEAM: one JSON object a line, joined by chat_id, question_type and
question_index, never by position.

No public file of the two was at hand where this was written: an answer is read from the first of ``ANSWER_FIELDS`` that
a line has, a score from ``SCORE_FIELDS``, the judge's scores by rubric item from ``ITEM_FIELDS``. A line with an
``error`` is a recorded failure; KVV counts it 0. Only what was judged is scored: without the items the official reading
and half credit cannot be had, and event ordering has none in KVV's files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from kvv.cases.suite import Context, Settings
from kvv.core import Case, Dataset
from kvv.core.usage_error import ConfigError
from kvv.data.beam import ABILITIES
from kvv.data.spec import canonical_sha256, load_spec
from kvv.profiles.profile import Profile, load_profile, pick_profile
from kvv.protocol.classify import MISSING_RESULT, RECORDED_FAILURE
from kvv.storage.importers.recorded import (
    Imported,
    ImportOptions,
    Lines,
    RecordedLine,
    RecordedSample,
    read_lines,
    record_answer,
    record_no_answer,
)
from kvv.suites.beam.scoring import ORDERING
from kvv.suites.beam.suite import BeamSuite

ANSWER_FIELDS = ("response", "answer", "model_answer", "model_response", "llm_response", "prediction", "output")
SCORE_FIELDS = ("score", "final_score", "llm_judge_score")
ITEM_FIELDS = ("rubric_scores", "item_scores", "scores", "judgments", "judgements", "rubric_results")
MODEL_FIELDS = ("model", "model_name")

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scored:
    """``items`` is None where the file does not hold one score for each rubric item."""

    score: float | None
    items: tuple[float, ...] | None
    failed: str


def read(path: Path, options: ImportOptions) -> Imported:
    """For ``kvv import beam``."""
    if options.requests is not None:
        raise ConfigError("--requests: is for k2vv; an answer file of beam names its own questions")
    return import_beam(path, options.scores)


def import_beam(answers: Path, scores: Path | None) -> Imported:
    """One record for each answer line. ImportFileError names file and line: a line that names no question, a second
    answer to one, a score that belongs to no answer."""
    answer_lines = read_lines(answers)
    lines = _by_key(answer_lines)
    score_lines = read_lines(scores) if scores is not None else None
    scored = (
        {key: _scored(score_lines, line) for key, line in _by_key(score_lines).items()}
        if score_lines is not None
        else {}
    )
    foreign = next((key for key in scored if key not in lines), None)
    if score_lines is not None and foreign is not None:
        raise score_lines.error(_by_key(score_lines)[foreign].number, f"{_name(foreign)} has no answer in {answers}")
    dataset = _dataset(answer_lines, lines)
    model = _model(lines.values())
    profile = load_profile(pick_profile(model)[0])
    suite = BeamSuite()
    context = Context(model=model, profile=profile, settings=Settings(stream=False), dataset=dataset)
    made = {(case.inputs["block"].partition("/")[2], *_place(case)): case for case in suite.cases(context)}
    cases = [
        replace(
            made[key], inputs={**made[key].inputs, "recorded": _recorded(made[key], lines[key].value, scored.get(key))}
        )
        for key in lines
    ]
    records = [_record(case, line, profile) for case, line in zip(cases, lines.values(), strict=True)]
    return Imported(
        suite=suite.id,
        cases=cases,
        samples={case.id: 1 for case in cases},
        records=records,
        notes=_notes(lines.values(), scored, scores),
        model=model,
        dataset=dataset,
    )


def _place(case: Case) -> tuple[str, int]:
    ability, _, index = case.id.rpartition("/")[2].rpartition("-")
    return ability, int(index)


def _name(key: Key) -> str:
    return f"chat {key[0]!r:.40}, {key[1]} {key[2]}"


def _by_key(lines: Lines) -> dict[Key, RecordedLine]:
    found: dict[Key, RecordedLine] = {}
    for line in lines.lines:
        chat, ability, index = (line.value.get(name) for name in ("chat_id", "question_type", "question_index"))
        if isinstance(chat, int) and not isinstance(chat, bool):
            chat = str(chat)
        if (
            not isinstance(chat, str)
            or ability not in ABILITIES
            or not isinstance(index, int)
            or isinstance(index, bool)
        ):
            raise lines.error(
                line.number,
                "names no question: chat_id, question_type (one of the ten abilities) and question_index are needed",
            )
        key = (chat, str(ability), index)
        if key in found:
            raise lines.error(line.number, f"{_name(key)} stands in line {found[key].number} already")
        found[key] = line
    return found


def _dataset(lines: Lines, keyed: Mapping[Key, RecordedLine]) -> Dataset:
    """The questions as rows; the conversations are not in the files and are not needed."""
    rows: dict[str, dict[str, Any]] = {}
    for (chat, ability, index), line in keyed.items():
        value = line.value
        rubric = value.get("rubric")
        question = {
            "question_type": ability,
            "question_index": index,
            "question": value["question"] if isinstance(value.get("question"), str) else "(not recorded)",
            "gold_answer": value["gold_answer"] if isinstance(value.get("gold_answer"), str) else "",
            "rubric": [str(item) for item in rubric] if isinstance(rubric, list) and rubric else ["(not recorded)"],
            "difficulty": "",
        }
        row = rows.setdefault(chat, {"chat_id": chat, "size": "recorded", "messages": [], "questions": []})
        row["questions"].append(question)
    found = list(rows.values())
    digest = canonical_sha256(found, load_spec(BeamSuite.id).columns)
    return Dataset(rows=found, origin=str(lines.path), revision=f"recorded answers sha256:{digest[:12]}", sha256=digest)


def _model(lines: Any) -> str:
    names = Counter(
        line.value[name]
        for line in lines
        for name in MODEL_FIELDS
        if isinstance(line.value.get(name), str) and line.value[name]
    )
    return names.most_common(1)[0][0] if names else "unknown"


def _scored(lines: Lines, line: RecordedLine) -> _Scored:
    value = line.value
    score = next((value[name] for name in SCORE_FIELDS if value.get(name) is not None), None)
    if score is not None and not _number(score):
        raise lines.error(line.number, f"the score is {score!r:.40}, no number")
    failed = value.get("error") or value.get("judge_error") or ""
    if score is not None and not 0 <= score <= 1:
        failed = failed or f"the score is {score!r:.40}, outside 0 to 1: KVV does not clamp what the judge says"
    return _Scored(score=score, items=_items(value), failed=str(failed)[:300])


def _items(value: Mapping[str, Any]) -> tuple[float, ...] | None:
    listed = next((value[name] for name in ITEM_FIELDS if isinstance(value.get(name), list)), None)
    if not listed:
        return None
    numbers: list[Any] = [item.get("score") if isinstance(item, Mapping) else item for item in listed]
    return tuple(map(float, numbers)) if all(_number(number) and 0 <= number <= 1 for number in numbers) else None


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _recorded(case: Case, answer: Mapping[str, Any], scored: _Scored | None) -> dict[str, Any]:
    """What the suite's verdict is made of; a failed judgement gives no score, where KVV has 0."""
    if scored is None:
        return {"kvv_score": None, "reason": "no-score", "detail": "no score file, or no line for this question"}
    if scored.failed or scored.score is None:
        return {
            "kvv_score": None,
            "reason": "judge-failed",
            "detail": scored.failed or "its line has no score",
            "recorded_score": scored.score,
        }
    found: dict[str, Any] = {"kvv_score": float(scored.score)}
    if (
        scored.items is not None
        and case.inputs["ability"] != ORDERING
        and len(scored.items) == len(case.inputs["rubric"])
    ):
        found |= {
            "kvv_score": sum(map(int, scored.items)) / len(scored.items),
            "recorded_score": scored.score,
            "items": list(scored.items),
        }
    return found


def _record(case: Case, line: RecordedLine, profile: Profile) -> RecordedSample:
    request = BeamSuite().step(case, ()).requests[0]  # type: ignore[union-attr]  # the first step of a case is always an Ask
    value = line.value
    error = value.get("error")
    text = next((value[name] for name in ANSWER_FIELDS if isinstance(value.get(name), str)), None)
    if error or text is None:
        reason = RECORDED_FAILURE if error else MISSING_RESULT
        return record_no_answer(case, request, reason=reason, detail=str(error or "the line has no answer")[:300])
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": value.get("finish_reason") or "stop",
    }
    return record_answer(
        case,
        request,
        {"object": "chat.completion", "choices": [choice]},
        started=None,
        duration_ms=None,
        profile=profile,
        whole=False,
    )


def _notes(lines: Any, scored: Mapping[Key, _Scored], scores: Path | None) -> Sequence[str]:
    failed = sum(bool(line.value.get("error")) for line in lines)
    notes = ["the answers were judged by another judge with other prompts; nothing was judged again"]
    if scores is None:
        notes.append("without a score file no answer has a conclusion")
    if failed:
        notes.append(f"{failed} answers are recorded failures: inconclusive ({RECORDED_FAILURE}); KVV counts them 0")
    broken = sum(bool(item.failed) for item in scored.values())
    if broken:
        notes.append(f"{broken} scores are recorded failures or lie outside 0 to 1: inconclusive")
    notes.append("a judgement that failed in KVV stands as a score of 0 there and cannot be told from a wrong answer")
    return notes
