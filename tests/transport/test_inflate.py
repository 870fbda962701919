"""Undoing a content encoding: any cut of the bytes, any number of members, never more at a time than one step."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvv.transport.inflate import STEP, BadEncoding, Inflater


def unpack(encoding: str, packets: list[bytes]) -> bytes:
    inflater = Inflater(encoding)
    pieces = [piece for packet in packets for piece in inflater.feed(packet)]
    inflater.finish()
    assert all(0 < len(piece) <= STEP for piece in pieces)
    return b"".join(pieces)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


PACK = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "raw": lambda data: zlib.compress(data)[2:-4],
}


@pytest.mark.parametrize("kind", PACK)
@given(data=st.binary(max_size=2000), places=st.lists(st.integers(0, 3000), max_size=6))
def test_any_cut_gives_the_same_bytes(kind: str, data: bytes, places: list[int]) -> None:
    encoding = "deflate" if kind == "raw" else kind
    assert unpack(encoding, cut(PACK[kind](data), places)) == data


@pytest.mark.parametrize("size", [STEP - 1, STEP, STEP + 1, 2 * STEP, 5 * STEP])
@pytest.mark.parametrize("kind", PACK)
def test_sizes_around_a_step_are_whole(kind: str, size: int) -> None:
    encoding = "deflate" if kind == "raw" else kind
    assert unpack(encoding, [PACK[kind](b"a" * size)]) == b"a" * size


@given(
    parts=st.lists(st.binary(max_size=200), min_size=1, max_size=4), places=st.lists(st.integers(0, 2000), max_size=4)
)
def test_a_gzip_of_several_members_is_their_sum(parts: list[bytes], places: list[int]) -> None:
    assert unpack("gzip", cut(b"".join(map(gzip.compress, parts)), places)) == b"".join(parts)


@given(data=st.binary(max_size=300), encoding=st.sampled_from(["gzip", "deflate"]))
def test_any_bytes_give_bytes_or_bad_encoding(data: bytes, encoding: str) -> None:
    with suppress(BadEncoding):
        unpack(encoding, [data])


def test_an_empty_body_is_no_error() -> None:
    assert unpack("gzip", []) == b""


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, gzip"])
def test_another_encoding_is_refused(encoding: str) -> None:
    with pytest.raises(BadEncoding, match="not asked for"):
        Inflater(encoding)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_missing_end_is_bad(encoding: str) -> None:
    with pytest.raises(BadEncoding, match="ends before its end"):
        unpack(encoding, [PACK[encoding](b"hello")[:-1]])


def test_a_flipped_checksum_is_bad() -> None:
    packed = bytearray(gzip.compress(b"hello"))
    packed[-5] ^= 1
    with pytest.raises(BadEncoding):
        unpack("gzip", [bytes(packed)])
