"""BEAM's three public forms give the same rows, and the question files of the public sets byte for byte."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.data import DataError, load, load_spec, pull, verify
from kvv.data.beam import ABILITIES, from_hub, question_lines, questions_sha256, read_beam
from kvv.data.literals import LiteralError, parse_literal
from kvv.data.local import read_file

SHA256 = {
    "100K": "6bf72c2bde47d7de95108e5585c3eec7ee891ae326dd52ec17d760ed2801d782",
    "1M": "0882ca1ea1dfffa4645463b94c44156277e4da082fb9a1a68ceeca852b4fc2f4",
}
BYTES = {"100K": 303_780, "1M": 652_846}
GOLD = {"abstention": "ideal_response", "contradiction_resolution": "ideal_answer", "summarization": "ideal_summary"}
NO_GOLD = ("instruction_following", "preference_following")

SPEC = load_spec("beam", "100K")


def probing(questions: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The official form of normal questions: ability -> list, the gold answer under the ability's own name."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for question in questions:
        ability = question["question_type"]
        official = {"question": question["question"], "rubric": question["rubric"], "why": "not kept"}
        if question["difficulty"]:
            official["difficulty"] = question["difficulty"]
        if ability not in NO_GOLD:
            official[GOLD.get(ability, "answer")] = question["gold_answer"]
        found[ability].append(official)
    return dict(found)


def batches(messages: list[dict[str, str]]) -> list[dict[str, Any]]:
    """The official form of a conversation: batches of turns of messages."""
    turns = [
        [{"id": n, **message} for n, message in enumerate(messages[at : at + 2])] for at in range(0, len(messages), 2)
    ]
    half = len(turns) // 2
    return [
        {"batch_number": n, "time_anchor": "March-15-2024", "turns": part}
        for n, part in enumerate((turns[:half], turns[half:]), 1)
    ]


def official_folder(rows: list[dict[str, Any]], root: Path, size: str) -> Path:
    for row in rows:
        folder = root / "chats" / size / row["chat_id"]
        (folder / "probing_questions").mkdir(parents=True)
        (folder / "chat.json").write_text(json.dumps(batches(row["messages"])), "utf-8")
        (folder / "chat_trunecated.json").write_text("[]", "utf-8")  # the shortened copy is not read
        (folder / "probing_questions" / "probing_questions.json").write_text(
            json.dumps(probing(row["questions"])), "utf-8"
        )
    return root


@pytest.fixture(scope="module")
def fixture_rows() -> list[dict[str, Any]]:
    return [dict(row) for row in load("beam", fixture=True).rows]


def bare(rows: Any) -> list[Any]:
    """Rows without the fixture's own columns and without the size, which is a matter of names."""
    own = ("right", "wrong")
    return [
        (row["chat_id"], row["messages"], [{k: v for k, v in q.items() if k not in own} for q in row["questions"]])
        for row in rows
    ]


def test_the_fixture_asks_all_ten_abilities_of_two_conversations(fixture_rows: list[dict[str, Any]]) -> None:
    assert [sorted(q["question_type"] for q in row["questions"]) for row in fixture_rows] == [sorted(ABILITIES)] * 2
    for row in fixture_rows:
        assert [message["role"] for message in row["messages"]] == ["user", "assistant"] * (len(row["messages"]) // 2)


@pytest.mark.parametrize("size", ["100K", "1M"])
def test_the_question_files_have_the_published_checksums(size: str, shared: Path) -> None:
    """Built from the official form, as KVV's preparation does, out of rows that were read from KVV's."""
    known = read_file(shared / "data" / "beam" / f"beam_{size.lower()}_questions.jsonl", SPEC)
    asked: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for question in known:
        asked[question["chat_id"]].append(question)
    chat = [{"role": "user", "content": "hello"}]
    rows = from_hub(
        [
            {"conversation_id": chat_id, "chat": chat, "probing_questions": repr(probing(qs))}
            for chat_id, qs in asked.items()
        ],
        SPEC,
        "t",
    )
    assert questions_sha256(rows) == SHA256[size]
    assert len(question_lines(rows)) == BYTES[size]


def test_the_official_folders_are_rewritten_in_kvvs_layout(shared: Path, tmp_path: Path) -> None:
    rows = [dict(row) for row in load("beam", path=shared / "data" / "beam", variant="100K").rows]
    source = official_folder(rows, tmp_path / "official", "100K")
    report = pull("beam", into=tmp_path / "copy", mirror=str(source), variant="100K")
    assert report.ok, str(report)
    assert (report.rows, report.expected_sha256) == (20, SHA256["100K"])
    written = (tmp_path / "copy" / "beam_100k_questions.jsonl").read_bytes()
    assert written == (shared / "data" / "beam" / "beam_100k_questions.jsonl").read_bytes()
    chats = gzip.decompress((tmp_path / "copy" / "beam_100k_chats.jsonl.gz").read_bytes())
    assert chats == gzip.decompress((shared / "data" / "beam" / "beam_100k_chats.jsonl.gz").read_bytes())
    assert bare(load("beam", path=tmp_path / "copy", variant="100K").rows) == bare(rows)


def test_a_copy_whose_questions_are_other_ones_is_refused(fixture_rows: list[dict[str, Any]], tmp_path: Path) -> None:
    source = official_folder(fixture_rows, tmp_path / "official", "100K")
    with pytest.raises(DataError, match="20 expected"):
        pull("beam", into=tmp_path / "copy", mirror=str(source), variant="100K")
    assert not (tmp_path / "copy").exists()


def test_every_form_gives_the_same_rows(fixture_rows: list[dict[str, Any]], tmp_path: Path) -> None:
    folders = read_beam(official_folder(fixture_rows, tmp_path / "official", "100K"), SPEC).rows
    columns = [
        {
            "conversation_id": row["chat_id"],
            "chat": [row["messages"][:40], row["messages"][40:]],
            "probing_questions": repr(probing(row["questions"])),
        }
        for row in fixture_rows
    ]
    hub = from_hub(columns, SPEC, "hub")
    literal = from_hub([{**row, "chat": repr(row["chat"])} for row in columns], SPEC, "hub")
    (tmp_path / "hub.jsonl").write_text("".join(json.dumps(row) + "\n" for row in columns), "utf-8")
    file = read_beam(tmp_path / "hub.jsonl", SPEC).rows
    literals = [{**row, "chat": repr(row["chat"])} for row in columns]
    pd.DataFrame(literals).to_parquet(tmp_path / "literals.parquet")
    pq.write_table(pa.Table.from_pylist(columns), tmp_path / "lists.parquet")
    saved = tmp_path / "saved"
    datasets.DatasetDict({"100K": datasets.Dataset.from_list(columns)}).save_to_disk(str(saved))
    on_disk = [
        read_beam(path, SPEC).rows for path in (tmp_path / "literals.parquet", tmp_path / "lists.parquet", saved)
    ]
    for rows in (folders, hub, literal, file, *on_disk):
        assert bare(rows) == expected(fixture_rows)


def expected(rows: list[dict[str, Any]]) -> list[Any]:
    """The two abilities without a gold answer take their rubric for it."""
    found = bare(rows)
    for _, _, questions in found:
        for question in questions:
            if question["question_type"] in NO_GOLD:
                question["gold_answer"] = "\n".join(question["rubric"])
    return found


def test_ten_million_tokens_come_as_numbered_plans() -> None:
    chat = [
        {
            "plan-10": [[{"role": "user", "content": "last"}]],
            "plan-2": [[{"role": "user", "content": "second"}]],
            "plan-1": None,
        }
    ]
    question = {"question": "q", "answer": "a", "rubric": ["r"]}
    (row,) = from_hub(
        [{"conversation_id": 7, "chat": chat, "probing_questions": {"abstention": [question]}}], SPEC, "hub"
    )
    assert [message["content"] for message in row["messages"]] == ["second", "last"]
    assert row["chat_id"] == "7"


def test_missing_conversations_are_said_and_of_two_sizes_one_must_be_chosen(shared: Path) -> None:
    found = load("beam", path=shared / "data" / "beam", variant="1M")
    assert (len(found.rows), sum(len(row["questions"]) for row in found.rows)) == (12, 240)
    assert "12 of 35 conversations" in found.origin
    with pytest.raises(DataError, match="100K, 1M"):
        load("beam", path=shared / "data" / "beam", variant="500K")


def written(folder: Path, **files: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    return folder


CHAT = json.dumps({"chat_id": "1", "messages": [{"role": "user", "content": "hi"}]}).encode() + b"\n"
QUESTION: dict[str, Any] = {
    "chat_id": "1",
    "question_type": "abstention",
    "question_index": 0,
    "question": "q",
    "gold_answer": "a",
}
QUESTION |= {"rubric": ["r"], "difficulty": ""}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"question_type": "telepathy"}, "row 1: no ability 'telepathy'"),
        ({"rubric": []}, "row 1: the rubric is no list of texts"),
        ({"rubric": "r"}, "row 1: the rubric is no list of texts"),
        ({"question": ""}, "row 1: question is ''"),
        ({"question_index": "0"}, "row 1: question_index is no integer"),
        ({"chat_id": 1}, "row 1: chat_id is no text"),
    ],
)
def test_a_bad_question_is_named_with_file_and_row(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    lines = json.dumps({**QUESTION, **change}).encode()
    folder = written(tmp_path / "d", beam_chats__jsonl=CHAT, beam_questions__jsonl=lines)
    with pytest.raises(DataError, match=words) as caught:
        load("beam", path=folder)
    assert "beam_questions.jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_broken_files_are_named(tmp_path: Path) -> None:
    good = json.dumps(QUESTION).encode()
    packed = gzip.compress(CHAT * 50)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    for chats, words in (
        (packed[:-20], "truncated"),
        (pointer, "Git LFS pointer"),
        (gzip.compress(b'{"chat_id": "1"}\n'), "no message"),
    ):
        folder = written(tmp_path / words.replace(" ", "-"), beam_questions__jsonl=good, beam_chats__jsonl__gz=chats)
        with pytest.raises(DataError, match=words):
            load("beam", path=folder)
    messages = json.dumps({"chat_id": "1", "messages": [{"role": "user", "content": 5}]}).encode()
    with pytest.raises(DataError, match="row 1: a message has the role 'user' and content of type int"):
        load("beam", path=written(tmp_path / "five", beam_questions__jsonl=good, beam_chats__jsonl=messages))


def test_a_hub_row_without_a_column_is_named() -> None:
    with pytest.raises(DataError, match="row 1: column 'probing_questions' is missing"):
        from_hub([{"conversation_id": "1", "chat": []}], SPEC, "hub")


def test_verify_says_what_a_copy_lacks(shared: Path) -> None:
    report = verify("beam", shared / "data" / "beam", variant="1M")
    assert not report.ok
    assert any("12 of 35" in problem for problem in report.problems)


# --- literals ----------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_repr_writes_is_read_back(value: Any) -> None:
    assert parse_literal(repr(value)) == value


@given(st.text(max_size=60) | st.text(alphabet="[](){},:'\"\\x0 1.eTruNon", max_size=60))
def test_no_text_raises_anything_but_its_own_error(text: str) -> None:
    with suppress(LiteralError):
        parse_literal(text)


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "1 + 1", "f'{1}'", "[" * 100_000, "{[]: 1}", "'open", "9" * 1_000, "[1 2]", r"'\U99999999'"],
)
def test_code_and_excess_are_refused(text: str) -> None:
    with pytest.raises(LiteralError):
        parse_literal(text)
