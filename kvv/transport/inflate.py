"""Undoes a content encoding in bounded memory: a small answer that unpacks to gigabytes never exists in full."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

#: what one step may unpack; the reader counts and stops between steps
STEP = 64 * 1024


class BadEncoding(ValueError):
    """The body is not what its content-encoding says; the message is one line without any of the data."""


class Inflater:
    """A fold over the packets of one body. ``encoding`` is the header's value: gzip, x-gzip, deflate, identity or
    empty.

    deflate is accepted with its zlib header (RFC 9110) and, as many servers send it, without. gzip may have several
    members.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding.strip().lower()
        if self._encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise BadEncoding(f"content-encoding {self._encoding[:40]!r} was not asked for")
        self._unpacker: zlib._Decompress | None = None
        self._ended = False

    @property
    def transparent(self) -> bool:
        return self._encoding in ("", "identity")

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The unpacked bytes in pieces of at most ``STEP``. Raises BadEncoding."""
        while data:
            if self._unpacker is None:
                if self._ended and self._encoding == "deflate":
                    raise BadEncoding("bytes after the end of the deflate stream")
                self._unpacker = zlib.decompressobj(self._window(data))
            try:
                piece = self._unpacker.decompress(data, STEP)
            except zlib.error as error:
                raise BadEncoding(f"{self._encoding} data is broken ({_reason(error)})") from None
            if piece:
                yield piece
            if self._unpacker.eof:
                data, self._unpacker, self._ended = self._unpacker.unused_data, None, True
            else:
                data = self._unpacker.unconsumed_tail
                if not data and len(piece) == STEP:
                    yield from self._rest(self._unpacker)

    def finish(self) -> None:
        """Raises BadEncoding when the body ended inside the packed data. No data at all is no error: an empty body."""
        if self._unpacker is not None:
            raise BadEncoding(f"{self._encoding} data ends before its end")

    def _rest(self, unpacker: zlib._Decompress) -> Iterator[bytes]:
        """What zlib still holds of input that it has taken in whole: the piece came out exactly full."""
        while piece := unpacker.decompress(b"", STEP):
            yield piece
        if unpacker.eof:
            self._unpacker, self._ended = None, True

    def _window(self, data: bytes) -> int:
        if self._encoding != "deflate":
            return 31
        zlib_header = data[0] & 0x0F == 8 and (len(data) < 2 or (data[0] * 256 + data[1]) % 31 == 0)
        return 15 if zlib_header else -15


def _reason(error: zlib.error) -> str:
    """zlib's own words, which never quote the data."""
    return str(error).rpartition(": ")[2][:80]
