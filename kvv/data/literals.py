"""Python literals in a column, as ``repr`` writes them: parsed, never evaluated, within bounds.

``ast.literal_eval`` would compile the text first, and a deeply nested one exhausts the interpreter's stack there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

#: characters of one literal; a conversation of ten million tokens has about 50 million
MAX_CHARACTERS = 256 << 20
#: the public sets nest five deep
MAX_DEPTH = 40
#: digits of one integer: Python's own limit for text is not lower
MAX_DIGITS = 300

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r"""'((?:[^'\\\n]|\\[\s\S])*+)'|"((?:[^"\\\n]|\\[\s\S])*+)\"""")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_.])")
_WORD = re.compile(r"True|False|None|nan|inf|-inf")
_ESCAPE = re.compile(
    r"""\\(?:(\n)|([\\'"abfnrtv])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|[\s\S])"""
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WORDS: dict[str, Any] = {
    "True": True,
    "False": False,
    "None": None,
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
}
_CLOSING = {"[": "]", "(": ")", "{": "}"}


class LiteralError(ValueError):
    """Text that is no literal, or one beyond the bounds; the message is one line that names the character."""


def parse_literal(text: str) -> Any:
    """Strings, numbers, True, False, None, lists, tuples (as lists) and dictionaries, ``MAX_DEPTH`` deep at most.
    LiteralError for the rest.
    """
    if len(text) > MAX_CHARACTERS:
        raise LiteralError(f"longer than {MAX_CHARACTERS} characters")
    parser = _Parser(text)
    value = parser.value(0)
    parser.skip()
    if parser.at != len(text):
        raise parser.error("something stands behind the literal")
    return value


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def error(self, what: str) -> LiteralError:
        return LiteralError(f"no Python literal: {what} at character {self.at}: {self.text[self.at : self.at + 20]!r}")

    def skip(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH}")
        self.skip()
        sign = self.text[self.at : self.at + 1]
        if sign in _CLOSING and sign:
            return self._container(sign, depth)
        if found := _STRING.match(self.text, self.at):
            self.at = found.end()
            body = found[1] if found[1] is not None else found[2]
            return self._unescaped(body) if "\\" in body else body
        if found := _NUMBER.match(self.text, self.at):
            return self._number(found)
        if found := _WORD.match(self.text, self.at):
            self.at = found.end()
            return _WORDS[found[0]]
        raise self.error("no value")

    def _number(self, found: re.Match[str]) -> int | float:
        if len(found[0]) > MAX_DIGITS:
            raise self.error(f"a number of more than {MAX_DIGITS} characters")
        self.at = found.end()
        return float(found[0]) if any(sign in found[0] for sign in ".eE") else int(found[0])

    def _container(self, sign: str, depth: int) -> Any:
        self.at += 1
        close = _CLOSING[sign]
        add: Callable[[int], None]
        pairs: dict[Any, Any] = {}
        items: list[Any] = []

        def add_pair(level: int) -> None:
            key = self.value(level)
            if not isinstance(key, str | int | float | bool | None):
                raise self.error("a key that is no plain value")
            self._expect(":")
            pairs[key] = self.value(level)

        def add_item(level: int) -> None:
            items.append(self.value(level))

        add = add_pair if sign == "{" else add_item
        while True:
            self.skip()
            if self.text[self.at : self.at + 1] == close:
                self.at += 1
                return pairs if sign == "{" else items
            add(depth + 1)
            self.skip()
            if self.text[self.at : self.at + 1] != close:
                self._expect(",")

    def _expect(self, sign: str) -> None:
        self.skip()
        if self.text[self.at : self.at + 1] != sign:
            raise self.error(f"{sign!r} is missing")
        self.at += 1

    def _unescaped(self, body: str) -> str:
        try:
            return _ESCAPE.sub(_escaped, body)
        except (ValueError, OverflowError):
            raise self.error("an escape beyond Unicode") from None


def _escaped(found: re.Match[str]) -> str:
    newline, simple, two, four, eight, octal = found.groups()
    if newline:
        return ""
    if simple:
        return _SIMPLE.get(simple, simple)
    if digits := two or four or eight:
        return chr(int(digits, 16))
    if octal:
        return chr(int(octal, 8))
    return found[0]  # an unknown escape stands for itself, as in Python
