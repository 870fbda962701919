"""Bodies, inputs and frames: stored once, given back byte for byte."""

from __future__ import annotations

import json
import pickle
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvv.core import Exchange, Fragment, Frame, Identity, Observation, Request, Role, Shape
from kvv.protocol.encode import EncodedBody, encode
from kvv.protocol.reader import Received
from kvv.storage.store import Store, StoreError
from kvv.storage.store.blobs import LARGE_PART, BlobReader, BlobWriter, Packer, StoredBody, Unpacker
from kvv.storage.store.schema import connect, create_tables


def count_blobs(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        (number,) = connection.execute("SELECT count(*) FROM blob").fetchone()
    connection.close()
    return int(number)


def conversation(seed: int = 0, size: int = 300_000) -> bytes:
    generator = random.Random(seed)
    message = {"role": "user", "content": "".join(generator.choices("abcdefgh ", k=size))}
    return json.dumps(message).encode()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=20) | st.integers(0, 2).map(lambda n: bytes([n]) * (LARGE_PART + n)), max_size=6))
def test_any_parts_come_back_in_their_order(parts: list[bytes]) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create_tables(connection)
    number, layout = BlobWriter(connection, Packer()).put_body(parts)
    read = BlobReader(connection, Unpacker()).body_parts(number, layout)
    connection.close()
    assert b"".join(read) == b"".join(parts)


def test_a_conversation_asked_twenty_questions_is_stored_once(store: Store, make: Any) -> None:
    history = Fragment.of(conversation(), splice=True)
    case = make.case(inputs={"history": history})
    store.put_cases([case], {})
    for ask in range(20):
        body = {"model": "m", "messages": [history, {"role": "user", "content": f"question {ask}"}]}
        make.put(store, make.identity(ask=ask), body=body)
    store.flush()
    assert count_blobs(store.path) == 21
    stored = list(store.exchanges())
    assert [json.loads(item.body)["messages"][1]["content"] for item in stored] == [
        f"question {ask}" for ask in range(20)
    ]
    assert stored[0].parts[1] is stored[19].parts[1]
    assert stored[7].request.body["messages"][0] == json.loads(history.data)  # type: ignore[call-overload]
    assert store.case(case.id) == case


def test_equal_bodies_are_stored_once(store: Store, make: Any) -> None:
    for sample in range(5):
        make.put(
            store, make.identity(sample=sample), body={"model": "m", "messages": [{"role": "user", "content": "same"}]}
        )
    store.flush()
    assert count_blobs(store.path) == 1


def test_a_raw_body_comes_back_as_bytes_and_a_mapping_as_a_mapping(store: Store, make: Any) -> None:
    make.put(store, make.identity(ask=0), body=b'{"model": "m"}')
    make.put(store, make.identity(ask=1), body={"model": "m", "stop": None, "n": 2**70})
    make.put(store, make.identity(ask=2), body=b"\xff\xfe not JSON")
    store.flush()
    bodies = [item.request.body for item in store.exchanges()]
    assert bodies == [b'{"model": "m"}', {"model": "m", "stop": None, "n": 2**70}, b"\xff\xfe not JSON"]


def test_a_request_without_a_body_is_stored(store: Store, make: Any) -> None:
    received = make.received(make.identity())
    store.put_exchange(received, Request(body=b"", method="GET", path="/models"), EncodedBody(parts=(), size=0))
    store.flush()
    (stored,) = store.exchanges()
    assert (stored.body, stored.request) == (b"", Request(body=b"", method="GET", path="/models"))


def test_a_large_body_is_parsed_when_looked_into_and_can_go_to_a_worker(store: Store, make: Any) -> None:
    body = {"messages": [Fragment.of(conversation())]}
    make.put(store, make.identity(), body=body)
    store.flush()
    (stored,) = store.exchanges()
    assert isinstance(stored.request.body, StoredBody)
    assert pickle.loads(pickle.dumps(stored.request)).body == {"messages": [json.loads(conversation())]}  # noqa: S301 - our own bytes


@pytest.mark.parametrize("count", [0, 1, 3, 2_000])
def test_frames_come_back_raw_whether_they_stand_with_the_record_or_apart(store: Store, make: Any, count: int) -> None:
    frames = tuple(
        Frame(number, number * 1.1, b"\xff{}" * (number % 90), "" if number % 2 else "e\x00") for number in range(count)
    )
    make.put(store, make.identity(), frames=frames)
    store.flush()
    (stored,) = store.exchanges()
    assert stored.exchange.frames == frames


def test_an_exchange_comes_back_whole(store: Store, make: Any) -> None:
    received = make.put(
        store, make.identity(purpose="control"), usage={"prompt_tokens": 10**30, "x": None}, cost=0.25, stream=True
    )
    store.flush()
    (stored,) = store.exchanges()
    assert stored.exchange.id == 1
    assert Received(exchange=stored.exchange, observation=stored.observation, findings=()) == _with_id(received)
    assert (stored.request.purpose, stored.request.stream, stored.cost) == ("control", True, 0.25)


def _with_id(received: Received) -> Received:
    fields = {name: getattr(received.exchange, name) for name in Exchange.__dataclass_fields__} | {"id": 1}
    return Received(exchange=Exchange(**fields), observation=received.observation, findings=received.findings)


def test_text_that_no_text_column_can_hold_does_not_stop_the_writer(store: Store) -> None:
    identity = Identity(case="suite/one", sample=0, step=0, ask=0, purpose="probe")
    exchange = Exchange(
        identity=identity,
        attempt=1,
        role=Role.TARGET,
        started="",
        status=200,
        headers=(("x-request-id", "\x00\ud800"),),
    )
    observation = Observation(shape=Shape.COMPLETION, id="\ud83d", model="\udfff\x00")
    store.put_exchange(Received(exchange=exchange, observation=observation, findings=()), Request(body={}), encode({}))
    store.flush()
    (stored,) = store.exchanges()
    assert (stored.observation, stored.exchange.headers) == (observation, exchange.headers)


def test_cases_keep_lists_tuples_bytes_and_schema_references(store: Store, make: Any) -> None:
    inputs = {"tools": [{"$ref": "#/x"}], "limits": (1, 2.5), "image": b"\x89PNG" * 9, "text": "\ud800", "none": None}
    store.put_cases([make.case(inputs=inputs), make.case("suite/two")], {"suite/one": 32})
    store.flush()
    (one, samples), (_, default) = list(store.cases("suite"))
    assert (one.inputs, samples, default) == (inputs, 32, 1)
    assert list(store.cases("another")) == []


def test_a_damaged_blob_is_noticed(store_path: Path, make: Any) -> None:
    with Store.create(store_path, {}) as store:
        make.put(store, make.identity())
    connection = connect(store_path)
    data = bytearray(connection.execute("SELECT data FROM record").fetchone()[0])
    data[len(data) // 2] ^= 0x10
    connection.execute("UPDATE record SET data = ?", (bytes(data),))
    connection.close()
    with (
        Store.open(store_path, read_only=True) as store,
        pytest.raises(StoreError, match=r"store\.sqlite: damaged record"),
    ):
        list(store.exchanges())


def test_a_crafted_frame_that_claims_gigabytes_is_refused() -> None:
    header = bytes.fromhex("28b52ffd") + bytes([0xE0]) + (2**40).to_bytes(8, "little")
    with pytest.raises(StoreError, match="believable"):
        Unpacker().unpack(header + b"\x01\x00\x00")
