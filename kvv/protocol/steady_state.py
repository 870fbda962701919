"""The steady state of a stream: frames that equal the one before but for one piece of text.

A chunk of a long answer repeats its envelope byte for byte. Once one frame was parsed, decoded and checked, a
frame with the same bytes around one string value says the same of everything but that string, so only the
string is parsed.
"""

from __future__ import annotations

import re

import orjson

from kvv.core import Frame

#: no server sends this; it is put in the text's place to prove that the place is the right one
_SENTINEL = "kvv\x01steady"
_SENTINEL_JSON = orjson.dumps(_SENTINEL)
_REST_OF_STRING = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)
_KEYS = {
    name: re.compile(rb'"' + name.encode() + rb'"[ \t]*:[ \t]*"')
    for name in ("content", "reasoning_content", "reasoning", "arguments")
}
#: a key looked for more often than this in one frame is not the delta's
_TRIES = 4


class Steady:
    """A known envelope and where its text goes.

    ``pieces`` are the decoder's; ``frames`` and ``texts`` the rules' (None without rules). ``fresh`` counts the
    characters, ``hits`` the frames taken since the owner last reset them.
    """

    __slots__ = ("_prefix", "_rest", "_start", "_suffix", "frames", "fresh", "hits", "pieces", "texts")

    def __init__(
        self, around: tuple[bytes, bytes], pieces: list[str], frames: list[Frame] | None, texts: list[str] | None
    ) -> None:
        self._prefix, self._suffix = around
        # the string's own quotes belong to it
        self._start = len(self._prefix) - 1
        self._rest = len(self._suffix) - 1
        self.pieces = pieces
        self.frames = frames
        self.texts = texts
        self.fresh = 0
        self.hits = 0

    def take(self, frame: Frame) -> bool:
        """Take the frame if it is the envelope around one non-empty JSON string, else leave everything as it is."""
        data = frame.data
        if not data.startswith(self._prefix) or not data.endswith(self._suffix) or frame.event:
            return False
        try:
            text = orjson.loads(data[self._start : len(data) - self._rest])
        except orjson.JSONDecodeError:
            return False
        if text.__class__ is not str or not text:
            return False
        self.pieces.append(text)
        self.fresh += len(text)
        self.hits += 1
        if self.frames is not None and self.texts is not None:
            self.frames.append(frame)
            self.texts.append(text)
        return True


def envelope(data: bytes, field: str) -> tuple[bytes, bytes] | None:
    """The bytes before and after ``choices[0].delta``'s string ``field`` (for ``arguments`` of its one tool call); None
    where they cannot be told.

    The first end with the string's opening quote, the second begin with its closing quote.
    """
    start = 0
    for _ in range(_TRIES):
        key = _KEYS[field].search(data, start)
        if key is None:
            return None
        start = key.end()
        rest = _REST_OF_STRING.match(data, start)
        if rest is None:
            return None
        prefix, suffix = data[:start], data[rest.end() - 1 :]
        try:
            whole = orjson.loads(prefix[:-1] + _SENTINEL_JSON + suffix[1:])
        except orjson.JSONDecodeError:
            continue
        if _at(whole, field) == _SENTINEL:
            return prefix, suffix
    return None


def _at(body: object, field: str) -> object:
    try:
        delta = body["choices"][0]["delta"]  # type: ignore[index]
        return delta["tool_calls"][0]["function"]["arguments"] if field == "arguments" else delta[field]
    except (KeyError, IndexError, TypeError):
        return None
