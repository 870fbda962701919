"""A secret spelled out over several events, a character or a token each: no one frame holds it, and all of them
together do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kvv.core import Frame
from kvv.protocol.redaction.redactor import MARK, Redactor

#: nesting of a frame's JSON that is looked into; no text of an answer stands deeper
DEPTH = 12

#: where in a frame's JSON a text stands: names, and for the items of a list their own ``index``
Path = tuple[str, ...]


@dataclass(slots=True)
class _Piece:
    """One text of one frame: ``holder[name]`` is its string; ``start`` counts bytes in the joined text of its path."""

    frame: int
    holder: dict[str, Any]
    name: str
    start: int
    size: int


@dataclass(slots=True)
class _Text:
    """What the texts under one path add up to."""

    pieces: list[_Piece] = field(default_factory=list)
    joined: bytearray = field(default_factory=bytearray)


def without_pieces(frames: tuple[Frame, ...], redactor: Redactor) -> tuple[Frame, ...]:
    """The frames, those that hold pieces of a secret rewritten without them: as JSON with the mark in the first piece's
    place.
    """
    values: dict[int, Any] = {}
    texts: dict[Path, _Text] = {}
    for place, frame in enumerate(frames):
        try:
            value = json.loads(frame.data)
        except (ValueError, RecursionError):  # not JSON: no text of it was joined to anything
            continue
        values[place] = value
        for path, holder, name in _strings(value, (), 0):
            text = texts.setdefault(path, _Text())
            data = holder[name].encode("utf-8", "surrogatepass")
            text.pieces.append(_Piece(place, holder, name, len(text.joined), len(data)))
            text.joined += data
    changed = {place for text in texts.values() for place in _cleared(text, redactor)}
    return tuple(
        Frame(frame.number, frame.offset_ms, json.dumps(values[place], separators=(",", ":")).encode(), frame.event)
        if place in changed
        else frame
        for place, frame in enumerate(frames)
    )


def _strings(value: Any, path: Path, depth: int) -> Iterator[tuple[Path, dict[str, Any], str]]:
    """Every string that is a value of an object, in order."""
    if depth > DEPTH:
        return
    if isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, str):
                yield (*path, name), value, name
            else:
                yield from _strings(item, (*path, name), depth + 1)
    elif isinstance(value, list):
        for item in value:
            index = item.get("index") if isinstance(item, dict) else None
            yield from _strings(item, (*path, str(index)), depth + 1)


def _cleared(text: _Text, redactor: Redactor) -> Iterator[int]:
    """Takes the secrets out of the pieces; the places of the frames that held some of one."""
    joined = bytes(text.joined)
    if not redactor.holds(joined):
        return
    spans = redactor.spans(joined)
    for piece in text.pieces:
        end = piece.start + piece.size
        touching = [(begin, stop) for begin, stop in spans if begin < end and stop > piece.start]
        if not touching:
            continue
        kept, at = bytearray(), piece.start
        for begin, stop in touching:
            kept += joined[at : max(at, begin)]
            kept += MARK.encode() if begin >= piece.start else b""
            at = min(stop, end)
        kept += joined[at:end]
        piece.holder[piece.name] = kept.decode("utf-8", "replace")
        if isinstance(piece.holder.get("bytes"), list):  # a token's own bytes, beside it
            piece.holder["bytes"] = None
        yield piece.frame
