"""How a secret may be written by whoever echoes it: escaped for JSON, URLs and HTML, as a whole or in any mix, and in
base64.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

#: bytes that one escaped character takes at most, within reason
ESCAPED_LENGTH = 12

_ESCAPE = re.compile(
    rb"\\{1,8}u00([0-7][0-9a-fA-F])|%(?:25){0,3}([0-7][0-9a-fA-F])|&#[xX]0{0,7}([0-7][0-9a-fA-F]);?|&#0{0,7}([0-9]{2,3});?|\\{1,8}([!-/:-@\[-`{-~])"
)


def unescape(data: bytes) -> bytes:
    """The data with every escaped ASCII character as itself: what a search for the plain secret finds however it was
    mixed.
    """
    return _ESCAPE.sub(_character, data)


def _character(found: re.Match[bytes]) -> bytes:
    hexadecimal = found[1] or found[2] or found[3]
    if hexadecimal:
        return bytes((int(hexadecimal, 16),))
    if found[4]:
        return bytes((int(found[4]),)) if int(found[4]) < 128 else found[0]
    return found[5]


def hints(characters: Iterable[str]) -> tuple[tuple[bytes, re.Pattern[bytes]], ...]:
    """Cheap signs that one of these characters stands there escaped: a byte without which nothing is, and a pattern for
    the rest.
    """
    codes = sorted({ord(character) for character in characters if character.isascii()})
    hexadecimal, decimal = b"|".join(b"%02x" % code for code in codes), b"|".join(b"%d" % code for code in codes)
    if not codes:
        return ()
    return (
        (b"%", re.compile(rb"%%(?:25){0,3}(?i:%b)" % hexadecimal)),
        (b"\\", re.compile(rb"\\u00(?i:%b)" % hexadecimal)),
        (b"&", re.compile(rb"&#(?:[xX]0{0,7}(?i:%b)|0{0,7}(?:%b))" % (hexadecimal, decimal))),
    )


def escaped_pattern(text: str) -> bytes:
    """A pattern for the text with each of its characters plain or escaped in any of the ways, backslashes doubled as
    often as they may be.

    Each group is atomic: hostile text cannot make it try twice.
    """
    return b"".join(b"(?>" + b"|".join(_ways(character)) + b")" for character in text)


def _ways(character: str) -> list[bytes]:
    code, data = ord(character), character.encode("utf-8", "surrogatepass")
    plain = re.escape(data)
    # what begins with the character itself stands before it: a group gives nothing back
    ways = []
    if code < 0x10000:
        ways.append(rb"\\{1,8}u(?i:%04x)" % code)
    ways.append(b"".join(rb"%%(?:25){0,3}(?i:%02x)" % byte for byte in data))
    ways.append(rb"&#(?:[xX]0{0,7}(?i:%x)|0{0,7}%d);?" % (code, code))
    if (named := html.escape(character)) != character:
        ways.append(re.escape(named.encode()))
    # each backslash may have been doubled
    ways.append(rb"\\{1,8}" if character == "\\" else plain if character.isalnum() else rb"\\{0,8}" + plain)
    return ways


def forms(secret: str) -> set[bytes]:
    """The secret as it may stand in text, JSON (once and twice escaped), URLs and HTML."""
    texts = {secret, html.escape(secret), quote(secret), quote(secret, safe=""), quote_plus(secret)}
    texts |= {re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), text) for text in texts}
    for _ in range(2):
        texts |= {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in texts for ascii_only in (True, False)}
        texts |= {text.replace("/", "\\/") for text in texts}
    return {text.encode("utf-8", "surrogatepass") for text in texts}


def base64_cores(secret: str) -> set[bytes]:
    """For each of the three alignments the base64 characters that depend on the secret alone, in both alphabets."""
    data = secret.encode("utf-8", "surrogatepass")
    cores: set[bytes] = set()
    for before in range(3):
        bits = before * 8
        first, end = -(-bits // 6), (bits + len(data) * 8) // 6
        padded = bytes(before) + data + bytes(-(before + len(data)) % 3)
        cores |= {encode(padded)[first:end] for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    return cores
