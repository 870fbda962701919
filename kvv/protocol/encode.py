"""Request bodies to JSON text, in parts that are shared rather than copied.

A ``Fragment`` anywhere in the body becomes a part of its own, the same bytes object, so that a million-token
history is serialised once and sent twenty times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kvv.core import Fragment


@dataclass(frozen=True, slots=True)
class EncodedBody:
    """``b"".join(parts)`` is the JSON text: UTF-8, compact, key order kept. ``size`` is its length in bytes."""

    parts: tuple[bytes, ...]
    size: int


def encode(body: Mapping[str, Any] | bytes) -> EncodedBody:
    """The bytes of ``body``; raw bytes pass through.

    Integers may exceed 64 bits, lone surrogates are sent as ``\\udXXX`` escapes. ValueError for what JSON cannot
    carry: NaN and infinities, keys that are no strings, unknown types, a splice outside a list.
    """
    if isinstance(body, bytes):
        return EncodedBody(parts=(body,), size=len(body))
    parts = _Parts()
    if _holds_fragment(body):
        _emit(body, parts)
    else:
        parts.text(_dumps(body))
    return parts.body()


class _Parts:
    """Collects text; neighbours are joined, fragments stay apart."""

    __slots__ = ("_done", "_open")

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._open: list[bytes] = []

    def text(self, data: bytes) -> None:
        self._open.append(data)

    def fragment(self, data: bytes) -> None:
        self._flush()
        self._done.append(data)

    def body(self) -> EncodedBody:
        self._flush()
        return EncodedBody(parts=tuple(self._done), size=sum(map(len, self._done)))

    def _flush(self) -> None:
        if self._open:
            self._done.append(b"".join(self._open))
            self._open = []


def _emit(value: object, parts: _Parts) -> None:
    """Descends only where a fragment is; recursion is as deep as the deepest fragment."""
    match value:
        case Fragment():
            if value.splice:
                raise ValueError("a splice stands only inside a list")
            if not value.data:
                raise ValueError("an empty fragment is no JSON value")
            parts.fragment(value.data)
        case Mapping() if _holds_fragment(value):
            lead = b"{"
            for key, item in value.items():
                parts.text(lead + _dumps(key) + b":")
                _emit(item, parts)
                lead = b","
            parts.text(b"}")
        case list() | tuple() if _holds_fragment(value):
            _emit_list(value, parts)
        case _:
            parts.text(_dumps(value))


def _emit_list(items: Sequence[object], parts: _Parts) -> None:
    parts.text(b"[")
    first = True
    for item in items:
        if isinstance(item, Fragment) and item.splice and not item.data:
            continue
        if not first:
            parts.text(b",")
        first = False
        if isinstance(item, Fragment) and item.splice:
            parts.fragment(item.data)
        else:
            _emit(item, parts)
    parts.text(b"]")


def _holds_fragment(value: object) -> bool:
    """Whether a fragment is anywhere below; refuses on the way what JSON cannot carry and orjson would let pass."""
    found = False
    stack = [value]
    while stack:
        item = stack.pop()
        match item:
            case Fragment():
                found = True
            case Mapping():
                for key in item:
                    if not isinstance(key, str):
                        raise ValueError(f"a JSON key must be a string, not {key!r:.60}")
                stack.extend(item.values())
            case list() | tuple():
                stack.extend(item)
            case float() if not math.isfinite(item):
                raise ValueError(f"{item} is no JSON number")
    return found


def _dumps(value: object) -> bytes:
    """Compact UTF-8; the standard library takes over what orjson refuses."""
    try:
        # without this option a dataclass would pass as an object: a picture that nobody has read yet must not be sent
        # as its own name
        return orjson.dumps(value, default=_as_plain, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:
        pass
    try:
        text = json.dumps(value, default=_as_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the body is no JSON: {error}") from error
    # the only characters UTF-8 refuses are lone surrogates, and this handler writes exactly their JSON escape
    return text.encode("utf-8", "backslashreplace")


def _as_plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")
