"""Server-sent events as the WHATWG HTML standard defines them (section 9.2.6, "Interpreting an event stream").

Lines end in CRLF, LF or CR; a leading byte order mark is dropped; comments and the fields id, event and retry
are legal; several data lines are joined by LF; an event without data is not dispatched, nor is the last one
when the stream ends before its blank line. The same bytes give the same events however they are split.
"""

from __future__ import annotations

from kvv.core import Frame

_BOM = b"\xef\xbb\xbf"


class EventStream:
    """A fold over the bytes of one event stream.

    ``overflow`` is set, and nothing more is read, once a line or event exceeds ``event_bytes``.
    ``unterminated`` holds after ``finish`` what the last, undispatched event had sent.
    """

    __slots__ = (
        "_after_cr",
        "_begun",
        "_data",
        "_data_size",
        "_event",
        "_idle",
        "_limit",
        "_partial",
        "_partial_size",
        "comments",
        "count",
        "empty_after_id",
        "fields",
        "id_seen",
        "overflow",
        "unterminated",
    )

    def __init__(self, event_bytes: int = 16 << 20) -> None:
        self._limit = event_bytes
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = b""
        self._begun = False
        self._after_cr = False
        #: the next byte begins an event, and nothing is remembered
        self._idle = False
        self.count = 0
        self.comments = 0
        #: lines that are neither comment nor data
        self.fields = 0
        self.id_seen = False
        #: blank lines that end an event without data after an id was set: openai-python takes them for events
        self.empty_after_id = 0
        self.overflow = False
        self.unterminated = b""

    def feed(self, data: bytes, offset_ms: float) -> list[Frame]:
        """The events that these bytes complete; ``offset_ms`` is stamped on each."""
        frames: list[Frame] = []
        if self._idle:
            # nearly every event of nearly every server is one line "data: ...", LF, LF, and comes alone or whole
            start, count, limit = 0, self.count, self._limit
            while data.startswith(b"data: ", start):
                end = data.find(b"\n", start)
                if end < 0 or not data.startswith(b"\n", end + 1):
                    break
                payload = data[start + 6 : end]
                if b"\r" in payload or end - start - 6 > limit:
                    break
                count += 1
                frames.append(Frame(count, offset_ms, payload))
                start = end + 2
            self.count = count
            if start == len(data):
                return frames
            data = data[start:]
        if not self.overflow and data:
            self._lines(data, offset_ms, frames)
            self._idle = self._begun and not (
                self._partial or self._data or self._event or self._after_cr or self.overflow
            )
        return frames

    def _lines(self, data: bytes, offset_ms: float, frames: list[Frame]) -> None:
        """Any bytes, line by line."""
        if self._partial or not self._begun:
            whole = self._resume(data)
            if whole is None:
                return
            data = whole
        position, size = 0, len(data)
        if self._after_cr:
            self._after_cr = False
            if data.startswith(b"\n"):
                position = 1
        line_feed = -2
        while position < size:
            if line_feed < position and line_feed != -1:
                line_feed = data.find(b"\n", position)
            end = data.find(b"\r", position, line_feed if line_feed >= 0 else size)
            if end < 0:
                end = line_feed
                if end < 0:
                    self._keep(data[position:])
                    return
                step = 1
            elif end + 1 == size:
                step, self._after_cr = 1, True
            else:
                step = 2 if data[end + 1] == 10 else 1
            self._line(data[position:end], offset_ms, frames)
            if self.overflow:
                return
            position = end + step

    def finish(self, offset_ms: float) -> list[Frame]:
        """The end of the stream: dispatches nothing, by the standard, and remembers what was left."""
        self.unterminated = b"\n".join([*self._data, *([b"".join(self._partial)] if self._partial else [])])
        self._data, self._partial = [], []
        return []

    def _resume(self, data: bytes) -> bytes | None:
        """The unread bytes with ``data`` behind them; None while no line can end or begin."""
        if self._begun and not (b"\n" in data or b"\r" in data):
            self._keep(data)
            return None
        whole = b"".join([*self._partial, data])
        if not self._begun:
            if len(whole) < 3 and _BOM.startswith(whole):
                self._partial, self._partial_size = [whole], len(whole)
                return None
            self._begun = True
            whole = whole.removeprefix(_BOM)
        self._partial, self._partial_size = [], 0
        return whole

    def _keep(self, data: bytes) -> None:
        self._partial.append(data)
        self._partial_size += len(data)
        if self._partial_size + self._data_size > self._limit + 6:
            self.overflow = True

    def _line(self, line: bytes, offset_ms: float, frames: list[Frame]) -> None:
        if not line:
            self._dispatch(offset_ms, frames)
            return
        if len(line) > self._limit + 6:
            self.overflow = True
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value) + 1
            if self._data_size > self._limit + 1:
                self.overflow = True
        elif not name:
            self.comments += 1
        else:
            self.fields += 1
            if name == b"event":
                self._event = value
            elif name == b"id":
                self.id_seen = True

    def _dispatch(self, offset_ms: float, frames: list[Frame]) -> None:
        if not self._data:
            self._event = b""
            if self.id_seen:
                self.empty_after_id += 1
            return
        payload = b"\n".join(self._data)
        event = self._event[:200].decode("utf-8", "replace") if self._event else ""
        self._data, self._data_size, self._event = [], 0, b""
        self.count += 1
        # "body" marks an answer that is no event stream; a server's own event of that name must not pass for one
        frames.append(Frame(self.count, offset_ms, payload, "body " if event == "body" else event))
