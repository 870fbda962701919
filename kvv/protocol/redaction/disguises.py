"""A secret that an echo has changed on purpose or by accident: in other letter case, spaced out, backwards, cut short
at either end, in hexadecimal, in base32 or in base64 twice.

All of it is looked for in folded data: ASCII letters and digits alone, in lower case. That makes one search of many:
neither case nor what stands between the characters matters any more.

A piece of a secret counts from eight characters on, and only where it cannot be a word: an answer that says "kimi k3"
must not lose it to the key ``kimi-k3-9f2a...``, for a wrong verdict costs more than a prefix that everybody knows.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from itertools import pairwise

#: characters of a piece, of the secret itself
PIECE = 8
#: changes between lower case, upper case and digits within a piece that no word has
TELLING = 3
#: bytes before a piece's end within which it still counts as spaced out
REACH = 256

_LOWER = bytes.maketrans(bytes(range(0x41, 0x5B)), bytes(range(0x61, 0x7B)))
_KEPT = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DROPPED = bytes(byte for byte in range(256) if byte not in _KEPT)


def fold(data: bytes) -> bytes:
    return data.translate(_LOWER, _DROPPED)


class Disguises:
    """Finds these secrets, disguised, in any data. Takes linear time."""

    __slots__ = ("_ends", "_needles", "_starts")

    def __init__(self, secrets: Iterable[str]) -> None:
        #: each folded form with the size of the piece that tells it, from its start and from its end
        self._starts: list[tuple[bytes, int]] = []
        self._ends: list[tuple[bytes, int]] = []
        for secret in secrets:
            for form, start, end in _forms(secret):
                self._starts.append((form, start))
                self._ends.append((form, end))
        self._needles = tuple(
            dict.fromkeys([*(form[:size] for form, size in self._starts), *(form[-size:] for form, size in self._ends)])
        )

    def hidden_in(self, data: bytes) -> bool:
        if not self._needles:
            return False
        folded = fold(data)
        return any(needle in folded for needle in self._needles)

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """Where they stand, as begin and end; spans may overlap."""
        if not self.hidden_in(data):
            return []
        folded = fold(data)
        places = [place for place, byte in enumerate(data) if byte in _KEPT]
        found = [span for form, size in self._starts for span in _from_start(folded, form, size)]
        found += [
            (len(folded) - end, len(folded) - begin)
            for form, size in self._ends
            for begin, end in _from_start(folded[::-1], form[::-1], size)
        ]
        return [(places[begin], places[end - 1] + 1) for begin, end in found]


def _from_start(data: bytes, form: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Each place where at least ``size`` bytes of the form's start stand, as far as they go on."""
    begin = data.find(form[:size])
    while begin >= 0:
        end = begin + size
        while end < len(data) and end - begin < len(form) and data[end] == form[end - begin]:
            end += 1
        yield begin, end
        begin = data.find(form[:size], end)


def _forms(secret: str) -> Iterator[tuple[bytes, int, int]]:
    """The folded forms of a secret, each with the length of its piece from the start and from the end."""
    data = secret.encode("utf-8", "surrogatepass")
    letters = "".join(character for character in secret if character.isascii() and character.isalnum())
    folded = fold(letters.encode())
    if len(folded) >= PIECE and _changes(letters) >= TELLING - 1:
        start, end = _piece(letters), _piece(letters[::-1])
        yield folded, start, end
        yield folded[::-1], end, start
    if len(data) < PIECE:
        return
    for coded, size in (
        (data.hex().encode(), 2 * PIECE),
        # the last characters depend on what follows the secret, and the first ones of a later part on what is before it
        (base64.b32encode(data)[: len(data) * 8 // 5], PIECE * 8 // 5),
        *((core, 2 * PIECE * 4 // 3 - 4) for core in _twice_base64(data)),
    ):
        form = fold(coded)
        yield form, min(size, len(form)), min(size, len(form))


def _twice_base64(data: bytes) -> Iterator[bytes]:
    """The secret in base64, in either alphabet, and that in base64 again, alone or inside of a longer text."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        inner = encode(data)[: len(data) * 4 // 3]
        for before in range(3):
            first, end = -(-before * 8 // 6), (before + len(inner)) * 8 // 6
            yield base64.b64encode(bytes(before) + inner + bytes(-(before + len(inner)) % 3))[first:end]


def _piece(text: str) -> int:
    """How much of the start of the text cannot be a word: eight characters or more, all of it where nothing tells."""
    return next((size for size in range(PIECE, len(text)) if _changes(text[:size]) >= TELLING), len(text))


def _changes(text: str) -> int:
    kinds = [character.isdigit() + 2 * character.isupper() for character in text]
    return sum(one != other for one, other in pairwise(kinds))
