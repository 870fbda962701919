"""BEAM's three public forms as one: a row for each conversation, ``{chat_id, size, messages, questions}``.

- the hub's columns (``Mohammadta/BEAM``: conversation_id, chat, probing_questions; the last two may be Python
literals);
- KVV's two files, ``beam_<size>_chats.jsonl[.gz]`` (chat_id, messages) and ``beam_<size>_questions.jsonl``;
- the official repository's folders, ``chats/<size>/<id>/{chat.json, probing_questions/probing_questions.json}``, of
which ``chat.json`` is
  read although a shortened copy may stand beside it: KVV's preparation does the same.

A question is ``{question_type, question_index, question, gold_answer, rubric, difficulty}``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvv.data.literals import LiteralError, parse_literal
from kvv.data.local import Row, read_file, read_json_file, read_path
from kvv.data.spec import DataError, DatasetSpec

ABILITIES = (
    "abstention",
    "contradiction_resolution",
    "event_ordering",
    "information_extraction",
    "instruction_following",
    "knowledge_update",
    "multi_session_reasoning",
    "preference_following",
    "summarization",
    "temporal_reasoning",
)
#: where the gold answer stands, by ability; two abilities have none, and their rubric stands in for it, as in KVV's
#: files
GOLD_FIELDS = ("answer", "ideal_response", "ideal_answer", "ideal_summary")
QUESTION_FIELDS = ("chat_id", "question_type", "question_index", "question", "gold_answer", "rubric", "difficulty")
#: of our fixture alone: what the reference endpoint answers, rightly and wrongly
FIXTURE_FIELDS = ("right", "wrong")
ROLES = frozenset({"user", "assistant", "system"})
#: batches, plans and turns nest four deep
MAX_DEPTH = 8

_FILE = re.compile(r"(?P<kind>chats|questions)(?P<rest>[^/\\]*)\.jsonl(\.gz)?$", re.IGNORECASE)
_SIZE = re.compile(r"(?<![0-9a-z])([0-9]{1,4}[km])(?![0-9a-z])", re.IGNORECASE)
_PLAN = re.compile(r"plan-([0-9]{1,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """``note`` says what was left out, "" where nothing was."""

    rows: list[Row]
    note: str = ""


def read_beam(path: Path, spec: DatasetSpec) -> Read:
    """All conversations of one size, whatever form the path has. DataError names file and row."""
    if path.is_dir():
        pairs = _pairs(path)
        if pairs:
            return _read_pair(path, pairs, spec)
        if chats := _chat_files(path, spec):
            return Read(rows=[_official(chat, spec) for chat in chats])
    rows = read_path(path, spec)
    return Read(rows=from_hub(rows, spec, str(path)))


def from_hub(rows: Sequence[Mapping[str, Any]], spec: DatasetSpec, where: str) -> list[Row]:
    """The hub's rows, or rows of the normal form, as they are."""
    found = []
    for number, row in enumerate(rows, 1):
        place = f"{where}: row {number}"
        if "questions" in row and "messages" in row:
            found.append({"size": spec.variant, **row})
            continue
        for column in ("conversation_id", "chat", "probing_questions"):
            if column not in row:
                raise DataError(
                    f"{place}: column {column!r} is missing; there are {', '.join(map(repr, list(row)[:12]))[:300]}"
                )
        chat = _parsed(row["chat"], f"{place}: column 'chat'")
        questions = _parsed(row["probing_questions"], f"{place}: column 'probing_questions'")
        found.append(_row(str(row["conversation_id"]), spec.variant, chat, questions, place))
    return found


def _parsed(value: Any, where: str) -> Any:
    """A value, or the Python literal (or JSON text) that stands for it."""
    if not isinstance(value, str):
        return value
    try:
        return parse_literal(value)
    except LiteralError as literal:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise DataError(f"{where}: {literal}") from None


def _row(chat_id: str, size: str, chat: Any, questions: Any, where: str) -> Row:
    messages = [_message(item, where) for item in _messages(chat, where, 0)]
    if not messages:
        raise DataError(f"{where}: the conversation holds no message")
    return {"chat_id": chat_id, "size": size, "messages": messages, "questions": list(_questions(questions, where))}


# --- conversations ---------------------------------------------------------------------------------


def _messages(value: Any, where: str, depth: int) -> Iterator[Mapping[str, Any]]:
    """Messages in order out of batches, turns and, at ten million tokens, plans."""
    if depth > MAX_DEPTH:
        raise DataError(f"{where}: the conversation nests deeper than {MAX_DEPTH}")
    if isinstance(value, Mapping):
        if "role" in value and "content" in value:
            yield value
        elif "turns" in value:
            yield from _messages(value["turns"], where, depth + 1)
        else:
            for _, item in sorted(value.items(), key=lambda pair: _plan_number(pair[0])):
                if isinstance(item, list | Mapping):
                    yield from _messages(item, where, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _messages(item, where, depth + 1)
    elif value is not None:
        raise DataError(f"{where}: the conversation holds a {type(value).__name__} where a turn should be")


def _plan_number(name: str) -> int:
    """plan-10 comes after plan-9; other names keep their order."""
    found = _PLAN.fullmatch(str(name))
    return int(found[1]) if found else 0


def _message(message: Mapping[str, Any], where: str) -> Row:
    role, content = message["role"], message["content"]
    if role not in ROLES or not isinstance(content, str):
        raise DataError(f"{where}: a message has the role {role!r:.40} and content of type {type(content).__name__}")
    return {"role": role, "content": content}


# --- questions -------------------------------------------------------------------------------------


def _questions(value: Any, where: str) -> Iterator[Row]:
    """From the official form, ability -> list of questions."""
    if not isinstance(value, Mapping):
        raise DataError(f"{where}: the probing questions are a {type(value).__name__}, no mapping")
    for ability, items in value.items():
        if not isinstance(items, list):
            raise DataError(f"{where}: the questions of {ability!r:.60} are no list")
        for index, item in enumerate(items):
            if not isinstance(item, Mapping):
                raise DataError(f"{where}: question {index} of {ability!r:.60} is no object")
            rubric = item.get("rubric")
            gold = next((item[name] for name in GOLD_FIELDS if isinstance(item.get(name), str)), None)
            if gold is None and isinstance(rubric, list):
                gold = "\n".join(map(str, rubric))
            yield _question(
                {
                    **item,
                    "question_type": ability,
                    "question_index": index,
                    "gold_answer": gold,
                    "difficulty": item.get("difficulty") or "",
                },
                f"{where}: question {index} of {ability!r:.60}",
            )


def _question(item: Mapping[str, Any], where: str) -> Row:
    """The fields that are kept, checked."""
    question = {name: item.get(name) for name in QUESTION_FIELDS[1:]}
    question |= {name: item[name] for name in FIXTURE_FIELDS if isinstance(item.get(name), str)}
    if question["question_type"] not in ABILITIES:
        raise DataError(f"{where}: no ability {question['question_type']!r:.60}; known: {', '.join(ABILITIES)}")
    if not isinstance(question["question_index"], int) or isinstance(question["question_index"], bool):
        raise DataError(f"{where}: question_index is no integer")
    for name in ("question", "gold_answer", "difficulty"):
        if not isinstance(question[name], str) or (name == "question" and not question[name]):
            raise DataError(f"{where}: {name} is {question[name]!r:.60}, no text")
    rubric = question["rubric"]
    if not isinstance(rubric, list) or not rubric or not all(isinstance(line, str) and line for line in rubric):
        raise DataError(f"{where}: the rubric is no list of texts")
    return question


# --- KVV's two files -------------------------------------------------------------------------------


def _pairs(folder: Path) -> dict[str, dict[str, Path]]:
    """Size (as in the file's name, upper case, "" for none) -> kind -> file."""
    found: dict[str, dict[str, Path]] = defaultdict(dict)
    for path in sorted(folder.iterdir()):
        kind = _FILE.search(path.name)
        if kind and path.is_file():
            size = _SIZE.search(path.name.replace("_", " "))
            named = size[1].upper() if size else ""
            found["100K" if named == "128K" else named][kind["kind"].lower()] = path
    return {size: files for size, files in found.items() if set(files) == {"chats", "questions"}}


def _read_pair(folder: Path, pairs: Mapping[str, Mapping[str, Path]], spec: DatasetSpec) -> Read:
    size = spec.variant if spec.variant in pairs else next(iter(pairs)) if len(pairs) == 1 else None
    if size is None:
        raise DataError(f"{folder}: holds the sizes {', '.join(pairs)}, not {spec.variant}: choose one with --variant")
    chats, questions = pairs[size]["chats"], pairs[size]["questions"]
    asked: dict[str, list[Row]] = defaultdict(list)
    for number, row in enumerate(read_file(questions, spec), 1):
        where = f"{questions}: row {number}"
        if not isinstance(row.get("chat_id"), str):
            raise DataError(f"{where}: chat_id is no text")
        asked[row["chat_id"]].append(_question(row, where))
    rows: list[Row] = []
    for number, row in enumerate(read_file(chats, spec), 1):
        where = f"{chats}: row {number}"
        chat_id = row.get("chat_id")
        if not isinstance(chat_id, str):
            raise DataError(f"{where}: chat_id is no text")
        messages = [_message(item, where) for item in _messages(row.get("messages"), where, 0)]
        if not messages:
            raise DataError(f"{where}: the conversation holds no message")
        if chat_id in asked:
            rows.append({"chat_id": chat_id, "size": size, "messages": messages, "questions": asked.pop(chat_id)})
    if not rows:
        raise DataError(f"{folder}: no conversation has a question")
    left = sum(map(len, asked.values()))
    note = (
        f"{len(rows)} of {len(rows) + len(asked)} conversations, the {left} questions of the others were left out"
        if left
        else ""
    )
    return Read(rows=rows, note=note)


def question_lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """KVV's question file, byte for byte."""
    lines = []
    for row in rows:
        for question in row["questions"]:
            record = {"chat_id": row["chat_id"], **{name: question[name] for name in QUESTION_FIELDS[1:]}}
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    return "".join(lines).encode("utf-8", "surrogatepass")


def questions_sha256(rows: Sequence[Mapping[str, Any]]) -> str:
    return hashlib.sha256(question_lines(rows)).hexdigest()


def write_layout(rows: Sequence[Mapping[str, Any]], size: str, folder: Path) -> None:
    """KVV's two files. The compressed one carries no time and no name: the same rows give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"beam_{size.lower()}_questions.jsonl").write_bytes(question_lines(rows))
    with (
        (folder / f"beam_{size.lower()}_chats.jsonl.gz").open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as out,
    ):
        for row in rows:
            record = {"chat_id": row["chat_id"], "messages": row["messages"]}
            out.write((json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass"))


# --- the official folders --------------------------------------------------------------------------


def _chat_files(folder: Path, spec: DatasetSpec) -> list[Path]:
    for root in (folder / "chats" / spec.variant, folder / spec.variant, folder):
        files = [path for path in root.glob("*/chat.json") if path.is_file()]
        if files:
            return sorted(
                files, key=lambda path: (not path.parent.name.isdecimal(), _number(path.parent.name), path.parent.name)
            )
    if (folder / "chats").is_dir():
        sizes = sorted(path.name for path in (folder / "chats").iterdir() if path.is_dir())
        raise DataError(
            f"{folder}: holds no conversation of the size {spec.variant}; there are {', '.join(sizes)[:200]}"
        )
    return []


def _number(name: str) -> int:
    return int(name) if name.isdecimal() and len(name) < 10 else 0


def _official(chat: Path, spec: DatasetSpec) -> Row:
    probing = chat.parent / "probing_questions" / "probing_questions.json"
    return _row(chat.parent.name, spec.variant, read_json_file(chat), read_json_file(probing), str(chat.parent))
