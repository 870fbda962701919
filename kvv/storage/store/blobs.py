"""Content-addressed compressed bytes, and bodies put together from them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import zstandard

from kvv.storage.store.errors import StoreError
from kvv.storage.store.schema import VALUE_LIMIT

#: a body's parts from this size on are stored apart: a shared conversation once, its twenty questions beside it
LARGE_PART = 16 * 1024

#: bodies from this size on are parsed only when somebody looks into them
LAZY_BODY = 256 * 1024

CACHE_BYTES = 64 * 2**20

#: on texts of a few kB the higher level gains nothing and takes a quarter longer
_LEVEL, _SMALL_LEVEL = 3, 1


class Packer:
    """Compresses; for one thread. Each frame carries its plain size and a checksum (SQLite itself notices no flipped
    bit).
    """

    def __init__(self) -> None:
        self._small = zstandard.ZstdCompressor(level=_SMALL_LEVEL, write_checksum=True)
        self._large = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)

    def pack(self, data: bytes) -> bytes:
        return (self._small if len(data) < LARGE_PART else self._large).compress(data)

    def pack_pieces(self, pieces: Iterable[bytes], size: int) -> bytes:
        stream = self._large.compressobj(size=size)
        return b"".join([*(stream.compress(piece) for piece in pieces), stream.flush()])


class Unpacker:
    """Decompresses; for one thread at a time."""

    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor()

    def unpack(self, data: bytes) -> bytes:
        """Raises StoreError for damaged data and for more than ``VALUE_LIMIT`` bytes."""
        try:
            if not 0 <= zstandard.frame_content_size(data) <= VALUE_LIMIT:
                raise StoreError("damaged record: a frame without a believable size")
            return self._decompressor.decompress(data)
        except zstandard.ZstdError as error:
            raise StoreError(f"damaged record: {' '.join(str(error).split())}") from error


class BlobWriter:
    def __init__(self, connection: sqlite3.Connection, packer: Packer) -> None:
        self._connection = connection
        self._packer = packer

    def put(self, data: bytes, digest: bytes | None = None) -> int:
        """The number of the blob with this content, stored now unless it was before."""
        digest = digest or hashlib.sha256(data).digest()
        row = self._connection.execute("SELECT id FROM blob WHERE digest = ?", (digest,)).fetchone()
        if row is not None:
            return int(row[0])
        values = (digest, len(data), self._packer.pack(data))
        return self._connection.execute("INSERT INTO blob (digest, size, data) VALUES (?, ?, ?)", values).lastrowid or 0

    def keep(self, data: bytes) -> str:
        """Stores the bytes and returns their hexadecimal digest."""
        digest = hashlib.sha256(data).digest()
        self.put(data, digest)
        return digest.hex()

    def put_body(self, parts: Sequence[bytes]) -> tuple[int | None, str | None]:
        """Stores a body's parts: the blob of the small ones, and the layout where there are large ones.

        The layout is a JSON list: a positive number takes so many bytes of the small blob, a negative one is a large
        blob.
        """
        if all(len(part) < LARGE_PART for part in parts):
            small = parts[0] if len(parts) == 1 else b"".join(parts)
            return (self.put(small) if small else None), None
        layout: list[int] = []
        rest: list[bytes] = []
        for part in parts:
            if len(part) >= LARGE_PART:
                layout.append(-self.put(part))
            elif part:
                rest.append(part)
                layout.append(len(part))
        return (self.put(b"".join(rest)) if rest else None), json.dumps(layout, separators=(",", ":"))


class BlobReader:
    """Reads blobs; the last large ones stay unpacked, so that a conversation's twenty questions share one object."""

    def __init__(self, connection: sqlite3.Connection, unpacker: Unpacker) -> None:
        self._connection = connection
        self._unpack = unpacker.unpack
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._cached_bytes = 0

    def by_number(self, number: int) -> bytes:
        cached = self._cache.get(number)
        if cached is not None:
            self._cache.move_to_end(number)
            return cached
        row = self._connection.execute("SELECT data FROM blob WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise StoreError(f"damaged store: blob {number} is missing")
        data = self._unpack(row[0])
        if LARGE_PART <= len(data) <= CACHE_BYTES // 2:
            self._remember(number, data)
        return data

    def _remember(self, number: int, data: bytes) -> None:
        self._cache[number] = data
        self._cached_bytes += len(data)
        while self._cached_bytes > CACHE_BYTES:
            _, old = self._cache.popitem(last=False)
            self._cached_bytes -= len(old)

    def by_digest(self, digest: str) -> bytes:
        row = self._connection.execute("SELECT id FROM blob WHERE digest = ?", (bytes.fromhex(digest),)).fetchone()
        if row is None:
            raise StoreError(f"damaged store: blob {digest[:12]} is missing")
        return self.by_number(row[0])

    def body_parts(self, small: int | None, layout: str | None) -> tuple[bytes, ...]:
        rest = b"" if small is None else self.by_number(small)
        if layout is None:
            return (rest,)
        parts: list[bytes] = []
        at = 0
        for item in json.loads(layout):
            if item < 0:
                parts.append(self.by_number(-item))
            else:
                parts.append(rest[at : at + item])
                at += item
        return tuple(parts)


class StoredBody(Mapping[str, Any]):
    """A large request body, parsed when it is first looked into."""

    __slots__ = ("_parsed", "_parts")

    def __init__(self, parts: tuple[bytes, ...]) -> None:
        self._parts = parts
        self._parsed: dict[str, Any] | None = None

    def _mapping(self) -> dict[str, Any]:
        if self._parsed is None:
            value = json.loads(b"".join(self._parts))
            self._parsed = value if isinstance(value, dict) else {}
        return self._parsed

    def __getitem__(self, key: str) -> Any:
        return self._mapping()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping())

    def __len__(self) -> int:
        return len(self._mapping())


def parse_body(parts: tuple[bytes, ...]) -> Mapping[str, Any] | bytes:
    """The request's body as a mapping; as bytes where it is none (a fragment can be malformed on purpose)."""
    if sum(map(len, parts)) >= LAZY_BODY:
        return StoredBody(parts)
    data = b"".join(parts)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    return value if isinstance(value, dict) else data
