"""inspect-ai's logs (``.eval``), KVV's own among them: AIME 2025, OCRBench and MMMU Pro.

An ``.eval`` file is a zip archive of ``header.json`` (``_journal/start.json`` where the run was cut) and one JSON file
a sample and epoch, stored, deflated or, by newer versions, as Zstandard, which Python's own reader does not know. What
stands outside a sample as an attachment is put back. Everything is bounded: a log may be anybody's.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

import zstandard

from kvv.protocol.json_text import parse
from kvv.storage.importers.answers import NO_PICTURE, Answer, assemble, no_further_files, suite_named, text_of
from kvv.storage.importers.recorded import Imported, ImportFileError, ImportOptions
from kvv.suites.ocrbench.scoring import FORMULA_TYPE

#: bytes of one member, of all that are read, and members
MEMBER_LIMIT, TOTAL_LIMIT, MEMBERS = 128 << 20, 8 << 30, 400_000
#: the compression that Python's zipfile cannot read
ZSTANDARD = 93
_LOCAL_HEADER = struct.Struct("<4s22xHH")
#: inspect's stop_reason -> finish_reason
FINISHED = {"max_tokens": "length", "model_length": "length", "stop": "stop", "tool_calls": "tool_calls"}
_ATTACHMENT = re.compile(r"attachment://([0-9a-f]{8,64})")


def read(path: Path, options: ImportOptions) -> Imported:
    """For ``kvv import inspect``. ImportFileError names the file and, where one is the cause, its member."""
    no_further_files(options, "inspect")
    header, samples = _open(path)
    said = header.get("eval")
    spec = said if isinstance(said, dict) else {}
    dataset = spec.get("dataset")
    data = dataset if isinstance(dataset, dict) else {}
    suite = suite_named(spec.get("task"), spec.get("task_registry_name"), data.get("name"), data.get("location"))
    if not suite:
        raise ImportFileError(
            f"{path}: its task {str(spec.get('task'))!r:.60} is none that can be scored here: AIME 2025, OCRBench,"
            " MMMU Pro"
        )
    told = spec.get("metadata")
    ours = isinstance(told, dict) and "kvv_run" in told  # `kvv export inspect`: its ids are our cases'
    answers = [_answer(suite, f"{path}, {name}", sample, ours=ours) for name, sample in samples]
    if not answers:
        raise ImportFileError(
            f"{path}: holds no samples (a log made with --no-log-samples, or of a run that never began)"
        )
    shown = suite == "mmmu_pro" and not any(_options_shown(answer) for answer in answers)
    notes = [f"a log of inspect-ai, task {str(spec.get('task'))[:60]}, begun {str(spec.get('created'))[:40]}"]
    if header.get("status") not in ("success", None):
        notes.append(f"its status is {str(header.get('status'))[:20]}: questions may be missing")
    model = str(spec.get("model") or "").rpartition("/")[2]
    return assemble(suite, path, answers, options, model=model, notes=notes, config="vision" if shown else "")


# --- the archive -----------------------------------------------------------------------------------


def _open(path: Path) -> tuple[Mapping[str, Any], Iterator[tuple[str, Mapping[str, Any]]]]:
    try:
        archive = zipfile.ZipFile(path)
    except OSError as error:
        raise ImportFileError(f"{path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise ImportFileError(f"{path}: is no .eval log: {str(error)[:100]}") from None
    members = archive.NameToInfo  # of members of one name the last counts, as for inspect
    if len(members) > MEMBERS:
        raise ImportFileError(f"{path}: has more than {MEMBERS:,} members")
    names = [name for name in ("header.json", "_journal/start.json") if name in members]
    if not names:
        raise ImportFileError(f"{path}: is no .eval log: it has no header.json")
    header = _member(path, archive, members[names[0]])
    return header, _samples(path, archive)


def _samples(path: Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, Mapping[str, Any]]]:
    left = TOTAL_LIMIT
    with archive:
        for name, info in archive.NameToInfo.items():
            if name.startswith("samples/") and name.endswith(".json"):
                left -= info.file_size
                if left < 0:
                    raise ImportFileError(f"{path}: its samples have more than {TOTAL_LIMIT >> 30} GiB")
                yield name, _member(path, archive, info)


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Mapping[str, Any]:
    place = f"{path}, {info.filename[:100]!r}"
    if info.file_size > MEMBER_LIMIT or info.flag_bits & 1:
        raise ImportFileError(f"{place}: is encrypted or has more than {MEMBER_LIMIT >> 20} MiB")
    try:
        if info.compress_type == ZSTANDARD:
            with path.open("rb") as file:
                data = _zstandard(file, info)
        else:
            with archive.open(info) as source:
                data = source.read(MEMBER_LIMIT + 1)
    except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise ImportFileError(f"{place}: cannot be read: {str(error)[:100]}") from None
    except Exception as error:  # noqa: BLE001 zlib.error, lzma's, and what else a damaged stream raises
        raise ImportFileError(f"{place}: is damaged: {str(error)[:100]}") from None
    value = parse(data) if len(data) <= MEMBER_LIMIT else None
    if not isinstance(value, dict):
        raise ImportFileError(f"{place}: is no JSON object, or too large")
    return value


def _zstandard(file: BinaryIO, info: zipfile.ZipInfo) -> bytes:
    file.seek(info.header_offset)
    head = file.read(30)
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise ValueError("no member where the directory says")
    _, name, extra = _LOCAL_HEADER.unpack(head)
    file.seek(name + extra, 1)
    with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
        file.read(min(info.compress_size, MEMBER_LIMIT))
    ) as source:
        found: bytes = source.read(MEMBER_LIMIT + 1)
    return found


# --- samples ---------------------------------------------------------------------------------------


def _answer(suite: str, place: str, sample: Mapping[str, Any], *, ours: bool) -> Answer:
    attached = sample.get("attachments")
    attachments = attached if isinstance(attached, dict) else {}

    def put_back(text: str) -> str:
        found = _ATTACHMENT.fullmatch(text)
        kept = attachments.get(found[1]) if found else None
        return kept if isinstance(kept, str) else text

    given = sample.get("input")
    messages = given if isinstance(given, list) else [{"role": "user", "content": given}]
    asked = "\n".join(
        text_of(message.get("content"))
        for message in messages
        if isinstance(message, dict) and message.get("role") == "user"
    )
    epoch, number = sample.get("epoch", 1), sample.get("id")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 1 <= epoch <= 100_000:
        raise ImportFileError(f"{place}: its epoch is {epoch!r:.40}")
    if not isinstance(number, int | str):
        raise ImportFileError(f"{place}: has no id")
    name = unquote(str(number).rpartition("/")[2]) if ours else str(number)
    output = sample.get("output")
    choices = output.get("choices") if isinstance(output, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = choice.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    failed = sample.get("error")
    return Answer(
        row=_row(suite, place, sample, name, put_back(asked)),
        sample=epoch - 1,
        asked=put_back(asked),
        text=None if failed or not choice else put_back(text_of(content)),
        place=place,
        reasoning=put_back(text_of(content, kind="reasoning")),
        finish_reason=FINISHED.get(str(choice.get("stop_reason"))),
        usage=_usage(output),
        error=str(failed.get("message") if isinstance(failed, dict) else failed or "")[:300],
        started=sample.get("started_at"),
        duration_ms=_milliseconds(output),
    )


def _usage(output: object) -> Mapping[str, int]:
    said = output.get("usage") if isinstance(output, dict) else None
    counts = [said.get(name) if isinstance(said, dict) else None for name in ("input_tokens", "output_tokens")]
    if not all(isinstance(count, int) and 0 <= count < 1 << 40 for count in counts):
        return {}
    sent, made = (int(count) for count in counts if count is not None)
    return {"prompt_tokens": sent, "completion_tokens": made, "total_tokens": sent + made}


def _milliseconds(output: object) -> float | None:
    seconds = output.get("time") if isinstance(output, dict) else None
    return seconds * 1000 if isinstance(seconds, int | float) and 0 <= seconds < 1e9 else None


def _row(suite: str, place: str, sample: Mapping[str, Any], number: str, asked: str) -> dict[str, Any]:
    """The question in the data set's own columns."""
    told = sample.get("metadata")
    metadata = told if isinstance(told, dict) else {}
    target = sample.get("target")
    golds = [text for text in (target if isinstance(target, list) else [target]) if isinstance(text, str)]
    if not golds:
        raise ImportFileError(f"{place}: has no target")
    if suite == "aime2025":
        return {"problem": asked, "answer": golds[0], "id": number}
    if suite == "ocrbench":
        return ocr_row(asked, golds, metadata)
    options = metadata.get("options") or sample.get("choices")
    named = metadata.get("index2ans")
    if isinstance(named, dict) and named:
        options = [named[letter] for letter in sorted(named)]
    if not isinstance(options, list | str) or not options:
        raise ImportFileError(f"{place}: names no options (metadata index2ans or options, or choices)")
    return {
        "id": number,
        "question": asked,
        "options": options,
        "answer": golds[0],
        "subject": str(metadata.get("subject") or ""),
    }


def ocr_row(question: str, golds: list[str], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """OCRBench's columns; the data set's name is a part of our case ids."""
    kind = str(metadata.get("question_type") or metadata.get("type") or "")
    name = str(metadata.get("dataset") or metadata.get("dataset_name") or ("HME100k" if kind == FORMULA_TYPE else ""))
    return {"dataset": name, "question": question, "question_type": kind, "answer": golds, "image": NO_PICTURE}


def _options_shown(answer: Answer) -> bool:
    """Whether an option's text is in the question; the config ``vision`` shows them in a picture alone."""
    options = answer.row["options"]
    return (
        any(len(str(option)) > 1 and str(option) in answer.asked for option in options)
        if isinstance(options, list)
        else True
    )
