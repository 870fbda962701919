"""A command's output, bounded while it arrives: the beginning and the end are kept, the middle is counted."""

from __future__ import annotations

import codecs
from collections import deque


class Kept:
    """At most ``limit`` characters, half from each end; bytes that are no UTF-8 become U+FFFD."""

    def __init__(self, limit: int) -> None:
        self._head_room = limit - limit // 2
        self._tail_room = limit // 2
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._in_tail = 0
        self.elided = 0

    def feed(self, data: bytes, *, final: bool = False) -> None:
        text = self._decode(data, final)
        if self._head_room:
            self._head.append(text[: self._head_room])
            text = text[self._head_room :]
            self._head_room -= len(self._head[-1])
        if not text:
            return
        self._tail.append(text)
        self._in_tail += len(text)
        while self._tail and self._in_tail - len(self._tail[0]) >= self._tail_room:
            self._drop(self._tail.popleft())

    def _drop(self, text: str) -> None:
        self._in_tail -= len(text)
        self.elided += len(text)

    def text(self) -> str:
        """Head and tail without a mark between them: ``elided`` characters stood there. To be asked once, at the
        end.
        """
        self.feed(b"", final=True)
        tail = "".join(self._tail)
        cut = max(0, len(tail) - self._tail_room)
        self.elided += cut
        return "".join(self._head) + tail[cut:]
