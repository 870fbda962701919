"""A text that matches a regular expression, for the plain ones that tool schemas use.

Understands literals, classes, escapes, groups, alternatives and quantifiers; look-around and back-references are not
generated. Every result is checked with ``re`` before it is given out.
"""

import re

from kvv.mockserver.validation.schema_walk import NoValue

_CLASSES = {"d": "5", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a", "n": "\n", "t": "\t", "r": "\r"}
_PREFERRED = "abcxyz0123456789ABC -_.@/:#+=~!ehij"
_REPEAT = re.compile(r"\{(\d+)(,(\d*))?\}")


def text_matching(pattern: str, least: int = 0, most: int | None = None) -> str:
    """A text within the length bounds in which ``pattern`` is found; raises NoValue if none is found."""
    for extra in (0, 1, 3, 8, max(0, least)):
        try:
            text = _Reader(pattern, extra).read()
        except (IndexError, ValueError, RecursionError):
            break
        if len(text) < least and not pattern.endswith("$"):
            text += "a" * (least - len(text))
        if len(text) >= least and (most is None or len(text) <= most) and re.search(pattern, text):
            return text
    raise NoValue("no text for this pattern")


class _Reader:
    """One left-to-right reading; ``extra`` is how far an open quantifier goes beyond its least count."""

    def __init__(self, pattern: str, extra: int) -> None:
        self.pattern = pattern
        self.at = 0
        self.extra = extra

    def read(self) -> str:
        text = self._alternatives()
        if self.at < len(self.pattern):
            raise ValueError("unbalanced group")
        return text

    def _alternatives(self) -> str:
        branches = [self._sequence()]
        while self._peek() == "|":
            self.at += 1
            branches.append(self._sequence())
        return branches[0]

    def _peek(self) -> str:
        return self.pattern[self.at] if self.at < len(self.pattern) else ""

    def _sequence(self) -> str:
        parts: list[str] = []
        while self._peek() not in ("", "|", ")"):
            unit = self._unit()
            parts.append(unit * self._repeats())
        return "".join(parts)

    def _unit(self) -> str:
        char = self.pattern[self.at]
        self.at += 1
        match char:
            case "^" | "$":
                return ""
            case ".":
                return "a"
            case "[":
                return self._class()
            case "(":
                return self._group()
            case "\\":
                return self._escape()
        return char

    def _group(self) -> str:
        if self.pattern.startswith("?", self.at):
            head = re.match(r"\?(?::|P?<\w+>)", self.pattern[self.at :])
            if head is None:
                raise ValueError("look-around is not generated")
            self.at += head.end()
        text = self._alternatives()
        if self._peek() != ")":
            raise ValueError("unbalanced group")
        self.at += 1
        return text

    def _escape(self) -> str:
        char = self.pattern[self.at]
        self.at += 1
        if char in "bBAZz":
            return ""
        if char.isdigit() or char in "pPuxk":
            raise ValueError("this escape is not generated")
        return _CLASSES.get(char, char)

    def _class(self) -> str:
        start = self.at
        if self._peek() == "^":
            self.at += 1
        if self._peek() == "]":
            self.at += 1
        while self._peek() != "]":
            self.at += 2 if self.pattern[self.at] == "\\" else 1
        self.at += 1
        wanted = re.compile("[" + self.pattern[start : self.at])
        members = [*_PREFERRED, *map(chr, range(33, 0x250)), *map(chr, range(0x4E00, 0x4E10))]
        member: str | None = next((candidate for candidate in members if wanted.fullmatch(candidate)), None)
        if member is None:
            raise ValueError("this class is not generated")
        return member

    def _repeats(self) -> int:
        char = self._peek()
        if char in ("*", "+", "?"):
            self.at += 1
            count = {"*": self.extra, "+": 1 + self.extra, "?": 0}[char]
        elif found := _REPEAT.match(self.pattern, self.at):
            self.at = found.end()
            least = int(found[1])
            count = (
                least
                if found[2] is None
                else least + self.extra
                if not found[3]
                else min(int(found[3]), least + self.extra)
            )
        else:
            return 1
        if self._peek() == "?":
            self.at += 1
        return count
