"""Parsing of hostile JSON text: strict first, then as lenient clients read it, never with an exception.

``parse`` returns one of three things: the value of strict JSON (RFC 8259); ``Lenient`` where only a lenient
reader gets a value (NaN, lone surrogates, bytes that are no UTF-8, a byte order mark); ``Unparsed`` where nobody does.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import orjson

#: text with more brackets and commas than this is refused unparsed: it would cost gigabytes as objects
MAX_NODES = 8_000_000

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


@dataclass(frozen=True, slots=True)
class Lenient:
    """A value that strict JSON would not give. ``reason``: nan, lone-surrogate, not-utf8, byte-order-mark, number."""

    value: object
    reason: str


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Text nobody can read as JSON. ``reason``: empty, syntax, too-deep, too-many-nodes."""

    reason: str


class StreamDone:
    """The type of ``DONE``, which stands for the ``[DONE]`` line that ends an OpenAI stream."""

    __slots__ = ()


DONE = StreamDone()


def parse(data: bytes, depth: int = 200) -> object:
    """The value of ``data``, nested at most ``depth`` deep. Never raises."""
    if len(data) > depth and (data.count(b"[") + data.count(b"{")) > depth:
        if len(data) > 1 << 20 and data.count(b"[") + data.count(b"{") + data.count(b",") > MAX_NODES:
            return Unparsed("too-many-nodes")
        if nested_deeper(data, depth):
            return Unparsed("too-deep")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _leniently(data)


def parse_event(data: bytes, depth: int = 200) -> object:
    """The value of one server-sent event: ``DONE`` or what ``parse`` gives."""
    if data[:6] == b"[DONE]" or (len(data) < 32 and data.strip() == b"[DONE]"):
        return DONE if data.strip() == b"[DONE]" else parse(data, depth)
    return parse(data, depth)


def plain(parsed: object) -> object:
    """The value inside ``Lenient``, else ``parsed`` itself."""
    return parsed.value if isinstance(parsed, Lenient) else parsed


def nested_deeper(data: bytes, depth: int) -> bool:
    """Whether brackets outside strings nest deeper than ``depth``; mismatched brackets count as they stand."""
    level = 0
    for byte in _STRING.sub(b"", data).translate(None, _NOT_BRACKETS):
        if byte in b"[{":
            level += 1
            if level > depth:
                return True
        else:
            level -= 1
    return False


def _leniently(data: bytes) -> object:
    reason = ""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text, reason = data.decode("utf-8", "replace"), "not-utf8"
    if text.startswith("\ufeff"):
        text, reason = text[1:], reason or "byte-order-mark"
    if not text.strip():
        return Unparsed("empty")
    constants: list[str] = []

    def constant(name: str) -> float:
        constants.append(name)
        return float(name)

    try:
        value: object = json.loads(text, parse_constant=constant, parse_int=_bounded_int)
    except (ValueError, RecursionError):
        return Unparsed("syntax")
    if constants:
        reason = "nan"
    return Lenient(value, reason or ("lone-surrogate" if _SURROGATE.search(text) else "number"))


def _bounded_int(digits: str) -> int | float:
    """What no float can hold is read as a float of that size is, infinite; no count in this protocol has more than
    twenty digits.
    """
    return int(digits) if len(digits) < 309 else float(digits)
